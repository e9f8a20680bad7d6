"""The rows of a training job on disk, sorted by leaf: shards, their offsets, and how a leaf is read from
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.scratch.training_job import Source, TrainJob, file_stamp
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import new_directory, partial_name

# Rows of a leaf are read in chunks of this size: 128 rows of covtype then cost 1.27 times their own bytes.
INNER_CHUNK_BYTES = 16 * 2**10


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


def read_piece(path: Path) -> Rows:
    """All rows of a piece, in the order in which they lie there."""
    X, side = (array[...] for array in _piece_arrays(file_stamp(path)))
    target, weight, number = np.asarray(side).T
    return Rows(np.asarray(X), target, weight, number.astype(np.int64))


def write_piece(path: Path, rows: Rows, leaf: NDArray[np.int32], n_leaves: int) -> IntArray:
    """Write rows as one shard sorted by leaf, and return the rows of each leaf, int64 (n_leaves,)."""
    order = np.argsort(leaf, kind="stable")
    counts = np.bincount(leaf, minlength=n_leaves).astype(np.int64)
    X, n = rows.X[order], len(order)
    # Row numbers are below 2⁵³, so that float64 holds them.
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
        np.save(partial / "counts.npy", counts)
    return counts


def _inner_rows(row_bytes: int) -> int:
    return int(2 ** np.clip(int(INNER_CHUNK_BYTES / max(row_bytes, 1)).bit_length(), 4, 10))


def read_counts(path: Path) -> IntArray:
    return np.asarray(np.load(path / "counts.npy", allow_pickle=False))


def write_offsets(job: TrainJob, generation: int, counts: Sequence[IntArray]) -> None:
    """The offsets of all pieces of a generation, to be mapped by every worker."""
    offsets = np.zeros((len(counts), len(counts[0]) + 1), np.int64)
    np.cumsum(np.stack(counts), axis=1, out=offsets[:, 1:])
    path = job.offsets_file(generation)
    partial = partial_name(path)
    with open(partial, "xb") as file:
        np.save(file, offsets)
    partial.replace(path)


@lru_cache(maxsize=64)
def _piece_arrays(stamp: tuple[str, int, int]) -> tuple[zarr.Array[Any], zarr.Array[Any]]:
    return zarr_arrays.open_array(f"{stamp[0]}/X"), zarr_arrays.open_array(f"{stamp[0]}/side")


def read_leaf(job: TrainJob, source: Source) -> Iterator[Rows]:
    """The rows of a routed leaf, piece by piece."""
    for _, rows in read_leaves(job, [source]):
        yield rows


def read_leaves(job: TrainJob, sources: Sequence[Source]) -> Iterator[tuple[Source, Rows]]:
    """The rows of routed leaves, piece by piece. Leaves that stand beside each other are read at once: a read
    of a few rows costs 2.5 ms whatever their number (2026-11), and a model may have thousands of small
    leaves.
    """
    for run in _neighbours(sources):
        offsets = np.load(job.offsets_file(run[0].generation), mmap_mode="r")
        at = np.array(offsets[:, run[0].leaf : run[-1].leaf + 2])
        for piece in np.flatnonzero(at[:, -1] > at[:, 0]):
            X, side = _piece_arrays(file_stamp(job.piece(run[0].generation, int(piece))))
            first, last = int(at[piece, 0]), int(at[piece, -1])
            rows = zarr_arrays.read_rows(X, first, last)
            target, weight, number = zarr_arrays.read_rows(side, first, last).T
            everything = Rows(rows, target, weight, number.astype(np.int64))
            for source, (start, stop) in zip(run, pairwise(at[piece] - first), strict=True):
                if stop > start:
                    yield source, everything.take(slice(start, stop))


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
    """Parts put together in the order of row numbers, whatever blocks they came from."""
    joined = Rows(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Rows)))
    return joined.take(np.argsort(joined.number, kind="stable"))
