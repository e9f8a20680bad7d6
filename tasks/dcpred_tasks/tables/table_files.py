"""Files of rows, of one table: where they lie, and what reads them. Nothing here needs pyarrow."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.addresses import Options, below, current_options, is_remote
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.once import LISTING, once
from dcpred_tasks.storage.patterns import files_of, is_pattern, match_pattern
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.tables.table_formats import refuse_logged_tables
from dcpred_tasks.tables.table_source import ReadOptions, TableFile, TableRows


@dataclass(frozen=True, eq=False)  # some versions of pyarrow hash no schema
class Footer:
    """What a file states about its rows. A row group is the unit that is decoded at once.

    group_rows  rows of each row group
    digest      of the bytes of the footer
    """

    file: TableFile
    schema: Any
    group_rows: tuple[int, ...]
    digest: str
    only_imported: ClassVar[str] = ""
    """Why the file is not read where it lies, and what to do; empty where it is."""

    def read(self, group: int, names: Sequence[str]) -> Any:
        """These columns of a row group, as a table of Arrow. Raises DamagedChunkError."""
        raise NotImplementedError

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """These columns of all rows, as tables or record batches of at most `rows` rows."""
        for group, n_rows in enumerate(self.group_rows):
            whole = self.read(group, names)
            for start in range(0, n_rows, rows):
                yield whole.slice(start, rows)

    @property
    def index_columns(self) -> Collection[str]:
        """Columns that hold an index of pandas: an import omits those that no option names."""
        return ()

    def group_bytes(self, group: int, names: Collection[str]) -> int:
        """About the memory of these columns of a row group in Arrow."""
        raise NotImplementedError

    def nulls(self, name: str) -> int | None:
        """The number of missing values of a column; None where the file does not state it."""
        raise NotImplementedError


def _parquet_footer(file: TableFile, options: Options) -> Footer:
    from dcpred_tasks.tables.parquet_files import parquet_footer

    return parquet_footer(file, options)


def _ipc_footer(file: TableFile, options: Options) -> Footer:
    from dcpred_tasks.tables.ipc_files import ipc_footer

    return ipc_footer(file, options)


class FileFormat(NamedTuple):
    """Files of rows, by the endings of their names, and what reads their footers. Raises DataError."""

    endings: tuple[str, ...]
    footer: Callable[[TableFile, Options], Footer]


# In a folder, files of the first of these formats hold the rows.
FORMATS = (
    FileFormat((".parquet", ".pq"), _parquet_footer),
    FileFormat((".feather", ".arrow", ".ipc"), _ipc_footer),
)
STREAM = FileFormat((".arrows",), _ipc_footer)


def read_footer(file: TableFile) -> Footer:
    """The footer of a file, read once by each process; of Parquet, if its name tells no format."""
    options = current_options() if is_remote(file.address) else ()
    of_name = (one for one in (*FORMATS, STREAM) if file.name.lower().endswith(one.endings))
    return next(of_name, FORMATS[0]).footer(file, options)


def is_rows(name: str) -> bool:
    """Whether a file is one of rows, by the ending of its name."""
    return name.lower().endswith(FileTable.endings)


@dataclass(frozen=True)
class FileTable:
    """A file of Parquet or Arrow, or those of a folder or pattern: a source (sources.py)."""

    endings: ClassVar = tuple(ending for one in FORMATS for ending in one.endings)
    in_place: ClassVar = True
    options: ClassVar[tuple[str, ...]] = ()
    version: ClassVar = None
    schema: ClassVar = None
    address: str

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

    def rows(self, options: ReadOptions) -> TableRows:
        from dcpred_tasks.tables.stored_tables import stored_rows

        return stored_rows(self, self.address, options.named)


class ImportedFile(FileTable):
    """A file that only an import reads."""

    in_place: ClassVar = False

    @classmethod
    def is_at(cls, address: str) -> bool:
        path = address.rstrip("/")
        return path.lower().endswith(cls.endings) and (is_remote(path) or os.path.isfile(path))


class StreamFile(ImportedFile):
    """A stream of Arrow, which has no footer: a source."""

    endings: ClassVar = STREAM.endings


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
    """The files of rows of a folder: those of the first of FORMATS that is there."""
    of_formats = ([name for name in files if name.lower().endswith(one.endings)] for one in FORMATS)
    return next(filter(None, of_formats), [])


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
