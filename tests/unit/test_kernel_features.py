"""Bases that stand for a kernel: Nyström, Fastfood, tensor sketches and random Maclaurin features.

Each is compared with its definition, with scikit-learn where that has it, and with what its paper says of it.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler

from dcpred_compare.baselines.linear import basis_from_arrays, coefficients, fit_basis, walsh_hadamard
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_model import read_leaf_model
from dcpred_tasks.model.packed_arrays import packed
from dcpred_tasks.training.solvers import ABSENT, LeafRows
from support.leaf_models import (
    BASES,
    check_drawn_basis,
    fit_model,
    fitted,
    kernel_error,
    kernels_of,
    rows_of,
)

Rows = NDArray[np.float32]
RANDOM = ("fastfood", "tensor_sketch", "maclaurin", "maclaurin_h01")
OWN = ("nystrom", "kmeans_nystrom", *RANDOM)


def polynomial(degree: int, coef0: float, gamma: float = 0.5) -> Kernel:
    return Kernel("polynomial", gamma, degree, coef0)


DRAWN = [
    ("fastfood", Kernel("rbf", 0.3)),
    *(("tensor_sketch", polynomial(degree, coef0)) for degree, coef0 in ((1, 1.0), (2, 1.0), (3, 0.0))),
    *(("maclaurin", polynomial(degree, coef0)) for degree, coef0 in ((1, 1.0), (2, 0.0), (3, 1.0))),
    *(("maclaurin_h01", polynomial(degree, coef0)) for degree, coef0 in ((2, 1.0), (3, 0.5))),
]


def drawn(name: str, X: Rows, kernel: Kernel, size: int, seed: int = 0) -> Any:
    return fit_basis(name, X, kernel, size, np.random.default_rng(seed))


def short_rows(n: int = 15, d: int = 5) -> Rows:
    """Rows about as long as 1."""
    return (np.random.default_rng(3).normal(size=(n, d)) / np.sqrt(d)).astype(np.float32)


def mean_error(name: str, kernel: Kernel, size: int, X: Rows, seeds: int = 10) -> float:
    return float(np.mean([kernel_error(name, kernel, size, X, seed) for seed in range(seeds)]))


@pytest.fixture(scope="module")
def adult(real_data: Path) -> Rows:
    """Rows of a9a of length 1, as in the figures of Pham and Pagh."""
    with np.load(real_data / "a9a.npz") as data:
        X = data["X_train"][:100].astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# -- all of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kernel"), DRAWN)
def test_random_features_are_unbiased(name: str, kernel: Kernel) -> None:
    """The mean of Z Zᵀ is as far from K as chance puts it, which is near."""
    X, draws = short_rows(), 1000
    K = kernel(X, X)
    rows = X.astype(np.float64)
    found = np.stack([(Z := drawn(name, X, kernel, 24, seed)(rows)) @ Z.T for seed in range(draws)])
    by_chance = np.sqrt(((found - K) ** 2).mean(axis=0).sum() / draws)
    assert by_chance < 0.03 * np.linalg.norm(K)
    assert np.linalg.norm(found.mean(axis=0) - K) < 2.5 * by_chance


@pytest.mark.parametrize(("name", "kernel"), [one for one in DRAWN if one[1].degree > 1])
def test_errors_fall_like_the_root_of_the_size(name: str, kernel: Kernel) -> None:
    X = short_rows(40, 20)
    few, many = (mean_error(name, kernel, size, X, 40) for size in (32, 512))
    assert few / many == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize("name", OWN)
def test_other_sizes_and_degrees_keep_the_contract(name: str) -> None:
    for kernel, size in product(kernels_of(name), (2, 33)):
        check_drawn_basis(name, Kernel(kernel, 0.3), size)
        if kernel == "polynomial":
            for degree, coef0 in ((1, 0.0), (1, 2.0), (3, 0.0), (5, 0.5)):
                check_drawn_basis(name, Kernel(kernel, 0.3, degree, coef0), size)


def few_rows() -> dict[str, Rows]:
    X = short_rows(20, 3)
    constant = X.copy()
    constant[:, 1] = 2
    return {
        "one row": X[:1],
        "one number": X[:1, :1],
        "two rows": X[:2],
        "fewer rows than size": X[:9],
        "rows of zeros": np.zeros((6, 3), np.float32),
        "equal rows": np.ones((6, 3), np.float32),
        "a constant feature": constant,
        "repeated rows": np.repeat(X[:3], 5, axis=0),
    }


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("rows", few_rows())
def test_few_rows_are_enough(name: str, rows: str) -> None:
    """And a class without a row is never the one that is found."""
    X = few_rows()[rows]
    target = np.arange(len(X)) % 2
    for kernel_name in kernels_of(name):
        for coef0, size, task in product((0.0, 1.0), (1, 64), BASES[name].tasks):
            outputs = 3 if task == "classification" else 1
            leaf = LeafRows(X, target, np.ones(len(X)), np.zeros(len(X), bool), outputs, task)
            machine = fit_model(name, leaf, Kernel(kernel_name, 0.3, 2, coef0), size=size)
            decision = machine.predict(X)
            assert np.isfinite(decision).all()
            stored = read_leaf_model(name, packed(machine.arrays()), machine.shape)
            # Products differ in the last bits where a machine orders or aligns arrays in another way.
            np.testing.assert_allclose(stored.predict(X), decision, rtol=1e-9, atol=1e-12)
            if task == "classification":
                assert (decision[:, 2] <= 0.99 * ABSENT).all()


def test_features_of_many_rows_are_those_of_few(rng: np.random.Generator) -> None:
    """Rows are taken in blocks, whose bounds are not seen."""
    X = rng.normal(size=(1500, 9))
    for name in RANDOM:
        basis = drawn(name, X.astype(np.float32), Kernel(BASES[name].kernel, 0.1), 700)
        np.testing.assert_allclose(basis(X)[1111:1117], basis(X[1111:1117]), rtol=1e-9, atol=1e-12)


def test_multiplications_are_those_of_the_products_and_functions() -> None:
    X = short_rows(90, 7)
    kernels = {name: Kernel("rbf", 0.5) if "nystrom" in name else polynomial(2, 1.0) for name in OWN}
    counts = {name: drawn(name, X, kernel, 64).cost for name, kernel in kernels.items() if name != "fastfood"}
    functions = 64
    assert counts["nystrom"] == counts["kmeans_nystrom"] == 64 * 7 + 64 * 10 + 64 * functions
    assert counts["tensor_sketch"] == 2 * 8 + 3 * 64 * 6 + 4 * 33
    assert counts["maclaurin_h01"] == 2 * 64 * 7 + 2 * 64 + 7
    orders = drawn("maclaurin", X, polynomial(2, 1.0), 64).counts
    assert counts["maclaurin"] == (orders[1] + 2 * orders[2]) * (7 + 1)


# -- those of scikit-learn -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel", "size"),
    [
        *(("nystrom", kernel, 30) for kernel in (Kernel("rbf", 0.3), Kernel("laplacian", 0.2))),
        ("fourier", Kernel("rbf", 0.3), 64),
        *(("tensor_sketch", polynomial(degree, coef0), 64) for degree, coef0 in ((2, 0.0), (3, 1.0))),
    ],
)
def test_functions_are_those_of_scikit_learn(name: str, kernel: Kernel, size: int) -> None:
    """It draws them; here they are computed in either precision."""
    X = rows_of("regression", n=200).X.astype(np.float64)
    seed = int(np.random.default_rng(7).integers(2**31))
    given: dict[str, Any] = {"gamma": kernel.gamma, "n_components": size, "random_state": seed}
    if kernel.name == "polynomial":
        given |= {"degree": kernel.degree, "coef0": kernel.coef0}
    makers: dict[str, Callable[..., Any]] = {
        "nystrom": partial(Nystroem, kernel.name),
        "fourier": RBFSampler,
        "tensor_sketch": PolynomialCountSketch,
    }
    expected = makers[name](**given).fit(X).transform(X)
    Z = drawn(name, X.astype(np.float32), kernel, size, seed=7)(X)
    np.testing.assert_allclose(Z, expected, rtol=1e-4, atol=1e-5 * float(np.abs(expected).max()))


# -- Nyström -------------------------------------------------------------------------------------------------


def test_landmarks_are_different_rows_and_all_of_them_give_the_kernel_back() -> None:
    X = short_rows(50)
    basis = drawn("nystrom", X, Kernel("rbf", 0.5), 20)
    places = [np.flatnonzero((landmark == X).all(axis=1)).tolist() for landmark in basis.landmarks]
    assert len({tuple(place) for place in places}) == 20
    assert all(places)
    assert (drawn("nystrom", X, Kernel("rbf", 0.5), 20, seed=1).landmarks != basis.landmarks).any()
    assert kernel_error("nystrom", Kernel("rbf", 0.5), 50, X) < 1e-6


def test_centres_of_k_means_are_better_landmarks_than_random_rows(real_data: Path) -> None:
    """Zhang, Tsang and Kwok (2008): the error of K is lower at each number of landmarks."""
    with np.load(real_data / "satimage.npz") as data:
        X = data["X"][:800].astype(np.float32)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), X))
    for size in (8, 16, 32):
        random, centres = (mean_error(name, kernel, size, X, 4) for name in ("nystrom", "kmeans_nystrom"))
        assert centres < 0.9 * random


# -- Fastfood ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 8, 64])
def test_the_walsh_hadamard_transform_is_the_product_with_the_matrix(width: int) -> None:
    values = np.random.default_rng(0).normal(size=(3, width, 5))
    expected = hadamard(width) @ values
    walsh_hadamard(values)
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)


def test_fastfood_is_the_product_of_its_matrices() -> None:
    X, gamma = short_rows(6, 5), 0.7
    basis = drawn("fastfood", X, Kernel("rbf", gamma), 21)
    H = hadamard(8)
    blocks = [
        np.diag(scale) @ H @ np.diag(normal) @ np.eye(8)[places] @ H @ np.diag(np.where(signs, -1, 1))
        for scale, normal, places, signs in zip(
            basis.scale, basis.gaussian, basis.permutation, basis.signs, strict=True
        )
    ]
    V = np.concatenate(blocks)[:21, :5]
    expected = np.sqrt(2 / 21) * np.cos(X @ V.T + basis.phases)
    np.testing.assert_allclose(basis(X.astype(np.float64)), expected, rtol=1e-6, atol=1e-6)
    assert all(sorted(places) == list(range(8)) for places in basis.permutation.tolist())


def test_frequencies_are_as_long_as_normal_ones() -> None:
    """‖V_i‖² / 2γ is chi-square of d' degrees of freedom: mean d', variance 2 d'."""
    gamma, width = 0.7, 16
    basis = drawn("fastfood", short_rows(2, width), Kernel("rbf", gamma), 400 * width)
    lengths = basis.scale.astype(float) * np.linalg.norm(basis.gaussian, axis=1)[:, None] * np.sqrt(width)
    squares = lengths**2 / (2 * gamma)
    assert squares.mean() == pytest.approx(width, rel=0.02)
    assert squares.var() == pytest.approx(2 * width, rel=0.1)


