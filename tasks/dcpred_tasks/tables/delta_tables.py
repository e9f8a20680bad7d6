"""Delta tables: the Parquet files of one version, by the log of the table.

The address of a version is that of its file in the log, `TABLE/_delta_log/00000000000000000012.json`. A run
is planned with it: a version keeps its rows, whatever is written to the table meanwhile.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self
from urllib.parse import unquote

import numpy as np

from dcpred_tasks.errors import DataError, optional_package
from dcpred_tasks.storage.addresses import (
    DELTA_LOG,
    DELTA_VERSION,
    Options,
    below,
    current_options,
    delta_options,
    is_remote,
)
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.footers import TableFile, local_file
from dcpred_tasks.tables.table_formats import DELTA, has_format
from dcpred_tasks.tables.table_source import TableSource


@dataclass(frozen=True)
class DeltaTable(TableSource):
    """A version of a Delta table: a source (sources.py)."""

    address: str
    table: str
    version: int

    @classmethod
    def is_at(cls, address: str) -> bool:
        path = address.rstrip("/")
        return bool(DELTA_VERSION.search(path)) or has_format(path, DELTA)

    @classmethod
    def open(cls, address: str) -> Self:
        path = address.rstrip("/")
        if (stated := DELTA_VERSION.search(path)) is not None:
            return cls(path, path[: stated.start()], int(stated[1]))
        version = _opened(path, None, current_options() if is_remote(path) else ()).version()
        return cls(below(path, DELTA_LOG, f"{version:020d}.json"), path, version)

    @cached_property
    def schema(self) -> Any:
        return self._log[1]

    @cached_property
    def files(self) -> list[TableFile]:
        """The oldest first."""
        return [_present(file, self.table, self.version) for file in self._log[0]]

    @property
    def _log(self) -> tuple[tuple[TableFile, ...], Any]:
        return _files(self.table, self.version, current_options() if is_remote(self.table) else ())


def _opened(table: str, version: int | None, options: Options) -> Any:
    with optional_package(f"read the Delta table {table}", "delta"):
        import deltalake

    with _library_errors(table, version):
        return deltalake.DeltaTable(table, version=version, storage_options=delta_options(table, options))


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
    import pyarrow as pa

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
    import pyarrow as pa

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
