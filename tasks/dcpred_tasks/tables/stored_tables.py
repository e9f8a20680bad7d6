"""Tables of files: row groups, columns in common types, and the rows that imports and scorings read."""

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import Options, current_options, is_remote
from dcpred_tasks.tables.arrow_columns import plain_column, unknown_type, whole_array
from dcpred_tasks.tables.file_formats import read_footer
from dcpred_tasks.tables.footers import Footer, TableFile
from dcpred_tasks.tables.table_columns import (
    Columns,
    as_common_type,
    cell_type,
    check_names,
    common_columns,
    foreign_types,
    no_rows,
    stated_columns,
)

BATCH_VALUES = 2**21  # values read at once: 16 MiB of float64


def batch_rows(n_columns: int) -> int:
    return max(BATCH_VALUES // max(n_columns, 1), 1)


@dataclass(frozen=True)
class Group:
    """A row group: its file, its number there, and its rows in the table."""

    footer: Footer
    number: int
    constants: Mapping[str, Any]
    start: int
    stop: int

    @property
    def where(self) -> str:
        return f"row group {self.number} of {self.footer.file.address}"

    def content(self, names: Collection[str] | None = None, *, timed: bool = True) -> str:
        """What decides the stored values of these columns; None: of all.

        timed  whether with the time of writing, or the tag of a store
        """
        file, tag = self.footer.file, self.footer.file.tag if timed else ""
        constants = sorted((k, repr(v)) for k, v in self.constants.items() if names is None or k in names)
        return f"{file.name} {file.size} {tag} {self.footer.digest} {self.number} {constants}"


@dataclass(frozen=True, eq=False)
class Table:
    """The files of a table.

    data   its address
    types  of the columns of all files
    """

    data: str
    footers: tuple[Footer, ...]
    types: Mapping[str, Any]
    groups: tuple[Group, ...]

    @property
    def name(self) -> str:
        return os.path.basename(self.data.rstrip("/"))

    @property
    def n_rows(self) -> int:
        return self.groups[-1].stop

    @cached_property
    def foreign(self) -> dict[str, str]:
        """The types of columns whose meaning is unknown here."""
        return {name: kind for footer in self.footers for name, kind in foreign_types(footer.schema).items()}

    def read(self, group: Group, names: Sequence[str]) -> Columns:
        """Columns of a row group, as arrays of Arrow of the types of the table."""
        stored = [name for name in names if name not in group.constants]
        rows = group.footer.read(group.number, stored) if stored else None
        columns = self._typed(rows, names, group, group.stop - group.start)
        return {name: plain_column(c, name, group.footer.file.name) for name, c in columns.items()}

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """These columns of all rows, some at a time: memory does not grow with the row groups of Parquet."""
        for name in names:
            if name in self.foreign:
                raise unknown_type(name, self.name, self.foreign[name])
        for footer, groups in groupby(self.groups, lambda group: group.footer):
            first = next(groups)
            stored = [name for name in names if name not in first.constants]
            for rows in footer.batches(stored, batch_rows(len(names))):
                yield self._typed(rows, names, first, len(rows))

    def _typed(self, rows: Any, names: Sequence[str], group: Group, n: int) -> Columns:
        """Columns of n rows of a file, in the types of the table: stored ones and constants."""
        columns = {}
        for name in names:
            kind = self.types[name]
            if name in group.constants:
                columns[name] = pa.repeat(group.constants[name], n).cast(kind)
            else:
                stored = _one_array(rows.column(name))
                columns[name] = as_common_type(stored, kind, name, group.footer.file.name)
        return columns


def _one_array(column: Any) -> Any:
    """A column as one array: without a copy where it is one, as numbers of a row group are."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    column = column.combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def stored_table(
    files: Sequence[TableFile], schema: Any, data: str, named: frozenset[str] | None = None
) -> Table:
    """A table whose files state row groups. Raises DataError.

    schema  its columns in Arrow, where a log states them
    data    its address, for messages
    named  the columns that an import names: an index that pandas stored is a column only if it is one of
           them. None: the table is read where it lies
    """
    options = current_options() if is_remote(data) else ()
    return _table(tuple(files), schema, options, data, named)


@lru_cache(maxsize=8)
def _table(
    files: tuple[TableFile, ...], schema: Any, _: Options, data: str, named: frozenset[str] | None
) -> Table:
    footers = tuple(map(read_footer, files))
    for footer in footers:
        check_names(footer.file.address, [name for name in footer.schema.names if name])
        if named is None and footer.only_imported:
            raise DataError(f"Cannot read {footer.file.address}: {footer.only_imported}")
    if schema is not None:
        types, constants = stated_columns(schema, files, [footer.schema for footer in footers])
    else:
        schemas = [footer.schema if named is None else _without_index(footer, named) for footer in footers]
        names = [file.name for file in files]
        types, constants = common_columns(os.path.basename(data.rstrip("/")), names, schemas)
    groups, start = [], 0
    for footer, values in zip(footers, constants, strict=True):
        for number, n in enumerate(footer.group_rows):
            if n:
                groups.append(Group(footer, number, values, start, start + n))
            start += n
    if not groups:
        raise no_rows(data)
    return Table(data, footers, types, tuple(groups))


def _without_index(of: Footer, named: Collection[str]) -> Any:
    index = {*of.index_columns} - {*named}
    return pa.schema([field for field in of.schema if field.name not in index])


class TableReader:
    """Reads the columns of a table; the last row groups are kept for the next rows."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._decoded: OrderedDict[tuple[int, tuple[str, ...]], dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._starts = np.array([group.start for group in table.groups])

    def overlapping(self, start: int, stop: int) -> Iterator[tuple[int, Group]]:
        """The row groups of rows, with their numbers."""
        first = max(int(np.searchsorted(self._starts, start, "right")) - 1, 0)
        for number in range(first, len(self._starts)):
            group = self.table.groups[number]
            if group.start >= stop:
                return
            yield number, group

    def columns(self, number: int, names: tuple[str, ...]) -> dict[str, Any]:
        """Decoded columns of a row group; the last two are kept for the next rows."""
        key = number, names
        with self._lock:
            decoded = self._decoded.get(key)
        if decoded is None:
            decoded = self.table.read(self.table.groups[number], names)
            with self._lock:
                self._decoded[key] = decoded
                while len(self._decoded) > 2:
                    self._decoded.popitem(last=False)
        return decoded

    def cells(self, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """The cells of columns for rows, as the files hold them, in the type of `cell_type`."""
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for number, group in self.overlapping(start, stop):
            low, high = max(start, group.start), min(stop, group.stop)
            columns = self.columns(number, tuple(names))
            for name in names:
                column = whole_array(columns[name].slice(low - group.start, high - low))
                parts[name].append(column.cast(cell_type(self.table.types[name])))
        kinds = {name: cell_type(self.table.types[name]) for name in names}
        return {name: _one_array(pa.chunked_array(parts[name], kinds[name])) for name in names}
