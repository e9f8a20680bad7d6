"""Probabilities, intervals, novelty and importances of estimators and served models, beside scikit-learn's
tools.
"""

import math
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, Settings, load_model
from dcpred_tasks.errors import DataError, SettingsError
from support.data import Classes, make_blobs
from support.searches import few_candidates
from support.setting_words import classifier_with, regressor_with

SMALL: dict[str, Any] = {
    "n_leaves": 2,
    "landmarks": 4,
    "products": 0,
    "refine_steps": 10,
    "random_state": 0,
}


@pytest.fixture(scope="module", params=[2, 3])
def data(request: pytest.FixtureRequest) -> Classes:
    return make_blobs(500, n_features=4, n_classes=request.param, seed=2)


@pytest.fixture(scope="module")
def fitted(data: Classes) -> DCPredClassifier:
    return classifier_with(**SMALL).fit(data.X[:300], np.array(["ash", "oak", "yew"])[data.y[:300]])


@pytest.fixture(scope="module")
def regressor(data: Classes) -> DCPredRegressor:
    return regressor_with(**SMALL).fit(data.X[:300], data.X[:300, 0] * data.X[:300, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sure")


def served(estimator: Any, folder: Path) -> ServedModel:
    path = folder / f"{len(list(folder.iterdir()))}"
    estimator.save(path)
    return load_model(path)


def test_the_label_is_the_likeliest_class(data: Classes, fitted: DCPredClassifier, folder: Path) -> None:
    p = fitted.predict_proba(data.X)
    assert (p.shape, p.dtype) == ((500, len(fitted.classes_)), np.float64)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(data.X))
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(data.X)), p)
    np.testing.assert_array_equal(served(fitted, folder).predict_proba(data.X), p)


def test_lazy_and_sparse_rows_have_the_same(
    data: Classes, fitted: DCPredClassifier, regressor: DCPredRegressor, folder: Path
) -> None:
    X = data.X[:60].copy()
    lazy, sparse = da.from_array(X, chunks=(25, 2)), sp.csr_matrix(X)
    asked = [
        (fitted, "predict_proba"),
        (fitted, "predict_log_proba"),
        (fitted, "novelty"),
        (regressor, "predict_interval"),
        (regressor, "novelty"),
    ]
    for model, name in asked:
        right, found = getattr(model, name)(X), getattr(model, name)(lazy)
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        np.testing.assert_array_equal(found.compute(), right)
        np.testing.assert_array_equal(getattr(model, name)(sparse), right)
        if name != "predict_log_proba":
            np.testing.assert_array_equal(getattr(served(model, folder), name)(X), right)
            np.testing.assert_array_equal(getattr(served(model, folder), name)(sparse), right)


def test_a_row_without_a_score_is_named_or_lazily_has_none(
    data: Classes, fitted: DCPredClassifier, regressor: DCPredRegressor, folder: Path
) -> None:
    X = data.X[:20].copy()
    X[7, 1] = np.nan
    for model, name in ((fitted, "predict_proba"), (fitted, "novelty"), (regressor, "predict_interval")):
        for one in (model, served(model, folder)):
            with pytest.raises(DataError, match=r"Cannot predict row 7 of X"):
                getattr(one, name)(X)
        found = getattr(model, name)(da.from_array(X, chunks=(5, 4))).compute().reshape(20, -1)
        np.testing.assert_array_equal(np.isnan(found).any(axis=1), np.arange(20) == 7)
        assert np.isnan(found[7]).all()


def test_intervals_are_about_predictions_and_narrower_for_a_larger_alpha(
    data: Classes, regressor: DCPredRegressor
) -> None:
    wide, narrow = (regressor.predict_interval(data.X, alpha=alpha) for alpha in (0.05, 0.4))
    np.testing.assert_allclose(wide.mean(axis=1), regressor.predict(data.X), rtol=1e-9, atol=1e-12)
    assert (wide[:, 0] < narrow[:, 0]).all()
    assert (narrow[:, 1] < wide[:, 1]).all()
    with pytest.raises(SettingsError, match=r"alpha 0.9: it is the share of rows"):
        regressor.predict_interval(data.X, alpha=0.9)


def test_without_calibrate_there_is_nothing_of_it(data: Classes, folder: Path) -> None:
    plain = classifier_with(**SMALL, calibrate=False).fit(data.X, data.y)
    assert not hasattr(plain, "predict_proba")
    assert not hasattr(plain, "predict_log_proba")
    assert not hasattr(DCPredRegressor(settings=Settings(calibrate=False)), "predict_interval")
    for ask in (plain.novelty, served(plain, folder).novelty, served(plain, folder).predict_proba):
        with pytest.raises(DataError, match=r"trained with calibrate=false, or by .*\. Train it again"):
            ask(data.X)
    assert plain.distance_shares_.sum() == pytest.approx(1)


def test_tools_of_scikit_learn_take_them(data: Classes) -> None:
    model = classifier_with(**SMALL)
    search = GridSearchCV(model, {"landmarks": [2, 6]}, scoring="neg_log_loss", cv=2).fit(data.X, data.y)
    assert math.isfinite(search.best_score_)
    assert search.best_score_ > -math.log(len(search.classes_))
    again = CalibratedClassifierCV(model, cv=2).fit(data.X, data.y)
    np.testing.assert_allclose(again.predict_proba(data.X).sum(axis=1), 1)
    stack = StackingClassifier(
        [("a", model), ("b", LogisticRegression())], LogisticRegression(), stack_method="predict_proba", cv=2
    ).fit(data.X, data.y)
    assert stack.score(data.X, data.y) > 0.6


def test_a_budget_keeps_them(data: Classes) -> None:
    """The model is then trained on numbers of classes, and named afterwards."""
    names = np.array(["ash", "oak", "yew"])[data.y]
    with few_candidates():
        model = DCPredClassifier(budget="40x", random_state=0).fit(data.X[:200], names[:200])
    p = model.predict_proba(data.X[200:])
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(data.X[200:]))


def test_a_feature_of_noise_matters_little_and_one_without_variance_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)) * [1.0, 100.0, 0.0]
    fitted = DCPredClassifier(random_state=0, scaling="learned", n_leaves=1).fit(X, (X[:, 0] > 0).astype(int))
    for shares in (fitted.distance_shares_, fitted.feature_importances_ / fitted.feature_importances_.sum()):
        assert shares.sum() == pytest.approx(1)
        assert shares[0] > 0.9
        assert shares[2] == 0


def test_columns_of_a_frame_have_one_importance_each_whatever_they_became(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kind, day = rng.choice(["ash", "oak", "yew"], 400), rng.integers(0, 1_000, 400)
    frame = pd.DataFrame(
        {
            "kind": kind,
            "size": rng.normal(size=400),
            "day": np.datetime64("2020-01-01") + day.astype("timedelta64[D]"),
        }
    )
    fitted = classifier_with(**SMALL, scaling="standard").fit(frame, (kind == "oak") ^ (frame["size"] > 0))
    for shares in (fitted.distance_shares_, fitted.feature_importances_):
        assert shares.shape == fitted.feature_names_in_.shape == (3,)
        assert (shares > 0).all()
    assert fitted.distance_shares_.sum() == pytest.approx(1)
    assert fitted.model_.n_features > 3
    p, new = fitted.predict_proba(frame), fitted.novelty(frame)
    one = served(fitted, folder)
    np.testing.assert_array_equal(one.predict_proba(frame), p)
    np.testing.assert_array_equal(one.novelty(frame), new)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(frame))
