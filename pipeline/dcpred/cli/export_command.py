"""dcpred export and dcpred export-model."""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import PATH, emit


@command(
    "export",
    "scores",
    "out",
    beside={"flags": ("--with",), "type": click.STRING, "metavar": "[DATA:]NAMES", "note": "Repeatable."},
    status={"metavar": "NAMES"},
    columns={"metavar": "NAMES"},
)
def export_command(scores: str | Path, out: str | Path, as_json: bool, **options: Any) -> None:
    emit(dcpred.export(scores, out, **options, verbose=True), as_json)


@command("export-model", "model", "out", out={"type": PATH})
def export_model_command(model: str | Path, out: Path, dtype: str, as_json: bool) -> None:
    emit(dcpred.export_model(model, out, dtype=dtype), as_json)
