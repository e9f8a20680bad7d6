"""The learned metric: what it finds, what it leaves out, and that it is never worse than the scalings that it
replaces.
"""

import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_gaussian_quantiles

from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.training import compiled_refinement, learned_scaling
from dcpred_tasks.training.learned_scaling import (
    FARTHEST_CODES,
    FLOOR,
    STEPS_PER_ROUND,
    Metric,
    balanced_rows,
    judge,
    learn_metric,
    loss_and_gradient,
    mean_factors,
    mean_metric,
    neighbours,
    soft_weights,
    without_tails,
)
from dcpred_tasks.training.survey import LabelledRows, distinct_rows
from support.searches import SHIPPED, learning_as_shipped

DATA = Path(os.environ.get("DCPRED_DATA", Path(__file__).parents[3] / "shared" / "data"))
CLASSES, VALUES = "classification", "regression"


@pytest.fixture(scope="module", autouse=True)
def in_full_rounds() -> Iterator[None]:
    """Of few repetitions: what one finds, the mean of more finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_scaling, "ROUNDS", SHIPPED["ROUNDS"])
        yield


def learn(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    task: str = CLASSES,
    weight: NDArray[np.float64] | None = None,
) -> Metric:
    weight = np.ones(len(X)) if weight is None else weight
    return learn_metric(X, y, weight, X.min(axis=0).astype(float), X.max(axis=0).astype(float), task, 0)


def checkers(X: NDArray[np.float64], cells: float = 1.0) -> NDArray[np.int64]:
    """Classes that no feature tells alone: the parity of the cell in features 0 and 1."""
    return (np.floor(X[:, 0] / cells) + np.floor(X[:, 1] / cells)).astype(int) % 2


def share(found: Metric, X: NDArray[np.generic]) -> NDArray[np.float64]:
    """Of each feature in the mean squared distance."""
    part = found.factor**2 * X.astype(float).var(axis=0)
    return np.asarray(part / part.sum())


def hits(
    A: NDArray[np.float64], B: NDArray[np.float64], y: NDArray[np.generic], z: NDArray[np.generic]
) -> float:
    """1-nearest-neighbour accuracy, by the plain definition."""
    near = [((A - b) ** 2).sum(axis=1).argmin() for b in B]
    return float((y[near] == z).mean())


@pytest.fixture(name="square")
def two_useful_features_of_eight(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X = rng.uniform(0, 4, (1200, 8))
    return X, checkers(X)


@pytest.mark.parametrize("seed", range(3))
def test_where_neighbours_tell_nothing_every_feature_counts_alike(seed: int) -> None:
    """Classes that are shells around one point: features were left out by chance."""
    X, y = make_gaussian_quantiles(n_samples=1_200, n_features=10, n_classes=4, random_state=seed)
    found = learn(X, y)
    assert found.name == "standard"
    assert share(found, X) == pytest.approx(np.full(10, 0.1), rel=1e-6)


@pytest.mark.parametrize("task", [CLASSES, VALUES])
def test_the_gradient_is_that_of_the_loss(task: str, rng: np.random.Generator) -> None:
    S = rng.uniform(0, 2, (20, 7, 5)).astype(np.float32)
    t = rng.integers(0, 2, (20, 7)).astype(float) if task == CLASSES else rng.normal(size=(20, 7))
    rest = (t, rng.normal(size=20), rng.uniform(0.5, 2, (20, 7)), rng.uniform(0.5, 2, 20), task)
    w = rng.uniform(0.2, 1, 5)
    _, gradient = loss_and_gradient(w, S, *rest)
    for feature in range(5):
        step = 0.02 * np.eye(5)[feature]  # wide: distances are in single precision
        slope = (loss_and_gradient(w + step, S, *rest)[0] - loss_and_gradient(w - step, S, *rest)[0]) / 0.04
        assert gradient[feature] == pytest.approx(slope, rel=5e-3, abs=2e-4)


def test_the_loss_is_its_definition(rng: np.random.Generator) -> None:
    A, B = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    w, t = np.array([1.0, 0.5, 2.0]), rng.normal(size=(6, 4))
    S = ((A[:, None] - B[None]) ** 2).astype(np.float32)
    y, near_weight, weight = rng.normal(size=6), rng.uniform(1, 3, (6, 4)), rng.uniform(1, 3, 6)
    expected = 0.0
    for i in range(6):
        P = [near_weight[i, j] * np.exp(-sum(w * (A[i] - B[j]) ** 2)) for j in range(4)]
        expected += weight[i] / weight.sum() * (np.dot(P, t[i]) / sum(P) - y[i]) ** 2
    assert loss_and_gradient(w, S, t, y, near_weight, weight, VALUES)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("n", "k"), [(9, 8), (17, 8), (21, 10), (50, 4), (700, 5), (6401, 31), (2113, 32)])
@pytest.mark.parametrize("widest", [0, learned_scaling.WIDEST], ids=["NumPy", "machine code"])
def test_neighbours_are_those_of_the_definition(
    n: int, k: int, widest: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned_scaling, "WIDEST", widest)
    pool = rng.normal(size=(n, 4)).astype(np.float32)
    own = rng.choice(n, min(n, 300), replace=False)
    w = np.array([1.0, 0.0, 3.0, 0.1])
    found, squares = neighbours(pool[own], own, pool, w, k)
    for row, near, square in zip(own, found, squares, strict=True):
        D = (w * (pool.astype(float) - pool[row]) ** 2).sum(axis=1)
        D[row] = np.inf
        assert len(set(near)) == k
        assert row not in near
        np.testing.assert_allclose(np.sort(D[near]), np.sort(D)[:k], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(square, D[near], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("task", [CLASSES, VALUES])
@pytest.mark.parametrize("d", [1, 5, 16, 37])
def test_machine_code_learns_the_factors_of_the_definition(
    task: str, d: int, rng: np.random.Generator
) -> None:
    """To what single precision leaves of neighbours that are nearly as far."""
    U = rng.normal(size=(403, d)).astype(np.float32)
    y = np.sin(2 * U[:, 0].astype(float))
    rows = LabelledRows(U, (y > 0).astype(float) if task == CLASSES else y, rng.uniform(0.5, 2, 403))
    start, anchors = np.zeros(d), np.stack([rng.permutation(403)[:57] for _ in range(2)])
    wanted = mean_factors(rows, start, anchors, 32, task, 25, 0.3, 1e-3)
    floor = FLOOR if task == CLASSES else None
    found = compiled_refinement.learned_factors(
        U, rows.y, rows.weight, start, anchors, 32, STEPS_PER_ROUND, 25, 0.3, 1e-3, floor
    )
    np.testing.assert_allclose(found, wanted, atol=0.02)


@pytest.mark.parametrize("k", [2, 16, 31])
def test_machine_code_predicts_what_the_definition_does(k: int, rng: np.random.Generator) -> None:
    D = rng.exponential(size=(9, k)).astype(np.float32)
    D[3], D[4, 0] = 0.0, np.finfo(np.float32).max
    weight, t = rng.uniform(0.5, 2, (9, k)), rng.normal(1e6, 1, (9, k))
    widths = np.array([1e-3, 1.0, 1e4])
    with np.errstate(over="ignore"):
        wanted = [
            (soft_weights(np.nan_to_num(D * np.float32(one)), weight) * t).sum(axis=1) for one in widths
        ]
    np.testing.assert_allclose(compiled_refinement.predicted(D, weight, t, widths), wanted, rtol=1e-6)


@pytest.mark.parametrize("widest", [0, learned_scaling.WIDEST], ids=["NumPy", "machine code"])
def test_rows_that_coincide_or_lie_beyond_single_precision_have_neighbours(
    widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned_scaling, "WIDEST", widest)
    same = np.ones((300, 2), np.float32)
    far = np.where(np.arange(300)[:, None] % 2, np.float32(1e25), same)
    for pool in (same, far):
        with np.errstate(over="ignore", invalid="ignore"):
            found = neighbours(pool[:20], np.arange(20), pool, np.ones(2), 32)[0]
        assert all(len(set(near)) == 32 and row not in near for row, near in enumerate(found))


def test_useful_features_of_classes_are_found_and_the_rest_is_left_out(
    square: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    X, y = square
    found = learn(X, y)
    assert found.name == "learned"
    assert share(found, X)[:2].sum() > 0.95
    assert np.count_nonzero(found.factor) <= 4
    # both are < 0
    assert found.scores["learned"] > 0.5 * max(found.scores[name] for name in ("none", "standard", "minmax"))


def test_useful_features_of_values_are_found_in_proportion(rng: np.random.Generator) -> None:
    X = rng.uniform(0, 1, (1200, 6))
    y = np.sin(9 * X[:, 0]) + 0.5 * np.sin(3 * X[:, 1]) + 1e6
    found = learn(X, y, VALUES)
    assert found.name == "learned"
    assert found.factor[0] > 1.3 * found.factor[1]
    assert share(found, X)[:2].sum() > 0.95
    assert found.scores["learned"] > 0.95


def test_five_useful_features_among_three_hundred_of_noise(rng: np.random.Generator) -> None:
    X = rng.normal(size=(2000, 305))
    y = rng.integers(0, 3, 2000)
    X[:, :5] += 1.5 * np.array([[1, 0, -1, 1, 0], [-1, 1, 0, 0, 1], [0, -1, 1, -1, -1]])[y]
    found = learn(X, y)
    assert found.name == "learned"
    assert share(found, X)[:5].sum() > 0.4  # standardised, they have a thirtieth
    assert found.factor[:5].all()
    assert np.count_nonzero(found.factor) < 280


def test_units_that_differ_by_a_million_do_not_matter(
    square: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    X, y = square
    units = np.array([1e-6, 1, 1, 1e6, 1, 1e6, 1e-6, 1])
    found, plain = learn(X * units, y), learn(X, y)
    assert share(found, X * units)[:2].sum() > 0.95
    assert found.scores["learned"] == pytest.approx(plain.scores["learned"], abs=0.1)


def test_constant_features_have_factor_0_and_duplicates_count(
    square: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    X, y = square
    wide = np.column_stack([X, np.full(len(X), 1e9 + 0.1), X[:, 0], np.zeros(len(X))])
    found = learn(wide, y)
    assert found.factor[8] == found.factor[10] == 0
    part = share(found, wide)
    assert part[0] + part[9] > 0.15  # one of the two may be left out
    assert part[1] > 0.15
    assert part[[0, 1, 9]].sum() > 0.95
    assert np.isfinite(found.factor).all()


def test_a_feature_constant_in_all_rows_or_in_the_sample_is_left_out(
    square: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    X, y = square
    X = X.copy()
    X[:, 5] = 3.0
    high = X.max(axis=0)
    high[5] = 9.0  # other rows vary
    assert learn_metric(X, y, np.ones(len(X)), X.min(axis=0), high, CLASSES, 0).factor[5] == 0


def test_two_hundred_rows(rng: np.random.Generator) -> None:
    X = rng.uniform(0, 2, (200, 6))
    found = learn(X, checkers(X))
    assert share(found, X)[:2].sum() > 0.8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_few_distinct_rows_lose_no_feature(task: str, seed: int) -> None:
    """One-hot features of 50 categories: 50 distinct rows, of which a handful decides."""
    rng = np.random.default_rng(seed)
    X = np.eye(50)[rng.integers(0, 50, 3_000)]
    y = X[:, :25].sum(axis=1) if task == "classification" else X @ rng.normal(size=50)
    found = learn_metric(X, y, np.ones(3_000), X.min(axis=0), X.max(axis=0), task, seed)
    assert (found.factor[X.any(axis=0)] > 0).all()


@pytest.mark.parametrize("task", [CLASSES, VALUES])
@pytest.mark.parametrize("n", [1, 2, 5, 39])
def test_too_few_rows_are_standardised(task: str, n: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(n, 3))
    found = learn(X, np.arange(n) % 2, task)
    assert found.name == "standard"
    assert found.scores == {}
    assert np.isfinite(found.factor).all()


@pytest.mark.parametrize("task", [CLASSES, VALUES])
def test_a_target_or_features_that_do_not_vary_teach_nothing(task: str, rng: np.random.Generator) -> None:
    assert learn(rng.normal(size=(500, 3)), np.zeros(500), task).name == "standard"
    found = learn(np.ones((500, 3)), np.arange(500) % 2, task)
    np.testing.assert_array_equal(found.factor, 0)


def test_a_target_of_noise_is_survived(rng: np.random.Generator) -> None:
    found = learn(rng.normal(size=(500, 3)), rng.normal(size=500), VALUES)
    assert np.isfinite(found.factor).all()
    assert found.factor.any()


def test_weights_decide_what_is_learned(rng: np.random.Generator) -> None:
    """Half of the rows follow feature 0, half feature 1: the heavy half is heard."""
    X = rng.uniform(0, 4, (1500, 3))
    half = np.arange(1500) % 2
    y = (np.where(half == 0, X[:, 0], X[:, 1]) % 2 > 1).astype(int)
    for heavy in (0, 1):
        found = learn(X, y, weight=np.where(half == heavy, 1.0, 1e-3))
        assert share(found, X)[heavy] > 0.8


def test_the_unit_of_weights_does_not_matter(square: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    X, y = square
    weight = np.where(y == 0, 1.0, 2.0)
    one, other = learn(X, y, weight=weight), learn(X, y, weight=weight * 2.0**20)
    np.testing.assert_allclose(one.factor, other.factor, rtol=1e-3)


def test_features_of_a_rare_class_are_found_and_the_width_is_that_of_all_rows(
    rng: np.random.Generator,
) -> None:
    """32 neighbours hold one row of a class of 4 %, so that no feature seemed to matter."""
    X = rng.normal(size=(8_000, 6))
    y = (rng.random(8_000) < np.where((X[:, 0] > 0) ^ (X[:, 1] > 0), 0.07, 0.005)).astype(int)
    found = learn(X, y)
    assert found.name == "learned"
    assert share(found, X)[:2].sum() > 0.8
    Z = Scaling(found.shift, found.factor).exact(X)
    D = np.sort([((Z - z) ** 2).sum(axis=1) for z in Z[:200]], axis=1)
    assert np.median(D[:, 32]) == pytest.approx(learned_scaling.KERNEL_REACH[CLASSES], rel=0.2)


def test_rows_are_drawn_from_a_frequent_class_alone(rng: np.random.Generator) -> None:
    U = rng.normal(size=(1_000, 2)).astype(np.float32)
    y = np.where(np.arange(1_000) % 20 == 0, 1.0, np.where(np.arange(1_000) % 50 == 1, 2.0, 0.0))
    rows = LabelledRows(U, y, np.where(y > 0, 7.0, 1.0))
    found = balanced_rows(rows, 0)
    assert np.bincount(found.y.astype(int)).tolist() == [140, 50, 20]
    np.testing.assert_allclose(found.weight, 1.0)
    assert not np.array_equal(found.U, balanced_rows(rows, 1).U)
    even = replace(rows, y=(np.arange(1_000) % 9 == 0).astype(float))
    assert balanced_rows(even, 0) is even


def test_it_is_deterministic(square: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    X, y = square
    one, again = learn(X, y), learn(X, y)
    np.testing.assert_array_equal(one.factor, again.factor)
    np.testing.assert_array_equal(one.shift, again.shift)
    assert one.scores == again.scores


def test_a_class_of_one_row(square: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    X, y = square
    y = y.copy()
    y[7] = 2
    assert share(learn(X, y), X)[:2].sum() > 0.95


def test_copies_of_rows_do_not_count_as_neighbours(rng: np.random.Generator) -> None:
    """Nine copies of each row would foretell its class by any feature, noise as well."""
    X = rng.uniform(0, 4, (1500, 6))
    y = checkers(X)
    once, often = learn(X, y), learn(np.tile(X, (10, 1)), np.tile(y, 10))
    assert share(often, X)[:2].sum() > 0.95
    np.testing.assert_allclose(often.scores["learned"], once.scores["learned"], rtol=1e-3)


@pytest.mark.parametrize("task", [CLASSES, VALUES])
def test_copies_that_disagree_count_as_one_of_their_majority_or_mean(task: str) -> None:
    U = np.array([[1], [0], [1], [1], [-0.0]], np.float32)
    rows, _ = distinct_rows(U, np.array([3, 5, 4, 4, 5]), np.array([1.0, 2, 1, 1, 2]), task)
    np.testing.assert_array_equal(rows.U[:, 0], [1, 0])
    np.testing.assert_allclose(rows.weight, [6 / 7, 8 / 7])
    np.testing.assert_allclose(rows.y, [1, 2] if task == CLASSES else [-1, 1])


def test_outliers_do_not_hide_the_rest(rng: np.random.Generator) -> None:
    X = rng.uniform(0, 4, (1200, 6))
    y = (X[:, 0] % 2 > 1) + 2 * (X[:, 1] > 2)
    X[rng.choice(len(X), 10, replace=False), rng.integers(0, 6, 10)] = 1e4
    U = np.delete(X, np.flatnonzero((X == 1e4).any(axis=1)), axis=0)
    assert share(learn(X, y), U)[:2].sum() > 0.9


def test_no_candidate_is_better_than_the_one_kept(rng: np.random.Generator) -> None:
    for task in (CLASSES, VALUES):
        X = rng.normal(size=(400, 5))
        found = learn(X, (X[:, 0] > 0).astype(int) if task == CLASSES else X.sum(axis=1), task)
        assert found.scores[found.name] >= max(found.scores[name] for name in ("none", "standard", "minmax"))


def test_the_base_scaling_is_kept_where_learning_did_worse(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(learned_scaling, "learn", lambda pool, start, *_: np.ones_like(start) * [0, 0, 1])
    X = rng.uniform(0, 4, (1000, 3)) * [1, 1, 100]
    found = learn(X, checkers(X))
    assert found.name in ("standard", "minmax")
    assert found.scores["learned"] < found.scores[found.name]


def test_the_factor_sets_the_width(square: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    """In the median, the squared distance to the 32nd neighbour is KERNEL_REACH."""
    X, y = square
    found = learn(X, y)
    Z = Scaling(found.shift, found.factor).exact(X)
    D = np.sort([((Z - z) ** 2).sum(axis=1) for z in Z[:200]], axis=1)
    assert np.median(D[:, 32]) == pytest.approx(learned_scaling.KERNEL_REACH[CLASSES], rel=0.4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, bool])
def test_any_real_dtype_and_order(dtype: type, rng: np.random.Generator) -> None:
    X = rng.integers(0, 2, (400, 10)).astype(dtype)
    y = (X[:, 0] != X[:, 1]).astype(int)
    found = learn(np.asfortranarray(X), y)
    assert share(found, X)[:2].sum() > 0.5
    np.testing.assert_array_equal(found.factor, learn(X, y).factor)


def test_letter_is_classified_better_than_scaled() -> None:
    path = DATA / "letter.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as data:
        X, y = data["X"].astype(float), (data["y"] < 13).astype(int)
    with learning_as_shipped():
        found = learn(X[:5000], y[:5000])
    assert found.name == "learned"
    Z = Scaling(found.shift, found.factor).exact(X)
    test = slice(15000, 15500)
    assert hits(Z[:5000], Z[test], y[:5000], y[test]) >= hits(X[:5000], X[test], y[:5000], y[test])
    assert (
        found.scores["learned"] > max(found.scores[name] for name in ("none", "standard", "minmax")) + 0.005
    )


def test_a_scaling_is_sharpened_as_long_as_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that change sixteen times along one feature of six: it has to outweigh all others. Eight rounds
    would leave nothing to gain.
    """
    monkeypatch.setattr(learned_scaling, "ROUNDS", 6)
    X = np.random.default_rng(0).uniform(size=(4_000, 6))
    y = (np.floor(16 * X[:, 0]) % 2).astype(int)
    found = learn_metric(X, y, np.ones(4_000), X.min(axis=0), X.max(axis=0), CLASSES, 0, True)
    assert found.sharpened is not None
    assert found.sharpened.scores["learned"] > found.scores["learned"]
    first, farther = (m.factor[0] / m.factor[1:].max() for m in (found, found.sharpened))
    assert farther > first > 100
    plain = learn_metric(X, y, np.ones(4_000), X.min(axis=0), X.max(axis=0), CLASSES, 0)
    np.testing.assert_array_equal(plain.factor, found.factor)


