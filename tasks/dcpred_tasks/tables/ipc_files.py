"""Arrow IPC, and Feather 2: footers of files and their record batches, and streams."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import Options
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.tables.arrow_columns import is_plain_number
from dcpred_tasks.tables.footers import Footer, TableFile
from dcpred_tasks.tables.opened_files import arrow_source, reading, tail

STREAM_ENDING = ".arrows"
ARROW_MAGIC, FEATHER_1, STREAM_START = b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"
COUNTS = 10  # bytes behind the footer: its length, and ARROW_MAGIC
TEXT_BYTES = 32  # a guess at a value without a fixed width


@dataclass(frozen=True, eq=False)
class IpcFooter(Footer):
    """The footer of a file of record batches."""

    def read(self, group: int, names: Sequence[str]) -> Any:
        fields = sorted(self.schema.get_field_index(name) for name in names)
        with reading(self.file, f"its record batch {group}"), _reader(self.file, fields) as reader:
            batch = reader.get_batch(group)
            batch.validate(full=True)  # else offsets of text may point anywhere
            return pa.table(batch)

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        width = sum(_width(self.schema.field(name).type) for name in names if name in self.schema.names)
        return width * self.group_rows[group]

    def nulls(self, name: str) -> int | None:
        return _nulls(self, name)


def _width(kind: Any) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:  # a type without a fixed width
        return TEXT_BYTES


@lru_cache(maxsize=2**10)
def _nulls(footer: IpcFooter, name: str) -> int:
    """Counted: a file of Arrow has no statistics."""
    groups = range(len(footer.group_rows))
    return sum(int(footer.read(group, [name]).column(name).null_count) for group in groups)


@contextmanager
def _reader(file: TableFile, fields: Sequence[int]) -> Iterator[Any]:
    """A reader of these fields of a file. Not a memory map: one that another process truncates ends this
    process.
    """
    options = pa.ipc.IpcReadOptions(included_fields=list(fields), use_threads=False)
    with arrow_source(file) as source, pa.ipc.open_file(source, options=options) as reader:
        yield reader


@lru_cache(maxsize=2**14)
def ipc_footer(file: TableFile, options: Options) -> Footer:
    """The footer of a file, or all that a stream states. Raises DataError, DamagedChunkError."""
    with reading(file, "its footer"):
        with arrow_source(file) as source:
            start = bytes(source.read(4))
        if start == FEATHER_1:
            raise DataError(
                f"Cannot read {file.address}: it has Feather version 1. Write it again, for example by"
                " pandas.DataFrame.to_feather."
            )
        if start == STREAM_START or file.name.lower().endswith(STREAM_ENDING):
            return _stream_footer(file)
        end = tail(file, min(COUNTS, file.size))
        length = int.from_bytes(end[:4], "little") + COUNTS
        if end[4:] != ARROW_MAGIC or not COUNTS < length <= file.size:
            raise ValueError("it does not end as a file of Arrow does: it may be truncated")
        with _reader(file, []) as reader:
            schema, n = reader.schema, reader.num_record_batches
        # The rows of a batch are those of any column: of one that is small.
        small = min(range(len(schema)), key=lambda i: not is_plain_number(schema.field(i).type), default=0)
        with _reader(file, [small]) as reader:
            rows = tuple(reader.get_batch(i).num_rows for i in range(n)) if len(schema) else ()
    return IpcFooter(file, schema, rows, digest(tail(file, length)))


# -- Streams -------------------------------------------------------------------------------------------------


class StreamFooter(Footer):
    """What a stream of record batches states once all of it was read."""

    only_imported = (
        "it is a stream of Arrow, which has no footer. Write it as a file, for example by"
        " pyarrow.feather.write_feather, or import it."
    )

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        with _stream(self.file) as reader:
            for batch in reader:
                batch.validate(full=True)
                yield from (batch.slice(start, rows) for start in range(0, len(batch), rows))


def _stream_footer(file: TableFile) -> Footer:
    with _stream(file) as reader:
        return StreamFooter(file, reader.schema, (sum(map(len, reader)),), "")


@contextmanager
def _stream(file: TableFile) -> Iterator[Any]:
    with reading(file, "its stream"), arrow_source(file) as source, pa.ipc.open_stream(source) as reader:
        yield reader
