"""dcpred refresh"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from dcpred.cli import refresh_rendering
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
    check_cluster_options,
    cluster_options,
    emit,
    json_option,
    reports_errors,
    storage_option,
)
from dcpred.cli.output_options import bad_row_options, costs_options, outputs_options
from dcpred.execution.progress import counted, reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.refresh.limits import Limits
from dcpred.refresh.parts import is_pattern
from dcpred.refresh.refresh import check_published, publish, refresh
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.score import store_threads
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DcpredError, InterruptedRunError, ResourceError
from dcpred_tasks.model.label_rule import Costs

NOTIFY_SECONDS = 60.0  # time limit of a command that gets the result


@click.command("refresh")
@click.argument("places", type=ADDRESS, nargs=-1, metavar="MODEL DATA ROOT")
@outputs_options
@costs_options
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--full", is_flag=True, help="Score everything, and fix data, outputs and blocks anew.")
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(1),
    help="Number of newest finished runs to keep [default: all].",
)
@click.option("--publish", "publish_run", metavar="RUN", help="Make this run of ROOT the latest one.")
@bad_row_options("do not publish the run when exceeded")
@click.option(
    "--max-drift",
    metavar="PSI",
    type=float,
    help="The same for the stability index of leaves, features and scores; 0.25 is large.",
)
@click.option(
    "--max-shift",
    metavar="SD",
    type=float,
    help="The same for the shift of any feature; 0.8 is large, as is an sd 3 times as large or small.",
)
@click.option(
    "--quarantine",
    is_flag=True,
    help="Skip rows whose input chunks are damaged or missing, and go on [default: refuse].",
)
@click.option(
    "--notify", metavar="CMD", help="A shell command that gets the result as JSON, also after a failure."
)
@cluster_options
@json_option
@reports_errors
@observation_options
@storage_option
def refresh_command(
    places: tuple[Any, ...],
    outputs: tuple[str, ...] | None,
    alpha: float | None,
    costs: Costs | None,
    x: str,
    full: bool,
    keep: int | None,
    publish_run: str | None,
    bad_rows: BadRowLimit,
    max_drift: float | None,
    max_shift: float | None,
    quarantine: bool,
    notify: str | None,
    workers: int | None,
    scheduler: Scheduler | None,
    as_json: bool,
) -> None:
    """Score what is new or changed in DATA since the last run, and make ROOT/latest the complete result.

    ROOT/runs/NNNN-HASH are complete runs, as `dcpred score` makes them. A run reuses the blocks of an
    earlier one whose input is unchanged. Without any change, nothing is written. A new model scores
    everything.

    DATA may be a pattern of several data sets, for example 'in/*.zarr' with one for every day. One run
    publishes all of them at once.

    With --publish, name ROOT alone: `dcpred refresh ROOT --publish RUN`.
    """
    check_cluster_options(workers, scheduler)
    if publish_run is not None:
        (root,) = _places(places, 1)
        with _notified(notify) as outcome:
            outcome.update(latest=publish_run, before=publish(root, publish_run))
        emit({name: outcome[name] for name in ("latest", "before")}, as_json, refresh_rendering.published)
        return
    model, data, root = _places(places, 3)
    with _notified(notify) as outcome:
        limits = Limits(bad_rows, max_drift, max_shift)
        X = str(data) if is_pattern(str(data)) else find_rows(data, x, model)
        asked_for = workers is not None or scheduler is not None
        pool = partial(connect, workers, scheduler, **store_threads(X, root)) if asked_for else None
        report = refresh(
            model,
            X,
            root,
            pool,
            array=x,
            outputs=outputs,
            alpha=alpha,
            costs=costs,
            tolerance=FailurePolicy(quarantine),
            limits=limits,
            keep=keep,
            full=full,
            say=reporter(),
        )
        outcome.update(asdict(report))
        try:
            check_published(report)
        except DcpredError as error:
            outcome.update(error=str(error), exit_code=error.exit_code)
    emit(asdict(report), as_json, refresh_rendering.refreshed, partial(check_published, report))


def _places(places: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    if len(places) != n:
        wanted = "MODEL DATA ROOT" if n == 3 else "ROOT alone with --publish"
        raise click.UsageError(
            f"Cannot refresh: {counted(len(places), 'argument is', 'arguments are')} given, but"
            f" `dcpred refresh` takes {wanted}. Give those."
        )
    return places


@contextmanager
def _notified(command: str | None) -> Iterator[dict[str, Any]]:
    """Pass what a `with` statement puts there to a command at its end, also after an error."""
    outcome: dict[str, Any] = {"exit_code": 0}
    try:
        yield outcome
    except BaseException as error:
        outcome["error"] = str(error) or type(error).__name__
        outcome["exit_code"] = _exit_code(error)
        raise
    finally:
        if command is not None:
            _notify(command, json.dumps(outcome, default=str))


def _exit_code(error: BaseException) -> int:
    if isinstance(error, DcpredError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError.exit_code
    return ResourceError.exit_code if isinstance(error, OSError) else DcpredError.exit_code


def _notify(command: str, text: str) -> None:
    """Run a command, whose own output goes to standard error. A failure is printed, and changes nothing. The
    command itself is not printed: it may hold a token. At its time limit it ends with all its children.
    """
    why = ""
    try:
        with subprocess.Popen(
            command, shell=True, stdin=subprocess.PIPE, stdout=2, text=True, start_new_session=True
        ) as child:
            try:
                child.communicate(text, timeout=NOTIFY_SECONDS)
                why = f"ended with exit code {child.returncode}" if child.returncode else ""
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                why = f"did not end within {NOTIFY_SECONDS:.0f} s and was killed"
    except OSError as error:
        why = f"did not start: {error.strerror}"
    if why:
        click.echo(f"dcpred: the command of --notify {why}", err=True)
