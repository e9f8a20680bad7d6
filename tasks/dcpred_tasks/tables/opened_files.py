"""Files of a table while they are read: how they are opened, and which errors that shows."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dcpred_tasks.errors import DamagedChunkError, DcpredError, ResourceError
from dcpred_tasks.storage.addresses import is_remote
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.computed_arrays import refuse_changed
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.footers import TableFile, local_file


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
