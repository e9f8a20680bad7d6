"""Arrays in object stores, and attributes of arrays."""

import asyncio
import base64
import logging
import math
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from dcpred_tasks.errors import DataError, MissingChunkError
from dcpred_tasks.input_kinds import EXACT_LIMIT
from dcpred_tasks.storage.addresses import Options, current_options, fills_missing_chunks, parse
from dcpred_tasks.storage.bucket import IN_MEMORY, PART_BYTES, Bucket, open_bucket
from dcpred_tasks.storage.store_requests import (
    ATTEMPTS,
    WAIT_SECONDS,
    BrokenReplyError,
    obstore,
    open_store,
    translate,
)

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
        """Omits that of obstore, which ends the process where only the environment names an account."""
        return f"BucketArrays({str(self)!r})"

    def with_read_only(self, read_only: bool = False) -> "BucketArrays":
        store = BucketArrays(self.store, read_only=read_only, bucket=self.bucket)
        store.fills = self.fills and read_only
        return store

    def __getstate__(self) -> dict[Any, Any]:
        raise TypeError("stores cannot be sent to other processes; send addresses")

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        content = await self._looked(partial(super().get, key, prototype, byte_range), key)
        if content is None:
            await self._check_there(key)
            if key.rpartition("/")[2] not in METADATA and not self.fills:
                raise MissingChunkError(
                    f"Cannot read the chunk {self._at(key)}: it is missing, and would read as fill values."
                    " Restore it and run again."
                )
        return content

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
    """Whether asyncio may log an error: not of a request beside one that failed, which nothing awaits."""
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


MARKERS = ("_FillValue", "missing_value")
PACKING = ("scale_factor", "add_offset")
UNSIGNED = "_Unsigned"
LONGEST_NAME = 60  # characters of a value in a message


