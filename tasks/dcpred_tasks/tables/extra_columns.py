"""Columns of a data set beside its rows: ids for example, which tables put before the scores."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zarr
from numpy.typing import NDArray

from dcpred_tasks.artifacts.data_schema import schema_of_given
from dcpred_tasks.errors import DataError, listed
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.schema.column import (
    DAY,
    LAST_DAY,
    SECOND,
    Boolean,
    Codes,
    Column,
    Date,
    Means,
    TargetCodes,
)
from dcpred_tasks.schema.schema import IDS_ATTRIBUTE, Schema
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_node
from dcpred_tasks.storage.addresses import Address, TableAddress, absolute, group_of, lasting
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.tables.encoded_rows import EncodedTable, open_cells
from dcpred_tasks.tables.score_columns import texts
from dcpred_tasks.tables.sources import is_read_in_place
from dcpred_tasks.tables.stored_tables import TableReader
from dcpred_tasks.tables.table_columns import cell_type

TARGET = "y"  # the array of the target
HELD_BYTES = 64 * 2**20  # bytes of rows of X in memory at once for some of their features


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


@dataclass(frozen=True)
class Beside:
    """Columns of one data set."""

    data: str
    """Their address."""
    names: tuple[str, ...]
    """Names of the columns, in the requested order."""
    arrays: Mapping[str, zarr.Array[Any]]
    """One-dimensional arrays by the name of their column."""
    X: zarr.Array[Any] | None = None
    """The features, if some are requested."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Columns of X by name."""
    schema: Schema | None = None
    """The columns of the features, if the data set states them."""
    table: TableReader | None = None
    """Reads the cells of all columns, where the data set is a table."""

    def types(self) -> dict[str, pa.DataType]:
        if self.table is not None:
            return {name: cell_type(self.table.table.types[name]) for name in self.names}
        types = {
            name: _values(array, np.empty(0, array.dtype), name).type for name, array in self.arrays.items()
        }
        if self.X is not None:
            nothing = np.empty(0, self.X.dtype)
            types |= {name: self._feature(name, nothing, 0).type for name in self.features}
        return types

    def _feature(self, name: str, values: NDArray[Any], start: int) -> pa.Array:
        """Values of a feature as in the imported table, from row `start` on: categories by name, and dates.
        Raises DataError for a value of the table that the feature does not hold.
        """
        column, part = _encoded(self.schema, self.features[name])
        if isinstance(column, Boolean):
            return pa.array(values == 1, mask=values != values)
        if isinstance(column, Codes | TargetCodes):
            unknown = np.flatnonzero(values == column.other)
            if len(unknown):
                raise self._lost(name, f"the category in row {start + int(unknown[0]):,}")
            levels, at = np.unique(values, return_inverse=True)
            names = [None if x == column.gap or x != x else column.says(part, x) or str(x) for x in levels]
            return pa.array(names, pa.string()).take(pa.array(at))
        if isinstance(column, Date) and column.parts[part] == DAY:
            far = np.flatnonzero(np.abs(values) >= LAST_DAY)
            if len(far):
                raise self._lost(name, f"the date in row {start + int(far[0]):,}")
            missing = values != values
            return pa.array(np.where(missing, 0, values).astype("M8[D]"), mask=missing)
        return as_arrow(values, name)

    def _lost(self, name: str, what: str) -> DataError:
        return DataError(
            f"Cannot add column {name!r} of {self.data} to the scores: the import did not store {what}. Score"
            f" the imported table itself, or export with --with TABLE:{name}."
        )

    def check_features(self) -> None:
        """Raise DataError for features that are not the values of their column in any row."""
        for name, place in self.features.items():
            column, part = _encoded(self.schema, place)
            if isinstance(column, Date) and column.parts[part] == DAY and SECOND in column.parts:
                raise self._lost(name, "times of day with their dates")
            if isinstance(column, Means):
                raise self._lost(name, "its categories")

    def read(self, names: Iterable[str], start: int, stop: int) -> dict[str, pa.Array]:
        """Some of the columns for rows."""
        names = set(names)
        if self.table is not None:
            return self.table.cells([name for name in self.names if name in names], start, stop)
        cells = {
            name: _values(array, zarr_arrays.read_rows(array, start, stop), name)
            for name, array in self.arrays.items()
            if name in names
        }
        wanted = [name for name in self.features if name in names]
        if wanted and self.X is not None:
            columns = _features(self.X, [self.features[name] for name in wanted], start, stop)
            cells |= {name: self._feature(name, columns[:, i], start) for i, name in enumerate(wanted)}
        return cells


def _encoded(schema: Schema | None, place: int) -> tuple[Column | None, int]:
    """The column of the table that a feature comes from, and the index of the feature in it."""
    for column, span in [] if schema is None else schema.spans:
        if place in range(span.start, span.stop):
            return column, place - span.start
    return None, 0


def _values(array: zarr.Array[Any], values: NDArray[Any], name: str) -> pa.Array:
    """Values of an array of a data set: class numbers with names, for example of a target, become these
    names.
    """
    encoding = zarr_arrays.encoding(array)
    if values.dtype.kind in "iuf" and not encoding.is_plain:
        values, missing = encoding.decode(values)
        column = as_arrow(values, name)
        return pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
    names = class_labels(array.attrs, f"array {name}")
    if names is None or values.dtype.kind not in "iu":
        return as_arrow(values, name)
    return pa.array(
        [names[value] if 0 <= value < len(names) else str(value) for value in values.tolist()], pa.string()
    )


