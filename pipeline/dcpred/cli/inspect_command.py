"""dcpred inspect"""

from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import PATH, emit, json_option, reports_errors
from dcpred.inspection import inspect_path


@click.command("inspect")
@click.argument("path", type=PATH)
@json_option
@reports_errors
def inspect_command(path: Path, as_json: bool) -> None:
    """Say what a data set, a model or an output holds."""
    result = inspect_path(path)
    emit(result, as_json, rendering.inspected)
