"""Arrays that are read from the first row to the last in slices of any length, each chunk decoded once.

Columns are read together, some rows at a time, but are stored separately in chunks of their own length. A
chunk of 10⁶ rows next to 100 columns would otherwise be decoded for each of 48 slices. One chunk of each
array stays: in memory up to HELD_BYTES together, else in a folder for scratch files.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.datasets.containers import NamedArray
from dcpred_tasks.storage.atomic_files import resource_errors

HELD_BYTES = 2**30


class HeldChunks:
    """An array of which whole chunks are read, and the last one is held."""

    def __init__(self, array: NamedArray, chunk_rows: int, buffer: NDArray[Any] | None) -> None:
        self.array, self.size, self.buffer = array, chunk_rows, buffer
        self.shape, self.dtype, self.attributes = array.shape, array.dtype, array.attributes
        self.is_index, self.chunk_rows = array.is_index, None
        self.first = self.last = 0
        self.rows: NDArray[Any] | None = None

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop = rows.start or 0, min(rows.stop, self.shape[0])
        parts = []
        while start < stop:
            if self.rows is None or not self.first <= start < self.last:
                self._read(start, stop)
            assert self.rows is not None
            end = min(stop, self.last)
            part = self.rows[start - self.first : end - self.first]
            parts.append(part if self.buffer is None else part.copy())  # the next chunk takes the buffer
            start = end
        if not parts:
            return self.array[slice(start, start)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read(self, start: int, stop: int) -> None:
        """All chunks with rows from start to stop, except a last one that they do not fill."""
        self.rows = None
        self.first = start // self.size * self.size
        whole = self.first + self.size if self.buffer is not None else stop // self.size * self.size
        self.last = min(max(self.first + self.size, whole), self.shape[0])
        rows = self.array[slice(self.first, self.last)]
        if self.buffer is None:
            self.rows = rows
        else:
            self.buffer[: len(rows)] = rows
            self.rows = self.buffer


@contextmanager
def held(arrays: Mapping[str, NamedArray], scratch: Path) -> Iterator[dict[str, NamedArray]]:
    """The same arrays by name, for reading in order."""
    sizes = {name: _chunk_bytes(array) for name, array in arrays.items() if array.chunk_rows}
    in_memory = sum(sizes.values()) <= HELD_BYTES
    with ExitStack() as stack:
        found = dict(arrays)
        for name, size in sizes.items():
            array, rows = arrays[name], min(arrays[name].chunk_rows or 1, max(arrays[name].shape[0], 1))
            fits = in_memory or size <= HELD_BYTES // len(sizes) or array.dtype.kind not in "biufcSUmM"
            buffer = None if fits else stack.enter_context(_buffer(array, rows, scratch))
            found[name] = HeldChunks(array, rows, buffer)
        yield found


def _chunk_bytes(array: NamedArray) -> int:
    rows = min(array.chunk_rows or 0, array.shape[0])
    return rows * int(np.prod(array.shape[1:])) * np.dtype(array.dtype).itemsize


@contextmanager
def _buffer(array: NamedArray, rows: int, scratch: Path) -> Iterator[NDArray[Any]]:
    """Memory for the rows of a chunk, in an unnamed file."""
    dtype = np.dtype(array.dtype).newbyteorder("=")
    shape = rows, *array.shape[1:]
    with resource_errors(scratch), tempfile.TemporaryFile(dir=scratch) as file:
        # A write to a mapped file beyond the free space of the disk kills the process.
        os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * dtype.itemsize)
        yield np.memmap(file, dtype, "r+", shape=shape)
