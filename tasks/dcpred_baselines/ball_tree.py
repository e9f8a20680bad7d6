"""The exact model by the cells of a ball tree, as far as the class of a row is not sure.

After Liu, Moore and Gray (NIPS 2003, "Efficient exact k-NN and nonparametric classification in high
dimensions") and Gray and Moore (NIPS 2000), whose idea is used here for f(x) = Σ_i α_i K(x, x_i) + b; their
papers were not at hand. With the sums P and N of the positive and the negative α of a cell
(dcpred_baselines.ball_cells),

    P K_min + N K_max ≤ Σ_cell α_i K(x, x_i) ≤ P K_max + N K_min,

and bounds of f(x) are sums of these over all cells. A row looks into cells in rounds, until the sign of f(x)
is sure, or with several outputs the largest of them: first into none, then into those whose gap (P − N)(K_max
− K_min) is more than a THRESHOLD over their number, then into all. The value is the middle of the bounds. So
the class is that of the exact model, and with one output |f(x) − value| ≤ |value|: far from the border the
value has little information but the class. A row whose class is not sure to the end gets the exact value.

Bounds help where kernels are narrow in few features. Where training rows say that they do not, the exact
model is kept as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_baselines.ball_cells import (
    ROWS_AT_ONCE,
    WORTH,
    Cells,
    cells_of,
    in_cells,
    measured_rows,
    taken_cells,
)
from dcpred_tasks.dtypes import FloatArray, RealArray
from dcpred_tasks.model.exact import Exact, exact_from_arrays, is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.leaf_model import LeafModelType

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

THRESHOLDS = (4.0, 1.0, 0.25)  # gaps of all cells together, in units of f(x), where a margin is 1
ROUNDING = 1e-12  # share of Σ|α|: how far from 0 a bound must be for the class to be sure
ALL, OPENED = -1.0, -2.0  # in the place of a threshold, and of a gap


@dataclass(frozen=True)
class BallTree:
    """f(x) = Σ_i α_i K(x, x_i) + b, by bounds.

    counted  float64 (1,), multiplications of a training row
    """

    cells: Cells
    counted: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.whole.shape

    def predict(self, X: RowArray) -> FloatArray:
        return self.bounds(X)[0]

    def bounds(self, X: RowArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values (n, n_outputs), how far f(x) may be from them (n, n_outputs), and the share of rows that
        look into each cell (cells,).
        """
        value, off = (np.empty((len(X), self.shape[1])) for _ in range(2))
        looked = np.zeros(len(self.cells.ends))
        for at in range(0, len(X), ROWS_AT_ONCE):
            own = slice(at, at + ROWS_AT_ONCE)
            looked += self._search(X[own], value[own], off[own])
        return value, off, looked / max(len(X), 1)

    def sizes(self, X: RowArray) -> FloatArray:
        return self.cells.whole.sizes(X)

    @property
    def cost(self) -> float:
        return float(self.counted[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.cells.whole.arrays() | {"ends": self.cells.ends, "counted": self.counted}

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """P and N, (cells, n_outputs) each."""
        dual = self.cells.whole.dual
        return self.cells.sums(np.maximum(dual, 0)), self.cells.sums(np.minimum(dual, 0))

    def _search(self, X: RowArray, value: FloatArray, off: FloatArray) -> FloatArray:
        """Fills `value` and `off`; gives how many rows looked into each cell. In single precision a row gets
        NaN where rounding decides what it looks into, or whether it ends.
        """
        cells, n_cells, single = self.cells, len(self.cells.ends), is_single(X)
        P: RealArray = self._sums[0].astype(X.dtype)
        N: RealArray = self._sums[1].astype(X.dtype)
        weight = (P - N).max(axis=1, initial=0)
        number, rows = np.arange(len(X)), cells.rows(X)
        ball = cells.balls(rows)
        least, most, unsure = ball.least, ball.most, ball.unsure * weight
        gap = (most - least) * weight
        summed = np.tile(cells.whole.intercept, (len(X), 1))
        looked, rounding = np.zeros(n_cells), ROUNDING * float(self._sums[0].sum() - self._sums[1].sum())
        for threshold in (np.inf, *(t / max(n_cells, 1) for t in THRESHOLDS), ALL):
            last, new = threshold == ALL, gap > threshold
            doubt = (np.abs(gap - threshold) <= unsure).any(axis=1) & (single and not last)
            cells.add_opened(rows, new, summed)
            looked += new.sum(axis=0)
            for values, there in ((least, 0), (most, 0), (unsure, 0), (gap, OPENED)):
                values[new] = there
            lower, upper = summed + least @ P + most @ N, summed + most @ P + least @ N
            slack = unsure.sum(axis=1) if single else np.full(len(number), rounding)
            sure = _is_sure(lower, upper, slack)
            doubt |= ~sure & _is_sure(lower, upper, -slack) & (single and not last)
            ended = sure | doubt | last
            value[number[ended]] = (lower[ended] + upper[ended]) / 2
            off[number[ended]] = (upper[ended] - lower[ended]) / 2
            value[number[doubt]] = np.nan
            if ended.all():
                break
            left = ~ended
            number, rows, summed = number[left], rows[left], summed[left]
            least, most, unsure, gap = least[left], most[left], unsure[left], gap[left]
        return looked


def _is_sure(lower: FloatArray, upper: FloatArray, slack: FloatArray) -> NDArray[np.bool_]:
    """Rows whose sign, or largest output, is sure though bounds are off by so much, (n,)."""
    if lower.shape[1] == 1:
        return np.asarray((lower[:, 0] > slack) | (upper[:, 0] < -slack))
    first, others, at = lower.argmax(axis=1), upper.copy(), np.arange(len(lower))
    others[at, first] = -np.inf
    return np.asarray(lower[at, first] > others.max(axis=1) + 2 * slack)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> BallTree | Exact:
    if "ends" not in arrays:
        return exact_from_arrays(arrays)
    whole, ends, counted = taken_cells(arrays)
    return BallTree(cells_of(whole, ends), counted)


def fit(
    kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int
) -> BallTree | Exact:
    """Cells of at most kind.size support vectors; the exact model where they do not save a fifth."""
    from dcpred_tasks.training.solvers import fit_exact  # noqa: PLC0415 - scikit-learn comes with it

    whole, ends = in_cells(fit_exact(rows, kernel, settings), kind.size)
    if not len(ends):
        return whole
    tree = BallTree(cells_of(whole, ends), np.zeros(1))
    looked = tree.bounds(measured_rows(rows.X).astype(np.float64))[2]
    counted = tree.cells.multiplications(looked)
    return whole if counted > WORTH * whole.cost else BallTree(tree.cells, np.array([counted]))
