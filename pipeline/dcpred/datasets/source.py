"""Tables as Arrow arrays: what every reader of columns gives, and Arrow arrays as cells of a schema.

A source is read more than once: first to find out what its columns are, then to write them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dcpred.datasets.table import arrow_values
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.cells import Cells, booleans, dates, levelled, numbers, without
from dcpred_tasks.schema.inference import as_option

Columns = dict[str, Any]  # Arrow arrays of equal length, by name


class Source(Protocol):
    """A table that can be read as often as needed."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The Arrow types of its columns, in their order."""

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time, from the first to the last."""


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_text_or_levels(kind: Any) -> bool:
    """Whether a column of this type holds text, also where each different one is stored but once."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_plain_number(kind: Any) -> bool:
    """Whether values are numbers or booleans of a dtype of NumPy."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def as_text(column: Any) -> Any:
    """Text as Arrow strings, whatever type of text it is."""
    return column.cast(pa.string())


def arrow_cells(column: Any, name: str, source: str, gap_texts: Sequence[str] = ()) -> Cells:
    """An Arrow array as cells.

    gap_texts  texts that stand for a gap
    Raises DataError for a type that is none of a table's values.
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
    example = f", with values as {str(there[0].as_py())[:60]!r}" if len(there) else ""
    raise DataError(
        f"column {name!r} of {source} must hold numbers, text, dates or booleans, but its type is"
        f" {kind}{example}; convert it, or leave it out with --drop {as_option(name)}"
    )


def _levels(column: Any, name: str, source: str) -> Cells:
    """Cells of a column whose different values are stored once: those were declared to be categories."""
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
