"""dcpred compare"""

from functools import partial
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.options import (
    PATH,
    cluster_options,
    emit,
    files,
    held_out_options,
    result_options,
    table_options,
)
from dcpred_compare.page import cells, frontier, heads
from dcpred_compare.result import CompareReport
from dcpred_compare.systems import every_system


@click.command("compare", epilog="Example: dcpred compare known.zarr --out side-by-side")
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
    help="Also tune a dcpred model within this cost (20x, 200ns); repeatable.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="The score in the table, which our tuning optimises, too. It needs predictions only: for example"
    " balanced_accuracy, f1_macro, neg_mean_cost=50 or neg_mean_absolute_error.",
)
@click.option("--test", metavar="DATA", help="Test data set [default: a held-out fifth of the rows].")
@click.option(
    "--rows", type=click.IntRange(50, 100_000), default=10_000, show_default=True, help="Training rows."
)
@click.option("--test-rows", type=click.IntRange(10), default=5_000, show_default=True, help="Test rows.")
@click.option(
    "--time-limit",
    type=float,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Processor time of all fits of a system. The table marks a system that exceeds it.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the row sample.")
@click.option(
    "--task", type=click.Choice(["classification", "regression"]), default="classification", show_default=True
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@table_options
@held_out_options
@cluster_options
@result_options
def compare_command(data: str, out: Path, as_json: bool, **options: Any) -> None:
    """Compare dcpred with baselines on the same rows: accuracy (or RMSE), cost, training time and size.

    Kernel machines share the scaling, γ and C that suit the exact SVM on held-out rows. Each system
    searches its own grid in a separate process. Writes table.csv, table.md, two plots and report.html.
    The same command resumes an interrupted comparison, and adds further systems to a finished one.
    --by-time and --by-group apply to the test rows and to the rows that settings are chosen on.
    """
    report = dcpred.compare(data, out, **options, verbose=True)
    emit(report.as_dict(), as_json, partial(_table, report))


def _table(report: CompareReport, _: dict[str, Any]) -> str:
    """The lines as text; a star marks those that no cheaper line beats."""
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
    return "\n".join([*shown, "", f"* no cheaper system is better; plots in {report.folder}/report.html"])
