"""Sources of tables: what an address names, which version of it, and which files hold its rows.

Import, training, scoring and refresh find the files of a table here alone. A further format is a class in a
file of its own, and an item of SOURCES.
"""

import os
import shlex
from pathlib import Path, PurePosixPath

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import current_options, is_remote, local_path
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.tables.delta_tables import DeltaTable
from dcpred_tasks.tables.table_files import COMPRESSED, CsvTable, FileTable, StreamFile
from dcpred_tasks.tables.table_source import TableSource

SOURCES: tuple[type[TableSource], ...] = (
    CsvTable,  # known by its name alone: no store is asked whether it is a folder
    DeltaTable,
    FileTable,
    StreamFile,
)  # the first that fits reads a table


# Endings of other files that an import reads.
SVMLIGHT = (".svm", ".libsvm", ".svmlight")
HDF5, NETCDF = (".h5", ".hdf5", ".hdf", ".he5", ".h5ad"), (".nc", ".nc4", ".cdf", ".netcdf")
MATRICES = (".npy", ".npz", *SVMLIGHT, *HDF5, *NETCDF)


def kind_of(address: str | Path) -> type[TableSource] | None:
    """The class of the table at an address; None for anything else."""
    path = local_path(address)

    def find() -> type[TableSource] | None:
        return next((kind for kind in SOURCES if kind.is_at(path)), None)

    if path.lower().rstrip("/").endswith(".zarr"):
        return None
    return once(LISTING, ("kind", path, current_options()), find)


def is_table(address: str | Path) -> bool:
    """Whether an address is of a table with named columns."""
    return kind_of(address) is not None


def is_read_in_place(address: str | Path) -> bool:
    """Whether an address is of a table that needs no import."""
    kind = kind_of(address)
    return kind is not None and kind.in_place


def open_source(address: str) -> TableSource:
    """The table at an address. Raises DataError."""

    def read() -> TableSource:
        return (kind_of(address) or FileTable).open(address)

    return once(LISTING, ("source", address, current_options()), read)


# -- Imports of what is no data set --------------------------------------------------------------------------


def is_importable(address: str | Path) -> bool:
    """Whether `dcpred import` reads what is at an address; on a store, by its ending."""
    path = local_path(address)
    is_named = ending_of(path) in (*MATRICES, *(ending for kind in SOURCES for ending in kind.endings))
    if is_remote(path):
        return is_named
    return is_table(path) if os.path.isdir(path) else is_named and os.path.isfile(path)


def refuse_table(path: str) -> None:
    """Raise DataError for a path that `dcpred import` reads, and for another file."""
    if is_importable(path):
        raise import_first(path, "" if ending_of(path) in MATRICES else "--target COLUMN")
    if not is_remote(path) and os.path.isfile(path):
        raise DataError(
            f"Cannot read {path} as a data set: it is a file whose name has no ending that `dcpred import`"
            " reads. If it is a table, save it as .csv or .parquet and import that"
        )


def import_first(path: str, options: str) -> DataError:
    """The refusal of a table in place of a data set, with the command that imports it."""
    command, dest = import_command(path, options)
    return DataError(
        f"Cannot read {path} as a data set: it is a table. Import it first with `{command}`, then pass {dest}"
    )


def import_command(path: str, options: str) -> tuple[str, str]:
    """The command that imports a table, and the new data set that it writes."""
    path = path.rstrip("/")
    stem = path[: path.lower().rindex(ending_of(path))] if ending_of(path) else path
    n, dest = 1, f"{stem}.zarr"
    while not is_remote(path) and os.path.lexists(dest):
        n, dest = n + 1, f"{stem}-{n + 1}.zarr"
    return f"dcpred import {shlex.quote(path)} {shlex.quote(dest)} {options}".rstrip(), dest


def ending_of(path: str | Path) -> str:
    """The ending of the name of a file that states its format: that before the one of a compression."""
    name = PurePosixPath(str(path).lower().rstrip("/").rpartition("/")[2])
    return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix
