"""dcpred status, errors, verify and inspect: what an output, a data set or a model holds."""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import ADDRESS, emit, result_options
from dcpred.reports.inspection import inspect_path
from dcpred.runs.bad_rows import list_bad_rows
from dcpred_tasks.errors import IncompleteError


@command("status", "output")
def status_command(output: str | Path, as_json: bool) -> None:
    emit(dcpred.status(output), as_json)


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
@result_options
def errors_command(output: str | Path, limit: int, every: bool, as_json: bool) -> None:
    """List the rows of OUTPUT that have no score: block, row, status, and the first feature that is not
    finite.

    Works during scoring, and needs neither the model nor the data.
    """
    emit(list_bad_rows(output, limit, every), as_json)


@command("verify", "output", rows={"type": click.IntRange(1)})
def verify_command(output: str | Path, as_json: bool, **options: Any) -> None:
    """Level sample needs model and input. Exit code 4: something is wrong, or blocks are left."""
    report = dcpred.verify(output, **options, verbose=True)
    emit(report, as_json)
    if not report.ok:
        raise SystemExit(IncompleteError.exit_code)


@click.command("inspect")
@click.argument("path", type=ADDRESS)
@result_options
def inspect_command(path: str | Path, as_json: bool) -> None:
    """Show what a data set, a model or an output holds."""
    emit(inspect_path(path), as_json)
