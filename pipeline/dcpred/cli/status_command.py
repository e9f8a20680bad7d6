"""dcpred status and dcpred errors: what an output holds so far."""

from dataclasses import asdict
from pathlib import Path

import click

import dcpred
from dcpred.cli import refresh_command, rendering
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.refreshing.root import RootStatus
from dcpred.runs.bad_rows import list_bad_rows


@click.command("status")
@click.argument("output", type=ADDRESS)
@json_option
@reports_errors
@storage_option
def status_command(output: str | Path, as_json: bool) -> None:
    """Show the progress of the scoring of OUTPUT: what is done, failing and left, the speed and the time
    left. For the root of a refresh, list the last runs.

    Works during scoring, and needs neither the model nor the data.
    """
    found = dcpred.status(output)
    show = refresh_command.root_runs if isinstance(found, RootStatus) else rendering.run_state
    emit(found.as_dict(), as_json, show)


@click.command("errors")
@click.argument("output", type=ADDRESS)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Maximum number of rows to list.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Also search the status array [default: only the first rows that each block records].",
)
@json_option
@reports_errors
@storage_option
def errors_command(output: str | Path, limit: int, every: bool, as_json: bool) -> None:
    """List the rows of OUTPUT that have no score: block, row, status, and the first feature that is not
    finite.

    Works during scoring, and needs neither the model nor the data.
    """
    emit(asdict(list_bad_rows(output, limit, every)), as_json, rendering.bad_rows)
