"""Rows sorted by leaf on disk, and the index that says where those of a leaf lie."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dcpred_tasks import scratch as leaf_shards
from dcpred_tasks.scratch import Rows, Source, TrainJob, read_leaves, write_index, write_piece
from dcpred_tasks.training.settings import Settings


def job_at(scratch: Path) -> TrainJob:
    job = TrainJob("x", "y", None, str(scratch), Settings(), 0, 0)
    job.rows(0).mkdir()
    return job


def rows_from(first: int, n: int) -> Rows:
    number = np.arange(first, first + n)
    return Rows(
        np.stack([number, -number], axis=1).astype(np.float32), number * 2.0, number * 3.0 + 1, number
    )


@pytest.mark.parametrize("entries", [1, 7, 10**6])
def test_every_leaf_finds_its_rows_in_the_order_of_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """Whatever part of the index is held at once, for leaves alone and for neighbours together."""
    monkeypatch.setattr(leaf_shards, "INDEX_ENTRIES", entries)
    rng, job, n_leaves = np.random.default_rng(0), job_at(tmp_path), 6
    pieces, leaf, first = [0, 1, 2, 5, 9], [], 0
    for piece in pieces:
        n = int(rng.integers(0, 30))
        leaf.append(rng.choice([0, 1, 3, 4], n).astype(np.int32))  # none of 2 and 5
        write_piece(job.piece(0, piece), rows_from(first, n), leaf[-1])
        first += n
    every = np.concatenate(leaf)
    counts = write_index(job, 0, pieces, n_leaves)
    np.testing.assert_array_equal(counts, np.bincount(every, minlength=n_leaves))
    for wanted in ([0], [2], [5], [3, 4], [0, 1, 2, 3, 4, 5], [1, 4]):
        found: dict[int, list[int]] = {}
        for source, part in read_leaves(job, [Source(0, one) for one in wanted]):
            np.testing.assert_array_equal(part.X[:, 0], part.number)
            np.testing.assert_array_equal(part.target, part.number * 2.0)
            found.setdefault(source.leaf, []).extend(part.number.tolist())
        assert found == {one: own for one in wanted if (own := np.flatnonzero(every == one).tolist())}


def test_an_index_does_not_grow_with_pieces_times_leaves(tmp_path: Path) -> None:
    """A table of both would have 12 MB; there are 120 entries."""
    job, n_pieces, n_leaves = job_at(tmp_path), 30, 50_000
    for piece in range(n_pieces):
        write_piece(job.piece(0, piece), rows_from(4 * piece, 4), np.arange(piece, piece + 4, dtype=np.int32))
    tracemalloc.start()
    write_index(job, 0, range(n_pieces), n_leaves)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3_000_000
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent == job.rows(0)]
    assert sum(path.stat().st_size for path in written) < 500_000
    assert max(path.stat().st_size for path in tmp_path.rglob("counts.npy")) < 1_000
