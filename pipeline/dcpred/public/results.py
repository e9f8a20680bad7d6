"""How results of the public functions print, and look in a notebook."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dcpred_tasks.remarks import Remark
from dcpred_tasks.result_fields import ABSENT, FACTS, Facts, document_of

MIB = 2**20
LONGEST = 60  # letters of a value
MOST = 12  # values that `repr` shows


@dataclass(frozen=True, repr=False)
class PublicResult:
    """Base of results: a short `repr`, a table in a notebook, the keys that the command prints with --json,
    and remarks.
    """

    remarks: tuple[Remark, ...] = field(
        default=(),
        kw_only=True,
        metadata={FACTS: Facts("What a person has to know about the data and the result.")},
    )

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
        text = f"{type(self).__name__}({', '.join(f'{k}={_short(v)}' for k, v in values[:MOST])}{more})"
        return "\n".join([text, *map(str, self.remarks)])

    def _repr_html_(self) -> str:
        remarks = [(remark.severity, remark.text) for remark in self.remarks]
        lines = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in [*remarks, *((name, _text(value)) for name, value in self._shown())]
        )
        return f"<table><caption>{type(self).__name__}</caption>{''.join(lines)}</table>"

    def _shown(self) -> list[tuple[str, Any]]:
        """Names and values, without those that are empty."""
        empty: tuple[Any, ...] = (None, "", [], {}, (), ABSENT)
        values = vars(self).items()
        return [(name, value) for name, value in values if value not in empty and name != "remarks"]


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
