"""dcpred status"""

from dataclasses import asdict
from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.runs.status import run_status


@click.command("status")
@click.argument("output", type=ADDRESS)
@json_option
@reports_errors
@storage_option
def status_command(output: str | Path, as_json: bool) -> None:
    """Say how far the scoring of OUTPUT is: what is done, failing and left, how fast, and how long it will
    take.

    Works while another process is scoring, and needs neither the model nor the data.
    """
    emit(asdict(run_status(output)), as_json, rendering.run_state)
