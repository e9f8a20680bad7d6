"""Rows in cells: halved again and again, along the line between two that are far apart."""

import numpy as np

from dcpred_tasks.dtypes import FloatArray, IntArray, RealArray


def cells(X: RealArray, most: int) -> tuple[IntArray, IntArray]:
    """An order of the rows, and where cells of at most `most` of them end."""
    order, sizes = np.arange(len(X)), []
    pending = [(0, len(X))] if len(X) else []
    while pending:
        start, stop = pending.pop()
        if stop - start <= most:
            sizes.append(stop - start)
            continue
        inside, cut = _halves(X[order[start:stop]].astype(np.float64))
        order[start:stop] = order[start:stop][inside]
        pending += [(start + cut, stop), (start, start + cut)]  # The first half comes next.
    return order, np.cumsum(sizes, dtype=np.int64)


def _halves(X: FloatArray) -> tuple[IntArray, int]:
    """An order of at least two rows along the line between two that are far apart, and where to cut: at the
    widest gap that leaves a quarter on each side.
    """
    a = X[_squares(X - X.mean(axis=0)).argmax()]
    b = X[_squares(X - a).argmax()]
    along = (X - a) @ (b - a)
    order = np.argsort(along, kind="stable")
    least = max(len(X) // 4, 1)
    gaps = np.diff(along[order])[least - 1 : len(X) - least]
    cut = least + int(gaps.argmax()) if gaps.any() else len(X) // 2
    return order, cut


def _squares(X: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", X, X))