@pytest.mark.parametrize(("d", "size"), [(16, 64), (16, 1024), (20, 100), (64, 256)])
def test_fastfood_is_as_near_as_fourier_features(d: int, size: int) -> None:
    """Le, Sarlós and Smola (2013), figure 1: nothing is lost by the structure."""
    X, kernel = short_rows(100, d), Kernel("rbf", 0.5)
    ours, fourier = (mean_error(name, kernel, size, X, 20) for name in ("fastfood", "fourier"))
    assert ours == pytest.approx(fourier, rel=0.15)


def test_multiplications_of_fastfood_grow_as_the_logarithm_of_the_features() -> None:
    widths = (16, 32, 64, 128, 256, 512)
    counts = {
        name: np.array([drawn(name, short_rows(1, d), Kernel("rbf", 0.5), 1024).cost for d in widths])
        for name in ("fastfood", "fourier")
    }
    np.testing.assert_allclose(np.diff(counts["fastfood"]), 2 * 1024)
    np.testing.assert_allclose(np.diff(counts["fourier"]), 1024 * np.array(widths[:-1]))


# -- polynomial kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("coef0", [0.0, 0.8])
def test_a_tensor_sketch_is_the_count_sketch_of_the_tensor_product(coef0: float) -> None:
    X, kernel, size = short_rows(4, 3), polynomial(3, coef0), 11
    basis = drawn("tensor_sketch", X, kernel, size)
    constant = np.full((4, int(coef0 > 0)), np.sqrt(coef0))
    extended = np.hstack([np.sqrt(kernel.gamma) * X, constant])
    expected = np.zeros((4, size))
    for places in product(range(extended.shape[1]), repeat=3):
        chosen = np.arange(3), np.array(places)
        sign = np.where(basis.signs[chosen], -1, 1).prod()
        expected[:, basis.hashes[chosen].sum() % size] += sign * extended[:, places].prod(axis=1)
    np.testing.assert_allclose(basis(X.astype(np.float64)), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("degree", [2, 4])
def test_tensor_sketches_are_nearer_than_maclaurin_features(adult: Rows, degree: int) -> None:
    """Pham and Pagh (2013), figure 1, on the Adult data: far nearer where the kernel is homogeneous. There
    most features of the paper of Kar and Karnick are 0, all but a share q; where none is, less is gained.
    """
    for coef0 in (0.0, 1.0):
        kernel = polynomial(degree, coef0, gamma=1.0)
        ours, other = (mean_error(name, kernel, 512, adult, 40) for name in ("tensor_sketch", "maclaurin"))
        assert ours < {2: 0.95, 4: 0.85}[degree] * other
    kernel, q = polynomial(degree, 0.0, gamma=1.0), 1 / (2 ** (degree + 1) - 1)
    printed = mean_error("maclaurin", kernel, round(512 * q), adult, 40)
    assert mean_error("tensor_sketch", kernel, 512, adult, 40) < 0.5 * printed


def test_a_maclaurin_feature_is_a_product_of_signed_sums() -> None:
    X, kernel, size = short_rows(6, 4).astype(np.float64), polynomial(3, 1.0), 50
    basis = drawn("maclaurin", X.astype(np.float32), kernel, size)
    a, q = coefficients(kernel), 0.5 ** np.arange(1, 5)
    signs, start = np.where(basis.signs, -1.0, 1.0), 0
    expected = []
    for order, count in enumerate(basis.counts):
        factors = signs[start : start + order * count].reshape(order, count, 4)
        start += order * count
        for number in range(count):
            column = np.full(6, np.sqrt(a[order] / (q[order] / q.sum() * size)))
            for vector in factors[:, number]:
                column = column * (X @ vector)
            expected.append(column)
    assert len(expected) == size
    np.testing.assert_allclose(basis(X), np.transpose(expected), rtol=1e-9, atol=1e-12)


def test_coefficients_are_those_of_the_kernel() -> None:
    t = np.linspace(-1, 2, 7)
    a = coefficients(polynomial(4, 0.7))
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(t, a), (0.5 * t + 0.7) ** 4)


