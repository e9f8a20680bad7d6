"""Zarr arrays, opened and read with checks."""

import asyncio
import gzip
import json
import logging
import lzma
import os
import shlex
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import zarr
from google_crc32c import value as crc32c
from numcodecs.zstd import Zstd
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfigParams
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.errors import BaseZarrError
from zarr.storage import LocalStore, StorePath

from dcpred_tasks.errors import DamagedChunkError, DataError, DcpredError, MissingChunkError
from dcpred_tasks.process import ReusedBuffer, memory_bytes
from dcpred_tasks.storage.addresses import (
    Options,
    absolute,
    as_arguments,
    below,
    current_options,
    is_remote,
    local_path,
)
from dcpred_tasks.storage.atomic_files import plain, read_plain, replace_bytes
from dcpred_tasks.storage.computed_arrays import ComputedStore, computed
from dcpred_tasks.storage.object_arrays import (
    BucketArrays,
    Encoding,
    arrays_store,
    encoding_of,
    lists_nothing,
    names_of_encoding,
)
from dcpred_tasks.storage.safe_codecs import LONGEST_HEADER, frame_bytes, safe
from dcpred_tasks.tables.sources import refuse_table

# Errors of Zarr, and of compressors, also those of the standard library.
DECODING_ERRORS: tuple[type[Exception], ...] = (
    *(RuntimeError, ValueError, TypeError, BaseZarrError, EOFError),
    *(zlib.error, lzma.LZMAError, gzip.BadGzipFile),
)


NATIVE_KINDS = "biuf"  # dtypes whose bytes in memory are those in a chunk
CRC_BYTES = 4
SMALL_BYTES = 2**16  # what a compressor may add to incompressible rows

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
        """Write the chunk from row `start`. Returns False, and writes nothing, unless `rows` fill it."""
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
    """The bytes of a file, in memory that this thread reuses; None for more than a chunk can take."""
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


