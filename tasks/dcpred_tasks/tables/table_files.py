"""Files of one table: where they lie, how they are opened, and their footers."""

import io
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from dcpred_tasks.errors import DamagedChunkError, DataError, DcpredError, ResourceError
from dcpred_tasks.storage.addresses import Options, below, current_options, is_remote
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.computed_arrays import refuse_changed
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.storage.patterns import files_of, is_pattern, match_pattern
from dcpred_tasks.storage.place import Entry, open_place
from dcpred_tasks.tables.arrow_columns import is_plain_number
from dcpred_tasks.tables.parquet_chunks import Chunk, EncryptedError, read_chunks
from dcpred_tasks.tables.table_formats import refuse_logged_tables

PARQUET, IPC = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


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


@dataclass(frozen=True, eq=False)  # some versions of pyarrow hash no schema
class Footer:
    """What the end of a file states about it. A row group is the unit that is decoded at once.

    group_rows  rows of each row group
    digest      of the bytes of the footer
    """

    file: TableFile
    schema: Any
    group_rows: tuple[int, ...]
    digest: str

    def read(self, group: int, names: Sequence[str]) -> Any:
        """These columns of a row group, as a table of Arrow. Raises DamagedChunkError."""
        raise NotImplementedError

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        """About the memory of these columns of a row group in Arrow."""
        raise NotImplementedError

    def nulls(self, name: str) -> int | None:
        """The number of missing values of a column; None where the file does not state it."""
        raise NotImplementedError


def is_rows(name: str) -> bool:
    """Whether a file is one of rows, by the ending of its name."""
    return name.lower().endswith(PARQUET + IPC)


@dataclass(frozen=True)
class FileTable:
    """A file of Parquet or Arrow, or those of a folder or pattern: a source (sources.py)."""

    address: str
    version = schema = None

    @classmethod
    def is_at(cls, address: str) -> bool:
        path = address.rstrip("/")
        if is_pattern(path):
            return not path.lower().endswith(".zarr")
        is_folder = not is_remote(path) and os.path.isdir(path)
        if is_rows(path) and not is_folder:
            return True
        if not is_remote(path) and not is_folder:
            return False
        return bool(_names_of(address)[1])

    @classmethod
    def open(cls, address: str) -> Self:
        return cls(address)

    @cached_property
    def files(self) -> list[TableFile]:
        """By name."""
        return list_files(self.address)


def list_files(address: str) -> list[TableFile]:
    """The files of a table, by name. Raises DataError where there is none."""
    path = address.rstrip("/")
    if not is_pattern(path) and is_remote(path) and (one := _one_object(path)):
        return one
    if not is_pattern(path) and not is_remote(path) and not os.path.isdir(address):
        return [local_file(os.path.basename(path), path)]
    base, found, listed = _names_of(address)
    if not found:
        raise DataError(f"Cannot read {address}: no .parquet file is there. Name a file or a folder of them.")
    refuse_logged_tables(base, found, listed)
    if listed is None:
        return [local_file(name, os.path.join(base, name)) for name in found]
    return [TableFile(name, below(base, name), listed[name].size, listed[name].tag) for name in found]


Names = tuple[str, list[str], dict[str, Entry] | None]


def _names_of(address: str) -> Names:
    """The folder of a table, the names of its files below it, sorted, and what a store lists there."""

    def read() -> Names:
        base, names = address.rstrip("/") or address, [""]
        if is_pattern(base):
            base, matches = match_pattern(base)
            names = [match.name for match in matches]
        listed = open_place(base).listing() if is_remote(base) else None
        files = files_of(base, names, is_rows, listed)
        found = sorted((name for some in files for name in _rows(some)), key=lambda name: name.split("/"))
        return base, found, listed

    where = address if is_remote(address) else os.path.realpath(address)
    return once(LISTING, ("names", where, current_options()), read)


def _rows(files: list[str]) -> list[str]:
    """The files of rows of a folder: those of Arrow next to Parquet are none."""
    return [name for name in files if name.lower().endswith(PARQUET)] or files


def local_file(name: str, path: str) -> TableFile:
    try:
        state = os.stat(path)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {path}: {error.strerror}. Get permission, then run again."
            ) from None
        raise DataError(f"Cannot read {path}: it does not exist. Check the path.") from None
    return TableFile(name, path, state.st_size, str(state.st_mtime_ns), changed=state.st_ctime_ns)


