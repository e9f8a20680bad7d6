"""The stored chunks below the rows of an input array: a mark for each row of its grid of chunks, which shows
whether a chunk is unchanged.

A mark holds names, sizes and times of writing, and on stores also tags. Equal marks mean equal bytes, except
for a chunk that was written twice within one tick of its file system. Chunks that changed less than
SETTLED_SECONDS before the listing therefore have no mark, and equal no other.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import FILL, MISSING_CHUNKS, fills_missing_chunks
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.storage.object_arrays import BucketArrays
from dcpred_tasks.storage.place import Entry, open_place

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
    """Rows of X per mark: those of a chunk, or of a shard."""
    form: str
    """Digest of the metadata without the number of rows and without what changes no row."""
    marks: tuple[str, ...]
    """By chunk of rows; MISSING without a chunk, "" for one too recent for a mark."""

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
        found = CHUNK_NAME.fullmatch(name)
        number = int(found[1]) if found else len(lines)
        if number < len(lines):
            lines[number].append(_line(name, entry, on_store))
            if not on_store and entry.changed > now - SETTLED_SECONDS:
                young.add(number)
    return InputState(
        n_rows=int(array.shape[0]),
        n_features=int(array.shape[1]),
        dtype=str(np.dtype(array.dtype)),
        mark_rows=rows,
        form=_form(array, **filled()),
        marks=tuple(
            "" if number in young else digest("\n".join(sorted(each)).encode()) if each else MISSING
            for number, each in enumerate(lines)
        ),
    )


def filled() -> dict[str, str]:
    """What distinguishes a run that reads missing chunks as the fill value."""
    return {MISSING_CHUNKS: FILL} if fills_missing_chunks() else {}


@dataclass(frozen=True)
class RowsIdentity:
    """Identifies the first rows of an array: shows whether they are unchanged, though the array may have
    grown.
    """

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
    """The identity of the first `n_rows` rows of an array, which has at least as many. Fields stay empty
    where chunks cannot be read.
    """
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
        if (found := CHUNK_NAME.fullmatch(name)) and int(found[1]) < n_whole
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


def open_input(address: str, now: float) -> InputState:
    """The state of the array at an address."""
    return input_state(address, zarr_arrays.open_array(address), now)


def _line(name: str, entry: Entry, on_store: bool) -> str:
    """The mark of a chunk. A tag of a store may be a digest: the time is added. The tag of a folder begins
    with an inode number, which some file systems assign anew.
    """
    return f"{name} {entry.tag} {entry.time}" if on_store else f"{name} {entry.tag.partition('-')[2]}"
