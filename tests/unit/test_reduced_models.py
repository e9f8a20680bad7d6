"""Machines that are made of the exact one, or of fewer rows: reduced sets, approximate extreme points, and
trees over the support vectors.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_compare.baselines import LEAF_MODELS, aesvm
from dcpred_compare.baselines.aesvm import extreme_points, representatives, representing
from dcpred_compare.baselines.ball_tree import BallTree, Cells, bisected, cells_of, in_cells
from dcpred_compare.baselines.reduced_set import next_vector, reduced
from dcpred_compare.baselines.support_tree import SupportTree, weighted_cells
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_model import read_leaf_model
from dcpred_tasks.model.packed_arrays import packed
from dcpred_tasks.training.objective import Expansion, best_weights, least_error_and_slope, nearest
from dcpred_tasks.training.solvers import ABSENT, LeafRows
from support.leaf_models import check_leaf_model, check_single_precision, fit_model, rows_of
from support.objectives import squared_error
from support.refinement_definition import error_and_slopes

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
    return fit_model("exact", rows, kernel, **more)


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
    check_leaf_model(name, "classification", "rbf", n_classes=3, size=size)


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
    if "regression" in LEAF_MODELS[name].tasks:
        cases += [replace(one, target=one.target.astype(float), task="regression") for one in cases[:5]]
    for rows in cases:
        for size in (1, 50):
            machine = fit_model(name, rows, RBF, size=size)
            decision = machine.predict(rows.X.astype(float))
            assert decision.shape == (len(rows.X), rows.n_outputs)
            assert np.isfinite(decision).all()
            stored = read_leaf_model(name, packed(machine.arrays()), machine.shape)
            np.testing.assert_array_equal(stored.predict(rows.X.astype(float)), decision)
            if rows.n_outputs == 3:
                np.testing.assert_array_equal(decision[:, 1], ABSENT)


# -- reduced sets --------------------------------------------------------------------------------------------


def expansion(n_outputs: int = 2, n: int = 120, d: int = 4) -> Expansion:
    rng = np.random.default_rng(0)
    return Expansion(RBF, rng.normal(size=(n, d)), rng.normal(size=(n, n_outputs)))


def relative_error(w: Expansion, Z: NDArray[np.float64]) -> float:
    return squared_error(w, Z, best_weights(w, Z)) / w.squared_norm


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
    value, slope = least_error_and_slope(w, Z)
    assert value == pytest.approx((relative_error(w, Z) - 1) * w.squared_norm, rel=1e-5)
    for _ in range(5):
        way = rng.normal(size=Z.shape)
        ahead, back = (least_error_and_slope(w, Z + s * way)[0] for s in (h, -h))
        assert float((slope * way).sum()) == pytest.approx((ahead - back) / (2 * h), rel=1e-4, abs=1e-6)
    end = reduced(w, 6, rng)
    assert np.abs(least_error_and_slope(w, end)[1]).max() < 0.01 * np.abs(slope).max()


def test_the_error_of_any_weights_falls_as_its_derivatives_say() -> None:
    w, rng = expansion(2, 30), np.random.default_rng(5)
    Z, B, h = w.points[:6] + 0.3, rng.normal(size=(6, 2)), 1e-5
    value, by_vectors, by_weights = error_and_slopes(w, Z, B)
    assert value == pytest.approx(squared_error(w, Z, B) - w.squared_norm, rel=1e-9)
    for _ in range(5):
        way, more = rng.normal(size=Z.shape), rng.normal(size=B.shape)
        ahead, back = (error_and_slopes(w, Z + s * way, B + s * more)[0] for s in (h, -h))
        slope = float((by_vectors * way).sum() + (by_weights * more).sum())
        assert slope == pytest.approx((ahead - back) / (2 * h), rel=1e-5)


def test_vectors_that_meet_still_have_best_weights() -> None:
    w = expansion(2, 30)
    apart = squared_error(w, w.points[:3], best_weights(w, w.points[:3]))
    twice = np.concatenate([w.points[:3], w.points[:3]])
    assert squared_error(w, twice, best_weights(w, twice)) == pytest.approx(apart, rel=1e-5)


def test_the_nearest_vectors_are_nearer_and_stay_where_no_step_helps() -> None:
    w = expansion(3)
    start = w.points[:8]
    moved = nearest(w, start, 50)
    assert relative_error(w, moved) < 0.7 * relative_error(w, start)
    assert relative_error(w, nearest(w, start, 5)) > relative_error(w, moved)
    np.testing.assert_array_equal(nearest(w, np.full((2, 4), np.inf), 5), np.full((2, 4), np.inf))


def test_the_fixed_point_is_the_nearest_single_vector() -> None:
    """No row, and no vector near the one found, has a larger Σ_k g_k(z)²; the error falls by that."""
    w, rng = expansion(2), np.random.default_rng(4)
    z, gain = next_vector(w, w.points, rng)
    assert gain == pytest.approx((1 - relative_error(w, z[None])) * w.squared_norm, rel=1e-5)
    rows = (w.values(w.points) ** 2).sum(axis=1)
    near = (w.values(z + rng.normal(scale=0.05, size=(200, 4))) ** 2).sum(axis=1)
    assert gain > 1.05 * rows.max()
    assert gain >= near.max()


def test_a_reduced_set_as_large_as_the_machine_is_the_machine() -> None:
    rows = rows_of("classification")
    machine = fit_model("reduced_set", rows, RBF, size=240)
    np.testing.assert_array_equal(
        machine.predict(rows.X.astype(float)), exact_of(rows, RBF).predict(rows.X.astype(float))
    )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_reduced_set_is_right_in_the_mean(task: str) -> None:
    rows = replace(rows_of(task), weight=np.linspace(0.5, 2.0, 240))
    machine = fit_model("reduced_set", rows, RBF, size=3)
    off = machine.predict(rows.X.astype(float)) - exact_of(rows, RBF).predict(rows.X.astype(float))
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
    few = fit_model("reduced_set", rows, kernel, C=10, size=size)
    w = Expansion(kernel, whole.support.astype(float), whole.dual.astype(float))
    Z = w.points[np.random.default_rng(0).permutation(len(w.points))[:size]]
    subset = Exact(kernel, Z.astype(np.float32), best_weights(w, Z).astype(np.float32), whole.intercept)
    right = [
        (chosen(one.predict(test.X.astype(float))) == test.target).mean() for one in (whole, few, subset)
    ]
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
    few = fit_model("aesvm", rows, RBF)
    assert (np.abs(whole.dual) > 0.999).mean() > 0.9
    assert len(few.support) < 0.5 * len(whole.support)
    right = [(chosen(one.predict(test.X.astype(float))) == test.target).mean() for one in (whole, few)]
    assert right[1] > right[0] - 0.01
    known = representing(rows, RBF, 50)
    assert known.weight.sum() == pytest.approx(len(rows.X))
    for one in (0, 1):
        assert known.weight[known.target == one].sum() == pytest.approx((rows.target == one).sum())


def test_extreme_points_that_are_left_out_leave_their_weight_to_others() -> None:
    """Of more of them than local_rows a part trains the machine, as heavy as all of them: at a small C each
    dual is C times the weight of its row, so that the duals of a class sum to C times its rows.
    """
    rows, C = overlapping(600, 3), 1e-4
    few = fit_model("aesvm", rows, RBF, C=C, size=100, local_rows=60)
    assert len(few.support) == 60
    for one, sign in ((1, 1.0), (0, -1.0)):
        of_class = few.dual[few.dual * sign > 0]
        expected = C * min((rows.target == 0).sum(), (rows.target == 1).sum())
        assert abs(of_class.sum()) == pytest.approx(expected, rel=1e-3), one


def test_the_objective_is_bounded_as_convexity_says() -> None:
    """After Nandan et al. (2014), derived again: hinge(x_i) ≤ Σ_t μ_it hinge(z_t) + ‖w‖ · distance of x_i, so
    that the objective over all rows is above that of the extreme points by at most C ‖w‖ Σ_i distance.
    """
    rows, C, size = overlapping(90, 2), 3.0, 40
    few = fit_model("aesvm", rows, RBF, C=C, size=size)
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
        margin = np.where(some.target == 1, 1.0, -1.0) * few.predict(some.X.astype(float))[:, 0]
        loss.append(C * float((some.weight * np.maximum(1 - margin, 0)).sum()))
    assert loss[0] <= loss[1] + C * norm * away
    assert loss[0] < norm**2 / 2 + loss[1] < 1.3 * (norm**2 / 2 + loss[0])


def test_more_extreme_points_are_nearer_to_the_exact_machine() -> None:
    rows = rows_of("classification", 3)
    whole = chosen(exact_of(rows, RBF).predict(rows.X.astype(float)))
    same = []
    for size in (5, 40, 100):
        machine = fit_model("aesvm", rows, RBF, size=size)
        same.append((chosen(machine.predict(rows.X.astype(float))) == whole).mean())
    assert same == sorted(same)
    assert same[0] < 0.9 < same[2]


def test_an_extreme_point_weighs_as_many_rows_as_it_stands_for() -> None:
    """Ninety rows close together and ten that lie apart: β of the points among each sums to their number, and
    to their weights where rows have weights.
    """
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-4, 0.05, size=(90, 2)), rng.normal(4, 1.0, size=(10, 2))])
    X, order = X.astype(np.float32), rng.permutation(100)
    for weight in (np.ones(100), np.linspace(0.1, 3.0, 100)):
        chosen_rows, beta = representatives(X[order], weight[order], RBF, 12)
        dense = X[order][chosen_rows, 0] < 0
        assert 1 <= dense.sum() < 4 < (~dense).sum()
        assert beta[dense].sum() == pytest.approx(weight[:90].sum(), rel=1e-3)
        assert beta[~dense].sum() == pytest.approx(weight[90:].sum(), rel=1e-2)


# -- cells of trees ------------------------------------------------------------------------------------------


def cells_for(whole: Exact, most: int) -> Cells:
    return cells_of(*in_cells(whole, most))


def ball_tree_of(rows: LeafRows, kernel: Kernel, size: int) -> BallTree:
    """Also where cells are not worth it."""
    return BallTree(cells_for(exact_of(rows, kernel), size), np.zeros(1))


def support_tree_of(rows: LeafRows, kernel: Kernel, size: int, epsilon: float) -> SupportTree:
    cells = weighted_cells(*in_cells(exact_of(rows, kernel), size))
    return SupportTree(cells, np.array([epsilon]), np.zeros(1))


@pytest.mark.parametrize("size", [1, 5, 16])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_ball_tree_gives_the_class_of_the_exact_machine(n_classes: int, size: int) -> None:
    for rows, kernel in ((rows_of("classification", n_classes), RBF), (clustered(300, n_classes), RBF)):
        X = spread_out(rows)
        tree = ball_tree_of(rows, kernel, size)
        true = exact_of(rows, kernel).predict(X.astype(float))
        value, off, _ = tree.bounds(X.astype(float))
        slack = 1e-10 * float(np.abs(tree.cells.whole.dual).sum())
        assert (np.abs(value - true) <= off + slack).all()
        np.testing.assert_array_equal(chosen(value), chosen(true))
        if n_classes == 2:
            assert (np.abs(value - true) <= np.abs(value) + slack).all()
        check_single_precision(tree, X)


def test_a_ball_tree_gives_the_sign_of_a_sum_that_cancels() -> None:
    """Rows in the middle between two support vectors of opposite sign, moved by 1e-7."""
    support = np.array([[-1.0, 0.0], [1.0, 0.0]], np.float32)
    whole = Exact(RBF, support, np.array([[-1.0], [1.0]], np.float32), np.zeros(1))
    tree = BallTree(cells_for(whole, 1), np.zeros(1))
    X = np.array([[1e-7, 0.5], [-1e-7, 0.5], [0.0, 3.0], [2.0, 0.0]])
    np.testing.assert_array_equal(np.sign(tree.predict(X)[:, 0]), [1, -1, 0, 1])
    np.testing.assert_allclose(tree.predict(X[:3]), whole.predict(X[:3]))


@pytest.mark.parametrize("epsilon", [0.3, 0.02, 0.0])
def test_a_support_tree_is_within_its_bound_for_every_row(epsilon: float) -> None:
    for rows in (rows_of("classification", 3), rows_of("regression"), clustered(300)):
        X = spread_out(rows)
        tree = support_tree_of(rows, RBF, 4, epsilon)
        off = np.abs(tree.predict(X.astype(float)) - exact_of(rows, RBF).predict(X.astype(float)))
        assert (off <= (epsilon + 1e-12) * np.abs(tree.cells.whole.dual).sum(axis=0)).all()
        if epsilon:  # With 0 rounding decides of every cell that is far away.
            check_single_precision(tree, X)


def test_no_support_vector_of_a_cell_has_a_value_outside_of_its_bounds() -> None:
    rows = rows_of("regression")
    for cells in (cells_for(exact_of(rows, RBF), 3), support_tree_of(rows, RBF, 3, 0.1).cells):
        X = np.concatenate([cells.centre, spread_out(rows).astype(np.float64)])
        ball = cells.balls(cells.rows(X))
        values = RBF(X, cells.whole.support)
        for cell, own in enumerate(np.split(values, cells.ends[:-1], axis=1)):
            assert (own >= ball.least[:, [cell]] - 1e-9).all()
            assert (own <= ball.most[:, [cell]] + 1e-9).all()
        np.testing.assert_allclose(ball.at_centre, RBF(X, cells.centre), rtol=1e-9, atol=1e-12)


def test_a_support_tree_with_a_coarser_bound_is_cheaper_and_worse() -> None:
    rows = rows_of("regression")
    X = rows.X.astype(float)
    true = exact_of(rows, RBF).predict(X)
    cost, off = [], []
    for epsilon in (0.0, 0.05, 0.5):
        tree = support_tree_of(rows, RBF, 2, epsilon)
        decision, looked = tree.looked(X)
        cost.append(tree.cells.multiplications(looked))
        off.append(np.abs(decision - true).mean())
    assert cost[0] > cost[1] > cost[2]
    assert off[0] < off[1] < off[2]


@pytest.mark.parametrize("name", TREES)
def test_trees_take_fewer_multiplications_on_clustered_rows(name: str) -> None:
    rows, kernel = clustered(1200), Kernel("rbf", 4.0)
    whole = exact_of(rows, kernel)
    tree = fit_model(name, rows, kernel)
    assert isinstance(tree, BallTree | SupportTree)
    assert len(whole.support) > 200
    assert tree.cost < 0.5 * whole.cost


@pytest.mark.parametrize("name", TREES)
def test_where_cells_are_not_worth_it_the_exact_machine_is_kept(name: str) -> None:
    """Twenty features, whose distances are all about the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)).astype(np.float32)
    rows, kernel = leaf_rows(X, (X[:, 0] * X[:, 1] > 0).astype(int)), Kernel("rbf", 1 / 40)
    found = fit_model(name, rows, kernel)
    assert isinstance(found, Exact)
    stored = read_leaf_model(name, packed(found.arrays()), found.shape)
    np.testing.assert_array_equal(stored.predict(X), found.predict(X))


