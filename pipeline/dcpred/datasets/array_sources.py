"""Arrays and frames to import: NumPy files, named arrays of a container, and frames in memory."""

import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dcpred.datasets.containers import Container, NamedArray
from dcpred.datasets.sparse import SPARSE, SparseFile, check_dense, unpacked
from dcpred.datasets.table import (
    Batch,
    Table,
    TargetSurvey,
    damaged,
    label_dtype,
    target_values,
)
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.input_kinds import NUMBERS, as_table, is_a
from dcpred_tasks.model.class_codes import class_codes
from dcpred_tasks.model.compact_model import check_matrix
from dcpred_tasks.schema.column import as_date
from dcpred_tasks.schema.frames import FRAMES, column_names, is_frame
from dcpred_tasks.schema.inference import SHOWN
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.storage.object_arrays import encoding_of
from dcpred_tasks.storage.zarr_arrays import SPARSE_PARTS, plain_text, sparse_matrix
from dcpred_tasks.tables.stored_tables import batch_rows
from dcpred_tasks.tables.table_columns import Columns, check_names, no_rows

SURVEY_ROWS = 2**20  # rows of y per survey step
Names = tuple[str, ...] | None


def read_npy(path: Path) -> Table:
    """One matrix, memory-mapped."""
    with path.open("rb") as file:
        check_features(path.name, *_header(path.name, file))
    try:
        X = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise damaged(path, error) from None
    return matrix_table(lambda: nullcontext((X, None)), "")


def read_npz(path: Path, x: str | None, y: str | None, scratch: Path, dense_limit: int) -> Table:
    """Two arrays, unpacked in the directory `scratch` and memory-mapped in any memory order; or a sparse
    matrix of SciPy, which has a target if an array y lies in the same file.

    dense_limit  maximum bytes of a sparse matrix after it is written dense
    """
    with zipfile.ZipFile(path) as archive:
        held = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        is_sparse = x is None and set(held) >= SPARSE
        chosen = {"x": "data" if is_sparse else x or "X", "y": y or ("y" if "y" in held else None)}
        where = {option: f"array {name!r} of {path.name}" for option, name in chosen.items()}
        for option, name in chosen.items():
            if name is not None and name not in held:
                raise DataError(
                    f"Cannot use array {name!r} as {option}: {path.name} holds"
                    f" {', '.join(held) or 'no arrays'}. Pass --{option} with the name of one of them."
                )
        if is_sparse:
            X: Any = SparseFile(path, archive, scratch)
            check_dense(path.name, X.shape, X.n_values, X.dtype.itemsize, dense_limit)
        else:
            with archive.open(f"{chosen['x']}.npy") as file:
                shape = check_features(where["x"], *_header(where["x"], file))
        if chosen["y"] is not None:
            n_samples = X.shape[0] if is_sparse else shape
            with archive.open(f"{chosen['y']}.npy") as file:
                check_target(where["y"], n_samples, *_header(where["y"], file))
        wanted = [name for option, name in chosen.items() if name and not (is_sparse and option == "x")]
        files = unpacked(path, archive, wanted, scratch)
    try:
        X = X if is_sparse else np.load(files[str(chosen["x"])], mmap_mode="r")
        target = None if chosen["y"] is None else np.load(files[chosen["y"]], mmap_mode="r")
    except ValueError as error:
        raise damaged(path, error) from None
    return matrix_table(lambda: nullcontext((X, target)), where["y"])


