"""DataFrames of Dask with text, categories, booleans and dates: workers survey and encode their parts."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr

from dcpred.estimators.class_names import check_one_kind, plain_column
from dcpred.estimators.tables import learn
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.input_kinds import NUMBERS, check_one_table, is_a, is_lazy, is_unread
from dcpred_tasks.schema.frames import check_frame
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.task_bodies.frame_rows import label_numbers, labels_of
from dcpred_tasks.task_bodies.predict_block import encoded_block


def needs_schema(X: Any) -> bool:
    """Whether this is a DataFrame of Dask with columns of other things than numbers and booleans."""
    return is_a(X, "dask.dataframe.DataFrame") and not all(dtype.kind in NUMBERS for dtype in X.dtypes)


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, da.Array]:
    """What the columns of a DataFrame are, and its rows to train on, which are encoded when they are asked
    for. Every part is read once to survey it.
    """
    numeric = [name for name, dtype in zip(X.columns, X.dtypes, strict=True) if dtype.kind in "iuf"]
    parts = X.to_delayed()
    schema, n_rows = learn(parts, list(X.columns), numeric, named, _in_parallel)
    told = dask.delayed(schema, pure=False)
    blocks = [
        da.from_delayed(dask.delayed(encoded_block)(part, told), (n, len(schema.features)), ACC_DTYPE)
        for part, n in zip(parts, n_rows, strict=True)
    ]
    return schema, da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def numbered_labels(y: Any) -> tuple[Any, tuple[str, ...] | None]:
    """A target of text beside lazy rows as class numbers, and the names of the classes, sorted; anything else
    as it is, and None. Every part of a lazy one is read once. Raises DataError for a label that is missing or
    no text.
    """
    column = _text_column(y)
    if column is None:
        return y, None
    if isinstance(column, np.ndarray):
        check_one_kind(column)
        labels = labels_of(column)[0]
        return label_numbers(column, sorted(labels)), tuple(sorted(labels))
    parts = column.to_delayed().ravel().tolist() if isinstance(column, da.Array) else column.to_delayed()
    found = _in_parallel(labels_of, [(part,) for part in parts])
    labels = tuple(sorted({label for levels, _ in found for label in levels}))
    blocks = [
        da.from_delayed(dask.delayed(label_numbers)(part, labels), (n_rows,), np.int64)
        for part, (_, n_rows) in zip(parts, found, strict=True)
    ]
    return da.concatenate(blocks), labels


def _text_column(y: Any) -> Any:
    """A target of text as a Series or array of Dask, or an array in memory; None for any other target."""
    check_one_table(y, "y")
    if is_a(y, "xarray.DataArray"):
        y = y.chunk() if is_unread(y) else y.data
    if isinstance(y, zarr.Array):
        rows = da.from_array(y, chunks=y.chunks)
        # Zarr keeps text as bytes, too.
        y = rows.map_blocks(plain_text, "y", dtype=f"U{y.dtype.itemsize}") if y.dtype.kind == "S" else rows
    if isinstance(y, da.Array) or is_a(y, "dask.dataframe.Series"):
        return None if y.dtype.kind in NUMBERS + "mM" else y
    if y is None or is_lazy(y):
        return None
    values = np.asarray(plain_column(y))
    is_text = values.dtype.kind == "U" or any(isinstance(value, str) for value in values.flat)
    return values if is_text and values.ndim == 1 else None


def encoded(X: Any, schema: Schema) -> da.Array:
    """Rows of features of a DataFrame, which are encoded when they are asked for. Raises DataError for
    columns that are not those of the schema.
    """
    check_frame(schema, X)
    rows = X.map_partitions(encoded_block, dask.delayed(schema, pure=False), True, meta=np.empty((0, 0)))
    return da.Array(rows.dask, rows.name, (rows.chunks[0], (len(schema.features),)), ACC_DTYPE)


def _in_parallel(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dask.compute(*[dask.delayed(body)(*each) for each in arguments]))
