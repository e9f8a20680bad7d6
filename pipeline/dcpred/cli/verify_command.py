"""dcpred verify"""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli import rendering
from dcpred.cli.options import (
    ADDRESS,
    cluster_options,
    emit,
    json_option,
    reports_errors,
    storage_option,
)
from dcpred.verification import LEVELS, SAMPLE_ROWS
from dcpred_tasks.errors import IncompleteError


@click.command("verify")
@click.argument("output", type=ADDRESS)
@click.option(
    "--level", type=click.Choice(LEVELS), default="full", show_default=True, help="How much to check."
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(1),
    default=SAMPLE_ROWS,
    show_default=True,
    help="Number of rows that level sample scores.",
)
@click.option("--seed", metavar="N", type=click.IntRange(0), help="Seed of the sample [default: random].")
@cluster_options
@json_option
@reports_errors
@storage_option
def verify_command(
    output: str | Path,
    level: str,
    rows: int,
    seed: int | None,
    as_json: bool,
    **cluster: Any,
) -> None:
    """Check that OUTPUT of `dcpred score` is complete and unmodified. Writes nothing.

    Level fast compares records, names, sizes and counts. Level full also decodes everything and compares
    digests. Level sample is fast, and scores some rows again by a plain definition, which needs model and
    input. Exit code 4: something is wrong, or blocks are left.
    """
    report = dcpred.verify(output, level, rows=rows, seed=seed, verbose=True, **cluster)
    emit(report.as_dict(), as_json, rendering.verified)
    if not report.ok:
        raise SystemExit(IncompleteError.exit_code)
