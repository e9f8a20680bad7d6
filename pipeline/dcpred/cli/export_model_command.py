"""dcpred export-model"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcpred.cli.options import ADDRESS, PATH, emit, json_option, reports_errors, storage_option
from dcpred.cli.rendering import rows
from dcpred.model_export.export import export_model
from dcpred.model_export.flat import DTYPES
from dcpred.pages import size


@click.command("export-model")
@click.argument("model", type=ADDRESS)
@click.argument("out", type=PATH)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Data type of the rows that the file takes. float64 suits dates and large numbers.",
)
@json_option
@reports_errors
@storage_option
def export_model_command(model: str | Path, out: Path, dtype: str, as_json: bool) -> None:
    """Write MODEL as a file that predicts without dcpred: OUT.onnx for ONNX runtimes, OUT.c for a C compiler.

    Rows hold the features of training in their order, raw. Categories are their numbers, as `dcpred import`
    writes them; --json lists them.
    """
    emit(asdict(export_model(model, out, dtype=dtype)), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    return rows(
        [
            ("file", f"{r['path']}  ({size(r['n_bytes'])})"),
            ("rows", f"{len(r['features']):,} features of {r['dtype']}"),
        ]
    )
