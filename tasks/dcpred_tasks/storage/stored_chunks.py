"""Chunks as they are stored: their bytes, digests and absence."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ShardingCodecIndexLocation
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from dcpred_tasks.annotations import from_document
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.input_kinds import LABELS, is_a
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_node
from dcpred_tasks.storage.addresses import FILL, MISSING_CHUNKS, Address, fills_missing_chunks, group_of
from dcpred_tasks.storage.atomic_files import is_system_file
from dcpred_tasks.storage.computed_arrays import ComputedStore, computed
from dcpred_tasks.storage.digests import digest, digest_json, sealed
from dcpred_tasks.storage.object_arrays import (
    METADATA,
    BucketArrays,
    encoding_of,
    lists_nothing,
    names_of_encoding,
)
from dcpred_tasks.storage.once import LISTING, forget
from dcpred_tasks.storage.place import open_place, read_sealed_document, write_document
from dcpred_tasks.storage.place_types import Entry, Place

MISSING_INNER_CHUNK = np.uint64(2**64 - 1)
PROBED_CHUNKS = 16
IMPLAUSIBLE = 1e-6  # chance of a chunk of one class, below which it counts as lost
REMEDY = (
    "Restore it, or pass --storage-option missing_chunks=fill (in Python: with"
    " dcpred.storage_options(missing_chunks='fill')) if missing chunks hold the fill value."
)
MOST_LOOKED_AT = 1_000_000  # chunks checked by name; above, they are counted


def missing_chunks(array: zarr.Array[Any], start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Names of chunks, and of inner chunks of shards, that have no bytes in the store and would read as fill
    values; empty where the user declared that this is intended.

    One listing of the store finds all of them; chunks of some rows (start, stop) are checked one by one. On a
    server without listings a few are checked, and the others when they are read.
    """
    if fills_missing_chunks():
        return
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    listed = stop is None and not lists_nothing(array)
    stored = sync(_keys(array, prefix)) if listed else None
    grid = array.shards or array.chunks
    spans: list[Iterable[int]] = [range(-(-n // size)) for n, size in zip(array.shape, grid, strict=True)]
    if stop is not None:
        spans[0] = range(start // grid[0], -(-stop // grid[0]))
    elif not listed:
        spans[0] = _a_few(-(-array.shape[0] // grid[0]))
    for coordinates in _coordinates(spans):
        key = prefix + array.metadata.encode_chunk_key(coordinates)
        if not (_exists(array, key) if stored is None else key in stored):
            yield key
        elif array.shards is not None:
            yield from _missing_inner_chunks(array, key, coordinates)


def count_missing(array: zarr.Array[Any]) -> int:
    """The number of missing chunks, with those within shards unless a shape claims very many."""
    grid = array.shards or array.chunks
    n_chunks = math.prod(-(-n // size) for n, size in zip(array.shape, grid, strict=True))
    if n_chunks <= MOST_LOOKED_AT:
        return sum(1 for _ in missing_chunks(array))
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    metadata = {f"{prefix}{name}" for name in METADATA}
    return n_chunks - len(sync(_keys(array, prefix)) - metadata)


def _coordinates(spans: Sequence[Iterable[int]]) -> Iterator[tuple[int, ...]]:
    """Coordinates of chunks, lazily: a shape may claim more than fit in memory."""
    if not spans:
        yield ()
        return
    for first in spans[0]:
        for others in _coordinates(spans[1:]):
            yield first, *others


def _exists(array: zarr.Array[Any], key: str) -> bool:
    store = array.store_path.store
    return (store.root / key).exists() if isinstance(store, LocalStore) else bool(sync(store.exists(key)))


def is_there(array: zarr.Array[Any], key: str) -> bool:
    """Whether the chunk of a key below the array exists, as a file on a disk."""
    store, path = array.store_path.store, f"{array.store_path.path}/{key}".lstrip("/")
    return (store.root / path).is_file() if isinstance(store, LocalStore) else bool(sync(store.exists(path)))


def _a_few(n: int) -> list[int]:
    return sorted({round(at) for at in np.linspace(0, n - 1, min(PROBED_CHUNKS, n))}) if n else []


def reads_as_fill(array: zarr.Array[Any]) -> bool:
    """Whether a missing chunk reads as fill values: from object stores only an inner one of a shard."""
    return not isinstance(array.store_path.store, BucketArrays) or array.shards is not None


def check_complete(address: Address, array: zarr.Array[Any]) -> None:
    """Raise DataError where a chunk is missing."""
    missing = next(missing_chunks(array), None)
    if missing is not None:
        raise DataError(
            f"Cannot read {address}: chunk {missing} is missing, and would read as fill values. {REMEDY}"
        )


def check_given(data: Any, name: str) -> None:
    """Raise DataError for a given array whose stored values are not its values, or that lacks chunks."""
    if isinstance(data, zarr.Array):
        zarr_arrays.check_plain(data)
        if (address := zarr_arrays.array_address(data)) is not None:
            (check_labels if name == "y" else check_complete)(address, data)
    elif is_a(data, "h5py.Dataset"):
        zarr_arrays.check_plain_hdf5(data)
    elif is_a(data, "xarray.DataArray") and not encoding_of(data.attrs, data.dtype, name).is_plain:
        raise DataError(
            f"{name} holds encoded values ({names_of_encoding(data.attrs)}). Open it with"
            " mask_and_scale=True, the default of xarray."
        )


def check_labels(address: Address, array: zarr.Array[Any]) -> Remark | None:
    """A remark where chunks of class labels read as the fill value; None where all are stored.

    By default Zarr does not store a chunk that only holds the fill value: a target sorted by class, or with
    rare other classes, lacks chunks. They read as the fill value unless their neighbours contradict it: a
    stored chunk of fill values shows that Zarr stores such chunks here, and frequent changes of class make a
    whole chunk of one class implausible. Raises DataError where a chunk must be lost.
    """
    missing = list(missing_chunks(array))
    if not missing:
        return None
    n_chunks, fill = -(-array.shape[0] // array.chunks[0]), array.fill_value
    if not _may_lack_chunks(array) or len(missing) >= n_chunks:
        check_complete(address, array)
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    lacking = {prefix + array.metadata.encode_chunk_key((n,)) for n in range(n_chunks)} & set(missing)
    numbers = [n for n in range(n_chunks) if prefix + array.metadata.encode_chunk_key((n,)) not in lacking]
    gone = set(range(n_chunks)) - set(numbers)
    beside = [n for n in numbers if n - 1 in gone or n + 1 in gone]
    changes = pairs = 0
    for at in _a_few(len(beside)):
        start = beside[at] * array.chunks[0]
        values = zarr_arrays.read_rows(array, start, min(start + array.chunks[0], array.shape[0]))
        if (values == fill).all():
            raise DataError(
                f"Cannot read {address}: chunk {missing[0]} is missing, though chunks of nothing but the fill"
                f" value {fill} are stored. {REMEDY}"
            )
        changes, pairs = changes + int((values[1:] != values[:-1]).sum()), pairs + len(values) - 1
    if (1 - changes / max(pairs, 1)) ** array.chunks[0] < IMPLAUSIBLE:
        check_complete(address, array)
    text = (
        f"{len(missing):,} of {n_chunks:,} chunks of {address} are not stored. They are read as the fill"
        f" value {fill}, because Zarr omits chunks that hold nothing else"
    )
    return remark("missing-chunks", text, file=address, share=len(missing) / n_chunks)


def _may_lack_chunks(array: zarr.Array[Any]) -> bool:
    """Whether an array of labels on a disk has Zarr's defaults: dcpred writes checksums and every chunk."""
    codecs = () if array.metadata.zarr_format == 2 else array.metadata.codecs
    fill, labels = array.fill_value, array.attrs.get(LABELS)
    return (
        isinstance(array.store_path.store, LocalStore)
        and array.ndim == 1
        and array.shards is None
        and not any(isinstance(codec, Crc32cCodec) for codec in codecs)
        and array.dtype.kind in "biuf"
        and fill is not None
        and bool(np.isfinite(fill))
        and (not isinstance(labels, list) or 0 <= fill < len(labels))
    )


def fingerprint(array: zarr.Array[Any]) -> str:
    """A digest that changes when an array is written again, without reading all of it: of its metadata and
    the names of its chunks, with sizes and times of writing on a local store, with sizes and tags on an
    object store, and with the bytes of a few chunks elsewhere.
    """
    base = array.store_path.store
    if isinstance(base, ComputedStore):
        return digest(base.identity.encode(), array.path.encode())
    if isinstance(base, BucketArrays) and base.bucket is not None:
        return _fingerprint_of_store(array, base)
    prefix = f"{array.store_path.path}/" if array.store_path.path else ""
    keys = sorted(key for key in sync(_keys(array, prefix)) if not is_system_file(key.removeprefix(prefix)))
    parts = [json.dumps(array.metadata.to_dict(), sort_keys=True, default=str).encode()]
    if isinstance(base, LocalStore):
        for key in keys:
            if key != f"{prefix}zarr.json":
                state = (base.root / key).stat()
                parts.append(f"{key.removeprefix(prefix)} {state.st_size} {state.st_mtime_ns}\n".encode())
        return digest(*parts)
    parts.append("\n".join(key.removeprefix(prefix) for key in keys).encode())
    for number in _a_few(len(keys)):
        data = sync(base.get(keys[number], default_buffer_prototype()))
        parts.append(b"" if data is None else data.to_bytes())
    return digest(*parts)


def _fingerprint_of_store(array: zarr.Array[Any], store: BucketArrays) -> str:
    """By one listing; on a server without listings, by the heads of a few chunks."""
    assert store.bucket is not None
    path = array.store_path.path
    entries: dict[str, Entry] = {}
    if store.bucket.lists:
        entries = {
            name: e for name, e in store.bucket.listing(path).items() if not name.endswith("zarr.json")
        }
    else:
        for number in _a_few(-(-array.shape[0] // array.chunks[0])):
            key = array.metadata.encode_chunk_key((number, *(0 for _ in array.shape[1:])))
            if (entry := store.bucket.head(f"{path}/{key}".lstrip("/"))) is not None:
                entries[f"{path}/{key}"] = entry
    lines = [f"{name.removeprefix(f'{path}/')} {e.size} {e.tag}\n" for name, e in sorted(entries.items())]
    metadata = json.dumps(array.metadata.to_dict(), sort_keys=True, default=str)
    return digest(metadata.encode(), "".join(lines).encode())


async def _keys(array: zarr.Array[Any], prefix: str) -> set[str]:
    return {key async for key in array.store_path.store.list_prefix(prefix)}


def _missing_inner_chunks(array: zarr.Array[Any], key: str, coordinates: tuple[int, ...]) -> Iterator[str]:
    """Read the index of a shard: offset and length of each inner chunk, or 2⁶⁴ − 1 twice."""
    if array.metadata.zarr_format == 2:
        return  # only format 3 has shards
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


def stored_size(array: zarr.Array[Any], row: int) -> int:
    """Bytes of the first chunk of a row; 0 where it is missing."""
    base, grid = array.store_path.store, array.shards or array.chunks
    key = array.metadata.encode_chunk_key((row // grid[0], *(0 for _ in array.shape[1:])))
    try:
        if isinstance(base, LocalStore):
            return int((Path(base.root) / array.store_path.path / key).stat().st_size)
        name = f"{array.store_path.path}/{key}".lstrip("/")
        if isinstance(base, BucketArrays):
            return base.written[name][0]
        return int(sync(base.getsize(name)))
    except (FileNotFoundError, KeyError):
        return 0


def stored_tag(array: zarr.Array[Any], row: int) -> str:
    """The tag of the first chunk of a row, where this process wrote it to an object store; "" elsewhere."""
    base, grid = array.store_path.store, array.shards or array.chunks
    if not isinstance(base, BucketArrays):
        return ""
    key = array.metadata.encode_chunk_key((row // grid[0], *(0 for _ in array.shape[1:])))
    return base.written.get(f"{array.store_path.path}/{key}".lstrip("/"), (0, ""))[1]


SETTLED_SECONDS = 2.0  # the coarsest tick of a file system
MISSING = "-"
CONTENT_BYTES = 2**25  # rows up to this size are compared by value, in a tenth of a second
# Names of chunks below an array, in both forms of coordinates of Zarr.
CHUNK_NAME = re.compile(r"(?:c[/.])?(\d+)(?:[/.]\d+)*")
# Metadata that may change without a change of any row.
FREE = ("shape", "attributes", "dimension_names")


@dataclass(frozen=True)
class InputState:
    """The stored state of an input array."""

    n_rows: int
    n_features: int
    dtype: str
    mark_rows: int
    """Rows of X per fingerprint: those of a chunk, or of a shard."""
    form: str
    """Digest of the metadata without the number of rows and without what changes no row."""
    marks: tuple[str, ...]
    """By chunk of rows; MISSING without a chunk, "" for one too recent for a fingerprint."""

    def unchanged(self, other: "InputState", start: int, stop: int) -> bool:
        """Whether rows start to stop of X have the same chunks in both."""
        if self.form != other.form:
            return False
        first, last = start // self.mark_rows, -(-stop // self.mark_rows)
        mine, others = self.marks[first:last], other.marks[first:last]
        return all(mine) and len(mine) == last - first and mine == others

    def same(self, other: "InputState") -> bool:
        """Whether both have the same rows."""
        return self.n_rows == other.n_rows and self.unchanged(other, 0, self.n_rows)

    def without_rows(self, rows: Sequence[tuple[int, int]]) -> "InputState":
        """The state without fingerprints of chunks with these rows: no later run takes them for unchanged."""
        fingerprints = list(self.marks)
        for start, stop in rows:
            for number in range(start // self.mark_rows, min(-(-stop // self.mark_rows), len(fingerprints))):
                fingerprints[number] = ""
        return replace(self, marks=tuple(fingerprints))


def write_inputs(place: Place, file: str, state: InputState, *, full: bool) -> None:
    """full  whether the run was begun to reuse nothing"""
    write_document(place, file, sealed({"full": full, **asdict(state)}))


def read_inputs(place: Place, file: str) -> tuple[InputState, bool] | None:
    """(state, full); None if it is missing or modified."""
    value = read_sealed_document(place, file) or {}
    try:
        return from_document(InputState, value), bool(value.get("full"))
    except ValueError:
        return None


def input_state(address: str, array: zarr.Array[Any], now: float) -> InputState:
    """The state of an array, by one listing of what lies below it.

    now  the time by the clock of the file system or store, in seconds since 1970

    Raises DataError for an array whose chunks cannot be listed.
    """
    on_store = isinstance(array.store_path.store, BucketArrays)
    if not _is_listed(array):
        raise DataError(
            f"Cannot refresh the scores of {address}: its chunks cannot be listed. Use `dcpred score`, or a"
            " disk or an object store."
        )
    rows = int((array.shards or array.chunks)[0])
    lines: list[list[str]] = [[] for _ in range(-(-array.shape[0] // rows))]
    young = set()
    for name, entry in open_place(address).listing().items():
        chunk = CHUNK_NAME.fullmatch(name)
        number = int(chunk[1]) if chunk else len(lines)
        if number < len(lines):
            lines[number].append(_line(name, entry, on_store) + ("" if on_store else f" {entry.changed}"))
            if not on_store and entry.changed > now - SETTLED_SECONDS:
                young.add(number)
    return InputState(
        n_rows=int(array.shape[0]),
        n_features=math.prod(array.shape[1:]),
        dtype=str(np.dtype(array.dtype)),
        mark_rows=rows,
        form=_form(array, **filled()),
        marks=tuple(
            "" if number in young else digest("\n".join(sorted(each)).encode()) if each else MISSING
            for number, each in enumerate(lines)
        ),
    )


def _computed_state(
    array: zarr.Array[Any], store: ComputedStore, now: float, ids: Sequence[str]
) -> InputState:
    n, rows, names = int(array.shape[0]), int(array.chunks[0]), ("X", *ids)
    fingerprints = []
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        changes = store.changes(start, stop)
        is_young = max(changes, default=0) > (now - SETTLED_SECONDS) * 1e9
        fingerprint = digest(store.fingerprint(start, stop, names).encode(), repr(changes).encode())
        fingerprints.append("" if is_young else fingerprint)
    form = digest_json({"array": _form(array), "columns": store.form(names)})
    return InputState(n, int(array.shape[1]), str(np.dtype(array.dtype)), rows, form, tuple(fingerprints))


def filled() -> dict[str, str]:
    """What distinguishes a run that reads missing chunks as the fill value."""
    return {MISSING_CHUNKS: FILL} if fills_missing_chunks() else {}


@dataclass(frozen=True)
class RowsIdentity:
    """Identifies the first rows of an array: whether they are unchanged, though it may have grown."""

    chunks: str = ""
    """Digest of the names, sizes and times of writing of all chunks that hold only such rows; on a store also
    of the tags. "" where chunks cannot be listed."""
    sizes: str = ""
    """The same without times and tags."""
    tail: str = ""
    """Digest of the values of the rows in the following chunks."""
    content: str = ""
    """Digest of the values of all rows; "" where they take more than CONTENT_BYTES."""

    def same(self, other: "RowsIdentity") -> bool:
        """Whether both identify the same rows."""
        if self.content and self.content == other.content:
            return True
        return bool(self.chunks and self.tail) and (self.chunks, self.tail) == (other.chunks, other.tail)

    def may_be_same(self, other: "RowsIdentity") -> bool:
        """Whether only times of writing differ; values may also differ where they are not compared."""
        known = bool(self.content and other.content) or self.tail != other.tail
        return bool(self.sizes) and self.sizes == other.sizes and not known


def rows_identity(array: zarr.Array[Any], n_rows: int) -> RowsIdentity:
    """The identity of the first `n_rows` rows; fields stay empty where chunks cannot be read."""
    if (store := computed(array)) is not None:
        names = [array.path]
        decided_by = _form(array), store.form(names), store.fingerprint(0, n_rows, names)
        chunks = digest(*(text.encode() for text in decided_by))
        lasting = digest(_form(array).encode(), store.sizes.encode())
        return RowsIdentity(chunks, lasting, lasting)
    per_chunk = int((array.shards or array.chunks)[0])
    n_whole = n_rows // per_chunk
    row_bytes = int(np.prod(array.shape[1:], dtype=int)) * array.dtype.itemsize
    content = ""
    if n_rows * row_bytes <= CONTENT_BYTES:
        content = _values_digest(array, 0, n_rows)
    tail = _values_digest(array, n_whole * per_chunk, n_rows)
    address, on_store = zarr_arrays.address_of(array), isinstance(array.store_path.store, BucketArrays)
    if not _is_listed(array):
        return RowsIdentity(tail=tail, content=content)
    entries = {
        name: entry
        for name, entry in open_place(address).listing().items()
        if (chunk := CHUNK_NAME.fullmatch(name)) and int(chunk[1]) < n_whole
    }
    form = _form(array).encode()
    lines = sorted(_line(name, entry, on_store) for name, entry in entries.items())
    sizes = sorted(f"{name} {entry.size}" for name, entry in entries.items())
    return RowsIdentity(
        digest(form, "\n".join(lines).encode()), digest(form, "\n".join(sizes).encode()), tail, content
    )


def _values_digest(array: zarr.Array[Any], start: int, stop: int) -> str:
    try:
        values = zarr_arrays.read_rows(array, start, stop)
    except (DcpredError, OSError):
        return ""
    shape = f"{values.dtype} {values.shape}".encode()
    if values.dtype.kind in "biufcMmSV":
        return digest(shape, values)
    return digest(shape, json.dumps(values.tolist(), default=str).encode())


def _is_listed(array: zarr.Array[Any]) -> bool:
    """Whether the chunks of an array can be listed."""
    base = array.store_path.store
    known = isinstance(base, BucketArrays | LocalStore)
    return known and open_place(zarr_arrays.address_of(array)).lists


def _form(array: zarr.Array[Any], **more: str) -> str:
    """Digest of the metadata without what may change without a change of any row."""
    metadata = {k: v for k, v in array.metadata.to_dict().items() if k not in FREE}
    return digest_json({"metadata": json.dumps(metadata, sort_keys=True, default=str), **more})


def open_input(address: Address, now: float, ids: Sequence[str] = ()) -> InputState:
    """The state of the array at an address.

    ids  names of columns of its data set: rows are unchanged only if those beside X are, too
    """
    forget(LISTING)
    X = open_array(address)
    if (store := computed(X)) is not None:
        return _computed_state(X, store, now, ids)
    state, folder = input_state(str(address), X, now), group_of(address)
    group = open_node(folder) if ids else None
    if not isinstance(group, zarr.Group):
        return state
    # Attributes name the classes of an id, or how its numbers are encoded, and the categories of a feature.
    attributes: list[Any] = [dict(group.attrs)]
    known = dict(zarr_arrays.arrays_of(group))
    for name in ids:
        if name in known and known[name].ndim == 1:
            state = _joined(state, input_state(f"{folder}/{name}", known[name], now))
            attributes.append(dict(known[name].attrs))
    text = json.dumps(attributes, sort_keys=True, default=str)
    return replace(state, form=digest(state.form.encode(), text.encode()))


def _joined(state: InputState, other: InputState) -> InputState:
    """The state of X with that of an array beside it."""
    fingerprints = []
    for number, fingerprint in enumerate(state.marks):
        start = number * state.mark_rows
        stop = min(start + state.mark_rows, state.n_rows)
        there = other.marks[start // other.mark_rows : -(-stop // other.mark_rows)]
        both = (fingerprint, *there)
        fingerprints.append(digest("\n".join(both).encode()) if all(both) else "")
    return replace(state, form=digest(state.form.encode(), other.form.encode()), marks=tuple(fingerprints))


def _line(name: str, entry: Entry, on_store: bool) -> str:
    """A chunk in a fingerprint: its time and tag, without the inode number, which may be assigned anew."""
    return f"{name} {entry.tag} {entry.time}" if on_store else f"{name} {entry.tag.partition('-')[2]}"
