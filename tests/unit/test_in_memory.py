"""Training in memory: better than a line, the same bits every time, and any size however small."""

import os
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, class_numbers, score_rows
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.partition import (
    MAX_AUTO_LEAVES,
    ROWS_PER_LEAF,
    balanced_factors,
    divide,
    n_outputs,
    row_weights,
)
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.survey import Survey, survey_rows
from dcpred_tasks.training.tree_fitting import flatten
from support import processes
from support.data import make_blobs

NO_FACTORS = np.empty(0)


def fit(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    weight: NDArray[np.float64] | None = None,
    n_jobs: int | None = None,
    **values: Any,
) -> Model:
    """y holds class numbers, or values where task is regression."""
    settings = make_settings(values)
    survey = survey_rows(X, y, weight, 0, settings.task)
    classes = tuple(survey.classes.tolist())
    weight = np.ones(len(X)) if weight is None else weight
    return train_rows(X, y, weight, NO_FACTORS, survey, settings, classes, n_jobs)


def accuracy(model: Model, X: NDArray[np.generic], y: NDArray[np.generic], *, early: bool = False) -> float:
    decision, status = score_rows(model, X, early=early)
    assert (status == 1).all()
    return float((class_numbers(decision) == y).mean())


def arrays(model: Model) -> dict[str, NDArray[np.generic]]:
    support = vars(model.support) if model.support else {}
    parts = (
        vars(model) | vars(model.tree) | vars(model.scaling) | {f"support {k}": v for k, v in support.items()}
    )
    return {name: a for name, a in parts.items() if isinstance(a, np.ndarray)}


def check_same_bits(one: Model, other: Model) -> None:
    a, b = arrays(one), arrays(other)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name
    assert one.kernel == other.kernel


# -- what it learns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 6])
def test_better_than_a_line_and_near_the_kernel_machine(n_classes: int) -> None:
    rows = make_blobs(3_000, n_features=6 if n_classes > 2 else 3, n_classes=n_classes, seed=3)
    X, y, new, truth = rows.X[:2000], rows.y[:2000], rows.X[2000:], rows.y[2000:]
    model = fit(X, y, n_leaves=8, keep_support_vectors=True)
    ours = accuracy(model, new, truth)
    linear = LogisticRegression(max_iter=1000).fit(X, y).score(new, truth)
    kernel = SVC(C=10).fit((X - X.mean(0)) / X.std(0), y).score((new - X.mean(0)) / X.std(0), truth)
    assert model.n_leaves > 1
    assert ours > linear + (0.2 if n_classes > 2 else 0.05)
    assert ours > kernel - 0.02
    assert accuracy(model, new, truth, early=True) > kernel - 0.02


def test_regression_is_better_than_a_line() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (3_000, 3))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 100
    model = fit(X[:2000], y[:2000], task="regression", n_leaves=8, landmarks=32)
    error = np.mean((score_rows(model, X[2000:])[0][:, 0] - y[2000:]) ** 2)
    line = np.mean((Ridge().fit(X[:2000], y[:2000]).predict(X[2000:]) - y[2000:]) ** 2)
    assert error < 0.1 * line


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_learns_a_ring(kernel: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 2))
    y = ((X**2).sum(axis=1) > 1.4).astype(int)
    assert accuracy(fit(X, y, kernel=kernel, n_leaves=1), X, y) > 0.95


def test_leaf_rows_are_where_the_training_rows_are_served() -> None:
    rows = make_blobs(3_000, n_features=4, n_classes=3, seed=5)
    model = fit(rows.X, rows.y, n_leaves=16, max_leaf_rows=250, min_leaf_rows=20)
    leaf = model.tree.descend(model.scaling(rows.X))
    np.testing.assert_array_equal(np.bincount(leaf, minlength=model.n_leaves), model.leaf_rows)
    assert model.leaf_rows.sum() == 3_000
    assert model.leaf_rows.max() <= 250
    assert model.leaf_rows.min() >= 20