def _one_object(path: str) -> list[TableFile]:
    folder, _, name = path.rpartition("/")
    place = open_place(folder)
    entry = place.head(name) if isinstance(place, Bucket) else None
    return [] if entry is None else [TableFile(name, path, entry.size, entry.tag)]


# -- Reading -------------------------------------------------------------------------------------------------


class StoredObject(io.RawIOBase):
    """An object of a store as a file, in ranges. Raises DataError once it has another tag."""

    def __init__(self, file: TableFile) -> None:
        folder, _, self.key = file.address.rpartition("/")
        self.place, self.file, self.at = open_place(folder), file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.file.size)[whence]
        return self.at

    def read(self, n: int | None = -1) -> bytes:
        stop = self.file.size if n is None or n < 0 else min(self.at + n, self.file.size)
        if stop <= self.at:
            return b""
        assert isinstance(self.place, Bucket)
        data = self.place.part(self.key, self.at, stop, self.file.tag)
        if data is None:
            raise refuse_changed(self.file.address)
        self.at = stop
        return data


def opened(file: TableFile) -> Any:
    """What pyarrow and `open` read: a path, or a file of a store."""
    return pa.PythonFile(StoredObject(file), "r") if is_remote(file.address) else file.address


def arrow_source(file: TableFile) -> Any:
    """What readers of Arrow take. Not a memory map: one that another process truncates ends this process."""
    return opened(file) if is_remote(file.address) else pa.OSFile(file.address)


def options_of(file: TableFile) -> Options:
    """The options of the store of a file."""
    return current_options() if is_remote(file.address) else ()


@contextmanager
def reading(file: TableFile, what: str) -> Iterator[None]:
    """Translate errors of pyarrow, and refuse a file that changed meanwhile.

    what  is read: "its footer", "its row group 3"
    """
    try:
        yield
    except DcpredError:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        check_unchanged(file)
        if getattr(error, "errno", None) in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {file.address}: {error}. Get permission, then run again."
            ) from None
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedChunkError(
            f"Cannot read {file.address}: {what} is damaged or of another format ({line})."
            " Restore the file and run again."
        ) from None
    check_unchanged(file)


def check_unchanged(file: TableFile) -> None:
    """Objects of stores are read by their tag."""
    if is_remote(file.address):
        return
    now = local_file(file.name, file.address)
    if (now.size, now.tag) != (file.size, file.tag):
        raise refuse_changed(file.address)


def tail(file: TableFile, n: int) -> bytes:
    """The last n bytes of a file."""
    with StoredObject(file) if is_remote(file.address) else open(file.address, "rb") as source:
        source.seek(-n, 2)
        return bytes(source.read(n))


# -- Parquet -------------------------------------------------------------------------------------------------


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

    def read(self, group: int, names: Sequence[str]) -> Any:
        with (
            reading(self.file, f"its row group {group}"),
            open_parquet(
                opened(self.file),
                metadata=self.metadata,
                pre_buffer=is_remote(self.file.address),
                page_checksum_verification=True,  # where a writer stored checksums
            ) as file,
        ):
            return file.read_row_group(group, columns=list(names), use_threads=False)

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        n_rows = self.group_rows[group]
        return sum(max(c.size, c.width * n_rows) for c in self.chunks[group] if c.path[0] in names)

    def nulls(self, name: str) -> int | None:
        """By the statistics of row groups."""
        counts = [chunk.nulls for group in self.chunks for chunk in group if chunk.path == (name,)]
        return None if len(counts) < len(self.chunks) or None in counts else sum(filter(None, counts))


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
        with open_parquet(opened(file)) as found:
            metadata, schema = found.metadata, found.schema_arrow
            rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        if len(rows) != len(chunks):
            raise ValueError("its row groups are ambiguous")
    return ParquetFooter(file, schema, rows, digest(end[-length:]), metadata, chunks)


def _encrypted(file: TableFile) -> DataError:
    return DataError(
        f"Cannot read {file.address}: it is encrypted, and dcpred takes no keys. Write its rows to a file"
        " without encryption."
    )


# -- Arrow IPC, and Feather 2 --------------------------------------------------------------------------------


ARROW_MAGIC, FEATHER_1, STREAM = b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"
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
def ipc_footer(file: TableFile, options: Options) -> IpcFooter:
    """The footer of a file, read once by each process. Raises DataError, DamagedChunkError."""
    with reading(file, "its footer"):
        _check_form(file)
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


def _check_form(file: TableFile) -> None:
    """Raise DataError for other formats of Arrow, which name no record batches at their end."""
    with arrow_source(file) as source:
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
