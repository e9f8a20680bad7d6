"""Files that appear whole or not at all: JSON, groups of arrays, directories."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import PlanConflictError, ResourceError

# of file systems without hard links
NO_LINKS = {
    errno.EPERM,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EXDEV,
}
# something else has the name
OBSTACLES = {
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}
RESOURCE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    *OBSTACLES,
}


def partial_name(path: Path) -> Path:
    """A name beside `path` that no other attempt uses."""
    return path.with_name(f"{path.name}.partial-{secrets.token_hex(6)}")


@contextmanager
def resource_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, a quota, a missing permission or something in the way into a ResourceError that names
    the place.
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
    return f"{so}; see to the path and its storage, then run again"


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file by name and rename; it is on disk when this returns."""
    with _whole(path, data) as partial:
        partial.replace(path)


@contextmanager
def _whole(path: Path, data: bytes) -> Iterator[Path]:
    """The data on disk under a name beside `path`, to be given that name; what stands there afterwards
    lasts.
    """
    partial = partial_name(path)
    with resource_errors(path):
        try:
            with open(partial, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield partial
            _sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def create_json(path: Path, value: Mapping[str, Any]) -> bool:
    """Write a file that is not there yet; False, and nothing written, where it is."""
    with _whole(path, _encoded(value)) as partial:
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if path.exists():
                return False
            partial.replace(path)
    return True


def _sync_directory(path: Path) -> None:
    """A renamed file lasts when its directory is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_bytes(path, _encoded(value))


def _encoded(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def read_exact_json(path: Path) -> dict[str, Any]:
    """A file of write_json. Raises ValueError where a byte of it is another than write_json would write, even
    one that does not change what is read (a digit that is rounded away, e and E).
    """
    value, raw = read_json(path), path.read_bytes()
    if raw != _encoded(value):
        raise ValueError(f"{path} holds other bytes than were written")
    return value


def read_own_json(path: Path) -> dict[str, Any]:
    """A file that only dcpred should have written. Raises PlanConflictError where somebody else did."""
    try:
        return read_json(path)
    except (ValueError, IsADirectoryError):
        raise PlanConflictError(
            f"{path} is not what dcpred writes there; remove it, or name another directory"
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """A file of arrays (.npz without pickle), for the scratch directory of training."""
    partial = partial_name(path)
    with resource_errors(path):
        try:
            with open(partial, "xb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory to fill, which gets its name only when everything in it is written.

    Where another attempt got there first, its result stays and this one is dropped: both hold the same.
    """
    partial = partial_name(path)
    with resource_errors(path):
        partial.mkdir(parents=True)
        try:
            yield partial
            try:
                partial.rename(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
