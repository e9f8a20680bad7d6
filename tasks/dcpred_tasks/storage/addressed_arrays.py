"""Arrays at an address: those of Zarr, and columns of tables, which are encoded while they are read."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import StorePath

from dcpred_tasks.storage.addresses import Address, Options, TableAddress, current_options
from dcpred_tasks.storage.zarr_arrays import (
    check_plain,
    open_stored_array,
    open_stored_group,
    open_stored_node,
    opening,
    sound,
)


def open_array(address: Address | Path, of: str = "") -> zarr.Array[Any]:
    """An existing array, read-only, whose stored values are its values. Raises DataError for packed ones.

    of  the run whose task opens it: its arrays do not change, and a process reads their metadata once
    """
    if not isinstance(address, TableAddress):
        return open_stored_array(address, of)
    with opening(str(address), "array"):
        if of:
            return _table_of_run(address, of, current_options())
        array = sound(zarr.open_array(_store(address), mode="r"))
        check_plain(array)
        return array


def open_group(address: Address | Path) -> zarr.Group:
    """An existing group, read-only."""
    if not isinstance(address, TableAddress):
        return open_stored_group(address)
    with opening(str(address), "group"):
        return sound(zarr.open_group(_store(address), mode="r", use_consolidated=False))


def open_node(address: Address | Path) -> zarr.Group | zarr.Array[Any]:
    """An existing group or array, read-only."""
    if not isinstance(address, TableAddress):
        return open_stored_node(address)
    with opening(str(address), "group"):
        return sound(zarr.open(_store(address), mode="r", use_consolidated=False))


def _store(table: TableAddress) -> StorePath:
    """The store and path of what a table holds."""
    from dcpred_tasks.tables.encoded_rows import open_table

    return StorePath(open_table(table), table.name)


@lru_cache(maxsize=2)  # Each keeps decoded rows.
def _table_of_run(table: TableAddress, of: str, options: Options) -> zarr.Array[Any]:
    return sound(zarr.open_array(_store(table), mode="r"))