@dataclass(frozen=True)
class Encoding:
    """How the stored values of one array become values."""

    stored: np.dtype[Any]
    """The dtype of stored values, once `_Unsigned` is applied."""
    markers: tuple[Any, ...] = ()
    """Stored values that mark a missing value, besides NaN; texts in an array of text."""
    scale: float = 1.0
    offset: float = 0.0
    reinterpreted: bool = False
    """Whether `_Unsigned` changes the dtype."""

    @cached_property
    def is_plain(self) -> bool:
        """Whether stored values are the values."""
        return not (self.markers or self.is_packed or self.reinterpreted)

    @property
    def is_packed(self) -> bool:
        return (self.scale, self.offset) != (1.0, 0.0)

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """The dtype of values that come with a mask of missing ones."""
        return np.dtype(np.float64) if self.is_packed else self.stored

    @property
    def filled_dtype(self) -> np.dtype[Any]:
        """The dtype of values where NaN marks a missing value."""
        if not self.markers or self.value_dtype.kind == "f":
            return self.value_dtype
        return np.dtype(np.float32 if self.stored.itemsize <= 2 else np.float64)

    def decode(self, raw: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The values, and a mask of missing ones.

        raw  of any shape, numbers as they are stored
        """
        raw = np.ascontiguousarray(raw).astype(raw.dtype.newbyteorder("="), copy=False)
        if self.reinterpreted:
            raw = raw.view(self.stored)
        missing: NDArray[np.bool_] = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
        for marker in self.markers:
            missing |= raw == marker
        return (raw.astype(np.float64) * self.scale + self.offset if self.is_packed else raw), missing

    def filled(self, raw: NDArray[Any], where: str) -> NDArray[Any]:
        """The values, with NaN for missing ones. Raises DataError for an integer that float64 would round."""
        values, missing = self.decode(raw)
        if not self.markers:
            return values
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            large = values[~missing & ((values > EXACT_LIMIT) | (values < -EXACT_LIMIT))]
            if large.size:
                raise DataError(
                    f"Cannot decode {where}: it holds {large.flat[0]}, which float64 would round, beside"
                    " missing values. Store smaller numbers, or numbers without missing values."
                )
        filled = values.astype(self.filled_dtype)
        filled[missing] = np.nan
        return filled


def encoding_of(attributes: Mapping[str, Any], dtype: np.dtype[Any], where: str) -> Encoding:
    """The encoding of an array of this dtype. Raises DataError for a scale that is not a number."""
    if dtype.kind in "OTSU":
        texts = [_text(marker) for key in MARKERS for marker in _items(attributes.get(key))]
        return Encoding(dtype, tuple(dict.fromkeys(text for text in texts if text)))
    if dtype.kind not in "iuf":
        return Encoding(dtype)
    dtype = dtype.newbyteorder("=")
    stored = _signed_as_declared(dtype, attributes.get(UNSIGNED))
    given = [number for key in MARKERS for number in _numbers(attributes.get(key))]
    markers = (_as_stored(number, dtype, stored) for number in given)
    scale, offset = (_factor(attributes, key, where) for key in PACKING)
    return Encoding(
        stored,
        tuple(dict.fromkeys(marker for marker in markers if marker is not None)),
        1.0 if scale is None else scale,
        offset or 0.0,
        reinterpreted=stored != dtype,
    )


def _signed_as_declared(dtype: np.dtype[Any], unsigned: Any) -> np.dtype[Any]:
    declared = str(_text(unsigned)).lower()
    if dtype.kind == "i" and declared == "true":
        return np.dtype(f"u{dtype.itemsize}")
    if dtype.kind == "u" and declared == "false":
        return np.dtype(f"i{dtype.itemsize}")
    return dtype


def _as_stored(number: Any, dtype: np.dtype[Any], stored: np.dtype[Any]) -> Any:
    """A marker as a value of the stored dtype; None where no stored value can equal it.

    NumPy compares a float32 with a float64 as float64: without the cast −999.9 would not be found.
    """
    if stored.kind == "f":
        with np.errstate(over="ignore"):
            marker = stored.type(number)
        return None if np.isnan(marker) else marker
    if not math.isfinite(number) or int(number) != number:
        return None
    whole = int(number)
    for kind in (stored, dtype):  # the marker of `_Unsigned` integers is written either way
        if np.iinfo(kind).min <= whole <= np.iinfo(kind).max:
            return np.array(whole, kind).view(stored)[()]
    return None


def _factor(attributes: Mapping[str, Any], key: str, where: str) -> float | None:
    value = attributes.get(key)
    if value is None:
        return None
    numbers = _numbers(value)
    if len(numbers) != 1 or not math.isfinite(numbers[0]):
        raise DataError(
            f"Cannot decode {where}: its attribute {key} is {str(value)[:LONGEST_NAME]!r}, not a number."
            " Correct the attribute, or remove it."
        )
    return float(numbers[0])


def _numbers(value: Any) -> list[Any]:
    """The numbers of an attribute: xarray keeps a float in Zarr format 3 as eight bytes in base 64."""
    numbers = []
    for item in _items(value):
        text = _text(item)
        number = item if text is None else _parsed(text)
        if isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool):
            numbers.append(number)
    return numbers


def _parsed(text: str) -> float | int | None:
    try:
        packed = base64.b64decode(text, validate=True)
    except ValueError:
        packed = b""
    if len(packed) == 8:
        return float(struct.unpack("<d", packed)[0])
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return None


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return list(value.ravel()) if isinstance(value, np.ndarray) else [value]


def _text(value: Any) -> str | None:
    """A text of any kind; None for what is not a text."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str) else None


def portable(marker: Any) -> Any:
    """A marker as an attribute in JSON: xarray keeps floats in Zarr format 3 as their bytes in base 64."""
    if isinstance(marker, float | np.floating):
        return base64.b64encode(struct.pack("<d", float(marker))).decode()
    return int(marker) if isinstance(marker, np.integer) else str(marker)


def names_of_encoding(attributes: Mapping[str, Any]) -> str:
    """The attributes that encode the values, for a message."""
    return ", ".join(key for key in (*PACKING, *MARKERS, UNSIGNED) if key in attributes)