def _features(X: zarr.Array[Any], columns: list[int], start: int, stop: int) -> NDArray[Any]:
    """Some features of rows, in the order of columns of a table."""
    chosen = np.empty((stop - start, len(columns)), X.dtype, order="F")
    row_bytes = max(X.shape[1] * np.dtype(X.dtype).itemsize, 1)
    chunk_rows = zarr_arrays.chunk_rows(X)
    step = max(HELD_BYTES // row_bytes // chunk_rows, 1) * chunk_rows
    for at in range(start, stop, step):
        end = min(at + step, stop)
        chosen[at - start : end - start] = zarr_arrays.read_rows(X, at, end)[:, columns]
    return chosen


def find_columns(
    x: Address, n_rows: int, data: str | None, names: Sequence[str], *, elsewhere: bool = False, of: str = ""
) -> Beside:
    """Columns of a data set by their names: all columns of a table; else features of X, the target, or
    one-dimensional arrays next to X.

    x          address of the scored rows, of which there are `n_rows`
    data       address of the data set; None: the scored one
    elsewhere  whether the caller takes columns of other data sets, too: for messages
    of         the run whose task asks: its input does not change

    Raises DataError if there is no such column, or its number of rows differs from the scored ones.
    """
    where = data or str(x)
    grows = is_scored(x, data)  # since it was scored
    table = _table(x, data, of)
    if table is not None:
        return _cells(table, n_rows, where, names, elsewhere=elsewhere, grows=grows)
    group, X = _opened(x, data)
    arrays: dict[str, zarr.Array[Any]] = {}
    features: dict[str, int] = {}
    known = () if X is None else feature_names(X) or ()
    schema = None if X is None else schema_of_given(X)
    of_group = {} if group is None else dict(zarr_arrays.arrays_of(group))
    for name in names:
        stored = _array_of(name, schema)
        if stored in of_group and of_group[stored].ndim == 1:
            arrays[name] = of_group[stored]
        elif name in known:
            features[name] = known.index(name)
        else:
            there = [*(n for n, array in of_group.items() if array.ndim == 1), *known]
            raise _unknown(name, where, there, elsewhere=elsewhere)
    asked = [*arrays.items(), *([("X", X)] if X is not None and features else [])]
    for name, array in asked:
        _check_rows(n_rows, where, name, array.shape[0], grows=grows)
        stored_chunks.check_complete(zarr_arrays.address_of(array), array)
    columns = Beside(where, tuple(names), arrays, X if features else None, features, schema)
    columns.check_features()
    return columns


def _array_of(name: str, schema: Schema | None) -> str:
    """The array of a column of an import: y for the target; none for a feature that is called y."""
    if schema is not None and name == schema.target:
        return TARGET
    is_feature = schema is not None and any(column.name == name for column in schema.sources)
    return "" if name == TARGET and is_feature else name


def _table(x: Address, data: str | None, of: str) -> TableReader | None:
    """The reader of a data set that is a table: the one of the run, if that is scored."""
    if is_scored(x, data):
        store = computed(open_array(x, of=of)) if isinstance(x, TableAddress) else None
        return store.reader if isinstance(store, EncodedTable) else None
    return open_cells(str(data)) if is_read_in_place(str(data)) else None


def _cells(
    table: TableReader, n_rows: int, where: str, names: Sequence[str], *, elsewhere: bool, grows: bool
) -> Beside:
    types = table.table.types
    foreign = table.table.foreign
    for name in names:
        if name not in types:
            raise _unknown(name, where, list(types), elsewhere=elsewhere)
        if name in foreign or cell_type(types[name]) is None:
            raise DataError(
                f"Cannot add column {name!r} of {where} to the scores: its type is"
                f" {foreign.get(name, types[name])}, not one of single values. Name another."
            )
        _check_rows(n_rows, where, name, table.table.n_rows, grows=grows)
    return Beside(where, tuple(names), {}, table=table)


def is_scored(x: Address, data: str | None) -> bool:
    """Whether a data set is the scored one."""
    return data is None or absolute(data) in (group_of(x), str(x), lasting(x))


def stored_ids(x: Address) -> tuple[str, ...]:
    """Names of the ids that import stored for the rows of X; empty if there are none."""
    group, _ = _opened(x, None)
    names = None if group is None else group.attrs.get(IDS_ATTRIBUTE)
    return texts(names) or ()


def _opened(x: Address, data: str | None) -> tuple[zarr.Group | None, zarr.Array[Any] | None]:
    """The group of a data set and its X, if they exist."""
    if data is None:
        X = open_array(x)
        try:
            node = open_node(group_of(x))
        except DataError:  # an array outside of a group
            return None, X
        return (node if isinstance(node, zarr.Group) else None), X
    node = open_node(data)
    if isinstance(node, zarr.Array):
        return None, node
    try:
        return node, open_array(zarr_arrays.find_array(data, "X"))
    except DataError:
        return node, None


def _unknown(name: str, where: str, there: list[str], *, elsewhere: bool) -> DataError:
    near = difflib.get_close_matches(name, there, 1)
    if elsewhere and (Path(name).exists() or "/" in name):
        do = f"Write {name}:NAME for a column of that data set."
    elif near:
        do = f"Did you mean {near[0]!r}?"
    else:
        do = f"Name one of {listed(there)}." if there else "It has none with a name."
    return DataError(
        f"Cannot add column {name!r} to the scores: {where} has no one-dimensional array and no"
        f" feature of that name. {do}"
    )


def _check_rows(n_rows: int, where: str, name: str, n: int, *, grows: bool) -> None:
    if n < n_rows or (n > n_rows and not grows):
        raise DataError(
            f"Cannot add {name} of {where} to {n_rows:,} scores: it has {n:,} rows. Name the data"
            " set that was scored."
        )
