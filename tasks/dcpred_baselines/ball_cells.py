"""Support vectors in cells, each within a ball: what a tree evaluator looks at before it looks at vectors.

The cells are the leaves of a ball tree. Inner nodes are left out: a row is compared with all cells at once,
by one product of matrices for a block of rows, and this takes less time than to walk down a tree for each of
them. At the distance r from the centre of a cell of radius R every kernel value of the cell is within
K(r + R) and K(max(r − R, 0)).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.model.exact import OF_KERNEL, Centring, Exact, exact_from_arrays
from dcpred_tasks.model.kernels import RowArray
from dcpred_tasks.model.packed_arrays import taken

ROWS_AT_ONCE = 4_096
MEASURED_ROWS = 500  # training rows whose multiplications are counted
WORTH = 0.8  # share of the multiplications of the exact model, from which on cells are not worth their lines
# Share of the largest value of a cell, times 1 + the size of the exponent, that single precision may be off.
UNSURE = 2e-6


@dataclass(frozen=True)
class Ball:
    """Of rows and cells, (n, cells) each.

    at_centre  K(r)
    least      K(r + R)
    most       K(max(r − R, 0))
    unsure     how far these may be off by rounding of single precision
    """

    at_centre: RealArray
    least: RealArray
    most: RealArray
    unsure: RealArray


@dataclass(frozen=True)
class Cells:
    """A model with rbf kernel whose support vectors lie in the order of their cells.

    ends    int64 (cells,), where in the support vectors a cell ends; none is empty
    centre  float64 (cells, n_features)
    radius  float64 (cells,), the largest distance of its vectors from the centre
    """

    whole: Exact
    ends: IntArray
    centre: FloatArray
    radius: FloatArray

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.ends, prepend=0)

    @property
    def of_cell(self) -> int:
        """Multiplications for a cell."""
        return int(self.centre.shape[1]) + 3 * OF_KERNEL

    def multiplications(self, opened: FloatArray) -> float:
        """With the share of rows that look into each cell, (cells,)."""
        of_vector = self.whole.support.shape[1] + OF_KERNEL + self.whole.dual.shape[1]
        return float(len(self.ends) * self.of_cell + opened @ self.sizes * of_vector)

    def sums(self, weights: RealArray) -> FloatArray:
        """Sums of weights of vectors for each cell, float64 (cells, k)."""
        return np.add.reduceat(weights.astype(ACC_DTYPE), self.ends - self.sizes, axis=0)

    def rows(self, X: RowArray) -> RealArray:
        """Rows as they are compared, (n, n_features + 2)."""
        return self._centring.rows(X)

    def balls(self, rows: RealArray) -> Ball:
        # √γ r and √γ R: an exponent then is a square.
        r = np.sqrt(np.maximum(rows @ self._centres[rows.dtype.name], 0))
        R = (np.sqrt(self.whole.kernel.gamma) * self.radius).astype(rows.dtype)
        near, far = np.maximum(r - R, 0), r + R
        reach = rows[:, -2:-1] * rows.dtype.type(self.whole.kernel.gamma)
        at_centre, least, most = (np.exp(np.negative(a * a)) for a in (r, far, near))
        unsure = most * (UNSURE * (1 + reach)).astype(rows.dtype)
        return Ball(at_centre, least, most, unsure)

    def add_opened(self, rows: RealArray, opened: NDArray[np.bool_], out: FloatArray) -> None:
        """Add Σ α K of the cells that rows look into, (n, cells), to `out`, (n, n_outputs)."""
        for cell in np.flatnonzero(opened.any(axis=0)):
            some = np.flatnonzero(opened[:, cell])
            vectors, dual = self._vectors[rows.dtype.name][cell]
            t = rows[some] @ vectors
            out[some] += np.exp(t, out=t) @ dual

    @cached_property
    def _centring(self) -> Centring:
        return Centring(self.whole.support)

    @cached_property
    def _centres(self) -> dict[str, RealArray]:
        gamma = self.whole.kernel.gamma
        return {name: self._centring.points(self.centre, gamma, name) for name in ("float32", "float64")}

    @cached_property
    def _vectors(self) -> dict[str, list[tuple[RealArray, RealArray]]]:
        gamma, starts = self.whole.kernel.gamma, self.ends - self.sizes
        spans = [slice(a, b) for a, b in zip(starts.tolist(), self.ends.tolist(), strict=True)]
        return {
            np.dtype(dtype).name: [
                (
                    self._centring.points(self.whole.support[own], -gamma, dtype),
                    self.whole.dual[own].astype(dtype),
                )
                for own in spans
            ]
            for dtype in (MODEL_DTYPE, ACC_DTYPE)
        }


def cells_of(whole: Exact, ends: IntArray, weight: FloatArray | None = None) -> Cells:
    """Cells about the means of their vectors, weighted where there are weights. Raises ValueError for what
    are no cells.
    """
    n = len(whole.support)
    rising = bool((ends[:-1] < ends[1:]).all()) and (len(ends) == 0 or ends[0] > 0)
    if not rising or (int(ends[-1]) if len(ends) else 0) != n or whole.kernel.name != "rbf":
        raise ValueError("cells do not share the support vectors, or have another kernel than rbf")
    centre, radius = np.empty((len(ends), whole.support.shape[1])), np.empty(len(ends))
    start = 0
    for cell, end in enumerate(ends.tolist()):
        own = whole.support[start:end].astype(ACC_DTYPE)
        share = np.ones(len(own)) if weight is None or not weight[start:end].any() else weight[start:end]
        centre[cell] = share @ own / share.sum()
        off = own - centre[cell]
        radius[cell] = np.sqrt(np.einsum("ij,ij->i", off, off).max()) * (1 + 1e-12)
        start = end
    return Cells(whole, ends, centre, radius)


def taken_cells(arrays: Mapping[str, NDArray[Any]]) -> tuple[Exact, IntArray, FloatArray]:
    """The exact model, the ends of cells, and the multiplications that were counted, of arrays."""
    whole = exact_from_arrays(arrays)
    ends, counted = taken(arrays, ends=("int64", 1), counted=("float64", 1))
    if counted.shape != (1,) or counted[0] < 0:
        raise ValueError("a model of cells has no count of multiplications")
    return whole, ends, counted


def measured_rows(X: SingleArray) -> SingleArray:
    """Training rows whose multiplications are counted, spread over all."""
    return X[:: -(-len(X) // MEASURED_ROWS)]


def in_cells(whole: Exact, most: int) -> tuple[Exact, IntArray]:
    """The model with its support vectors in the order of cells of at most so many, and their ends."""
    order, ends = bisected(whole.support, most)
    return Exact(whole.kernel, whole.support[order], whole.dual[order], whole.intercept), ends


def bisected(X: RealArray, most: int) -> tuple[IntArray, IntArray]:
    """An order of the rows, and where cells of at most `most` of them end."""
    order, sizes = np.arange(len(X)), []
    pending = [(0, len(X))] if len(X) else []
    while pending:
        start, stop = pending.pop()
        if stop - start <= most:
            sizes.append(stop - start)
            continue
        inside, cut = _bisect(X[order[start:stop]].astype(np.float64))
        order[start:stop] = order[start:stop][inside]
        pending += [(start + cut, stop), (start, start + cut)]  # The first half comes next.
    return order, np.cumsum(sizes, dtype=np.int64)


def _bisect(X: FloatArray) -> tuple[IntArray, int]:
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
