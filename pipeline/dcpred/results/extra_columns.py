"""Columns that an export puts next to the scores."""

import csv
import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zarr
from numpy.typing import NDArray

from dcpred.execution.progress import Reporter
from dcpred.results.stored_scores import StoredScores
from dcpred.runs.ledger import open_ledger, same_rows
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.data_schema import schema_of_given
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, DcpredError, SettingsError, listed
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.schema.column import DAY, LAST_DAY, Codes, Column, Date, TargetCodes
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.outputs import STATUS, OutputColumn, StatusArray, Values
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import absolute, shown, table_address

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


def run_fields(scores: StoredScores) -> list[Field]:
    """Every possible column of a run: row, those of its outputs, status, status_name."""
    found = [Field(ROW, pa.int64(), _row_numbers)]
    for column in scores.columns:
        if column is not STATUS:
            found += _output_fields(column, scores.arrays[column.name])
    found.append(Field(STATUS.name, pa.uint8(), lambda rows: pa.array(rows.status)))
    found.append(Field(STATUS_NAME, pa.string(), _status_names))
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
        return [Field(name, pa.string(), partial(_named, name, names), name)]
    kind = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 1:
        return [Field(name, kind, partial(_numbers, name, None), name)]
    suffixes = column.numbers(array.attrs, array.shape[1]) or range(array.shape[1])
    return [
        Field(f"{name}_{suffix}", kind, partial(_numbers, name, number), name)
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


TARGET = "y"  # the array of a data set that is not an id
IDS = "dcpred_ids"  # attribute of a data set: names of the arrays of ids that import stored
HELD_BYTES = 64 * 2**20  # bytes of rows of X in memory at once for some of their features
# DATA, which may hold colons, and names after the last one; a name in double quotes may hold any character.
FORM = re.compile(r'(?:(?P<data>.+):(?!//))?(?P<names>(?:"(?:[^"]|"")*"|[^:"])+)')


class OtherRowsError(DataError):
    """A data set holds other rows than the scored ones."""


@dataclass(frozen=True)
class Beside:
    """Columns of one data set."""

    data: str
    """Their address."""
    names: tuple[str, ...]
    """Names of the columns, in the requested order."""
    arrays: dict[str, zarr.Array[Any]]
    """One-dimensional arrays by the name of their column."""
    X: zarr.Array[Any] | None
    """The features, if some are requested."""
    features: dict[str, int]
    """Columns of X by name."""
    schema: Schema | None = None
    """The columns of the features, if the data set states them."""

    def types(self) -> dict[str, pa.DataType]:
        found = {
            name: _values(array, np.empty(0, array.dtype), name).type for name, array in self.arrays.items()
        }
        if self.X is not None:
            nothing = np.empty(0, self.X.dtype)
            found |= {name: self._feature(name, nothing).type for name in self.features}
        return found

    def _encoded(self, name: str) -> tuple[Column | None, int]:
        """The column of the table that a feature comes from, and the index of the feature in it."""
        place = self.features[name]
        for column, span in [] if self.schema is None else self.schema.spans:
            if place in range(span.start, span.stop):
                return column, place - span.start
        return None, 0

    def _feature(self, name: str, values: NDArray[Any]) -> pa.Array:
        """Values of a feature as in the imported table: categories by name, and dates."""
        column, part = self._encoded(name)
        if isinstance(column, Codes | TargetCodes):
            levels, at = np.unique(values, return_inverse=True)
            names = [None if x == column.gap or x != x else column.says(part, x) or str(x) for x in levels]
            return pa.array(names, pa.string()).take(pa.array(at))
        if isinstance(column, Date) and column.parts[part] == DAY:
            days, there = values.astype(np.float64), np.abs(values) < LAST_DAY
            return pa.array(np.floor(np.where(there, days, 0)).astype("M8[D]"), mask=~there)
        return as_arrow(values, name)

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, pa.Array]:
        """Some of the columns for rows."""
        names = set(names)
        found = {
            name: _values(array, zarr_arrays.read_rows(array, start, stop), name)
            for name, array in self.arrays.items()
            if name in names
        }
        wanted = [name for name in self.features if name in names]
        if wanted and self.X is not None:
            columns = _features(self.X, [self.features[name] for name in wanted], start, stop)
            found |= {name: self._feature(name, columns[:, i]) for i, name in enumerate(wanted)}
        return found


