"""Machines that are made of the exact one, or of fewer rows: reduced sets, approximate extreme points, and
trees over the support vectors.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.machines import aesvm, ball_tree, exact, reduced_set, support_tree
from dcpred_tasks.machines.aesvm import extreme_points, representing
from dcpred_tasks.machines.ball_tree import LEAF, BallTree, grown
from dcpred_tasks.machines.exact import Exact
from dcpred_tasks.machines.reduced_set import (
    Expansion,
    best_weights,
    error_and_slope,
    next_vector,
    reduced,
    squared_error,
)
from dcpred_tasks.machines.support_tree import SupportTree
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.machine import MACHINES, machine_of, module_of, packed
from dcpred_tasks.training.local_machine import ABSENT, LeafRows
from support.machines import check_machine, rows_of, settings_of

OURS = ("reduced_set", "aesvm", "ball_tree", "support_tree")
TREES = ("ball_tree", "support_tree")
RBF = Kernel("rbf", 0.3)


def leaf_rows(X: NDArray[np.float32], target: NDArray[np.generic], n_outputs: int = 1) -> LeafRows:
    return LeafRows(X, target, np.ones(len(X)), np.zeros(len(X), bool), n_outputs, "classification")


def clustered(n: int = 800, n_classes: int = 2, seed: int = 0) -> LeafRows:
    """Narrow clusters of two features, where a fifth of the labels is wrong."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-4, 4, size=(12, 2))
    group = rng.integers(len(centre), size=n)
    X = (centre[group] + rng.normal(scale=0.08, size=(n, 2))).astype(np.float32)
    wrong = rng.random(n) < 0.2
    target = np.where(wrong, rng.integers(n_classes, size=n), group % n_classes)
    return leaf_rows(X, target, 1 if n_classes == 2 else n_classes)


def exact_of(rows: LeafRows, kernel: Kernel, **more: object) -> Exact:
    return exact.fit(rows, kernel, settings_of("exact", rows.task, "rbf", **more), 0)


def chosen(decision: NDArray[np.float64]) -> NDArray[np.intp]:
    return (decision[:, 0] > 0).astype(np.intp) if decision.shape[1] == 1 else decision.argmax(axis=1)


def spread_out(rows: LeafRows, n: int = 400) -> NDArray[np.float32]:
    """Rows to score, of which many are far from all that was trained on."""
    more = np.random.default_rng(9).normal(scale=3.0, size=(n, rows.X.shape[1]))
    return np.concatenate([rows.X, more.astype(np.float32)])


# -- all of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("name", TREES)
def test_trees_keep_the_contract_with_leaves_of_any_size(name: str, size: int) -> None:
    check_machine(name, "classification", "rbf", n_classes=3, size=size)


@pytest.mark.parametrize("name", OURS)
def test_small_and_dull_rows(name: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3)).astype(np.float32)
    mixed = rng.integers(2, size=30)
    dull = X.copy()
    dull[:, 1] = 4.0
    cases = [
        leaf_rows(X[:1], np.array([1])),
        leaf_rows(X[:2], np.array([0, 1])),
        leaf_rows(X[:9], np.zeros(9, int)),
        leaf_rows(np.ones_like(X), mixed),
        leaf_rows(dull, mixed),
        leaf_rows(X, 2 * mixed, 3),
    ]
    if "regression" in MACHINES[name].tasks:
        cases += [replace(one, target=one.target.astype(float), task="regression") for one in cases[:5]]
    for rows in cases:
        for size in (1, 50):
            machine = module_of(name).fit(rows, RBF, settings_of(name, rows.task, "rbf", size=size), 0)
            decision = machine.decision(rows.X)
            assert decision.shape == (len(rows.X), rows.n_outputs)
            assert np.isfinite(decision).all()
            stored = machine_of(name, packed(machine.arrays()), machine.shape)
            np.testing.assert_array_equal(stored.decision(rows.X), decision)
            if rows.n_outputs == 3:
                np.testing.assert_array_equal(decision[:, 1], ABSENT)


# -- reduced sets --------------------------------------------------------------------------------------------


def expansion(n_outputs: int = 2, n: int = 120, d: int = 4) -> Expansion:
    rng = np.random.default_rng(0)
    return Expansion(RBF, rng.normal(size=(n, d)), rng.normal(size=(n, n_outputs)))


