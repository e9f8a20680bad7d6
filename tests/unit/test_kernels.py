"""Kernel values against their formulas, written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel, city_block_distances, squared_distances


def rows(seed: int, n: int, d: int, dtype: type = np.float64) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def value(kernel: Kernel, x: NDArray[np.floating], u: NDArray[np.floating]) -> float:
    pairs = [(float(a), float(b)) for a, b in zip(x, u, strict=True)]
    if kernel.name == "rbf":
        return math.exp(-kernel.gamma * sum((a - b) ** 2 for a, b in pairs))
    if kernel.name == "laplacian":
        return math.exp(-kernel.gamma * sum(abs(a - b) for a, b in pairs))
    return (kernel.gamma * sum(a * b for a, b in pairs) + kernel.coef0) ** kernel.degree


@given(
    name=st.sampled_from(KERNELS),
    gamma=st.floats(0.01, 3),
    degree=st.integers(1, 4),
    coef0=st.floats(0, 3),
    shape=st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 7)),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_kernel_is_its_formula(
    name: str, gamma: float, degree: int, coef0: float, shape: tuple[int, int, int], dtype: type, seed: int
) -> None:
    n, m, d = shape
    X, U = rows(seed, n, d, dtype), rows(seed + 1, m, d, dtype)
    before = X.copy(), U.copy()
    kernel = Kernel(name, gamma, degree, coef0)
    K = kernel(X, U)
    assert K.shape == (n, m)
    assert K.dtype == np.float64
    expected = np.array([[value(kernel, x, u) for u in U] for x in X]).reshape(n, m)
    np.testing.assert_allclose(K, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(U, before[1])


def test_kernels_are_those_of_scikit_learn() -> None:
    X, U = rows(0, 20, 5), rows(1, 9, 5)
    np.testing.assert_allclose(Kernel("rbf", 0.3)(X, U), rbf_kernel(X, U, 0.3), rtol=1e-10)
    np.testing.assert_allclose(Kernel("laplacian", 0.3)(X, U), laplacian_kernel(X, U, 0.3), rtol=1e-10)
    ours, theirs = (
        Kernel("polynomial", 0.3, 3, 1.5)(X, U),
        polynomial_kernel(X, U, degree=3, gamma=0.3, coef0=1.5),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_defaults_are_degree_2_and_coef0_1(name: str) -> None:
    assert Kernel(name, 0.5) == Kernel(name, 0.5, 2, 1.0)


@pytest.mark.parametrize("name", STATIONARY)
def test_value_of_the_distance(name: str) -> None:
    X, U = rows(2, 30, 4), rows(3, 8, 4)
    kernel = Kernel(name, 0.7)
    assert kernel.stationary
    order = 2 if name == "rbf" else 1
    expected = np.array([[np.linalg.norm(x - u, order) for u in U] for x in X])
    np.testing.assert_allclose(kernel.distances(X, U), expected, rtol=1e-10)
    np.testing.assert_allclose(kernel.of_distance(expected), kernel(X, U), rtol=1e-10)


def test_polynomial_has_no_distance() -> None:
    kernel = Kernel("polynomial", 1.0)
    assert not kernel.stationary
    with pytest.raises(ValueError, match="polynomial"):
        kernel.distances(rows(0, 2, 2), rows(0, 2, 2))


@given(seed=st.integers(0, 1000), offset=st.sampled_from([0.0, 1.0, 1e4, 1e8]))
def test_distances_of_equal_rows_never_turn_negative(seed: int, offset: float) -> None:
    """|x|² − 2x·u + |u|² cancels; a value below zero would make a kernel above one, and a NaN under
    the root.
    """
    X = rows(seed, 6, 9) * 1e-3 + offset
    D = squared_distances(X, X)
    assert (D >= 0).all()
    assert (Kernel("rbf", 2.0)(X, X) <= 1).all()
    assert np.isfinite(Kernel("rbf", 2.0).distances(X, X)).all()
    np.testing.assert_allclose(np.diag(D), 0, atol=1e-14 * 9 * offset**2 + 1e-14)


def test_city_block_of_equal_rows_is_exactly_zero() -> None:
    X = rows(4, 10, 3) + 1e8
    assert (np.diag(city_block_distances(X, X)) == 0).all()


def test_single_precision_input_is_summed_in_double() -> None:
    """Near 4,096, single precision would lose every digit of this distance."""
    x = np.full((1, 8), 4096, np.float32)
    u = x + np.float32(2**-10)
    assert squared_distances(x, u)[0, 0] == 8 * 2.0**-20
