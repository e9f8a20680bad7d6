"""Refined landmarks: the gradient, that the value never rises, and that leaves of any kind stay finite."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import rosen, rosen_der

from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import KERNELS, Kernel, median_gamma
from dcpred_tasks.training import refinement
from dcpred_tasks.training.lbfgs import minimise
from dcpred_tasks.training.leaf import FittedLeaf, Kernels, fit_leaf
from dcpred_tasks.training.objective import LOG_FACTOR, LOG_GAMMA, NEARNESS, PULL, SPREAD, STRETCH
from dcpred_tasks.training.refinement import refine, stochastic
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import LeafRows, local_machine, local_sample
from support.objectives import LOSSES, Doubles, kernel_of, loss_value, make_goal, near, problem, squared_error
from support.pairs import pairwise
from support.refinement_definition import Definition
from support.start_definition import joint_ridge


def slopes(objective: Definition, theta: Doubles, step: float = 1e-5) -> Doubles:
    """Central differences."""
    found = np.empty(len(theta))
    for i in range(len(theta)):
        move = step * np.eye(len(theta))[i]
        found[i] = (objective(theta + move)[0] - objective(theta - move)[0]) / (2 * step)
    return found


@pairwise(name=KERNELS, products=(0, 6), k=(1, 3), loss=LOSSES, own_factors=(False, True))
def test_the_gradient_is_that_of_the_value(
    name: str, products: int, k: int, loss: str, own_factors: bool
) -> None:
    objective = problem(name, products, k, loss, own_factors=own_factors)
    rng = np.random.default_rng(1)
    for far in (0.0, 0.3):  # at the start, where the pull has no slope, and away from it
        theta = objective.origin + far * rng.normal(size=len(objective.origin))
        _, gradient = objective(theta)
        assert gradient.dtype == np.float64
        expected = slopes(objective, theta)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient, expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


@pairwise(name=KERNELS, loss=LOSSES, own_factors=(False, True))
def test_the_value_is_its_definition(name: str, loss: str, own_factors: bool) -> None:
    """Term by term, row by row."""
    ridge = 0.2
    objective = problem(name, 3, 2, loss, n=7, ridge=ridge, own_factors=own_factors)
    theta = objective.origin + 0.2 * np.random.default_rng(0).normal(size=len(objective.origin))
    U, beta, b, gamma, factor = objective.parts(theta)
    assert len(factor) == (U.shape[1] if own_factors else 0)
    s = factor if own_factors else np.ones(U.shape[1])
    goal, value = objective.goal, 0.0
    for i, x in enumerate(objective.X):
        c = [
            float(replace(objective.basis.kernel, gamma=g)((s * x)[None], (s * u)[None])[0, 0])
            for u, g in zip(U, gamma, strict=True)
        ]
        c += [c[p] * c[q] for p, q in objective.basis.pairs]
        sums = c @ beta + b
        value += goal.weight[i] * (1 - goal.share) * loss_value(goal.loss, sums, goal.target[i])
        for f, g in zip(sums, goal.distilled[i], strict=True):
            on_its_side = (g > 1 and f > 1) or (g < -1 and f < -1)
            apart = 0.0 if on_its_side else (f - np.clip(g, -1, 1)) ** 2
            value += goal.weight[i] * goal.share * apart
    m = len(U)
    value += ridge * (beta**2).mean() / objective.scale**2
    value += PULL * objective.basis.kernel.gamma * ((U - objective.start) ** 2).sum()
    value += SPREAD * (np.log(gamma / objective.gamma) ** 2).sum() / m
    value += STRETCH * (np.log(s) ** 2).mean()
    assert objective(theta)[0] == pytest.approx(value, rel=1e-6)


def test_gamma_has_limits() -> None:
    objective = problem("rbf", 0, 1, "square")
    theta = objective.origin.copy()
    theta[-4:] = [-9, 9, 2, 0]
    gamma = objective.parts(theta)[3]
    np.testing.assert_allclose(np.log(gamma / objective.gamma), [-LOG_GAMMA, LOG_GAMMA, 2, 0], atol=1e-12)
    np.testing.assert_allclose(objective(theta)[1], slopes(objective, theta), rtol=1e-5, atol=1e-7)


def test_factors_have_limits() -> None:
    objective = problem("rbf", 0, 1, "square", own_factors=True)
    theta = objective.origin.copy()
    theta[-3:] = [-9, 9, 2]
    factor = objective.parts(theta)[4]
    np.testing.assert_allclose(np.log(factor), [-LOG_FACTOR, LOG_FACTOR, 2], atol=1e-12)
    np.testing.assert_allclose(objective(theta)[1], slopes(objective, theta), rtol=1e-5, atol=1e-6)


# -- downhill ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_value_never_rises(name: str, loss: str) -> None:
    """In single precision, as leaves are refined, with 1, 5 and 40 steps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    pairs = np.array([[0, 0], [0, 1], [2, 3]], np.int32)
    basis = LeafBasis(
        kernel_of(name), "lower", X[:5], np.full(5, 0.3, np.float32), pairs, np.empty((0, 5), np.float32)
    )
    made = make_goal(loss, 120, 2, rng)
    goal = replace(
        made, **{f: getattr(made, f).astype(np.float32) for f in ("target", "distilled", "weight")}
    )
    beta, intercept = joint_ridge(basis(X), made.target, made.weight, 1e-4)
    values = [Definition(X, basis, beta, intercept, goal, 1e-3)]
    begin = last = values[0](values[0].origin)[0]
    for steps in (1, 5, 40):
        moved, b, a = refine(X, basis, beta, intercept, goal, Settings(refine_steps=steps))
        theta = np.concatenate(
            [moved.landmarks.ravel(), (b / values[0].scale).ravel(), a, np.log(moved.gamma / 0.3)]
        )
        now = values[0](theta)[0]
        assert now <= last * (1 + 1e-5)
        last = now
    assert last < 0.99 * begin
    assert moved.landmarks.dtype == moved.gamma.dtype == np.float32
    assert b.dtype == a.dtype == np.float64
    np.testing.assert_array_equal(moved.pairs, basis.pairs)


