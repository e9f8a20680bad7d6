"""The exact model by the cells of its support vectors, as far as a bound on the error asks.

f(x) = Σ_i α_i K(x, x_i) + b. A cell with the centroid c and the radius R (ball_tree.py) stands
for its support vectors as a K(x, c), a = Σ_cell α_i, where at r = ‖x − c‖

    max( K(max(r − R, 0)) − K(r), K(r) − K(r + R) ) ≤ ε,

and the error of an output is at most ε · Σ_i |α_i|, for every row; a row looks into every other cell. ε
is chosen by training rows, for an error in the spread of decision values.

Ukkonen ("The support vector tree", Algorithms and Applications, LNCS 6060, 2010) has the idea that a tree
gives each row basis vectors of its own. His tree is learned of training rows by a greedy algorithm, and gives
no bound; his paper was not at hand. These cells are the leaves of a tree of the support vectors, and not his.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines.ball_tree import (
    ROWS_AT_ONCE,
    WORTH,
    Cells,
    cells_of,
    in_cells,
    measured_rows,
    taken_cells,
)
from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.exact import Exact, exact_from_arrays, is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import taken

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

EPSILONS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 3e-3, 1e-3, 1e-4)  # errors of a kernel value


@dataclass(frozen=True)
class SupportTree:
    """f(x) = Σ_cells a K(x, c) + Σ_opened α_i K(x, x_i) + b.

    epsilon  float64 (1,), ε
    counted  float64 (1,), multiplications of a training row
    """

    cells: Cells
    epsilon: FloatArray
    counted: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.whole.shape

    def predict(self, X: RowArray) -> FloatArray:
        return self.looked(X)[0]

    def looked(self, X: RowArray) -> tuple[FloatArray, FloatArray]:
        """Decision values (n, n_outputs), and the share of rows that look into each cell (cells,). In single
        precision a row gets NaN where rounding decides what it looks into.
        """
        out = np.tile(self.cells.whole.intercept, (len(X), 1))
        together, share = self._together.astype(X.dtype), np.zeros(len(self.cells.ends))
        for at in range(0, len(X), ROWS_AT_ONCE):
            block = slice(at, at + ROWS_AT_ONCE)
            rows = self.cells.rows(X[block])
            ball = self.cells.balls(rows)
            error = np.maximum(ball.most - ball.at_centre, ball.at_centre - ball.least)
            opened = error > self.epsilon[0]
            self.cells.add_opened(rows, opened, out[block])
            ball.at_centre[opened] = 0
            out[block] += ball.at_centre @ together
            if is_single(X):
                out[block][(np.abs(error - self.epsilon[0]) <= ball.unsure).any(axis=1)] = np.nan
            share += opened.sum(axis=0)
        return out, share / max(len(X), 1)

    def sizes(self, X: RowArray) -> FloatArray:
        """Those of the exact model, and ε for what stands for its values."""
        whole = self.cells.whole
        less = self.epsilon[0] * np.abs(whole.dual).sum(axis=0, dtype=np.float64).max(initial=0.0)
        return np.asarray(whole.sizes(X) + less)

    @property
    def cost(self) -> float:
        return float(self.counted[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = self.cells.whole.arrays() | {"ends": self.cells.ends}
        return arrays | {"epsilon": self.epsilon, "counted": self.counted}

    @cached_property
    def _together(self) -> FloatArray:
        return self.cells.sums(self.cells.whole.dual)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> SupportTree | Exact:
    if "ends" not in arrays:
        return exact_from_arrays(arrays)
    whole, ends, counted = taken_cells(arrays)
    (epsilon,) = taken(arrays, epsilon=("float64", 1))
    if epsilon.shape != (1,) or epsilon[0] < 0:
        raise ValueError("a support tree has no tolerance")
    return SupportTree(weighted_cells(whole, ends), epsilon, counted)


def weighted_cells(whole: Exact, ends: NDArray[np.int64]) -> Cells:
    """Centroids are weighted with |α|, summed over the outputs."""
    return cells_of(whole, ends, np.abs(whole.dual).sum(axis=1, dtype=np.float64))


def fit(
    kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int
) -> SupportTree | Exact:
    """Cells of at most kind.size support vectors, with the largest ε whose root mean squared error on
    training rows is within the tolerance; the exact model where that does not save a fifth.
    """
    from dcpred_tasks.training.solvers import fit_exact

    whole, ends = in_cells(fit_exact(rows, kernel, settings), kind.size)
    if not len(ends):
        return whole
    tree = SupportTree(weighted_cells(whole, ends), np.zeros(1), np.zeros(1))
    X = measured_rows(rows.X).astype(np.float64)
    true = whole.predict(X)
    allowed = kind.tolerance * true.std(axis=0)
    for epsilon in EPSILONS:
        tree = replace(tree, epsilon=np.array([epsilon]))
        value, looked = tree.looked(X)
        if (np.sqrt(((value - true) ** 2).mean(axis=0)) <= allowed).all():
            counted = tree.cells.multiplications(looked)
            worth = counted <= WORTH * whole.cost
            return replace(tree, counted=np.array([counted])) if worth else whole
    return whole
