"""dcpred compare"""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dcpred.cli.options import (
    PATH,
    check_cluster_options,
    cluster_options,
    emit,
    files,
    held_out_options,
    json_option,
    reports_errors,
    storage_option,
)
from dcpred.comparison.systems import every_system
from dcpred.comparison.tables import cells, frontier, heads
from dcpred.execution.progress import reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.pages.page import check_packages
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.storage.zarr_arrays import find_array

if TYPE_CHECKING:
    from dcpred.comparison.compare import CompareReport


@click.command("compare")
@click.argument("data", shell_complete=files)
@click.option(
    "--out", type=PATH, required=True, metavar="DIR", help="Folder of tables, plots and report.html."
)
@click.option(
    "--systems",
    metavar="NAMES",
    help=f"With commas, of {', '.join(every_system())} [default: all that learn the task].",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="COST",
    help="A search of ours within this cost (20x, 200ns), beside its other points; may be repeated.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="The score in the table, which searches of ours compare settings by, of those that predictions alone"
    " have, as balanced_accuracy, f1_macro, neg_mean_cost=50 or neg_mean_absolute_error.",
)
@click.option("--test", metavar="DATA", help="Data set to judge by [default: a fifth of the rows, held out].")
@click.option(
    "--rows", type=click.IntRange(50, 100_000), default=10_000, show_default=True, help="Training rows."
)
@click.option(
    "--test-rows", type=click.IntRange(10), default=5_000, show_default=True, help="Rows to judge by."
)
@click.option(
    "--time-limit",
    type=float,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Processor time of all fits of a system. A system that exceeds it is reported as such.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which rows are drawn.")
@click.option(
    "--task", type=click.Choice(["classification", "regression"]), default="classification", show_default=True
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@held_out_options
@cluster_options
@json_option
@reports_errors
@storage_option
def compare_command(
    data: str,
    out: Path,
    systems: str | None,
    budgets: tuple[str, ...],
    metric: str | None,
    test: str | None,
    rows: int,
    test_rows: int,
    time_limit: float,
    seed: int,
    by_time: str | None,
    by_group: str | None,
    task: str,
    x: str,
    y: str,
    workers: int | None,
    scheduler: Scheduler | None,
    as_json: bool,
) -> None:
    """Many systems side by side on the same rows: accuracy (or RMSE), cost, training time and size.

    Kernel models share the scaling, γ and C that suit the exact model on held-out rows. Each system is
    tried over its own grid, in processes of their own. Writes table.csv, table.md, two plots and report.html.
    A comparison that was cut off goes on where it stopped when the same command is given again; other
    systems are added to what is there. --by-time and --by-group hold for the test rows and for the rows that
    settings are chosen on.
    """
    from dcpred.comparison.compare import Asked, compare  # noqa: PLC0415 - slow to import, and not needed for help
    from dcpred.tuning.tune import parse_budget  # noqa: PLC0415

    check_cluster_options(workers, scheduler)
    check_packages("a comparison", "compare")
    for budget in budgets:
        parse_budget(budget)
    asked = Asked(
        (find_array(data, x), find_array(data, y)),
        None
        if test is None
        else (find_rows(test, x, data, with_target=True), find_rows(test, y, data, with_target=True)),
        task,
        rows,
        test_rows,
        seed,
        by_time,
        by_group,
    )
    report = compare(
        asked,
        out,
        partial(connect, workers, scheduler),
        systems=systems,
        budgets=budgets,
        limit_seconds=time_limit,
        metric=metric,
        say=reporter(),
    )
    emit(asdict(report), as_json, partial(_table, report))


def _table(report: "CompareReport", _: dict[str, Any]) -> str:
    """The lines as a person reads them; those that no cheaper one beats have a star."""
    front = frontier(report)
    lines = [["", *heads(report)]]
    lines += [["*" if one in front else "", *cells(report, one)] for one in report.results]
    widths = [max(len(line[i]) for line in lines if i != 3 or line[4] or line is lines[0]) for i in range(10)]
    shown = [
        "  ".join(
            cell.ljust(w) if i < 3 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    shown = [line.rstrip() for line in shown]
    return "\n".join([*shown, "", f"* beaten by no cheaper one; pictures in {report.folder}/report.html"])
