"""The exact model by the cells of a ball tree, as far as the class of a row is not sure.

After Liu, Moore and Gray (NIPS 2003, "Efficient exact k-NN and nonparametric classification in high
dimensions") and Gray and Moore (NIPS 2000), whose idea is used here for f(x) = Σ_i α_i K(x, x_i) + b; their
papers were not at hand. The cells are the leaves of a ball tree: a row is compared with all of them at once,
which takes less time than to walk down a tree. With the sums P and N of the positive and the negative α of a
cell,

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

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.model.exact import OF_KERNEL, Centring, Exact, exact_from_arrays, is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import taken
from dcpred_tasks.row_sampling import at_most

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

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
                    self._centring.points(self.whole.support[span], -gamma, dtype),
                    self.whole.dual[span].astype(dtype),
                )
                for span in spans
            ]
            for dtype in (MODEL_DTYPE, ACC_DTYPE)
        }


def cells_of(whole: Exact, ends: IntArray, weight: FloatArray | None = None) -> Cells:
    """Cells about the means of their vectors, weighted or not. Raises ValueError for what are no cells."""
    n = len(whole.support)
    rising = bool((ends[:-1] < ends[1:]).all()) and (len(ends) == 0 or ends[0] > 0)
    if not rising or (int(ends[-1]) if len(ends) else 0) != n or whole.kernel.name != "rbf":
        raise ValueError("cells do not share the support vectors, or have another kernel than rbf")
    centre, radius = np.empty((len(ends), whole.support.shape[1])), np.empty(len(ends))
    start = 0
    for cell, end in enumerate(ends.tolist()):
        support = whole.support[start:end].astype(ACC_DTYPE)
        share = np.ones(len(support)) if weight is None or not weight[start:end].any() else weight[start:end]
        centre[cell] = share @ support / share.sum()
        off = support - centre[cell]
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
    return X[at_most(len(X), MEASURED_ROWS)]


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
    """An order of rows along the line between two far apart, and the widest gap in its middle half."""
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
        """Values (n, n_outputs), how far f(x) may be off (n, n_outputs), and shares that look into cells."""
        value, off = (np.empty((len(X), self.shape[1])) for _ in range(2))
        looked = np.zeros(len(self.cells.ends))
        for at in range(0, len(X), ROWS_AT_ONCE):
            block = slice(at, at + ROWS_AT_ONCE)
            looked += self._search(X[block], value[block], off[block])
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
    from dcpred_tasks.training.solvers import fit_exact

    whole, ends = in_cells(fit_exact(rows, kernel, settings), kind.size)
    if not len(ends):
        return whole
    tree = BallTree(cells_of(whole, ends), np.zeros(1))
    looked = tree.bounds(measured_rows(rows.X).astype(np.float64))[2]
    counted = tree.cells.multiplications(looked)
    return whole if counted > WORTH * whole.cost else BallTree(tree.cells, np.array([counted]))