def relative_error(w: Expansion, Z: NDArray[np.float64]) -> float:
    return squared_error(w, Z, best_weights(w, Z)) / w.squared_norm()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_reduced_sets_are_nearer_than_subsets_and_nearer_the_larger_they_are(n_outputs: int) -> None:
    w, rng = expansion(n_outputs), np.random.default_rng(1)
    errors = []
    for size in (2, 6, 18):
        Z = reduced(w, size, rng)
        assert len(Z) == size
        errors.append(relative_error(w, Z))
        subsets = [w.points[rng.permutation(len(w.points))[:size]] for _ in range(20)]
        assert errors[-1] < 0.95 * min(relative_error(w, subset) for subset in subsets)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.6 * errors[0]


def test_the_error_of_a_reduced_set_is_the_distance_of_the_two_machines() -> None:
    w, rng = expansion(), np.random.default_rng(2)
    Z, B = rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    both = Expansion(RBF, np.concatenate([w.points, Z]), np.concatenate([w.weights, -B]))
    G = RBF(both.points, both.points)
    expected = np.trace(both.weights.T @ G @ both.weights)
    assert squared_error(w, Z, B) == pytest.approx(expected, rel=1e-9)
    best = best_weights(w, Z)
    for _ in range(5):
        assert squared_error(w, Z, best) < squared_error(w, Z, best + 1e-2 * rng.normal(size=best.shape))


def test_one_support_vector_is_its_own_pre_image() -> None:
    x = np.array([[0.5, -2.0, 1.0]])
    w = Expansion(RBF, x, np.array([[3.0, -1.0]]))
    Z = reduced(w, 4, np.random.default_rng(0))
    np.testing.assert_allclose(Z, x, atol=1e-9)
    np.testing.assert_allclose(best_weights(w, Z), [[3.0, -1.0]], rtol=1e-6)


def test_the_error_falls_as_its_derivative_says_and_does_not_where_a_reduced_set_ends() -> None:
    w, rng = expansion(2, 30), np.random.default_rng(3)
    Z, h = w.points[:6] + 0.3, 1e-4
    value, slope = error_and_slope(w, Z)
    assert value == pytest.approx((relative_error(w, Z) - 1) * w.squared_norm(), rel=1e-5)
    for _ in range(5):
        way = rng.normal(size=Z.shape)
        expected = (error_and_slope(w, Z + h * way)[0] - error_and_slope(w, Z - h * way)[0]) / (2 * h)
        assert float((slope * way).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    end = reduced(w, 6, rng)
    assert np.abs(error_and_slope(w, end)[1]).max() < 0.01 * np.abs(slope).max()


def test_the_fixed_point_is_the_nearest_single_vector() -> None:
    """No row, and no vector near the one found, has a larger Σ_k g_k(z)²; the error falls by that."""
    w, rng = expansion(2), np.random.default_rng(4)
    z, gain = next_vector(w, w.points, rng)
    assert gain == pytest.approx((1 - relative_error(w, z[None])) * w.squared_norm(), rel=1e-5)
    rows = (w.values(w.points) ** 2).sum(axis=1)
    near = (w.values(z + rng.normal(scale=0.05, size=(200, 4))) ** 2).sum(axis=1)
    assert gain > 1.05 * rows.max()
    assert gain >= near.max()


def test_a_reduced_set_as_large_as_the_machine_is_the_machine() -> None:
    rows = rows_of("classification")
    machine = reduced_set.fit(rows, RBF, settings_of("reduced_set", rows.task, "rbf", size=240), 0)
    np.testing.assert_array_equal(machine.decision(rows.X), exact_of(rows, RBF).decision(rows.X))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_reduced_set_is_right_in_the_mean(task: str) -> None:
    rows = replace(rows_of(task), weight=np.linspace(0.5, 2.0, 240))
    machine = reduced_set.fit(rows, RBF, settings_of("reduced_set", task, "rbf", size=3), 0)
    off = machine.decision(rows.X) - exact_of(rows, RBF).decision(rows.X)
    assert np.abs(off).max() > 0.1
    assert np.average(off[:, 0], weights=rows.weight) == pytest.approx(0.0, abs=1e-6)


def digits(folder: Path, first: int, last: int) -> LeafRows:
    with np.load(folder / "usps.npz") as data:
        X, y = data["X_train"][first:last].astype(np.float32), data["y_train"][first:last]
    return leaf_rows(X, y - y.min(), 10)


def test_a_tenth_of_the_support_vectors_is_enough_for_digits(real_data: Path) -> None:
    """Burges (1996) and Schölkopf et al. (1999): a machine of a tenth of the vectors loses little accuracy,
    where as many support vectors with the best weights lose much more.
    """
    rows, test, kernel = digits(real_data, 0, 600), digits(real_data, 600, 1400), Kernel("rbf", 1 / 128)
    whole = exact_of(rows, kernel, C=10)
    size = len(whole.support) // 10
    few = reduced_set.fit(rows, kernel, settings_of("reduced_set", rows.task, "rbf", C=10, size=size), 0)
    w = Expansion(kernel, whole.support.astype(float), whole.dual.astype(float))
    Z = w.points[np.random.default_rng(0).permutation(len(w.points))[:size]]
    subset = Exact(kernel, Z.astype(np.float32), best_weights(w, Z).astype(np.float32), whole.intercept)
    right = [(chosen(one.decision(test.X)) == test.target).mean() for one in (whole, few, subset)]
    assert len(few.support) == size
    assert right[1] > right[0] - 0.015
    assert right[2] < right[1] - 0.03


# -- approximate extreme points ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.01])
def test_rows_are_near_convex_combinations_of_extreme_points(epsilon: float) -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    K = RBF(X, X)
    points, mu, off = extreme_points(K, epsilon, len(X))
    assert len(points) < len(X)
    assert len(np.unique(points)) == len(points)
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(mu[points], np.eye(len(points)))
    away = np.eye(len(X))
    away[:, points] -= mu
    np.testing.assert_allclose(np.einsum("ij,jk,ik->i", away, K, away), off, atol=1e-9)
    assert off.max() <= epsilon


def test_a_finer_tolerance_takes_more_extreme_points_and_a_limit_holds() -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    K = RBF(X, X)
    counts = [len(extreme_points(K, epsilon, 80)[0]) for epsilon in (0.5, 0.1, 0.02)]
    assert counts == sorted(set(counts))
    assert len(extreme_points(K, 0.0, 5)[0]) == 5


def overlapping(n: int, seed: int) -> LeafRows:
    """Two classes that no machine tells apart well, so that most support vectors are at the bound."""
    rng = np.random.default_rng(seed)
    target = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) + 1.2 * target[:, None]
    return leaf_rows(X.astype(np.float32), target)


