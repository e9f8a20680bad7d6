"""Arrays at an address: those of Zarr, and columns of tables, which are encoded while they are read."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import StorePath

from dcpred_tasks.storage.addresses import Options, current_options, is_encoded, local_path, table_address
from dcpred_tasks.storage.zarr_arrays import (
    check_plain,
    open_stored_array,
    open_stored_group,
    open_stored_node,
    opening,
    sound,
)


def open_array(address: str | Path, of: str = "") -> zarr.Array[Any]:
    """An existing array, read-only, whose stored values are its values. Raises DataError for packed ones.

    of  the run whose task opens it: its arrays do not change, and a process reads their metadata once
    """
    path = local_path(address)
    if not is_encoded(path):
        return open_stored_array(path, of)
    with opening(path, "array"):
        if of:
            return _table_of_run(path, of, current_options())
        array = sound(zarr.open_array(_store(path), mode="r"))
        check_plain(array)
        return array


def open_group(address: str | Path) -> zarr.Group:
    """An existing group, read-only."""
    path = local_path(address)
    if not is_encoded(path):
        return open_stored_group(path)
    with opening(path, "group"):
        return sound(zarr.open_group(_store(path), mode="r", use_consolidated=False))


def open_node(address: str | Path) -> zarr.Group | zarr.Array[Any]:
    """An existing group or array, read-only."""
    path = local_path(address)
    if not is_encoded(path):
        return open_stored_node(path)
    with opening(path, "group"):
        return sound(zarr.open(_store(path), mode="r", use_consolidated=False))


def _store(path: str) -> StorePath:
    """The store and path of what a table holds."""
    from dcpred_tasks.tables.encoded_rows import open_table

    table = table_address(path)
    assert table is not None
    return StorePath(open_table(table), table.name)


@lru_cache(maxsize=2)  # Each keeps decoded rows.
def _table_of_run(path: str, of: str, options: Options) -> zarr.Array[Any]:
    return sound(zarr.open_array(_store(path), mode="r"))
