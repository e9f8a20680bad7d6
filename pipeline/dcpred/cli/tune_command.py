"""dcpred tune"""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli import rendering
from dcpred.cli.options import (
    ADDRESS,
    SettingsType,
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
from dcpred_tasks.training.settings import BESIDE_A_SEARCH


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
    assignments: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Choose settings for a Zarr data set by validation, within a cost, and train with them.

    Candidates differ in leaves, landmarks, pairwise products, overlap, kernel width, ridge, loss, scaling
    and feature map. Held-out rows evaluate them. Prints the Pareto front, the least error at every cost,
    and writes the model to the new directory MODEL. The same command resumes an interrupted search or
    training.
    """
    report = dcpred.tune(data, model, settings=read_values(None, assignments), **options, verbose=True)
    emit(report.as_dict(), as_json, rendering.tuned)
