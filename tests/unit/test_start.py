"""What refinement of a leaf starts from: machine code does what its definition does, whatever the leaf."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dcpred_tasks.model.basis import LeafBasis, sample_pairs
from dcpred_tasks.model.kernels import KERNELS, Kernel
from dcpred_tasks.training import compiled_start
from dcpred_tasks.training.leaf import LeafToRefine, distinct, slack_landmarks
from dcpred_tasks.training.losses import Squares
from dcpred_tasks.training.objective import Goal
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import LeafRows
from support import start_definition
from support.objectives import Doubles

RIDGE, FLOOR = 1e-4, 0.3


def drawn_leaf(kernel: str, n: int, d: int, m: int, k: int, products: int, seed: int) -> tuple[Any, ...]:
    """A basis, rows, targets ±1 and weights of sum 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    target = np.where(rng.normal(size=(n, k)) + X[:, :1] > 0, 1.0, -1.0)
    weight = rng.uniform(0.2, 1.0, n)
    gamma = np.full(m, 1.0 / d, np.float32)
    landmarks = X[rng.integers(0, n, m)] + 0.1 * rng.normal(size=(m, d)).astype(np.float32)
    pairs, triangle = sample_pairs(m, products, rng), np.empty((0, m), np.float32)
    basis = LeafBasis(Kernel(kernel, 1.0 / d), "lower", landmarks, gamma, pairs, triangle)
    return basis, X, target, weight / weight.sum()


def solved(basis: LeafBasis, X: Any, target: Doubles, weight: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    goal = Goal(target.astype(np.float32), target, 0.0, weight.astype(np.float32), Squares())
    start = compiled_start.Start(compiled_start.unfitted(X, basis, goal), RIDGE)
    (beta, intercept), values = start.solve(target, weight)
    return beta, intercept, values()


def risk(leaf: tuple[Any, ...], beta: Doubles, intercept: Doubles) -> float:
    basis, X, target, weight = leaf
    off = basis(X) @ beta + intercept - target
    return float(weight @ (off**2).sum(axis=1) + RIDGE * (beta**2).sum())


@given(st.data())
def test_ridge_regressions_are_those_of_the_definition(data: st.DataObject) -> None:
    """And cost as little, with more landmarks than rows, too."""
    n, d, m, k = (data.draw(st.integers(1, most)) for most in (600, 12, 40, 4))
    products = data.draw(st.sampled_from([0, 3]))
    leaf = drawn_leaf(data.draw(st.sampled_from(KERNELS)), n, d, m, k, products, data.draw(st.integers(0, 9)))
    basis, X, target, weight = leaf
    beta, intercept, values = solved(*leaf)
    expected = start_definition.joint_ridge(basis(X), target, weight, RIDGE)
    assert risk(leaf, beta, intercept) == pytest.approx(risk(leaf, *expected), rel=1e-3, abs=1e-5)
    assert_allclose(values, basis(X) @ beta + intercept, rtol=0, atol=2e-4 * max(np.abs(beta).max(), 1.0))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("k", [1, 3])
def test_landmarks_are_those_of_the_definition(kernel: str, k: int) -> None:
    for seed in range(3):
        basis, X, target, weight = drawn_leaf(kernel, 300, 4, 12, k, 0, seed)
        draws = np.random.default_rng(seed).exponential(size=len(X))
        for sign in (target, None):
            rows = basis, X, target, sign, weight, weight / weight.max(), draws, RIDGE, FLOOR
            ours, expected = compiled_start.landmarks(*rows), start_definition.landmarks(*rows)
            order, other = (np.argsort(found[:, 0]) for found in (ours, expected))
            assert_allclose(ours[order], expected[other], atol=1e-4)


def test_every_thread_starts_from_the_same_bits() -> None:
    leaves = [drawn_leaf("rbf", 400, 5, 16, 2, 3, seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda leaf: solved(*leaf), leaves))
    for leaf, results in zip(leaves, together, strict=True):
        for alone, other in zip(solved(*leaf), results, strict=True):
            assert_array_equal(alone, other)


@pytest.mark.parametrize("equal", ["rows", "some rows", "targets", "weights"])
def test_leaves_that_leave_little_to_learn(equal: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    target, weight = rng.integers(0, 2, 40), rng.uniform(size=40)
    if equal == "rows":
        X[:] = X[0]
    elif equal == "some rows":
        X = np.repeat(X[:10], 4, axis=0)
    elif equal == "targets":
        target[:] = 1
    else:
        weight[3:] = 1e-300
    rows = LeafRows(X, target, np.maximum(weight, 1e-300), np.zeros(40, bool), 1, "classification")
    for m in (1, 8, 64):
        given = Settings(landmarks=m)
        found = slack_landmarks(LeafToRefine(rows, rows.weight, given), Kernel("rbf", 0.5), given, 0)
        assert np.isfinite(found).all()
        assert 1 <= len(found) <= min(m, len(np.unique(X, axis=0)))


def test_distinct_points_are_those_of_numpy(rng: np.random.Generator) -> None:
    for n, d in ((1, 1), (30, 1), (30, 3), (200, 2)):
        points = rng.integers(-2, 3, (n, d)).astype(np.float32)
        assert_array_equal(distinct(points), np.unique(points, axis=0))
