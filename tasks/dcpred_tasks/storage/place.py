"""Opens the place at an address, reads and writes documents there; and the places that are folders."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dcpred_tasks.annotations import from_document
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.process import NOT_FOLLOWED, lock_file
from dcpred_tasks.storage.addresses import absolute, is_remote, local_path
from dcpred_tasks.storage.atomic_files import (
    create_bytes,
    decoded,
    encoded,
    link_file,
    partial_name,
    plain,
    read_plain,
    resource_errors,
    sync_directory,
    write_bytes,
)
from dcpred_tasks.storage.bucket import open_bucket
from dcpred_tasks.storage.digests import file_digest, is_sealed
from dcpred_tasks.storage.place_types import Entry, Place, Stored

T = TypeVar("T")
GROUP_FILES = ("zarr.json", ".zgroup")  # metadata of a group; a group has one of them
# Answers of a file system without locks. Other errors of a lock are errors of the storage.
NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}
LOOK_SECONDS = 0.02  # between two attempts to lock a file


@contextmanager
def local_file(place: Place, name: str) -> Iterator[Path | None]:
    """The content of a name, which may exceed memory, as a file on this disk; None where there is none."""
    if place.folder is not None:
        yield path if (path := place.folder / name).is_file() else None
        return
    with tempfile.TemporaryDirectory(prefix="dcpred-file-") as folder:
        path = Path(folder) / "file"
        try:
            with path.open("wb") as file:
                place.fetch(name, file)
        except FileNotFoundError:
            yield None
            return
        yield path


def stored_digest(place: Place, name: str) -> str | None:
    """The digest of the content of a name, which may exceed memory; None where it does not exist."""
    with local_file(place, name) as path:
        return None if path is None else file_digest(path)


def read_document(place: Place, name: str) -> dict[str, Any] | None:
    """A JSON object, None where it does not exist. Raises ValueError for anything else."""
    stored = place.read(name)
    return None if stored is None else decoded(stored.data, f"{place.address}/{name}")


def read_own_document(place: Place, name: str) -> dict[str, Any] | None:
    """A JSON object of dcpred, None where it does not exist. Raises PlanConflictError for other content."""
    try:
        return read_document(place, name)
    except (ValueError, IsADirectoryError):
        raise PlanConflictError(
            f"Cannot use {place.address}/{name}: dcpred did not write it. Remove it or choose another"
            " directory."
        ) from None


def read_sealed_document(place: Place, name: str) -> dict[str, Any] | None:
    """A JSON object; None where it does not exist, or its checksum is wrong."""
    try:
        value = read_document(place, name)
        return value if value is not None and is_sealed(value) else None
    except (ValueError, IsADirectoryError):  # 1e999 parses as infinity, which digest_json refuses
        return None


def read_sealed(kind: type[T], place: Place, name: str) -> T | None:
    """The dataclass of a JSON object with a checksum; None where it does not exist or is damaged."""
    try:
        return from_document(kind, read_sealed_document(place, name))
    except ValueError:
        return None


def write_document(place: Place, name: str, value: Mapping[str, Any]) -> None:
    place.write(name, encoded(value))


def open_place(address: str | Path) -> Place:
    """The place at an address. Raises DataError, or SettingsError where the package for stores is missing."""
    if not is_remote(address):
        return Folder(Path(os.path.abspath(local_path(address))))
    return open_bucket(absolute(address))


def is_zarr(address: str | Path) -> bool:
    """Whether an address has the metadata of a Zarr group or array."""
    return bool(open_place(address).present([*GROUP_FILES, ".zarray"]))


class Folder:
    """A folder of a disk that all processes see."""

    has_tags = False
    many_at_once = False
    lists = True

    def __init__(self, path: Path) -> None:
        self.path = self.folder = self.links = path
        self._guarded: set[str] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def address(self) -> str:
        return str(self.path)

    def read(self, name: str) -> Stored | None:
        try:
            data, state = read_plain(self.path / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stored(data, _tag(state), state.st_mtime)

    def create(self, name: str, data: bytes) -> bool:
        return create_bytes(self.path / name, data)

    def replace(self, name: str, data: bytes, tag: str) -> str | None:
        path = self.path / name
        guard = nullcontext() if name in self._guarded else self._locked(name, inf)
        with guard, resource_errors(path):
            stored = self.read(name)
            if stored is None or stored.tag != tag:
                return None
            write_bytes(path, data)
            return _tag(path.stat())

    @contextmanager
    def guarded(self, name: str, seconds: float = 0.0, *, shared: bool = False) -> Iterator[bool | None]:
        """Guarded by the lock of a file beside it. Threads of this folder may then replace the object."""
        with self._locked(name, seconds, shared=shared) as locked:
            replaces = locked is not None and not shared
            if replaces:
                self._guarded.add(name)
            try:
                yield locked
            finally:
                if replaces:
                    self._guarded.discard(name)

    @contextmanager
    def _locked(self, name: str, seconds: float, *, shared: bool = False) -> Iterator[bool | None]:
        """With the lock, which also keeps other threads out that take it."""
        path = self.path / name
        with resource_errors(path):
            if path.is_symlink() and not shared:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            file, locked = _locked(path.with_name(f".{path.name}.guard"), seconds, shared)
        try:
            yield locked
        finally:
            if file is not None:
                os.close(file)

    def write(self, name: str, data: bytes) -> None:
        write_bytes(self.path / name, data)

    def fetch(self, name: str, file: BinaryIO) -> None:
        with (self.path / name).open("rb") as source:
            shutil.copyfileobj(source, file)

    def send(self, name: str, path: Path) -> None:
        target = self.path / name
        copy = partial_name(target)
        with resource_errors(target):
            try:
                with path.open("rb") as source, copy.open("xb") as written:
                    shutil.copyfileobj(source, written)
                    written.flush()
                    os.fsync(written.fileno())
                os.replace(copy, target)
                sync_directory(target.parent)
            finally:
                copy.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        path = self.path / name
        with resource_errors(path):
            path.unlink(missing_ok=True)

    def duplicate(self, name: str, new: str) -> None:
        link_file(self.path / name, self.path / new)

    def listing(self, folder: str = "", splits: Sequence[str] = ()) -> dict[str, Entry]:
        """Omits a file that is removed during the listing."""
        listed: dict[str, Entry] = {}
        try:
            entries = list(os.scandir(self.path / folder))
        except (FileNotFoundError, NotADirectoryError):
            return listed
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir():
                    listed |= self.listing(name)
                else:
                    state = entry.stat()
                    listed[name] = Entry(state.st_size, _tag(state), state.st_mtime, state.st_ctime)
            except FileNotFoundError:  # the file was removed, or is a dangling link
                continue
        return listed

    def names(self, folder: str) -> set[str]:
        try:
            return {entry.name for entry in os.scandir(self.path / folder)}
        except FileNotFoundError:
            return set()

    def present(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if (self.path / name).exists()}

    def is_there(self) -> bool:
        return self.path.exists()

    def clock(self) -> float:
        probe = partial_name(self.path / "clock")
        with resource_errors(probe):
            try:
                probe.touch()
                return probe.stat().st_mtime
            finally:
                probe.unlink(missing_ok=True)

    def written_tag(self, name: str) -> str:
        return ""

    def make_folder(self, name: str) -> None:
        with resource_errors(self.path / name):
            (self.path / name).mkdir(parents=True, exist_ok=True)


def _tag(state: os.stat_result) -> str:
    return f"{state.st_ino}-{state.st_size}-{state.st_mtime_ns}"


def _locked(path: Path, seconds: float, shared: bool) -> tuple[int | None, bool | None]:
    """An open file, and what `Place.guarded` returns. It is made anew where it was removed while this process
    waited: else two could have a lock.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            # A link is not followed.
            file = plain(path, NOT_FOLLOWED | (os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT))
        except (FileNotFoundError, PermissionError):
            if shared:
                return None, False
            raise
        try:
            locked = lock_file(file, shared=shared)
            if locked and os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file, True
        except OSError as error:
            os.close(file)
            if error.errno in NO_LOCKS:
                return None, False
            raise
        os.close(file)
        if not locked:
            if time.monotonic() >= until:
                return None, None
            time.sleep(LOOK_SECONDS)
