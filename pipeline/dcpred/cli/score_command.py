"""dcpred score"""

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from dcpred.cli import rendering
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
    SCHEDULER_VARIABLE,
    bad_row_options,
    check_cluster_options,
    cluster_options,
    costs_options,
    emit,
    files,
    json_option,
    outputs_options,
    reports_errors,
    storage_option,
)
from dcpred.execution.progress import reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.repair import LEVELS, repair
from dcpred.scoring.score import ShardReport, check_rows_scored, score, score_shard, store_threads
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.label_rule import Costs


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
    "--repair",
    "mend",
    is_flag=True,
    help="Verify OUTPUT, and score again only what is wrong or was skipped.",
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
    outputs: tuple[str, ...] | None,
    alpha: float | None,
    costs: Costs | None,
    x: str,
    quarantine: bool,
    max_failures: int,
    bad_rows: BadRowLimit,
    mend: bool,
    level: str | None,
    shard: Shard | None,
    workers: int | None,
    scheduler: Scheduler | None,
    as_json: bool,
) -> None:
    """Score every row of DATA into the directory OUTPUT.

    OUTPUT/scores.zarr holds label, decision and status; row i of each belongs to row i of X. The same command
    resumes an interrupted run; a finished run does nothing. With --shard the last shard to end verifies
    everything; the others exit with 0 before that.
    """
    check_cluster_options(workers, scheduler)
    if level is not None and not mend:
        raise click.UsageError(
            "Cannot use --level: --repair is missing, whose level it is. Use `dcpred verify` to look only."
        )
    if shard is not None and (mend or scheduler is not None):
        other = "--repair" if mend else f"a scheduler (--scheduler or {SCHEDULER_VARIABLE})"
        raise click.UsageError(
            f"Cannot combine --shard with {other}: one excludes the other. Give one of them."
        )
    tolerance = FailurePolicy(quarantine, max_failures, bad_rows)
    asked_for = workers is not None or scheduler is not None
    X = find_rows(data, x, model)
    pool = partial(connect, workers, scheduler, **store_threads(X, output)) if asked_for else None
    if shard is not None:
        part = score_shard(
            model,
            X,
            output,
            shard,
            pool,
            outputs=outputs,
            alpha=alpha,
            costs=costs,
            tolerance=tolerance,
            say=reporter(),
        )
        if isinstance(part, ShardReport):
            emit(asdict(part), as_json, rendering.scored_shard)
        else:
            emit(asdict(part), as_json, rendering.scored, partial(check_rows_scored, part, tolerance))
        return
    act = partial(repair, level=level or "full") if mend else score
    report = act(
        model, X, output, pool, outputs=outputs, alpha=alpha, costs=costs, tolerance=tolerance, say=reporter()
    )
    emit(asdict(report), as_json, rendering.scored, partial(check_rows_scored, report, tolerance))
