"""What kind of data a caller hands in, and frames as matrices, without an import of the library that they
come from.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.process import memory_bytes

GIB = 2**30
STRIP_BYTES = 64 * 2**20  # bytes of sparse rows that are dense at once
LABELS = "labels"  # attribute of a target: the names of the classes 0, 1, …
NUMBERS = "biuf"  # kinds of the dtypes of real numbers and booleans


def is_a(data: Any, name: str) -> bool:
    """Whether `data` is of a class of another library, named as in "xarray.DataArray"."""
    library, _, class_name = name.rpartition(".")
    # Nobody has such data before the library was imported.
    found = getattr(sys.modules.get(library), class_name, None)
    return found is not None and isinstance(data, found)


def is_lazy(data: Any) -> bool:
    """Whether this is a Dask collection, or an xarray object that holds one or was opened and not yet
    read.
    """
    if isinstance(data, type) or not hasattr(data, "__dask_graph__"):
        return False
    if is_a(data, "xarray.DataArray") or is_a(data, "xarray.Dataset"):
        return data.__dask_graph__() is not None or is_unread(data)
    return True


def is_unread(data: Any) -> bool:
    """Whether this is an xarray object, without Dask, that reads some of its values from a file when they are
    asked for.
    """
    if is_a(data, "xarray.Dataset"):
        return any(is_unread(array) for array in data.data_vars.values())
    # An index is always in memory.
    if not is_a(data, "xarray.DataArray") or is_a(data.variable, "xarray.IndexVariable"):
        return False
    # There is no public name for this.
    return data.__dask_graph__() is None and not getattr(data.variable, "_in_memory", True)


def is_sparse(data: Any) -> bool:
    """Whether this is a sparse matrix or array of SciPy."""
    return is_a(data, "scipy.sparse.spmatrix") or is_a(data, "scipy.sparse.sparray")


def dense_strips(X: Any) -> Iterator[NDArray[Any]]:
    """The rows of a sparse matrix as dense ones, STRIP_BYTES at a time. One without rows gives an empty
    strip.
    """
    rows = X.tocsr()
    step = max(STRIP_BYTES // max(X.shape[1] * X.dtype.itemsize, 1), 1)
    for start in range(0, max(X.shape[0], 1), step):
        yield rows[start : start + step].toarray()


def check_dense(X: Any) -> None:
    """Raise DataError where a sparse matrix takes more than a quarter of this machine's memory when it is
    made dense: training keeps several such matrices.
    """
    size = X.shape[0] * X.shape[1] * max(X.dtype.itemsize, 8)
    most = memory_bytes() // 4
    if size > most:
        raise DataError(
            f"X is sparse, and its {X.shape[0]:,} rows of {X.shape[1]:,} features take {size / GIB:,.1f} GiB"
            f" when they are dense, more than the {most / GIB:,.1f} GiB that are a quarter of this machine's"
            " memory; choose or project features first, as sklearn.decomposition.TruncatedSVD does"
        )


def plain_numbers(X: Any) -> Any:
    """Lists with None among them as numbers with gaps, and frames of pandas whose columns are all sparse as
    dense ones, which scikit-learn leaves as they are or refuses; anything else as it is. Raises DataError as
    `check_dense` does.
    """
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        return array.astype(np.float64) if array.dtype.kind == "O" else X
    if is_a(X, "pandas.DataFrame") and X.shape[1] and all(hasattr(dtype, "fill_value") for dtype in X.dtypes):
        check_dense(X.sparse.to_coo())
        return X.sparse.to_dense()
    return X


def check_one_table(data: Any, name: str) -> None:
    """Raise DataError for what is not one array or frame: a Dataset of xarray, and a polars query that was
    not run.
    """
    if is_a(data, "xarray.Dataset"):
        raise DataError(
            f"{name} is an xarray.Dataset, which holds several arrays; pass one of them, as"
            f" {name}['features']"
        )
    if is_a(data, "polars.LazyFrame"):
        raise DataError(
            f"{name} is a polars LazyFrame, which is read only when it is collected; pass {name}.collect()"
        )


def as_matrix(X: Any) -> NDArray[Any]:
    """X as a NumPy array. A frame whose columns are numbers of several kinds, or hold pandas.NA, becomes
    float64 with NaN.

    Raises DataError for a column of such a frame that does not hold numbers.
    """
    array = np.asarray(X)
    if array.dtype.kind in NUMBERS or array.ndim != 2:
        return array
    columns = list(zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False))
    # Only frames made as those of pandas have columns of NumPy's kinds.
    if not columns or not all(hasattr(dtype, "kind") for _, dtype in columns):
        return array
    for column, dtype in columns:
        if dtype.kind not in NUMBERS:
            raise DataError(
                f"column {column!r} of X has dtype {dtype}, which is not numbers; encode it as numbers first"
            )
    return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
