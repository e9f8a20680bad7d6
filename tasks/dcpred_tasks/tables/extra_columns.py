"""Columns of a data set beside its rows: ids for example, which tables put before the scores."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from dcpred_tasks.schema.column import DAY, LAST_DAY, Codes, Column, Date, TargetCodes
from dcpred_tasks.schema.schema import IDS_ATTRIBUTE, Schema
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import absolute, shown
from dcpred_tasks.tables.score_columns import texts

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


def find_columns(
    x: str, n_rows: int, data: str | None, names: Sequence[str], *, elsewhere: bool = False
) -> Beside:
    """Columns of a data set by their names: one-dimensional arrays next to X, or features of X.

    x          address of the scored rows, of which there are `n_rows`
    data       address of the data set; None: the scored one
    elsewhere  whether the caller takes columns of other data sets, too: for messages

    Raises DataError if there is no such column, or its number of rows differs from the scored ones.
    """
    group, X = _opened(x, data)
    where = data or shown(x)
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
            there = [*(n for n, array in of_group.items() if array.ndim == 1), *known]
            raise _unknown(name, where, there, elsewhere=elsewhere)
    grows = is_scored(x, data)  # since it was scored
    asked = [*arrays.items(), *([("X", X)] if X is not None and features else [])]
    for name, array in asked:
        _check_rows(n_rows, where, name, array, grows=grows)
        stored_chunks.check_complete(zarr_arrays.address_of(array), array)
    schema = None if X is None or not features else schema_of_given(X)
    return Beside(where, tuple(names), arrays, X if features else None, features, schema)


def is_scored(x: str, data: str | None) -> bool:
    """Whether a data set is the scored one."""
    return data is None or absolute(data) in (_folder(x), x)


def stored_ids(x: str) -> tuple[str, ...]:
    """Names of the ids that import stored for the rows of X; empty if there are none."""
    group, _ = _opened(x, None)
    names = None if group is None else group.attrs.get(IDS_ATTRIBUTE)
    return texts(names) or ()


def _opened(x: str, data: str | None) -> tuple[zarr.Group | None, zarr.Array[Any] | None]:
    """The group of a data set and its X, if they exist."""
    if data is None:
        X = zarr_arrays.open_array(x)
        try:
            node = zarr_arrays.open_any(_folder(x))
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


def _check_rows(n_rows: int, where: str, name: str, array: zarr.Array[Any], *, grows: bool) -> None:
    n = array.shape[0]
    if n < n_rows or (n > n_rows and not grows):
        raise DataError(
            f"Cannot add {name} of {where} to {n_rows:,} scores: it has {n:,} rows. Name the data"
            " set that was scored."
        )
