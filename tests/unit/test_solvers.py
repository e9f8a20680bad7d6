"""The convex problems against optimality conditions and other people's solvers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.svm import SVC, LinearSVC

from dcpred_tasks.model.kernels import KERNELS, Kernel
from dcpred_tasks.training import solvers
from dcpred_tasks.training.solvers import DualSolution, kernel_ridge, kernel_svms, linear_ridge, linear_svm

F64 = NDArray[np.float64]


def two_classes(seed: int, n: int = 120, d: int = 3) -> tuple[NDArray[np.float32], F64]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, np.where((X**2).sum(axis=1) + rng.normal(0, 0.8, n) > d, 1.0, -1.0)


def decision(solution: DualSolution, K: F64) -> F64:
    return (K @ solution.dual + solution.intercept)[:, 0]


KINDS = [Kernel(name, 0.4, 3, 1.0) for name in KERNELS]


@pytest.mark.parametrize("kernel", KINDS, ids=KERNELS)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_kernel_svm_meets_the_optimality_conditions(
    kernel: Kernel, C: float, rng: np.random.Generator
) -> None:
    """0 ≤ α ≤ C w, Σ ±α = 0; the margin is ≥ 1 where α = 0, ≤ 1 where α is at its bound, and 1 between.

    LIBSVM keeps kernel values in single precision, and sums of α K are off by that."""
    X, sign = two_classes(0)
    weight = rng.uniform(0.5, 2.0, len(X))
    (solution,) = kernel_svms(X, [sign], weight, C, kernel)
    alpha = solution.dual[:, 0] * sign
    margin = sign * decision(solution, kernel(X, X))
    assert solution.dual.shape == (len(X), 1)
    assert alpha.min() >= 0
    assert (alpha <= C * weight * (1 + 1e-12)).all()
    assert abs(solution.dual.sum()) < 1e-8 * C * len(X)
    free = (alpha > 0) & (alpha < C * weight * (1 - 1e-9))
    np.testing.assert_allclose(margin[free], 1, atol=5e-5)
    assert (margin[alpha == 0] >= 1 - 5e-5).all()
    assert (margin[alpha >= C * weight * (1 - 1e-9)] <= 1 + 5e-5).all()


def test_kernel_svm_is_that_of_scikit_learn() -> None:
    X, sign = two_classes(1)
    (solution,) = kernel_svms(X, [sign], np.ones(len(X)), 5.0, Kernel("rbf", 0.4))
    theirs = SVC(C=5.0, gamma=0.4, tol=1e-9).fit(X.astype(float), sign)
    K = Kernel("rbf", 0.4)(X, X)
    np.testing.assert_allclose(decision(solution, K), theirs.decision_function(X.astype(float)), atol=1e-6)


@pytest.mark.parametrize("kernel", [k for k in KINDS if k.family.libsvm], ids=lambda k: k.name)
def test_the_kernel_given_and_the_kernel_computed_by_libsvm_agree(kernel: Kernel) -> None:
    """Several labellings share a Gram matrix; one does not need it."""
    X, sign = two_classes(2)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    (alone,) = kernel_svms(X, [sign], weight, 3.0, kernel)
    first, second = kernel_svms(X, [sign, -sign], weight, 3.0, kernel)
    K = kernel(X, X)
    np.testing.assert_allclose(decision(first, K), decision(alone, K), atol=1e-6)
    np.testing.assert_allclose(decision(second, K), -decision(alone, K), atol=1e-6)


@pytest.mark.parametrize("kernel", KINDS, ids=KERNELS)
def test_svm_weights_count_as_repeated_rows(kernel: Kernel) -> None:
    X, sign = two_classes(3, n=60)
    times = np.random.default_rng(1).integers(1, 4, len(X))
    (weighted,) = kernel_svms(X, [sign], times.astype(float), 2.0, kernel)
    XX, ss = np.repeat(X, times, axis=0), np.repeat(sign, times)
    (repeated,) = kernel_svms(XX, [ss], np.ones(len(XX)), 2.0, kernel)
    new = np.random.default_rng(2).normal(size=(30, 3))
    np.testing.assert_allclose(
        decision(weighted, kernel(new, X)), decision(repeated, kernel(new, XX)), rtol=1e-5, atol=1e-5
    )


def test_few_rows_are_solved_to_rounding_level() -> None:
    X, sign = two_classes(4, n=solvers.EXACT_ROWS)
    (solution,) = kernel_svms(X, [sign], np.ones(len(X)), 10.0, Kernel("rbf", 0.4))
    alpha = solution.dual[:, 0] * sign
    free = (alpha > 1e-6) & (alpha < 10 - 1e-6)
    margin = sign * decision(solution, Kernel("rbf", 0.4)(X, X))
    assert free.sum() > 5
    assert np.abs(margin[free] - 1).max() < 1e-5  # LIBSVM's own tolerance would leave 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_ridge_is_that_of_scikit_learn(weighted: bool, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80) + 5
    weight = rng.uniform(0.2, 4, 80) if weighted else np.ones(80)
    G = Kernel("rbf", 0.3)(X, X)
    before = G.copy()
    solution = kernel_ridge(G, y, weight, 0.05)
    mean = np.average(y, weights=weight)
    theirs = KernelRidge(alpha=0.05, kernel="precomputed").fit(G, y - mean, sample_weight=weight)
    np.testing.assert_array_equal(G, before)
    np.testing.assert_allclose(solution.intercept, [mean], rtol=1e-12)
    np.testing.assert_allclose(decision(solution, G), theirs.predict(G) + mean, rtol=1e-8)


def test_kernel_ridge_weights_count_as_repeated_rows(rng: np.random.Generator) -> None:
    X, y, times = rng.normal(size=(50, 2)), rng.normal(size=50), rng.integers(1, 4, 50)
    kernel = Kernel("laplacian", 0.5)
    weighted = kernel_ridge(kernel(X, X), y, times.astype(float), 0.1)
    XX = np.repeat(X, times, axis=0)
    repeated = kernel_ridge(kernel(XX, XX), np.repeat(y, times), np.ones(len(XX)), 0.1)
    new = rng.normal(size=(20, 2))
    np.testing.assert_allclose(
        decision(weighted, kernel(new, X)), decision(repeated, kernel(new, XX)), rtol=1e-7
    )


def test_kernel_ridge_on_a_singular_gram_matrix() -> None:
    """A polynomial of degree 1 in one feature has rank 2; a tiny λ is lost in rounding; a solution is still
    found.
    """
    X = np.linspace(-1, 1, 40)[:, None]
    G = Kernel("polynomial", 1.0, 1)(X, X)
    y = 3 * X[:, 0]
    solution = kernel_ridge(G, y, np.ones(40), 1e-300)
    np.testing.assert_allclose(decision(solution, G), y, atol=1e-6)


def objective(theta: F64, Z: F64, sign: F64, weight: F64, C: float) -> float:
    """½‖w‖² + C Σ weight · hinge², as the docstring has it."""
    loss = 0.0
    for z, s, v in zip(Z, sign, weight, strict=True):
        loss += v * max(0.0, 1 - s * (float(z @ theta[:-1]) + theta[-1])) ** 2
    return 0.5 * float(theta[:-1] @ theta[:-1]) + C * loss


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 40),
    r=st.integers(0, 6),
    C=st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e4]),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_linear_svm_has_a_gradient_of_zero(seed: int, n: int, r: int, C: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    Z, weight = scale * rng.normal(size=(n, r)), rng.uniform(0.3, 3, n)
    sign = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    sign[:2] = 1, -1
    w, b = linear_svm(Z, sign, weight, C)
    margin = np.maximum(1 - sign * (Z @ w + b), 0)
    pull = 2 * C * weight * margin * sign
    # Each component is a sum of terms; what is left must be small beside them.
    reach = np.abs(pull[:, None] * Z).sum(axis=0) + np.abs(w) + 1e-12
    assert (np.abs(w - Z.T @ pull) <= 1e-5 * reach).all()
    assert abs(pull.sum()) <= 1e-5 * np.abs(pull).sum() + 1e-6


def test_linear_svm_has_the_smallest_objective(rng: np.random.Generator) -> None:
    X, sign = two_classes(5)
    Z, weight = X.astype(float), rng.uniform(0.5, 2, len(X))
    w, b = linear_svm(Z, sign, weight, 2.0)
    theirs = minimize(
        objective, np.zeros(4), (Z, sign, weight, 2.0), method="L-BFGS-B", options={"ftol": 1e-14}
    )
    ours = objective(np.append(w, b), Z, sign, weight, 2.0)
    assert ours <= theirs.fun * (1 + 1e-9)
    np.testing.assert_allclose(np.append(w, b), theirs.x, atol=1e-3)


def test_linear_svm_is_near_liblinear() -> None:
    X, sign = two_classes(6)
    w, b = linear_svm(X.astype(float), sign, np.ones(len(X)), 1.5)
    theirs = LinearSVC(
        C=1.5, loss="squared_hinge", intercept_scaling=1e4, tol=1e-10, max_iter=10**6, dual=False
    )
    theirs.fit(X.astype(float), sign)
    np.testing.assert_allclose(w, theirs.coef_[0], atol=1e-4)
    np.testing.assert_allclose(b, theirs.intercept_[0], atol=1e-3)


def test_linear_svm_weights_count_as_repeated_rows(rng: np.random.Generator) -> None:
    X, sign = two_classes(7)
    times = rng.integers(1, 5, len(X))
    w, b = linear_svm(X.astype(float), sign, times.astype(float), 0.7)
    ww, bb = linear_svm(
        np.repeat(X, times, axis=0).astype(float), np.repeat(sign, times), np.ones(times.sum()), 0.7
    )
    np.testing.assert_allclose(np.append(w, b), np.append(ww, bb), rtol=1e-7, atol=1e-9)


def test_linear_svm_does_not_depend_on_the_order_of_rows(rng: np.random.Generator) -> None:
    X, sign = two_classes(8)
    order = rng.permutation(len(X))
    one = linear_svm(X.astype(float), sign, np.ones(len(X)), 10.0)
    other = linear_svm(X[order].astype(float), sign[order], np.ones(len(X)), 10.0)
    np.testing.assert_allclose(np.append(*one), np.append(*other), rtol=1e-7, atol=1e-9)


def test_linear_svm_with_columns_that_depend_on_each_other(rng: np.random.Generator) -> None:
    X, sign = two_classes(9)
    Z = np.column_stack([X, X, np.zeros(len(X))]).astype(float)
    w, b = linear_svm(Z, sign, np.ones(len(X)), 3.0)
    single, c = linear_svm(np.sqrt(2) * X.astype(float), sign, np.ones(len(X)), 3.0)
    np.testing.assert_allclose(Z @ w + b, np.sqrt(2) * X @ single + c, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(w[:3], w[3:6], atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_linear_ridge_is_that_of_scikit_learn(weighted: bool, rng: np.random.Generator) -> None:
    Z, y = rng.normal(size=(60, 5)), rng.normal(size=60) - 3
    weight = rng.uniform(0.2, 4, 60) if weighted else np.ones(60)
    w, b = linear_ridge(Z, y, weight, 0.3)
    mean = np.average(y, weights=weight)
    theirs = Ridge(alpha=0.3, fit_intercept=False).fit(Z, y - mean, sample_weight=weight)
    assert b == pytest.approx(mean)
    np.testing.assert_allclose(w, theirs.coef_, rtol=1e-8)


def test_linear_ridge_on_exact_features_is_kernel_ridge(rng: np.random.Generator) -> None:
    """With Z Zᵀ = G both are the same problem, with row weights as well."""
    Z, y, weight = rng.normal(size=(30, 4)), rng.normal(size=30), rng.uniform(0.5, 2, 30)
    w, b = linear_ridge(Z, y, weight, 0.2)
    local = kernel_ridge(Z @ Z.T, y, weight, 0.2)
    np.testing.assert_allclose(Z @ w + b, decision(local, Z @ Z.T), rtol=1e-8)


def test_an_exact_solution_that_takes_too_many_steps_ends_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last point is taken."""
    rng = np.random.default_rng(0)
    X, sign = rng.normal(size=(60, 2)).astype(np.float32), np.where(np.arange(60) % 3, 1.0, -1.0)
    given = X, [sign], np.ones(60), 10.0, Kernel("rbf", 0.1)
    [whole] = kernel_svms(*given)
    monkeypatch.setattr("dcpred_tasks.training.solvers.EXACT_STEPS", 1)
    [cut_off] = kernel_svms(*given)
    assert np.isfinite(cut_off.dual).all()
    assert not np.allclose(cut_off.dual, whole.dual, atol=1e-6)
