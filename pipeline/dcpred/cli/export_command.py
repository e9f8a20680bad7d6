"""dcpred export"""

import csv
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.evaluate_command import short
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.cli.rendering import rows
from dcpred_tasks.errors import SettingsError


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
    "--only",
    multiple=True,
    metavar="COMPARISON",
    help="Keep rows that meet this: 'status!=1', 'label==oak', 'decision<0'; repeatable: all must hold.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="Columns of the scores, with commas; also available: row, status_name [default: all].",
)
@click.option(
    "--largest",
    metavar="COLUMN:N",
    help="Keep only the N rows with the largest values of COLUMN, the largest first: probability:500.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Export an unfinished run, too: rows not yet scored have status 0 and no values.",
)
@json_option
@reports_errors
@storage_option
def export_command(
    scores: str | Path,
    out: str | Path,
    beside: tuple[str, ...],
    only: tuple[str, ...],
    columns: str | None,
    largest: str | None,
    partial: bool,
    as_json: bool,
) -> None:
    """Write SCORES, the output of a run, as the table OUT: .parquet, .csv, .feather, .arrow or .zarr.

    Rows keep their order without --largest. Classes appear by name, several outputs become a column each
    (decision_CLASS), and a row without a score has a status and no values. OUT is written completely or not
    at all.
    """
    names = None if columns is None else [name.strip() for name in next(csv.reader([columns]), [])]
    options: dict[str, Any] = {"columns": names, "largest": _largest(largest), "partial": partial}
    result = dcpred.export(scores, out, beside=beside, only=only, **options, verbose=True)
    emit(result.as_dict(), as_json, _written)


def _largest(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    by, _, most = text.rpartition(":")
    if not by or not most.strip().isdecimal():
        raise SettingsError(
            f"Cannot use --largest {text!r}: it is not COLUMN:N. Write for example probability:500."
        )
    return by, int(most)


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
