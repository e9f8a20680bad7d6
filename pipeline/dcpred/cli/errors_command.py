"""dcpred errors"""

from dataclasses import asdict
from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.runs.bad_rows import list_bad_rows


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
