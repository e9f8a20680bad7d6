"""dcpred status"""

from dataclasses import asdict
from pathlib import Path

import click

from dcpred.cli import refresh_rendering, rendering
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.refresh.overview import root_status
from dcpred.refresh.root import is_root
from dcpred.runs.status import run_status
from dcpred_tasks.storage.place import open_place


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
    if is_root(open_place(output)):
        emit(asdict(root_status(output)), as_json, refresh_rendering.root_runs)
    else:
        emit(asdict(run_status(output)), as_json, rendering.run_state)
