"""Local models and their solvers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn import config_context
from sklearn.svm import SVC

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.losses import loss_from_settings
from dcpred_tasks.training.settings import Settings

SVM_TOLERANCE = 1e-3  # LIBSVM's own default; 1e-2 would save a tenth of the time
EXACT_ROWS = 200  # most rows that are solved to rounding level: the cost does not count
EXACT_TOLERANCE = 1e-9
# Steps of LIBSVM for each of these rows, at most. Of 75 rows whose classes hardly differ in the kernel it
# took ten million, 11 seconds (2026-11-26).
EXACT_STEPS = 1_000
SVM_CACHE_MB = 200  # enough up to 8,000 rows; 20 takes twice the time there
NEWTON_STEPS = 50
NEWTON_TOLERANCE = 1e-10


@dataclass(frozen=True)
class DualSolution:
    """f(x) = Σ_i dual_i K(x_i, x) + intercept; dual has the sign of the label. float64 (n, k) and (k,)."""

    dual: FloatArray
    intercept: FloatArray


class Bounded(SVC):  # type: ignore[misc]
    """LIBSVM that ends without a warning after `max_iter` steps: its last point is good enough. Labels are −1
    and +1; to find that out takes a third of the time of 130 rows.
    """

    def _warn_from_fit_status(self) -> None:
        pass

    def _validate_targets(self, y: FloatArray) -> FloatArray:
        self.class_weight_, self.classes_ = np.ones(2), np.array([-1.0, 1.0])
        return np.asarray(y > 0, ACC_DTYPE)


def kernel_svms(
    X: SingleArray, signs: Sequence[FloatArray], weight: FloatArray, C: float, kernel: Kernel
) -> list[DualSolution]:
    """Hinge loss, eq. 1 of Hsieh et al. 2014, by LIBSVM, for one or several labellings of the same rows.

    X       float32 (n, n_features)
    signs   each float64 (n,), −1 or +1, both present
    weight  float64 (n,), > 0, multiplies C row by row

    One labelling: LIBSVM computes the kernel, and only the visited rows of it, which is faster than a Gram
    matrix (DECISIONS.md). Several share one Gram matrix.
    """
    native = kernel.family.libsvm if len(signs) == 1 else None
    rows = X.astype(ACC_DTYPE) if native else kernel(X, X)
    exact = len(X) <= EXACT_ROWS
    solutions = []
    for sign in signs:
        svc = Bounded(
            C=C,
            kernel=native or "precomputed",
            gamma=kernel.gamma,
            degree=kernel.degree,
            coef0=kernel.coef0,
            cache_size=SVM_CACHE_MB,
            tol=EXACT_TOLERANCE if exact else SVM_TOLERANCE,
            max_iter=EXACT_STEPS * len(X) if exact else -1,
        )
        with config_context(skip_parameter_validation=True):
            svc.fit(rows, sign, sample_weight=weight)
        dual = np.zeros((len(sign), 1))
        dual[svc.support_, 0] = svc.dual_coef_[0]
        solutions.append(DualSolution(dual, np.asarray(svc.intercept_, np.float64)))
    return solutions


def kernel_ridge(G: FloatArray, target: FloatArray, weight: FloatArray, ridge: float) -> DualSolution:
    """α = (G + λ D_w⁻¹)⁻¹ (y − ȳ), eq. 2 with row weights; the intercept is the weighted mean."""
    mean = float(np.average(target, weights=weight))
    A = G.copy()
    A[np.diag_indices_from(A)] += ridge / weight
    dual = solve_positive(A, target - mean)
    return DualSolution(dual[:, None], np.array([mean]))


def linear_svm(Z: FloatArray, sign: FloatArray, weight: FloatArray, C: float) -> tuple[FloatArray, float]:
    """min ½‖w‖² + C Σ weight_i max(0, 1 − sign_i (z_i·w + b))², by Newton's method in the primal (Chapelle
    2007).

    The problem has a handful of columns and a few thousand rows: a dozen exact steps reach rounding level,
    and the result does not depend on the order of the rows, unlike that of LIBLINEAR; b is free, as in
    LIBSVM.

    Z  float64 (n, r); returns w (r,), b.
    """
    n, r = Z.shape
    A = np.column_stack([Z, np.ones(n)])
    penalty = np.ones(r + 1)
    penalty[-1] = 1e-10  # The intercept is free; this keeps the system regular without active rows.
    theta = np.zeros(r + 1)
    margin = np.ones(n)  # 1 − sign·f
    cost = 2.0 * C * weight
    value = _squared_hinge(theta, margin, penalty, cost)
    for _ in range(NEWTON_STEPS):
        active = margin > 0
        Aa, ca = A[active], cost[active]
        gradient = penalty * theta - Aa.T @ (ca * margin[active] * sign[active])
        H = (Aa * ca[:, None]).T @ Aa
        H[np.diag_indices(r + 1)] += penalty
        step = -solve_positive(H, gradient)
        along = sign * (A @ step)
        length = 1.0
        while True:
            trial = _squared_hinge(theta + length * step, margin - length * along, penalty, cost)
            if trial <= value or length < 1e-8:
                break
            length /= 2
        theta = theta + length * step
        margin = margin - length * along
        if value - trial <= NEWTON_TOLERANCE * max(abs(value), 1e-300):
            break
        value = trial
    return theta[:-1], float(theta[-1])


def _squared_hinge(theta: FloatArray, margin: FloatArray, penalty: FloatArray, cost: FloatArray) -> float:
    hinge = np.maximum(margin, 0.0)
    return float(0.5 * (penalty * theta**2).sum() + 0.5 * (cost * hinge * hinge).sum())


def linear_ridge(
    Z: FloatArray, target: FloatArray, weight: FloatArray, ridge: float
) -> tuple[FloatArray, float]:
    """min Σ weight_i (z_i·w + b − y_i)² + λ‖w‖² with b the weighted mean of y, as in `kernel_ridge`."""
    mean = float(np.average(target, weights=weight))
    H = (Z * weight[:, None]).T @ Z
    H[np.diag_indices_from(H)] += ridge
    return solve_positive(H, Z.T @ (weight * (target - mean))), mean


def solve_positive(A: FloatArray, b: NDArray[np.float64]) -> FloatArray:
    """A⁻¹ b for a symmetric matrix, positive definite up to rounding."""
    try:
        factor = cho_factor(A, lower=True, check_finite=False)
        solution: FloatArray = cho_solve(factor, b, check_finite=False)
    except LinAlgError:  # Rounding took the smallest eigenvalue below zero.
        solution = np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], np.float64)
    return solution


# Decision value of a class without a row in the leaf: below that of a present class, however far the row.
ABSENT = -1e30
OVERLAP_WEIGHT = 0.3  # weight of a row in the compact models of leaves that are not its own


@dataclass(frozen=True)
class LeafRows:
    """The training rows of one leaf, with its overlap rows.

    X       float32 (n, n_features), scaled
    target  (n,), class numbers or values
    weight  float64 (n,), > 0
    borrowed  bool (n,), whether the row belongs to another leaf
    offset  float64 (n, n_outputs), of classes the sum of other terms, which is added to decision values; None
            without any, and of numbers, whose target is less the sum
    distinct  whether no two rows are known to be equal
    """

    X: SingleArray
    target: NDArray[np.generic]
    weight: FloatArray
    borrowed: NDArray[np.bool_]
    n_outputs: int
    task: str
    offset: FloatArray | None = None
    distinct: bool = False

    def take(self, index: IntArray | slice) -> "LeafRows":
        """Some of the rows."""
        arrays = {name: getattr(self, name) for name in ("X", "target", "weight", "borrowed", "offset")}
        return replace(self, **{name: array[index] for name, array in arrays.items() if array is not None})

    def compact_weight(self) -> FloatArray:
        """Row weights of the compact fit, in which overlap rows count less."""
        return np.where(self.borrowed, OVERLAP_WEIGHT, 1.0) * self.weight


def labellings(rows: LeafRows) -> list[tuple[int, FloatArray]]:
    """(output, ±1 per row) of each problem: one for two classes, else one for each class present."""
    if rows.n_outputs == 1:
        return [(0, np.where(rows.target == 1, 1.0, -1.0))]
    return [(int(c), np.where(rows.target == c, 1.0, -1.0)) for c in np.unique(rows.target)]


def local_sample(n_rows: int, settings: Settings) -> IntArray | slice:
    """The ascending rows of a leaf, of so many, that train its local SVM and are candidates for landmarks."""
    if n_rows <= settings.local_rows:
        return slice(None)
    return np.sort(np.random.default_rng([settings.seed, n_rows]).permutation(n_rows)[: settings.local_rows])


def constant_decision(
    target: NDArray[np.generic], n_outputs: int, task: str, offset: FloatArray | None = None
) -> FloatArray | None:
    """The decision of a leaf whose rows all have one target, or None. Of two classes it is ±1 or beyond with
    the offset of every row.
    """
    if (target != target[0]).any():
        return None
    if task == "regression":
        return np.array([target[0]], np.float64)
    if n_outputs == 1:
        sign = 2.0 * float(target[0]) - 1.0
        return np.array([sign if offset is None else sign * float((1.0 - sign * offset).max())])
    decision = np.full(n_outputs, ABSENT)
    decision[int(target[0])] = 1.0
    return decision


def local_machine(rows: LeafRows, kernel: Kernel, settings: Settings) -> DualSolution:
    """The local SVM (eq. 1 and 2) of at most local_rows rows; the dual of other rows is 0. LIBSVM takes no
    offset: beside other terms all duals are 0, and any row may become a landmark.
    """
    if rows.offset is not None:
        return DualSolution(np.zeros((len(rows.X), rows.n_outputs)), np.zeros(rows.n_outputs))
    seen = local_sample(len(rows.X), settings)
    solution = _trained(rows.take(seen), kernel, settings)
    dual = np.zeros((len(rows.X), solution.dual.shape[1]))
    dual[seen] = solution.dual
    return DualSolution(dual, solution.intercept)


def fit_exact(rows: LeafRows, kernel: Kernel, settings: Settings) -> Exact:
    """The local kernel model as a leaf model."""
    local = local_machine(rows, kernel, settings)
    used = np.flatnonzero(local.dual.any(axis=1))
    return Exact(kernel, rows.X[used], local.dual[used].astype(MODEL_DTYPE), local.intercept)


def _trained(rows: LeafRows, kernel: Kernel, settings: Settings) -> DualSolution:
    if rows.task == "regression":
        G = kernel(rows.X, rows.X)

        def solve(target: FloatArray, weight: FloatArray) -> tuple[DualSolution, Callable[[], FloatArray]]:
            solution = kernel_ridge(G, target, weight, settings.ridge)
            return solution, lambda: G @ solution.dual[:, 0] + solution.intercept

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
