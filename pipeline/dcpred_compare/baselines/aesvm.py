"""An SVM of approximate extreme points: few rows of each class, with weights, stand for all.

Nandan, Khargonekar and Talathi, "Fast SVM Training Using Approximate Extreme Points", JMLR 15 (2014). The
rows of a class are divided into subsets of at most SUBSET rows; of each subset, rows z_t are chosen until
every row is near a convex combination of them in the space of the kernel,

    ‖ φ(x_i) − Σ_t μ_it φ(z_t) ‖² ≤ ε,   μ_it ≥ 0,   Σ_t μ_it = 1,

and the SVM is trained on the chosen rows alone, with weights that say for how many rows each stands:

    min ½‖w‖² + C Σ_t β_t max(0, 1 − y_t (w·φ(z_t) + b)),   β_t = Σ_i weight_i μ_it.

The paper was not at hand, so two steps are ours: the subsets are leaves of a tree of bisections, and the next
row that is chosen is the one that is farthest from the combinations so far. A subset ends at ε, or at `size`
rows of 100, whichever comes first.
"""

from dataclasses import replace

import numpy as np

from dcpred_compare.baselines.ball_tree import bisected
from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import LeafRows, fit_exact, local_sample

SUBSET = 100  # rows, V of the paper
EPSILON = 0.02  # squared distance from a convex combination, where a row φ(x) has the length 1
STEPS = 30  # towards the nearest combinations, after each row that is chosen
NEAR = 1e-7  # gain of a step, below which it is not worth another


def extreme_points(K: FloatArray, epsilon: float, most: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows of a Gram matrix (n, n), at most so many; the combinations of them that are near to each row
    (n, chosen); and the squared distances from these (n,).
    """
    squares = np.diag(K)
    chosen = [int((squares - 2.0 * K.mean(axis=1)).argmax())]
    mu = np.ones((len(K), 1))
    while True:
        mu = _nearest(K[np.ix_(chosen, chosen)], K[:, chosen], mu)
        mu[chosen] = np.eye(len(chosen))
        inside = mu @ K[np.ix_(chosen, chosen)]
        off = np.maximum(squares - 2 * (mu * K[:, chosen]).sum(axis=1) + (inside * mu).sum(axis=1), 0.0)
        off[chosen] = 0.0
        if len(chosen) >= most or off.max() <= epsilon:
            return np.array(chosen), mu, off
        chosen.append(int(off.argmax()))
        mu = np.column_stack([mu, np.zeros(len(K))])


def representatives(
    X: SingleArray, weight: FloatArray, kernel: Kernel, size: int
) -> tuple[IntArray, FloatArray]:
    """Of rows of one class: those that stand for all, and their weights β, which sum to those of all."""
    order, ends = bisected(X, SUBSET)
    rows, beta = [], []
    for subset in np.split(order, ends[:-1]):
        most = min(max(-(-size * len(subset) // SUBSET), 1), len(subset))
        chosen, mu, _ = extreme_points(kernel(X[subset], X[subset]), EPSILON, most)
        rows.append(subset[chosen])
        beta.append(weight[subset] @ mu)
    return np.concatenate(rows), np.concatenate(beta)


def fit(kind: LeafModelType, rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Exact:
    """The exact model of the rows that stand for those of the leaf, on local_rows of them at most."""
    few = drawn(representing(rows, kernel, kind.size), settings)
    return fit_exact(few, kernel, settings)


def drawn(rows: LeafRows, settings: Settings) -> LeafRows:
    """Of more than local_rows rows a part, whose weights of each class sum to those of all of its rows."""
    some = local_sample(len(rows.X), settings)
    if isinstance(some, slice):
        return rows
    target, weight = rows.target[some], rows.weight[some].copy()
    for label in np.unique(target):
        weight[target == label] *= rows.weight[rows.target == label].sum() / weight[target == label].sum()
    return replace(rows, X=rows.X[some], target=target, weight=weight, borrowed=rows.borrowed[some])


def representing(rows: LeafRows, kernel: Kernel, size: int) -> LeafRows:
    """The rows that stand for those of a leaf, class by class."""
    chosen, beta = [], []
    for label in np.unique(rows.target):
        members = np.flatnonzero(rows.target == label)
        stand_for, weight = representatives(rows.X[members], rows.weight[members], kernel, size)
        chosen.append(members[stand_for])
        beta.append(weight)
    which = np.concatenate(chosen)
    return replace(
        rows,
        X=rows.X[which],
        target=rows.target[which],
        weight=np.concatenate(beta),
        borrowed=rows.borrowed[which],
    )


def _nearest(K: FloatArray, of_rows: FloatArray, mu: FloatArray) -> FloatArray:
    """Combinations (n, m) nearer to the rows than `mu`, for all rows at a time: in each step a row takes
    weight from the point of the steepest ascent and gives it to that of the steepest descent.
    """
    mu = mu.copy()
    slope = mu @ K - of_rows
    at, squares = np.arange(len(mu)), np.diag(K)
    for _ in range(STEPS):
        to = slope.argmin(axis=1)
        away = np.where(mu > 0, slope, -np.inf).argmax(axis=1)
        gain = slope[at, away] - slope[at, to]
        if gain.max() <= NEAR:
            break
        apart = np.maximum(squares[to] + squares[away] - 2.0 * K[to, away], 1e-12)
        step = np.minimum(gain / apart, mu[at, away])
        mu[at, to] += step
        mu[at, away] -= step
        slope += step[:, None] * (K[to] - K[away])
    return mu
