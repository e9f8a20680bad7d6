"""The rows of a training job on disk, sorted by leaf: shards, an index of them, and how a leaf is read from
them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.scratch.training_job import Source, TrainJob, file_stamp
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import new_directory, partial_name, resource_errors

# Chunk size for reads of the rows of a leaf (DECISIONS.md).
INNER_CHUNK_BYTES = 16 * 2**10
INDEX_ENTRIES = 2**20  # entries of an index that the driver sorts at once, in about 100 MiB


@dataclass(frozen=True)
class Rows:
    """Rows on their way to a leaf, in the order of their numbers.

    X       (n, n_features), raw
    target  float64 (n,), class numbers or values
    weight  float64 (n,)
    number  int64 (n,), row numbers in the input
    """

    X: NDArray[Any]
    target: FloatArray
    weight: FloatArray
    number: IntArray

    def take(self, index: NDArray[Any] | slice) -> "Rows":
        return Rows(*(getattr(self, f.name)[index] for f in fields(self)))


def write_piece(path: Path, rows: Rows, leaf: NDArray[np.int32]) -> None:
    """Write rows as one shard sorted by leaf, and how many of each leaf that occurs."""
    order = np.argsort(leaf, kind="stable")
    X, n = rows.X[order], len(order)
    # Row numbers are below 2⁵³: float64 holds them.
    side = np.column_stack([rows.target, rows.weight, rows.number.astype(np.float64)])[order]
    with new_directory(path) as partial:
        group = zarr_arrays.create_group(partial)
        for name, value, names in (
            ("X", X, zarr_arrays.DATA_DIMENSIONS),
            ("side", side, ("sample", "column")),
        ):
            inner = _inner_rows(value.nbytes // max(n, 1))
            shard = max(-(-n // inner), 1) * inner
            zarr_arrays.create_array(
                group, name, value.shape, value.dtype, inner, shard_rows=shard, dimensions=names
            )[...] = value
        np.save(partial / "counts.npy", np.stack(np.unique(leaf, return_counts=True)).astype(np.int64))


def _inner_rows(row_bytes: int) -> int:
    return int(2 ** np.clip(int(INNER_CHUNK_BYTES / max(row_bytes, 1)).bit_length(), 4, 10))


def write_index(job: TrainJob, generation: int, pieces: Iterable[int], n_leaves: int) -> IntArray:
    """Write where the rows of each leaf lie in the pieces of a generation, for every worker to map into
    memory. Returns the number of rows of each leaf, int64 (n_leaves,).

    The index only holds leaves that occur: neither memory nor files grow with pieces × leaves. Part k is two
    arrays, `places` int32 (entries, 3) with piece, first row and row after the last, sorted by leaf, and
    `edges` int64 (n_leaves + 1,) with the entries of each leaf.
    """
    totals = np.zeros(n_leaves, np.int64)
    for part, (leaf, places) in enumerate(
        _index_parts(job, generation, pieces, max(INDEX_ENTRIES, n_leaves))
    ):
        np.add.at(totals, leaf, places[:, 2] - places[:, 1])
        edges = np.zeros(n_leaves + 1, np.int64)
        np.cumsum(np.bincount(leaf, minlength=n_leaves), out=edges[1:])
        order = np.argsort(leaf, kind="stable")
        for name, value in (("places", places[order]), ("edges", edges)):
            path = job.index_file(generation, name, part)
            partial = partial_name(path)
            with resource_errors(path), open(partial, "xb") as file:
                np.save(file, value)
            partial.replace(path)
    return totals


def _index_parts(
    job: TrainJob, generation: int, pieces: Iterable[int], most: int
) -> Iterator[tuple[IntArray, NDArray[np.int32]]]:
    """The leaves (n,) and places (n, 3) of successive pieces, about `most` entries at once; one part at
    least.
    """
    leaves: list[IntArray] = [np.zeros(0, np.int64)]
    places: list[NDArray[np.int32]] = [np.zeros((0, 3), np.int32)]
    held = n_parts = 0
    for piece in pieces:
        leaf, counts = np.load(job.piece(generation, piece) / "counts.npy", allow_pickle=False)
        ends = np.cumsum(counts)
        leaves.append(leaf)
        places.append(np.stack([np.full(len(leaf), piece), ends - counts, ends], axis=1).astype(np.int32))
        held += len(leaf)
        if held >= most:
            yield np.concatenate(leaves), np.concatenate(places)
            del leaves[1:], places[1:]
            held, n_parts = 0, n_parts + 1
    if held or not n_parts:
        yield np.concatenate(leaves), np.concatenate(places)


@lru_cache(maxsize=64)
def _piece_arrays(stamp: tuple[str, int, int]) -> tuple[zarr.Array[Any], zarr.Array[Any]]:
    return zarr_arrays.open_array(f"{stamp[0]}/X"), zarr_arrays.open_array(f"{stamp[0]}/side")


def read_leaves(job: TrainJob, sources: Sequence[Source]) -> Iterator[tuple[Source, Rows]]:
    """The rows of routed leaves, piece by piece. Neighbouring leaves are read together: a read has a constant
    cost (DECISIONS.md), and a model may have thousands of small leaves.
    """
    for run in _neighbours(sources):
        generation, first_leaf = run[0].generation, run[0].leaf
        for piece, leaves, spans in _places(job, generation, first_leaf, run[-1].leaf):
            X, side = _piece_arrays(file_stamp(job.piece(generation, piece)))
            first, last = int(spans[0, 0]), int(spans[-1, 1])
            rows = zarr_arrays.read_rows(X, first, last)
            target, weight, number = zarr_arrays.read_rows(side, first, last).T
            everything = Rows(rows, target, weight, number.astype(np.int64))
            for leaf, (start, stop) in zip(leaves.tolist(), (spans - first).tolist(), strict=True):
                yield run[leaf - first_leaf], everything.take(slice(start, stop))


def _places(
    job: TrainJob, generation: int, first: int, last: int
) -> Iterator[tuple[int, IntArray, NDArray[np.int32]]]:
    """Where the rows of leaves from `first` to `last` lie: pieces in order, with the leaves (n,) that occur
    there and the rows (n, 2) of each.
    """
    for part in count():
        path = job.index_file(generation, "edges", part)
        if not path.exists():
            return
        edges = np.array(np.load(path, mmap_mode="r")[first : last + 2])
        places = np.load(job.index_file(generation, "places", part), mmap_mode="r")
        own = np.array(places[edges[0] : edges[-1]])
        leaf = np.repeat(np.arange(first, last + 1), np.diff(edges))
        order = np.argsort(own[:, 0], kind="stable")
        own, leaf = own[order], leaf[order]
        bounds = np.flatnonzero(np.diff(own[:, 0], prepend=-1, append=-1))
        for start, stop in pairwise(bounds.tolist()):
            yield int(own[start, 0]), leaf[start:stop], own[start:stop, 1:]


def _neighbours(sources: Sequence[Source]) -> list[list[Source]]:
    """Sources in runs of the same generation and successive leaves."""
    runs: list[list[Source]] = []
    for source in sorted(sources, key=lambda s: (s.generation, s.leaf)):
        if runs and runs[-1][-1] == Source(source.generation, source.leaf - 1):
            runs[-1].append(source)
        else:
            runs.append([source])
    return runs


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Join parts in the order of row numbers."""
    joined = Rows(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Rows)))
    return joined.take(np.argsort(joined.number, kind="stable"))
