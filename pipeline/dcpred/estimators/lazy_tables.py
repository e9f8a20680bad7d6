"""DataFrames of Dask with text, categories, booleans and dates: workers survey and encode their parts."""

from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.estimators.class_names import is_gap, plain_column
from dcpred.estimators.tables import learn
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.input_kinds import NUMBERS, check_one_table, is_a, is_lazy, is_unread, unmasked_list
from dcpred_tasks.model.class_codes import class_values, joined_classes
from dcpred_tasks.schema.frames import check_frame
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.task_bodies.evaluate_block import label_numbers, labels_of
from dcpred_tasks.task_bodies.predict_block import encoded_block


def needs_schema(X: Any) -> bool:
    """Whether this is a DataFrame of Dask with columns of other things than numbers and booleans."""
    return is_a(X, "dask.dataframe.DataFrame") and not all(dtype.kind in NUMBERS for dtype in X.dtypes)


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, da.Array]:
    """Return the schema of a DataFrame and its encoded rows, lazily. Every part is read once to survey it."""
    numeric = [name for name, dtype in zip(X.columns, X.dtypes, strict=True) if dtype.kind in "iuf"]
    parts = X.to_delayed()
    schema, n_rows = learn(parts, list(X.columns), numeric, named, _in_parallel)
    sent = dask.delayed(schema, pure=False)
    blocks = [
        da.from_delayed(dask.delayed(encoded_block)(part, sent), (n, len(schema.features)), ACC_DTYPE)
        for part, n in zip(parts, n_rows, strict=True)
    ]
    return schema, da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def numbered_labels(y: Any) -> tuple[Any, NDArray[Any] | None]:
    """A target beside lazy rows, of text, dates or objects, as class numbers, and the classes, ascending;
    numbers as they are, and None. Every part of a lazy one is read once. Raises DataError for a label that is
    missing or no class.
    """
    column = _column_of_labels(y)
    if column is None:
        return y, None
    if isinstance(column, np.ndarray):
        classes, numbers = np.unique(class_values(column), return_inverse=True)
        return numbers, np.array(classes.tolist(), str) if classes.dtype.kind == "O" else classes
    parts = column.to_delayed().ravel().tolist() if isinstance(column, da.Array) else column.to_delayed()
    found = _in_parallel(labels_of, [(part,) for part in parts])
    classes = joined_classes([labels for labels, _ in found])
    blocks = [
        da.from_delayed(dask.delayed(label_numbers)(part, classes), (n_rows,), np.int64)
        for part, (_, n_rows) in zip(parts, found, strict=True)
    ]
    return da.concatenate(blocks), classes


def numbered_or_missing(y: Any) -> tuple[Any, NDArray[Any] | None]:
    """The same of a target that some rows in memory lack: NaN."""
    values = None if is_lazy(y) or isinstance(y, zarr.Array) else np.asarray(unmasked_list(y))
    missing = None if values is None or values.ndim != 1 else is_gap(y, values)
    if values is None or missing is None or not missing.any():
        return numbered_labels(y)
    known, classes = numbered_labels(values[~missing])
    numbers = np.full(len(values), np.nan)
    numbers[~missing] = known
    return numbers, classes


def _column_of_labels(y: Any) -> Any:
    """A target that is no number as a Series or array of Dask, or in memory; None for numbers."""
    check_one_table(y, "y")
    if is_a(y, "xarray.DataArray"):
        y = y.chunk() if is_unread(y) else y.data
    if isinstance(y, zarr.Array):
        rows = da.from_array(y, chunks=y.chunks)
        # Zarr keeps text as bytes, too.
        y = rows.map_blocks(plain_text, "y", dtype=f"U{y.dtype.itemsize}") if y.dtype.kind == "S" else rows
    if isinstance(y, da.Array) or is_a(y, "dask.dataframe.Series"):
        return None if y.dtype.kind in NUMBERS else y
    if y is None or is_lazy(y):
        return None
    values = np.asarray(plain_column(y))
    return values if values.dtype.kind not in NUMBERS and values.ndim == 1 else None


def encoded(X: Any, schema: Schema) -> da.Array:
    """Return the encoded rows of a DataFrame, lazily. Raises DataError for columns of another schema."""
    check_frame(schema, X)
    sent = dask.delayed(schema, pure=False)
    rows = X.map_partitions(encoded_block, sent, uuid4().hex, meta=np.empty((0, 0)))
    return da.Array(rows.dask, rows.name, (rows.chunks[0], (len(schema.features),)), ACC_DTYPE)


def _in_parallel(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dask.compute(*[dask.delayed(body)(*each) for each in arguments]))
