"""dcpred export and dcpred export-model."""

import csv
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.options import ADDRESS, PATH, emit, result_options
from dcpred.cli.rendering import rows, short
from dcpred.model_export.export import DTYPES, export_model
from dcpred.pages import size


@click.command("export")
@click.argument("scores", type=ADDRESS)
@click.argument("out", type=ADDRESS)
@click.option(
    "--with",
    "beside",
    multiple=True,
    metavar="[DATA:]NAMES",
    help=(
        "Columns to write before the scores, with commas: one-dimensional arrays of DATA, or features by name"
        " [DATA: the scored data set; default columns: the ids that import stored, else row numbers];"
        " repeatable."
    ),
)
@click.option(
    "--status",
    metavar="NAMES",
    help="Keep rows of these statuses, with commas: ok, non_finite_feature, … [default: all].",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="Columns of the scores, with commas; also available: row, status_name [default: all].",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Export an unfinished run, too: rows not yet scored have status 0 and no values.",
)
@result_options
def export_command(
    scores: str | Path,
    out: str | Path,
    beside: tuple[str, ...],
    status: str | None,
    columns: str | None,
    partial: bool,
    as_json: bool,
) -> None:
    """Write SCORES, the output of a run, as the table OUT: .parquet, .csv, .feather or .arrow.

    Rows keep their order. Classes appear by name, several outputs become a column each
    (decision_CLASS), and a row without a score has a status and no values. OUT is written completely or not
    at all.
    """
    result = dcpred.export(
        scores,
        out,
        beside=beside,
        status=_names(status),
        columns=_names(columns),
        partial=partial,
        verbose=True,
    )
    emit(result.as_dict(), as_json, _written)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in next(csv.reader([text]), [])]


def _written(r: dict[str, Any]) -> str:
    some = "" if r["n_written"] == r["n_rows"] else f" of {r['n_rows']:,}"
    return rows(
        [
            ("table", r["out"]),
            ("rows", f"{r['n_written']:,}{some}" + ("" if r["finished"] else "; the run is not finished")),
            ("columns", _listed(r["columns"])),
        ]
    )


def _listed(names: list[str]) -> str:
    """The first names that fit on a line of 80 characters."""
    shown = [short(name) for name in names]
    while len(", ".join(shown)) > 55 and len(shown) > 1:
        shown.pop()
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


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
@result_options
def export_model_command(model: str | Path, out: Path, dtype: str, as_json: bool) -> None:
    """Write MODEL as a file that predicts without dcpred: OUT.onnx for ONNX runtimes, OUT.c for a C compiler.

    Rows hold the features of training in their order, raw. Categories are their numbers, as `dcpred import`
    writes them; --json lists them.
    """
    emit(export_model(model, out, dtype=dtype).as_dict(), as_json, _written_model)


def _written_model(r: dict[str, Any]) -> str:
    return rows(
        [
            ("file", f"{r['path']}  ({size(r['n_bytes'])})"),
            ("rows", f"{len(r['features']):,} features of {r['dtype']}"),
        ]
    )
