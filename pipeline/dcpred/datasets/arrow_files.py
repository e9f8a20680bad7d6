"""The reader of Parquet, Feather and Arrow IPC, of one file or many: a source (table.py)."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dcpred.datasets.table import Columns, check_names, damaged, no_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.tables.arrow_columns import leave_out, unknown_type
from dcpred_tasks.tables.sources import open_source
from dcpred_tasks.tables.table_columns import as_common_type, common_columns, foreign_types, stated_columns
from dcpred_tasks.tables.table_files import (
    PARQUET,
    TableFile,
    arrow_source,
    open_parquet,
    opened,
    options_of,
    parquet_footer,
)

BATCH_VALUES = 2**21  # values read at once: 16 MiB of float64
FEATHER = (".feather", ".arrow", ".ipc", ".arrows")
IPC_FILE, FEATHER_1 = b"ARROW1", b"FEA1"


def batch_rows(n_columns: int) -> int:
    return max(BATCH_VALUES // max(n_columns, 1), 1)


def _refuse_foreign(source: str, foreign: Mapping[str, str], names: Sequence[str]) -> None:
    for name in names:
        if name in foreign:
            raise unknown_type(name, source, foreign[name])


@dataclass(frozen=True)
class _Part:
    """A file, and the values of columns that it lacks."""

    file: TableFile
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableRows:
    """Rows of one file, or of several of the same columns. Memory grows with the row groups."""

    name: str
    types: Mapping[str, Any]
    parts: tuple[_Part, ...]
    foreign: Mapping[str, str] = field(default_factory=dict)

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        _refuse_foreign(self.name, self.foreign, names)
        others = f"other files of {self.name}"
        for part in self.parts:
            stored = [name for name in names if name not in part.constants]
            for batch in _read(part.file, stored, batch_rows(len(names))):
                held = {}
                for name in stored:
                    column, kind = batch.column(name), self.types[name]
                    held[name] = as_common_type(column, kind, name, os.path.basename(part.file.name), others)
                for name in part.constants.keys() & set(names):
                    held[name] = pa.repeat(part.constants[name], len(batch)).cast(self.types[name])
                yield {name: held[name] for name in names}


def _read(file: TableFile, names: Sequence[str], rows: int) -> Iterator[Any]:
    """Record batches of a file."""
    if not _is_parquet(file):
        for batch in _record_batches(file):
            for start in range(0, len(batch), rows):
                yield batch.slice(start, rows)
        return
    with open_parquet(opened(file)) as reader:
        try:
            yield from reader.iter_batches(rows, columns=names, use_threads=False)
        except pa.ArrowNotImplementedError as error:
            name = next((one for one in names if not _is_readable(reader, one)), names[0])
            kind = reader.schema_arrow.field(name).type
            raise DataError(
                f"Cannot read column {name!r} of {os.path.basename(file.name)}: it has the type {kind}"
                f" ({error}). {leave_out(name)}"
            ) from None


def _is_parquet(file: TableFile) -> bool:
    return file.address.lower().endswith(PARQUET)


def _is_readable(file: Any, name: str) -> bool:
    try:
        next(file.iter_batches(1, columns=[name], use_threads=False), None)
    except pa.ArrowNotImplementedError:
        return False
    return True


def read_table(address: str, named: Collection[str]) -> TableRows:
    """A file of Parquet or Arrow, a folder or pattern of them, also with folders named `column=value`, or the
    latest version of a Delta table. An index that pandas stored is a column only if an option names it.
    """
    name = address.rstrip("/").rpartition("/")[2]
    source = open_source(address)
    files, kinds = source.files, source.schema
    read = [_schema(file, named if kinds is None else ()) for file in files]
    if not sum(n for n, _ in read):
        raise no_rows(name)
    schemas = [schema for _, schema in read]
    if kinds is None:
        types, constants = common_columns(name, [file.name for file in files], schemas)
    else:
        check_names(name, kinds.names)
        types, constants = stated_columns(kinds, files, schemas)
    parts = (_Part(file, values) for (n, _), file, values in zip(read, files, constants, strict=True) if n)
    foreign = {name: kind for schema in schemas for name, kind in foreign_types(schema).items()}
    return TableRows(name, types, tuple(parts), foreign)


def _schema(file: TableFile, named: Collection[str]) -> tuple[int, Any]:
    """The number of rows, and names and types of the columns."""
    if not _is_parquet(file):
        n_rows, schema = 0, pa.schema([])
        for batch in _record_batches(file):
            n_rows, schema = n_rows + len(batch), batch.schema
    else:
        footer = parquet_footer(file, options_of(file))
        n_rows, schema = sum(footer.group_rows), footer.schema
    check_names(os.path.basename(file.name), schema.names)
    stored = (schema.pandas_metadata or {}).get("index_columns", []) if _is_parquet(file) else []
    index = {name for name in stored if isinstance(name, str)} - set(named)
    return n_rows, pa.schema([field for field in schema if field.name not in index])


def _record_batches(file: TableFile) -> Iterator[Any]:
    """Of Feather version 2, which is a file of Arrow's IPC, or of a stream of it. Raises DataError."""
    with arrow_source(file) as source:
        start = source.read(len(IPC_FILE))
        source.seek(0)
        if start.startswith(FEATHER_1):
            raise DataError(
                f"Cannot import {os.path.basename(file.name)}: it has Feather version 1. Write it again, for"
                " example by pandas.DataFrame.to_feather."
            )
        try:
            reader = pa.ipc.open_file(source) if start == IPC_FILE else pa.ipc.open_stream(source)
            with reader:
                numbers = range(reader.num_record_batches) if start == IPC_FILE else ()
                for batch in map(reader.get_batch, numbers) if start == IPC_FILE else reader:
                    # Without validation, offsets of text may point anywhere.
                    batch.validate(full=True)
                    yield batch
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged(file.address, error) from error