def test_extreme_points_give_a_smaller_machine_that_is_as_right() -> None:
    rows, test = overlapping(1000, 0), overlapping(4000, 1)
    whole = exact_of(rows, RBF)
    few = aesvm.fit(rows, RBF, settings_of("aesvm", rows.task, "rbf"), 0)
    assert (np.abs(whole.dual) > 0.999).mean() > 0.9
    assert len(few.support) < 0.5 * len(whole.support)
    right = [(chosen(one.decision(test.X)) == test.target).mean() for one in (whole, few)]
    assert right[1] > right[0] - 0.01
    known = representing(rows, RBF, MACHINES["aesvm"].size)
    assert known.weight.sum() == pytest.approx(len(rows.X))
    for one in (0, 1):
        assert known.weight[known.target == one].sum() == pytest.approx((rows.target == one).sum())


def test_the_objective_is_bounded_as_convexity_says() -> None:
    """After Nandan et al. (2014), derived again: hinge(x_i) ≤ Σ_t μ_it hinge(z_t) + ‖w‖ · distance of x_i, so
    that the objective over all rows is above that of the extreme points by at most C ‖w‖ Σ_i distance.
    """
    rows, C, size = overlapping(90, 2), 3.0, 40
    few = aesvm.fit(rows, RBF, settings_of("aesvm", rows.task, "rbf", C=C, size=size), 0)
    known = representing(rows, RBF, size)
    assert len(known.X) < 0.5 * len(rows.X)
    norm = np.sqrt((few.dual.T @ RBF(few.support, few.support) @ few.dual).item())
    away = 0.0
    for one in (0, 1):
        X = rows.X[rows.target == one]
        _, _, off = extreme_points(RBF(X, X), aesvm.EPSILON, -(-size * len(X) // aesvm.SUBSET))
        away += float(np.sqrt(off).sum())
    loss = []
    for some in (rows, known):
        margin = np.where(some.target == 1, 1.0, -1.0) * few.decision(some.X)[:, 0]
        loss.append(C * float((some.weight * np.maximum(1 - margin, 0)).sum()))
    assert loss[0] <= loss[1] + C * norm * away
    assert loss[0] < norm**2 / 2 + loss[1] < 1.3 * (norm**2 / 2 + loss[0])


def test_more_extreme_points_are_nearer_to_the_exact_machine() -> None:
    rows = rows_of("classification", 3)
    whole = chosen(exact_of(rows, RBF).decision(rows.X))
    same = []
    for size in (5, 40, 100):
        machine = aesvm.fit(rows, RBF, settings_of("aesvm", rows.task, "rbf", size=size), 0)
        same.append((chosen(machine.decision(rows.X)) == whole).mean())
    assert same == sorted(same)
    assert same[0] < 0.9 < same[2]


# -- trees ---------------------------------------------------------------------------------------------------


def tree_of(name: str, rows: LeafRows, kernel: Kernel, **more: object) -> BallTree | SupportTree:
    machine: BallTree | SupportTree = module_of(name).fit(
        rows, kernel, settings_of(name, rows.task, "rbf", **more), 0
    )
    return machine


@pytest.mark.parametrize("size", [1, 5, 16])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_ball_tree_gives_the_class_of_the_exact_machine(n_classes: int, size: int) -> None:
    for rows, kernel in ((rows_of("classification", n_classes), RBF), (clustered(300, n_classes), RBF)):
        X = spread_out(rows)
        tree = ball_tree.fit(rows, kernel, settings_of("ball_tree", rows.task, "rbf", size=size), 0)
        true = exact_of(rows, kernel).decision(X)
        lower, upper, _ = tree.bounds(X)
        slack = 1e-10 * float(np.abs(tree.dual).sum())
        assert (lower - slack <= true).all()
        assert (true <= upper + slack).all()
        value = tree.decision(X)
        np.testing.assert_array_equal(value, (lower + upper) / 2)
        np.testing.assert_array_equal(chosen(value), chosen(true))
        if n_classes == 2:
            assert (np.abs(value - true) <= np.abs(value) + slack).all()


def test_a_ball_tree_gives_the_sign_of_a_sum_that_cancels() -> None:
    """Rows in the middle between two support vectors of opposite sign, moved by 1e-7."""
    support = np.array([[-1.0, 0.0], [1.0, 0.0]], np.float32)
    children, ranges = grown(support, 1)[1:]
    nodes = ball_tree.nodes_of(support, children, ranges)
    dual = np.array([[-1.0], [1.0]], np.float32)
    tree = BallTree(RBF, support, dual, np.zeros(1), nodes, np.zeros(1))
    X = np.array([[1e-7, 0.5], [-1e-7, 0.5], [0.0, 3.0], [2.0, 0.0]])
    np.testing.assert_array_equal(np.sign(tree.decision(X)[:, 0]), [1, -1, 0, 1])
    np.testing.assert_allclose(tree.decision(X[:3]), Exact(RBF, support, dual, np.zeros(1)).decision(X[:3]))


@pytest.mark.parametrize("epsilon", [0.3, 0.02, 0.0])
def test_a_support_tree_is_within_its_bound_for_every_row(epsilon: float) -> None:
    for rows in (rows_of("classification", 3), rows_of("regression"), clustered(300)):
        X = spread_out(rows)
        tree = support_tree.fit(rows, RBF, settings_of("support_tree", rows.task, "rbf", size=4), 0)
        tree = replace(tree, epsilon=np.array([epsilon]))
        off = np.abs(tree.decision(X) - exact_of(rows, RBF).decision(X))
        whole = np.abs(tree.dual).sum(axis=0)
        assert (off <= (epsilon + 1e-12) * whole).all()


def test_no_support_vector_of_a_node_is_farther_from_its_centroid_than_the_bound() -> None:
    rows = rows_of("regression")
    tree = support_tree.fit(rows, RBF, settings_of("support_tree", rows.task, "rbf", size=2), 0)
    X = np.concatenate([tree.nodes.centre, spread_out(rows).astype(np.float64)])
    for node in range(len(tree.nodes.ranges)):
        value, error = tree.of_node(X, node)
        own = tree.kernel(X, tree.support[tree.nodes.rows(node)])
        assert (np.abs(own - value[:, None]).max(axis=1) <= error + 1e-7).all()


def test_a_support_tree_with_a_coarser_bound_is_cheaper_and_worse() -> None:
    rows = rows_of("regression")
    tree = support_tree.fit(rows, RBF, settings_of("support_tree", rows.task, "rbf", size=2), 0)
    true = exact_of(rows, RBF).decision(rows.X)
    cost, off = [], []
    for epsilon in (0.0, 0.05, 0.5):
        decision, spent = replace(tree, epsilon=np.array([epsilon])).walked(rows.X)
        cost.append(spent.mean())
        off.append(np.abs(decision - true).mean())
    assert cost[0] > cost[1] > cost[2]
    assert off[0] < off[1] < off[2]


@pytest.mark.parametrize("name", TREES)
def test_trees_take_fewer_multiplications_on_clustered_rows(name: str) -> None:
    rows, kernel = clustered(1200), Kernel("rbf", 1.0)
    whole = exact_of(rows, kernel)
    tree = tree_of(name, rows, kernel)
    assert len(whole.support) > 200
    assert tree.multiplications < 0.5 * whole.multiplications
    spent = tree.walked(rows.X)[1] if isinstance(tree, SupportTree) else tree.bounds(rows.X)[2]
    assert tree.multiplications == pytest.approx(spent.mean(), rel=0.1)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("n", [1, 2])
def test_trees_of_few_support_vectors(name: str, n: int) -> None:
    support = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)[:n]
    dual = np.array([[1.5], [-0.5]], np.float32)[:n]
    whole = Exact(RBF, support, dual, np.array([0.1]))
    children, ranges = grown(support, 1)[1:]
    assert len(children) == 2 * n - 1
    more = {"children": children, "ranges": ranges, "epsilon": np.zeros(1), "counted": np.zeros(1)}
    tree = module_of(name).of_arrays(whole.arrays() | more)
    X = np.random.default_rng(0).normal(size=(50, 2))
    value, true = tree.decision(X), whole.decision(X)
    np.testing.assert_array_equal(value > 0, true > 0)
    if name == "support_tree" or n == 1:
        np.testing.assert_allclose(value, true, rtol=1e-9)


def test_a_tree_has_each_row_once_and_leaves_of_the_size_asked_for() -> None:
    X = np.random.default_rng(0).standard_cauchy(size=(500, 3)).astype(np.float32)
    X[100:200] = X[0]
    for most in (1, 7, 600):
        order, children, ranges = grown(X, most)
        np.testing.assert_array_equal(np.sort(order), np.arange(500))
        leaves = ranges[children[:, 0] == LEAF]
        assert (leaves[:, 1] - leaves[:, 0]).max() <= most
        nodes = ball_tree.nodes_of(X[order], children, ranges)
        for node, (start, stop) in enumerate(ranges):
            assert (nodes.distances(X[order][start:stop], node) <= nodes.radius[node]).all()


def test_trees_that_are_none_are_refused() -> None:
    machine = tree_of("ball_tree", clustered(100), RBF, size=4)
    arrays = machine.arrays()
    children, ranges = arrays["children"], arrays["ranges"]

    def with_child(node: int, side: int, value: int) -> NDArray[np.int64]:
        changed = children.copy()
        changed[node, side] = value
        return changed

    wrong = [
        {"children": with_child(0, 0, 0)},
        {"children": with_child(0, 1, 1)},
        {"children": with_child(0, 0, LEAF)},
        {"children": with_child(0, 0, len(children))},
        {"children": with_child(2, 0, 1)},
        {"children": with_child(len(children) - 1, 0, -2)},
        {"children": children[::-1]},
        {"children": children[:-1]},
        {"children": np.zeros((0, 2), np.int64), "ranges": np.zeros((0, 2), np.int64)},
        {"ranges": ranges + 1},
        {"ranges": np.full_like(ranges, 2**62)},
        {"ranges": ranges[:, ::-1]},
        {"counted": np.array([-1.0])},
        {"counted": np.zeros(0)},
    ]
    for changed in wrong:
        with pytest.raises(ValueError, match="tree"):
            ball_tree.of_arrays(arrays | changed)
    laplacian = replace(machine, kernel=Kernel("laplacian", 0.3)).arrays()
    for module in (ball_tree, support_tree):
        with pytest.raises(ValueError, match="another kernel"):
            module.of_arrays(laplacian | {"epsilon": np.zeros(1)})


def test_a_chain_of_nodes_is_refused() -> None:
    """It would be a tree, but one that takes a level for each support vector."""
    n = 100
    inner = 2 * np.arange(n - 1)
    children, ranges = np.full((2 * n - 1, 2), LEAF), np.empty((2 * n - 1, 2), np.int64)
    children[inner] = np.column_stack([inner + 1, inner + 2])
    ranges[0] = 0, n
    ranges[inner + 1] = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    ranges[inner + 2] = np.column_stack([np.arange(1, n), np.full(n - 1, n)])
    with pytest.raises(ValueError, match="levels"):
        ball_tree.nodes_of(np.zeros((n, 2), np.float32), children, ranges)
    short = ball_tree.nodes_of(np.zeros((1, 2), np.float32), np.array([[LEAF, LEAF]]), np.array([[0, 1]]))
    assert len(short.radius) == 1
