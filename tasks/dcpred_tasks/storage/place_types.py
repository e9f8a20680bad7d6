"""Where models, outputs and ledgers lie: a folder of a disk, or a prefix of an object store.

Commit records, manifest, plan, lease and model.json are read and written by these operations only: a run
keeps its guarantees on every kind of place. `PlaceContract` in tests/unit/test_place.py defines the contract.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol


class Stored(NamedTuple):
    """The content of a name."""

    data: bytes
    tag: str
    """Identifies the content among all that the name ever had: equal tags mean equal contents."""
    time: float
    """When it was written, in seconds since 1970 by the clock of the place."""


class Entry(NamedTuple):
    """A line of a listing."""

    size: int
    """Bytes."""
    tag: str
    """As in Stored; "" where a listing lacks it."""
    time: float
    """When it was written, as in Stored; any user may set it."""
    changed: float
    """When anything about it changed, which no user can set; on stores the same as `time`."""


class Place(Protocol):
    """Names with bytes. Names are relative, with `/` between their parts.

    A write that returns is permanent. A name has all of its bytes, or does not exist. OSErrors other than
    ResourceError may be transient: the caller retries (storage/store_requests.py).
    """

    # Capabilities, each asked where it is used.
    @property
    def folder(self) -> Path | None:
        """The folder of a disk, where a directory gets its name once it is complete; None without folders."""

    @property
    def links(self) -> Path | None:
        """The folder, where directories may have symbolic links; None where names have no links."""

    @property
    def has_tags(self) -> bool:
        """Whether a write returns the tag of a listing (`written_tag`), which a commit record then holds."""

    @property
    def many_at_once(self) -> bool:
        """Whether several requests at once are faster than one after the other, as over a network."""

    @property
    def lists(self) -> bool:
        """Whether names can be listed, which a server of files cannot."""

    @property
    def address(self) -> str:
        """Its address, valid in every process."""

    def read(self, name: str) -> Stored | None:
        """The content of a name, None where it does not exist."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a name that does not exist; returns False, and writes nothing, where it does. `data` must be
        unique to this attempt, or True may mean that another attempt wrote equal bytes.
        """

    def replace(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace the content with this tag. Returns the new tag; None, and writes nothing, where the content
        has another tag. `data` must differ from all earlier contents.
        """

    def guarded(
        self, name: str, seconds: float = 0.0, *, shared: bool = False
    ) -> AbstractContextManager[bool | None]:
        """Keep other processes from replacing a name within a `with` statement. Returns whether the system
        does so, until this process ends: False for a place without locks, None if another process has it.

        seconds  how long to wait for another process
        shared  only look whether another process has it, at once with others that look
        """

    def write(self, name: str, data: bytes) -> None:
        """Write over any content."""

    def fetch(self, name: str, file: BinaryIO) -> None:
        """Write the content of a name, which may exceed memory, to a file. Raises FileNotFoundError."""

    def send(self, name: str, path: Path) -> None:
        """Write the content of a file, which may exceed memory, over any content."""

    def remove(self, name: str) -> None:
        """Remove a name, if it exists."""

    def duplicate(self, name: str, new: str) -> None:
        """Give the content of a name a second name, unless that is taken: by a hard link where possible, else
        by a copy, which a store makes itself. Raises FileNotFoundError. A later write to one of the names
        does not change the other.
        """

    def listing(self, folder: str = "", splits: Sequence[str] = ()) -> dict[str, Entry]:
        """All names below a folder, relative to the place.

        splits  names in ascending order, that split the listing into parallel parts
        """

    def names(self, folder: str) -> set[str]:
        """The names directly in a folder, relative to it."""

    def present(self, names: Iterable[str]) -> set[str]:
        """Those of these names that exist. No content is read."""

    def is_there(self) -> bool:
        """Whether anything exists below this address."""

    def clock(self) -> float:
        """The current time, by the clock of the place."""

    def make_folder(self, name: str) -> None:
        """Make a folder, on a disk."""

    def written_tag(self, name: str) -> str:
        """The tag of the last write of this process to a name on a store; else ""."""
