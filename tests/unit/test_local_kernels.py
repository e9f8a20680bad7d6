"""Local kernels: local deep kernel learning, and localised multiple kernels."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from dcpred_compare.baselines import LEAF_MODELS, ldkl, lmkl
from dcpred_compare.baselines.ldkl import Ldkl, indicators, slope, with_constant
from dcpred_compare.baselines.lmkl import Lmkl, Problem, fitted, gated, plain_kernels
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.solvers import ABSENT, LeafRows
from support.leaf_models import check_leaf_model, check_single_precision, fit_model, rows_of

OURS = ("ldkl", "lmkl")
RBF = Kernel("rbf", 0.3)


def leaf_rows(X: NDArray[np.floating], target: NDArray[np.generic], n_outputs: int = 1) -> LeafRows:
    n = len(X)
    return LeafRows(X.astype(np.float32), target, np.ones(n), np.zeros(n, bool), n_outputs, "classification")


def checkerboard(n: int = 1500, seed: int = 0) -> LeafRows:
    """Sixteen squares of two classes in turn."""
    X = np.random.default_rng(seed).uniform(-2, 2, size=(n, 2))
    return leaf_rows(X, np.floor(X).astype(int).sum(axis=1) % 2)


def two_halves(n: int = 600, seed: int = 0) -> LeafRows:
    """A straight border of ten features on the left, of which a kernel of distances needs many more rows; and
    rings of two features on the right.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    right = rng.random(n) < 0.5
    X[:, 0] = np.where(right, 2.0, -2.0) + 0.3 * X[:, 0]
    straight = X[:, 1:] @ np.linspace(1, 2, 9) > 0
    rings = np.sin(3.0 * np.hypot(X[:, 1], X[:, 2])) > 0
    X[right, 3:] = 0.0
    return leaf_rows(X, np.where(right, rings, straight).astype(int))


def share_right(machine: Ldkl | Lmkl, rows: LeafRows) -> float:
    return float(((machine.predict(rows.X.astype(float))[:, 0] > 0) == rows.target).mean())


def tree(rows: LeafRows, size: int, seed: int = 0, **more: object) -> Ldkl:
    return fit_model("ldkl", rows, RBF, size=size, seed=seed, **more)


def problem_of(rows: LeafRows, C: float = 1.0) -> Problem:
    kernels = (*plain_kernels(rows.X), RBF)
    grams = np.stack([kernel(rows.X, rows.X) for kernel in kernels])
    cost = C * np.random.default_rng(3).uniform(0.5, 2.0, len(rows.X))
    return Problem(rows.X.astype(np.float64), grams, np.where(rows.target == 1, 1.0, -1.0), cost)


# -- both ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_contract(name: str, n_classes: int) -> None:
    size = {"size": 8} if LEAF_MODELS[name].counted else {}
    check_leaf_model(name, "classification", "rbf", n_classes, **size)


@pytest.mark.parametrize("name", OURS)
def test_few_rows_equal_rows_and_absent_classes(name: str) -> None:
    X = np.random.default_rng(0).normal(size=(5, 3))
    cases = [
        leaf_rows(X[:1], np.array([1])),
        leaf_rows(X[:2], np.array([1, 0])),
        leaf_rows(np.ones((6, 3)), np.array([0, 1] * 3)),
        leaf_rows(np.zeros((6, 3)), np.array([0, 1] * 3)),
        leaf_rows(X, np.array([0, 2, 0, 2, 2]), 3),
        leaf_rows(X, np.full(5, 2), 3),
    ]
    for rows in cases:
        decision = fit_model(name, rows, RBF).predict(rows.X.astype(float))
        assert decision.shape == (len(rows.X), rows.n_outputs)
        assert np.isfinite(decision).all()
        if rows.n_outputs == 3:
            assert (decision[:, 1] <= ABSENT).all()
            np.testing.assert_array_equal(decision.argmax(axis=1), rows.target)


