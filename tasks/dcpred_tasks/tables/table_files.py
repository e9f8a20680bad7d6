"""Files of one table: where they lie, and how they are opened."""

import io
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dcpred_tasks.errors import DamagedChunkError, DataError, DcpredError, ResourceError
from dcpred_tasks.storage.addresses import below, is_remote, local_path
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.computed_arrays import refuse_changed
from dcpred_tasks.storage.place import open_place

PARQUET, IPC = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
WILD = re.compile(r"[*?\[]")
IGNORED = ("_", ".")  # first letters of files that writers of folders add to the rows


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


def is_rows(name: str, endings: tuple[str, ...] = PARQUET) -> bool:
    """Whether the path of a file, below the folder of a table, is one of rows."""
    parts = name.split("/")
    return name.lower().endswith(endings) and not any(part.startswith(IGNORED) for part in parts)


def is_table(address: str | Path) -> bool:
    """Whether an address names a table that is read where it lies: a file by its ending, a pattern, or a
    folder on a disk.
    """
    path = local_path(address).lower().rstrip("/")
    if path.endswith(PARQUET + IPC):
        return True
    if WILD.search(path):
        return not path.endswith(".zarr")
    return not is_remote(path) and next(_local_names(local_path(address)), None) is not None


def _local_names(path: str) -> Iterator[str]:
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        for name in sorted(names):
            found = os.path.relpath(os.path.join(folder, name), path)
            if is_rows(found, PARQUET + IPC):
                yield found


def list_files(address: str) -> list[TableFile]:
    """The files of a table, by name. Raises DataError where there is none."""
    path = address.rstrip("/")
    wild = WILD.search(path)
    if wild is not None:
        base = path[: wild.start()].rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        matches = re.compile(_pattern(path[len(base) + 1 :] if base != "." else path)).fullmatch
        found = [file for file in _below(base) if matches(file.name)]
    elif is_remote(path):
        found = _one_object(path) or _below(path)
    elif os.path.isdir(path):
        found = _below(path)
    else:
        found = [local_file(os.path.basename(path), path)]
    if not found:
        raise DataError(f"Cannot read {address}: no .parquet file is there. Name a file or a folder of them.")
    # As an import: files of Arrow next to Parquet are not rows.
    return [file for file in found if is_rows(file.name)] or found


def _pattern(text: str) -> str:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", text)
    return "".join(parts.get(one) or (one if one.startswith("[") else re.escape(one)) for one in pieces)


def local_file(name: str, path: str) -> TableFile:
    try:
        state = os.stat(path)
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(
                f"Cannot read {path}: {error.strerror}. Get permission, then run again."
            ) from None
        raise DataError(f"Cannot read {path}: it does not exist. Check the path.") from None
    return TableFile(name, path, state.st_size, str(state.st_mtime_ns))


def _below(path: str) -> list[TableFile]:
    if not is_remote(path):
        return [local_file(name, os.path.join(path, name)) for name in _local_names(path)]
    listed = open_place(path).listing()
    return [
        TableFile(name, below(path, name), entry.size, entry.tag)
        for name, entry in sorted(listed.items())
        if is_rows(name, PARQUET + IPC)
    ]


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
