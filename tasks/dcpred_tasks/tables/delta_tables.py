"""Delta tables: the Parquet files of one version, by the log of the table.

The address of a version is that of its file in the log, `TABLE/_delta_log/00000000000000000012.json`. A run
is planned with it: a version keeps its rows, whatever is written to the table meanwhile.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.storage.addresses import (
    DELTA_LOG,
    DELTA_VERSION,
    Options,
    below,
    current_options,
    delta_options,
    is_remote,
    local_path,
)
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.table_files import TableFile, list_files, local_file
from dcpred_tasks.tables.table_formats import DELTA, has_format


def is_delta(address: str | Path) -> bool:
    """Whether an address is that of a Delta table, also of one with a damaged log, or of a version."""
    path = local_path(address).rstrip("/")
    if DELTA_VERSION.search(path):
        return True
    return has_format(path, DELTA)


def pinned(address: str) -> str:
    """The address of the latest version of a table; a version stays as it is. Raises DataError."""
    path = address.rstrip("/")
    if DELTA_VERSION.search(path):
        return path
    version = _opened(path, None, current_options() if is_remote(path) else ()).version()
    return below(path, DELTA_LOG, f"{version:020d}.json")


def files_of_table(address: str) -> tuple[list[TableFile], Any]:
    """The files of a table, and its schema in Arrow where a log states it, else None. Raises DataError."""

    def read() -> tuple[list[TableFile], Any]:
        return delta_files(pinned(address)) if is_delta(address) else (list_files(address), None)

    return once(LISTING, (address, current_options()), read)


def delta_files(address: str) -> tuple[list[TableFile], Any]:
    """The files of a version, the oldest first, and its schema in Arrow. Raises DataError."""
    found = DELTA_VERSION.search(address)
    assert found is not None
    table, version = address[: found.start()], int(found[1])
    files, schema = _files(table, version, current_options() if is_remote(table) else ())
    return [_present(file, table, version) for file in files], schema


def _opened(table: str, version: int | None, options: Options) -> Any:
    try:
        library = import_module("deltalake")
    except ImportError:
        raise SettingsError(
            f"Cannot read {table}: it is a Delta table, and the package deltalake is missing. Install"
            " dcpred[delta]."
        ) from None
    with _library_errors(table, version):
        return library.DeltaTable(table, version=version, storage_options=delta_options(table, options))


@contextmanager
def _library_errors(table: str, version: int | None) -> Iterator[None]:
    """Translate errors of the library, which have no common class: a panic of Rust is no Exception."""
    try:
        yield
    except DataError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        line = " ".join(str(error).split())[:120]
        what = "" if version is None else f" version {version} of"
        raise DataError(
            f"Cannot read{what} the Delta table {table}: {line}. Check its _delta_log, or name another"
            " version."
        ) from None


@lru_cache(maxsize=8)
def _files(table: str, version: int, options: Options) -> tuple[tuple[TableFile, ...], Any]:
    opened = _opened(table, version, options)
    with _library_errors(table, version):
        _check_features(table, version, opened)
        added = pa.table(opened.get_add_actions(flatten=True))
        schema = pa.schema(opened.schema().to_arrow())
    partitions = {
        name.removeprefix("partition."): added[name].to_pylist()
        for name in added.column_names
        if name.startswith("partition.")
    }
    files = []
    # By time: rows that are appended come last, and a refresh reuses the scores of the others.
    for i in np.lexsort([added["path"].to_numpy(), added["modification_time"].to_numpy()]).tolist():
        name = unquote(added["path"][i].as_py())
        values = tuple((column, held[i]) for column, held in partitions.items())
        files.append(TableFile(name, below(table, name), added["size_bytes"][i].as_py(), "", values))
    return tuple(files), schema


def _check_features(table: str, version: int, opened: Any) -> None:
    """Raise DataError for a table whose rows are not simply those of its files."""
    configuration: Mapping[str, str] = opened.metadata().configuration
    what = ""
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        what = "its files name columns otherwise (column mapping)"
    elif "deletionVectors" in (opened.protocol().reader_features or ()) and any(
        len(batch) for batch in pa.RecordBatchReader.from_stream(opened.deletion_vectors())
    ):
        what = "rows of its files are deleted by deletion vectors"
    if what:
        raise DataError(
            f"Cannot read version {version} of the Delta table {table}: {what}. Rewrite the table without"
            " them, or write its rows as Parquet."
        )


def _present(file: TableFile, table: str, version: int) -> TableFile:
    """The file with the tag of its store. Raises DataError where it was removed."""
    gone = DataError(
        f"Cannot read version {version} of the Delta table {table}: its file {file.name} was removed, for"
        " example by VACUUM. Name a later version."
    )
    if not is_remote(table):
        if not os.path.exists(file.address):
            raise gone
        return replace(local_file(file.name, file.address), values=file.values)
    folder, _, name = file.address.rpartition("/")
    entry = open_place(folder).listing().get(name)
    if entry is None:
        raise gone
    return replace(file, size=entry.size, tag=entry.tag)