def test_identical_rows_beyond_the_limit_are_thinned_and_counted() -> None:
    X = np.zeros((500, 2))
    X[400:] = np.random.default_rng(0).normal(5, 1, (100, 2))
    y = np.r_[np.arange(400) % 10 == 0, np.ones(100)].astype(int)
    model = fit(X, y, n_leaves=2, max_leaf_rows=50, min_leaf_rows=5)
    assert model.leaf_rows.sum() == 500
    assert model.leaf_rows.max() >= 400
    assert class_numbers(score_rows(model, np.array([[0.0, 0.0], [5.0, 5.0]]))[0]).tolist() == [0, 1]


def test_no_leaf_is_fitted_on_more_rows_than_the_limit() -> None:
    """In kernel ridge every row that is fitted is a support vector."""
    X, y = np.repeat([[0.0], [5.0]], [400, 40], axis=0), np.random.default_rng(0).normal(size=440)
    model = fit(
        X, y, task="regression", n_leaves=2, max_leaf_rows=50, min_leaf_rows=5, keep_support_vectors=True
    )
    assert model.support is not None
    assert np.diff(model.support.at).tolist() == [50, 40]
    assert model.leaf_rows.tolist() == [400, 40]


def test_class_factors_move_the_border() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(600, 2)), (rng.random(600) < 0.15).astype(int)
    X[y == 1] += 1.0
    survey = survey_rows(X, y, None, 0, "classification")
    found = []
    for factors in (NO_FACTORS, balanced_factors(survey)):
        model = train_rows(X, y, np.ones(600), factors, survey, make_settings({"C": 0.1}), (0, 1))
        found.append(class_numbers(score_rows(model, X)[0]).mean())
    assert found[1] > 2 * found[0]


def test_sample_weights_count_as_repeated_rows() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    times = rng.integers(1, 4, 60)
    same: dict[str, Any] = {"n_leaves": 1, "landmarks": 300, "calibrate": False}  # it holds out other rows
    weighted = fit(X, y, times.astype(float), **same)
    repeated = fit(np.repeat(X, times, axis=0), np.repeat(y, times), **same)
    np.testing.assert_allclose(score_rows(weighted, X)[0], score_rows(repeated, X)[0], atol=1e-3)


# -- the same bits -------------------------------------------------------------------------------------------

DETERMINISM: dict[str, Any] = {
    "n_leaves": 4,
    "landmarks": 12,
    "keep_support_vectors": True,
    "max_leaf_rows": 200,
}
OVERLAP: dict[str, Any] = DETERMINISM | {"overlap": 2, "gamma": "median", "scaling": "learned"}


@pytest.mark.parametrize(
    ("task", "values"), [("classification", OVERLAP), ("regression", DETERMINISM)], ids=["overlap", "plain"]
)
def test_twice_and_with_two_jobs(task: str, values: dict[str, Any]) -> None:
    rows = make_blobs(400, n_features=4, n_classes=3, seed=7)
    y = rows.y if task == "classification" else rows.X[:, 0].astype(float) ** 2
    before = rows.X.copy()
    one, two, jobs = (fit(rows.X, y, n_jobs=n, task=task, **values) for n in (None, None, 2))
    check_same_bits(one, two)
    check_same_bits(one, jobs)
    np.testing.assert_array_equal(rows.X, before)
    other = fit(rows.X, y, task=task, seed=1, **values)
    assert not np.array_equal(other.tree.centres, one.tree.centres)


def test_memory_order_and_dtype_of_the_input_do_not_matter() -> None:
    rows = make_blobs(800, n_features=4, n_classes=2, seed=8)
    model = fit(rows.X, rows.y, **DETERMINISM)
    check_same_bits(fit(np.asfortranarray(rows.X), rows.y, **DETERMINISM), model)
    check_same_bits(fit(rows.X.astype(np.float64), rows.y.astype(np.int8), **DETERMINISM), model)
    check_same_bits(fit(rows.X.astype(">f4"), rows.y, **DETERMINISM), model)


