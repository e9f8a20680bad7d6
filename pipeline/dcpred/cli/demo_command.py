"""dcpred demo and dcpred example: first steps."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcpred.cli import rendering
from dcpred.cli.options import PATH, emit, json_option, reports_errors
from dcpred.cli.rendering import rows
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


@click.command("example")
@click.argument("folder", type=PATH, default=Path())
@json_option
@reports_errors
def example_command(folder: Path, as_json: bool) -> None:
    """Write two small tables to try the commands on into FOLDER [default: here]: known.csv is labelled,
    new.csv is not.

    Rows are 569 tumours, benign or malignant, with 30 measurements each. scikit-learn ships them.
    """
    from dcpred.demo import write_example  # noqa: PLC0415 - slow to import, and not needed for help

    emit(asdict(write_example(folder)), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    from dcpred.demo import ID, TARGET  # noqa: PLC0415

    return rows(
        [
            (
                "known",
                f"{r['known']}  ({r['n_known']:,} rows: {ID}, {r['n_features']} measurements, {TARGET})",
            ),
            ("new", f"{r['new']}  ({r['n_new']:,} rows without {TARGET})"),
            ("next", f"dcpred import {r['known']} known.zarr --target {TARGET} --id {ID}"),
        ]
    )
