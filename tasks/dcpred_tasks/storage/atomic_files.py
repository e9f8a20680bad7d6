"""Atomic files: JSON, groups of arrays, directories; and reads of files of unknown origin."""

import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError, PlanConflictError, ResourceError
from dcpred_tasks.process import CLOSED_ON_EXEC, NON_BLOCKING

# Errors of a file system without hard links.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# Something else has the name, or a name in the path.
OBSTACLES = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}
RESOURCE_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS),
    *OBSTACLES,
}
# Errors of .npz readers for changed or missing bytes.
DAMAGE = (BadZipFile, ValueError, TypeError, EOFError, NotImplementedError, RuntimeError, struct.error)


PARTIAL = ".partial-000000000000"  # a suffix as long as that of `partial_name`


def partial_name(path: Path) -> Path:
    """A name beside `path` that no other attempt uses. A dot hides a file of Parquet from readers of its
    folder.
    """
    hidden = "." if path.suffix == ".parquet" else ""
    return path.with_name(f"{hidden}{path.name}.partial-{secrets.token_hex(6)}")


@contextmanager
def resource_errors(path: str | Path) -> Iterator[None]:
    """Turn a full disk, a quota, a missing permission or an obstacle into a ResourceError with the path."""
    try:
        yield
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(f"Cannot write to {path}: {reason(error)}") from error
        raise


