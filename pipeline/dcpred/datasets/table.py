"""Tables of a data set: their arrays, and the target. Rows of a source are read twice: first to infer its
columns, then to write them.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.schema.unknown_categories import UnknownCategories
from dcpred_tasks.tables.arrow_columns import (
    MAX_LABELS,
    Rounding,
    arrow_values,
    as_text,
    is_text_or_levels,
    is_uuid,
    plain_column,
    refuse_rounded_decimals,
    remedy,
)
from dcpred_tasks.tables.table_columns import Columns, smallest_integer
from dcpred_tasks.tables.table_source import TableRows


class Batch(NamedTuple):
    """Some rows to write.

    X    (n, n_features)
    y    (n,); None without a target
    ids  (n,) for each column that is stored next to X, by its name
    """

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    ids: Mapping[str, NDArray[Any]] = {}


@dataclass(frozen=True)
class Table:
    """The content of a source, known before anything is written."""

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    """A dtype that holds every value of X exactly."""
    target_dtype: np.dtype[Any] | None
    """A dtype that holds every value of y exactly; None without a target."""
    labels: tuple[str, ...] | None
    """The sorted classes, if the target is made of strings: y then holds positions in them."""
    names: tuple[str, ...] | None
    """Names of the features, if the file has them."""
    batches: Callable[[int], Iterator[Batch]]
    """batches(rows) yields all rows from the first to the last, in batches of any length. `rows` is how many
    the writer takes at once."""
    schema: Schema | None = None
    """The columns, if the source has any."""
    ids: Mapping[str, Any] = field(default_factory=dict)
    """Dtypes of the columns that are stored next to X, by name; `str` for text."""
    ignored: tuple[str, ...] = ()
    """Columns that the followed schema does not know."""
    unlabelled: Sequence[int] = (0,)
    """The number of skipped rows without a target, as its one item."""
    unlabelled_text: str = ""
    """A text that may be a class, but stands for a missing target in some of these rows."""
    absent: tuple[str, ...] = ()
    """Columns of the source whose values are not read, because they were declared absent."""
    index_base: int | None = None
    """The index of the first feature, if the source counts features."""
    unknown: dict[str, UnknownCategories] = field(default_factory=dict)
    """Categories that the schema does not know, by column; filled while batches are read."""


class TargetSurvey:
    """One pass over a target in Arrow arrays. Raises DataError for a missing value, and for too many
    different strings.

    written  written(row) returns what a row holds, and a remedy, if it is known
    """

    def __init__(self, name: str, written: Callable[[int], tuple[str, str]] | None = None) -> None:
        self.name, self.written = name, written
        self.n_rows = 0
        self.strings: set[str] = set()

    def add(self, values: Any) -> None:
        if pa.types.is_string(values.type):
            self.strings.update(pc.unique(values).to_pylist())
        first = pc.index(is_missing(values), True).as_py()
        if first >= 0:
            row = self.n_rows + first
            held, do = self.written(row) if self.written else ("is missing", " or remove the row")
            raise DataError(
                f"Cannot use {self.name} as target: it {held} in row {row:,} (counted from 0). Fill it in{do}"
            )
        if len(self.strings) > MAX_LABELS:
            raise DataError(
                f"Cannot use {self.name} as target: its strings would be classes, but more than"
                f" {MAX_LABELS:,} are different. Name another target, or make this one numeric."
            )
        self.n_rows += len(values)

    @property
    def labels(self) -> tuple[str, ...] | None:
        return tuple(sorted(self.strings)) or None


def is_missing(values: Any) -> Any:
    """Where an Arrow array of a target is missing: null, NaN or empty text."""
    missing = pc.is_null(values, nan_is_null=True)
    return pc.or_kleene(missing, pc.equal(values, "")) if pa.types.is_string(values.type) else missing


def label_dtype(labels: tuple[str, ...]) -> np.dtype[Any]:
    return cast("np.dtype[Any]", smallest_integer(0, len(labels) - 1))


def target_values(values: Any, labels: tuple[str, ...] | None) -> NDArray[Any]:
    """An Arrow array of a target as numbers: itself, or positions in `labels`."""
    if labels is not None:
        values = pc.index_in(values, value_set=pa.array(labels, pa.string()))
    if values.null_count:
        raise DataError(
            "Cannot import the target: it changed since the first pass. Import the file when nothing writes"
            " to it."
        )
    return arrow_values(values)


def side_by_side(columns: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Arrow arrays of equal length as the columns of a matrix."""
    X = np.empty((len(columns[0]), len(columns)), dtype)
    for j, column in enumerate(columns):
        X[:, j] = arrow_values(column)
    return X


def check_there(source: str, names: Sequence[str], wanted: str, what: str) -> None:
    """Raise DataError if the column `wanted` is not among those of a source.

    what  its purpose, for example "use column {} as target"
    """
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, 1)
        shown = listed(names)
        do = f"Did you mean {near[0]!r}? It has {shown}." if near else f"Pass one of {shown}."
        raise DataError(f"Cannot {what.format(repr(wanted))}: {source} has no such column. {do}")


def damaged(path: str | Path, error: Exception) -> DataError:
    so = f"it is damaged or of another format ({error})"
    return DataError(f"Cannot import {path}: {so}. Get it again or rename it.")


# -- Rows as an import takes them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectedRows:
    """The rows of a source to import, with every column of a type that has one meaning: TableRows.

    absent     columns that are missing in every row, whether the source has them or not
    target     the column that becomes y, in which `gap_texts` stand for a missing value
    labelled   whether rows without a target are skipped
    left_out   the number of rows that the last pass skipped, as its one item
    """

    base: TableRows
    absent: tuple[str, ...] = ()
    target: str | None = None
    gap_texts: tuple[str, ...] = ()
    labelled: bool = False
    left_out: list[int] = field(default_factory=lambda: [0])

    @property
    def name(self) -> str:
        return f"{self.base.name} (rows with a target)" if self.labelled else self.base.name

    @cached_property
    def types(self) -> Mapping[str, Any]:
        there = {name: pa.string() if is_uuid(kind) else kind for name, kind in self.base.types.items()}
        return there | dict.fromkeys(self.absent, pa.null())

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        self.left_out[0] = 0
        do = remedy(str(self.target), is_target=True)
        rounding = Rounding(f"column {self.target!r} of {self.base.name}", do)
        read = [name for name in names if name not in self.absent]
        if self.labelled and self.target not in read:
            read.append(str(self.target))
        for columns in self.base.batches(read or list(self.base.types)[:1]):
            n_rows = len(next(iter(columns.values())))
            plain = {name: plain_column(columns[name], name, self.name) for name in read}
            if self.target in plain:
                plain[self.target] = self._target(plain[self.target], rounding)
            plain |= {name: pa.nulls(n_rows) for name in names if name in self.absent}
            if self.labelled:
                goal = plain[str(self.target)]
                there = pc.invert(is_missing(as_text(goal) if is_text_or_levels(goal.type) else goal))
                self.left_out[0] += n_rows - there.true_count
                plain = {name: column.filter(there) for name, column in plain.items()}
            if not self.labelled or there.true_count:
                yield {name: plain[name] for name in names}

    def _target(self, column: Any, rounding: Rounding) -> Any:
        if self.gap_texts and is_text_or_levels(column.type):
            text = as_text(column)
            return pc.if_else(pc.is_in(text, value_set=pa.array(self.gap_texts)), None, text)
        if pa.types.is_decimal(column.type):
            refuse_rounded_decimals(column, rounding)
            return column.cast(pa.float64())
        return column
