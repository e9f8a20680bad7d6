"""dcpred inspect"""

from pathlib import Path

import click

from dcpred.cli import inspect_rendering
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.inspection import inspect_path


@click.command("inspect")
@click.argument("path", type=ADDRESS)
@json_option
@reports_errors
@storage_option
def inspect_command(path: str | Path, as_json: bool) -> None:
    """Show what a data set, a model or an output holds."""
    result = inspect_path(path)
    emit(result, as_json, inspect_rendering.inspected)
