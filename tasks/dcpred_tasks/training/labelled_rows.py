"""Rows with their targets, each of them once, that factors are learned from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray


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
    U = np.ascontiguousarray(U + MODEL_DTYPE(0))  # This turns −0 into 0, so that equal rows have equal bytes.
    keys = (
        U.view(np.dtype((np.void, max(U.itemsize * U.shape[1], 1)))).ravel()
        if U.shape[1]
        else np.zeros(len(U))
    )
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
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
        largest = np.abs(values).max(initial=0.0) or 1.0  # It is divided out, so that no square overflows.
        y = np.bincount(group, weights=weight * (values / largest)) / total
        spread = y.std()
        y = (y - y.mean()) / spread if spread > 1e-12 else np.zeros(len(y))
    mean = total / np.bincount(group)
    order = np.argsort(first)  # the order of the sample, and not that of the rows' bytes
    kept = first[order]
    own = U if len(kept) == len(U) else U[kept]
    return LabelledRows(own, y[order], np.maximum(mean[order] / mean.mean(), 1e-6)), kept
