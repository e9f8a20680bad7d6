"""Zarr arrays on object stores: the Zarr store of an address."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from dcpred_tasks.errors import MissingChunkError
from dcpred_tasks.storage.addresses import Options, current_options, fills_missing_chunks, parse
from dcpred_tasks.storage.bucket import IN_MEMORY, PART_BYTES, Bucket, open_bucket
from dcpred_tasks.storage.opened_stores import open_store
from dcpred_tasks.storage.store_requests import ATTEMPTS, WAIT_SECONDS, BrokenReplyError, obstore, translate

T = TypeVar("T")

# Names that Zarr looks for to identify a node.
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
REMEMBERED = 100_000  # objects whose tags a process keeps; a task needs its own soon


class BucketArrays(ObjectStore[Any]):
    """Zarr's store over obstore, with our own errors and whole objects.

    Three faults stay distinct: a chunk that cannot be reached is a StoreError or a ResourceError, never a
    damaged one; a chunk of a missing bucket is not a missing chunk; and a missing chunk is an error, where
    the stores of Zarr read it as fill values.
    """

    def __init__(self, store: Any, *, read_only: bool = False, bucket: Bucket | None = None) -> None:
        super().__init__(store, read_only=read_only)
        self.fills = read_only and fills_missing_chunks()
        logging.getLogger("asyncio").addFilter(_is_news)
        self.bucket = bucket
        self.written: dict[str, tuple[int, str]] = {}
        """Bytes and tags of the objects that this process wrote last, by key."""

    def __str__(self) -> str:
        return self._at("")

    def __repr__(self) -> str:
        """Omits the representation of obstore, which ends the process where only the environment names an
        account.
        """
        return f"BucketArrays({str(self)!r})"

    def with_read_only(self, read_only: bool = False) -> "BucketArrays":
        found = BucketArrays(self.store, read_only=read_only, bucket=self.bucket)
        found.fills = self.fills and read_only
        return found

    def __getstate__(self) -> dict[Any, Any]:
        raise TypeError("stores cannot be sent to other processes; send addresses")

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        found = await self._looked(partial(super().get, key, prototype, byte_range), key)
        if found is None:
            await self._check_there(key)
            if key.rpartition("/")[2] not in METADATA and not self.fills:
                raise MissingChunkError(
                    f"Cannot read the chunk {self._at(key)}: it is missing, and would read as fill values."
                    " Restore it and run again."
                )
        return found

    async def exists(self, key: str) -> bool:
        there = await self._looked(partial(super().exists, key), key)
        if not there:
            await self._check_there(key)
        return there

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        data = value.to_bytes()
        put = obstore().put_async(self.store, key, data, use_multipart=len(data) > PART_BYTES)
        written = await self._translated(put, key)
        self.written[key] = len(data), (written.get("e_tag") or "").strip('"')
        if len(self.written) > REMEMBERED:
            del self.written[next(iter(self.written))]

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Do nothing. Zarr would make a group of every folder above a new array, up to the bucket. dcpred
        writes the metadata of its groups last.
        """

    def list_prefix(self, prefix: str) -> AsyncGenerator[str, None]:
        return self._listed(super().list_prefix, prefix)

    def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
        return self._listed(super().list_dir, prefix)

    async def _listed(
        self, names: Callable[[str], AsyncIterator[str]], prefix: str
    ) -> AsyncGenerator[str, None]:
        async def every() -> list[str]:
            return [name async for name in names(prefix)]

        for name in await self._looked(every, prefix):
            yield name

    async def _looked(self, call: Callable[[], Awaitable[T]], key: str) -> T:
        """Do what store_requests.looked does."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._translated(call(), key)
            except BrokenReplyError:
                await asyncio.sleep(WAIT_SECONDS)
        return await self._translated(call(), key)

    async def _translated(self, awaitable: Awaitable[T], key: str) -> T:
        try:
            return await awaitable
        except obstore().exceptions.BaseError as error:
            raise translate(error, self._at(key)) from None

    async def _check_there(self, key: str) -> None:
        """By a listing beside the key: permissions may not reach further."""
        if self.bucket is not None and not self.bucket.seen:
            folder = key.rpartition("/")[0]
            await self._looked(partial(self.bucket.look_async, folder), folder)

    def _at(self, key: str) -> str:
        root = str(self.bucket.where).rstrip("/") if self.bucket is not None else type(self.store).__name__
        return f"{root}/{key}".rstrip("/")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether asyncio may log an error: not of a request beside one that failed, which nothing awaits once
    the first error is raised.
    """
    error = record.exc_info[1] if record.exc_info else None
    of_request = isinstance(error, (FileNotFoundError, obstore().exceptions.BaseError))
    return not (of_request and "never retrieved" in record.getMessage())


def lists_nothing(node: zarr.Group | zarr.Array[Any]) -> bool:
    """Whether a node lies on a server without listings."""
    store = node.store_path.store
    return isinstance(store, BucketArrays) and store.bucket is not None and not store.bucket.lists


def arrays_store(address: str, *, read_only: bool) -> tuple[BucketArrays, str]:
    """The store of the bucket of an address, and the path in it."""
    where = parse(address)
    if where.scheme == "memory":
        root = open_bucket(f"memory://{where.bucket}")
        return BucketArrays(IN_MEMORY[where.bucket], read_only=read_only, bucket=root), where.path
    return _store(where.scheme, where.bucket, read_only, current_options()), where.path


@lru_cache(maxsize=64)
def _store(scheme: str, bucket: str, read_only: bool, options: Options) -> BucketArrays:
    root = open_bucket(f"{scheme}://{bucket}")
    return BucketArrays(open_store(scheme, bucket, options), read_only=read_only, bucket=root)
