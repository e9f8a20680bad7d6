"""The values of a column that determine its kind.

Surveys of parts of the rows can be joined: several processes may survey parts.
"""

from collections import Counter
from typing import Any

import numpy as np

from dcpred_tasks.schema.cells import (
    CATEGORY,
    DATE,
    DATE_DTYPE,
    TEXT,
    Cells,
    as_boolean,
    as_date,
    is_number,
    is_other_date,
    is_other_number,
    plain_level,
)
from dcpred_tasks.schema.schema import MOST_LETTERS, MOST_LEVELS


class ColumnSurvey:
    """A survey of the values of one column.

    counts_numbers  whether numbers are counted as categories: the user named the column as one
    """

    def __init__(self, name: str, *, counts_numbers: bool = False) -> None:
        self.name, self.counts_numbers = name, counts_numbers
        self.n_rows = self.n_gaps = 0
        self.kinds: dict[str, str] = {}
        """The kinds of cells found, with an example of each."""
        self.counts: Counter[Any] = Counter()
        """Rows of each distinct value, up to MOST_LEVELS values."""
        self.too_many = self.too_long = False
        self.n_numbers = 0
        """Rows of text that is a number."""
        self.first_other: tuple[int, str] | None = None
        """The first row of other text, and its text."""
        self.n_dates = 0
        """Rows of text that is a date of ISO 8601."""
        self.first_undated: tuple[int, str] | None = None
        """The first row of other text, and its text."""
        self.n_other_numbers = self.n_other_dates = 0
        """Rows of text that people may read as numbers or dates."""
        self.other_number = self.other_date = ""
        """The first such text."""
        self.all_boolean = True
        """Whether all text is true or false."""
        self.timed = self.fine = False
        """Whether a date has a time, and one with a part of a second."""
        self.first_day, self.last_day = np.inf, -np.inf

    def add(self, cells: Cells) -> None:
        first_row = self.n_rows
        self.n_rows += len(cells)
        self.n_gaps += int(cells.gap.sum())
        if cells.gap.all():
            return
        self.kinds.setdefault(cells.kind, str(cells.example()))
        if cells.kind in (TEXT, CATEGORY):
            self._add_levels(cells, first_row)
        elif cells.kind == DATE:
            self._add_dates(cells.values[~cells.gap])
        elif self.counts_numbers:
            levels, counts = np.unique(cells.values[~cells.gap], return_counts=True)
            self._count({plain_level(level): int(n) for level, n in zip(levels, counts, strict=True)})

    def _add_levels(self, cells: Cells, first_row: int) -> None:
        there, plain = Counter[Any](), Counter[Any]()
        for level, n in zip(cells.levels, cells.counts, strict=True):
            if n:
                there[level] += int(n)
                plain[plain_level(level)] += int(n)
        self._count(plain)
        texts = [level for level in there if isinstance(level, str)]
        written = {text for text in texts if is_number(text)}
        dated = {text: date for text in texts if (date := as_date(text)) is not None}
        self.n_numbers += sum(there[text] for text in written)
        self.n_dates += sum(there[text] for text in dated)
        self.first_other = self.first_other or _first(cells, set(texts) - written, first_row)
        self.first_undated = self.first_undated or _first(cells, set(texts) - dated.keys(), first_row)
        self.all_boolean = self.all_boolean and all(as_boolean(text) is not None for text in texts)
        odd_numbers = [text for text in texts if is_other_number(text)]
        odd_dates = [text for text in texts if is_other_date(text)]
        self.n_other_numbers += sum(there[text] for text in odd_numbers)
        self.n_other_dates += sum(there[text] for text in odd_dates)
        self.other_number = self.other_number or next(iter(odd_numbers), "")
        self.other_date = self.other_date or next(iter(odd_dates), "")
        self._add_dates(np.array(list(dated.values()), DATE_DTYPE))

    def _add_dates(self, instants: Any) -> None:
        if not len(instants):
            return
        days = instants.astype("datetime64[D]")
        within = instants - days
        self.timed = self.timed or bool((within != 0).any())
        self.fine = self.fine or bool((within % np.timedelta64(1, "s") != 0).any())
        numbers = days.astype(np.int64)
        self.first_day = min(self.first_day, float(numbers.min()))
        self.last_day = max(self.last_day, float(numbers.max()))

    def _count(self, rows: dict[Any, int]) -> None:
        self.too_long = self.too_long or any(
            isinstance(level, str) and len(level) > MOST_LETTERS for level in rows
        )
        if self.too_many or self.too_long:
            return
        self.counts.update(rows)
        if len(self.counts) > MOST_LEVELS:
            self.too_many, self.counts = True, Counter()

    def join(self, later: "ColumnSurvey") -> None:
        """Join the survey of the following rows."""
        self.first_other = self.first_other or _moved(later.first_other, self.n_rows)
        self.first_undated = self.first_undated or _moved(later.first_undated, self.n_rows)
        self.n_rows += later.n_rows
        self.n_gaps += later.n_gaps
        self.n_numbers += later.n_numbers
        self.n_dates += later.n_dates
        self.n_other_numbers += later.n_other_numbers
        self.n_other_dates += later.n_other_dates
        self.other_number = self.other_number or later.other_number
        self.other_date = self.other_date or later.other_date
        self.kinds = later.kinds | self.kinds
        self.all_boolean = self.all_boolean and later.all_boolean
        self.timed, self.fine = self.timed or later.timed, self.fine or later.fine
        self.first_day = min(self.first_day, later.first_day)
        self.last_day = max(self.last_day, later.last_day)
        self.too_many, self.too_long = self.too_many or later.too_many, self.too_long or later.too_long
        self._count(dict(later.counts))
        if self.too_many:
            self.counts = Counter()

    @property
    def n_values(self) -> int:
        """Rows with a value."""
        return self.n_rows - self.n_gaps

    @property
    def all_dates(self) -> bool:
        """Whether the column has text, all of it dates."""
        return self.n_dates > 0 and self.first_undated is None


def _first(cells: Cells, texts: set[str], first_row: int) -> tuple[int, str] | None:
    """The first row with one of these texts, and its text."""
    if not texts:
        return None
    wanted = np.array([level in texts for level in cells.levels] + [False])
    row = int(np.flatnonzero(wanted[cells.values])[0])
    return first_row + row, str(cells.levels[int(cells.values[row])])


def _moved(found: tuple[int, str] | None, n_rows: int) -> tuple[int, str] | None:
    return None if found is None else (found[0] + n_rows, found[1])
