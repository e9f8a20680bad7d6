"""dcpred score"""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from dcpred.cli import show
from dcpred.cli.shared import (
    PATH,
    check_cluster_options,
    cluster_options,
    emit,
    json_option,
    reports_errors,
)
from dcpred.cluster import connect
from dcpred.progress import reporter
from dcpred.scoring import score
from dcpred_tasks.store import find_array


@click.command("score")
@click.argument("model", type=PATH)
@click.argument("data")
@click.argument("output", type=PATH)
@click.option("--outputs", metavar="NAMES", help="label,decision [default: both; decision for regression].")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@cluster_options
@json_option
@reports_errors
def score_command(
    model: Path,
    data: str,
    output: Path,
    outputs: str | None,
    x: str,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Score every row of DATA into the directory OUTPUT.

    OUTPUT/scores.zarr holds label, decision and status; row i of each belongs to row i of X. A run that was cut off goes on
    where it stopped when the same command is given again; a finished run does nothing.
    """
    check_cluster_options(workers, scheduler)
    wanted = tuple(name.strip() for name in outputs.split(",") if name.strip()) if outputs is not None else None
    pool = partial(connect, workers, scheduler)
    report = score(model, find_array(data, x), output, pool, outputs=wanted, say=reporter())
    emit(asdict(report), as_json, show.scored)