def test_a_scaling_that_is_good_is_not_sharpened() -> None:
    X = np.random.default_rng(0).normal(size=(2_000, 3))
    y = (X[:, 0] > 0).astype(int)
    assert (
        learn_metric(X, y, np.ones(2_000), X.min(axis=0), X.max(axis=0), CLASSES, 0, True).sharpened is None
    )


def test_neighbours_that_are_copies_but_for_one_far_away_are_judged(rng: np.random.Generator) -> None:
    """Among features that most rows agree on, nearly all neighbours are at no distance and some beyond what
    single precision holds at the widths that suit the others (kddcup99, 1,500 rows).
    """
    U = np.zeros((200, 1), np.float32)
    U[:4] = 1e9
    pool = LabelledRows(U, (rng.random(200) < 0.5).astype(float), np.ones(200))
    found = judge(np.ones(1), pool.take(np.arange(0, 200, 7)), pool, "classification")
    assert np.isfinite(found.loss).all()
    assert np.isfinite(found.w).all()


def test_the_mean_of_metrics() -> None:
    """Squared factors are averaged; the name is that of the best scaling that was kept."""
    shift = np.zeros(2)
    one = Metric("learned", shift, np.array([3.0, 0.0]), {"none": -1.0, "standard": -0.7, "learned": -0.5})
    other = Metric("standard", shift + 1, np.array([1.0, 0.0]), {"none": -0.9, "standard": -0.5})
    third = replace(one, factor=np.array([5.0, 2.0]), sharpened=replace(one, factor=np.array([9.0, 0.0])))
    both = mean_metric([one, third], np.ones(2))
    np.testing.assert_allclose(both.factor, np.sqrt([17.0, 2.0]))
    assert both.sharpened is not None
    assert both.sharpened.sharpened is None
    np.testing.assert_allclose(both.sharpened.factor, np.sqrt([45.0, 0.0]))
    assert mean_metric([one, one, third], np.ones(2)).factor[1] > 0, "a part of the distance that counts"
    assert mean_metric([one, one, third], np.array([1.0, 100.0])).factor[1] == 0
    assert mean_metric([replace(one, factor=np.eye(3)[i]) for i in range(3)], np.ones(3)).factor.all()
    mixed = mean_metric([one, one, other], np.ones(2))
    assert (mixed.name, mixed.sharpened) == ("standard", None)
    np.testing.assert_array_equal(mixed.shift, other.shift)
    assert mixed.scores == pytest.approx({"none": -2.9 / 3, "standard": -1.9 / 3})


