"""dcpred status, errors, verify and inspect: what an output, a data set or a model holds."""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import emit
from dcpred_tasks.errors import IncompleteError


@command("status", "output")
def status_command(output: str | Path, as_json: bool) -> None:
    emit(dcpred.status(output), as_json)


@command("errors", "output", limit={"type": click.IntRange(0), "metavar": "N"}, every={"flags": ("--all",)})
def errors_command(output: str | Path, as_json: bool, **options: Any) -> None:
    emit(dcpred.errors(output, **options), as_json)


@command("verify", "output", rows={"type": click.IntRange(1)})
def verify_command(output: str | Path, as_json: bool, **options: Any) -> None:
    """Level sample needs model and input. Exit code 4: something is wrong, or blocks are left."""
    report = dcpred.verify(output, **options, verbose=True)
    emit(report, as_json)
    if not report.ok:
        raise SystemExit(IncompleteError.exit_code)


@command("inspect", "path")
def inspect_command(path: str | Path, as_json: bool) -> None:
    emit(dcpred.inspect(path), as_json)
