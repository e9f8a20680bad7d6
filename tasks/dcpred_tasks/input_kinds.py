"""What kind of data a caller hands in, and frames as matrices, without an import of the library that they
come from.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError

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
