"""How often values occurred, in bounded memory: exactly as long as they are few, then in ever wider bins.

A value is counted in single precision, by its bits in an order that is that of the values. Where there are
more different ones than may be, the last bit is dropped and bins of two become one: after s times a bin is as
wide as 2^(s − 23) of its value. Ranks, quantiles and areas under curves come from the counts.
"""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray

SIGN = np.uint32(2**31)


class CountedValues:
    """Values of several kinds, such as decision values of right and of other rows."""

    def __init__(self, n_kinds: int, most: int) -> None:
        """most  different values that are told apart"""
        self.most = max(most, 1)
        self.shift = 0
        """Bits that are dropped."""
        self.keys = np.empty(0, np.uint32)
        """Bins that have a count, ascending."""
        self.counts: IntArray = np.empty((0, n_kinds), np.int64)
        """(bins, n_kinds)."""

    @property
    def resolution(self) -> float:
        """The width of a bin as a share of its values; 0 where each value has its own."""
        return 0.0 if self.shift == 0 else 2.0 ** (self.shift - 23)

    def add(self, values: NDArray[np.floating], kinds: NDArray[np.integer]) -> None:
        """Count values (n,), which are numbers, each of a kind (n,)."""
        if not len(values):
            return
        n_kinds = self.counts.shape[1]
        codes = (_keys(values) >> np.uint32(self.shift)).astype(np.uint64) * np.uint64(n_kinds)
        found, n = np.unique(codes + kinds.astype(np.uint64), return_counts=True)
        new = (found // np.uint64(n_kinds)).astype(np.uint32)
        keys = np.sort(np.concatenate([self.keys, new]))  # np.union1d hashes them, which takes longer
        keys = keys[np.concatenate([keys[1:] != keys[:-1], np.ones(min(len(keys), 1), bool)])]
        counts = np.zeros((len(keys), n_kinds), np.int64)
        counts[np.searchsorted(keys, self.keys)] = self.counts
        np.add.at(counts, (np.searchsorted(keys, new), (found % np.uint64(n_kinds)).astype(np.int64)), n)
        while len(keys) > self.most:
            keys = keys >> np.uint32(1)
            first = np.flatnonzero(np.diff(keys, prepend=keys[0] + np.uint32(1)))
            keys, counts = keys[first], np.add.reduceat(counts, first, axis=0)
            self.shift += 1
        self.keys, self.counts = keys, counts

    @property
    def values(self) -> FloatArray:
        """A value of each bin, ascending: its own, or one in the middle."""
        middle = (self.keys << np.uint32(self.shift)) | np.uint32(2**self.shift >> 1)
        bits = np.where(middle & SIGN, middle ^ SIGN, ~middle)
        return np.asarray(np.clip(bits.view(np.float32), *_LIMITS), np.float64)


_LIMITS = np.finfo(np.float32).min, np.finfo(np.float32).max


def _keys(values: NDArray[np.floating]) -> NDArray[np.uint32]:
    """Whole numbers in the order of the values."""
    with np.errstate(over="ignore"):
        single = np.clip(values, *_LIMITS).astype(np.float32) + np.float32(0)  # −0 is 0
    bits = single.view(np.uint32)
    return np.asarray(np.where(bits & SIGN, ~bits, bits ^ SIGN), np.uint32)


def quantiles(values: FloatArray, counts: IntArray, shares: FloatArray) -> FloatArray:
    """The least of ascending values that a share of all is not above: (len(shares),). Some have a count."""
    total = np.cumsum(counts)
    at = np.searchsorted(total, np.ceil(shares * total[-1]).clip(1))
    return np.asarray(values[at])