@pytest.mark.parametrize("degree", [2, 4])
def test_exact_parts_make_maclaurin_features_nearer(adult: Rows, degree: int) -> None:
    """Kar and Karnick (2012), H0/1, with as many functions in all."""
    kernel, random = polynomial(degree, 1.0, gamma=1.0), 400
    whole = drawn("maclaurin_h01", adult, kernel, random).size
    assert whole == 1 + adult.shape[1] + random
    with_exact = mean_error("maclaurin_h01", kernel, random, adult, 20)
    assert with_exact < 0.7 * mean_error("maclaurin", kernel, whole, adult, 20)


def test_exact_parts_are_the_kernel_where_it_has_no_others() -> None:
    X = short_rows(30)
    for coef0 in (0.0, 0.5):
        assert kernel_error("maclaurin_h01", polynomial(1, coef0), 64, X) < 1e-6
        assert drawn("maclaurin_h01", X, polynomial(1, coef0), 64).size == 5 + (coef0 > 0)
    assert drawn("maclaurin_h01", X, polynomial(3, 0.0), 64).size == 64


# -- what is stored ------------------------------------------------------------------------------------------


def first(value: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A change of the first number of an array."""

    def change(array: NDArray[Any]) -> NDArray[Any]:
        array = array.copy()
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "key", "change"),
    [
        ("nystrom", "root", lambda a: a[:-1]),
        ("nystrom", "root", first(np.nan)),
        ("nystrom", "landmarks", lambda a: a[:-1]),
        ("fastfood", "permutation", first(8)),
        ("fastfood", "permutation", first(-1)),
        ("fastfood", "permutation", lambda a: a.astype(np.int64)),
        ("fastfood", "gaussian", lambda a: a[:, :4]),
        ("fastfood", "phases", lambda a: a[:8]),
        ("fastfood", "n_features", first(9)),
        ("fastfood", "n_features", first(-1)),
        ("tensor_sketch", "hashes", first(16)),
        ("tensor_sketch", "hashes", first(-1)),
        ("tensor_sketch", "hashes", lambda a: a[:1]),
        ("tensor_sketch", "signs", lambda a: a[:, 1:]),
        ("tensor_sketch", "size", first(0)),
        ("tensor_sketch", "size", first(2**40)),
        ("tensor_sketch", "kernel_numbers", lambda a: a * [1, 1, -1]),
        ("tensor_sketch", "kernel_numbers", lambda a: a * [1, 1.5, 1]),
        ("maclaurin", "counts", first(-1)),
        ("maclaurin", "counts", first(2**62)),
        ("maclaurin", "counts", lambda a: a[:-1]),
        ("maclaurin", "signs", lambda a: a[:-1]),
        ("maclaurin", "exact", first(-1.0)),
        ("maclaurin", "scale", lambda a: a[:-1]),
    ],
)
def test_arrays_that_are_no_basis_are_refused(name: str, key: str, change: Callable[..., Any]) -> None:
    X = short_rows()
    arrays = drawn(name, X, Kernel(BASES[name].kernel, 0.3), 16).arrays()
    basis_from_arrays(name, arrays)
    with pytest.raises(ValueError, match=r"features|sketch|array|kernel"):
        basis_from_arrays(name, arrays | {key: change(arrays[key])})


@pytest.mark.parametrize(("name", "key"), [("tensor_sketch", "size"), ("maclaurin", "counts")])
def test_a_machine_has_no_more_features_than_weights(name: str, key: str) -> None:
    """What would take gigabytes is refused before it is computed."""
    machine, _ = fitted(name, "regression", "polynomial")
    arrays = machine.arrays()
    spoilt = arrays | {f"basis.{key}": first(2**31 - 1)(arrays[f"basis.{key}"])}
    with pytest.raises(ValueError, match="other weights than functions"):
        read_leaf_model(name, packed(spoilt), machine.shape)