def reason(error: OSError) -> str:
    """The reason and the remedy."""
    so = error.strerror or str(error)
    if error.errno in OBSTACLES:
        where = f" ({error.filename})" if error.filename else ""
        return f"{so}{where}. Remove what is there or choose another path, then run again."
    if error.errno in RESOURCE_ERRNOS:
        return f"{so}. Free space or get permission, then run again."
    return f"{so}. {getattr(error, 'advice', 'Check the path and its storage, then run again.')}"


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; it is on disk when this returns.

    Guards against:

    1. Attempt A writes its bytes under a unique name (`partial_name`) and syncs them.
    2. Attempt B does the same under another name; a reader still sees the old file, or none.
    3. A renames its file to `path`, then B does. The last rename wins, and a reader always sees all of the
       old bytes, of those of A or of those of B.

    A process that dies before step 3 leaves a file under a partial name, which nothing reads.
    """
    with _whole(path, data) as partial:
        partial.replace(path)


def replace_bytes(path: Path, *parts: bytes) -> None:
    """Write a file atomically, and its directory where necessary, without waiting for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_name(path)
    try:
        with open(partial, "xb") as file:
            file.writelines(parts)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _whole(path: Path, data: bytes) -> Iterator[Path]:
    """The data on disk under a unique name beside `path`, to be renamed or linked before a sync."""
    partial = partial_name(path)
    with resource_errors(path):
        try:
            with open(partial, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield partial
            sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def create_bytes(path: Path, data: bytes) -> bool:
    """Write a file that does not exist yet; returns False, and writes nothing, where it does.

    Guards against:

    1. Attempts A and B both find that `path` is free.
    2. Each writes its bytes under a unique name.
    3. A links its file to `path`. A link, unlike a rename, fails where the name is taken.
    4. The link of B fails: B returns False, and the file of A stays.

    A file system without hard links only has the rename: two attempts that find `path` free at the same
    moment both return True, and the later file stays.
    """
    with _whole(path, data) as partial:
        try:
            publish_new(partial, path)
        except FileExistsError:
            return False
    return True


def is_free(path: Path) -> bool:
    """Whether a new directory may have this name: free, or empty but for files of the operating system."""
    if path.is_symlink() or not path.is_dir():
        return not os.path.lexists(path)
    return all(map(is_system_file, os.listdir(path)))


def publish_new(partial: Path, path: Path) -> None:
    """Give a complete file or directory the name `path`. Raises FileExistsError where that is taken.

    A link, unlike a rename, fails where the name is taken, and so does the rename of a directory to a
    directory that is not empty. Files of the operating system move to the new directory. `partial` may keep
    its name.
    """
    if partial.is_dir():
        try:
            for name in os.listdir(path) if path.is_dir() and is_free(path) else ():
                (path / name).rename(partial / name)
            partial.rename(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            raise
        return
    try:
        os.link(partial, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        partial.replace(path)


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, unless that is taken. Copies the file where the file system has no hard
    links, or allows no more for this file. Makes the directory of `target` where necessary. Does not wait for
    the disk. Raises FileNotFoundError.
    """
    with resource_errors(target):
        for _ in range(2):
            try:
                os.link(source, target)
                return
            except FileExistsError:
                return
            except FileNotFoundError:
                if target.parent.is_dir():
                    raise
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                replace_bytes(target, source.read_bytes())
                return
        raise FileNotFoundError(str(source))


def sync_directory(path: Path) -> None:
    """Sync a directory, which makes a rename permanent."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: Path) -> None:
    """Sync the file system of a directory; all file systems where the system cannot sync a single one."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with resource_errors(path):
            if syncfs(handle):
                raise OSError(number := ctypes.get_errno() or errno.EIO, os.strerror(number))
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_bytes(path, encoded(value))


def encoded(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file. Raises ValueError for values nested too deep."""
    try:
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except RecursionError:
        raise ValueError("a JSON object is nested too deep") from None


def read_json(path: Path) -> dict[str, Any]:
    return decoded(read_plain(path)[0], path)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def decoded(data: bytes, name: object) -> dict[str, Any]:
    """The object of a JSON file. Raises ValueError, with the name, for anything else."""
    try:
        value = json.loads(data, parse_constant=_no_number)
        if b"\\ud" in data.lower():  # a surrogate pair, or half of one, which is not text
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(f"{name} is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half of a surrogate pair") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} does not hold a JSON object")
    return value


def exactly_decoded(data: bytes, name: object) -> dict[str, Any]:
    """The value of a file of write_json. Raises ValueError where any byte differs from its output."""
    value = decoded(data, name)
    if data != encoded(value):
        raise ValueError(f"{name} was changed since it was written")
    return value


def read_own_json(path: Path) -> dict[str, Any]:
    """A JSON file of dcpred. Raises PlanConflictError for any other content."""
    try:
        return read_json(path)
    except (ValueError, IsADirectoryError):
        raise PlanConflictError(
            f"Cannot use {path}: dcpred did not write it. Remove it or choose another directory."
        ) from None


@dataclass(frozen=True)
class MemoryPath:
    """A path in the memory of this process, for arrays of a search in memory."""

    files: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict, repr=False)
    name: str = ""

    def __truediv__(self, name: str) -> "MemoryPath":
        return MemoryPath(self.files, f"{self.name}/{name}")

    @property
    def suffix(self) -> str:
        return PurePath(self.name).suffix

    def exists(self) -> bool:
        return self.name in self.files

    def mkdir(self, *, exist_ok: bool = False) -> None:
        """Do nothing: folders are only parts of names."""

    def unlink(self, *, missing_ok: bool = False) -> None:
        self.files.pop(self.name, None)


ArraysPath = Path | MemoryPath


def write_arrays(path: ArraysPath, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays (.npz without pickle) for the scratch directory of training."""
    if isinstance(path, MemoryPath):
        path.files[path.name] = dict(arrays)
        return
    partial = partial_name(path)
    with resource_errors(path):
        try:
            with open(partial, "xb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def read_arrays(path: ArraysPath) -> dict[str, NDArray[Any]]:
    """The arrays of a file of write_arrays. Raises PlanConflictError where it is damaged."""
    if isinstance(path, MemoryPath):
        return dict(path.files[path.name])
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            return dict(data)
    except DAMAGE:
        raise PlanConflictError(f"Cannot read {path}: it is damaged. Remove it and run again.") from None


def is_whole(path: ArraysPath) -> bool:
    """Whether a file of write_arrays is complete: a power failure may keep a name without all bytes."""
    if isinstance(path, MemoryPath):
        return path.exists()
    try:
        with ZipFile(path) as file:
            return file.testzip() is None  # the first member with a wrong checksum
    except (*DAMAGE, OSError):
        return False


def check_new_name(path: Path, longest: str = "") -> None:
    """Raise DataError or ResourceError where a file or directory of this name, or one beside it, cannot be
    made. Leaves nothing behind.

    longest  the longest ending of a name beside it
    """
    path = path.absolute()
    above = [path, *path.parents]
    existing = next(place for place in above if os.path.lexists(place))
    if existing.is_symlink() and not existing.exists():
        raise DataError(
            f"Cannot write to {path}: {existing} is a link to {os.readlink(existing)}, which does not exist."
            " Remove the link or choose another path."
        )
    if existing == path:
        if path.is_dir():
            return
        existing = path.parent  # A file is replaced by another one in the same directory.
    if not existing.is_dir():
        raise DataError(f"Cannot write to {path}: {existing} is a file. Choose another path.")
    names = [os.fsencode(place.name) for place in above[1 : above.index(existing)]]
    length = max(map(len, [os.fsencode(f"{path.name}{longest}"), *names]))
    probe = existing / partial_name(Path("probe")).name.ljust(length, "x")
    with resource_errors(path):
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(f"{path}{longest}")


@contextmanager
def new_directory(path: Path, *, alike: bool = True) -> Iterator[Path]:
    """A directory to fill, which gets its name once all of its content is written.

    alike  whether concurrent writers write the same. Else raises DataError where another one finished first

    Guards against:

    1. Attempts A and B each fill a directory under a unique name.
    2. A renames its directory to `path`.
    3. The rename of B fails, because it cannot replace a directory that holds files. The directory of A
       stays, and that of B is removed.
    """
    partial = partial_name(path)
    with resource_errors(path):
        partial.mkdir(parents=True)
        try:
            yield partial
            try:
                publish_new(partial, path)
            except FileExistsError:
                if not alike:
                    raise DataError(
                        f"Cannot write to {path}: another process created it meanwhile. Choose another path."
                    ) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)


# -- Files of unknown origin ---------------------------------------------------------------------------------

# Only regular files of limited size are read: a pipe would block forever, a device has no end, and a
# sparse file may claim any size. Reads follow links, which users set to large data elsewhere; writes never
# follow one.

# Plans, records and metadata; a manifest of 100,000 blocks has 20 MB.
LARGEST_DOCUMENT = 2**28
# What file systems, file managers, servers of files and editors leave in folders, by names of files and
# folders.
SYSTEM_FILES = re.compile(
    r"\._.*|\.DS_Store|\.AppleDouble|\.apdisk|\.Spotlight-V100|\.fseventsd|\.Trashes|\.TemporaryItems"
    r"|\.nfs[0-9a-f]{16,}|\.fuse_hidden[0-9a-f]+|\.Trash-\d+|\.directory|\.snapshots?|~snapshot|lost\+found"
    r"|@eaDir|#recycle|#snapshot|Thumbs\.db|ehthumbs\.db|desktop\.ini|\$RECYCLE\.BIN"
    r"|System Volume Information|\..*\.sw[a-p]|.*~|#.*#|\.#.*",
    re.IGNORECASE,
)


def is_system_file(name: str) -> bool:
    """Whether a path, with `/` between names, is a file of the operating system or an editor, or lies in such
    a folder. No user of dcpred made it, and it returns after removal.
    """
    return any(SYSTEM_FILES.fullmatch(part) for part in name.split("/"))


class NoDocumentError(IsADirectoryError):
    """The name is not a readable regular file."""

    def __init__(self, why: str, path: str | Path) -> None:
        super().__init__(errno.EISDIR, why, str(path))


def plain(path: str | Path, flags: int) -> int:
    """Open a regular file, as the opener of `open`, without blocking. Raises NoDocumentError for others."""
    handle = os.open(path, flags | NON_BLOCKING | CLOSED_ON_EXEC, 0o666)  # minus the umask
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoDocumentError("is not a regular file", path)
    return handle


def read_plain(path: str | Path, most: int = LARGEST_DOCUMENT) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file, and its state. Raises NoDocumentError beyond `most` bytes, OSErrors."""
    with open(path, "rb", opener=plain) as file:
        state = os.fstat(file.fileno())
        if state.st_size > most:
            raise NoDocumentError(f"has {state.st_size:,} bytes, which is more than {most:,}", path)
        return file.read(), state
