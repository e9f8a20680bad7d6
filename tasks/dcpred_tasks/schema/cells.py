"""The values of one column in some rows, independent of library and file format.

Text, and declared categories, are positions in a list of distinct values: work on text is done once per
value.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray

NUMBER, BOOLEAN, DATE, TEXT, CATEGORY = "number", "boolean", "date", "text", "category"
# Names of kinds of cells in messages.
IN_WORDS = {
    NUMBER: "numbers",
    BOOLEAN: "booleans",
    DATE: "dates",
    TEXT: "text",
    CATEGORY: "categories",
}
ISO_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
# A number with a currency or percent sign, the sign U+2212, groups of thousands, a decimal comma, or an
# exponent of Fortran.
OTHER_NUMBER = re.compile(
    r"[$€£¥]?\s?[+\-\u2212]?[0-9]{1,3}(?:[.,'’ \u00a0\u202f]?[0-9]{3})*"
    r"(?:[.,][0-9]+(?:[dD][+\-\u2212]?[0-9]+)?)?\s?[%‰$€£¥]?"
)
# A date whose day and month are ambiguous.
OTHER_DATE = re.compile(r"[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?")
BOOLEANS = {"true": 1, "false": 0}
REMEMBERED = 2**14  # cached dates of texts, which recur in every batch
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATE_DTYPE = np.dtype("datetime64[us]")  # dates of text: years 1 to 9999


@dataclass(frozen=True)
class Cells:
    """The values of one column in n rows.

    kind    NUMBER, BOOLEAN, DATE, TEXT or CATEGORY (text or numbers declared as categories)
    values  (n,): real numbers; bool, or 0 and 1; datetime64 in UTC; int64 positions in `levels`
    gap     bool (n,), where the value is missing
    levels  the values of text or categories; some may occur in no row, and some may be equal
    """

    kind: str
    values: NDArray[Any]
    gap: NDArray[np.bool_]
    levels: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def counts(self) -> IntArray:
        """int64 (n_levels,), the rows of each level."""
        return np.bincount(self.values[~self.gap], minlength=len(self.levels)).astype(np.int64)

    def example(self) -> object:
        """Any present value; None where all are missing."""
        there = np.flatnonzero(~self.gap)
        if not len(there):
            return None
        value = self.values[there[0]]
        return self.levels[int(value)] if self.levels else value.item() if value.dtype.kind != "M" else value


def without(cells: Cells, gap_texts: Sequence[str]) -> Cells:
    """The same cells, with these texts as missing values."""
    stands = (
        np.array([level in gap_texts for level in cells.levels], bool) if gap_texts else np.zeros(0, bool)
    )
    if not stands.any():
        return cells
    values = np.where(np.append(stands, True)[cells.values], -1, cells.values)
    return Cells(cells.kind, values, values < 0, cells.levels)


def numbers(values: NDArray[Any], gap: NDArray[np.bool_] | None = None) -> Cells:
    """Cells of real numbers; NaN is also missing."""
    if values.dtype.kind == "f":
        gap = np.isnan(values) if gap is None else gap | np.isnan(values)
    return Cells(NUMBER, values, np.zeros(len(values), bool) if gap is None else gap)


def booleans(values: NDArray[Any], gap: NDArray[np.bool_] | None = None) -> Cells:
    return Cells(BOOLEAN, values.astype(bool), np.zeros(len(values), bool) if gap is None else gap)


def dates(values: NDArray[Any]) -> Cells:
    """Cells of datetime64 in UTC; NaT is missing."""
    return Cells(DATE, values, np.isnat(values))


def levelled(positions: NDArray[Any], levels: Sequence[Hashable], *, declared: bool = False) -> Cells:
    """Cells of text, or of declared categories; −1 is a missing value. Spaces around text are ignored: two
    levels may be equal.
    """
    positions = positions.astype(np.int64)
    trimmed = tuple(level.strip() if isinstance(level, str) else level for level in levels)
    return Cells(CATEGORY if declared else TEXT, positions, positions < 0, trimmed)


def texts(values: Sequence[str | None], *, declared: bool = False) -> Cells:
    """Cells of text, one by one; None is missing."""
    found: dict[str, int] = {}
    at = [-1 if value is None else found.setdefault(value, len(found)) for value in values]
    return levelled(np.array(at, np.int64), tuple(found), declared=declared)


def is_number(text: str) -> bool:
    """Whether text is written as a finite number."""
    try:
        return isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def is_other_number(text: str) -> bool:
    """Whether text is a number for people but not for Python."""
    return OTHER_NUMBER.fullmatch(text) is not None and not is_number(text)


def is_other_date(text: str) -> bool:
    """Whether text may be a date in another form than ISO 8601."""
    return OTHER_DATE.fullmatch(text) is not None and as_date(text) is None


def as_boolean(text: str) -> int | None:
    """1 for true and 0 for false in any case, None for other text."""
    return BOOLEANS.get(text.lower())


@lru_cache(maxsize=REMEMBERED)
def as_date(text: str) -> np.datetime64 | None:
    """The instant in UTC of an ISO 8601 date, with or without time and zone, to the microsecond; None for
    other text. A time without a zone is UTC.
    """
    if not ISO_DATE.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        since = instant - EPOCH
    except (ValueError, OverflowError):
        return None
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return np.datetime64(microseconds, "us")


def number_level(level: float) -> str:
    """A number as the text of a category: integers without a point."""
    whole = isinstance(level, int) or float(level).is_integer()
    return str(int(level)) if whole else repr(float(level))


def plain_level(level: Any) -> Any:
    """A level as a type of JSON: text, integer or float."""
    if isinstance(level, bool | np.bool_):
        return "true" if level else "false"
    if isinstance(level, str):
        return str(level)
    if isinstance(level, int | np.integer):
        return int(level)
    number = float(level)
    return int(level) if number.is_integer() and abs(number) < 2**53 else number
