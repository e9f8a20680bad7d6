"""Kernel values against their formulas, written out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

from dcpred_tasks.model.kernels import (
    BY_NAME,
    KERNELS,
    STATIONARY,
    Kernel,
    LeafPoints,
    Sum,
    city_block_distances,
    squared_distances,
)
from support.kernel_formulas import FORMULAS, kernel_value
from support.native import Kernels, compile_kernels
from support.once import made_once


def rows(seed: int, n: int, d: int, dtype: type = np.float64) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def test_every_kernel_has_its_formula_here() -> None:
    assert set(FORMULAS) == set(KERNELS)


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
    expected = np.array([[kernel_value(kernel, x, u) for u in U] for x in X]).reshape(n, m)
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
    for name, nu in (("matern32", 1.5), ("matern52", 2.5)):
        of_length = Matern(length_scale=1 / math.sqrt(2 * 0.3), nu=nu)
        np.testing.assert_allclose(Kernel(name, 0.3)(X, U), of_length(X, U), rtol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_defaults_are_degree_2_and_coef0_1(name: str) -> None:
    assert Kernel(name, 0.5) == Kernel(name, 0.5, 2, 1.0)


@pytest.mark.parametrize("name", STATIONARY)
def test_value_of_the_distance(name: str) -> None:
    X, U = rows(2, 30, 4), rows(3, 8, 4)
    kernel = Kernel(name, 0.7)
    assert kernel.stationary
    order = 1 if BY_NAME[name].sum == Sum.ABSOLUTE else 2
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


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(made_once(tmp_path_factory, "kernels", compile_kernels))


@pytest.mark.cases(12)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.5, 3.0])
@pytest.mark.parametrize("left_out", [0, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_lanes_are_the_kernel_in_single_precision(
    name: str, left_out: int, spread: float, wide: bool, native: Kernels
) -> None:
    """factor · (e + shift) is the kernel value to rounding, and near the mean of the landmarks e is as small
    as the difference that it stands for. Features that are not held are 0 in every row.
    """
    family, own = BY_NAME[name], Kernel(name, 1.0, 3, 0.5)
    wide = wide and family.sum == Sum.SQUARES
    d, held = 4 + left_out, np.arange(4)
    v, z = spread * rows(5, 7, d), spread * rows(6, 50, d) + 1e-3 * rows(7, 50, d)
    mean = rows(8, 1, d)[0]
    z[:, 4:] = mean[4:] = 0.0
    gamma = np.geomspace(0.1, 2.0, 7).astype(np.float32).astype(float)
    points = LeafPoints(v=v, mean=mean, held=held, gamma=gamma, wide=wide)
    lanes = family.leaf_lanes(points, own)
    assert lanes.constants.shape == (family.n_constants, 7)
    single, w = z[:, held].astype(np.float32), lanes.weights.astype(np.float32)
    constants = [row[None, :] for row in lanes.constants.astype(np.float32)]
    if family.sum == Sum.ABSOLUTE:
        x = -constants[0] * np.abs(single[:, None] - w).sum(axis=2)
    elif wide:
        x = -constants[0] * ((single[:, None] - w) ** 2).sum(axis=2)
    else:
        x = single @ w.T - (
            0 if family.sum == Sum.PRODUCTS else constants[0] * (single**2).sum(axis=1)[:, None]
        )
    e = native.in_lanes(name, x.astype(np.float32), constants)
    exact = np.array(
        [replace(own, gamma=float(g))(z + mean, u[None] + mean)[:, 0] for g, u in zip(gamma, v, strict=True)]
    ).T
    size = np.abs(exact).max() + 1
    np.testing.assert_allclose(
        lanes.factor * (e.astype(float) + lanes.shift), exact, rtol=0, atol=2e-6 * size
    )
    if spread <= 0.01 and not wide and not left_out and family.sum != Sum.ABSOLUTE:
        np.testing.assert_allclose(e, exact / lanes.factor - lanes.shift, rtol=0, atol=3e-8 * size)
    if left_out:  # landmarks are no rows
        return
    magnitudes = family.magnitudes(points, lanes, own)
    at_landmarks = np.array(
        [replace(own, gamma=float(g))(v + mean, u[None] + mean)[:, 0] for g, u in zip(gamma, v, strict=True)]
    ).T
    assert (magnitudes >= np.abs(at_landmarks / lanes.factor - lanes.shift) * (1 - 1e-9) - 1e-9).all()


@pytest.mark.parametrize("name", KERNELS)
def test_scalars_are_values_and_the_fall_is_their_derivative(name: str, native: Kernels) -> None:
    family, own, h = BY_NAME[name], Kernel(name, 1.0, 3, 0.5), 1e-6
    t = np.array([1e-12, 1e-3, 0.3, 1.0, 5.0, 50.0, 700.0])
    values = family.value(t.copy(), own)
    np.testing.assert_allclose(values, [native.scalar(name, float(x), own) for x in t], rtol=1e-12)
    some = t[1:6]
    ends = [family.value(some * factor, own) for factor in (1 + h, 1 - h)]
    expected = (ends[0] - ends[1]) / (2 * h * some)
    np.testing.assert_allclose(-family.fall(some, family.value(some.copy(), own), own), expected, rtol=1e-4)
    if family.stationary:
        falls = family.fall(t, values, own)
        assert (falls >= 0).all()
        assert falls.max() <= family.steepest * (1 + 1e-12)
        assert family.value(np.array([0.0]), own)[0] == 1.0
        assert family.value(np.array([np.inf]), own)[0] == native.scalar(name, np.inf, own) == 0.0
