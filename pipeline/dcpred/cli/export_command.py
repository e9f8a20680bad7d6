"""dcpred export and dcpred export-model."""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import PATH, emit
from dcpred.cli.rendering import rows, short
from dcpred.pages import size


@command(
    "export",
    "scores",
    "out",
    beside={"flags": ("--with",), "type": click.STRING, "metavar": "[DATA:]NAMES", "note": "Repeatable."},
    status={"metavar": "NAMES"},
    columns={"metavar": "NAMES"},
)
def export_command(scores: str | Path, out: str | Path, as_json: bool, **options: Any) -> None:
    emit(dcpred.export(scores, out, **options, verbose=True).as_dict(), as_json, _written)


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


@command("export-model", "model", "out", out={"type": PATH})
def export_model_command(model: str | Path, out: Path, dtype: str, as_json: bool) -> None:
    emit(dcpred.export_model(model, out, dtype=dtype).as_dict(), as_json, _written_model)


def _written_model(r: dict[str, Any]) -> str:
    return rows(
        [
            ("file", f"{r['path']}  ({size(r['n_bytes'])})"),
            ("rows", f"{len(r['features']):,} features of {r['dtype']}"),
        ]
    )
