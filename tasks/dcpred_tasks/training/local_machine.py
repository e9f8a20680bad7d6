"""The local SVM of a leaf (Hsieh et al. 2014, eq. 1 and 2), and its training rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.losses import loss_from_settings
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import DualSolution, kernel_ridge, kernel_svms

# Decision value of a class without a row in the leaf: below that of a present class, however far the row.
ABSENT = -1e30
HALO_WEIGHT = 0.3  # weight of a row in the compact models of leaves that are not its own


@dataclass(frozen=True)
class LeafRows:
    """The training rows of one leaf, with its overlap rows.

    X       float32 (n, n_features), scaled
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    halo    bool (n,), whether the row belongs to another leaf
    """

    X: SingleArray
    target: NDArray[np.generic]
    weight: FloatArray
    halo: NDArray[np.bool_]
    n_outputs: int
    task: str

    def compact_weight(self) -> FloatArray:
        """Row weights of the compact fit, in which overlap rows count less."""
        return np.where(self.halo, HALO_WEIGHT, 1.0) * self.weight


def labellings(rows: LeafRows) -> list[tuple[int, FloatArray]]:
    """(output, ±1 per row) of each problem to solve: one for two classes, else one for each class that is
    present.
    """
    if rows.n_outputs == 1:
        return [(0, np.where(rows.target == 1, 1.0, -1.0))]
    return [(int(c), np.where(rows.target == c, 1.0, -1.0)) for c in np.unique(rows.target)]


def local_sample(n_rows: int, settings: Settings) -> IntArray | slice:
    """The ascending rows of a leaf, of so many, that train its local SVM and are candidates for landmarks."""
    if n_rows <= settings.local_rows:
        return slice(None)
    return np.sort(np.random.default_rng([settings.seed, n_rows]).permutation(n_rows)[: settings.local_rows])


def constant_decision(target: NDArray[np.generic], n_outputs: int, task: str) -> FloatArray | None:
    """The decision of a leaf whose rows all have one target, or None."""
    if (target != target[0]).any():
        return None
    if task == "regression":
        return np.array([target[0]], np.float64)
    if n_outputs == 1:
        return np.array([2.0 * float(target[0]) - 1.0])
    decision = np.full(n_outputs, ABSENT)
    decision[int(target[0])] = 1.0
    return decision


def local_machine(rows: LeafRows, kernel: Kernel, settings: Settings) -> DualSolution:
    """The local SVM (eq. 1 and 2) of at most local_rows rows; the dual of other rows is 0."""
    seen = local_sample(len(rows.X), settings)
    own = replace(
        rows, X=rows.X[seen], target=rows.target[seen], weight=rows.weight[seen], halo=rows.halo[seen]
    )
    found = _trained(own, kernel, settings)
    dual = np.zeros((len(rows.X), found.dual.shape[1]))
    dual[seen] = found.dual
    return DualSolution(dual, found.intercept)


def fit_exact(rows: LeafRows, kernel: Kernel, settings: Settings) -> Exact:
    """The local kernel model as a leaf model."""
    local = local_machine(rows, kernel, settings)
    used = np.flatnonzero(local.dual.any(axis=1))
    return Exact(kernel, rows.X[used], local.dual[used].astype(MODEL_DTYPE), local.intercept)


def _trained(rows: LeafRows, kernel: Kernel, settings: Settings) -> DualSolution:
    if rows.task == "regression":
        G = kernel(rows.X, rows.X)

        def solve(target: FloatArray, weight: FloatArray) -> tuple[DualSolution, Callable[[], FloatArray]]:
            found = kernel_ridge(G, target, weight, settings.ridge)
            return found, lambda: G @ found.dual[:, 0] + found.intercept

        target = rows.target.astype(np.float64)
        return loss_from_settings(settings).settled(target, rows.weight, solve)[1]
    dual, intercept = np.zeros((len(rows.X), rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    constant = constant_decision(rows.target, rows.n_outputs, rows.task)
    if constant is not None:  # The leaf's other classes are so small that no row of them was drawn.
        return DualSolution(dual, constant)
    problems = labellings(rows)
    solutions = kernel_svms(rows.X, [sign for _, sign in problems], rows.weight, settings.C, kernel)
    for (output, _), solution in zip(problems, solutions, strict=True):
        dual[:, output], intercept[output] = solution.dual[:, 0], solution.intercept[0]
    return DualSolution(dual, intercept)
