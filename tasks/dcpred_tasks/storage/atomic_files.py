"""Files that appear whole or not at all: JSON, groups of arrays, directories."""

import ctypes
import errno
import json
import os
import secrets
import shutil
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
from dcpred_tasks.storage.plain_files import is_system_file, read_plain

# What a file system without hard links answers when one is asked for.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# Something that is there already has the name, or a name in the path.
OBSTACLES = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}
RESOURCE_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS),
    *OBSTACLES,
}
# What readers of .npz files raise where bytes were changed or are not there.
DAMAGE = (BadZipFile, ValueError, TypeError, EOFError, NotImplementedError, RuntimeError, struct.error)


PARTIAL = ".partial-000000000000"  # what `partial_name` adds to a name, by its length


def partial_name(path: Path) -> Path:
    """A name beside `path` that no other attempt uses."""
    return path.with_name(f"{path.name}.partial-{secrets.token_hex(6)}")


@contextmanager
def resource_errors(path: str | Path) -> Iterator[None]:
    """Turn a full disk, a quota, a missing permission or something in the way into a ResourceError that
    names the place.
    """
    try:
        yield
    except OSError as error:
        if error.errno in RESOURCE_ERRNOS:
            raise ResourceError(f"writing to {path} failed: {reason(error)}") from error
        raise


def reason(error: OSError) -> str:
    """What is so, and what to do."""
    so = error.strerror or str(error)
    if error.errno in OBSTACLES:
        where = f" ({error.filename})" if error.filename else ""
        return f"{so}{where}; remove what is there or name another place, then run again"
    if error.errno in RESOURCE_ERRNOS:
        return f"{so}; make room or get permission, then run again"
    return f"{so}; {getattr(error, 'advice', 'see to the path and its storage, then run again')}"


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that is whole whenever its name is there, and on disk when this returns.

    Guarded against:

    1. Attempt A writes its bytes under a name of its own (`partial_name`) and asks the disk to keep them.
    2. Attempt B does the same under another name; a reader still sees the old file, or none.
    3. A renames its file to `path`, then B does. The one who renames last stays, and a reader at any moment
       sees all of the old bytes, of A's or of B's.

    A process that dies before 3 leaves a file under a partial name, and nothing reads that.
    """
    with _whole(path, data) as partial:
        partial.replace(path)


def replace_bytes(path: Path, *parts: bytes) -> None:
    """Write a file that is whole whenever its name is there; its directory is made where there is none. A
    machine that loses power may lose it: unlike `write_bytes`, this does not wait for the disk.
    """
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
    """The data on disk under a name of its own beside `path`, for the caller to rename or link to `path`.
    The directory is on disk afterwards, so that the new name lasts.
    """
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
    """Write a file that is not there yet; False, and nothing written, where it is.

    Guarded against:

    1. Attempts A and B both find that `path` is free.
    2. Each writes its bytes under a name of its own.
    3. A links its file to `path`. A link, unlike a rename, fails where the name is taken.
    4. B's link fails: B returns False, and the file that A made stays as it is.

    A file system without hard links has only the rename: two attempts that find `path` free at the same
    moment both return True there, and the file of the later one stays.
    """
    with _whole(path, data) as partial:
        try:
            publish_new(partial, path)
        except FileExistsError:
            return False
    return True


def is_free(path: Path) -> bool:
    """Whether a new directory may have this name: nothing has it, or a directory that is empty but for files
    of the operating system.
    """
    if path.is_symlink() or not path.is_dir():
        return not os.path.lexists(path)
    return all(map(is_system_file, os.listdir(path)))


def publish_new(partial: Path, path: Path) -> None:
    """Give a whole file or directory the name `path`. Raises FileExistsError where that is taken.

    A link, unlike a rename, fails where the name is taken, and so does the rename of a directory, unless an
    empty one has the name. Files of the operating system move to the new directory. `partial` may keep its
    own name, too.
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
    """Give a file a second name, unless that is taken; where the file system has no hard links, or the file
    has as many as it may, a whole copy. The directory of `target` is made where there is none. This does not
    wait for the disk. Raises FileNotFoundError.
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
    """A renamed file lasts when its directory is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: Path) -> None:
    """Have everything on disk that was written to the file system of a directory; where the system cannot do
    that for one of them, to all file systems.
    """
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
    """The bytes of a JSON file. Raises ValueError for what is nested too deep."""
    try:
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except RecursionError:
        raise ValueError("a JSON object is nested too deep") from None


