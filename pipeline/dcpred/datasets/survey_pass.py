"""The first pass over a table: its columns, its number of rows, and the dtype that holds them."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcpred.datasets.csv_reader import CsvFile, NotANumberError, refuse_rounded
from dcpred.datasets.id_columns import IdColumn, id_columns
from dcpred.datasets.rounding import LARGE, Rounding, first_rounded, remedy, rounded
from dcpred.datasets.source import (
    Columns,
    SelectedRows,
    Source,
    arrow_cells,
    as_text,
    is_plain_number,
    is_text_or_levels,
    refuse_rounded_decimals,
)
from dcpred.datasets.table import (
    Spread,
    TargetSurvey,
    arrow_values,
    label_dtype,
    no_rows,
    side_by_side,
)
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.cells import is_number
from dcpred_tasks.schema.column import (
    Boolean,
    Category,
    Column,
    Date,
    Dropped,
    Id,
    Means,
    Number,
    Target,
)
from dcpred_tasks.schema.inference import (
    COMMAND,
    MOST_CODES,
    SHOWN,
    TEXT_FILE,
    Wishes,
    find_column,
    marks_hint,
)
from dcpred_tasks.schema.survey import ColumnSurvey
from dcpred_tasks.storage.array_attributes import EXACT_LIMIT

LARGEST_SINGLE = 2**24  # float32 holds every integer up to it
SECONDS_OF_DAY = 86_400
KEPT = ". 64-bit integers stay exact where all features are integers and no value is missing"
NAMED = 5  # maximum number of further columns that a refusal names


@dataclass
class Found:
    """The result of the first pass; columns in their order."""

    n_rows: int
    columns: list[Column]
    dtype: np.dtype[Any]
    target_dtype: np.dtype[Any] | None = None
    labels: tuple[str, ...] | None = None
    ids: dict[str, IdColumn] = field(default_factory=dict)
    unlabelled_text: str = ""


def find_columns(rows: SelectedRows, wishes: Wishes) -> tuple[SelectedRows, Found]:
    """Survey a source. A CSV file comes back as one that reads columns as text that are not numeric.

    Raises DataError for what cannot be imported exactly, or is ambiguous.
    """
    source = rows.base
    if not isinstance(source, CsvFile):
        return rows, _Pass(rows, wishes).run()
    text = [n for n in source.names if not isinstance(wishes.of(n), Number | Target | Dropped | None)]
    ids = frozenset(name for name in source.names if isinstance(wishes.of(name), Id))
    source = replace(source, text=frozenset(text), verbatim=ids, gap_texts=wishes.gap_texts, form=wishes.text)
    free = [name for name in source.names if wishes.of(name) is None or name == wishes.target]
    # The first rows mostly show that a column is not numeric; else one pass over all of them does.
    for whole in (False, True):
        try:
            return (rows := replace(rows, base=source)), _Pass(rows, wishes).run()
        except NotANumberError as error:
            if error.column not in free:
                raise
        source = source.looked_at(free, whole=whole)
    return (rows := replace(rows, base=source)), _Pass(rows, wishes).run()


class _Pass:
    """One pass over all rows of a source."""

    def __init__(self, source: SelectedRows, wishes: Wishes) -> None:
        self.source, self.wishes = source, wishes
        self.n_rows, self.file = 0, source.base if isinstance(source.base, CsvFile) else None
        self.names = [name for name in source.types if not isinstance(wishes.of(name), Dropped)]
        self.ids = id_columns([n for n in self.names if isinstance(wishes.of(n), Id)], source.name)
        features = [name for name in self.names if name not in self.ids and name != wishes.target]
        self.numbers = [name for name in features if self._is_number(name)]
        self.surveys = {
            name: ColumnSurvey(name, counts_numbers=wishes.of(name) is not None)
            for name in features
            if name not in set(self.numbers)
        }
        self.values = (
            _NumbersOfText(self.numbers) if self.file else _TypedNumbers(source, self.numbers, self._remedy)
        )
        self.roundings = {
            name: Rounding(f"column {name!r} of {source.base.name}", self._remedy(name))
            for name in self.surveys
        }
        self.spreads = {
            name: Spread(len(wish.features))
            for name in self.surveys
            if isinstance(wish := wishes.of(name), Column)
        }
        """Spread of the features of given columns."""
        self.goal = Spread(1)
        self.target = TargetSurvey(f"column {wishes.target!r} of {source.name}", self._written_target)
        if not features:
            raise DataError(
                f"Cannot import {source.name}: it has no column besides the target, ids and dropped ones."
                " Add features."
            )

    def _is_number(self, name: str) -> bool:
        """Whether values are used unchanged."""
        wish, kind = self.wishes.of(name), self.source.types[name]
        if isinstance(wish, Boolean):
            return bool(pa.types.is_boolean(kind))
        return (wish is None or isinstance(wish, Number)) and is_plain_number(kind)

    def run(self) -> Found:
        for columns in self.source.batches(self.names):
            self._add(columns)
        if self.n_rows == 0:
            raise no_rows(self.source.name)
        summary, wide = self._columns(), {name: self._remedy(name) for name in self.values.wide()}
        dtype = self.values.dtype(self._encoded(summary))
        found = Found(self.n_rows, summary, dtype, ids=self.ids)
        if self.wishes.target is not None:
            found.labels, found.target_dtype = self.target.labels, self._target_dtype()
            if self.goal.wide(LARGE).size:
                wide[self.wishes.target] = self._remedy(self.wishes.target)
        if self.file:
            refuse_rounded(self.file, wide)
            if self.source.left_out[0] and found.labels:
                free = set(self.file.gaps) - {"", *self.wishes.gap_texts}
                found.unlabelled_text = self.file.first_of(str(self.wishes.target), free)
        return found

    def _remedy(self, name: str) -> str:
        """The remedy for a column whose values float64 rounds."""
        is_target = name == self.wishes.target
        return remedy(name, is_target=is_target, is_followed=isinstance(self.wishes.of(name), Column))

    def _add(self, columns: Columns) -> None:
        self.n_rows += len(next(iter(columns.values())))
        self.values.add(columns)
        for name, survey in self.surveys.items():
            refuse_rounded_decimals(columns[name], self.roundings[name])
            cells = arrow_cells(columns[name], name, self.source.name, self.wishes.gap_texts)
            survey.add(cells)
            if name in self.spreads:
                self.spreads[name].add(given(self.wishes, name).encode(cells))
        for name, one in self.ids.items():
            one.add(columns[name])
        if self.wishes.target is not None:
            self._add_target(columns[self.wishes.target], self.wishes.target)

    def _add_target(self, column: Any, name: str) -> None:
        of_text = is_text_or_levels(column.type)
        if not of_text and not is_plain_number(column.type):
            raise DataError(
                f"Cannot use column {name!r} of {self.source.name} as y: its type is {column.type}."
                " Convert it to numbers or text."
            )
        self.target.add(as_text(column) if of_text else column)
        if not of_text and self._target_finds_dtype(name):
            self.goal.add(arrow_values(column)[:, None])

    def _target_finds_dtype(self, name: str) -> bool:
        """Whether the values of a numeric target determine its dtype, not its type."""
        return self.file is not None or pa.types.is_decimal(self.source.types[name])

    def _target_dtype(self) -> np.dtype[Any]:
        name = str(self.wishes.target)
        if self.target.labels:
            self._refuse_numbers_and_text(name, self.target.labels)
            return label_dtype(self.target.labels)
        if self._target_finds_dtype(name):
            return self.goal.dtype()
        kept: np.dtype[Any] = np.dtype(self.source.types[name].to_pandas_dtype())
        return kept

    def _refuse_numbers_and_text(self, name: str, labels: Sequence[str]) -> None:
        """Raise DataError for a target of numbers with some text among them."""
        others = [text for text in labels if not is_number(text)]
        n_numbers = len(labels) - len(others)
        if not others or n_numbers <= max(MOST_CODES, len(others)):
            return
        row = 0
        for columns in self.source.batches([name]):
            at = pc.index(as_text(columns[name]), others[0]).as_py()
            if at >= 0:
                row += at
                break
            row += len(columns[name])
        raise DataError(
            f"Cannot use column {name!r} of {self.source.name} as y: it holds {n_numbers:,} different"
            f" numbers, and {others[0][:SHOWN]!r} in row {row:,} (counted from 0). Correct it,"
            f" {marks_hint(others[0]) if self.file else ''}or pass --gap {shlex.quote(others[0][:SHOWN])}"
            " --drop-unlabelled to skip such rows."
        )

    def _written_target(self, row: int) -> tuple[str, str]:
        """The target's text in a row where it is missing, and further remedies."""
        text = (
            self.file.first_text(str(self.wishes.target), row)
            if self.file and not self.source.labelled
            else ""
        )
        if not text:
            return "is missing", " or skip such rows with --drop-unlabelled"
        known = text not in self.wishes.gap_texts
        return (
            f"holds {text!r}, which stands for a missing value,",
            ", skip such rows with --drop-unlabelled, or "
            + (f"pass --not-missing {shlex.quote(text)} where it is a value" if known else "omit --gap"),
        )

    def _columns(self) -> list[Column]:
        """The kinds of all columns. Raises the DataError of the first ambiguous one, with the names of
        others.
        """
        summary, refusals = list[Column](), dict[str, DataError]()
        for name in self.source.types:
            try:
                summary.append(self._column(name))
            except DataError as error:
                refusals[name] = error
        if refusals:
            (_, first), *others = refusals.items()
            names = ", ".join(repr(name) for name, _ in others[:NAMED])
            more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
            raise DataError(f"{first} (and {names}{more} likewise)" if others else str(first))
        return summary

    def _column(self, name: str) -> Column:
        wish = self.wishes.of(name)
        if isinstance(wish, Column):
            return wish
        if name in self.surveys:
            words = TEXT_FILE if self.file else COMMAND
            return find_column(self.surveys[name], wish, source=self.source.name, words=words)
        return Boolean(name) if pa.types.is_boolean(self.source.types[name]) else Number(name)

    def _encoded(self, columns: list[Column]) -> Spread:
        """Spread of all features that are not unchanged numbers."""
        found = Spread(0)
        for column in columns:
            if column.name in self.spreads:
                found.join(self.spreads[column.name])
            if isinstance(column, Category) and not isinstance(column, Means):
                found.include(0, column.gap)
            elif column.name in self.surveys and column.name not in self.spreads:
                _include(found, column, self.surveys[column.name])
        return found