@pytest.mark.parametrize(("n", "repetitions"), [(60, 16), (5_000, 4)])
def test_the_fewer_rows_the_more_repetitions(
    n: int, repetitions: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, once = set(), learned_scaling._learn_once

    def counted(*given: object) -> object:
        seeds.add(given[4])
        return once(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(learned_scaling, "_learn_once", counted)
    X = rng.random((n, 40)).astype(np.float32)
    with learning_as_shipped():
        learn(X, (X[:, 0] > 0.5).astype(np.int64))
    assert len(seeds) == repetitions


def test_a_feature_near_the_limit_of_doubles_leaves_the_others_their_factors() -> None:
    unit = np.array([1e-300, 1.0])
    one = Metric("learned", np.zeros(2), np.array([2e-300, 3.0]), {"learned": 0.5})
    assert mean_metric([one, one], unit).factor[1] == 3.0


def test_factors_are_learned_without_many_copies_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the sample: its scaled rows, those that learn, and those of one neighbour search."""
    monkeypatch.setattr("dcpred_tasks.model.scaling.STRIP_NUMBERS", 2**14)
    monkeypatch.setattr("dcpred_tasks.training.learned_scaling.ROUNDS", 1)
    monkeypatch.setattr("dcpred_tasks.training.learned_scaling.ANCHORS", 50)
    monkeypatch.setattr("dcpred_tasks.training.learned_scaling.WIDE_BATCH", 50)
    monkeypatch.setattr("dcpred_tasks.training.learned_scaling.HELD_OUT_ROWS", 50)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3_000, 700)).astype(np.float32), rng.integers(0, 2, 3_000)
    limits = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    tracemalloc.start()
    learn_metric(X, y, np.ones(len(X)), *limits, CLASSES, 0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4.5 * X.nbytes


def test_the_metric_of_a_few_extreme_rows_is_not_that_of_all_others(rng: np.random.Generator) -> None:
    """Two features tell the class, and hold a few values 1e5 times as far out as all others: in units of
    their deviation, or of their range, nearly all rows are alike.
    """
    Z = rng.normal(size=(1500, 8))
    y = ((Z[:, 0] > 0) ^ (Z[:, 1] > 0)).astype(int)
    X = Z.copy()
    for f in (0, 1):
        X[rng.random(len(X)) < 0.004, f] *= 1e5
    found = learn(X, y)
    assert found.name == "learned"
    assert found.scores["learned"] > -0.3
    part = found.factor**2 * Z.var(axis=0)
    assert part[:2].min() > 10 * part[2:].max()


def test_outer_values_count_where_most_of_the_variance_does_not_lie_there(rng: np.random.Generator) -> None:
    X = np.column_stack([rng.normal(size=2000), rng.random(2000) < 0.002, np.full(2000, 3.0)])
    low, high = X.min(axis=0), X.max(axis=0)
    same = without_tails(X, np.ones(len(X)), low, high, None)
    assert same[0] is X
    np.testing.assert_array_equal(same[1:], (low, high))
    X[:3, 0] = 1e6, -1e6, np.nan
    coding = coded_columns(3, {}, np.zeros(3))
    rows, least, most = without_tails(X, np.ones(len(X)), X.min(axis=0), np.array([1e6, 1, 3]), coding)
    assert np.isnan(rows[2, 0])
    assert (rows[0, 0], most[0]) == (np.nanmax(rows[:, 0]),) * 2
    assert most[0] < 5
    assert least.tolist()[1:] == [0, 3]


def test_rows_that_coincide_leave_a_kernel_its_width() -> None:
    """In a feature of four whole numbers every row coincides with all of its neighbours."""
    rng = np.random.default_rng(0)
    U = rng.integers(0, 4, (1200, 1)).astype(np.float32)
    rows = LabelledRows(U, (U[:, 0] % 2).astype(float), np.ones(1200))
    found = judge(np.ones(1), rows.take(np.arange(200)), rows.take(np.arange(200, 1200)), CLASSES)
    assert found.neighbour_distance == pytest.approx(float(found.w[0]))


def test_factors_of_codes_leave_other_codes_within_reach(rng: np.random.Generator) -> None:
    """The code tells the class, and enough rows share it: neighbours would separate codes for good."""
    X = np.column_stack([rng.integers(0, 6, 1500), rng.normal(size=1500)])
    y = (X[:, 0] % 2).astype(int)
    coding = coded_columns(2, {0: np.arange(1, 6)})
    given = np.ones(1500), X.min(axis=0), X.max(axis=0), CLASSES, 0
    found = learn_metric(X, y, *given, coding=coding)
    assert 0 < found.factor[:5].max() <= (FARTHEST_CODES / 2) ** 0.5
