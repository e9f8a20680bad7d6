"""Arrays whose chunks are computed from something else, a table for example: a read-only store of Zarr.

Everything that reads an array of Zarr reads these, too. `read_rows` takes rows from them without a chunk.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, StorePath

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import TableAddress


class ComputedStore(Store):
    """Arrays of one group, each with whole rows in a chunk.

    address   of the group
    identity  a digest that changes with the values of any array
    sizes     the same without times of writing: other values may have the same
    group     the metadata of the group and its arrays, in memory
    """

    def __init__(self, address: TableAddress, identity: str, sizes: str, group: zarr.Group) -> None:
        super().__init__(read_only=True)
        self._is_open = True
        self.address, self.identity, self.sizes = address, identity, sizes
        self.metadata = group.store_path.store
        self.arrays: Mapping[str, zarr.Array[Any]] = dict(group.arrays())

    @abstractmethod
    def rows(self, name: str, start: int, stop: int, room: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows start to stop of an array.

        room  an optional buffer, as for `read_rows`
        """

    @abstractmethod
    def form(self, names: Collection[str]) -> str:
        """What decides the values of these arrays in every row, besides their metadata."""

    @abstractmethod
    def fingerprint(self, start: int, stop: int, names: Collection[str]) -> str:
        """A digest that changes with the values of these arrays in these rows."""

    def unknown_categories(self, X: NDArray[Any], start: int) -> list[Any]:
        """The categories that no schema knows, of rows that were read from row `start` on."""
        raise NotImplementedError

    def changes(self, start: int, stop: int) -> list[int]:
        """When anything about each file of these rows changed, in nanoseconds since 1970 by the clock of its
        disk, which no user can set; none where tags of a store identify the content.
        """
        raise NotImplementedError

    @property
    def unit_rows(self) -> int:
        """Rows that are decoded together: blocks of whole units decode none twice."""
        raise NotImplementedError

    @property
    def unit_bytes(self) -> int:
        """Maximum memory of decoded rows besides the rows that `rows` returns."""
        raise NotImplementedError

    def check_identity(self, planned: str) -> None:
        """Raise DataError, with the name of the changed file, unless the identity is the planned one."""
        raise NotImplementedError

    # -- The interface of Zarr -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComputedStore):
            return False
        return (self.address, self.identity) == (other.address, other.identity)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.address)

    supports_writes = supports_deletes = supports_partial_writes = False
    supports_listing = True

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        chunk = self._chunk(key)
        store = self.metadata if chunk is None else await self._written(*chunk)
        return await store.get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._chunk(key) is not None or await self.metadata.exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        async for key in self.metadata.list():
            yield key
        for name, array in self.arrays.items():
            for number in range(-(-array.shape[0] // array.chunks[0])):
                yield _key(name, array, number)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self.metadata.list_dir(prefix)

    def _chunk(self, key: str) -> tuple[str, int] | None:
        """The array of a chunk, and its first row."""
        name, _, rest = key.partition("/c/")
        array, number = self.arrays.get(name), rest.partition("/")[0]
        if array is None or not number.isdecimal() or key != _key(name, array, int(number)):
            return None
        start = int(number) * array.chunks[0]
        return (name, start) if start < array.shape[0] else None

    async def _written(self, name: str, start: int) -> MemoryStore:
        """A store with the chunk as Zarr writes it, within Zarr's own loop: a waiting thread may be one that
        the loop may need.
        """
        array, written = self.arrays[name], MemoryStore()
        stop = min(start + array.chunks[0], array.shape[0])
        rows = await asyncio.to_thread(self.rows, name, start, stop)
        copy = zarr.Array.from_dict(StorePath(written, name), array.metadata.to_dict())
        await copy.with_config({"write_empty_chunks": True}).async_array.setitem(slice(start, stop), rows)
        return written


def _key(name: str, array: zarr.Array[Any], number: int) -> str:
    return f"{name}/{array.metadata.encode_chunk_key((number, *(0 for _ in array.shape[1:])))}"


def computed(array: zarr.Array[Any]) -> ComputedStore | None:
    """The store of a computed array; None for a stored one."""
    store = array.store_path.store
    return store if isinstance(store, ComputedStore) else None


def check_room(room: NDArray[Any] | None, n: int, like: zarr.Array[Any]) -> NDArray[Any]:
    """Memory for n rows of an array: `room`, or new."""
    if room is not None and room.dtype == like.dtype and len(room) >= n:
        return room[:n]
    return np.empty((n, *like.shape[1:]), like.dtype)


def refuse_changed(name: str) -> DataError:
    """The refusal of a file that changed after the run was planned."""
    return DataError(
        f"Cannot read {name}: it changed while it was read. Run again when nothing writes to it."
    )
