"""What kind of data a caller hands in, told without an import of the library that it comes from."""

import sys
from typing import Any


def is_a(data: Any, name: str) -> bool:
    """Whether `data` is of a class of another library, named as in "xarray.DataArray"."""
    library, _, class_name = name.rpartition(".")
    found = getattr(sys.modules.get(library), class_name, None)  # nobody has such data before the library was imported
    return found is not None and isinstance(data, found)


def is_lazy(data: Any) -> bool:
    """Whether this is a Dask collection, or an xarray object that holds one or was opened and not yet read."""
    if isinstance(data, type) or not hasattr(data, "__dask_graph__"):
        return False
    if is_a(data, "xarray.DataArray") or is_a(data, "xarray.Dataset"):
        return data.__dask_graph__() is not None or is_unread(data)
    return True


def is_unread(data: Any) -> bool:
    """Whether this is an xarray object, without Dask, that reads some of its values from a file when they are asked for."""
    if is_a(data, "xarray.Dataset"):
        return any(is_unread(array) for array in data.data_vars.values())
    if not is_a(data, "xarray.DataArray") or is_a(data.variable, "xarray.IndexVariable"):  # an index is always in memory
        return False
    return data.__dask_graph__() is None and not getattr(data.variable, "_in_memory", True)  # there is no public name for it
