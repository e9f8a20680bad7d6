"""Named arrays (containers.py) as a matrix with a target, or as a table whose columns they are.

An array of one dimension, or of one column, is a column. Values are decoded by the climate and forecast
metadata conventions (CF) that xarray uses: times since a date, packed numbers, missing values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred.datasets.arrow_files import batch_rows
from dcpred.datasets.containers import Container, NamedArray
from dcpred.datasets.held_chunks import held
from dcpred.datasets.source import Columns
from dcpred.datasets.table import no_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.cells import as_date
from dcpred_tasks.storage.array_attributes import encoding_of
from dcpred_tasks.storage.zarr_arrays import SPARSE_PARTS, plain_text, sparse_matrix

SINCE = re.compile(r"\s*(\w+)\s+since\s+(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[T ]+(\S.*?))?\s*", re.ASCII)
CLOCK = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.0*)?)?\s*(Z|UTC)?", re.ASCII)
MICROSECONDS = {
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
    "nanosecond": 1e-3,
}
SHORT = {"d": "day", "h": "hour", "hr": "hour", "min": "minute", "s": "second", "sec": "second"}
SHORT |= {"ms": "millisecond", "msec": "millisecond", "us": "microsecond", "ns": "nanosecond"}
NO_TIME = np.iinfo(np.int64).min  # the missing value of times in NumPy and xarray
LARGEST_STEP = 2**62  # microseconds that can be added to a date
CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


@dataclass(frozen=True)
class ArrayRows:
    """Rows of a table whose columns are arrays."""

    container: Container
    types: Mapping[str, Any]
    n_rows: int
    scratch: Path

    @property
    def name(self) -> str:
        return self.container.name

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        step = batch_rows(len(names))
        with (
            self.container.opened() as arrays,
            held({name: arrays[name] for name in names}, self.scratch) as columns,
        ):
            for start in range(0, self.n_rows, step):
                rows = slice(start, min(start + step, self.n_rows))
                yield {name: _column(columns[name], name, self.name, rows) for name in names}


def find_matrix(container: Container, x: str | None, y: str | None) -> tuple[str, str | None] | None:
    """The names of the arrays that are X and y; None if the arrays are columns of a table. Raises
    DataError if a named array is missing, or if several may be X.
    """
    with container.opened() as arrays:
        for option, name in (("x", x), ("y", y)):
            if name is not None and name not in arrays and name not in _sparse(arrays):
                raise DataError(
                    f"Cannot use array {name!r} as {option}: {container.name} holds"
                    f" {_listed(list(arrays))}. Pass --{option} with the name of one of them."
                )
        sparse = _sparse(arrays)
        if x in sparse or (x is None and "X" in sparse):
            raise DataError(sparse_matrix(f"{x or 'X'} of {container.name}"))
        wide = [name for name, array in _own(arrays).items() if len(array.shape) == 2 and array.shape[1] > 1]
        chosen = x or ("X" if "X" in arrays and len(arrays["X"].shape) == 2 else None)
        if chosen is None and wide:
            if len(wide) > 1 or y is not None:
                raise DataError(
                    f"Cannot choose X in {container.name}: it holds the matrices {_listed(wide)}."
                    " Name X with --x, and the target with --y."
                )
            chosen = wide[0]
        if chosen is None and sparse and all("/" not in name for name in sparse):
            raise DataError(sparse_matrix(f"{sparse[0]} of {container.name}"))
        if chosen is None:
            return None
        return chosen, y or ("y" if "y" in arrays and not arrays["y"].is_index else None)


def read_columns(container: Container, scratch: Path) -> ArrayRows:
    """The table whose columns are the arrays of a container. Raises DataError if they are not columns.

    scratch  a folder for chunks that memory does not hold
    """
    with container.opened() as arrays:
        own = _own(arrays)
        columns = {name: array for name, array in own.items() if _is_column(array)}
        others = [name for name, array in own.items() if len(array.shape) > 1 and name not in columns]
        if others:
            raise DataError(
                f"Cannot use array {others[0]!r} of {container.name} as a column: its shape is"
                f" {arrays[others[0]].shape}. Name it with --x if it is the matrix of features."
            )
        lengths = {name: array.shape[0] for name, array in columns.items()}
        if not lengths:
            raise DataError(
                f"Cannot import columns from {container.name}: it holds {_listed(list(arrays))},"
                " but no array of one dimension. Name a matrix with --x."
            )
        first, n_rows = next(iter(lengths.items()))
        for name, length in lengths.items():
            if length != n_rows:
                raise DataError(
                    f"Cannot import {container.name}: column {first!r} has {n_rows:,}"
                    f" values and {name!r} {length:,}. Bring them to one length, or write them apart."
                )
        if n_rows == 0:
            raise no_rows(container.name)
        types = {n: _column(array, n, container.name, slice(0, 1)).type for n, array in columns.items()}
    return ArrayRows(container, types, n_rows, scratch)


def _own(arrays: Mapping[str, NamedArray]) -> dict[str, NamedArray]:
    """The arrays outside subgroups: those inside are read only by name."""
    return {name: array for name, array in arrays.items() if "/" not in name}


def _sparse(arrays: Mapping[str, NamedArray]) -> list[str]:
    """Groups that hold a sparse matrix."""
    above = {name.rpartition("/")[0] for name in arrays if "/" in name}
    return sorted(g for g in above if all(f"{g}/{part}" in arrays for part in SPARSE_PARTS))


def _is_column(array: NamedArray) -> bool:
    return not array.is_index and (len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
    return shown or "no arrays"


# -- Matrices and targets ------------------------------------------------------------------------------------


class DecodedMatrix:
    """The rows of a matrix, decoded by its attributes; NaN stands for a missing value."""

    def __init__(self, array: NamedArray, where: str) -> None:
        self.array, self.where = array, where
        self.encoding = encoding_of(array.attributes, np.dtype(array.dtype), where)
        self.shape, self.dtype = array.shape, self.encoding.filled_dtype

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        raw = self.array[rows]
        return raw if self.encoding.is_plain else self.encoding.filled(raw, self.where)


class DecodedTarget:
    """The values of a target, decoded by its attributes, with a mask if some are missing."""

    def __init__(self, array: NamedArray, where: str) -> None:
        self.array, self.where = array, where
        self.encoding = encoding_of(array.attributes, np.dtype(array.dtype), where)
        self.shape, self.dtype = array.shape, self.encoding.value_dtype

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        raw = self.array[rows]
        if self.encoding.is_plain:
            return raw
        if raw.dtype.kind in "OTSU":
            texts = plain_text(raw, self.where).tolist()
            return np.array([None if one in self.encoding.markers else one for one in texts], object)
        values, missing = self.encoding.decode(raw)
        return np.ma.MaskedArray(values, missing)


# -- Values --------------------------------------------------------------------------------------------------


def _column(array: NamedArray, name: str, source: str, rows: slice) -> Any:
    """Rows of a column as an Arrow array."""
    raw = array[rows]
    return arrow_array(raw[:, 0] if raw.ndim == 2 else raw, array.attributes, f"array {name!r} of {source}")


def arrow_array(values: NDArray[Any], attributes: Mapping[str, Any], where: str) -> Any:
    """Values as an Arrow array, decoded by their attributes. Raises DataError for invalid ones."""
    kind = values.dtype.kind
    encoding = encoding_of(attributes, values.dtype, where)
    if kind in "OTSU":
        return _texts(values, where, encoding.markers)
    if kind in "Mm":
        return pa.array(values)
    if kind not in "biuf" or (kind == "f" and values.dtype.itemsize > 8):
        raise DataError(
            f"Cannot read {where} as a column: its dtype is {values.dtype}. Convert it to numbers, text,"
            " dates or booleans."
        )
    stored = values.dtype
    values, gap = encoding.decode(values)
    units = attributes.get("units")
    if isinstance(units, bytes):
        units = units.decode("utf-8", "replace")
    if isinstance(units, str) and SINCE.fullmatch(units):
        if stored.newbyteorder("=") == np.int64 and not encoding.is_packed:
            gap |= values == NO_TIME
        return pa.array(_times(values, gap, units, attributes, where))
    if str(attributes.get("dtype")) == "bool" and values.dtype.kind in "iu":
        return pa.array(values != 0, mask=gap)
    return pa.array(values, mask=gap)


def _texts(values: NDArray[Any], where: str, markers: Sequence[str]) -> Any:
    values = plain_text(values, where) if values.dtype.kind == "S" else values
    plain = [_text(value, where) for value in values.astype(object).tolist()]
    return pa.array([None if value in markers else value for value in plain], pa.string())


def _text(value: Any, where: str) -> str | None:
    if value is None or value != value:
        return None
    if value == "":
        return None  # such arrays have no other missing value
    if not isinstance(value, str):
        raise DataError(
            f"Cannot read {where} as a column: it holds {type(value).__name__}, for example"
            f" {str(value)[:60]!r}."
            " Make it text or numbers."
        )
    return value


def _times(
    values: NDArray[Any], gap: NDArray[np.bool_], units: str, attributes: Mapping[str, Any], where: str
) -> NDArray[Any]:
    """datetime64[us] of times since a date."""
    calendar = attributes.get("calendar", CALENDARS[0])
    calendar = calendar.decode() if isinstance(calendar, bytes) else str(calendar)
    unit, since = _unit(units), _since(units)
    if calendar not in CALENDARS or unit is None or since is None:
        raise DataError(
            f"Cannot read {where}: its times are {units!r} of the calendar {calendar!r}, which are not dates."
            " Convert them to a standard calendar, or omit the column."
        )
    steps = np.where(gap, 0, values)
    if (np.abs(steps.astype(np.float64) * unit) > LARGEST_STEP).any():
        raise DataError(
            f"Cannot read {where}: some of its times, {units!r}, are too far away for dates. Correct them,"
            " or omit"
            " the column."
        )
    whole = (
        steps.astype(np.int64) * int(unit) if steps.dtype.kind != "f" and unit >= 1 else np.rint(steps * unit)
    )
    found = since + whole.astype(np.int64).astype("timedelta64[us]")
    found[gap] = np.datetime64("NaT")
    return np.asarray(found)


def _unit(units: str) -> float | None:
    match = SINCE.fullmatch(units)
    word = match[1].lower() if match else ""
    return MICROSECONDS.get(SHORT.get(word, word.removesuffix("s")))


def _since(units: str) -> np.datetime64 | None:
    match = SINCE.fullmatch(units)
    if match is None:
        return None
    clock = CLOCK.fullmatch(match[5] or "00:00")
    if clock is None:
        return None
    date = "-".join((match[2].zfill(4), match[3].zfill(2), match[4].zfill(2)))
    return as_date(f"{date}T{clock[1].zfill(2)}:{clock[2].zfill(2)}:{(clock[3] or '0').zfill(2)}")
