"""dcpred score, dcpred deliver, dcpred refresh."""

import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import ADDRESS, SCHEDULER_VARIABLE, emit, outcome_of
from dcpred.execution.progress import counted
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring.repair import LEVELS
from dcpred_tasks.errors import DcpredError, InterruptedRunError, ResourceError, SettingsError


class ShardType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """i/n, auto/n or auto."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        try:
            return parse_shard(str(value), os.environ)
        except SettingsError as error:
            raise click.UsageError(str(error), ctx) from None


SHARD = ShardType()


@command("score", "model", "data", "output", omit=("shard",), observed=True)
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
    help="Score only blocks I, I + N, I + 2N, … I from 0 to N - 1; other shards score the rest. auto/N"
    " takes I from a Slurm array or an Indexed Job, auto also N from a Slurm array.",
)
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
    """OUTPUT/scores.zarr holds label, decision and status; row i of each belongs to row i of X. With --shard
    the last shard to end verifies everything; the others exit with 0 before that.
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
    emit(report, as_json, error)


# -- Deliver -------------------------------------------------------------------------------------------------


@command("deliver", "output", "table")
def deliver_command(output: str | Path, table: str | Path | None, as_json: bool, **options: Any) -> None:
    emit(dcpred.deliver(output, table, **options, verbose=True), as_json)


# -- Refresh -------------------------------------------------------------------------------------------------


NOTIFY_SECONDS = 60.0  # time limit of a command that gets the result


@command(
    "refresh",
    omit=("model", "data", "root"),
    observed=True,
    ignore_drift={"type": click.STRING, "metavar": "NAME", "note": "Repeatable."},
)
@click.argument("places", type=ADDRESS, nargs=-1, metavar="MODEL DATA ROOT")
@click.option("--publish", "publish_run", metavar="RUN", help="Make this run of ROOT the latest one.")
@click.option(
    "--notify", metavar="CMD", help="A shell command that gets the result as JSON, also after a failure."
)
def refresh_command(
    places: tuple[Any, ...], publish_run: str | None, notify: str | None, as_json: bool, **options: Any
) -> None:
    """DATA may be a pattern of several data sets, for example 'in/*.zarr' with one for every day. One run
    publishes all of them at once.

    With --publish, name ROOT alone: `dcpred refresh ROOT --publish RUN`.
    """
    if publish_run is not None:
        (root,) = _places(places, 1)
        _check_unused({*options, "scheduler"})
        with _notified(notify) as outcome:
            published = dcpred.publish(root, publish_run)
            outcome.update(published.as_dict())
        emit(published, as_json)
        return
    model, data, root = _places(places, 3)
    with _notified(notify) as outcome:
        report, error = outcome_of(lambda: dcpred.refresh(model, data, root, **options, verbose=True))
        outcome.update(report.as_dict())
        if error is not None:
            outcome.update(error=str(error), exit_code=error.exit_code)
    emit(report, as_json, error)


def _check_unused(names: Collection[str]) -> None:
    """Raise UsageError for a given option of these names, which a publication would ignore."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in names:
            raise click.UsageError(
                f"Cannot combine --publish with {parameter.opts[0]}: it only makes a run the latest, and"
                " scores and removes nothing. Omit one of them."
            )


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
