"""Sources of tables: what an address names, which version of it, and which files hold its rows.

Import, training, scoring and refresh find the files of a table here alone. A further format is a class in a
file of its own, and an item of SOURCES.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from dcpred_tasks.storage.addresses import current_options, local_path
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.tables.delta_tables import DeltaTable
from dcpred_tasks.tables.table_files import FileTable, TableFile


class TableSource(Protocol):
    """A table as it was when it was opened."""

    @property
    def address(self) -> str:
        """Its address; where a table has versions, that of this version."""

    @property
    def version(self) -> int | None:
        """Its version; None for a table without versions."""

    @property
    def schema(self) -> Any:
        """Its columns in Arrow, where a log states them; None: its files state them."""

    @property
    def files(self) -> Sequence[TableFile]:
        """The files of its rows, in the order of the rows. Raises DataError."""

    @classmethod
    def is_at(cls, address: str) -> bool:
        """Whether an address names a table of this kind, also a damaged one."""

    @classmethod
    def open(cls, address: str) -> Self:
        """The latest version of a table. Raises DataError."""


SOURCES: tuple[type[TableSource], ...] = (DeltaTable, FileTable)  # the first that fits reads a table


def kind_of(address: str | Path) -> type[TableSource] | None:
    """The class of the table at an address that is read where it lies; None for anything else."""
    path = local_path(address)
    return next((kind for kind in SOURCES if kind.is_at(path)), None)


def open_source(address: str) -> TableSource:
    """The table at an address. Files that only an import reads are tables of one file. Raises DataError."""

    def read() -> TableSource:
        return (kind_of(address) or FileTable).open(address)

    return once(LISTING, ("source", address, current_options()), read)
