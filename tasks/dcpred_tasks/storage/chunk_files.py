"""Chunks of arrays in local files, read and written directly: byte for byte as Zarr does, in half of its time
(DECISIONS.md).

Zarr passes each chunk through an event loop and threads, and copies it once more. Local stores of Zarr format
3 with chunks of whole rows, without shards, with zstd, crc32c or neither take the direct path; everything
else goes through Zarr, and so does damage: one module reports it.
"""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from google_crc32c import value as crc32c
from numcodecs.zstd import Zstd
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from dcpred_tasks.process import ReusedBuffer
from dcpred_tasks.storage.atomic_files import replace_bytes
from dcpred_tasks.storage.plain_files import plain
from dcpred_tasks.storage.plain_store import PlainStore
from dcpred_tasks.storage.safe_codecs import LONGEST_HEADER, frame_bytes

NATIVE_KINDS = "biuf"  # dtypes whose bytes in memory are those in a chunk
CRC_BYTES = 4
SMALL_BYTES = 2**16  # what a compressor may add to incompressible rows
KNOWN_STORES = (LocalStore, PlainStore)

_file_buffer = ReusedBuffer()


@dataclass(frozen=True)
class ChunkFiles:
    """The files of an array, each a chunk of `chunk_shape[0]` whole rows."""

    array: zarr.Array[Any]
    folder: Path
    chunk_shape: tuple[int, ...]
    zstd: Zstd | None
    has_crc: bool

    def read(self, start: int, rows: NDArray[Any]) -> bool:
        """Read rows start to start + len(rows) into `rows`, of the array's dtype, in C order. Returns False
        for a missing or damaged chunk; some of `rows` may then be overwritten.
        """
        size, stop = self.chunk_shape[0], start + len(rows)
        for first in range(start // size * size, stop, size):
            low, high = max(first, start), min(first + size, stop)
            part = rows[low - start : high - start]
            chunk = part if high - low == size else np.empty(self.chunk_shape, rows.dtype)
            try:
                data = _read_file(self.file(first // size), chunk.nbytes)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return False
            if data is None:
                return False
            if not self._decode(data, chunk):
                return False
            if chunk is not part:
                part[...] = chunk[low - first : high - first]
        return True

    def announce(self, start: int, stop: int) -> None:
        """Announce to the system that rows start to stop are read soon, which it may prefetch."""
        size = self.chunk_shape[0]
        for number in range(start // size, -(-min(stop, self.array.shape[0]) // size)):
            with suppress(OSError), open(self.file(number), "rb", 0, opener=plain) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def write(self, start: int, rows: NDArray[Any]) -> bool:
        """Write the chunk that begins with row `start`. Returns False, and writes nothing, unless `rows` are
        all of its rows.
        """
        size, n_rows = self.chunk_shape[0], self.array.shape[0]
        if start % size or len(rows) != min(size, n_rows - start):
            return False
        chunk = np.ascontiguousarray(rows, self.array.dtype)
        if len(rows) < size:
            chunk = np.full(self.chunk_shape, self.array.fill_value, self.array.dtype)
            chunk[: len(rows)] = rows
        data = chunk.tobytes() if self.zstd is None else self.zstd.encode(chunk)
        replace_bytes(self.file(start // size), data, _crc(data) if self.has_crc else b"")
        return True

    def file(self, number: int) -> Path:
        """The file of a chunk, which may not exist."""
        return self.folder / self.array.metadata.encode_chunk_key(
            (number, *(0 for _ in self.chunk_shape[1:]))
        )

    def _decode(self, data: NDArray[np.uint8], chunk: NDArray[Any]) -> bool:
        """Decode `data` into `chunk`. Returns whether it held the chunk."""
        if self.has_crc:
            data, crc = data[:-CRC_BYTES], data[-CRC_BYTES:]
            if _crc(data) != crc.tobytes():
                return False
        if self.zstd is None:
            if len(data) != chunk.nbytes:
                return False
            chunk[...] = data.view(chunk.dtype).reshape(chunk.shape)
            return True
        # A frame of fewer bytes would not fill the chunk.
        if frame_bytes(data[:LONGEST_HEADER].tobytes()) != chunk.nbytes:
            return False
        try:
            self.zstd.decode(data, out=chunk)
        except (RuntimeError, ValueError):
            return False
        return True


def chunk_files(array: zarr.Array[Any]) -> ChunkFiles | None:
    """The files of an array's chunks, or None where only Zarr can read and write them."""
    store, metadata, dtype = array.store_path.store, array.metadata, np.dtype(array.dtype)
    if (
        not isinstance(store, LocalStore)
        or type(store) not in KNOWN_STORES
        or metadata.zarr_format != 3
        or array.shards is not None
    ):
        return None
    if dtype.kind not in NATIVE_KINDS or not dtype.isnative or 0 in array.shape or array.ndim == 0:
        return None
    if array.chunks[1:] != array.shape[1:]:
        return None
    serializer, *more = metadata.codecs
    if not isinstance(serializer, BytesCodec):
        return None
    if dtype.itemsize > 1 and (serializer.endian is None or serializer.endian.value != sys.byteorder):
        return None
    zstd = None
    if more and isinstance(codec := more[0], ZstdCodec):
        zstd = Zstd(level=codec.level, checksum=codec.checksum)
        more = more[1:]
    has_crc = len(more) == 1 and isinstance(more[0], Crc32cCodec)
    if more and not has_crc:
        return None
    return ChunkFiles(array, store.root / array.store_path.path, array.chunks, zstd, has_crc)


def _read_file(path: Path, chunk_bytes: int) -> NDArray[np.uint8] | None:
    """The bytes of a file, in memory that this thread reuses for the next file; None for more bytes than a
    chunk can take.
    """
    with open(path, "rb", 0, opener=plain) as file:
        size = os.fstat(file.fileno()).st_size
        if size > chunk_bytes + chunk_bytes // 8 + SMALL_BYTES:
            return None
        room = _file_buffer(size)
        n = 0
        while n < len(room) and (more := file.readinto(room[n:].data)):
            n += more
    return room[:n]


def _crc(data: bytes | NDArray[np.uint8]) -> bytes:
    return int(crc32c(data)).to_bytes(CRC_BYTES, "little")