ZSTD_LEVEL = 1
DATA_DIMENSIONS = ("sample", "feature")  # X has both; targets and weights have the first
# Errors of Zarr for missing or damaged metadata.
NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
NO_METADATA = (ImportError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
READ_ERRORS = (BaseZarrError, *NO_FILE, *NO_METADATA)
LONGEST_REASON = 120  # characters of an error of Zarr
SPARSE_PARTS = ("data", "indices", "indptr")
DIMENSIONS_2 = "_ARRAY_DIMENSIONS"  # attribute of xarray for names of dimensions in format 2
MARKER = "_FillValue"
WRITE_ALL: ArrayConfigParams = {"write_empty_chunks": True}


def _is_news(record: logging.LogRecord) -> bool:
    """Whether asyncio may log an error: not of another array of a group, once one is damaged."""
    message = record.getMessage()
    return not ("never retrieved" in message and f"{os.sep}zarr{os.sep}" in message)


logging.getLogger("asyncio").addFilter(_is_news)
Node = TypeVar("Node", zarr.Group, zarr.Array[Any], zarr.Group | zarr.Array[Any])


@contextmanager
def opening(path: str, kind: str) -> Iterator[None]:
    """Translate errors of Zarr. Errors of an address pass unchanged."""
    try:
        yield
    except DcpredError:
        raise
    except READ_ERRORS as error:
        raise DataError(_no_zarr(path, kind, error)) from None


def open_stored_group(address: str | Path) -> zarr.Group:
    """An existing group of Zarr, read-only."""
    path = local_path(address)
    with opening(path, "group"):
        return sound(zarr.open_group(_source(path), mode="r", use_consolidated=False))


def open_stored_array(address: str | Path, of: str = "") -> zarr.Array[Any]:
    """An existing array of Zarr, read-only, whose stored values are its values. Raises DataError for packed
    ones.

    of  the run whose task opens it: its arrays do not change, and a process reads their metadata once
    """
    path = local_path(address)
    with opening(path, "array"):
        if of and is_remote(path):
            return _opened_once(path, of, current_options(), read_only=True)
        known = _known(path, read_only=True)
        array = sound(zarr.open_array(_source(path), mode="r")) if known is None else known
        check_plain(array)
        return array


def _source(path: str, *, read_only: bool = True) -> StorePath:
    """The store and path that Zarr opens."""
    if not is_remote(path):
        return StorePath(PlainStore(os.path.abspath(path), read_only=read_only))
    store, below = arrays_store(absolute(path), read_only=read_only)
    return StorePath(store, below)


@lru_cache(maxsize=64)
def _opened_once(path: str, of: str, options: Options, *, read_only: bool) -> zarr.Array[Any]:
    mode: Literal["r", "r+"] = "r" if read_only else "r+"
    array = sound(zarr.open_array(_source(path, read_only=read_only), mode=mode, zarr_format=3))
    return array if read_only else array.with_config(WRITE_ALL)


def _known(path: str, *, read_only: bool) -> zarr.Array[Any] | None:
    """The array whose metadata lie in a local file, or None where only Zarr can open it."""
    if is_remote(path):
        return None
    try:
        return _of_metadata(os.path.abspath(path), read_only, read_plain(Path(path) / "zarr.json")[0])
    except (OSError, BaseZarrError, *NO_METADATA):
        return None


@lru_cache(maxsize=256)
def _of_metadata(path: str, read_only: bool, metadata: bytes) -> zarr.Array[Any]:
    """The array with these metadata, cached: tasks of a run open the same ones, 0.3 ms each."""
    store = StorePath(PlainStore(path, read_only=read_only))
    array = sound(zarr.Array.from_dict(store, json.loads(metadata)))
    return array if read_only else array.with_config(WRITE_ALL)


def sound(node: Node) -> Node:
    """Check what Zarr does not: attributes are an object, chunks hold rows, codecs are safe."""
    if not isinstance(node.metadata.attributes, dict):
        raise TypeError("attributes are not a JSON object")
    if isinstance(node, zarr.Array):
        if min(node.shards or node.chunks, default=1) < 1:
            raise ValueError("chunks hold nothing")
        safe(node, address_of(node))
    return node


def value_attributes(array: zarr.Array[Any]) -> dict[str, Any]:
    """The attributes of an array. In Zarr format 2 xarray stores the marker of missing values as the fill
    value, and treats it as one where it finds names of dimensions.
    """
    attributes = dict(array.attrs)
    named = DIMENSIONS_2 in attributes or any(name.lower().startswith("_nc") for name in attributes)
    if array.metadata.zarr_format == 2 and named and array.fill_value is not None:
        attributes[MARKER] = array.fill_value
    return attributes


def encoding(array: zarr.Array[Any]) -> Encoding:
    """How stored values become values. Raises DataError."""
    return encoding_of(value_attributes(array), np.dtype(array.dtype), address_of(array))


def check_plain(array: zarr.Array[Any]) -> None:
    """Raise DataError where stored values are not the values, but packed, or with markers of missing ones."""
    if array.dtype.kind not in "iuf" or encoding(array).is_plain:
        return
    address = address_of(array)
    above, _, name = address.rpartition("/")
    in_group = is_remote(address) or any((Path(above) / file).exists() for file in ("zarr.json", ".zgroup"))
    source, name = (above, name) if in_group else (address, "")
    raise _encoded_values(address, value_attributes(array), source, name, array.ndim)


def check_plain_hdf5(array: Any) -> None:
    """Do what `check_plain` does for a dataset of h5py."""
    attributes = dict(array.attrs)
    if array.dtype.kind not in "iuf" or encoding_of(attributes, array.dtype, array.name).is_plain:
        return
    source = os.path.abspath(array.file.filename)
    raise _encoded_values(f"{source}{array.name}", attributes, source, array.name.lstrip("/"), array.ndim)


def _encoded_values(
    address: str, attributes: Mapping[str, Any], source: str, name: str, ndim: int
) -> DataError:
    """The error for an array of encoded values, with the command that imports it.

    source  the file or group of the array, or the array itself, whose name is then ""
    """
    wanted = f" --{'x' if ndim > 1 else 'y'} {shlex.quote(name)}" if name else ""
    copy = " on a local copy of it" if is_remote(source) and not source.endswith(".zarr") else ""
    return DataError(
        f"Cannot use {address} directly: it stores encoded values ({names_of_encoding(attributes)}). Run"
        f" `dcpred import {as_arguments(source)} NEW.zarr{wanted}`{copy}, which decodes them, and use"
        " NEW.zarr."
    )


def member(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """An array of a group that was opened here. Raises KeyError or TypeError for anything else."""
    if isinstance(group.store_path.store, PlainStore):
        known = _known(below(address_of(group), name), read_only=True)
        if known is not None:
            return known
    node = group[name]
    if not isinstance(node, zarr.Array):
        raise TypeError(f"{name} is not an array")
    return sound(node)


def _no_zarr(path: str, kind: str, error: Exception) -> str:
    local = Path(path)
    if not isinstance(error, (BaseZarrError, *NO_FILE)):
        why = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]
        return (
            f"Cannot open a Zarr {kind} at {path}: Zarr as installed here cannot interpret its metadata"
            f" ({why}). Restore them, or write the {kind} again."
        )
    if is_remote(path):
        so = f"holds no Zarr {kind} ({type(error).__name__})"
    elif not local.exists():
        return f"Cannot read {path}: it does not exist. Check the path."
    elif local.is_dir() and next(local.iterdir(), None) is None:
        return (
            f"Cannot read {path}: it is an empty folder. Name a Zarr group, or a folder with .parquet files."
        )
    else:
        so = "is a file" if local.is_file() else f"holds no Zarr {kind}"
    return f"Cannot open a Zarr {kind} at {path}: it {so}. Make one with `dcpred import SOURCE DEST.zarr`."


def open_stored_node(address: str | Path) -> zarr.Group | zarr.Array[Any]:
    """An existing group or array of Zarr, read-only."""
    path = local_path(address)
    with opening(path, "group"):
        return sound(zarr.open(_source(path), mode="r", use_consolidated=False))


def arrays_of(group: zarr.Group) -> list[tuple[str, zarr.Array[Any]]]:
    """The arrays of a group, by name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr warns of foreign files in the directory
            arrays = _known_arrays(group) if lists_nothing(group) else list(group.arrays())
            return [(name, sound(array)) for name, array in sorted(arrays, key=lambda item: item[0])]
    except DcpredError:
        raise
    except READ_ERRORS as error:
        path = address_of(group)
        raise DataError(
            f"Cannot read the arrays in {path}: metadata are damaged ({error}). Restore them."
        ) from None


def _known_arrays(group: zarr.Group) -> list[tuple[str, zarr.Array[Any]]]:
    """The arrays with names of dcpred, on a server without listings."""
    arrays = [(name, group[name]) for name in ("X", "y") if name in group]
    return [(name, array) for name, array in arrays if isinstance(array, zarr.Array)]


def sparse_parts(group: zarr.Group) -> list[tuple[str, zarr.Array[Any]]]:
    """The arrays of sparse matrices in subgroups, in the form of anndata, by `group/array`."""
    if lists_nothing(group):
        return []
    with warnings.catch_warnings(), suppress(*READ_ERRORS):
        warnings.simplefilter("ignore")
        return [
            (f"{name}/{part}", member(below, part))
            for name, below in group.groups()
            if is_sparse(below)
            for part in SPARSE_PARTS
        ]
    return []


def sparse_matrix(where: str) -> str:
    return (
        f"Cannot read {where}: it is a sparse matrix, stored as {', '.join(SPARSE_PARTS)}. Save it by"
        " scipy.sparse.save_npz('X.npz', X.tocsr()) and import X.npz, or write it dense."
    )


def is_sparse(group: zarr.Group) -> bool:
    return all(isinstance(group.get(part), zarr.Array) for part in SPARSE_PARTS)


def find_array(address: str | Path, name: str) -> str:
    """The address of array `name` of a data set. For X, `address` may also be that of the array itself.
    Raises DataError, for a table with the command that imports it.
    """
    path = local_path(address)
    try:
        node = open_stored_node(address)
    except DataError:
        refuse_table(path)
        raise
    if isinstance(node, zarr.Array):
        if name == "X":
            return path
        raise DataError(
            f"Cannot find array {name} in {path}: that is a single array. Pass the group that holds both."
        )
    address_of_array = f"{path.rstrip('/')}/{name}"
    with opening(address_of_array, "array"):
        if isinstance(sparse := node.get(name), zarr.Group) and is_sparse(sparse):
            raise DataError(sparse_matrix(address_of_array))
        if name not in node or not isinstance(node[name], zarr.Array):
            known = [key for key, _ in _known_arrays(node)] if lists_nothing(node) else node.array_keys()
            held = ", ".join(sorted(known)) or "nothing"
            raise DataError(
                f"Cannot find array {name} in {path}: the group holds {held}. Rename it or choose another."
            )
    return address_of_array


def chunk_rows(array: zarr.Array[Any]) -> int:
    """Rows of the smallest unit of reading: a chunk, or an inner chunk of a shard."""
    return int(array.chunks[0])


def read_rows(
    array: zarr.Array[Any], start: int, stop: int, room: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Rows start to stop. Raises DamagedChunkError where a chunk is damaged.

    room  an optional buffer: at least as many rows of the array's dtype, in C order, which the caller may
          reuse once it is done with them
    """
    if (store := computed(array)) is not None:
        return store.rows(array.path, start, min(stop, array.shape[0]), room)
    files = chunk_files(array)
    if files is not None:
        n = max(min(stop, array.shape[0]) - start, 0)
        rows = np.empty((n, *array.shape[1:]), array.dtype) if room is None else room[:n]
        if files.read(start, rows):
            return rows
    try:
        return np.asarray(array[start:stop])
    except MissingChunkError:
        raise
    except DECODING_ERRORS as error:
        where = _first_damaged(array, start, stop)
        raise DamagedChunkError(
            f"Cannot read rows {where[0]:,} to {where[1]:,} of {address_of(array)}: their chunk is damaged"
            f" ({error}). Restore it and run again."
        ) from error


def read_target(array: zarr.Array[Any], start: int, stop: int) -> NDArray[Any]:
    """Rows of a target, with text in the form of `plain_text`."""
    return plain_text(read_rows(array, start, stop), address_of(array))


def plain_text(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Convert text of any dtype to NumPy's fixed-width text, which sorts and saves without pickle; return all
    else unchanged. Raises DataError for bytes that are not text.
    """
    if values.dtype.kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"Cannot read {where}: {error.object[:60]!r} is not text in UTF-8. Write it as text."
            ) from None
    if values.dtype.kind in "OT":
        texts = ["" if value is None else str(value) for value in values.astype(object).ravel().tolist()]
        return np.array(texts, str).reshape(values.shape)
    return values


def announce_rows(array: zarr.Array[Any], start: int, stop: int) -> None:
    """Announce to the system that rows are read soon, where it may prefetch their chunks as files."""
    files = chunk_files(array)
    if files is not None and hasattr(os, "posix_fadvise"):
        files.announce(start, stop)


def _first_damaged(array: zarr.Array[Any], start: int, stop: int) -> tuple[int, int]:
    """The rows of the first chunk that cannot be read, if one alone can be identified."""
    size = chunk_rows(array)
    for first in range(start // size * size, stop, size):
        try:
            array[first : min(first + size, array.shape[0])]
        except Exception:
            return first, min(first + size, array.shape[0])
    return start, stop


def memory_group(attributes: dict[str, Any] | None = None) -> zarr.Group:
    """A new group in memory."""
    return zarr.create_group(zarr.storage.MemoryStore(), attributes=attributes or {})


def metadata_file(node: zarr.Group | zarr.Array[Any]) -> bytes:
    """The content of the zarr.json of a group or an array."""
    data = sync(node.store_path.store.get(f"{node.path}/zarr.json".lstrip("/"), default_buffer_prototype()))
    if data is None:
        raise FileNotFoundError(f"{node.store_path}/zarr.json")
    return data.to_bytes()


def unwritten_group(address: str, attributes: dict[str, Any]) -> zarr.Group:
    """A group on a store that accepts new arrays, without writing its own metadata."""
    source = _source(address, read_only=False)
    assert isinstance(source, StorePath)
    return zarr.Group(zarr.AsyncGroup(metadata=memory_group(attributes).metadata, store_path=source))


def create_group(address: str | Path, attributes: dict[str, Any] | None = None) -> zarr.Group:
    """A new group; the address must be free."""
    return zarr.create_group(_source(local_path(address), read_only=False), attributes=attributes or {})


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
    """A new array chunked by rows, open for writing, that stores every chunk and detects a flipped bit.

    dimensions  their names, which xarray needs to open an array; a name has one length in a group
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
    """Copy the metadata of its arrays into those of a group whose arrays never change: xarray warns of a
    group without the copy. Not for data sets: Zarr appends at the length in the copy, and a second append
    would overwrite the first.
    """
    with warnings.catch_warnings():
        # Zarr warns that other implementations may not support such a copy; they ignore it.
        warnings.simplefilter("ignore")
        return zarr.consolidate_metadata(group.store_path)


def open_consolidated(address: str | Path) -> zarr.Group | None:
    """A group by its copy of metadata, read-only; None without a copy."""
    path = local_path(address)
    with opening(path, "group"):
        group = sound(zarr.open_group(_source(path), mode="r"))
    return None if group.metadata.consolidated_metadata is None else group


def open_output(address: str | Path, of: str = "") -> zarr.Array[Any]:
    """An existing array of a run, open for writing. Zarr does not store `write_empty_chunks` with an array:
    it is set here again, and not in Zarr's settings, which all threads share. Raises DataError where Zarr
    ignores it.
    """
    path = local_path(address)
    if is_remote(path):
        array = _opened_once(path, of, current_options(), read_only=False)
    else:
        known = _known(path, read_only=False)
        array = (
            zarr.open_array(_source(path, read_only=False), mode="r+").with_config(WRITE_ALL)
            if known is None
            else known
        )
    if not array.config.write_empty_chunks:
        raise DataError(
            f"Cannot write {address}: this Zarr version ignores write_empty_chunks. Install a supported"
            " version."
        )
    return array


def write_rows(array: zarr.Array[Any], start: int, rows: NDArray[Any]) -> None:
    """Write rows into an array of `open_output`, from row `start`."""
    files = chunk_files(array)
    if files is None or not files.write(start, rows):
        array[start : start + len(rows)] = rows


def address_of(node: zarr.Group | zarr.Array[Any]) -> str:
    """The address of a group or an array."""
    store = node.store_path.store
    if isinstance(store, ComputedStore):
        return str(replace(store.address, name=node.store_path.path))
    if isinstance(store, BucketArrays) and store.bucket is not None:
        return below(str(store.bucket.where), node.store_path.path)
    if isinstance(store, zarr.storage.LocalStore):  # The root may be a relative path.
        return os.path.abspath(store.root / node.store_path.path)
    return local_path(str(node.store_path))


def array_address(array: zarr.Array[Any] | zarr.Group) -> str | None:
    """The address of an array or a group in every process, or None for one that is not stored."""
    if isinstance(array.store_path.store, zarr.storage.MemoryStore | ComputedStore):
        return None
    return address_of(array)


def stored_address(array: Any) -> str | None:
    """The address of an array of Zarr; None for one in memory, and for other values."""
    return array_address(array) if isinstance(array, zarr.Array) else None
