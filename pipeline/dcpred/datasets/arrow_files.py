"""Readers of Parquet, of one file or many, and of Feather and Arrow IPC: sources (table.py)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dcpred.datasets.table import Columns, check_names, damaged, no_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.tables.arrow_columns import (
    leave_out,
    unknown_type,
)
from dcpred_tasks.tables.delta_tables import delta_files, is_delta, pinned
from dcpred_tasks.tables.table_columns import as_common_type, common_columns, foreign_types
from dcpred_tasks.tables.table_files import is_rows

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
    """A Parquet file, and the values in its folder names."""

    path: Path
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ParquetRows:
    """Rows of one Parquet file, or of several of the same columns. Memory grows with the row groups."""

    name: str
    types: Mapping[str, Any]
    parts: tuple[_Part, ...]
    foreign: Mapping[str, str] = field(default_factory=dict)

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        _refuse_foreign(self.name, self.foreign, names)
        others = f"other files of {self.name}"
        for part in self.parts:
            stored = [name for name in names if name not in part.constants]
            with pq.ParquetFile(part.path) as file:
                for batch in self._read(part, file, stored, batch_rows(len(names))):
                    held = {}
                    for name in stored:
                        column, kind = batch.column(name), self.types[name]
                        held[name] = as_common_type(column, kind, name, part.path.name, others)
                    for name in part.constants.keys() & set(names):
                        held[name] = pa.repeat(part.constants[name], len(batch)).cast(self.types[name])
                    yield {name: held[name] for name in names}

    def _read(self, part: _Part, file: Any, names: Sequence[str], rows: int) -> Iterator[Any]:
        try:
            yield from file.iter_batches(rows, columns=names, use_threads=False)
        except pa.ArrowNotImplementedError as error:
            name = next((one for one in names if not _is_readable(file, one)), names[0])
            kind = file.schema_arrow.field(name).type
            raise DataError(
                f"Cannot read column {name!r} of {part.path.name}: it has the type {kind} ({error})."
                f" {leave_out(name)}"
            ) from None


def _is_readable(file: Any, name: str) -> bool:
    try:
        next(file.iter_batches(1, columns=[name], use_threads=False), None)
    except pa.ArrowNotImplementedError:
        return False
    return True


def read_parquet(path: Path, named: Collection[str]) -> ParquetRows:
    """A Parquet file, or a folder of them, also below folders named `column=value`. An index that pandas
    stored is a column only if an option names it.
    """
    if path.is_dir():
        return _delta(path) if is_delta(path) else _folder(path, named)
    n_rows, schema = _schema(path, named)
    if n_rows == 0:
        raise no_rows(path.name)
    types = dict(zip(schema.names, schema.types, strict=True))
    return ParquetRows(path.name, types, (_Part(path),), foreign_types(schema))


def _schema(path: Path, named: Collection[str]) -> tuple[int, Any]:
    """The number of rows, and names and types of the columns."""
    with pq.ParquetFile(path) as file:
        n_rows, schema = file.metadata.num_rows, file.schema_arrow
    check_names(path.name, schema.names)
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    index = {name for name in stored if isinstance(name, str)} - set(named)
    return n_rows, pa.schema([field for field in schema if field.name not in index])


def _delta(path: Path) -> ParquetRows:
    """The rows of the latest version of a Delta table, not those of all files in its folder."""
    files, kinds = delta_files(pinned(str(path)))
    types, parts = dict(zip(kinds.names, kinds.types, strict=True)), []
    check_names(path.name, kinds.names)
    for file in files:
        n_rows, schema = _schema(Path(file.address), ())
        stated = dict(file.values or ())
        lacking = {name: stated.get(name) for name in types if name not in schema.names}
        if n_rows:
            parts.append(_Part(Path(file.address), lacking))
    if not parts:
        raise no_rows(path.name)
    return ParquetRows(path.name, types, tuple(parts))


def _folder(path: Path, named: Collection[str]) -> ParquetRows:
    files = sorted(file for file in path.rglob("*") if is_rows(file.relative_to(path).as_posix()))
    if not files:
        raise DataError(
            f"Cannot import {path}: it is a directory without a .parquet file. Name a file, or"
            " a directory of Parquet files."
        )
    read = [_schema(file, named) for file in files]
    names = [file.relative_to(path).as_posix() for file in files]
    if not sum(n for n, _ in read):
        raise no_rows(path.name)
    types, summary = common_columns(path.name, names, [schema for _, schema in read])
    parts = tuple(_Part(file, values) for file, values in zip(files, summary, strict=True))
    foreign = {name: kind for _, schema in read for name, kind in foreign_types(schema).items()}
    return ParquetRows(path.name, types, parts, foreign)


@dataclass(frozen=True)
class IpcRows:
    """Rows of a Feather file, or of Arrow's IPC file or stream: batch by batch."""

    name: str
    types: Mapping[str, Any]
    path: Path
    foreign: Mapping[str, str] = field(default_factory=dict)

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        _refuse_foreign(self.name, self.foreign, names)
        rows = batch_rows(len(names))
        for batch in _record_batches(self.path):
            for start in range(0, len(batch), rows):
                part = batch.slice(start, rows)
                yield {name: part.column(name) for name in names}


def read_ipc(path: Path) -> IpcRows:
    """A Feather file of version 2, which is Arrow's IPC file, or a stream of Arrow's IPC."""
    with path.open("rb") as file:
        if file.read(len(FEATHER_1)) == FEATHER_1:
            raise DataError(
                f"Cannot import {path.name}: it has Feather version 1. Write it again, for example by"
                " pandas.DataFrame.to_feather."
            )
    n_rows, types = 0, None
    for batch in _record_batches(path):
        n_rows += len(batch)
        types = batch.schema if types is None else types
    if types is None or n_rows == 0:
        raise no_rows(path.name)
    check_names(path.name, types.names)
    return IpcRows(path.name, dict(zip(types.names, types.types, strict=True)), path, foreign_types(types))


def _record_batches(path: Path) -> Iterator[Any]:
    with pa.memory_map(str(path)) as mapped:
        is_file = mapped.read(len(IPC_FILE)) == IPC_FILE
        mapped.seek(0)
        try:
            reader = pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)
            with reader:
                numbers = range(reader.num_record_batches) if is_file else ()
                for batch in map(reader.get_batch, numbers) if is_file else reader:
                    # Without validation, offsets of text may point anywhere.
                    batch.validate(full=True)
                    yield batch
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged(path, error) from error
