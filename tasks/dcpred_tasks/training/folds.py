"""Which rows are held out, for every driver, tree and scaling.

By default folds follow from the hash of a row's number. Where rows of a group belong together, or predictions
are for the latest rows, each row has a unit: `UNITS × (fold + 1)`, plus a number below UNITS that rows of one
group, or of one span of time, share. A row of fold −1 is never held out.

Each fold has two parts: the target encoding of a training row excludes its own part (categories.py), and a
group, or a span of time, does not see its own targets either.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, IntArray
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.row_sampling import row_hash

FOLDS = 4  # folds whose held-out rows are disjoint
MOST_FOLDS = 20
RARE = 40  # rows of a class below which its held-out rows are not left to chance
UNITS = 2**8
SPANS = 16  # spans of time of a fold
FEWEST_HELD, WANTED_HELD = 500, 5_000  # rows of the latest fold, and of all folds, that are enough

BoolArray = NDArray[np.bool_]
Units = NDArray[np.uint16]


@dataclass(frozen=True)
class Folds:
    """How rows are held out.

    seed       of random draws
    count      folds
    unit       (n_rows,), the unit of each row; None: by the hash of its number
    ordered    whether a fold is held out from the rows of earlier folds only
    clustered  whether rows of one unit vary together
    words      the held-out rows, as text
    stored     whether units lie in a file (training_job.read_folds)
    time       the column by which rows are ordered; empty without one
    """

    seed: int
    count: int = FOLDS
    unit: Units | None = None
    ordered: bool = False
    clustered: bool = False
    words: str = ""
    stored: bool = False
    time: str = ""

    @property
    def by_units(self) -> bool:
        return self.stored or self.unit is not None

    @property
    def n_parts(self) -> int:
        return 2 * (self.count + self.by_units)

    def parts(self, number: IntArray) -> IntArray:
        """int64 (n,), the part of each row by its number."""
        if self.unit is not None:
            unit = self.unit[number].astype(INDEX_DTYPE)
            return np.asarray(2 * (unit // UNITS) + unit % 2)
        share = row_hash(number, self.seed + 1).astype(ACC_DTYPE) / 2.0**64
        return np.minimum((share * self.n_parts).astype(INDEX_DTYPE), self.n_parts - 1)

    @property
    def n_groups(self) -> int:
        return self.n_parts // 2

    def groups(self, number: IntArray) -> IntArray:
        """int64 (n,), the fold of each row by its number; rows that are never held out have one, too."""
        return np.asarray(self.parts(number) // 2)

    def group_of(self, fold: int) -> int:
        """Which of the groups a fold is."""
        return fold + self.by_units

    def of(self, number: IntArray, rare: IntArray | None = None) -> IntArray:
        """int64 (n,), the fold of each row by its number.

        rare  int64 (2, m), numbers, ascending, and folds of rows of rare classes (`rare_folds`)
        """
        fold = self.groups(number) - self.by_units
        if rare is not None and rare.shape[1]:
            at = np.minimum(np.searchsorted(rare[0], number), rare.shape[1] - 1)
            fold = np.where(rare[0, at] == number, rare[1, at], fold)
        return np.asarray(fold)

    def out_of(self, fold: int) -> BoolArray:
        """bool (n_parts,), the parts whose rows do not train where a fold is held out."""
        fold_of_part = np.arange(self.n_parts) // 2 - self.by_units
        return np.asarray(fold_of_part >= fold if self.ordered else fold_of_part == fold)

    def clusters(self, number: IntArray) -> IntArray:
        """int64 (n,), the same number for rows that vary together."""
        if self.unit is None or not self.clustered:
            return np.arange(len(number), dtype=INDEX_DTYPE)
        return self.unit[number].astype(INDEX_DTYPE)

    def identity(self) -> list[Any]:
        """Identifies folds with the same rows."""
        unit = sha256(self.unit.tobytes()).hexdigest() if self.unit is not None else ""
        return [self.seed, self.count, unit, self.ordered, self.clustered]

    def take(self, number: IntArray) -> "Folds":
        """The same of some rows, which are numbered from 0 on."""
        return self if self.unit is None else replace(self, unit=self.unit[number])

    def pairs(self, number: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Positions of the rows that train and of those that are held out, of each fold that has both."""
        part, fold_of = self.parts(number), self.of(number)
        each = [
            (np.flatnonzero(~self.out_of(fold)[part]), np.flatnonzero(fold_of == fold))
            for fold in range(self.count)
        ]
        return [(trains, held) for trains, held in each if len(trains) and len(held)]

    def enough(self, number: IntArray) -> list[int]:
        """The folds that probabilities and intervals are measured on: the latest, or, of few rows, all."""
        sizes = np.bincount(self.of(number) + 1, minlength=self.count + 1)[1:]
        if self.ordered and sizes[-1] >= FEWEST_HELD:
            return [self.count - 1]
        before = np.cumsum(sizes) - sizes
        return [fold for fold in range(self.count) if sizes[fold] and before[fold] < WANTED_HELD]


def rare_folds(number: IntArray, target: NDArray[np.generic], seed: int, count: int = FOLDS) -> IntArray:
    """Numbers, ascending, and folds, int64 (2, m), of the rows of classes with fewer than RARE rows among
    these. Single draws would hold out none of 10 rows in one of 18 searches. The folds of a class differ by
    at most one row. The last fold holds a single row: a class that does not train is wrong.

    number  (n,)
    target  (n,), class numbers
    """
    classes, of = np.unique(target, return_inverse=True)
    counts = np.bincount(of, minlength=len(classes))
    pairs = [np.zeros((2, 0), np.int64)]
    for rare in np.flatnonzero(counts < RARE):
        rows = number[of == rare]
        rows = rows[np.argsort(row_hash(rows, seed + 1), kind="stable")]
        pairs.append(np.stack([rows, (np.arange(len(rows)) + count - 1) % count]))
    together = np.concatenate(pairs, axis=1)
    return np.asarray(together[:, np.argsort(together[0], kind="stable")], dtype=np.int64)


def check_count(count: int) -> int:
    """Raise SettingsError for a number of folds that cannot be."""
    if not 2 <= count <= MOST_FOLDS:
        raise SettingsError(f"Cannot use folds={count}: it must be from 2 to {MOST_FOLDS}.")
    return count


def grouped_units(fold: IntArray, key: NDArray[np.uint64]) -> Units:
    """Units of rows by their folds (n,), from −1 on, and keys (n,) of what they share."""
    return np.asarray(UNITS * (fold + 1) + (key % np.uint64(UNITS)).astype(INDEX_DTYPE), np.uint16)
