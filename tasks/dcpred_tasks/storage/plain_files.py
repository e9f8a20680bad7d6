"""Files of this machine, and a store of them."""

import asyncio
import errno
import os
import re
import stat
from pathlib import Path

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from dcpred_tasks.process import memory_bytes

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
    """Open a regular file, as the opener of `open`. Raises NoDocumentError for anything else, and never
    blocks.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)  # minus the umask
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoDocumentError("is not a regular file", path)
    return handle


def read_plain(path: str | Path, most: int = LARGEST_DOCUMENT) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file, and its state. Raises NoDocumentError for more than `most` bytes, and
    OSErrors as `open` does.
    """
    with open(path, "rb", opener=plain) as file:
        state = os.fstat(file.fileno())
        if state.st_size > most:
            raise NoDocumentError(f"has {state.st_size:,} bytes, which is more than {most:,}", path)
        return file.read(), state


# The limit of a chunk, or a whole shard.
LARGEST_FILE = memory_bytes() // 4


class PlainStore(LocalStore):
    """A LocalStore that raises ValueError for a file that is not regular, or that has more bytes than a
    quarter of the memory of this machine.
    """

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        await asyncio.to_thread(_check, self.root / key)
        return await super().get(key, prototype, byte_range)


def _check(path: Path) -> None:
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(state.st_mode):
        return
    if not stat.S_ISREG(state.st_mode):
        raise ValueError(f"{path} is not a regular file")
    if state.st_size > LARGEST_FILE:
        raise ValueError(f"{path} has {state.st_size:,} bytes, more than a quarter of this machine's memory")
