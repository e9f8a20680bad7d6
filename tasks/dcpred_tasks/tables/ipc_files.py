"""Files of Arrow's IPC format, which Feather 2 is, too: their footers, and record batches as row groups."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import Options, is_remote
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.tables.arrow_columns import is_plain_number
from dcpred_tasks.tables.table_files import Footer, TableFile, opened, reading, tail

MAGIC, FEATHER_1, STREAM = b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"
COUNTS = 10  # bytes behind the footer: its length, and MAGIC
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
    source = opened(file) if is_remote(file.address) else pa.OSFile(file.address)
    with source, pa.ipc.open_file(source, options=options) as reader:
        yield reader


@lru_cache(maxsize=2**14)
def ipc_footer(file: TableFile, options: Options) -> IpcFooter:
    """The footer of a file, read once by each process. Raises DataError, DamagedChunkError."""
    with reading(file, "its footer"):
        _check_form(file)
        end = tail(file, min(COUNTS, file.size))
        length = int.from_bytes(end[:4], "little") + COUNTS
        if end[4:] != MAGIC or not COUNTS < length <= file.size:
            raise ValueError("it does not end as a file of Arrow does: it may be truncated")
        with _reader(file, []) as reader:
            schema, n = reader.schema, reader.num_record_batches
        # The rows of a batch are those of any column: of one that is small.
        small = min(range(len(schema)), key=lambda i: not is_plain_number(schema.field(i).type), default=0)
        with _reader(file, [small]) as reader:
            rows = tuple(reader.get_batch(i).num_rows for i in range(n)) if len(schema) else ()
    return IpcFooter(file, schema, rows, digest(tail(file, length)))


def _check_form(file: TableFile) -> None:
    """Raise DataError for other formats of Arrow, which name no record batches at their end."""
    source = opened(file) if is_remote(file.address) else pa.OSFile(file.address)
    with source:
        start = bytes(source.read(4))
    if start == FEATHER_1:
        raise DataError(
            f"Cannot read {file.address}: it has Feather version 1. Write it again, for example by"
            " pandas.DataFrame.to_feather."
        )
    if start == STREAM:
        raise DataError(
            f"Cannot read {file.address}: it is a stream of Arrow, which has no footer. Write it as a file,"
            " for example by pyarrow.feather.write_feather, or import it."
        )
