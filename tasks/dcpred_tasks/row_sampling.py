"""Samples of rows that follow from row numbers: every attempt and every division into blocks takes the same.

Rows often lie in an order with a period, as hours of days or stores of a chain do. Every k-th row may then be
of one hour or of one store. No sample here has a constant step.
"""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray


def row_hash(rows: IntArray, seed: int) -> NDArray[np.uint64]:
    """A well-mixed 64-bit value for each row number (SplitMix64 of Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def one_of_each(n_rows: int, stride: int, first: int = 0) -> IntArray:
    """Positions, ascending, among n_rows rows of which `first` is the number of the first: of each stretch of
    `stride` row numbers one, at a hashed place.
    """
    stretch = np.arange(first // stride, -(-(first + n_rows) // stride), dtype=np.int64)
    place = stretch * stride + (row_hash(stretch, 0) % np.uint64(stride)).astype(np.int64) - first
    return place[(place >= 0) & (place < n_rows)]


def at_most(n_rows: int, most: int) -> IntArray:
    """Positions, ascending, of at most `most` of n_rows rows, spread over all of them."""
    return one_of_each(n_rows, max(-(-n_rows // most), 1))