def given(wishes: Wishes, name: str) -> Column:
    wish = wishes.of(name)
    assert isinstance(wish, Column)
    return wish


def _include(found: Spread, column: Column, survey: ColumnSurvey) -> None:
    """Include what an inferred column becomes."""
    whole = survey.n_gaps == 0
    if isinstance(column, Boolean):
        found.include(0, 1, whole=whole)
    elif isinstance(column, Date):
        days = min(survey.first_day, 0), max(survey.last_day, SECONDS_OF_DAY)
        single = max(-days[0], days[1]) < LARGEST_SINGLE
        found.include(*days, whole=whole and not survey.fine, single=single and not survey.fine)
    else:
        found.include(0, 0, whole=False, single=survey.n_values == 0)  # decimals, or nothing at all


class _NumbersOfText:
    """Columns of numbers whose values determine the dtype."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.spread = names, Spread(len(names))

    def add(self, columns: Columns) -> None:
        if self.names:
            self.spread.add(side_by_side([columns[name] for name in self.names], np.dtype(np.float64)))

    def wide(self) -> list[str]:
        """Columns with numbers that may have been rounded."""
        return [self.names[i] for i in self.spread.wide(LARGE)]

    def dtype(self, encoded: Spread) -> np.dtype[Any]:
        """The smallest dtype for these and for other features."""
        both = Spread(0)
        both.join(self.spread)
        both.join(encoded)
        return both.dtype()


class _TypedNumbers:
    """Columns of numbers that keep their dtype."""

    def __init__(self, source: Source, names: Sequence[str], do: Callable[[str], str]) -> None:
        self.source, self.names, self.do = source, names, do
        self.n_rows, self.has_nulls = 0, False
        self.inexact: list[DataError] = []
        """The refusal of an integer that float64 would round."""

    def add(self, columns: Columns) -> None:
        for name in self.names:
            column = columns[name]
            if pa.types.is_floating(column.type):
                continue
            self.has_nulls = self.has_nulls or column.null_count > 0
            values = arrow_values(column.drop_null())
            wide = values[(values > EXACT_LIMIT) | (values < -EXACT_LIMIT)]
            value = None if self.inexact else first_rounded(wide.tolist())
            if value is not None:
                row = self.n_rows + pc.index(column, pa.scalar(value, column.type)).as_py()
                held = f"{value} in row {row:,} (counted from 0)"
                where = f"column {name!r} of {self.source.name}"
                self.inexact.append(rounded(where, held, self.do(name) + KEPT))
        self.n_rows += len(next(iter(columns.values())))

    def wide(self) -> list[str]:
        return []

    def dtype(self, encoded: Spread) -> np.dtype[Any]:
        dtypes = [np.dtype(self.source.types[name].to_pandas_dtype()) for name in self.names]
        dtype = np.result_type(*dtypes, *([encoded.dtype()] if encoded.low.size else []))
        if self.has_nulls and dtype.kind != "f":
            dtype = np.result_type(dtype, np.float32)
        if dtype.kind == "f" and self.inexact:
            raise self.inexact[0]
        return dtype