def test_threads_of_openmp_do_not_matter() -> None:
    """A limit on OpenMP holds for the thread that sets it, and leaves are fitted by others; k-means sums in
    another order with more threads. In a child process, since OpenMP reads its variable once.
    """
    script = textwrap.dedent("""
        import hashlib, numpy as np
        from dcpred_tasks.training.settings import make_settings
        from dcpred_tasks.training.survey import survey_rows
        from dcpred_tasks.training.in_memory import train_rows
        X = np.random.default_rng(0).normal(size=(1500, 6))
        y = np.sin(X[:, 0])
        settings = make_settings({"task": "regression", "n_leaves": 2, "landmark_floor": 1.0, "products": 4})
        survey = survey_rows(X, y, None, 0, "regression")
        for n_jobs in (1, 2):
            model = train_rows(X, y, np.ones(1500), np.empty(0), survey, settings, (), n_jobs)
            print(hashlib.md5(model.landmarks.tobytes() + model.beta.weights.tobytes()).hexdigest())
    """)
    found = []
    for threads in ("1", "2"):
        limits = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = processes.run([sys.executable, "-c", script], env=os.environ | limits)
        assert done.returncode == 0, done.stderr
        found += done.stdout.split()
    assert len(found) == 4
    assert len(set(found)) == 1


# -- small, flat and odd -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["none", "standard", "minmax", "learned"])
@pytest.mark.parametrize("n", [2, 3, 5, 17])
@pytest.mark.parametrize("n_features", [1, 4])
def test_tiny_data(scaling: str, n: int, n_features: int) -> None:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, n_features))
    y = np.arange(n) % 2
    model = fit(
        X, y, scaling=scaling, gamma=2e4, C=1e6, n_leaves=64, min_leaf_rows=1, keep_support_vectors=True
    )
    assert accuracy(model, X, y) == accuracy(model, X, y, early=True) == 1.0
    values = rng.normal(size=n)
    model = fit(X, values, scaling=scaling, gamma=2e4, task="regression", ridge=1e-6, landmarks=20)
    np.testing.assert_allclose(score_rows(model, X)[0][:, 0], values, atol=1e-2)


def test_one_row() -> None:
    model = fit(np.array([[1.0, 2.0]]), np.array([3.5]), task="regression")
    assert score_rows(model, np.array([[9.0, 9.0]]))[0].tolist() == [[3.5]]


def test_as_many_classes_as_rows() -> None:
    X = np.arange(5.0)[:, None]
    assert accuracy(fit(X, np.arange(5), gamma=5.0), X, np.arange(5)) == 1.0


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("scaling", ["none", "standard", "minmax", "learned"])
def test_constant_features_give_the_majority(value: float, scaling: str) -> None:
    X, y = np.full((50, 3), value), (np.arange(50) < 35).astype(int)
    model = fit(X, y, scaling=scaling)
    assert model.n_leaves == 1
    assert class_numbers(score_rows(model, X)[0]).all()


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9 + 0.1])
def test_a_constant_feature_beside_others_adds_nothing(value: float) -> None:
    """Not in training, and not when a new row has a slightly different value there."""
    rows = make_blobs(500, n_features=3, n_classes=2, seed=1)
    X = rows.X.astype(float)
    with_constant = np.column_stack([X, np.full(500, value)])
    for scaling in ("standard", "minmax"):
        model = fit(with_constant, rows.y, scaling=scaling, n_leaves=1)
        nudged = with_constant + np.array([0, 0, 0, np.spacing(value) * 8])
        np.testing.assert_allclose(
            score_rows(model, nudged)[0], score_rows(model, with_constant)[0], atol=1e-4
        )


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_any_real_dtype(dtype: type) -> None:
    X = np.random.default_rng(0).integers(0, 2, (200, 5)).astype(dtype)
    y = (X[:, 0].astype(bool) ^ X[:, 1].astype(bool)).astype(int)
    assert accuracy(fit(X, y), X, y) == 1.0


