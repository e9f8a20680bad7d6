"""dcpred tune"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import (
    ADDRESS,
    SettingsType,
    check_cluster_options,
    cluster_options,
    data_options,
    emit,
    files,
    folds_options,
    json_option,
    metric_option,
    read_values,
    reports_errors,
    scratch_option,
    storage_option,
)
from dcpred.execution.progress import reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.training.publishing import trained_beside
from dcpred.tuning.frontier_plot import check_plot, draw_frontier, with_cost
from dcpred_tasks.storage.zarr_arrays import find_array
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, make_settings


@click.command("tune")
@click.argument("data", shell_complete=files)
@click.argument("model", type=ADDRESS)
@click.option(
    "--budget",
    metavar="COST",
    help=(
        "Maximum predicted cost of a row: 8x (linear predictions), or 0.2us, 200ns, compared with"
        " the time of a linear prediction on this computer [default: 20x or 100ns, whichever is more]."
    ),
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    type=SettingsType(BESIDE_A_SEARCH),
    metavar="KEY=VALUE",
    help=f"A setting that is not searched for ({', '.join(sorted(BESIDE_A_SEARCH))}); repeatable.",
)
@metric_option
@folds_options
@click.option("--short", is_flag=True, help="Search less, as `dcpred train` without settings does.")
@click.option(
    "--plot",
    type=ADDRESS,
    metavar="FILE",
    help="Also plot the Pareto front (.png, .svg or .pdf; needs matplotlib).",
)
@data_options
@cluster_options
@scratch_option
@json_option
@reports_errors
@storage_option
def tune_command(
    data: str,
    model: str | Path,
    budget: str | None,
    metric: str | None,
    by_time: str | None,
    by_group: str | None,
    folds: int | None,
    assignments: tuple[str, ...],
    short: bool,
    plot: Path | None,
    task: str | None,
    x: str,
    y: str,
    sample_weight: str | None,
    workers: int | None,
    scheduler: Scheduler | None,
    scratch: Path | None,
    as_json: bool,
) -> None:
    """Choose settings for a Zarr data set by validation, within a cost, and train with them.

    Candidates differ in leaves, landmarks, pairwise products, overlap, kernel width, ridge, loss, scaling
    and feature map. Held-out rows evaluate them. Prints the Pareto front, the least error at every cost,
    and writes the model to the new directory MODEL. The same command resumes an interrupted search or
    training.
    """
    from dcpred.datasets.split_rules import folds_of_data  # noqa: PLC0415
    from dcpred.tuning.metrics import metric_of  # noqa: PLC0415
    from dcpred.tuning.policy import STANDARD, THOROUGH  # noqa: PLC0415 - slow to import, and not needed for help
    from dcpred.tuning.tune import check_beside_a_search, parse_budget, tune  # noqa: PLC0415

    check_cluster_options(workers, scheduler)
    check_plot(plot)
    values = read_values(None, assignments, task)
    start = make_settings(values)
    check_beside_a_search(values)
    if metric is not None:
        metric_of(metric, start.task, 2)
    limit = parse_budget(budget) if budget is not None else None
    addresses = find_array(data, x), find_array(data, y)
    weight = find_array(data, sample_weight) if sample_weight else None
    held_out = folds_of_data(addresses[0], by_time, by_group, folds, start.seed)
    pool = partial(connect, workers, scheduler)
    say = reporter()
    if held_out is not None:
        say.say(f"held out: {held_out.words}")
    with trained_beside(model, scratch) as here:
        tuned = tune(
            *addresses,
            here,
            pool,
            start=start,
            weight=weight,
            budget=limit,
            policy=replace(STANDARD if short else THOROUGH, metric=metric),
            say=say,
            folds=held_out,
        )
    report = asdict(tuned)
    report["trained"]["model"] = str(model)
    emit(report, as_json, rendering.tuned)
    if plot:
        points, chosen = with_cost(report["frontier"], report["chosen"], report["made"]["cost_ratio"])
        draw_frontier({"frontier": points, "chosen": chosen}, plot)
