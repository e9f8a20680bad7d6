"""What a table is to its readers: an address, a version, files, and rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from dcpred_tasks.schema.schema import PLAIN_TEXT, TextFormat

Columns = dict[str, Any]  # Arrow arrays of equal length, by name


@dataclass(frozen=True)
class TableFile:
    """A file of a table."""

    name: str
    """Its path below the folder of the table."""
    address: str
    size: int
    tag: str
    """Of the store, or the time of the last change on a disk: another one shows another content."""
    values: tuple[tuple[str, Any], ...] | None = None
    """Values of columns that the file lacks, where a log states them; None: those in the names of folders."""
    changed: int = 0
    """When anything about it changed on a disk, in nanoseconds since 1970, which no user can set."""


class TableRows(Protocol):
    """Rows that can be read as often as needed."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The Arrow types of its columns, in their order."""

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns, some rows at a time, from the first to the last."""


@dataclass(frozen=True)
class ReadOptions:
    """What an import states about the text and the columns of a table.

    named    columns that options or a schema name
    follows  whether a schema states the kind of each column
    """

    named: tuple[str, ...] = ()
    follows: bool = False
    separator: str | None = None
    quotes: bool | None = None
    form: TextFormat = PLAIN_TEXT


class TableSource(Protocol):
    """A table as it was when it was opened."""

    endings: ClassVar[tuple[str, ...]]
    """Endings of the names of its files; empty for one that its folder shows."""
    in_place: ClassVar[bool]
    """Whether it is read where it lies; else only an import reads it."""
    options: ClassVar[tuple[str, ...]]
    """Options of an import for tables of this kind alone."""

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

    def rows(self, options: ReadOptions) -> TableRows:
        """Its rows for an import. Raises DataError."""

    @classmethod
    def is_at(cls, address: str) -> bool:
        """Whether an address names a table of this kind, also a damaged one."""

    @classmethod
    def open(cls, address: str) -> Self:
        """The latest version of a table. Raises DataError."""
