"""dcpred status"""

from dataclasses import asdict
from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import PATH, emit, json_option, reports_errors
from dcpred.runs.status import run_status


@click.command("status")
@click.argument("output", type=PATH)
@json_option
@reports_errors
def status_command(output: Path, as_json: bool) -> None:
    """Say how far the scoring of OUTPUT is: what is done, failing and left, how fast, and how long it will
    take.

    Works while another process is scoring, and needs neither the model nor the data.
    """
    emit(asdict(run_status(output)), as_json, rendering.run_state)