@pytest.mark.parametrize("size", [1, 2, 8, 64, 256])
def test_a_walk_in_single_precision_is_that_in_double_precision(size: int) -> None:
    """Trees of any depth, whose levels are taken together in parts; and of several outputs."""
    rng = np.random.default_rng(size)
    shapes = [(2, k, 6) for k in (size - 1, 2 * size - 1, 2 * size - 1)]
    machine = Ldkl(*(rng.normal(size=shape).astype(np.float32) for shape in shapes), np.zeros(2))
    X = rng.normal(size=(9_000, 5)).astype(np.float32)
    check_single_precision(machine, X)
    few = rows_of("classification", 3, n=3).X
    np.testing.assert_allclose(machine.predict(few), machine.predict(few.astype(float)), atol=1e-4)


def test_a_row_on_a_border_is_asked_for_again() -> None:
    """θ·x of opposite terms that cancel: single precision does not say on which side of it the row is."""
    theta = np.array([[[1.0, -1.0, 0.0]]], np.float32)
    v, w = np.ones((1, 3, 3), np.float32), np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    machine = Ldkl(theta, v, w, np.zeros(1))
    X = np.array([[3.0, 3.0], [3.0, np.nextafter(np.float32(3), np.float32(4))], [3.0, 1.0]], np.float32)
    assert np.isnan(machine.predict(X)[:, 0]).tolist() == [True, True, False]
    assert np.isfinite(machine.predict(X.astype(float))).all()


# -- local deep kernels --------------------------------------------------------------------------------------


def test_the_derivative_of_a_tree_is_that_of_differences() -> None:
    rng = np.random.default_rng(0)
    x, y, share = rng.normal(size=(40, 4)), rng.choice([-1.0, 1.0], 40), rng.uniform(0.5, 2.0, 40)
    parameters = rng.normal(size=(5 * 8 - 3, 4))
    h = 1e-6
    for sharpness in (0.7, 3.0):
        found = slope(x, y, share, parameters, sharpness)[1]
        for row in range(len(parameters)):  # Each node by itself: Θ, then V, then W.
            way = np.zeros_like(parameters)
            way[row] = rng.normal(size=4)
            above, below = (slope(x, y, share, parameters + e * way, sharpness)[0] for e in (h, -h))
            assert (found * way).sum() == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-7)


def test_sharp_gates_are_the_path_that_a_prediction_walks() -> None:
    machine, rows = tree(checkerboard(300), 8), checkerboard(200, seed=1)
    x = with_constant(rows.X, np.float64)
    ahead = x @ machine.theta[0].T.astype(np.float64)
    hard, sharp = indicators(np.where(ahead < 0, -1.0, 1.0)), indicators(np.tanh(1e7 * ahead))
    clear = (np.abs(ahead) > 1e-5).all(axis=1)
    assert clear.mean() > 0.9
    np.testing.assert_allclose(sharp[clear], hard[clear], atol=1e-12)
    assert (hard.sum(axis=1) == machine.depth + 1).all()
    value = np.tanh(x @ machine.v[0].T.astype(float)) * (x @ machine.w[0].T.astype(float))
    np.testing.assert_allclose(
        machine.predict(rows.X.astype(float))[:, 0], (hard * value).sum(axis=1), atol=1e-9
    )


def test_relaxed_gates_share_a_row_among_the_nodes_of_a_level() -> None:
    seen = indicators(np.tanh(np.random.default_rng(0).normal(size=(20, 7))))
    for level in range(4):
        np.testing.assert_allclose(seen[:, 2**level - 1 : 2 ** (level + 1) - 1].sum(axis=1), 1.0)


def test_a_prediction_touches_one_node_of_a_level() -> None:
    """Of other nodes' parameters it does not depend; and it costs log₂ M + 1 nodes."""
    rows = checkerboard(200)
    costs = []
    for size in (2, 4, 8, 16):
        machine = tree(rows, size)
        costs.append(machine.cost)
        used = set()
        for node in range(machine.v.shape[1]):
            w = machine.w.copy()
            w[0, node] += 1.0
            other = Ldkl(machine.theta, machine.v, w, machine.intercept)
            if (
                other.predict(rows.X[:1].astype(float))[0, 0]
                != machine.predict(rows.X[:1].astype(float))[0, 0]
            ):
                used.add(node)
        assert len(used) == machine.depth + 1
    np.testing.assert_allclose(np.diff(costs), 3 * 2 + ldkl.OF_TANH + 1)