@pytest.mark.parametrize("value", [1e39, 1e300])
def test_values_too_large_for_single_precision_are_named(value: float) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[3, 1] = value
    with pytest.raises(
        DataError, match=r"column 1 of X: its range from .* to 1e\+.*Set scaling to standard or minmax"
    ):
        fit(X, np.arange(20) % 2, scaling="none")
    for scaling in ("standard", "minmax"):
        fit(X, np.arange(20) % 2, scaling=scaling)


# -- decisions shared with training on a cluster -------------------------------------------------------------


def survey_of(n: int) -> Survey:
    return Survey(
        n_rows=n,
        n_used=n,
        minimum=np.full(2, -3.0),
        maximum=np.full(2, 3.0),
        gaps=np.zeros(2, np.int64),
        classes=np.array([0, 1]),
        class_weights=np.array([n / 2, n / 2]),
    )


def test_the_number_of_leaves_follows_the_rows() -> None:
    sample, unscaled = np.random.default_rng(0).normal(size=(40_000, 2)), Scaling(np.zeros(2), np.ones(2))

    def leaves(n_rows: int, **settings: int) -> int:
        found = divide(unscaled, sample, np.ones(40_000), survey_of(n_rows), Settings(**settings))
        return flatten(found.root).n_leaves

    for n, expected in ((ROWS_PER_LEAF - 1, 1), (4 * ROWS_PER_LEAF, 4), (10**12, MAX_AUTO_LEAVES)):
        assert 0.8 * expected <= leaves(n, min_leaf_rows=1) <= expected
    assert leaves(10**6, n_leaves=5) == 4


def test_gamma_is_scikit_learns_scale_in_scaled_features() -> None:
    X = np.random.default_rng(0).normal(3, 2, (500, 4))
    y = np.arange(500) % 2
    for scaling, scaled in (
        ("none", X),
        ("standard", (X - X.mean(0)) / X.std(0)),
        ("minmax", (X - X.min(0)) / np.ptp(X, 0)),
    ):
        model = fit(X, y, scaling=scaling, n_leaves=1, landmarks=2, products=0)
        assert model.kernel.gamma == pytest.approx(1 / (4 * scaled.var()), rel=1e-5)
        assert model.local_kernel == model.kernel
    with_zeros = np.column_stack([X, np.zeros((500, 2))])
    assert fit(with_zeros, y, scaling="none", n_leaves=1).kernel.gamma == pytest.approx(
        1 / (6 * with_zeros.var()), rel=1e-5
    )
    assert fit(X, y, scaling="learned", n_leaves=1).kernel.gamma == 1
    model = fit(X, y, gamma=0.7, compact_gamma=0.2, n_leaves=1)
    assert (model.local_kernel.gamma, model.kernel.gamma) == (0.7, 0.2)


def test_n_outputs() -> None:
    assert [n_outputs(n) for n in (0, 2, 3, 10)] == [1, 1, 3, 10]


def test_row_weights_are_sample_weight_times_class_weight() -> None:
    target = np.array([0, 1, 1])
    factors = np.array([2.0, 5.0])
    assert row_weights(target, None, NO_FACTORS).tolist() == [1, 1, 1]
    assert row_weights(target, np.array([1, 2, 3]), NO_FACTORS).tolist() == [1, 2, 3]
    assert row_weights(target.astype(float), np.array([1, 2, 3]), factors).tolist() == [2, 10, 15]


def test_balanced_factors_are_scikit_learns() -> None:
    survey = survey_rows(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 2]), None, 0, "classification")
    np.testing.assert_allclose(balanced_factors(survey), [6 / 9, 1.0, 2.0])