@pytest.mark.parametrize("loss", LOSSES)
def test_stochastic_steps_lead_down(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)).astype(np.float32)
    pairs, none = np.array([[0, 1]], np.int32), np.empty((0, 5), np.float32)
    basis = LeafBasis(kernel_of("rbf"), "lower", X[:5], np.full(5, 0.3, np.float32), pairs, none)
    made = make_goal(loss, 600, 2, rng)
    goal = replace(
        made, **{f: getattr(made, f).astype(np.float32) for f in ("target", "distilled", "weight")}
    )
    beta, intercept = joint_ridge(basis(X), made.target, made.weight, 1e-4)
    objective = Definition(X, basis, beta, intercept, goal, 1e-3)
    begin = objective(objective.origin)[0]
    found = [stochastic(refinement.check(), objective, 30, [seed]) for seed in (0, 0, 1)]
    assert max(objective(theta)[0] for theta in found) < begin
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_gradients_of_parts_of_the_rows_have_that_of_all_as_their_mean() -> None:
    objective = problem("rbf", 6, 3, "hinge 0.5")
    n = len(objective.X)
    theta = objective.origin + 0.1 * np.random.default_rng(0).normal(size=len(objective.origin))
    parts = np.random.default_rng(1).permutation(n)[: n - n % 4].reshape(4, -1)
    assert n % 4 == 0, "all rows have to be in one part"
    np.testing.assert_allclose(
        np.mean([objective.some(theta, part) for part in parts], axis=0), objective(theta)[1], atol=1e-12
    )


