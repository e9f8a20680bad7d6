"""Write a `Table` (table.py) as arrays of a Zarr group, chunk by chunk."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.not_finite import NotFinite, NotFiniteSurvey
from dcpred.datasets.repeats import Repeats, hashes_of_values
from dcpred.datasets.table import Batch, Table
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.zarr_arrays import DATA_DIMENSIONS, create_array

CHUNK_BYTES = 8 * 2**20  # bytes of a chunk of X, before compression
CHUNK_MULTIPLE = 1024  # rows: longer chunks are a multiple of it


def default_chunk_rows(n_features: int, itemsize: int) -> int:
    """Rows in about 8 MiB; multiples of 1,024 if they are more."""
    rows = max(CHUNK_BYTES // (n_features * itemsize), 1)
    return rows if rows < CHUNK_MULTIPLE else rows // CHUNK_MULTIPLE * CHUNK_MULTIPLE


def write_table(
    table: Table,
    group: zarr.Group,
    source: str,
    chunk_rows: int,
    progress: Callable[[int, int | None], None] | None,
) -> tuple[NotFinite, dict[str, int]]:
    """Write all chunks of X, y and ids; returns the rows that are not finite, and about how many rows repeat
    an id of an earlier row, by column.

    source    name of the table in messages
    progress  called with (rows written, rows in all)
    """
    n = table.n_samples
    X = _new_array(group, "X", (n, table.n_features), table.dtype, chunk_rows, "feature_names", table.names)
    arrays = {
        name: _new_array(group, name, (n,), dtype, chunk_rows, "", None) for name, dtype in table.ids.items()
    }
    y = None
    if table.target_dtype is not None:
        y = _new_array(group, "y", (n,), table.target_dtype, chunk_rows, "labels", table.labels)
    survey, done = NotFiniteSurvey(table.n_features, table.names), 0
    repeats = {name: Repeats() for name in arrays}
    for rows, targets, ids in _chunks(table, chunk_rows):
        start, done = done, done + len(rows)
        if done > n:
            break
        X[start:done] = rows
        if y is not None and targets is not None:
            y[start:done] = targets
        for name, values in ids.items():
            arrays[name][start:done] = values
            repeats[name].add(hashes_of_values(values))
        survey.add(start, rows, targets)
        if progress is not None:
            progress(done, n)
    if done != n:
        raise DataError(
            f"Cannot import {source}: it changed after the first pass, which found {n:,} rows. Import it when"
            " nothing writes to it."
        )
    return survey.found(), {name: one.repeated() for name, one in repeats.items()}


def _new_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    chunk_rows: int,
    attribute: str,
    strings: tuple[str, ...] | None,
) -> zarr.Array[Any]:
    attributes = None if strings is None else {attribute: list(strings)}
    names = DATA_DIMENSIONS[: len(shape)]
    fill_value = _fill_value(dtype)
    return create_array(
        group, name, shape, dtype, chunk_rows, fill_value=fill_value, attributes=attributes, dimensions=names
    )


def _fill_value(dtype: Any) -> Any:
    """The value of a lost chunk: for floats it must not look like data."""
    if dtype is str:
        return ""
    return np.nan if dtype.kind == "f" else dtype.type(0)


def _chunks(table: Table, chunk_rows: int) -> Iterator[Batch]:
    """Rows in chunks of `chunk_rows`, the last one shorter; each is overwritten by the next."""
    buffer = _buffer(table, chunk_rows)
    held = 0
    for batch in table.batches(chunk_rows):
        given, first = _columns(batch), 0
        while first < len(batch.X):
            n = min(chunk_rows - held, len(batch.X) - first)
            for name, values in given.items():
                buffer[name][held : held + n] = values[first : first + n]
            held, first = held + n, first + n
            if held == chunk_rows:
                yield _batch(buffer, held)
                held = 0
    if held:
        yield _batch(buffer, held)


Named = dict[tuple[str, str], NDArray[Any]]  # arrays by kind, X, y or id, and by name


def _buffer(table: Table, chunk_rows: int) -> Named:
    buffer: Named = {("X", ""): np.empty((chunk_rows, table.n_features), table.dtype)}
    if table.target_dtype is not None:
        buffer["y", ""] = np.empty(chunk_rows, table.target_dtype)
    for name, dtype in table.ids.items():
        buffer["id", name] = np.empty(chunk_rows, np.dtypes.StringDType() if dtype is str else dtype)
    return buffer


def _columns(batch: Batch) -> Named:
    y = {} if batch.y is None else {("y", ""): batch.y}
    return {("X", ""): batch.X, **y, **{("id", name): values for name, values in batch.ids.items()}}


def _batch(buffer: Named, n: int) -> Batch:
    y = buffer.get(("y", ""))
    ids = {name: values[:n] for (kind, name), values in buffer.items() if kind == "id"}
    return Batch(buffer["X", ""][:n], None if y is None else y[:n], ids)
