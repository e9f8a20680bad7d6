"""dcpred score"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli import rendering
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
    SCHEDULER_VARIABLE,
    bad_row_options,
    cluster_options,
    costs_options,
    emit,
    files,
    json_option,
    outcome_of,
    outputs_options,
    parquet_options,
    reports_errors,
    storage_option,
)
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring.repair import LEVELS
from dcpred.scoring.score import ShardReport
from dcpred_tasks.errors import SettingsError


class ShardType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """i/n, auto/n or auto."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        try:
            return parse_shard(str(value), os.environ)
        except SettingsError as error:
            raise click.UsageError(str(error), ctx) from None


SHARD = ShardType()


@click.command("score")
@click.argument("model", type=ADDRESS)
@click.argument("data", shell_complete=files)
@click.argument("output", type=ADDRESS)
@outputs_options
@costs_options
@parquet_options
@click.option(
    "--delta",
    type=ADDRESS,
    metavar="TABLE",
    help="A Delta table that gets all Parquet files in one transaction once the run is finished.",
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option(
    "--quarantine",
    is_flag=True,
    help="Skip rows whose input chunks are damaged or missing, and go on [default: refuse].",
)
@click.option(
    "--max-failures",
    metavar="N",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Maximum number of failed blocks.",
)
@bad_row_options("stop the run when exceeded")
@click.option(
    "--repair", "mend", is_flag=True, help="Verify OUTPUT, and score again only what is wrong or was skipped."
)
@click.option(
    "--level", type=click.Choice(LEVELS), help="Level of the verification by --repair [default: full]."
)
@click.option(
    "--shard",
    type=SHARD,
    metavar="I/N",
    help="Score only blocks I, I + N, I + 2N, …; other shards score the rest. auto/N takes I from a Slurm"
    " array or an Indexed Job, auto also N from a Slurm array.",
)
@cluster_options
@json_option
@reports_errors
@observation_options
@storage_option
def score_command(
    model: str | Path,
    data: str,
    output: str | Path,
    mend: bool,
    level: str | None,
    shard: Shard | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Score every row of DATA into the directory OUTPUT.

    OUTPUT/scores.zarr holds label, decision and status; row i of each belongs to row i of X. The same command
    resumes an interrupted run; a finished run does nothing. With --shard the last shard to end verifies
    everything; the others exit with 0 before that.
    """
    if level is not None and not mend:
        raise click.UsageError(
            "Cannot use --level: --repair is missing, whose level it is. Use `dcpred verify` to look only."
        )
    if shard is not None and (mend or options["client"] is not None):
        other = "--repair" if mend else f"a scheduler (--scheduler or {SCHEDULER_VARIABLE})"
        raise click.UsageError(
            f"Cannot combine --shard with {other}: one excludes the other. Give one of them."
        )
    act = partial(dcpred.repair, level=level or "full") if mend else partial(dcpred.score, shard=shard)
    report, error = outcome_of(lambda: act(model, data, output, **options, verbose=True))
    show = rendering.scored_shard if isinstance(report, ShardReport) else rendering.scored
    emit(report.as_dict(), as_json, show, error)
