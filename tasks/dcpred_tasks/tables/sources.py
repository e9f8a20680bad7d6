"""Sources of tables: what an address names, which version of it, and which files hold its rows.

Import, training, scoring and refresh find the files of a table here alone. A further format is a class in a
file of its own, and an item of SOURCES.
"""

from pathlib import Path

from dcpred_tasks.storage.addresses import current_options, local_path
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.tables.delta_tables import DeltaTable
from dcpred_tasks.tables.table_files import FileTable, StreamFile
from dcpred_tasks.tables.table_source import TableSource

SOURCES: tuple[type[TableSource], ...] = (
    DeltaTable,
    FileTable,
    StreamFile,
)  # the first that fits reads a table


def kind_of(address: str | Path) -> type[TableSource] | None:
    """The class of the table at an address; None for anything else."""
    path = local_path(address)
    return next((kind for kind in SOURCES if kind.is_at(path)), None)


def open_source(address: str) -> TableSource:
    """The table at an address. Files that only an import reads are tables of one file. Raises DataError."""

    def read() -> TableSource:
        return (kind_of(address) or FileTable).open(address)

    return once(LISTING, ("source", address, current_options()), read)
