"""dcpred demo"""

from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.options import PATH, emit, json_option, reports_errors
from dcpred.execution.progress import reporter


@click.command("demo")
@click.option(
    "--out", type=PATH, default=Path("dcpred-demo"), show_default=True, help="Folder of all results."
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Local processes [default: one per core]."
)
@json_option
@reports_errors
def demo_command(out: Path, workers: int | None, as_json: bool) -> None:
    """Run the whole job on real digits: Zarr, training, scoring, evaluation. Takes about half a minute."""
    from dcpred.demo import run_demo  # noqa: PLC0415 - slow to import, and not needed for help

    result = run_demo(out, workers, reporter())
    emit(result, as_json, rendering.demonstrated)
