"""Rules for the test rows of a data set. A rule is computed by passes over one-dimensional arrays in bounded
memory, and depends on rows and values alone: chunks of any shape give the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.input_kinds import is_missing
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.training.sampling import row_hash

BoolArray = NDArray[np.bool_]
Values = Callable[[], Iterator[NDArray[Any]]]
"""A pass over an array: its values from the first row to the last, in parts of any length."""
CLASS_BITS = 40  # low bits of a number; the bits above are the class
MOST_SORTED = 2**21  # values that are sorted at once
MOST_GROUPS = 2**21  # groups that are counted one by one; of more each goes to a random side
BINS = 2**16
WHOLE_HASH = 2.0**64


class Rule(Protocol):
    """A rule for the test rows."""

    def sides(self) -> Iterator[BoolArray]:
        """True for each test row, from the first to the last, in parts of any length."""


@dataclass(frozen=True)
class Drawn:
    """Rows drawn at random, the same fraction of each class, to within one row.

    Rows of a class are numbered in their order and put into sets of 1 / share neighbours. One row of each set
    is drawn, by the hash of the set's number, the class and the seed.
    """

    parts: Values
    """Class numbers; all 0 without stratification."""
    share: float
    seed: int

    def sides(self) -> Iterator[BoolArray]:
        seen: dict[int, int] = {}
        for classes in self.parts():
            rank = np.empty(len(classes), np.int64)
            order = np.argsort(classes, kind="stable")
            found, starts = np.unique(classes[order], return_index=True)
            for one, own in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
                first = seen.get(one, 0)
                rank[own] = np.arange(first, first + len(own))
                seen[one] = first + len(own)
            yield self._is_drawn(classes, rank)

    def _is_drawn(self, classes: IntArray, rank: IntArray) -> BoolArray:
        number = np.floor(rank * self.share).astype(np.int64)
        number -= rank < self._begin(number)  # where a product was rounded
        number += rank >= self._begin(number + 1)
        begin = self._begin(number)
        size = np.maximum(self._begin(number + 1) - begin, 1).astype(np.uint64)
        chance = row_hash(number + (classes.astype(np.int64) << CLASS_BITS), self.seed)
        return np.asarray(rank - begin == (chance % size).astype(np.int64))

    def _begin(self, number: IntArray) -> IntArray:
        """The first row of a set."""
        return np.asarray(np.ceil(number / self.share).astype(np.int64))


@dataclass(frozen=True)
class Last:
    """The rows from one on."""

    n_rows: int
    first: int

    def sides(self) -> Iterator[BoolArray]:
        for start in range(0, self.n_rows, BINS):
            yield np.arange(start, min(start + BINS, self.n_rows)) >= self.first


@dataclass(frozen=True)
class Above:
    """Rows whose value is at least, or with `below` at most, a limit."""

    parts: Values
    limit: Any
    below: bool = False

    def sides(self) -> Iterator[BoolArray]:
        for values in self.parts():
            yield np.asarray(values <= self.limit if self.below else values >= self.limit)


def latest(parts: Values, share: float) -> Above:
    """The rows with the largest values. Rows of one value go to one side: as near the share as possible.
    Raises ValueError if all values are equal.

    parts  float64, without NaN
    """
    n_rows = sum(len(values) for values in parts())
    wanted = min(max(round(share * n_rows), 1), n_rows - 1)
    limit = _nth(parts, n_rows - wanted)
    n_from = n_above = 0
    above = np.inf
    for values in parts():
        larger = values[values > limit]
        n_from, n_above = n_from + int((values >= limit).sum()), n_above + len(larger)
        above = min(above, float(larger.min())) if len(larger) else above
    if n_from == n_rows and not n_above:
        raise ValueError("all rows have the same value")
    if n_from == n_rows or (n_above and wanted - n_above < n_from - wanted):
        limit = above
    return Above(parts, limit)


def _nth(parts: Values, n: int) -> float:
    """The value at position n, from 0, of all values in their order. Counts values in bins, and those of one
    bin in smaller bins, until few enough are left to sort.
    """
    low, high, n_left = _limits(parts, -np.inf, np.inf)
    while n_left > MOST_SORTED and low < high:
        counts = np.zeros(BINS, np.int64)
        for values in parts():
            counts += np.bincount(_bins(values, low, high), minlength=BINS + 1)[:BINS]
        bins = np.cumsum(counts)
        chosen = int(np.searchsorted(bins, n, side="right"))
        n -= int(bins[chosen - 1]) if chosen else 0
        low, high, n_left = _limits(parts, low, high, chosen)
    inside = [values[(values >= low) & (values <= high)] for values in parts()] if low < high else []
    return float(np.partition(np.concatenate(inside), n)[n]) if inside else low


def _bins(values: FloatArray, low: float, high: float) -> IntArray:
    """The bin of each value, from 0 on; BINS for those outside. Larger values have no smaller bins."""
    inside = (values >= low) & (values <= high)
    place = (np.where(inside, values, low) / 2 - low / 2) / (high / 2 - low / 2) * BINS
    return np.where(inside, np.minimum(place.astype(np.int64), BINS - 1), BINS)


def _limits(parts: Values, low: float, high: float, only: int | None = None) -> tuple[float, float, int]:
    """The least and the largest of values within limits, and their number: of all, or of one bin."""
    least, most, n = np.inf, -np.inf, 0
    for values in parts():
        inside = (values >= low) & (values <= high) if only is None else _bins(values, low, high) == only
        if inside.any():
            kept = values[inside]
            least, most, n = min(least, float(kept.min())), max(most, float(kept.max())), n + len(kept)
    return least, most, n


def whole_groups(parts: Values, share: float, seed: int) -> Above:
    """Rows of whole groups, in the order of their hashes, as near the share as possible.

    parts  keys of groups, uint64, as `group_keys` makes them

    Raises ValueError if there is only one group.
    """
    counts: dict[int, int] = {}
    n_rows = 0

    def chances() -> Iterator[NDArray[np.uint64]]:
        for keys in parts():
            yield row_hash(keys, seed)

    for values in chances():
        n_rows += len(values)
        if len(counts) <= MOST_GROUPS:
            found, n = np.unique(values, return_counts=True)
            for one, more in zip(found.tolist(), n.tolist(), strict=True):
                counts[one] = counts.get(one, 0) + more
    if len(counts) > MOST_GROUPS:
        return Above(chances, np.uint64(share * WHOLE_HASH), below=True)
    if len(counts) < 2:
        raise ValueError("all rows are of one group")
    order = sorted(counts)
    held = np.cumsum([counts[one] for one in order])[:-1]
    return Above(chances, np.uint64(order[int(np.abs(held - share * n_rows).argmin())]), below=True)


def without_group(values: NDArray[Any]) -> NDArray[np.intp]:
    """The rows without a group: with a missing value or an empty text."""
    if values.dtype.kind in "fmM":
        return np.flatnonzero(np.isnan(values) if values.dtype.kind == "f" else np.isnat(values))
    if values.dtype.kind in "biu":
        return np.empty(0, np.intp)
    texts = values.astype(object).tolist()
    return np.flatnonzero([is_missing(one) or one in ("", b"") for one in texts])


def group_keys(values: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit key of each value: equal values have equal keys."""
    if values.dtype.kind in "biu":
        return (
            values.astype(np.int64).view(np.uint64) if values.dtype.kind != "u" else values.astype(np.uint64)
        )
    if values.dtype.kind == "f":
        return (values.astype(np.float64) + 0.0).view(np.uint64)  # −0 is 0
    found, which = np.unique(plain_text(values, "the groups"), return_inverse=True)
    digests = [
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in found.tolist()
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)[which]
