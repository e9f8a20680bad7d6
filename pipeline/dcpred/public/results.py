"""How results of the public functions print, and look in a notebook."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dcpred_tasks.result_fields import document_of

MIB = 2**20
LONGEST = 60  # letters of a value
MOST = 12  # values that `repr` shows


class PublicResult:
    """Mixin of frozen dataclasses, made with `repr=False`: a short `repr`, a table in a notebook, and the
    keys that the command prints with --json.
    """

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, as the command prints them with --json.

        Returns
        -------
        dict
            Values by name; nested results are dictionaries.
        """
        return dict(document_of(self))

    def __repr__(self) -> str:
        values = [
            (name, value) for name, value in self._shown() if not isinstance(value, dict | list | tuple)
        ]
        more = ", …" if len(values) > MOST else ""
        return f"{type(self).__name__}({', '.join(f'{k}={_short(v)}' for k, v in values[:MOST])}{more})"

    def _repr_html_(self) -> str:
        lines = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
            for name, value in self._shown()
        )
        return f"<table><caption>{type(self).__name__}</caption>{''.join(lines)}</table>"

    def _shown(self) -> list[tuple[str, Any]]:
        """Names and values, without those that are empty."""
        empty: tuple[Any, ...] = (None, "", [], {}, ())
        return [(name, value) for name, value in vars(self).items() if value not in empty]


def _short(value: Any) -> str:
    """A value as `repr` shows it, cut where it is long."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _text(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple) and not all(isinstance(item, str) for item in value):
        return f"{len(value):,} entries"
    if isinstance(value, dict):
        cells = [
            f"{name} {_short(cell)}" for name, cell in value.items() if not isinstance(cell, dict | list)
        ]
        return _cut(", ".join(cells) or f"{len(value):,} entries")
    return _cut(", ".join(value)) if isinstance(value, list | tuple) else _short(value)


def _cut(text: str) -> str:
    return text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST - 1]}…"


def plain(value: Any, longest: int = 200) -> str:
    """A value on one line, without unprintable characters, cut if it is long."""
    text = "".join(c if c.isprintable() else "�" for c in str(value)[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def speed_text(r: Mapping[str, Any]) -> str | None:
    """The speed of a call that scored blocks."""
    return f"{r['rows_per_second']:,.0f} rows/s, {r['seconds']:.1f} s in all" if r["scored_blocks"] else None


def memory_text(r: Mapping[str, Any]) -> str:
    worker = max(r["worker_peak_memory_bytes"].values(), default=0)
    driver = r["driver_peak_memory_bytes"]
    return f"{worker / MIB:,.0f} MiB in a worker, {driver / MIB:,.0f} MiB in the driver"


def and_more(items: Sequence[str], n: int) -> str:
    """The first of n items."""
    return ", ".join(items) + (f" and {n - len(items):,} more" if n > len(items) else "")
