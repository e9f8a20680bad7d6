"""Zarr's store of local files, for files of unknown origin."""

import asyncio
import stat
from pathlib import Path

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from dcpred_tasks.process import memory_bytes

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
