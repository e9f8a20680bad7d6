"""Which rows are held out: folds by the hash of a row's number, the same for every driver."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.training.sampling import row_hash

HELD_OUT_SHARE = 0.25  # share of the rows that is held out in a fold
FOLDS = 4  # folds whose held-out rows are disjoint
RARE = 40  # rows of a class below which its held-out rows are not left to chance


def folds_of(number: IntArray, seed: int, rare: IntArray | None = None) -> IntArray:
    """The folds (n,) of rows of these numbers: the same in every leaf, tree and scaling.

    rare  int64 (2, m), numbers, ascending, and folds of rows of rare classes (`rare_folds`)
    """
    part = row_hash(number, seed + 1).astype(np.float64) / 2.0**64
    fold = np.minimum((part / HELD_OUT_SHARE).astype(np.int64), FOLDS - 1)
    if rare is not None and rare.shape[1]:
        at = np.minimum(np.searchsorted(rare[0], number), rare.shape[1] - 1)
        fold = np.where(rare[0, at] == number, rare[1, at], fold)
    return np.asarray(fold)


def rare_folds(number: IntArray, target: NDArray[np.generic], seed: int) -> IntArray:
    """Numbers, ascending, and folds, int64 (2, m), of the rows of classes with fewer than RARE rows among
    these: drawn each by itself, none of 10 rows would be held out in one of 18 searches. The folds of a class
    differ by one row at most. Of a single row the last one holds it: where it does not train it is wrong.

    number  (n,)
    target  (n,), class numbers
    """
    classes, of = np.unique(target, return_inverse=True)
    counts = np.bincount(of, minlength=len(classes))
    found = [np.zeros((2, 0), np.int64)]
    for one in np.flatnonzero(counts < RARE):
        own = number[of == one]
        own = own[np.argsort(row_hash(own, seed + 1), kind="stable")]
        found.append(np.stack([own, (np.arange(len(own)) + FOLDS - 1) % FOLDS]))
    together = np.concatenate(found, axis=1)
    return np.asarray(together[:, np.argsort(together[0], kind="stable")], dtype=np.int64)
