"""Parquet: footers of files, and their row groups."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import Options, is_remote
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.tables.arrow_columns import leave_out
from dcpred_tasks.tables.footers import Footer, TableFile
from dcpred_tasks.tables.opened_files import opened, reading, tail
from dcpred_tasks.tables.parquet_chunks import Chunk, EncryptedError, read_chunks

PARQUET_MAGIC, ENCRYPTED_MAGIC, TAIL_BYTES = b"PAR1", b"PARE", 2**16


def open_parquet(source: Any, **options: Any) -> Any:
    """A Parquet file. By default pyarrow reads INT96 as nanoseconds, in which years after 2262 wrap."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)


@dataclass(frozen=True, eq=False)
class ParquetFooter(Footer):
    """The footer of a Parquet file.

    chunks  the column chunks of each row group
    """

    metadata: Any
    chunks: Sequence[Sequence[Chunk]]

    @contextmanager
    def _opened(self, what: str) -> Iterator[Any]:
        """The file while a `with` statement reads it."""
        with (
            reading(self.file, what),
            open_parquet(
                opened(self.file),
                metadata=self.metadata,
                pre_buffer=is_remote(self.file.address),
                page_checksum_verification=True,  # where a writer stored checksums
            ) as file,
        ):
            yield file

    def read(self, group: int, names: Sequence[str]) -> Any:
        with self._opened(f"its row group {group}") as file:
            return file.read_row_group(group, columns=list(names), use_threads=False)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Raises DataError for a column of a type that Arrow does not read."""
        with self._opened("one of its row groups") as file:
            try:
                yield from file.iter_batches(rows, columns=names, use_threads=False)
            except pa.ArrowNotImplementedError as error:
                name = next((column for column in names if not _is_readable(file, column)), names[0])
                raise DataError(
                    f"Cannot read column {name!r} of {self.file.address}: it has the type"
                    f" {self.schema.field(name).type} ({error}). {leave_out(name)}"
                ) from None

    @property
    def index_columns(self) -> list[str]:
        stored = (self.schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in stored if isinstance(name, str)]

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        n_rows = self.group_rows[group]
        return sum(max(c.size, c.width * n_rows) for c in self.chunks[group] if c.path[0] in names)

    def nulls(self, name: str) -> int | None:
        """By the statistics of row groups."""
        counts = [chunk.nulls for group in self.chunks for chunk in group if chunk.path == (name,)]
        return None if len(counts) < len(self.chunks) or None in counts else sum(filter(None, counts))


def _is_readable(file: Any, name: str) -> bool:
    try:
        next(file.iter_batches(1, columns=[name], use_threads=False), None)
    except pa.ArrowNotImplementedError:
        return False
    return True


@lru_cache(maxsize=2**14)
def parquet_footer(file: TableFile, options: Options) -> ParquetFooter:
    """The footer of a file, read once by each process. Raises DamagedChunkError, and DataError for an
    encrypted file.
    """
    with reading(file, "its footer"):
        end = tail(file, min(TAIL_BYTES, file.size))
        length = int.from_bytes(end[-8:-4], "little") + 8
        if end[-4:] == ENCRYPTED_MAGIC:
            raise _encrypted(file)
        if end[-4:] != PARQUET_MAGIC or length > file.size:
            raise ValueError("it does not end as Parquet does: it may be truncated")
        if length > len(end):
            end = tail(file, length)
        try:
            chunks = read_chunks(memoryview(end)[-length:-8])
        except EncryptedError:
            raise _encrypted(file) from None
        with open_parquet(opened(file)) as reader:
            metadata, schema = reader.metadata, reader.schema_arrow
            rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        if len(rows) != len(chunks):
            raise ValueError("its row groups are ambiguous")
    return ParquetFooter(file, schema, rows, digest(end[-length:]), metadata, chunks)


def _encrypted(file: TableFile) -> DataError:
    return DataError(
        f"Cannot read {file.address}: it is encrypted, and dcpred takes no keys. Write its rows to a file"
        " without encryption."
    )