def _values(array: zarr.Array[Any], values: NDArray[Any], name: str) -> pa.Array:
    """Values of an array of a data set: class numbers with names, for example of a target, become these
    names.
    """
    encoding = zarr_arrays.encoding(array)
    if values.dtype.kind in "iuf" and not encoding.is_plain:
        values, missing = encoding.decode(values)
        found = as_arrow(values, name)
        return pc.if_else(pa.array(missing), pa.scalar(None, found.type), found)
    names = class_labels(array.attrs, f"array {name}")
    if names is None or values.dtype.kind not in "iu":
        return as_arrow(values, name)
    return pa.array(
        [names[value] if 0 <= value < len(names) else str(value) for value in values.tolist()], pa.string()
    )


def _features(X: zarr.Array[Any], columns: list[int], start: int, stop: int) -> NDArray[Any]:
    """Some features of rows, in the order of columns of a table."""
    found = np.empty((stop - start, len(columns)), X.dtype, order="F")
    row_bytes = max(X.shape[1] * np.dtype(X.dtype).itemsize, 1)
    chunk_rows = zarr_arrays.chunk_rows(X)
    step = max(HELD_BYTES // row_bytes // chunk_rows, 1) * chunk_rows
    for at in range(start, stop, step):
        end = min(at + step, stop)
        found[at - start : end - start] = zarr_arrays.read_rows(X, at, end)[:, columns]
    return found


def parse_beside(text: str) -> tuple[str | None, list[str]]:
    """[DATA:]NAME,NAME as (DATA, names). Raises SettingsError."""
    found = FORM.fullmatch(text)
    names = [] if found is None else next(csv.reader([found["names"]], skipinitialspace=True), [])
    names = [name.strip() for name in names]
    if found is None or not names or not all(names):
        raise SettingsError(
            f"Cannot add columns {text!r}: it names none. Write DATA:NAME,NAME,"
            " or NAME,NAME for those of the scored data."
        )
    return found["data"], names


def find_beside(run: ScoreRun, data: str | None, names: Sequence[str]) -> Beside:
    """Columns of a data set by their names: one-dimensional arrays next to X, or features of X.

    data  address of the data set; None: the scored one

    Raises DataError if there is no such column, or its number of rows differs from the scored ones.
    """
    group, X = _opened(run, data)
    where = data or shown(run.x)
    arrays: dict[str, zarr.Array[Any]] = {}
    features: dict[str, int] = {}
    known = () if X is None else feature_names(X) or ()
    of_group = {} if group is None else dict(zarr_arrays.arrays_of(group))
    for name in names:
        if name in of_group and of_group[name].ndim == 1:
            arrays[name] = of_group[name]
        elif name in known:
            features[name] = known.index(name)
        else:
            raise _unknown(name, where, [*(n for n, array in of_group.items() if array.ndim == 1), *known])
    scored = data is None or absolute(data) in (_folder(run.x), run.x)
    asked = [*arrays.items(), *([("X", X)] if X is not None and features else [])]
    for name, array in asked:
        _check_rows(run, where, name, array, grows=scored)
        stored_chunks.check_complete(zarr_arrays.address_of(array), array)
    if scored:
        _check_same_rows(run, where, arrays)
    schema = None if X is None or not features else schema_of_given(X)
    return Beside(where, tuple(names), arrays, X if features else None, features, schema)


def kept_ids(run: ScoreRun, say: Reporter) -> Beside | None:
    """The ids that import stored for the scored rows; None if there are none, or they were removed, which
    `say` reports. Raises DataError if they are of other rows.
    """
    there: set[str] = set()
    try:
        group, _ = _opened(run, None)
        there = set() if group is None else set(group.array_keys())
        names = None if group is None else group.attrs.get(IDS)
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return find_beside(run, None, names)
    except OtherRowsError:
        raise
    except DcpredError:
        pass
    recorded = open_ledger(run.output).recorded_input().get("arrays")
    lost = [name for name in recorded if name not in {*there, TARGET}] if isinstance(recorded, dict) else []
    if lost and table_address(run.x) is not None and (ids := [name for name in _ids(run) if name in lost]):
        raise DataError(
            f"Cannot add {listed(ids)} to the scores of {run.output}: {shown(run.x)}, where the ids of its"
            f" rows lie, was removed. Restore it, add --with DATA:{ids[0]} if it was moved, or export the"
            " scores alone by naming their --columns, for example row,label."
        )
    if lost:
        say.say(
            f"warning: the table has no ids of its rows: {listed(lost)} was next to {shown(run.x)}"
            f" during scoring, and was removed. If the data were moved, add --with DATA:{lost[0]}."
        )
    return None


def _ids(run: ScoreRun) -> Sequence[str]:
    """The ids in the schema of the model of a run; none where it cannot be opened."""
    try:
        schema = open_artifact(run.model).schema
    except DcpredError:
        return ()
    return () if schema is None else schema.ids


def _check_same_rows(run: ScoreRun, where: str, arrays: dict[str, zarr.Array[Any]]) -> None:
    """Raise OtherRowsError if X, or one of these arrays next to it, was rewritten after scoring. An array
    that was added later is not checked.
    """
    ledger = open_ledger(run.output)
    changed = [] if ledger.has_same_input() else ["X"]
    recorded = ledger.recorded_input()
    changed += [name for name, a in arrays.items() if same_rows(recorded, a, run.n_rows, name) is False]
    if changed:
        again = "Score the data again"
        if "X" not in changed:  # A run with the same rows would do nothing.
            again = "Score the data into a new directory (`dcpred refresh --full` for a run of a refresh)"
        raise OtherRowsError(
            f"Cannot add columns of {where} to the scores of {run.output}: {' and '.join(changed)}"
            f" changed since the rows were scored, and may be of other rows. {again}, or export the scores"
            " alone by naming their --columns, for example row,status"
        )


def _opened(run: ScoreRun, data: str | None) -> tuple[zarr.Group | None, zarr.Array[Any] | None]:
    """The group of a data set and its X, if they exist."""
    if data is None:
        X = zarr_arrays.open_array(run.x)
        try:
            node = zarr_arrays.open_any(_folder(run.x))
        except DataError:  # an array outside of a group
            return None, X
        return (node if isinstance(node, zarr.Group) else None), X
    node = zarr_arrays.open_any(data)
    if isinstance(node, zarr.Array):
        return None, node
    try:
        return node, zarr_arrays.open_array(zarr_arrays.find_array(data, "X"))
    except DataError:
        return node, None


def _folder(address: str) -> str:
    return address.rstrip("/").rpartition("/")[0]


def _unknown(name: str, where: str, there: list[str]) -> DataError:
    near = difflib.get_close_matches(name, there, 1)
    if Path(name).exists() or "/" in name:
        do = f"Write {name}:NAME for a column of that data set."
    elif near:
        do = f"Did you mean {near[0]!r}?"
    else:
        do = f"Name one of {listed(there)}." if there else "It has none with a name."
    return DataError(
        f"Cannot add column {name!r} to the scores: {where} has no one-dimensional array and no"
        f" feature of that name. {do}"
    )


def _check_rows(run: ScoreRun, where: str, name: str, array: zarr.Array[Any], *, grows: bool) -> None:
    """The scored data may have grown since."""
    n = array.shape[0]
    if n < run.n_rows or (n > run.n_rows and not grows):
        raise DataError(
            f"Cannot add {name} of {where} to {run.n_rows:,} scores: it has {n:,} rows. Name the data"
            " set that was scored."
        )
