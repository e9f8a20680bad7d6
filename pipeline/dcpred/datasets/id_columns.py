"""Columns stored next to X: integers keep their values, and everything else is text.

An id is never rounded and never read as an amount: 007 is text, and so is a column with missing values,
which become empty text. Dates are written as ISO 8601.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred.datasets.source import as_text, is_plain_number, is_text_or_levels
from dcpred.datasets.table import arrow_values
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.inference import as_option, can_be_kept

WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"  # The form that Python writes; 64 bits may hold it.
TEXT_DTYPE = np.dtypes.StringDType()


class IdColumn:
    """The values of one column of ids, surveyed in a first pass and returned in a second."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.whole = True
        """Whether all text is integers that 64 bits hold."""
        self.has_gaps = False
        self.kind: Any = None
        _check_name(name)

    def add(self, column: Any) -> None:
        self.has_gaps = self.has_gaps or column.null_count > 0
        self.kind = column.type
        if self.whole and is_text_or_levels(column.type):
            text = as_text(column).drop_null()
            self.whole = bool(pc.all(pc.match_substring_regex(text, WHOLE), min_count=0).as_py())
            self.whole = self.whole and _fits(text)

    @property
    def dtype(self) -> Any:
        """The dtype of the array; `str` for text."""
        if is_text_or_levels(self.kind):
            return np.dtype(np.int64) if self.whole and not self.has_gaps else str
        if is_plain_number(self.kind) and (pa.types.is_floating(self.kind) or not self.has_gaps):
            return np.dtype(self.kind.to_pandas_dtype())
        return str

    def values(self, column: Any) -> NDArray[Any]:
        dtype = self.dtype
        if dtype is not str:
            return arrow_values(column.cast(pa.int64()) if is_text_or_levels(column.type) else column)
        return np.array(_written(column, self.name, self.source), TEXT_DTYPE)


def _fits(text: Any) -> bool:
    try:
        text.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _written(column: Any, name: str, source: str) -> list[str]:
    """Values as text; empty for a missing value."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
        return ["" if text is None else f"{_iso(text)}Z" for text in as_text(column).to_pylist()]
    try:
        text = as_text(column).to_pylist()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise DataError(
            f"Cannot store column {name!r} of {source} as ids: values of type {kind} have no form as text."
            " Convert it, or omit it."
        ) from None
    if pa.types.is_timestamp(kind):
        return ["" if one is None else _iso(one) for one in text]
    return ["" if one is None else one for one in text]


def _iso(instant: str) -> str:
    """An instant from Arrow's form to ISO 8601: without fractions of a second if there are none."""
    whole, _, part = instant.replace(" ", "T").partition(".")
    return f"{whole}.{part}" if part.strip("0") else whole


def _check_name(name: str) -> None:
    if not can_be_kept(name):
        raise DataError(
            f"Cannot store column {name!r} next to X: no array of a data set can have this name."
            f" Rename it, or omit it with --drop {as_option(name)}."
        )


def id_columns(names: Sequence[str], source: str) -> dict[str, IdColumn]:
    return {name: IdColumn(name, source) for name in names}