@pytest.mark.parametrize("factor", [-1.0, 1e30, np.nan], ids=["up", "far away", "nowhere"])
def test_stochastic_steps_that_do_not_lead_down_leave_everything_as_it_was(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = problem("rbf", 6, 3, "hinge")
    monkeypatch.setattr(refinement, "RATE", factor * refinement.RATE)
    monkeypatch.setattr(refinement, "OTHER_RATES", tuple(factor * rate for rate in refinement.OTHER_RATES))
    with np.errstate(over="ignore", invalid="ignore"):
        assert stochastic(refinement.check(), objective, 2, [0]) is objective.origin


def test_a_search_that_goes_astray_leaves_everything_as_it_was() -> None:
    """Every step leads to NaN."""
    start = np.array([1.0, 2.0])

    def function(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        return (1.0 if (x == start).all() else np.nan), np.ones(2)

    assert minimise(function, start, 50, 1e-9) is start
    assert minimise(lambda x: (0.0, np.zeros(2)), start, 50, 1e-9) is start, (
        "nor is there a way down from the lowest point"
    )


def test_the_search_ends_where_scipys_does() -> None:
    start = np.tile([-1.2, 1.0], 5)
    lowest = minimise(lambda x: (float(rosen(x)), rosen_der(x)), start, 500, 0.0)
    np.testing.assert_allclose(lowest, np.ones(10), atol=1e-4)
    few = [
        rosen(minimise(lambda x: (float(rosen(x)), rosen_der(x)), start, steps, 0.0))
        for steps in (0, 1, 2, 5, 20)
    ]
    assert (np.diff(few) < 0).all()


# -- whole leaves --------------------------------------------------------------------------------------------


def scores(leaf: FittedLeaf, X: NDArray[np.float32], kernel: Kernel) -> Doubles:
    if not len(leaf.landmarks):
        return np.repeat(leaf.intercept[None], len(X), axis=0)
    basis = LeafBasis(kernel, "lower", leaf.landmarks, leaf.gamma, leaf.pairs, leaf.triangle)
    return np.asarray(basis(X) @ leaf.beta + leaf.intercept)


@pytest.mark.parametrize("n_classes", [2, 26])
def test_better_than_nystrom_on_a_leaf_of_letter(real_data: Path, n_classes: int) -> None:
    """With the same landmarks: A to M against N to Z, and all letters."""
    with np.load(real_data / "letter.npz") as data:
        X, y = ((data["X"] - 7.5) / 2.5).astype(np.float32), data["y"].astype(np.int64)
    near = np.argsort(((X - X[0]) ** 2).sum(axis=1), kind="stable")[:2000]  # the leaf around one letter
    order = np.random.default_rng(0).permutation(near)
    train, test = order[:1200], order[1200:]
    target = (y < 13).astype(int) if n_classes == 2 else y
    kernel = Kernel("rbf", 0.1)
    right = {}
    for moved in (False, True):
        settings = Settings(refine=moved, landmarks=8, products=16)
        k = 1 if n_classes == 2 else n_classes
        leaf = fit_leaf(X[train], target[train], np.ones(1200), k, Kernels(kernel, kernel), settings, 0)
        assert len(leaf.landmarks) == 8
        decision = scores(leaf, X[test], kernel)
        found = decision[:, 0] > 0 if k == 1 else decision.argmax(axis=1)
        right[moved] = np.mean(found == target[test])
    assert right[True] > right[False] + 0.02


@pytest.mark.parametrize("epochs", [0, 40])
def test_classes_between_others_need_a_loss_of_all_of_them(epochs: int) -> None:
    """Twelve classes on a line: with two landmarks no value can tell a middle one from both sides, but the
    largest of values that bend little can.
    """
    x = np.linspace(-1, 1, 1_600)[:, None].astype(np.float32)
    y = np.minimum((x[:, 0] + 1) * 6, 11).astype(np.int64)
    kernel = Kernel("rbf", 0.1)
    right: dict[str, list[float]] = {"hinge": [], "logistic": []}
    for seed, loss in product(range(3), right):
        order = np.random.default_rng(seed).permutation(len(x))
        settings = Settings(loss=loss, landmarks=2, products=0, refine_epochs=epochs)
        train, test = order[:1_200], order[1_200:]
        leaf = fit_leaf(x[train], y[train], np.ones(1_200), 12, Kernels(kernel, kernel), settings, 0)
        right[loss].append(float(np.mean(scores(leaf, x[test], kernel).argmax(axis=1) == y[test])))
    assert np.mean(right["logistic"]) > np.mean(right["hinge"]) + 0.01


def test_better_than_nystrom_in_a_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, 3)).astype(np.float32)
    y = np.sin(3 * X[:, 0].astype(float)) * X[:, 1] + 1e6
    kernel = Kernel("rbf", 0.5)
    errors = []
    for moved in (False, True):
        settings = Settings(task="regression", refine=moved, landmarks=8, products=16)
        leaf = fit_leaf(X[:600], y[:600], np.ones(600), 1, Kernels(kernel, kernel), settings, 0)
        errors.append(np.sqrt(np.mean((scores(leaf, X[600:], kernel)[:, 0] - y[600:]) ** 2)))
    assert errors[1] < 0.8 * errors[0]