def _header(where: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array that NumPy saved."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    except ValueError as error:
        raise DataError(f"Cannot read {where} as a NumPy array: {error}. Save it again.") from None
    return shape, dtype


def check_features(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The number of rows of an array that can be X. Raises DataError for another array."""
    try:
        check_matrix(shape, dtype)
    except DataError as error:
        raise DataError(f"Cannot use {where} as X: {error}.") from None
    if 0 in shape or dtype.itemsize > 8:
        so = f"its shape is {shape}" if 0 in shape else f"its dtype is {dtype}"
        raise DataError(
            f"Cannot use {where} as X: {so}. It needs rows, features and at most 64 bits per number."
        )
    return shape[0]


def check_target(where: str, n_samples: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufUST" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataError(
            f"Cannot use {where} as y: its dtype is {dtype}. Convert it to real numbers or strings."
        )
    if shape != (n_samples,):
        raise DataError(
            f"Cannot use {where} as y: its shape is {shape}, but X has {n_samples:,} rows."
            " Pass another array or reshape it."
        )


# -- A matrix and a target, whatever holds them --------------------------------------------------------------

Opened = Callable[[], AbstractContextManager[tuple[Any, Any]]]


def matrix_table(opened: Opened, y_where: str, names: Names = None, labels: Names = None) -> Table:
    """A matrix X and its target, or None, while they are open: arrays that are sliced by rows.

    y_where  name of the target in messages
    names    of the features
    labels   of the classes that y numbers
    """
    with opened() as (X, y):
        shape, dtype = X.shape, np.dtype(X.dtype).newbyteorder("=")
        y_dtype = None if y is None or y.dtype.kind in "OT" else np.dtype(y.dtype).newbyteorder("=")
        survey = TargetSurvey(y_where)
        for start in range(0, shape[0], SURVEY_ROWS) if y is not None else ():
            target = y[start : start + SURVEY_ROWS]
            survey.add(_as_arrow(target, y_where))
            if labels is not None and target.dtype.kind in NUMBERS:
                there = np.ma.filled(target == target, False)  # Missing ones are counted.
                class_codes(np.asarray(target[there]), len(labels), y_where, start + np.flatnonzero(there))
    counted = survey.labels

    def batches(rows: int) -> Iterator[Batch]:
        with opened() as (X, y):
            for start in range(0, shape[0], rows):
                here = slice(start, start + rows)
                target = None if y is None else target_values(_as_arrow(y[here], y_where), counted)
                yield Batch(np.asarray(X[here]), target)

    target_dtype = label_dtype(counted) if counted else y_dtype
    return Table(shape[0], shape[1], dtype, target_dtype, counted or labels, names, batches)


def _as_arrow(values: NDArray[Any], where: str) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(np.ma.getdata(values), mask=np.ma.getmaskarray(values))
    if values.dtype.kind in "OT":
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())
    text = plain_text(values, where)
    return pa.array(np.asarray(text, text.dtype.newbyteorder("=")))


NAME = "the frame"


@dataclass(frozen=True)
class FrameRows:
    """Rows of a frame that is in memory."""

    frame: Any
    types: Mapping[str, Any]
    name: str = NAME

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        rows = batch_rows(len(names))
        for start in range(0, len(self.frame), rows):
            yield {name: _frame_column(self.frame, name, self.types[name], start, rows) for name in names}


def read_frame(frame: Any, named: Collection[str] = ()) -> FrameRows:
    """A frame with named or numbered columns. The index of pandas is a column only if an option names it."""
    if isinstance(frame, list | tuple) and frame and all(isinstance(record, Mapping) for record in frame):
        frame = _of_records(frame)
    if is_a(frame, "polars.LazyFrame"):
        raise DataError("Cannot read a polars LazyFrame: it has to be collected first. Pass frame.collect().")
    frame = as_table(frame)
    if not is_frame(frame):
        raise DataError(
            f"Cannot import from {type(frame).__module__}.{type(frame).__name__}: it is not a table. Pass the"
            " name of a file, a list of dicts, or a frame of"
            f" {', '.join(kind.partition('.')[0] for kind in FRAMES)}."
        )
    if is_a(frame, "pandas.DataFrame") and (index := set(frame.index.names) & set(named)):
        frame = frame.reset_index([name for name in frame.index.names if name in index])
    names = column_names(frame)
    if names == list(range(len(names))):
        names = [str(name) for name in names]
        frame = frame.set_axis(names, axis=1)
    others = [name for name in names if not isinstance(name, str)]
    if others:
        raise DataError(
            f"Cannot read the frame: the column {others[0]!r} is not named by a string. Rename it, for"
            " example by frame.columns = frame.columns.astype(str)."
        )
    check_names(NAME, names)
    if len(frame) == 0:
        raise no_rows(NAME)
    return FrameRows(frame, {name: _type(frame, name) for name in names})


def _of_records(records: Sequence[Mapping[str, Any]]) -> Any:
    """A table of records; what one of them lacks is missing."""
    names = dict.fromkeys(name for record in records for name in record)
    others = [name for name in names if not isinstance(name, str)]
    if others:
        raise DataError(f"Cannot read records: the key {others[0]!r} is not text. Rename it.")
    return pa.table({name: _of_values([r.get(name) for r in records], name, None) for name in names})


def _type(frame: Any, name: str) -> Any:
    """The Arrow type of all values of a column."""
    if is_a(frame, "pyarrow.Table"):
        return frame.schema.field(name).type
    if is_a(frame, "polars.DataFrame"):
        return frame.select(name).head(1).to_arrow().schema.field(0).type
    series = frame[name]
    # Only Python objects have to be inspected for their type.
    return _of_values(series if series.dtype == object else series.iloc[:1], name, None).type


def _frame_column(frame: Any, name: str, kind: Any, start: int, rows: int) -> Any:
    if is_a(frame, "pandas.DataFrame"):
        return _of_values(frame[name].iloc[start : start + rows], name, kind)
    part = frame.slice(start, rows)
    table = part if is_a(frame, "pyarrow.Table") else part.select(name).to_arrow()
    return table.column(name).combine_chunks()


def _of_values(values: Any, name: str, kind: Any) -> Any:
    """A series of pandas, or a list, as an Arrow array."""
    try:
        column = pa.array(values, type=kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        large = next(
            ((i, v) for i, v in enumerate(values) if isinstance(v, int) and not -(2**63) <= v < 2**63), None
        )
        if large is not None:
            raise DataError(
                f"Cannot import column {name!r} of {NAME}: it holds {str(large[1])[:SHOWN]} in row"
                f" {large[0]:,} (counted from 0), which is too large for an integer of 64 bits;"
                " convert the column to text, and store it as an id, or convert it to float where"
                " rounding does not matter"
            ) from None
        raise DataError(
            f"Cannot import column {name!r} of {NAME}: it holds values of several kinds, or of a kind for"
            f" which tables have no type ({str(error).splitlines()[0]}). Make them numbers, text, dates or"
            " booleans."
        ) from None
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(kind, pa.BaseExtensionType) and column.type != kind:
        return pa.ExtensionArray.from_storage(kind, column)
    return column


HELD_BYTES = 2**30


class HeldChunks:
    """An array of which whole chunks are read, and the last one is held."""

    def __init__(self, array: NamedArray, chunk_rows: int, buffer: NDArray[Any] | None) -> None:
        self.array, self.size, self.buffer = array, chunk_rows, buffer
        self.shape, self.dtype, self.attributes = array.shape, array.dtype, array.attributes
        self.is_index, self.chunk_rows = array.is_index, None
        self.first = self.last = 0
        self.rows: NDArray[Any] | None = None

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop = rows.start or 0, min(rows.stop, self.shape[0])
        parts = []
        while start < stop:
            if self.rows is None or not self.first <= start < self.last:
                self._read(start, stop)
            assert self.rows is not None
            end = min(stop, self.last)
            part = self.rows[start - self.first : end - self.first]
            parts.append(part if self.buffer is None else part.copy())  # the next chunk takes the buffer
            start = end
        if not parts:
            return self.array[slice(start, start)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read(self, start: int, stop: int) -> None:
        """All chunks with rows from start to stop, except a last one that they do not fill."""
        self.rows = None
        self.first = start // self.size * self.size
        whole = self.first + self.size if self.buffer is not None else stop // self.size * self.size
        self.last = min(max(self.first + self.size, whole), self.shape[0])
        rows = self.array[slice(self.first, self.last)]
        if self.buffer is None:
            self.rows = rows
        else:
            self.buffer[: len(rows)] = rows
            self.rows = self.buffer


@contextmanager
def held(arrays: Mapping[str, NamedArray], scratch: Path) -> Iterator[dict[str, NamedArray]]:
    """The same arrays by name, for reading in order."""
    sizes = {name: _chunk_bytes(array) for name, array in arrays.items() if array.chunk_rows}
    in_memory = sum(sizes.values()) <= HELD_BYTES
    with ExitStack() as stack:
        buffered = dict(arrays)
        for name, size in sizes.items():
            array, rows = arrays[name], min(arrays[name].chunk_rows or 1, max(arrays[name].shape[0], 1))
            fits = in_memory or size <= HELD_BYTES // len(sizes) or array.dtype.kind not in "biufcSUmM"
            buffer = None if fits else stack.enter_context(_buffer(array, rows, scratch))
            buffered[name] = HeldChunks(array, rows, buffer)
        yield buffered


def _chunk_bytes(array: NamedArray) -> int:
    rows = min(array.chunk_rows or 0, array.shape[0])
    return rows * int(np.prod(array.shape[1:])) * np.dtype(array.dtype).itemsize


@contextmanager
def _buffer(array: NamedArray, rows: int, scratch: Path) -> Iterator[NDArray[Any]]:
    """Memory for the rows of a chunk, in an unnamed file."""
    dtype = np.dtype(array.dtype).newbyteorder("=")
    shape = rows, *array.shape[1:]
    with resource_errors(scratch), tempfile.TemporaryFile(dir=scratch) as file:
        # A write to a mapped file beyond the free space of the disk kills the process.
        os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * dtype.itemsize)
        yield np.memmap(file, dtype, "r+", shape=shape)


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
                    f" {listed(list(arrays)) or 'no arrays'}. Pass --{option} with the name of one of them."
                )
        sparse = _sparse(arrays)
        if x in sparse or (x is None and "X" in sparse):
            raise DataError(sparse_matrix(f"{x or 'X'} of {container.name}"))
        wide = [name for name, a in _top_level(arrays).items() if len(a.shape) == 2 and a.shape[1] > 1]
        chosen = x or ("X" if "X" in arrays and len(arrays["X"].shape) == 2 else None)
        if chosen is None and wide:
            if len(wide) > 1 or y is not None:
                raise DataError(
                    f"Cannot choose X in {container.name}: it holds the matrices {listed(wide)}."
                    " Name X with --x, and the target with --y."
                )
            chosen = wide[0]
        if chosen is None and sparse and all("/" not in name for name in sparse):
            raise DataError(sparse_matrix(f"{sparse[0]} of {container.name}"))
        if chosen is None:
            return None
        return chosen, y or ("y" if "y" in arrays and not arrays["y"].is_index else None)


def read_arrays(container: Container, scratch: Path) -> ArrayRows:
    """The table whose columns are the arrays of a container. Raises DataError if they are not columns.

    scratch  a folder for chunks that memory does not hold
    """
    with container.opened() as arrays:
        named = _top_level(arrays)
        columns = {name: array for name, array in named.items() if _is_column(array)}
        others = [name for name, array in named.items() if len(array.shape) > 1 and name not in columns]
        if others:
            raise DataError(
                f"Cannot use array {others[0]!r} of {container.name} as a column: its shape is"
                f" {arrays[others[0]].shape}. Name it with --x if it is the matrix of features."
            )
        lengths = {name: array.shape[0] for name, array in columns.items()}
        if not lengths:
            raise DataError(
                f"Cannot import columns from {container.name}: it holds"
                f" {listed(list(arrays)) or 'no arrays'}, but no array of one dimension. Name a matrix with"
                " --x."
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


def _top_level(arrays: Mapping[str, NamedArray]) -> dict[str, NamedArray]:
    """The arrays outside subgroups: those inside are read only by name."""
    return {name: array for name, array in arrays.items() if "/" not in name}


def _sparse(arrays: Mapping[str, NamedArray]) -> list[str]:
    """Groups that hold a sparse matrix."""
    above = {name.rpartition("/")[0] for name in arrays if "/" in name}
    return sorted(g for g in above if all(f"{g}/{part}" in arrays for part in SPARSE_PARTS))


def _is_column(array: NamedArray) -> bool:
    return not array.is_index and (len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1))


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
            return np.array([None if text in self.encoding.markers else text for text in texts], object)
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
            f" {str(value)[:60]!r}. Make it text or numbers."
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
            f"Cannot read {where}: some of its times, {units!r}, are too far away for dates. Correct them, or"
            " omit the column."
        )
    whole = (
        steps.astype(np.int64) * int(unit) if steps.dtype.kind != "f" and unit >= 1 else np.rint(steps * unit)
    )
    times = since + whole.astype(np.int64).astype("timedelta64[us]")
    times[gap] = np.datetime64("NaT")
    return np.asarray(times)


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
