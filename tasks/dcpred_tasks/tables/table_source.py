"""What a table is to its readers: an address, files, and rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

from dcpred_tasks.schema.schema import PLAIN_TEXT, TextFormat
from dcpred_tasks.storage.addresses import lasting
from dcpred_tasks.tables.footers import TableFile


class TableRows(Protocol):
    """Rows that can be read as often as needed."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The Arrow types of its columns, in their order."""

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
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


class TableSource:
    """A table as it was when it was opened; by default one whose files are read where they lie."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Endings of the names of its files; empty for one that its folder shows."""
    in_place: ClassVar[bool] = True
    """Whether it is scored where it lies; else only an import reads it."""
    options: ClassVar[tuple[str, ...]] = ()
    """Options of an import for tables of this kind alone."""
    address: str
    """Its address; where a table has versions, that of this version."""
    schema: Any = None
    """Its columns in Arrow, where a log states them; None: its files state them."""

    @cached_property
    def files(self) -> Sequence[TableFile]:
        """The files of its rows, in the order of the rows. Raises DataError."""
        raise NotImplementedError

    def rows(self, options: ReadOptions) -> TableRows:
        """Its rows for an import. Raises DataError."""
        from dcpred_tasks.tables.stored_tables import stored_table

        return stored_table(self.files, self.schema, lasting(self.address), frozenset(options.named))

    @classmethod
    def is_at(cls, address: str) -> bool:
        """Whether an address names a table of this kind, also a damaged one."""
        raise NotImplementedError

    @classmethod
    def open(cls, address: str) -> Self:
        """The latest version of a table. Raises DataError."""
        raise NotImplementedError