def test_leaves_are_a_power_of_two_and_no_more_than_rows() -> None:
    rows = checkerboard(40)
    found = [tree(rows, size).theta.shape[1] + 1 for size in (1, 2, 3, 7, 8, 1000)]
    assert found == [1, 2, 2, 4, 8, 32]


def test_one_leaf_is_the_linear_svm() -> None:
    rows = rows_of("classification")
    svc = LinearSVC(C=3.0, loss="squared_hinge", dual=False, intercept_scaling=100.0, tol=1e-8)
    svc.fit(rows.X.astype(float), rows.target)
    found = tree(rows, 1, C=3.0).predict(rows.X.astype(float))[:, 0]
    np.testing.assert_allclose(found, svc.decision_function(rows.X.astype(float)), atol=1e-3)


def test_trees_beat_a_linear_machine_on_a_checkerboard_and_more_leaves_are_better() -> None:
    rows, others = checkerboard(), checkerboard(seed=1)
    right = [share_right(tree(rows, size), others) for size in (1, 4, 32)]
    assert right[0] < 0.6
    assert right[1] > right[0] + 0.05
    assert right[2] > right[1] + 0.05
    assert right[2] > 0.9


def test_more_leaves_tell_letters_apart_as_in_the_paper(real_data: Path) -> None:
    """Figures of the paper in shape: far above the linear machine, and rising with the size of the tree."""
    with np.load(real_data / "letter.npz") as data:
        X, y = data["X"][:5000].astype(np.float32), (data["y"][:5000] < 13).astype(int)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows, others = leaf_rows(X[:4000], y[:4000]), leaf_rows(X[4000:], y[4000:])
    right = [share_right(tree(rows, size, C=0.3), others) for size in (1, 4, 32)]
    assert right[0] < 0.76
    assert right[1] > right[0] + 0.08
    assert right[2] > right[1] + 0.02
    assert right[2] > 0.91


# -- localised multiple kernels ------------------------------------------------------------------------------


