"""Equation 5: the factor, what it is exact for, and that nothing smaller exists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model.basis import LeafBasis, sample_pairs
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from dcpred_tasks.training.leaf import nystrom_root


def kernel(name: str) -> Kernel:
    return Kernel(name, 0.3, 2, 1.0)


@given(name=st.sampled_from(KERNELS), n=st.integers(4, 30), m=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_root_of_the_middle_matrix(name: str, n: int, m: int, seed: int) -> None:
    """R Rᵀ = C† G C†ᵀ, with C† from the normal equations, which m rows far fewer than n make safe."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    C, G = kernel(name)(X, X[:m]), kernel(name)(X, X)
    R = nystrom_root(C, G)
    pseudo_inverse = np.linalg.solve(C.T @ C, C.T)
    expected = pseudo_inverse @ G @ pseudo_inverse.T
    assert R.shape[0] == m
    assert R.shape[1] <= m
    np.testing.assert_allclose(R @ R.T, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())


@given(name=st.sampled_from(STATIONARY), n=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_all_rows_as_landmarks_give_the_kernel_back(name: str, n: int, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(n, 5))
    G = Kernel(name, 1.0)(X, X)
    Z = G @ nystrom_root(G, G)
    np.testing.assert_allclose(Z @ Z.T, G, atol=1e-7)


def test_with_as_many_independent_products_as_rows_the_kernel_comes_back(rng: np.random.Generator) -> None:
    """Pseudo-landmarks fill the rank that the landmarks leave open (the point of section 4)."""
    X = rng.normal(size=(15, 3)).astype(np.float32)
    k = Kernel("rbf", 0.5)
    G = k(X, X)
    none, g = np.empty((0, 5), np.float32), np.full(5, 0.5, np.float32)
    few = LeafBasis(k, "lower", X[:5], g, np.empty((0, 2), np.int32), none)(X)
    more = LeafBasis(k, "lower", X[:5], g, sample_pairs(5, 15, rng), none)(X)
    errors = [
        np.linalg.norm((Z := C @ nystrom_root(C, G)) @ Z.T - G) / np.linalg.norm(G) for C in (few, more)
    ]
    assert errors[1] < 1e-3
    assert errors[1] < 0.01 * errors[0]


@given(st.integers(0, 10**6))
def test_no_other_middle_matrix_is_nearer(seed: int) -> None:
    """eq. 5 minimises ‖G − C W Cᵀ‖_F; any step away from W makes it larger."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 3))
    G, C = Kernel("rbf", 0.4)(X, X), Kernel("rbf", 0.4)(X, X[:5])
    W = (R := nystrom_root(C, G)) @ R.T
    least = np.linalg.norm(G - C @ W @ C.T)
    for _ in range(10):
        step = rng.normal(size=W.shape)
        step = (step + step.T) * rng.choice([1e-3, 1e-1, 1.0])
        assert np.linalg.norm(G - C @ (W + step) @ C.T) >= least * (1 - 1e-9)


def scale_of(R: NDArray[np.float64]) -> float:
    return float(np.abs(R).max()) if R.size else 0.0


def test_dependent_columns_do_not_blow_up(rng: np.random.Generator) -> None:
    """The same landmark twice, or nearly, is one landmark."""
    X = rng.normal(size=(40, 3))
    k = Kernel("rbf", 0.4)
    U = np.concatenate([X[:4], X[:4], X[:4] + 1e-9])
    single = (Z := k(X, X[:4]) @ nystrom_root(k(X, X[:4]), k(X, X))) @ Z.T
    R = nystrom_root(k(X, U), k(X, X))
    Z = k(X, U) @ R
    assert scale_of(R) < 100
    np.testing.assert_allclose(Z @ Z.T, single, atol=1e-6)


def test_no_kernel_values_at_all() -> None:
    """Landmarks so far away that every value is 0 leave nothing to learn from, and no NaN."""
    R = nystrom_root(np.zeros((10, 3)), np.eye(10))
    assert R.shape == (3, 0)
