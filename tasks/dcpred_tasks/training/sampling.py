"""Samples of rows that depend only on the number of a row and a seed.

A row is drawn by hashing its number: blocks, chunks and workers of any shape draw the same rows.
"""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray

SAMPLE_NUMBERS = 2**28  # most numbers of a sample: 1 GiB of float32
LEAST_SAMPLE_ROWS = 16


def row_hash(rows: IntArray, seed: int) -> NDArray[np.uint64]:
    """A well-mixed 64-bit value for each row number (SplitMix64 of Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def sampled_rows(sample_rows: int, n_features: int) -> int:
    """Rows of the sample that scaling and tree are learned from: so many, or fewer of wide rows."""
    return min(sample_rows, max(SAMPLE_NUMBERS // max(n_features, 1), LEAST_SAMPLE_ROWS))


def drawn(rows: IntArray, n_rows: int, size: float, seed: int) -> NDArray[np.bool_]:
    """Which of these rows belong to a sample of about `size` out of `n_rows`: all if size ≥ n_rows."""
    if size >= n_rows:
        return np.ones(len(rows), dtype=bool)
    return row_hash(rows, seed) < np.uint64(int(size / n_rows * 2.0**64))


def thinned(rows: IntArray, size: int, seed: int) -> IntArray:
    """Positions, ascending, of exactly min(size, len(rows)) of these rows: those of the smallest hash."""
    if size >= len(rows):
        return np.arange(len(rows), dtype=np.int64)
    return np.sort(np.argsort(row_hash(rows, seed), kind="stable")[:size]).astype(np.int64)


def fold_rows(rows: IntArray) -> int:
    """One 64-bit value of a set of row numbers, whatever their order: the sum of their hashes. Sums of joined
    sets add up (modulo 2⁶⁴) and reveal lost, duplicated or exchanged rows.
    """
    return int(row_hash(rows, 0).sum(dtype=np.uint64))
