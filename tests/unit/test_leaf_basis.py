"""Pseudo-landmarks: bounds of the triangle inequality, products, and the basis written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model.basis import LeafBasis, sample_pairs, triangle_distances
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from support.kernel_formulas import distance, of_distance

NO_PAIRS = np.empty((0, 2), np.int32)


def same_gamma(kernel: Kernel, U: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.full(len(U), kernel.gamma, np.float32)


def rows(seed: int, n: int, d: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


@given(
    name=st.sampled_from(STATIONARY),
    shape=st.tuples(st.integers(1, 8), st.integers(1, 6), st.integers(1, 5), st.integers(1, 6)),
    gamma=st.floats(0.05, 1.0),
    seed=st.integers(0, 10**6),
)
def test_triangle_bounds_enclose_the_kernel_value(
    name: str, shape: tuple[int, int, int, int], gamma: float, seed: int
) -> None:
    """lower ≤ ‖x−v‖ ≤ upper, so that κ(upper) ≤ K(x, v) ≤ κ(lower)."""
    n, m, t, d = shape
    X, U, V = rows(seed, n, d), rows(seed + 1, m, d), rows(seed + 2, t, d)
    kernel = Kernel(name, gamma)
    s = triangle_distances(kernel, V, U)
    assert s.dtype == np.float32
    near, far = (
        LeafBasis(kernel, bound, U, same_gamma(kernel, U), NO_PAIRS, s)(X)[:, m:]
        for bound in ("lower", "upper")
    )
    exact = kernel(X, V)
    assert near.shape == far.shape == (n, t)
    assert (near >= exact - 1e-6).all()
    assert (far <= exact + 1e-6).all()


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_a_point_that_is_a_landmark_is_exact(name: str, bound: str) -> None:
    X, U = rows(0, 20, 3), rows(1, 4, 3)
    kernel = Kernel(name, 0.3)
    values = LeafBasis(kernel, bound, U, same_gamma(kernel, U), NO_PAIRS, triangle_distances(kernel, U, U))(X)
    np.testing.assert_allclose(values[:, 4:], values[:, :4], atol=1e-6)


@given(seed=st.integers(0, 10**6), gamma=st.floats(0.0625, 1.0, width=32))
def test_a_product_of_rbf_values_is_an_rbf_of_twice_gamma_around_the_midpoint(
    seed: int, gamma: float
) -> None:
    X, U = rows(seed, 10, 3), rows(seed + 1, 5, 3)
    pairs = sample_pairs(5, 15, np.random.default_rng(seed))
    values = LeafBasis(
        Kernel("rbf", gamma), "lower", U, np.full(5, gamma, np.float32), pairs, np.empty((0, 5), np.float32)
    )(X)[:, 5:]
    for column, (i, j) in zip(values.T, pairs, strict=True):
        midpoint = (U[i].astype(float) + U[j]) / 2
        constant = np.exp(-gamma / 2 * distance("rbf", U[i], U[j]) ** 2)
        np.testing.assert_allclose(
            column, constant * Kernel("rbf", 2 * gamma)(X, midpoint[None])[:, 0], rtol=1e-9
        )


@given(
    name=st.sampled_from(KERNELS),
    bound=st.sampled_from(["lower", "upper"]),
    n=st.integers(0, 5),
    m=st.integers(1, 4),
    n_products=st.integers(0, 12),
    t=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_basis_is_its_definition(
    name: str, bound: str, n: int, m: int, n_products: int, t: int, seed: int
) -> None:
    """c̄ = [c | products | triangle], in this order."""
    kernel = Kernel(name, 0.4, 2, 0.5)
    t = t if kernel.stationary else 0
    X, U = rows(seed, n, 3), rows(seed + 1, m, 3)
    s = np.abs(rows(seed + 2, t, m))
    pairs = sample_pairs(m, n_products, np.random.default_rng(seed))
    basis = LeafBasis(kernel, bound, U, same_gamma(kernel, U), pairs, s)
    expected = []
    for x in X:
        c = [float(kernel(x[None], u[None])[0, 0]) for u in U]
        row = c + [c[i] * c[j] for i, j in pairs]
        for point in s:
            r = [distance(name, x, u) for u in U]
            apart = [abs(a - float(b)) for a, b in zip(r, point, strict=True)]
            around = [a + float(b) for a, b in zip(r, point, strict=True)]
            estimate = max(apart) if bound == "lower" else min(around)
            row.append(of_distance(kernel, estimate))
        expected.append(row)
    values = basis(X)
    assert basis.size == m + len(pairs) + t
    assert values.shape == (n, basis.size)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, np.reshape(expected, (n, basis.size)), rtol=1e-6, atol=1e-9)


@given(m=st.integers(0, 8), n=st.integers(0, 60), seed=st.integers(0, 1000))
def test_pairs_are_distinct_ordered_and_as_many_as_there_are(m: int, n: int, seed: int) -> None:
    pairs = sample_pairs(m, n, np.random.default_rng(seed))
    assert pairs.dtype == np.int32
    assert pairs.shape == (min(n, m * (m + 1) // 2), 2)
    assert len({tuple(p) for p in pairs.tolist()}) == len(pairs)
    assert (pairs[:, 0] <= pairs[:, 1]).all()
    assert ((pairs >= 0) & (pairs < m)).all()


def test_every_pair_can_be_drawn() -> None:
    seen = {tuple(p) for seed in range(50) for p in sample_pairs(3, 1, np.random.default_rng(seed)).tolist()}
    assert seen == {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)}


def test_triangle_distances_of_no_points() -> None:
    """Also for a kernel that has no distance: no points are asked of it."""
    s = triangle_distances(Kernel("polynomial", 1.0), rows(0, 0, 3), rows(1, 4, 3))
    assert s.shape == (0, 4)
    assert s.dtype == np.float32


def test_triangle_distances() -> None:
    V, U = rows(0, 3, 4), rows(1, 2, 4)
    for name in STATIONARY:
        expected = [[distance(name, v, u) for u in U] for v in V]
        np.testing.assert_allclose(triangle_distances(Kernel(name, 9.9), V, U), expected, rtol=1e-6)
