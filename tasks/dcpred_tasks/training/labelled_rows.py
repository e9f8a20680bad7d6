"""Rows with their targets, each of them once, that factors are learned from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray

RARE_OF_SEVERAL = 0.2  # share of a class below which it is rare, in even shares of three classes or more
RARE_SHARE = 0.9  # share of the most frequent class from which the others are rare
ROWS_AT_ONCE = 2**10  # rows whose bytes are compared at once


def rare_classes(totals: FloatArray) -> IntArray:
    """Numbers of the rare classes: the rarer of two, below `RARE_SHARE`; of several, those below
    `RARE_OF_SEVERAL` of an even share.

    totals  float64 (n_classes,), weights of all rows of each class
    """
    if len(totals) == 2:
        return np.array([totals.argmin()] if totals.max() >= RARE_SHARE * totals.sum() else [], np.int64)
    return np.flatnonzero(totals * len(totals) < RARE_OF_SEVERAL * totals.sum())


@dataclass(frozen=True)
class LabelledRows:
    """Distinct rows in standardised features, without the constant ones."""

    U: SingleArray  # (n, d)
    y: FloatArray  # (n,): class numbers, or values of mean 0 and variance 1
    weight: FloatArray  # (n,), > 0, mean 1

    def take(self, rows: IntArray) -> "LabelledRows":
        return LabelledRows(self.U[rows], self.y[rows], self.weight[rows])


def distinct_rows(
    U: SingleArray, target: NDArray[np.generic], weight: FloatArray, task: str
) -> tuple[LabelledRows, IntArray]:
    """One row for each that differs, of their mean weight and their heaviest class or mean value: a copy of a
    row among its neighbours would foretell its label at any metric. With the numbers of these rows.
    """
    U = np.ascontiguousarray(U + MODEL_DTYPE(0))  # Turns −0 into 0: equal rows have equal bytes.
    keys = (
        U.view(np.dtype((np.void, max(U.itemsize * U.shape[1], 1)))).ravel()
        if U.shape[1]
        else np.zeros(len(U))
    )
    first, group = _groups(keys)
    total = np.bincount(group, weights=weight)
    if task == "classification":
        classes, number = np.unique(target, return_inverse=True)
        pairs, pair = np.unique(group * len(classes) + number, return_inverse=True)
        heaviest = pairs[np.lexsort((np.bincount(pair, weights=weight), pairs // len(classes)))]
        y = (heaviest[np.append(np.diff(heaviest // len(classes)) > 0, True)] % len(classes)).astype(
            ACC_DTYPE
        )
    else:
        values = target.astype(ACC_DTYPE)
        largest = np.abs(values).max(initial=0.0) or 1.0  # Dividing by it keeps squares from overflowing.
        y = np.bincount(group, weights=weight * (values / largest)) / total
        spread = y.std()
        y = (y - y.mean()) / spread if spread > 1e-12 else np.zeros(len(y))
    mean = total / np.bincount(group)
    order = np.argsort(first)  # the order of the sample, and not that of the rows' bytes
    kept = first[order]
    own = U if len(kept) == len(U) else U[kept]
    return LabelledRows(own, y[order], np.maximum(mean[order] / mean.mean(), 1e-6)), kept


def _groups(keys: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """The first row of each key, in the order of keys, and the number of the key of each row: as of
    np.unique, which copies the keys twice.
    """
    order = np.argsort(keys, kind="stable")
    new = np.ones(len(keys), bool)
    for start in range(1, len(keys), ROWS_AT_ONCE):
        part = keys[order[start - 1 : start + ROWS_AT_ONCE]]
        new[start : start + ROWS_AT_ONCE] = part[1:] != part[:-1]
    group = np.empty(len(keys), np.int64)
    group[order] = np.cumsum(new) - 1
    return order[new], group