def _small(rng: np.random.Generator, kind: str) -> tuple[NDArray[np.float32], NDArray[np.int64], Doubles]:
    """Rows, classes and weights of a leaf that is hard to fit."""
    n, d = (400, 4) if kind == "one row of a class" else (20, 4)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y, weight = np.arange(n) % 3, np.ones(n)
    if kind == "two rows of a class":
        y = np.arange(n) // 2
    elif kind == "one row of a class":
        y = np.zeros(n, np.int64)
        y[7], y[9] = 1, 2
    elif kind == "duplicates":
        X = np.repeat(X[:5], 4, axis=0)  # of all three classes
    elif kind == "two distinct rows":
        X = np.repeat(X[:2], 10, axis=0)
    elif kind == "huge weights":
        weight = np.where(np.arange(n) % 5 == 0, 1e150, 1e-150)
    elif kind == "constant features":
        X[:, 1:] = [3.0, 0.0, -1e6]
    elif kind == "all constant":
        X[:] = 0.5
    elif kind == "far from 0":
        X += 1e4
    return X, y, weight


HARD = (
    "plain",
    "two rows of a class",
    "one row of a class",
    "duplicates",
    "two distinct rows",
    "huge weights",
    "constant features",
    "all constant",
    "far from 0",
)


TASKS = (
    *(f"{task}: {loss}" for task in ("classification", "two classes") for loss in ("hinge", "logistic")),
    *(f"regression: {loss}" for loss in ("hinge", "huber", "quantile")),
)


@pairwise(kind=HARD, gamma=("median", "scale"), name=KERNELS, goal=TASKS)
def test_leaves_that_are_hard_to_fit_stay_finite(kind: str, gamma: str, name: str, goal: str) -> None:
    task, loss = goal.split(": ")
    rng = np.random.default_rng(3)
    X, y, weight = _small(rng, kind)
    outputs = int(y.max()) + 1 if task == "classification" else 1
    if kind == "far from 0" and name == "polynomial":
        X = X - 9_990  # (γ x·u + c)² of 10⁸ drowns all differences
    target = {"classification": y, "two classes": (y == y[7]).astype(int), "regression": y.astype(float)}[
        task
    ]
    settings = Settings(
        task="regression" if task == "regression" else "classification",
        kernel=name,
        gamma=gamma,
        landmarks=3,
        products=6,
        loss=loss,
        quantile=0.9 if loss == "quantile" else 0.5,
        distill_weight=0.5 if kind == "plain" and task == "classification" else 0.0,
    )
    kernel = Kernel(name, 0.25, 2, 1.0)
    leaf = fit_leaf(X, target, weight, outputs, Kernels(kernel, kernel), settings, 0)
    for part, array in vars(leaf).items():
        assert np.isfinite(array).all(), part
    decision = scores(leaf, X, kernel)
    assert np.isfinite(decision).all()
    present = np.unique(y) if outputs > 1 else np.array([0])
    # A loss does not care how far on its side a value is, and powers of rows know no end.
    bound = {"logistic": 1e9}.get(loss, 1e5) if name == "polynomial" else 100
    assert np.abs(decision[:, present]).max() < bound * (1 + np.abs(target).max())
    if outputs > 1:
        assert set(decision.argmax(axis=1).tolist()) <= set(present.tolist())
    assert np.isfinite(scores(leaf, (X + 10 * rng.normal(size=X.shape)).astype(np.float32), kernel)).all()


# -- near the local machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
def test_nearness_is_the_distance_to_the_machine_and_has_its_gradient(k: int) -> None:
    objective = near(k)
    assert objective.machine is not None
    theta = objective.origin + 0.2 * np.random.default_rng(1).normal(size=len(objective.origin))
    kept = objective.at[3]
    theta[kept:] = objective.origin[kept:]  # γ stays that of the machine
    U, beta, *_ = objective.parts(theta)
    far = squared_error(objective.machine, U, beta) / objective.machine.squared_norm
    value, gradient = objective(theta)
    machine, objective.machine = objective.machine, None
    assert value - objective(theta)[0] == pytest.approx(NEARNESS * far, rel=1e-9)
    objective.machine = machine
    assert not gradient[kept:].any(), "γ stays"
    np.testing.assert_allclose(gradient[:kept], slopes(objective, theta)[:kept], rtol=2e-5, atol=1e-6)


