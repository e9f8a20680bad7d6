"""Access to Zarr, in one place: how arrays are found, checked, read and created.

HAZARDS of Zarr 3 that this module stands between: a missing chunk reads as the fill value; writing a chunk
equal to the fill value deletes it unless `write_empty_chunks` is set by whoever opened the array; a bit flip
passes the default codecs; a group with a copy of its arrays' metadata (`consolidate`) shows that copy, old as
it may be. Here such a copy is written and not read.
"""

import itertools
import json
import math
import os
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ShardingCodecIndexLocation, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.errors import BaseZarrError
from zarr.storage import LocalStore, StorePath

from dcpred_tasks.errors import DamagedChunkError, DataError
from dcpred_tasks.storage.chunk_files import chunk_files
from dcpred_tasks.storage.decoding_errors import DECODING_ERRORS
from dcpred_tasks.storage.digests import digest

ZSTD_LEVEL = 1
DATA_DIMENSIONS = ("sample", "feature")  # X has both; targets and weights have the first
MISSING_INNER_CHUNK = np.uint64(2**64 - 1)
# What Zarr raises where metadata are missing or damaged.
NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
NO_METADATA = (ImportError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
READ_ERRORS = (BaseZarrError, *NO_FILE, *NO_METADATA)
PROBED_CHUNKS = 16
WRITE_ALL = {"array.write_empty_chunks": True}
Node = TypeVar("Node", zarr.Group, zarr.Array[Any], zarr.Group | zarr.Array[Any])


def local_path(address: str | Path) -> str:
    """The address without `file://`, whose store takes a path in Zarr 3.1 that is not atomic."""
    return str(address).removeprefix("file://")


def absolute(address: str | Path) -> str:
    """The address as any process would find it."""
    path = local_path(address)
    return path if "://" in path else os.path.realpath(path)


def open_group(address: str | Path) -> zarr.Group:
    """An existing group, read-only."""
    path = local_path(address)
    try:
        return _sound(zarr.open_group(path, mode="r", use_consolidated=False))
    except READ_ERRORS as error:
        raise DataError(_no_zarr(path, "group", error)) from None


def open_array(address: str | Path) -> zarr.Array[Any]:
    """An existing array, read-only."""
    path = local_path(address)
    try:
        known = _known(path, read_only=True)
        return _sound(zarr.open_array(path, mode="r") if known is None else known)
    except READ_ERRORS as error:
        raise DataError(_no_zarr(path, "array", error)) from None


def _known(path: str, *, read_only: bool) -> zarr.Array[Any] | None:
    """The array whose metadata lie in a local file, or None where Zarr has to look."""
    try:
        return _of_metadata(path, read_only, (Path(path) / "zarr.json").read_bytes())
    except (OSError, BaseZarrError, *NO_METADATA):
        return None


@lru_cache(maxsize=64)
def _of_metadata(path: str, read_only: bool, metadata: bytes) -> zarr.Array[Any]:
    """The array that its metadata tell of. A task opens four arrays, which takes Zarr 0.3 ms each; and tasks
    of one run open the same ones.
    """
    with zarr.config.set({} if read_only else WRITE_ALL):
        return zarr.Array.from_dict(StorePath(LocalStore(path, read_only=read_only)), json.loads(metadata))


def _sound(node: Node) -> Node:
    """Zarr takes attributes that are no object as they are."""
    if not isinstance(node.metadata.attributes, dict):
        raise TypeError("attributes are no JSON object")
    return node


def _no_zarr(path: str, kind: str, error: Exception) -> str:
    local = Path(path)
    if "://" in path:
        so = f"could not be opened ({error})"
    elif not local.exists():
        so = "does not exist"
    else:
        so = "is a file" if local.is_file() else f"holds no Zarr {kind}"
    return (
        f"a Zarr {kind} was asked for at {path}, but it {so}; make one with `dcpred import SOURCE DEST.zarr`"
    )


def open_any(address: str | Path) -> zarr.Group | zarr.Array[Any]:
    """An existing group or array, read-only."""
    path = local_path(address)
    try:
        return _sound(zarr.open(path, mode="r", use_consolidated=False))
    except READ_ERRORS as error:
        raise DataError(_no_zarr(path, "group", error)) from None


def arrays_of(group: zarr.Group) -> list[tuple[str, zarr.Array[Any]]]:
    """The arrays of a group, by name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr warns of other files in the directory
            return [(name, _sound(array)) for name, array in sorted(group.arrays(), key=lambda item: item[0])]
    except READ_ERRORS as error:
        path = local_path(str(group.store_path))
        raise DataError(
            f"the arrays in {path} were to be read, but metadata are damaged ({error}); restore them"
        ) from None


def find_array(address: str | Path, name: str) -> str:
    """The address of array `name` of a data set. For X, `address` may also be that of the array itself."""
    path, node = local_path(address), open_any(address)
    if isinstance(node, zarr.Array):
        if name == "X":
            return path
        raise DataError(
            f"array {name} was asked for in {path}, but that is a single array; pass the group that holds"
            " both"
        )
    if name not in node or not isinstance(node[name], zarr.Array):
        held = ", ".join(sorted(node.array_keys())) or "nothing"
        raise DataError(
            f"array {name} was asked for in {path}, but the group holds {held}; rename it or name another"
        )
    return f"{path.rstrip('/')}/{name}"


def chunk_rows(array: zarr.Array[Any]) -> int:
    """Rows of the smallest part that can be read alone: a chunk, or an inner chunk of a shard."""
    return int(array.chunks[0])


def read_rows(
    array: zarr.Array[Any], start: int, stop: int, room: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Rows start to stop. Raises DamagedChunkError where their chunks are damaged.

    room  rows of the array's dtype, at least as many as are read, in C order: memory that they may be
          read into, which the caller may use again once it is done with them
    """
    files = chunk_files(array)
    if files is not None:
        n = max(min(stop, array.shape[0]) - start, 0)
        rows = np.empty((n, *array.shape[1:]), array.dtype) if room is None else room[:n]
        if files.read(start, rows):
            return rows
    try:
        return np.asarray(array[start:stop])
    except DECODING_ERRORS as error:
        where = _first_damaged(array, start, stop)
        raise DamagedChunkError(
            f"rows {where[0]:,} to {where[1]:,} of {local_path(str(array.store_path))} were to be read, but"
            f" their chunk is damaged ({error}); restore it and run again"
        ) from error


def announce_rows(array: zarr.Array[Any], start: int, stop: int) -> None:
    """Tell the system that rows are read soon, where their chunks are files that it may fetch meanwhile."""
    files = chunk_files(array)
    if files is not None and hasattr(os, "posix_fadvise"):
        files.announce(start, stop)


def _first_damaged(array: zarr.Array[Any], start: int, stop: int) -> tuple[int, int]:
    """The rows of the first chunk that cannot be read, as far as one alone can be told."""
    size = chunk_rows(array)
    for first in range(start // size * size, stop, size):
        try:
            array[first : min(first + size, array.shape[0])]
        except Exception:
            return first, min(first + size, array.shape[0])
    return start, stop


def missing_chunks(array: zarr.Array[Any], start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Names of chunks, and of inner chunks of shards, that have no bytes in the store and would read as fill
    values.

    All chunks are looked up in one listing of the store; those of some rows (start, stop) one by one.
    """
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    stored = sync(_keys(array, prefix)) if stop is None else None
    grid = array.shards or array.chunks
    spans = [range(math.ceil(n / size)) for n, size in zip(array.shape, grid, strict=True)]
    if stop is not None:
        spans[0] = range(start // grid[0], math.ceil(stop / grid[0]))
    for coordinates in itertools.product(*spans):
        key = prefix + array.metadata.encode_chunk_key(coordinates)
        if not (_exists(array, key) if stored is None else key in stored):
            yield key
        elif array.shards is not None:
            yield from _missing_inner_chunks(array, key, coordinates)


def _exists(array: zarr.Array[Any], key: str) -> bool:
    store = array.store_path.store
    return (store.root / key).exists() if isinstance(store, LocalStore) else bool(sync(store.exists(key)))


def check_complete(address: str, array: zarr.Array[Any]) -> None:
    """Raise DataError where a chunk is missing."""
    missing = next(missing_chunks(array), None)
    if missing is not None:
        raise DataError(
            f"chunk {missing} of {address} is missing, and would read as fill values; restore it, or write"
            " the array again with write_empty_chunks=True if its rows are meant to be empty"
        )


def fingerprint(array: zarr.Array[Any]) -> str:
    """A digest that changes when an array is written again, without reading all of it: its metadata and the
    names of its chunks, with their sizes and times of writing on a local store, and with the bytes of a few
    of them elsewhere.
    """
    base = array.store_path.store
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    keys = sorted(sync(_keys(array, prefix)))
    parts = [json.dumps(array.metadata.to_dict(), sort_keys=True, default=str).encode()]
    if isinstance(base, LocalStore):
        for key in keys:
            if key != f"{prefix}zarr.json":
                state = (base.root / key).stat()
                parts.append(f"{key.removeprefix(prefix)} {state.st_size} {state.st_mtime_ns}\n".encode())
        return digest(*parts)
    parts.append("\n".join(key.removeprefix(prefix) for key in keys).encode())
    for number in np.unique(np.linspace(0, max(len(keys) - 1, 0), PROBED_CHUNKS).astype(int)) if keys else []:
        data = sync(base.get(keys[number], default_buffer_prototype()))
        parts.append(b"" if data is None else data.to_bytes())
    return digest(*parts)


async def _keys(array: zarr.Array[Any], prefix: str) -> set[str]:
    return {key async for key in array.store_path.store.list_prefix(prefix)}


def _missing_inner_chunks(array: zarr.Array[Any], key: str, coordinates: tuple[int, ...]) -> Iterator[str]:
    """Read the index of a shard: offset and length of each inner chunk, or 2⁶⁴ − 1 twice."""
    if array.metadata.zarr_format == 2:
        return  # only version 3 has shards
    codec = array.metadata.codecs[0]
    if not isinstance(codec, ShardingCodec) or array.shards is None:
        return
    if [type(c) for c in codec.index_codecs] != [BytesCodec, Crc32cCodec]:
        return
    per_shard = [s // c for s, c in zip(array.shards, array.chunks, strict=True)]
    size = 16 * math.prod(per_shard)
    at_end = codec.index_location == ShardingCodecIndexLocation.end
    request = SuffixByteRequest(size + 4) if at_end else RangeByteRequest(0, size + 4)
    data = sync(array.store_path.store.get(key, default_buffer_prototype(), request))
    if data is None or len(data) != size + 4:
        yield f"{key} (truncated shard)"
        return
    index = np.frombuffer(data.to_bytes()[:size], "<u8").reshape(*per_shard, 2)
    for inner in zip(*np.nonzero(index[..., 0] == MISSING_INNER_CHUNK), strict=True):
        first = [
            c * s + i * n for c, s, i, n in zip(coordinates, array.shards, inner, array.chunks, strict=True)
        ]
        if all(f < n for f, n in zip(first, array.shape, strict=True)):
            yield f"{key} (inner chunk {'.'.join(str(int(i)) for i in inner)})"


def memory_group(attributes: dict[str, Any] | None = None) -> zarr.Group:
    """A new group that no file holds."""
    return zarr.create_group(zarr.storage.MemoryStore(), attributes=attributes or {})


def metadata_file(node: zarr.Group | zarr.Array[Any]) -> bytes:
    """What the zarr.json of a group or an array holds."""
    data = sync(node.store_path.store.get(f"{node.path}/zarr.json".lstrip("/"), default_buffer_prototype()))
    if data is None:
        raise FileNotFoundError(f"{node.store_path}/zarr.json")
    return data.to_bytes()


def create_group(address: str | Path, attributes: dict[str, Any] | None = None) -> zarr.Group:
    """A new group; the address must be free."""
    return zarr.create_group(local_path(address), attributes=attributes or {})


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | type,
    chunk_rows: int,
    *,
    shard_rows: int | None = None,
    fill_value: Any = 0,
    attributes: dict[str, Any] | None = None,
    dimensions: tuple[str, ...] | None = None,
) -> zarr.Array[Any]:
    """A new array chunked by rows, open for writing, that keeps every chunk and detects a flipped bit.

    dimensions  their names, without which xarray opens no array; a name has one length in a group
    """
    chunk_rows = max(chunk_rows, 1)
    rest = tuple(max(n, 1) for n in shape[1:])
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(chunk_rows, *rest),
        shards=None if shard_rows is None else (max(shard_rows, 1), *rest),
        compressors=[ZstdCodec(level=ZSTD_LEVEL), Crc32cCodec()],
        fill_value=fill_value,
        attributes=attributes,
        dimension_names=dimensions,
        config={"write_empty_chunks": True},
    )


def consolidate(group: zarr.Group) -> zarr.Group:
    """Write a copy of the metadata of its arrays into those of a group whose arrays never change: xarray
    warns of a group without one. Not for data sets: Zarr appends at the length that the copy tells, so that a
    second append overwrites the first.
    """
    with warnings.catch_warnings():
        # Zarr warns that other implementations may not know such a copy; they pass over it.
        warnings.simplefilter("ignore")
        return zarr.consolidate_metadata(group.store_path)


def open_consolidated(address: str | Path) -> zarr.Group | None:
    """A group as the copy in it tells, read-only; None where it holds no copy."""
    path = local_path(address)
    try:
        group = _sound(zarr.open_group(path, mode="r"))
    except READ_ERRORS as error:
        raise DataError(_no_zarr(path, "group", error)) from None
    return None if group.metadata.consolidated_metadata is None else group


def open_output(address: str | Path) -> zarr.Array[Any]:
    """An existing array to write into. `write_empty_chunks` is not stored with an array: it is set here
    again. Raises DataError where Zarr does not take it.
    """
    path = local_path(address)
    with zarr.config.set(WRITE_ALL):
        known = _known(path, read_only=False)
        array = zarr.open_array(path, mode="r+") if known is None else known
    if not array.config.write_empty_chunks:
        raise DataError(
            f"{address} was opened without write_empty_chunks; this Zarr version is not supported"
        )
    return array


def write_rows(array: zarr.Array[Any], start: int, rows: NDArray[Any]) -> None:
    """Write rows into an array that `open_output` opened, from row `start` on."""
    files = chunk_files(array)
    if files is None or not files.write(start, rows):
        array[start : start + len(rows)] = rows


def stored_size(array: zarr.Array[Any], row: int) -> int:
    """Bytes of the first chunk of the row's chunks in a local store; 0 where it is not there."""
    base, grid = array.store_path.store, array.shards or array.chunks
    key = array.metadata.encode_chunk_key((row // grid[0], *(0 for _ in array.shape[1:])))
    try:
        return (
            int((Path(base.root) / array.store_path.path / key).stat().st_size)
            if isinstance(base, LocalStore)
            else 0
        )
    except FileNotFoundError:
        return 0


def array_address(array: zarr.Array[Any]) -> str | None:
    """Where another process would find this array, or None if it lives in memory."""
    if isinstance(array.store_path.store, zarr.storage.MemoryStore):
        return None
    return local_path(str(array.store_path))
