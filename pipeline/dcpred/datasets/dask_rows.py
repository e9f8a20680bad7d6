"""Rows in Dask collections, Zarr arrays and memory: as arrays to train on or score, and written as Zarr."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.class_names import is_gap, plain_column
from dcpred.datasets.writing import new_data_set
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import (
    NUMBERS,
    WIDE,
    check_dense,
    check_exact,
    check_one_table,
    exact_block,
    exact_part,
    is_a,
    is_lazy,
    is_sparse,
    is_unread,
    plain_block,
    unmasked_list,
)
from dcpred_tasks.model.class_codes import class_values, joined_classes
from dcpred_tasks.model.feature_names import ATTRIBUTE, Names, feature_names, in_training_order
from dcpred_tasks.schema.frames import is_frame, is_numeric
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.zarr_arrays import plain_text, stored_address
from dcpred_tasks.task_bodies.evaluate_block import label_numbers, labels_of, part_values

COPY_BYTES = 16 * 2**20


def write_data(
    X: Any,
    y: Any,
    weight: Any,
    address: str,
    trained: Sequence[str] | None,
    client: Any,
    *,
    unlabelled: bool = False,
) -> set[str]:
    """Write arrays as X, y and weight of the new data set at an address, but those that are stored. Where
    one is already, it has to hold the same values. Returns the names of its arrays.

    trained     names of features, in whose order those of X are stored; None: as they are
    client      a distributed.Client that computes Dask collections; None: the current one
    unlabelled  whether rows in memory may lack a target, which is then stored as NaN

    Raises DataError for what is no matrix of numbers, and where the address holds other data.
    """
    if (is_frame(X) and not is_numeric(X)) or needs_schema(X):
        raise DataError(
            "Cannot use data: a column holds text, dates or categories. Write it by dcpred.import_data, with"
            " target=NAME for rows to train on or like=MODEL for others, and pass that path."
        )
    if is_sparse(X):
        check_dense(X)
        X = X.toarray()
    with dask.config.set(scheduler=client) if client is not None else nullcontext():
        numbered = numbered_or_missing if unlabelled else numbered_labels
        y, classes = (None, None) if y is None else numbered(y)
        X = rows_to_score(X, trained)
        names = feature_names(X) or trained
        X, y, weight, more = training_data(X, y, weight)
        names = names or more
        every = {"X": X, "y": y, "weight": weight}
        given = {name: a for name, a in every.items() if a is not None and stored_address(a) is None}
        place = open_place(address)
        if not place.is_there():
            attributes = {
                "X": None if names is None else {ATTRIBUTE: list(names)},
                "y": None if classes is None else {"labels": [str(label) for label in classes]},
            }
            with new_data_set(place, {}) as group:
                for name, array in given.items():
                    _write(array, name, group, attributes.get(name))
            return set(given)
        for name, array in given.items():
            _check_same(array, open_array(zarr_arrays.find_array(address, name)), name, address)
    return set(given)


def address_of_rows(
    array: Any, name: str, group: zarr.Group, folder: Path, attributes: dict[str, Any] | None = None
) -> str:
    if (address := stored_address(array)) is not None:
        return address
    _write(array, name, group, attributes)
    return f"{folder}/data.zarr/{name}"


def _write(array: Any, name: str, group: zarr.Group, attributes: dict[str, Any] | None = None) -> None:
    """Write an array as `name` of a group, block by block."""
    array = array if isinstance(array, da.Array) else _sized(array)
    if np.isnan(array.shape).any():
        raise DataError(
            f"Cannot use {name}: it is a Dask array of unknown length. Call its compute_chunk_sizes() first."
        )
    if array.ndim not in (1, 2) or array.dtype.kind in "cOSUTV":
        raise DataError(
            f"Cannot use {name}: it has shape {array.shape} and dtype {array.dtype}. Pass numbers, one row"
            " for each sample, and columns of text as a Dask DataFrame or Series."
        )
    if name == "X" and 0 in array.shape:
        raise DataError(
            f"Cannot use X: it has {array.shape[0]:,} rows and {array.shape[1]:,} features. Pass at least one"
            " of each."
        )
    source = array if isinstance(array, da.Array) else da.from_array(array)
    row_bytes = max(source.dtype.itemsize * int(np.prod(source.shape[1:])), 1)
    rows = min(max(COPY_BYTES // row_bytes, 1), max(source.shape[0], 1))
    names = zarr_arrays.DATA_DIMENSIONS[: source.ndim]
    shape, dtype = source.shape, source.dtype
    target = zarr_arrays.create_array(
        group, name, shape, dtype, rows, attributes=attributes, dimensions=names
    )
    whole_rows = source.rechunk((rows, *[-1] * (source.ndim - 1)))
    da.store(whole_rows, target, lock=False)


def _check_same(array: Any, stored: zarr.Array[Any], name: str, address: str) -> None:
    """Raise DataError unless an array has the stored values."""
    rows = array if isinstance(array, da.Array) else da.from_array(_sized(array))
    before = da.from_array(stored)
    same = rows.shape == before.shape and rows.dtype == before.dtype
    if same:
        equal = rows == before
        same = bool((equal | ((rows != rows) & (before != before))).all().compute())
    if not same:
        raise DataError(
            f"Cannot use data: {address} holds another {name}, from an earlier call with this output. Remove"
            " it, or choose another output."
        )


def _sized(array: Any) -> Any:
    return array if isinstance(array, zarr.Array) else np.asarray(array)


def is_out_of_core(X: Any) -> bool:
    return isinstance(X, da.Array | zarr.Array)


def training_data(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Names | None]:
    """X, y and sample_weight as what estimators train on, in memory or Dask and Zarr arrays of known length,
    and the names of features. Raises DataError for what is neither, and where y or sample_weight is lazy and
    X in memory.
    """
    given = {"X": X, "y": y, "sample_weight": sample_weight}
    for name, data in given.items():
        check_kind(data, name)
        if is_lazy(data) and not (is_lazy(X) or isinstance(X, zarr.Array)):
            kind = "an xarray.DataArray that is not yet read" if is_unread(data) else "a Dask collection"
            raise DataError(
                f"Cannot use {name}: it is {kind}, but X is in memory. Pass X as a Dask collection or Zarr"
                f" array, too, or {name}.compute()."
            )
    names = feature_names(X)  # It also refuses columns in memory whose names repeat.
    taken = [_array(data, name, lengths=True) for name, data in given.items()]
    return taken[0], taken[1], taken[2], names if is_out_of_core(taken[0]) else None


def rows_to_score(X: Any, trained: Sequence[str] | None) -> Any:
    """X as what estimators predict: in memory, or a Dask or Zarr array, with features in the order of
    training. Nothing is computed. Raises DataError for other Dask collections, and for names that are not
    those of training.
    """
    check_kind(X, "X")
    return _array(in_training_order(X, trained), "X", lengths=False)


def check_kind(data: Any, name: str) -> None:
    """Raise DataError for what is not one table, and for Dask collections that are no arrays."""
    check_one_table(data, name)
    stored_chunks.check_given(data, name)
    kinds = ("xarray.DataArray", "dask.dataframe.DataFrame", "dask.dataframe.Series")
    if is_lazy(data) and not isinstance(data, da.Array) and not any(is_a(data, kind) for kind in kinds):
        raise DataError(
            f"Cannot use {name}: it is a Dask {type(data).__name__}, whose rows and columns are unknown"
            " before it is computed. Pass a Dask array or DataFrame; dask.array.from_delayed makes one."
        )


def _array(data: Any, name: str, *, lengths: bool) -> Any:
    """Dask DataFrames, Series and xarray.DataArrays as arrays, lazy ones lazily; other data as they are. With
    `lengths` the rows of frames are counted, which reads them once. Raises DataError for an integer in X that
    float64 would round, in lazy blocks when they are computed.
    """
    if is_a(data, "xarray.DataArray"):
        if is_lazy(data):
            return _array(_chunked(data).data, name, lengths=lengths)
        names = feature_names(data) if name == "X" else None
        if names is None or data.shape[1:] != (len(names),):
            data = np.asarray(data)
        else:
            data = data.to_pandas().set_axis(list(names), axis=1)
    if is_a(data, "dask.dataframe.DataFrame"):
        dtypes = [(f"column {column!r} of {name}", dtype) for column, dtype in data.dtypes.items()]
        dtype = _common_dtype(dtypes, masked=np.float64)
        data = data.map_partitions(exact_part, meta=data._meta) if name == "X" else data
    elif is_a(data, "dask.dataframe.Series"):
        dtype = _common_dtype([(name, data.dtype)], masked=getattr(data.dtype, "numpy_dtype", None))
        if lengths and not isinstance(data.dtype, np.dtype) and data.isna().any().compute():
            raise DataError(
                f"Cannot use {name}: it has missing values. Remove those rows, or fill the values in."
            )
    elif isinstance(data, da.Array):  # its blocks may be masked or sparse
        block = exact_block if name == "X" else plain_block
        return data.map_blocks(block, dtype=_unmasked_dtype(data), meta=np.empty((0,) * data.ndim))
    else:
        return _exact(data, lengths=lengths) if name == "X" else data
    return _parts(data, np.dtype(dtype)) if lengths else data.astype(dtype).to_dask_array()


def _exact(X: Any, *, lengths: bool) -> Any:
    """X in memory or a Zarr array after `check_exact`; a lazy array of blocks that are checked later."""
    if not (isinstance(X, zarr.Array) and X.dtype.kind in "iu" and X.dtype.itemsize == WIDE):
        check_exact(X)
        return X
    blocks = da.from_array(X).rechunk({1: -1} if X.ndim > 1 else {})
    checked = blocks.map_blocks(exact_block, dtype=X.dtype, meta=np.empty((0,) * X.ndim, X.dtype))
    if not lengths:
        return checked
    checked.any().compute()
    return X


def _unmasked_dtype(data: da.Array) -> np.dtype[Any]:
    """The dtype of the blocks once masked cells are NaN, which integers do not have."""
    masked = isinstance(data._meta, np.ma.MaskedArray) and data.dtype.kind in "biu"
    return np.dtype(np.float64) if masked else data.dtype


def _parts(data: Any, dtype: np.dtype[Any]) -> da.Array:
    """A frame of Dask as an array, each part read once to count its rows (dask#12411)."""
    parts = data.to_delayed()
    lengths = dask.compute(*[dask.delayed(len)(part) for part in parts])
    width = () if is_a(data, "dask.dataframe.Series") else (len(data.columns),)
    blocks = [
        da.from_delayed(dask.delayed(part_values)(part, dtype), (n, *width), dtype)
        for part, n in zip(parts, lengths, strict=True)
    ]
    return da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def _chunked(data: Any) -> Any:
    """A lazy xarray.DataArray as one of Dask, in the chunks of its storage if it knows them."""
    if not is_unread(data):
        return data
    stored = data.encoding.get("preferred_chunks", {})
    other = -1 if data.dtype.hasobject else "auto"  # Dask does not know the size of objects.
    return data.chunk({dim: stored.get(dim, other) for dim in data.dims})


def _common_dtype(dtypes: list[tuple[str, Any]], masked: Any) -> np.dtype[Any]:
    """The dtype of all columns; `masked` if one may hold pandas.NA. Raises DataError otherwise."""
    for name, dtype in dtypes:
        if dtype.kind not in "biuf":
            raise DataError(
                f"Cannot use {name}: its dtype {dtype} is not one of numbers. Encode it as numbers first."
            )
    plain = all(isinstance(dtype, np.dtype) for _, dtype in dtypes)
    common: np.dtype[Any] = (
        np.result_type(np.bool_, *(dtype for _, dtype in dtypes)) if plain else np.dtype(masked)
    )
    return common


def needs_schema(X: Any) -> bool:
    """Whether this is a DataFrame of Dask with columns of other things than numbers and booleans."""
    return is_a(X, "dask.dataframe.DataFrame") and not all(dtype.kind in NUMBERS for dtype in X.dtypes)


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
    of_parts = in_parallel(labels_of, [(part,) for part in parts])
    classes = joined_classes([labels for labels, _ in of_parts])
    blocks = [
        da.from_delayed(dask.delayed(label_numbers)(part, classes), (n_rows,), np.int64)
        for part, (_, n_rows) in zip(parts, of_parts, strict=True)
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


def in_parallel(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dask.compute(*[dask.delayed(body)(*each) for each in arguments]))