def read_json(path: Path) -> dict[str, Any]:
    return decoded(read_plain(path)[0], path)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def decoded(data: bytes, name: object) -> dict[str, Any]:
    """What a JSON file holds. Raises ValueError, which names it, where that is no object."""
    try:
        value = json.loads(data, parse_constant=_no_number)
        if b"\\ud" in data.lower():  # a character, or one half of it, which no text can hold
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(f"{name} is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds one half of a character") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds no JSON object")
    return value


def exactly_decoded(data: bytes, name: object) -> dict[str, Any]:
    """The value of a file of write_json. Raises ValueError where a byte differs from what write_json would
    write, even one that does not change what is read (a digit that is rounded away, e and E).
    """
    value = decoded(data, name)
    if data != encoded(value):
        raise ValueError(f"{name} holds other bytes than were written")
    return value


def read_own_json(path: Path) -> dict[str, Any]:
    """A file that only dcpred should have written. Raises PlanConflictError where somebody else did."""
    try:
        return read_json(path)
    except (ValueError, IsADirectoryError):
        raise PlanConflictError(
            f"{path} is not what dcpred writes there; remove it, or name another directory"
        ) from None


@dataclass(frozen=True)
class MemoryPath:
    """A path in the memory of this process, for arrays of a search that must not come to a disk."""

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
        """Folders are but parts of names."""

    def unlink(self, *, missing_ok: bool = False) -> None:
        self.files.pop(self.name, None)


ArraysPath = Path | MemoryPath


def write_arrays(path: ArraysPath, arrays: Mapping[str, NDArray[Any]]) -> None:
    """A file of arrays (.npz without pickle), for the scratch directory of training."""
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
        raise PlanConflictError(
            f"{path} was to be read, but it is damaged; remove it, and run again"
        ) from None


def is_whole(path: ArraysPath) -> bool:
    """Whether a file of write_arrays holds the bytes that were written: a machine that loses power may keep
    the name of a file and not all of it.
    """
    if isinstance(path, MemoryPath):
        return path.exists()
    try:
        with ZipFile(path) as file:
            return file.testzip() is None  # the first member with another checksum
    except (*DAMAGE, OSError):
        return False


def check_new_name(path: Path, longest: str = "") -> None:
    """Raise DataError or ResourceError where no file or directory of this name, nor one beside it, can be
    made, though the work that it is for would come first. Nothing is left there.

    longest  the longest ending that a name beside it has
    """
    path = path.absolute()
    above = [path, *path.parents]
    standing = next(place for place in above if os.path.lexists(place))
    if standing.is_symlink() and not standing.exists():
        raise DataError(
            f"Cannot write to {path}: {standing} is a link to {os.readlink(standing)}, which does not exist."
            " Remove the link or choose another path."
        )
    if standing == path:
        if path.is_dir():
            return
        standing = path.parent  # A file is replaced by one beside it.
    if not standing.is_dir():
        raise DataError(f"Cannot write to {path}: {standing} is a file. Choose another path.")
    names = [os.fsencode(place.name) for place in above[1 : above.index(standing)]]
    length = max(map(len, [os.fsencode(f"{path.name}{longest}"), *names]))
    probe = standing / partial_name(Path("probe")).name.ljust(length, "x")
    with resource_errors(path):
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(f"{path}{longest}")


@contextmanager
def new_directory(path: Path, *, alike: bool = True) -> Iterator[Path]:
    """A directory to fill, which gets its name only when everything in it is written.

    alike  whether whoever else writes there writes the same. Else raises DataError where somebody did

    Guarded against:

    1. Attempts A and B each fill a directory under a name of its own.
    2. A renames its directory to `path`.
    3. B's rename fails, since a directory that holds files is not replaced. What A wrote stays, and B's is
       removed.
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
