"""Tables as Arrow arrays: the interface of every reader of columns, and Arrow arrays as cells of a schema.

A source is read more than once: first to infer its columns, then to write them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcpred.datasets.table import Rounding, arrow_values, is_missing, remedy
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.column import Cells, booleans, dates, levelled, numbers, without
from dcpred_tasks.schema.inference import as_option

Columns = dict[str, Any]  # Arrow arrays of equal length, by name


class Source(Protocol):
    """A table that can be read as often as needed."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The Arrow types of its columns, in their order."""

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time, from the first to the last."""


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_text_or_levels(kind: Any) -> bool:
    """Whether a column of this type holds text, also where each different one is stored once."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_plain_number(kind: Any) -> bool:
    """Whether values are numbers or booleans of a dtype of NumPy."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def as_text(column: Any) -> Any:
    """Text as Arrow strings, from any type of text."""
    return column.cast(pa.string())


def refuse_rounded_decimals(column: Any, rounding: Rounding) -> None:
    """Raise DataError for decimals that become equal in float64, or for an integer that it does not hold.
    Other columns are ignored.
    """
    kind = column.type
    if pa.types.is_dictionary(kind) and pa.types.is_decimal(kind.value_type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        rounding.add(column)
        rounding.refuse_whole()


def arrow_cells(column: Any, name: str, source: str, gap_texts: Sequence[str] = ()) -> Cells:
    """An Arrow array as cells.

    gap_texts  texts that stand for a missing value

    Raises DataError for a type that tables do not have.
    """
    return without(_cells(column, name, source), gap_texts)


def _cells(column: Any, name: str, source: str) -> Cells:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _levels(column, name, source)
    if is_text(kind):
        found = as_text(column).dictionary_encode()
        return levelled(_positions(found.indices), found.dictionary.to_pylist())
    if pa.types.is_boolean(kind):
        gap = np.asarray(column.is_null())
        return booleans(np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)), gap)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return numbers(arrow_values(column), np.asarray(column.is_null()))
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return numbers(arrow_values(column.cast(pa.float64())), np.asarray(column.is_null()))
    if pa.types.is_timestamp(kind):
        return dates(column.cast(pa.timestamp(kind.unit)).to_numpy(zero_copy_only=False))
    if pa.types.is_date(kind):
        return dates(column.cast(pa.date32()).to_numpy(zero_copy_only=False))
    there = column.drop_null()
    example = f", with values like {str(there[0].as_py())[:60]!r}" if len(there) else ""
    raise DataError(
        f"Cannot read column {name!r} of {source}: its type is {kind}{example}, not numbers, text, dates or"
        f" booleans. {leave_out(name)}"
    )


# -- Rows as an import takes them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectedRows:
    """The rows of a source to import, with every column of a type that has one meaning: a Source.

    absent     columns that are missing in every row, whether the source has them or not
    target     the column that becomes y, in which `gap_texts` stand for a missing value
    labelled   whether rows without a target are skipped
    left_out   the number of rows that the last pass skipped, as its one item
    """

    base: Source
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
        there = {name: pa.string() if _is_uuid(kind) else kind for name, kind in self.base.types.items()}
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
            found = {name: _plain(columns[name], name, self.name) for name in read}
            if self.target in found:
                found[self.target] = self._target(found[self.target], rounding)
            found |= {name: pa.nulls(n_rows) for name in names if name in self.absent}
            if self.labelled:
                goal = found[str(self.target)]
                there = pc.invert(is_missing(as_text(goal) if is_text_or_levels(goal.type) else goal))
                self.left_out[0] += n_rows - there.true_count
                found = {name: column.filter(there) for name, column in found.items()}
            if not self.labelled or there.true_count:
                yield {name: found[name] for name in names}

    def _target(self, column: Any, rounding: Rounding) -> Any:
        if self.gap_texts and is_text_or_levels(column.type):
            text = as_text(column)
            return pc.if_else(pc.is_in(text, value_set=pa.array(self.gap_texts)), None, text)
        if pa.types.is_decimal(column.type):
            refuse_rounded_decimals(column, rounding)
            return column.cast(pa.float64())
        return column


def _is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def _plain(column: Any, name: str, source: str) -> Any:
    """An Arrow array, with UUIDs as text. Raises DataError for another extension of Arrow's types."""
    if _is_uuid(column.type):
        return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        raise unknown_type(name, source, column.type)
    return column


def unknown_type(name: str, source: str, kind: object) -> DataError:
    """The refusal of a column whose values only another library understands."""
    return DataError(
        f"Cannot read column {name!r} of {source}: its type is {kind}, not numbers, text, dates or booleans."
        f" {leave_out(name)}"
    )


def leave_out(name: str) -> str:
    """The remedy for a column whose values cannot be read."""
    option = as_option(name)
    return f"Convert it, or omit it with --drop {option} (with --like: --absent {option})."


# -- Cells ---------------------------------------------------------------------------------------------------


def _levels(column: Any, name: str, source: str) -> Cells:
    """Cells of a column that stores different values once: it is declared categorical."""
    levels = column.dictionary
    if is_text(levels.type):
        known = as_text(levels).to_pylist()
    elif pa.types.is_integer(levels.type) or pa.types.is_floating(levels.type):
        known = levels.to_pylist()
    else:
        return _cells(column.dictionary_decode(), name, source)
    positions = _positions(column.indices)
    if None in known:
        positions = np.where(np.append([level is None for level in known], True)[positions], -1, positions)
        known = ["" if level is None else level for level in known]
    return levelled(positions, known, declared=True)


def _positions(indices: Any) -> Any:
    return np.asarray(indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False))