def test_a_leaf_near_its_machine_is_nearer_and_has_its_gamma(real_data: Path) -> None:
    with np.load(real_data / "letter.npz") as data:
        X, y = ((data["X"] - 7.5) / 2.5).astype(np.float32), data["y"].astype(np.int64)
    kernel, n = Kernel("rbf", 0.1), 1_200
    rows = LeafRows(X[:n], y[:n], np.ones(n), np.zeros(n, bool), 26, "classification")
    far: dict[str, list[float]] = {"hinge": [], "distance": []}
    for loss, path in product(far, range(4)):
        settings = Settings(loss=loss, landmarks=48, products=0)
        local = local_machine(rows, kernel, settings)
        exact = kernel(X[n : 2 * n], rows.X) @ local.dual + local.intercept
        leaf = fit_leaf(rows.X, rows.target, rows.weight, 26, Kernels(kernel, kernel), settings, path)
        far[loss].append(np.mean((scores(leaf, X[n : 2 * n], kernel) - exact) ** 2) / np.var(exact))
        assert (set(leaf.gamma.tolist()) == {np.float32(0.1)}) == (loss == "distance")
    assert np.mean(far["distance"]) < 0.8 * np.mean(far["hinge"])  # 0.69: four draws of the landmarks


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("gamma", ["median", "scale"])
@pytest.mark.parametrize("two", [False, True])
def test_leaves_near_machines_that_are_hard_to_fit_stay_finite(kind: str, gamma: str, two: bool) -> None:
    rng = np.random.default_rng(3)
    X, y, weight = _small(rng, kind)
    target, outputs = ((y == y[7]).astype(int), 1) if two else (y, int(y.max()) + 1)
    kernel = Kernel("rbf", 0.25)
    settings = Settings(gamma=gamma, landmarks=3, products=0, loss="distance")
    leaf = fit_leaf(X, target, weight, outputs, Kernels(kernel, kernel), settings, 0)
    for part, array in vars(leaf).items():
        assert np.isfinite(array).all(), part
    decision = scores(leaf, X, kernel)
    present = np.array([0]) if two else np.unique(y)
    assert np.abs(decision[:, present]).max() < 100


def test_a_class_that_the_local_machine_has_no_row_of_is_found() -> None:
    """Of a class of 60 rows among 4,000 the machine of 30 has seen none, and those of the leaf tell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    X[:60], y[:60] = rng.normal([6, 6], 0.3, (60, 2)), 2
    settings = Settings(loss="distance", landmarks=8, products=0, local_rows=30, seed=1)
    kernel = Kernel("rbf", 0.5)
    assert 2 not in y[local_sample(4_000, settings)]
    leaf = fit_leaf(X, y, np.ones(4_000), 3, Kernels(kernel, kernel), settings, 0)
    assert np.isfinite(leaf.intercept).all()
    assert leaf.intercept[2] > -100
    found = scores(leaf, X, kernel).argmax(axis=1)
    assert np.mean(found[60:] == y[60:]) > 0.95


# -- γ from distances ----------------------------------------------------------------------------------------


def test_median_gamma_is_of_different_rows() -> None:
    """Nine of ten rows are the same; |x|² − 2x·u + |u|² would find tiny distances between them."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(1e3, 1, (1, 50)), 200, axis=0).astype(np.float32)
    X[::10, 0] += np.arange(20, dtype=np.float32)
    between = [
        float(((a - b) ** 2).sum()) for i, a in enumerate(X.astype(float)) for b in X[:i].astype(float)
    ]
    assert median_gamma(Kernel("rbf", 7.0), X) == pytest.approx(
        1 / np.median([d for d in between if d > 0]), rel=1e-6
    )
    assert median_gamma(Kernel("rbf", 7.0), X[1:9]) == 7.0
    assert median_gamma(Kernel("rbf", 7.0), X[:1]) == 7.0


def test_median_gamma_of_the_laplacian_is_by_city_block() -> None:
    X = np.array([[0, 0], [1, 1], [3, -1]], np.float32)
    assert median_gamma(Kernel("laplacian", 1.0), X) == pytest.approx(1 / 4)
    assert median_gamma(Kernel("rbf", 1.0), X) == pytest.approx(1 / 8)


def test_median_gamma_of_rows_nearly_the_same_can_be_stored() -> None:
    X = np.array([[0.0], [1e-30]], np.float32)
    assert np.isfinite(np.float32(median_gamma(Kernel("rbf", 1.0), X)))
