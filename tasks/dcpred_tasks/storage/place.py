"""Where models, outputs and ledgers lie: a folder of a disk, or a prefix of an object store.

Commit records, manifest, plan, lease and model.json are read and written by these operations and nothing
else, so that a run keeps its promises wherever its output lies. `PlaceContract` in tests/unit/test_place.py
is what every kind of place must do.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.storage.addresses import absolute, is_remote, local_path
from dcpred_tasks.storage.atomic_files import (
    create_bytes,
    decoded,
    encoded,
    link_file,
    partial_name,
    resource_errors,
    write_bytes,
)
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.plain_files import read_plain


class Stored(NamedTuple):
    """What stands under a name."""

    data: bytes
    tag: str
    """Which of all contents that ever stood there: equal tags, equal contents."""
    time: float
    """When it was written, in seconds since 1970 by the place's own clock."""


class Entry(NamedTuple):
    """A line of a listing."""

    size: int
    """Bytes."""
    tag: str
    """As of Stored; "" where a listing does not tell."""
    time: float
    """When it was written, as of Stored; anybody may set it."""
    changed: float
    """When anything about it was changed, which nobody can set; on stores the same."""


class Place(Protocol):
    """Names with bytes. Names are relative, with `/` between their parts.

    What is acknowledged lasts. A name has all of its bytes, or is not there. OSErrors that are no
    ResourceError may pass: the caller tries again (storage/retry.py).
    """

    @property
    def address(self) -> str:
        """Where any process finds it."""

    def read(self, name: str) -> Stored | None:
        """What stands there, None where nothing does."""

    def create(self, name: str, data: bytes) -> bool:
        """Whether these bytes have got the name, which was free; else nothing is written. `data` must hold
        something that no other attempt writes, or the answer means only that equal bytes stand there.
        """

    def replace(self, name: str, data: bytes, tag: str) -> str | None:
        """Write over the contents with this tag: the new tag, or None, and nothing is written, where others
        stand there. `data` must be other bytes than any before.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write, whatever stands there."""

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""

    def duplicate(self, name: str, new: str) -> None:
        """Give what stands under a name a second one, unless something has that: a hard link where there are
        any, else a copy, made by the store where it is one. Raises FileNotFoundError. Writing over one of the
        names, which is done by renaming, leaves the other.
        """

    def listing(self, folder: str = "", splits: Sequence[str] = ()) -> dict[str, Entry]:
        """Everything below a folder, by its name relative to the place.

        splits  names in ascending order, between which parts may be listed side by side
        """

    def names(self, folder: str) -> set[str]:
        """Names directly in a folder, without the folder's."""

    def present(self, names: Iterable[str]) -> set[str]:
        """Those of these names under which something stands. Nothing of it is read."""

    @property
    def lists(self) -> bool:
        """Whether names can be listed: an ordinary server of files cannot."""

    def is_there(self) -> bool:
        """Whether anything stands below this address."""

    def clock(self) -> float:
        """Now, by the clock that times are told by."""

    def make_folder(self, name: str) -> None:
        """Make a folder, where they are made."""

    def written_tag(self, name: str) -> str:
        """The tag of what this process wrote there last, on a store; else ""."""


def read_document(place: Place, name: str) -> dict[str, Any] | None:
    """A JSON object, None where nothing stands there. Raises ValueError where it is none."""
    standing = place.read(name)
    return None if standing is None else decoded(standing.data, f"{place.address}/{name}")


def read_own_document(place: Place, name: str) -> dict[str, Any] | None:
    """The same of what only dcpred should have written. Raises PlanConflictError where somebody else did."""
    try:
        return read_document(place, name)
    except (ValueError, IsADirectoryError):
        raise PlanConflictError(
            f"{place.address}/{name} is not what dcpred writes there; remove it, or name another directory"
        ) from None


def read_sealed_document(place: Place, name: str) -> dict[str, Any] | None:
    """A JSON object; None where nothing stands there, or its checksum is not that of the rest."""
    try:
        value = read_document(place, name)
        told = {key: one for key, one in (value or {}).items() if key != "checksum"}
        return value if value is not None and value.get("checksum") == digest_json(told) else None
    except (ValueError, IsADirectoryError):  # digest_json has no infinity, which 1e999 is read as
        return None


def write_document(place: Place, name: str, value: Mapping[str, Any]) -> None:
    place.write(name, encoded(value))


def open_place(address: str | Path) -> Place:
    """The place at an address. Raises DataError for one that is none, SettingsError where the package for
    stores is missing.
    """
    if not is_remote(address):
        return Folder(Path(os.path.abspath(local_path(address))))
    bucket: Callable[[str], Place] = import_module("dcpred_tasks.storage.bucket").open_bucket
    return bucket(absolute(address))


class Folder:
    """A folder of a disk that all processes see."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
        """Guarded by a lock of a file beside it, which lasts as long as the folder: a file that is removed
        while somebody waits for its lock would be locked by two.
        """
        path = self.path / name
        with resource_errors(path), _locked(path.with_name(f".{path.name}.guard")):
            standing = self.read(name)
            if standing is None or standing.tag != tag:
                return None
            write_bytes(path, data)
            return _tag(path.stat())

    def write(self, name: str, data: bytes) -> None:
        write_bytes(self.path / name, data)

    def remove(self, name: str) -> None:
        path = self.path / name
        with resource_errors(path):
            path.unlink(missing_ok=True)

    def duplicate(self, name: str, new: str) -> None:
        link_file(self.path / name, self.path / new)

    def listing(self, folder: str = "", splits: Sequence[str] = ()) -> dict[str, Entry]:
        """A file that goes while it is listed is left out."""
        found: dict[str, Entry] = {}
        try:
            entries = list(os.scandir(self.path / folder))
        except (FileNotFoundError, NotADirectoryError):
            return found
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir():
                    found |= self.listing(name)
                else:
                    state = entry.stat()
                    found[name] = Entry(state.st_size, _tag(state), state.st_mtime, state.st_ctime)
            except FileNotFoundError:  # the file is gone since, or a link to nothing
                continue
        return found

    def names(self, folder: str) -> set[str]:
        try:
            return {entry.name for entry in os.scandir(self.path / folder)}
        except FileNotFoundError:
            return set()

    def present(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if (self.path / name).exists()}

    @property
    def lists(self) -> bool:
        return True

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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)  # less what the umask takes
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