def test_the_error_of_a_support_tree_is_within_its_tolerance_whatever_the_unit_of_targets() -> None:
    """Also where α are a thousand times as large as targets, as in a ridge regression of little ridge."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(800, 2)).astype(np.float32)
    for unit in (1.0, 1e5):
        rows = replace(leaf_rows(X, unit * np.sin(2 * X[:, 0].astype(float))), task="regression")
        tree = fit_model("support_tree", rows, Kernel("rbf", 4.0), ridge=1e-2)
        assert isinstance(tree, SupportTree)
        test = rng.uniform(-3, 3, size=(500, 2))
        true = tree.cells.whole.predict(test)
        off = float(np.sqrt(((tree.predict(test) - true) ** 2).mean()))
        assert off < 2 * 0.02 * float(true.std())


@pytest.mark.parametrize("n", [1, 2])
def test_trees_of_few_support_vectors(n: int) -> None:
    support = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)[:n]
    whole = Exact(RBF, support, np.array([[1.5], [-0.5]], np.float32)[:n], np.array([0.1]))
    ends = np.arange(1, n + 1)
    X = np.random.default_rng(0).normal(size=(50, 2))
    ball = BallTree(cells_of(whole, ends), np.zeros(1))
    np.testing.assert_array_equal(ball.predict(X) > 0, whole.predict(X) > 0)
    support_tree = SupportTree(cells_of(whole, ends), np.zeros(1), np.zeros(1))
    np.testing.assert_allclose(support_tree.predict(X), whole.predict(X), rtol=1e-9)


def test_cells_have_each_row_once_and_are_of_the_size_asked_for() -> None:
    X = np.random.default_rng(0).standard_cauchy(size=(500, 3)).astype(np.float32)
    X[100:200] = X[0]
    for most in (1, 7, 600):
        order, ends = bisected(X, most)
        np.testing.assert_array_equal(np.sort(order), np.arange(500))
        assert np.diff(ends, prepend=0).max() <= most
        assert ends[-1] == 500
        cells = cells_of(Exact(RBF, X[order], np.ones((500, 1), np.float32), np.zeros(1)), ends)
        for cell, own in enumerate(np.split(X[order].astype(float), ends[:-1])):
            off = np.sqrt(((own - cells.centre[cell]) ** 2).sum(axis=1))
            assert (off <= cells.radius[cell]).all()


def test_cells_that_are_none_are_refused() -> None:
    for name, tree in (
        ("ball_tree", ball_tree_of(clustered(100), RBF, 4)),
        ("support_tree", support_tree_of(clustered(100), RBF, 4, 0.1)),
    ):
        arrays = tree.arrays()
        ends = arrays["ends"]
        wrong = [
            {"ends": ends[::-1].copy()},
            {"ends": ends[:-1]},
            {"ends": np.concatenate([[0], ends])},
            {"ends": np.concatenate([ends, ends[-1:]])},
            {"ends": np.full_like(ends, 2**62)},
            {"ends": np.zeros(0, np.int64)},
            {"counted": np.array([-1.0])},
            {"counted": np.zeros(0)},
            *([{"epsilon": np.array([-1.0])}] if name == "support_tree" else []),
        ]
        for changed in wrong:
            with pytest.raises(ValueError, match=r"cells|tolerance"):
                read_leaf_model(name, packed(arrays | changed), tree.shape)
        laplacian = replace(tree.cells.whole, kernel=Kernel("laplacian", 0.3)).arrays()
        with pytest.raises(ValueError, match="another kernel"):
            read_leaf_model(name, packed(arrays | laplacian), tree.shape)
