"""Copies of rows: whether equal rows of a table are copies of each other, or equal by chance.

A row that was copied, by a join or to balance classes, and is held out, meets its copies among the rows that
train. It shows how well a model remembers, and not how well it predicts. Whole groups of copies have to be
held out. In a table of few columns with few values rows are equal by chance, and new rows will be equal to
them, too: such rows are held out one by one, as new ones come. So are copies that are fewer than half of the
rows, as tables have them that nobody copied: new rows will have them as well. Copies have two marks:

Targets   copies have the same target, other equal rows have that of their noise
Columns   rows that are equal by chance in two halves of the columns are equal in both as often as by chance
          (DECISIONS.md)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.trained_rows import Hashes, hashes_of_rows
from dcpred_tasks.dtypes import FloatArray, IntArray

FEWEST_COPIES, LEAST_SHARE = 20, 0.1  # rows with a copy, and their share of a class, from which they matter
HELD_TOGETHER = 0.5  # share of rows with a copy from which copies are held out together
SAME_TARGET = 0.9  # share of equal rows with the same target from which they are copies
BEYOND_CHANCE = 10.0  # pairs of equal rows in place of one by chance from which they are copies
FIRST_ROWS = 2**12  # rows whose values divide the columns in halves


@dataclass
class Copies:
    """Finds copies among rows, of which blocks are added."""

    halves: tuple[IntArray, IntArray] | None = None
    keys: list[tuple[Hashes, Hashes, Hashes]] = field(default_factory=list)
    """Of all columns, and of each half."""
    targets: list[NDArray[np.generic]] = field(default_factory=list)

    def add(self, X: NDArray[np.generic], y: NDArray[np.generic]) -> None:
        """Rows (n, n_features) and their targets."""
        if self.halves is None:
            self.halves = _halves(X[:FIRST_ROWS])
        first, second = (hashes_of_rows(X[:, half]) if len(half) else _none(len(X)) for half in self.halves)
        self.keys.append((hashes_of_rows(X), first, second))
        self.targets.append(y)

    def share(self, sampled: float = 1.0) -> float:
        """The share of rows with a copy, of the class where it is largest; 0 where equal rows are none.

        sampled  share of all rows that these are
        """
        if not self.keys:
            return 0.0
        keys, *halves = (np.concatenate(each) for each in zip(*self.keys, strict=True))
        target = np.unique(np.concatenate(self.targets), return_inverse=True)[1]
        n, (group, size) = len(keys), _sizes(keys)
        equal = size > 1
        if np.count_nonzero(equal) < FEWEST_COPIES:
            return 0.0
        alike = _sizes(group * (int(target.max()) + 1) + target)[1]
        if ((alike - 1) / np.maximum(size - 1, 1))[equal].mean() < SAME_TARGET:
            return 0.0
        by_chance = np.prod([_pairs(_sizes(half)[1]) for half in halves]) / (n * (n - 1.0))
        if _pairs(size) < BEYOND_CHANCE * by_chance:
            return 0.0
        rows = np.bincount(target)
        copied = np.bincount(target, equal)
        if len(rows) * FEWEST_COPIES > n:  # The targets are numbers, or few of each.
            rows, copied = np.array([n]), np.array([np.count_nonzero(equal)])
        some = copied >= FEWEST_COPIES
        share = float((copied / np.maximum(rows, 1))[some].max(initial=0.0)) / sampled
        return min(share, 1.0) if share >= LEAST_SHARE else 0.0


def copied_share(blocks: Iterable[tuple[NDArray[np.generic], NDArray[np.generic]]], sampled: float) -> float:
    """`Copies.share` of blocks of rows with their targets."""
    copies = Copies()
    for X, y in blocks:
        copies.add(X, y)
    return copies.share(sampled)


def _halves(X: NDArray[np.generic]) -> tuple[IntArray, IntArray]:
    """The columns that vary, dealt out in the order of their numbers of values."""
    values = np.array([len(np.unique(column)) for column in X.T])
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > 1]
    return order[::2], order[1::2]


def _none(n: int) -> Hashes:
    """The hash of no column."""
    return np.zeros(n, np.uint64)


def _sizes(keys: NDArray[np.generic]) -> tuple[IntArray, IntArray]:
    """The number of the group of each row, and how many rows that has."""
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return group, counts[group]


def _pairs(size: IntArray) -> FloatArray:
    """Twice the pairs of rows in a group, from the sizes of the groups of rows."""
    return np.asarray((size - 1.0).sum())
