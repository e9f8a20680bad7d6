"""Columns of a table: their names, types, and computation from stored arrays.

Output columns keep their names; one with several numbers a row becomes a column for each: decision_CLASS.
Computed columns are row, the number of the row in the input from 0 on, and status_name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import zarr
from numpy.typing import NDArray

from dcpred.results.stored_scores import StoredScores
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.scoring.output_column import OutputColumn, StatusArray, Values
from dcpred_tasks.scoring.outputs import STATUS

ROW, STATUS_NAME = "row", "status_name"


@dataclass(frozen=True)
class Rows:
    """Rows of a run, the input of its fields."""

    start: int
    """Number of the first row."""
    values: Values
    """Output columns by name."""
    status: StatusArray


@dataclass(frozen=True)
class Field:
    """One column of a table from a run."""

    name: str
    type: pa.DataType
    make: Callable[[Rows], pa.Array]
    needs: str = ""
    """Its output column; "" for none."""
    missing: Any = None
    """The missing value in an array of a type without one; None if each row has a value."""
    known: tuple[str, ...] | None = None
    """All texts that it may hold; None for other types."""


def run_fields(scores: StoredScores) -> list[Field]:
    """Every possible column of a run: row, those of its outputs, status, status_name."""
    found = [Field(ROW, pa.int64(), _row_numbers)]
    for column in scores.columns:
        if column is not STATUS:
            found += _output_fields(column, scores.arrays[column.name])
    statuses = tuple(status.name.lower() for status in Status)
    found.append(Field(STATUS.name, pa.uint8(), lambda rows: pa.array(rows.status)))
    found.append(Field(STATUS_NAME, pa.string(), _status_names, known=statuses))
    names = [field.name for field in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(
            f"Cannot make columns of {scores.run.output}: two of them would be called {twice}. Name"
            " the others with --columns."
        )
    return found


def _row_numbers(rows: Rows) -> pa.Array:
    return pa.array(np.arange(rows.start, rows.start + len(rows.status), dtype=np.int64))


def _status_names(rows: Rows) -> pa.Array:
    names = np.full(256, "", object)
    names[list(Status)] = [status.name.lower() for status in Status]
    return pa.array(names[rows.status], pa.string())


def _output_fields(column: OutputColumn, array: zarr.Array[Any]) -> list[Field]:
    """The columns of one output array; rows whose status is not 1 have no value."""
    name = column.name
    names = texts(array.attrs.get("labels"))
    if names is not None and array.ndim == 1:
        return [Field(name, pa.string(), partial(_named, name, names), name, "", names)]
    kind = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 1:
        return [Field(name, kind, partial(_numbers, name, None), name, array.fill_value)]
    suffixes = column.numbers(array.attrs, array.shape[1]) or range(array.shape[1])
    return [
        Field(f"{name}_{suffix}", kind, partial(_numbers, name, number), name, array.fill_value)
        for number, suffix in enumerate(suffixes)
    ]


def texts(value: Any) -> tuple[str, ...] | None:
    """An attribute that lists names; None for anything else."""
    is_names = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    return tuple(value) if is_names else None


def _numbers(name: str, at: int | None, rows: Rows) -> pa.Array:
    values = rows.values[name] if at is None else np.ascontiguousarray(rows.values[name][:, at])
    return pa.array(values, mask=rows.status != Status.OK)


def _named(name: str, names: tuple[str, ...], rows: Rows) -> pa.Array:
    numbers, good = rows.values[name], rows.status == Status.OK
    if not (good <= ((numbers >= 0) & (numbers < len(names)))).all():
        row = rows.start + int(np.flatnonzero(good & ((numbers < 0) | (numbers >= len(names))))[0])
        raise DataError(
            f"Cannot name the {name} {numbers[row - rows.start]} of row {row:,}: there are only"
            f" {len(names):,} names. `dcpred verify` shows what is damaged."
        )
    return pa.array(names, pa.string()).take(pa.array(numbers.astype(np.int64), mask=~good))


def as_arrow(values: NDArray[Any], name: str) -> pa.Array:
    """A one-dimensional array of a data set. Raises DataError for a dtype that tables do not have."""
    kind = values.dtype.kind
    if kind in "TO":
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())
    if kind == "S":
        return pa.array(np.char.decode(values, "utf-8", "replace"), pa.string())
    if kind == "M" and np.datetime_data(values.dtype)[0] in ("h", "m"):
        values = values.astype("datetime64[s]")
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    try:
        return pa.array(values.astype(values.dtype.newbyteorder("=")))
    except (pa.ArrowException, TypeError, ValueError):
        raise DataError(
            f"Cannot add array {name} to a table: it has no column of {values.dtype}. Name"
            " another, or write it as numbers or texts."
        ) from None
