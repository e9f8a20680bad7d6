"""How localised multiple kernels are learned. For given V the machine of dcpred_tasks.machines.lmkl is the
SVM of K_η(x, u) = Σ_m η_m(x) K_m(x, u) η_m(u), with the optimal value

    J(V) = max_a Σ_i |a_i| − ½ Σ_ij a_i a_j K_η(x_i, x_j),   0 ≤ y_i a_i ≤ C weight_i,   Σ_i a_i = 0,

which V makes as small as it can. At the best a, with q_im = a_i η_m(x_i) Σ_j K_m(x_i, x_j) η_m(x_j) a_j,

    ∂J/∂v_m = −Σ_i (q_im − η_m(x_i) Σ_k q_ik) x_i :

the two sums over pairs that the product rule gives are equal, and are one here. SVM and gate are taken in
turn: after each SVM a step against the gradient, halved until J of the SVM there is smaller, so that J never
rises. The kernels are the linear one, the polynomial one of degree 2, and rbf; the first two have a diagonal
of about 1, as rbf has. Gönen and Alpaydın's paper (ICML 2008) was not at hand; all this was derived again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.svm import SVC

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.machines.lmkl import Lmkl, gated
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.machine import known
from dcpred_tasks.training.local_machine import (
    ABSENT,
    LeafRows,
    constant_decision,
    labellings,
    local_sample,
)
from dcpred_tasks.training.settings import Settings

MOST_ROUNDS = 20  # SVMs that are followed by a step
HALVINGS = 8  # A step is given up after so many.
LEAST_FALL = 1e-3  # Rounds end where J falls by a smaller share of itself.
TOLERANCE = 1e-4  # LIBSVM's; J has to be compared
FIRST_GATE = 0.01  # size of V at the start, random: equal kernels would stay equal


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Lmkl:
    """Of the three kernels, on local_rows rows, at most 2,000: the Gram matrices of all kernels are held."""
    most = known("lmkl").most_trained_on(len(rows.X), settings.local_rows)
    seen = local_sample(len(rows.X), replace(settings, local_rows=max(most, 2)))
    own = replace(
        rows, X=rows.X[seen], target=rows.target[seen], weight=rows.weight[seen], halo=rows.halo[seen]
    )
    rng = np.random.default_rng([settings.seed, seed])
    return fitted(own, (*plain_kernels(own.X), kernel), settings.C, rng)


def plain_kernels(X: SingleArray) -> tuple[Kernel, Kernel]:
    """x·u / s and ¼ (x·u / s + 1)², with the mean s of |x|²."""
    mean = float((X.astype(np.float64) ** 2).sum(axis=1).mean()) or 1.0
    return Kernel("polynomial", 1 / mean, 1, 0.0), Kernel("polynomial", 0.5 / mean, 2, 0.5)


def fitted(rows: LeafRows, kernels: Sequence[Kernel], C: float, rng: np.random.Generator) -> Lmkl:
    """The machine of all these rows, and of any kernels."""
    n, width, k = len(rows.X), rows.X.shape[1] + 1, rows.n_outputs
    dual = np.zeros((len(kernels), n, k))
    gate, intercept = np.zeros((k, len(kernels), width)), np.full(k, ABSENT)
    constant = constant_decision(rows.target, k, rows.task)
    if constant is not None:
        return Lmkl(tuple(kernels), rows.X[:0], dual[:, :0].astype(MODEL_DTYPE), gate, constant)
    grams = np.stack([one(rows.X, rows.X) for one in kernels])
    for output, sign in labellings(rows):
        first = FIRST_GATE * rng.normal(size=(len(kernels), width))
        problem = Problem(rows.X.astype(np.float64), grams, sign, C * rows.weight)
        found = problem.solved(first)[-1]
        gate[output], intercept[output] = found.gate, found.intercept
        dual[:, :, output] = (found.a[:, None] * gated(rows.X.astype(np.float64), found.gate)).T
    used = np.flatnonzero(dual.any(axis=(0, 2)))
    return Lmkl(tuple(kernels), rows.X[used], dual[:, used].astype(MODEL_DTYPE), gate, intercept)


@dataclass(frozen=True)
class Solution:
    """The SVM of a gate: a (n,), b, and J."""

    gate: FloatArray
    a: FloatArray
    intercept: float
    value: float


@dataclass(frozen=True)
class Problem:
    """Rows (n, n_features), the Gram matrices of the kernels (n_kernels, n, n), labels of ±1, and the C of
    each row.
    """

    X: FloatArray
    grams: FloatArray
    sign: FloatArray
    cost: FloatArray

    def solved(self, gate: FloatArray) -> list[Solution]:
        """The solution of each round, each with a smaller J than that before it."""
        rounds = [self.svm(gate)]
        length = 1.0
        for _ in range(MOST_ROUNDS):
            now = rounds[-1]
            slope = self.slope(now)
            steepness = float(np.linalg.norm(slope))
            if steepness < 1e-12 * max(abs(now.value), 1.0):  # One kernel, or one that has all the rows.
                break
            for _ in range(HALVINGS):
                trial = self.svm(now.gate - length / steepness * slope)
                if trial.value < now.value:
                    break
                length /= 2
            else:
                break
            rounds.append(trial)
            length *= 2
            if now.value - trial.value < LEAST_FALL * abs(now.value):
                break
        return rounds

    def svm(self, gate: FloatArray) -> Solution:
        eta = gated(self.X, gate)
        G = np.zeros(self.grams.shape[1:])
        for m, gram in enumerate(self.grams):
            G += gram * eta[:, m, None] * eta[:, m]
        svc = SVC(C=1.0, kernel="precomputed", tol=TOLERANCE).fit(G, self.sign, sample_weight=self.cost)
        a = np.zeros(len(G))
        a[svc.support_] = svc.dual_coef_[0]
        value = float(np.abs(a).sum() - 0.5 * (a @ G @ a))
        return Solution(gate, a, float(svc.intercept_[0]), value)

    def slope(self, at: Solution) -> FloatArray:
        """∂J/∂V with ∂J/∂v₀ as its last column, (n_kernels, n_features + 1)."""
        eta = gated(self.X, at.gate)
        parts = eta * at.a[:, None]
        q = parts * np.stack([gram @ parts[:, m] for m, gram in enumerate(self.grams)], axis=1)
        by_logits = q - eta * q.sum(axis=1, keepdims=True)
        return -np.column_stack([by_logits.T @ self.X, by_logits.sum(axis=0)])
