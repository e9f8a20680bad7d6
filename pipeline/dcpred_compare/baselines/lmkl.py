"""Localised multiple kernel learning (Gönen and Alpaydın, ICML 2008): an SVM of several kernels, weighted by
a gate that sees the row,

    f(x) = Σ_i a_i Σ_m η_m(x) K_m(x, x_i) η_m(x_i) + b,   η(x) = softmax(V x + v₀).

Each class against the rest has a gate of its own. The paper was not at hand.

It is learned as follows. For given V it is the SVM of K_η(x, u) = Σ_m η_m(x) K_m(x, u) η_m(u), with the
optimal value

    J(V) = max_a Σ_i |a_i| − ½ Σ_ij a_i a_j K_η(x_i, x_j),   0 ≤ y_i a_i ≤ C weight_i,   Σ_i a_i = 0,

which V makes as small as it can. At the best a, with q_im = a_i η_m(x_i) Σ_j K_m(x_i, x_j) η_m(x_j) a_j,

    ∂J/∂v_m = −Σ_i (q_im − η_m(x_i) Σ_k q_ik) x_i :

the two sums over pairs that the product rule gives are equal, and are one here. SVM and gate are taken in
turn: after each SVM a step against the gradient, halved until J of the SVM there is smaller: J never
rises. The kernels are the linear one, the polynomial one of degree 2, and rbf; the first two have a diagonal
of about 1, as rbf has. All this was derived again, without the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.exact import KernelSums
from dcpred_tasks.model.kernels import KERNELS, Kernel, RowArray
from dcpred_tasks.model.packed_arrays import kernel_from_numbers, stored_numbers, taken, text_array, text_of

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

OF_FUNCTION = 10  # multiplications of an exponential
# those of the fit
MOST_ROUNDS = 20  # SVMs that are followed by a step
HALVINGS = 8  # A step is given up after so many.
LEAST_FALL = 1e-3  # Rounds end where J falls by a smaller share of itself.
TOLERANCE = 1e-4  # LIBSVM's; J has to be compared
FIRST_GATE = 0.01  # size of V at the start, random: equal kernels would stay equal


@dataclass(frozen=True)
class Lmkl:
    """f(x) = Σ_m η_m(x) Σ_i dual_mi K_m(x, x_i) + b, where dual has η_m(x_i) in it.

    support    float32 (s, n_features), scaled
    dual       float32 (n_kernels, s, n_outputs)
    gate       float64 (n_outputs, n_kernels, n_features + 1), V with v₀ as its last column
    intercept  float64 (n_outputs,)
    """

    kernels: tuple[Kernel, ...]
    support: SingleArray
    dual: SingleArray
    gate: FloatArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.support.shape[1], len(self.intercept)

    @cached_property
    def _sums(self) -> list[KernelSums]:
        """Of each kernel; a linear one is a product with one vector, Σ_i dual_i x_i."""
        return [
            KernelSums(kernel, *_merged(self.support, dual) if _is_linear(kernel) else (self.support, dual))
            for kernel, dual in zip(self.kernels, self.dual, strict=True)
        ]

    def predict(self, X: RowArray) -> FloatArray:
        eta = self._gates(X)
        out = np.tile(self.intercept, (len(X), 1))
        for m, sums in enumerate(self._sums):
            out += eta[:, m] * sums(X)
        return out

    def sizes(self, X: RowArray) -> FloatArray:
        """With the size of what the exponents of a gate are summed of."""
        X = X.astype(ACC_DTYPE)
        eta = self._gates(X).max(axis=2)
        logits = np.linalg.norm(self.gate, axis=2).max(initial=0.0) * np.sqrt(1 + (X * X).sum(axis=1))
        sums = sum(eta[:, m] * kernel_sum.sizes(X) for m, kernel_sum in enumerate(self._sums))
        return np.asarray((1 + logits / 4) * sums)

    def _gates(self, X: RowArray) -> RealArray:
        """η of rows, (n, n_kernels, n_outputs)."""
        return np.stack([gated(X, gate.astype(X.dtype)) for gate in self.gate], axis=2)

    @property
    def cost(self) -> float:
        d, k = self.shape
        of_kernels = 0
        for kernel in self.kernels:
            of_value = d + (OF_FUNCTION if kernel.stationary else kernel.degree) + k
            of_kernels += d * k if _is_linear(kernel) else of_value * len(self.support)
        n_gates = self.gate.shape[0] * self.gate.shape[1]
        return float(of_kernels + n_gates * (d + OF_FUNCTION + 1))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "kernels": text_array(",".join(kernel.name for kernel in self.kernels)),
            "kernel_numbers": stored_numbers(self.kernels),
            "support": self.support,
            "dual": self.dual,
            "gate": self.gate,
            "intercept": self.intercept,
        }


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Lmkl:
    raw, numbers = taken(arrays, kernels=("uint8", 1), kernel_numbers=("float64", 2))
    support, dual = taken(arrays, support=("float32", 2), dual=("float32", 3))
    gate, intercept = taken(arrays, gate=("float64", 3), intercept=("float64", 1))
    names = text_of(raw).split(",")
    if len(numbers) != len(names) or not set(names) <= set(KERNELS):
        raise ValueError("the kernels of localised multiple kernels are none")
    kernels = tuple(kernel_from_numbers(name, row) for name, row in zip(names, numbers, strict=True))
    if dual.shape != (len(names), len(support), len(intercept)):
        raise ValueError("localised multiple kernels have other weights than support vectors")
    if gate.shape != (len(intercept), len(names), support.shape[1] + 1) or not len(intercept):
        raise ValueError("localised multiple kernels have other gates than kernels")
    return Lmkl(kernels, support, dual, gate, intercept)


def gated(X: RealArray, gate: RealArray) -> RealArray:
    """η (n, n_kernels) of rows."""
    logits = X @ gate[:, :-1].T + gate[:, -1]
    eta = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(eta / eta.sum(axis=1, keepdims=True))


def _is_linear(kernel: Kernel) -> bool:
    return kernel.name == "polynomial" and kernel.degree == 1 and kernel.coef0 == 0


def _merged(support: SingleArray, dual: SingleArray) -> tuple[SingleArray, FloatArray]:
    """Σ_i dual_i x_i of each output as a point of its own."""
    points = dual.astype(ACC_DTYPE).T @ support.astype(ACC_DTYPE)
    return points.astype(support.dtype), np.eye(len(points))


def fit(kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int) -> Lmkl:
    """Of the three kernels, on local_rows rows, at most 2,000: the Gram matrices of all kernels are held."""
    from dcpred_tasks.training.solvers import local_sample

    most = kind.most_trained_on(len(rows.X), settings.local_rows)
    seen = local_sample(len(rows.X), replace(settings, local_rows=max(most, 2)))
    sampled = replace(
        rows, X=rows.X[seen], target=rows.target[seen], weight=rows.weight[seen], borrowed=rows.borrowed[seen]
    )
    rng = np.random.default_rng([settings.seed, seed])
    return fitted(sampled, (*plain_kernels(sampled.X), kernel), settings.C, rng)


def plain_kernels(X: SingleArray) -> tuple[Kernel, Kernel]:
    """x·u / s and ¼ (x·u / s + 1)², with the mean s of |x|²."""
    mean = float((X.astype(np.float64) ** 2).sum(axis=1).mean()) or 1.0
    return Kernel("polynomial", 1 / mean, 1, 0.0), Kernel("polynomial", 0.5 / mean, 2, 0.5)


def fitted(rows: "LeafRows", kernels: Sequence[Kernel], C: float, rng: np.random.Generator) -> Lmkl:
    """The model of all these rows, and of any kernels."""
    from dcpred_tasks.training.solvers import ABSENT, constant_decision, labellings

    n, width, k = len(rows.X), rows.X.shape[1] + 1, rows.n_outputs
    dual = np.zeros((len(kernels), n, k))
    gate, intercept = np.zeros((k, len(kernels), width)), np.full(k, ABSENT)
    constant = constant_decision(rows.target, k, rows.task)
    if constant is not None:
        return Lmkl(tuple(kernels), rows.X[:0], dual[:, :0].astype(MODEL_DTYPE), gate, constant)
    grams = np.stack([kernel(rows.X, rows.X) for kernel in kernels])
    for output, sign in labellings(rows):
        first = FIRST_GATE * rng.normal(size=(len(kernels), width))
        problem = Problem(rows.X.astype(np.float64), grams, sign, C * rows.weight)
        solution = problem.solved(first)[-1]
        gate[output], intercept[output] = solution.gate, solution.intercept
        dual[:, :, output] = (solution.a[:, None] * gated(rows.X.astype(np.float64), solution.gate)).T
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
    """Rows (n, n_features), Gram matrices of the kernels (n_kernels, n, n), labels of ±1, C of each row."""

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
        from sklearn.svm import SVC

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
