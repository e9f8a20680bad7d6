"""Count repeated rows in bounded memory during one pass.

Keeps the smallest 64-bit hashes of rows, with the number of rows of each. All rows of these values are
counted: counts are exact up to KEPT different values and estimates beyond.
"""

import numpy as np
from numpy.typing import NDArray

KEPT = 2**20  # different hashes, 16 MiB with their counts
WAITING = 2**18  # hashes that are merged at once

Hashes = NDArray[np.uint64]


class Repeats:
    """The values of some rows, by their hashes."""

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, np.uint64)
        self.rows = np.empty(0, np.int64)
        self.limit = 2**64 - 1
        """The largest hash to keep."""
        self.waiting: list[Hashes] = []
        self.n_waiting = 0

    def add(self, hashes: Hashes) -> None:
        own = hashes if self.limit == 2**64 - 1 else hashes[hashes <= np.uint64(self.limit)]
        self.waiting.append(own)
        self.n_waiting += len(own)
        if self.n_waiting >= WAITING:
            self.settle()

    def settle(self) -> "Repeats":
        """Merge the waiting hashes."""
        new = np.concatenate([self.hashes, *self.waiting])
        before = np.concatenate([self.rows, np.ones(self.n_waiting, np.int64)])
        self.waiting, self.n_waiting = [], 0
        found, at = np.unique(new, return_inverse=True)
        rows = np.bincount(at, weights=before, minlength=len(found)).astype(np.int64)
        if len(found) > KEPT:
            self.limit = int(found[KEPT - 1])
        self.hashes, self.rows = found[:KEPT], rows[:KEPT]
        return self

    @property
    def share(self) -> float:
        """The fraction of all hashes that may be kept."""
        return self.limit / (2**64 - 1)

    def repeated(self) -> int:
        """About how many rows repeat a value of an earlier row."""
        self.settle()
        return round((int(self.rows.sum()) - len(self.rows)) / self.share)

    def rows_also_in(self, other: "Repeats") -> int:
        """About how many rows have a value that the other also has."""
        one, two = self.settle(), other.settle()
        most = np.uint64(min(one.limit, two.limit))
        same = np.isin(one.hashes, two.hashes) & (one.hashes <= most)
        return round(int(one.rows[same].sum()) / min(one.share, two.share))


def hashes_of_values(values: NDArray[np.generic]) -> Hashes:
    """A hash of each value (n,), a number or text, stable within this process."""
    found = np.fromiter((hash(value) for value in values.tolist()), np.int64, len(values)).view(np.uint64)
    # Python's hash of a number is the number: mix it (SplitMix64 of Steele, Lea and Flood, 2014).
    with np.errstate(over="ignore"):
        z = found * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