def test_the_derivative_of_a_gate_is_that_of_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the optimal value of the SVM, which is solved again (Danskin's theorem)."""
    monkeypatch.setattr(lmkl, "TOLERANCE", 1e-9)
    problem = problem_of(rows_of("classification", n=60))
    rng = np.random.default_rng(1)
    gate = 0.5 * rng.normal(size=(3, 6))
    found = problem.slope(problem.svm(gate))
    h = 1e-4
    for entry in np.ndindex(found.shape):
        way = np.zeros_like(gate)
        way[entry] = h
        expected = (problem.svm(gate + way).value - problem.svm(gate - way).value) / (2 * h)
        assert found[entry] == pytest.approx(expected, rel=1e-3, abs=1e-4 * np.abs(found).max())


def test_the_derivative_is_a_double_sum_over_pairs() -> None:
    problem = problem_of(rows_of("classification", n=25))
    at = problem.svm(np.random.default_rng(1).normal(size=(3, 6)))
    eta = gated(problem.X, at.gate)
    expected = np.zeros_like(at.gate)
    x = with_constant(problem.X, np.float64)
    for m in range(3):
        for k in range(3):
            delta = float(m == k)
            pairs = np.outer(at.a * eta[:, k], at.a * eta[:, k]) * problem.grams[k]
            both = x[:, None] * (delta - eta[:, m])[:, None, None] + x * (delta - eta[:, m])[:, None]
            expected[m] -= 0.5 * (pairs[:, :, None] * both).sum(axis=(0, 1))
    np.testing.assert_allclose(problem.slope(at), expected, rtol=1e-9, atol=1e-9)


def test_the_objective_never_rises() -> None:
    rounds = problem_of(two_halves(200)).solved(0.01 * np.random.default_rng(0).normal(size=(3, 11)))
    values = [one.value for one in rounds]
    assert len(values) > 3
    assert (np.diff(values) < 0).all()
    assert values[-1] < 0.95 * values[0]


@pytest.mark.parametrize("kernel", [RBF, Kernel("polynomial", 0.3, 2, 1.0)])
def test_with_one_kernel_it_is_the_plain_svm(kernel: Kernel) -> None:
    rows = rows_of("classification")
    machine = fitted(rows, (kernel,), 2.0, np.random.default_rng(0))
    svc = SVC(C=2.0, kernel="precomputed", tol=1e-6).fit(kernel(rows.X, rows.X), rows.target)
    expected = svc.decision_function(kernel(rows.X, rows.X))
    np.testing.assert_allclose(machine.predict(rows.X.astype(float))[:, 0], expected, atol=5e-3)


def test_it_beats_each_of_its_kernels_where_halves_want_different_ones() -> None:
    rows, others = two_halves(), two_halves(2000, seed=1)
    kernels = (*plain_kernels(rows.X), Kernel("rbf", 1.0))
    every = fitted(rows, kernels, 10.0, np.random.default_rng(0))
    alone = [fitted(rows, (kernel,), 10.0, np.random.default_rng(0)) for kernel in kernels]
    best = max(share_right(machine, others) for machine in alone)
    assert share_right(every, others) > best + 0.02


def test_the_gate_gives_each_half_its_kernel() -> None:
    rows = two_halves()
    kernels = (*plain_kernels(rows.X), Kernel("rbf", 1.0))
    machine = fitted(rows, kernels, 10.0, np.random.default_rng(0))
    eta, right = gated(rows.X.astype(float), machine.gate[0]), rows.X[:, 0] > 0
    assert eta[right, 2].mean() > eta[~right, 2].mean() + 0.2


def test_kernels_with_gates_need_fewer_support_vectors_as_in_the_paper() -> None:
    """Its GAUSS4 in shape, with means and variances from memory: three linear kernels are nearly the best
    classifier, which one is not; with the polynomial kernel, a linear one beside it saves support vectors.
    """
    rows, others = gauss4(), gauss4(4000, seed=1)
    linear, squared = plain_kernels(rows.X)
    one, three, alone, both = (
        fitted(rows, kernels, 10.0, np.random.default_rng(0))
        for kernels in ((linear,), (linear,) * 3, (squared,), (linear, squared))
    )
    best = float(((bayes(others.X) > 0) == others.target).mean())
    assert share_right(three, others) > share_right(one, others) + 0.03
    assert share_right(three, others) > best - 0.02
    assert share_right(both, others) > share_right(alone, others) - 0.01
    assert len(three.support) < 0.85 * len(one.support)
    assert len(both.support) < 0.85 * len(alone.support)


MEANS = ((-3.0, 1.0), (1.0, 1.0), (-1.0, -2.2), (3.0, -2.2))
VARIANCES = ((0.8, 2.0), (0.8, 2.0), (0.8, 4.0), (0.8, 4.0))
CLASSES = (1, 1, 0, 0)


def gauss4(n: int = 600, seed: int = 0) -> LeafRows:
    """Four normal clouds, two of each class."""
    rng = np.random.default_rng(seed)
    cloud = rng.integers(4, size=n)
    X = np.array(MEANS)[cloud] + rng.normal(size=(n, 2)) * np.sqrt(np.array(VARIANCES))[cloud]
    return leaf_rows(X, np.array(CLASSES)[cloud])


def bayes(X: NDArray[np.float32]) -> NDArray[np.float64]:
    """The density of class 1 less that of class 0."""
    found = np.zeros(len(X))
    for mean, variance, number in zip(MEANS, VARIANCES, CLASSES, strict=True):
        density = np.exp(-0.5 * ((X - np.array(mean)) ** 2 / np.array(variance)).sum(axis=1))
        found += (2 * number - 1) * density / np.sqrt(np.prod(variance))
    return found
