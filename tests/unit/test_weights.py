"""A row of weight w and w copies of it give the same, component by component; weights times a constant change
nothing, and rows of weight 0 are rows left out.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.scaling import BASES
from dcpred_tasks.training import leaf as leaves
from dcpred_tasks.training.categories import most_frequent
from dcpred_tasks.training.clusters import k_means
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.learned_scaling import without_tails
from dcpred_tasks.training.losses import residual_size, weighted_quantile, weighted_variance
from dcpred_tasks.training.partition import choose_columns, fit_map, learn_scaling, middle_values
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.solvers import local_machine
from dcpred_tasks.training.survey import equal_rows, survey_rows

N = 60
Weighted = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def weighted(seed: int, task: str = "classification", n: int = N) -> Weighted:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 2).astype(np.float32)
    X[: n // 6, 2] = 40.0  # A heavy tail.
    value = X[:, 0] + 0.3 * X[:, 1] + 0.5 * rng.normal(size=n)
    y = value if task == "regression" else (value > 0.2).astype(np.int64)
    return X, y, rng.integers(1, 4, n).astype(float)


def copies(rows: Weighted) -> Weighted:
    X, y, weight = rows
    number = np.repeat(np.arange(len(y)), weight.astype(int))
    return X[number], y[number], np.ones(len(number))


def both(seed: int, task: str = "classification", n: int = N) -> tuple[Weighted, Weighted]:
    rows = weighted(seed, task, n)
    return rows, copies(rows)


@given(st.integers(0, 10**6))
def test_quantiles_variances_and_scales(seed: int) -> None:
    one, other = (
        [
            *(weighted_quantile(x, w, level) for level in (0.01, 0.3, 0.5, 0.77)),
            weighted_variance(x, w),
            residual_size(x, w),
        ]
        for x, w in ((X[:, 0].astype(float), w) for X, _, w in both(seed))
    )
    assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_equal_rows_are_found(seed: int) -> None:
    X = np.random.default_rng(seed).integers(-1, 2, (300, 4)).astype(np.float32)
    X[::7] *= -1  # −0 is 0.
    first, group = equal_rows(X)
    distinct, index, which = np.unique(X + 0, axis=0, return_index=True, return_inverse=True)
    assert_array_equal(first, np.sort(index))
    assert_array_equal(X[first][group] + 0, X + 0)
    assert len(np.unique(np.stack([group, which]), axis=1).T) == len(distinct)
    assert len(equal_rows(np.zeros((5, 0), np.float32))[0]) == 1
    for numbers in equal_rows(X[first]):
        assert_array_equal(numbers, np.arange(len(first)))


@pytest.mark.parametrize("start", ["k-means++", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_centres(seed: int, start: Any) -> None:
    (X, _, w), (Z, _, ones) = both(seed)
    expected = k_means(X, 5, seed, w, start)
    assert_allclose(k_means(Z, 5, seed, ones, start), expected, rtol=1e-5, atol=1e-6)
    assert_allclose(k_means(Z, 5, seed, None, start), expected, rtol=1e-5, atol=1e-6)
    assert_array_equal(k_means(X, 5, seed, 4 * w, start), expected)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("scaling", [*BASES, "learned", "sharpened"])
@pytest.mark.parametrize("feature_map", ["none", "clip", "quantile"])
def test_scalings(task: str, scaling: str, feature_map: str) -> None:
    settings = make_settings({"task": task, "scaling": scaling, "feature_map": feature_map})
    found = []
    for X, y, w in (*both(1, task, 150), weighted(1, task, 150)):
        w = 5 * w if len(found) == 2 else w
        survey = survey_rows(X, y, w, 0, task)
        found.append(learn_scaling(X, y, w, survey, settings, 2))
    for other in found[1:]:
        assert_allclose(other.shift, found[0].shift, rtol=1e-6, atol=1e-9)
        assert_allclose(other.factor, found[0].factor, rtol=1e-6)
        assert_allclose(other(X), found[0](X), rtol=1e-5, atol=1e-6)


def test_parts_of_scalings() -> None:
    given_rows = both(2)
    found = []
    for X, y, w in given_rows:
        X = X.astype(float)
        X[X[:, 1] > 1, 1] = np.nan
        survey = survey_rows(X, y, w, 0, "classification")
        code = most_frequent(np.where(np.isnan(X[:, 1]), np.nan, np.rint(X[:, 0])), w)
        tails = without_tails(X, w, survey.minimum, survey.maximum, None)
        mapped = fit_map(X, w, survey, np.ones(3, bool), "quantile")
        assert mapped is not None
        found.append([middle_values(X, w, survey), code, *tails[1:], mapped.centre, mapped.rate, mapped.sd])
    for one, other in zip(*found, strict=True):
        assert_allclose(one, other, rtol=1e-9)


@given(st.integers(0, 10**6))
def test_columns_of_categories(seed: int) -> None:
    """The category of most weight has no column, and replaces a missing value."""
    rng, n = np.random.default_rng(seed), 400
    X, w = rng.integers(0, 5, (n, 2)).astype(float), rng.integers(1, 9, n).astype(float)
    X[rng.random((n, 2)) < 0.1] = np.nan
    y = rng.integers(0, 2, n)
    survey, settings = survey_rows(X, y, w, 0, "classification"), make_settings({"categorical": "0,1"})
    coding = choose_columns(X, y, w, survey, settings)
    Z, _, ones = copies((X, y, w))
    copied = choose_columns(Z, np.repeat(y, w.astype(int)), ones, survey, settings)
    assert coding is not None
    assert copied is not None
    assert_array_equal(coding.gap, copied.gap)
    assert_array_equal(coding.code, copied.code)


@pytest.mark.parametrize("seed", range(3))
def test_median_distances(seed: int) -> None:
    (X, _, w), (Z, _, ones) = both(seed)
    kernel = Kernel("rbf", 1.0)
    kept = leaves.merged(Z, ones)
    assert median_gamma(kernel, *kept) == median_gamma(kernel, X, w) == median_gamma(kernel, X, 3 * w)
    assert median_gamma(kernel, X, np.ones(len(X))) == median_gamma(kernel, X)


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_importance_of_landmarks(monkeypatch: pytest.MonkeyPatch, floor: float) -> None:
    """α of a local model holds the weight of its row, which counts once among the landmarks."""
    seen: list[Any] = []

    def noted(X: Any, k: int, seed: int, weight: Any, start: str) -> Any:
        seen.append(weight)
        return X[:k]

    monkeypatch.setattr(leaves, "k_means", noted)
    asked = {"task": "regression", "landmarks": 4, "landmark_floor": floor, "n_leaves": 1, "refine": "false"}
    settings = make_settings(asked)
    kernel = Kernel("rbf", 0.5)
    (X, y, w), (Z, t, ones) = both(3, "regression")
    fit_leaf(X, y, w, 1, Kernels(kernel, Kernel("rbf", 0.4)), settings, 0)
    rows = leaves.leaf_rows(Z, t, ones, None, 1, settings)
    alpha2 = (local_machine(rows, kernel, settings).dual ** 2).sum(axis=1)
    group = equal_rows(Z)[1]
    expected = np.bincount(group, (1 - floor) * alpha2 / alpha2.mean() + floor)
    assert_allclose(seen[0] / seen[0].sum(), expected / expected.sum(), rtol=1e-6)


LEAVES = [
    {"refine": "false", "products": 0},
    {"refine": "false", "products": 8, "C": 3.0},
    {"refine": "false", "gamma": "median", "landmarks": 3},
    {"refine": "true", "refine_steps": 5, "products": 4},
    {"refine": "true", "refine_steps": 5, "loss": "logistic"},
    {"leaf_model": "exact"},
]


@pytest.mark.parametrize("given_settings", LEAVES, ids=str)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_leaves(given_settings: dict[str, Any], task: str) -> None:
    if task == "regression":
        other = {"C": "ridge", "loss": "loss"}
        given_settings = {other.get(k, k): v if k != "loss" else "huber" for k, v in given_settings.items()}
    common = {} if "leaf_model" in given_settings else {"landmarks": 6}
    settings = make_settings({"task": task, "n_leaves": 1} | common | given_settings)
    kernels = Kernels(Kernel("rbf", 0.5), Kernel("rbf", 0.4))
    found = [fit_leaf(X, y, w, 1, kernels, settings, 0) for X, y, w in both(4, task)]
    for name in ("landmarks", "gamma", "beta", "intercept", "packed"):
        one, other = (getattr(leaf, name) for leaf in found)
        assert_allclose(other, one, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", [DCPredClassifier, DCPredRegressor])
@pytest.mark.parametrize("given_settings", [{}, {"scaling": "learned"}, {"refine": False}], ids=str)
def test_models(kind: Any, given_settings: dict[str, Any]) -> None:
    task = "regression" if kind is DCPredRegressor else "classification"
    (X, y, w), (Z, t, ones) = both(5, task, 80)
    rare = {name: value for name, value in given_settings.items() if name == "refine"}
    common = {"n_leaves": 1, "landmarks": 6, "gamma": "median", "scaling": "standard"} | given_settings
    settings = dcpred.Settings(calibrate=False, **rare)
    common = {name: value for name, value in common.items() if name not in rare}

    def values(X: Any, y: Any, w: Any) -> Any:
        model = kind(**common, random_state=0, settings=settings).fit(X, y, sample_weight=w)
        return (model.predict if task == "regression" else model.decision_function)(weighted(6)[0])

    expected = values(X, y, w)
    assert_allclose(values(Z, t, ones), expected, rtol=1e-4, atol=1e-5)
    left_out = values(np.vstack([X, X[:3] + 9]), np.append(y, y[:3]), np.append(w, np.zeros(3)))
    assert_array_equal(left_out, expected)
    if not rare:  # The paper's own model counts a row of weight 2 as two.
        for unit in (1e-6, 1e6):
            assert_allclose(values(X, y, unit * w), expected, rtol=1e-4, atol=1e-5)
