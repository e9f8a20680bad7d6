"""Maps of amounts: the maps, how they are fitted, and models with them."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor, explain
from dcpred.cli.main import main
from dcpred.reports.report import model_page
from dcpred.serving.cost import predict_cost
from dcpred.training.column_report import columns_in_words
from dcpred.training.policy import STANDARD
from dcpred.training.trials import Trials
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.errors import ModelFormatError, SettingsError
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.contributions import importances
from dcpred_tasks.model.feature_map import MOST_KNOTS, Clip, FeatureMap, Knots
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.model.scaling import BASES, Scaling
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.self_test import SelfTest
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.partition import MOST_ROWS, _steps, additive_map, fit_map, learn_scaling, with_map
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.models import random_model, random_rows

N, NAN = 900, np.nan
MAPS = ("clip", "quantile")
EVERY = (*MAPS, "additive")


def fitted(column: NDArray[Any], name: str) -> FeatureMap | None:
    """The map of a single feature."""
    X = column.reshape(-1, 1)
    survey = survey_rows(X, np.zeros(len(X)), None, 0, "regression")
    return fit_map(X, np.ones(len(X)), survey, np.ones(1, bool), name)


def mapped(column: NDArray[Any], name: str, values: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """What the map of a column makes of it, or of other values."""
    found = fitted(column, name)
    assert found is not None
    return found(np.asarray(column if values is None else values, float).reshape(-1, 1))[:, 0]


def scaling_of(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Scaling:
    settings = make_settings(values)
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    return learn_scaling(X, y, np.ones(len(X)), survey, settings)


def trained(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Model:
    few = {"n_leaves": 2, "landmarks": 8, "min_leaf_rows": 5, "calibrate": False}
    settings = make_settings(few | values)
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    classes = tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes)


@pytest.fixture(name="rows")
def rows_of_long_tails(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """What tells the class lies in the bulk of features 0 and 1; feature 2 is constant."""
    Z = rng.normal(size=(N, 2))
    y = (np.sin(2 * Z[:, 0]) + Z[:, 1] > 0).astype(np.int64)
    Z[rng.random(Z.shape) < 0.01] *= 1e5
    return np.column_stack([Z, np.full(N, 7.0)]), y


# -- the maps ------------------------------------------------------------------------------------------------


def test_smooth_clipping_is_that_of_its_paper() -> None:
    found = Clip(np.array([5.0]), np.array([0.5]), np.ones(1))
    u = np.array([-1e30, -3, 0, 0.01, 3, 1e30])
    s = found((5 + u / 0.5).reshape(-1, 1))[:, 0]
    np.testing.assert_allclose(s, np.clip(u, -1e9, 1e9) / np.sqrt(1 + (np.clip(u, -1e9, 1e9) / 3) ** 2), 1e-6)
    assert found.name == "clip"


def test_quantiles_are_mid_ranks_with_ties_merged_and_ends_held() -> None:
    column = np.array([0, 0, 0, 0, 1, 1, 2, 10], float)
    np.testing.assert_allclose(mapped(column, "quantile"), np.array([4, 4, 4, 4, 10, 10, 13, 15]) / 16)
    out = mapped(column, "quantile", np.array([-1e9, 0.5, 6, 1e9]))
    np.testing.assert_allclose(out, np.array([4, 7, 14, 15]) / 16)


@pytest.mark.parametrize("name", MAPS)
@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=40), st.integers(0, 9))
def test_a_map_keeps_the_order_and_is_finite(name: str, values: list[float], seed: int) -> None:
    column = np.concatenate([values, np.random.default_rng(seed).normal(size=30)])
    found = fitted(column, name)
    assert found is not None
    s = found(np.sort(column).reshape(-1, 1))[:, 0]
    assert np.isfinite(s).all()
    assert (np.diff(s) >= -1e-6).all()
    assert (s == s.astype(np.float32)).all()


@pytest.mark.parametrize("name", MAPS)
def test_what_is_not_finite_stays_so(name: str, rng: np.random.Generator) -> None:
    out = mapped(rng.normal(size=100), name, np.array([NAN, np.inf, -np.inf, 1e200]))
    np.testing.assert_array_equal(out, [NAN, np.inf, -np.inf, np.inf])


def test_the_unit_is_the_narrowest_range_that_is_not_zero() -> None:
    """As on shuttle: quartiles 0 and 0, and extremes of 13,000."""
    few = np.concatenate([np.zeros(960), np.linspace(-4, 4, 30), [13_000, -13_000] * 5])
    for column, width in ((np.arange(101.0), 50.0), (np.append(np.zeros(999), 8.0), 8.0)):
        found = fitted(column, "clip")
        assert found is not None
        assert found.rate[0] == 1 / width
    s = mapped(few, "clip", np.array([-13_000.0, -4, 0, 4, 13_000]))
    assert s[0] < -2.9
    assert s[4] > 2.9
    assert 0.5 < s[3] - s[1] < 6


def test_at_most_63_knots_and_the_extremes_among_them(rng: np.random.Generator) -> None:
    column = rng.normal(size=5_000)
    found = fitted(column, "quantile")
    assert found is not None
    assert found.at is not None
    assert found.knot is not None
    assert found.at.tolist() == [0, MOST_KNOTS]
    ends = found.centre[0] + found.knot[[0, -1]] / found.rate[0]
    np.testing.assert_allclose(ends, [column.min(), column.max()], rtol=1e-5)
    s = mapped(column, "quantile")
    np.testing.assert_allclose(np.sort(s), (np.arange(5_000) + 0.5) / 5_000, atol=0.01)


@pytest.mark.parametrize("name", EVERY)
def test_a_constant_feature_has_the_factor_0(name: str, rows: Any) -> None:
    X, y = rows
    for base in (*BASES, "learned"):
        scaling = scaling_of(X, y, feature_map=name, scaling=base)
        assert scaling.factor[2] == 0
        assert (scaling.factor[:2] > 0).all()
    constant = np.full((20, 2), 3.0)
    assert scaling_of(constant, np.arange(20) % 2, feature_map=name).coding is None


def test_means_of_the_target_are_never_mapped_by_quantiles(rng: np.random.Generator) -> None:
    """Two categories whose means differ from fold to fold stay two."""
    means = np.concatenate([0.3 + 0.001 * rng.random(50), 0.7 + 0.001 * rng.random(50)])
    survey = survey_rows(means[:, None], np.zeros(100), None, 0, "regression")
    found = fit_map(
        means[:, None], np.ones(len(means)), replace(survey, means=(0,)), np.ones(1, bool), "quantile"
    )
    assert found is not None
    s = found(means[:, None])[:, 0]
    assert np.ptp(s[:50]) < 0.01 * np.ptp(s)


ONE = np.ones(1)
AT, KNOT = np.array([0, 2]), np.array([0, 1], np.float32)


@pytest.mark.parametrize(
    "arrays",
    [
        (0 * ONE, 0 * ONE, ONE),
        (NAN * ONE, ONE, ONE),
        (ONE, -ONE, ONE),
        (ONE, ONE, -ONE),
        (ONE, np.ones(2), ONE),
        (ONE, ONE, ONE, AT, KNOT[::-1], KNOT),
        (ONE, ONE, ONE, AT, KNOT, KNOT[::-1]),
        (ONE, ONE, ONE, AT, np.array([0, np.inf], np.float32), KNOT),
        (ONE, ONE, ONE, np.array([0, 1]), KNOT, KNOT),
        (ONE, ONE, ONE, np.array([0, 0]), KNOT[:0], KNOT[:0]),
        (ONE, ONE, ONE, np.array([0, 64]), np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32)),
    ],
)
def test_what_is_no_map(arrays: Any) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"\bmap"):
        (Clip if len(arrays) == 3 else Knots)(*arrays)


def test_columns_of_a_map() -> None:
    """A coded feature is left alone, and a missing value is what stands for it, mapped."""
    found = Clip(np.array([2.0, 0, 0]), np.array([0.5, 0, 1]), np.ones(3))
    coding = coded_columns(3, {1: np.array([4])}, np.array([2.0, 1, 0]), [0], feature_map=found)
    assert coding is not None
    out = coding(np.array([[NAN, 4, 0], [8, NAN, NAN]]))
    np.testing.assert_allclose(out, [[0, 1, 0, 1], [3 / np.sqrt(2), 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(coding.raw(coding(np.array([[8.0, 4, -1]]))), [[8, 4, -1]], rtol=1e-5)
    with pytest.raises(ValueError, match="with a map are not its own, or are coded"):
        coded_columns(3, {0: np.array([4])}, feature_map=found)


# -- additive maps -------------------------------------------------------------------------------------------


def survey_of(X: NDArray[Any], y: NDArray[Any]) -> Any:
    task = "classification" if y.dtype.kind == "i" else "regression"
    return survey_rows(X, y, None, 0, task, "auto")


def additive(
    X: NDArray[Any], target: NDArray[Any], **values: Any
) -> tuple[FeatureMap | None, NDArray[np.float64]]:
    settings = make_settings(values)
    survey = survey_rows(X, target, None, 0, settings.task, settings.missing)
    return additive_map(X, target, np.ones(len(X)), survey, np.ones(X.shape[1], bool), settings)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_contributions_are_those_of_an_additive_target(rng: np.random.Generator, task: str) -> None:
    """A step, a parabola, and a feature that does not matter."""
    X = rng.normal(size=(4_000, 3))
    parts = np.column_stack([3.0 * (X[:, 0] > 0.5), X[:, 1] ** 2, 0 * X[:, 2]])
    parts -= parts.mean(axis=0)
    target = parts.sum(axis=1)
    y = (rng.logistic(size=len(X)) < 3 * target).astype(np.int64) if task == "classification" else target
    found, _ = additive(X, y, task=task)
    assert found is not None
    assert found.name == "additive"
    s = found(X)
    for j in (0, 1):
        assert np.corrcoef(s[:, j], parts[:, j])[0, 1] > 0.9
        assert s[:, j].mean() == pytest.approx(0, abs=0.02)
    assert np.corrcoef(s[:, 0] + s[:, 1], target)[0, 1] > 0.9
    if found.rate[2]:
        assert s[:, 2].std() < 0.1 * s[:, 1].std()
    assert found.at is not None
    assert np.diff(found.at).max() <= MOST_KNOTS
    assert found.sd @ found.sd == pytest.approx(1, abs=0.05)
    again = found(found.raw(s))  # another number with the same contribution
    np.testing.assert_allclose(again, s, atol=0.01)


def test_the_direction_of_several_classes_is_that_of_most_variance(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3_000, 2))
    y = np.where(X[:, 0] < -0.5, 0, np.where(X[:, 0] > 0.5, 2, 1))
    found, _ = additive(X, y)
    assert found is not None
    s = found(X)[:, 0]
    middle = [s[y == k].mean() for k in range(3)]
    assert abs(middle[2] - middle[0]) > 1
    assert min(middle[0], middle[2]) < middle[1] < max(middle[0], middle[2])


def test_a_missing_value_contributes_what_the_model_says(rng: np.random.Generator) -> None:
    """Only rows without a value are of class 1: the mean would hide them."""
    X = rng.normal(size=(2_000, 2))
    y = (rng.random(2_000) < np.where(X[:, 0] > 1, 0.9, 0.1)).astype(np.int64)
    absent = rng.random(2_000) < 0.3
    X[absent, 0] = np.nan
    y[absent] = 1
    settings = {"feature_map": "additive", "missing": "impute", "scaling": "none"}
    scaling = scaling_of(X, y, **settings)
    s = scaling(X)[:, 0]
    present = ~absent
    assert abs(s[absent][0] - s[present & (y == 1)].max()) < abs(s[absent][0] - s[present].mean())
    survey = survey_rows(X, y, None, 0, "classification", "impute")
    sentences = columns_in_words(scaling, survey, None)
    assert "they become a value of the feature that contributes as much" in sentences[0]


@pytest.mark.parametrize("kind", ["one class", "few rows of classes", "no row", "one value"])
def test_where_nothing_can_be_learned_features_are_not_mapped(kind: str, rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 2))
    y = {"one class": np.zeros(60, np.int64), "few rows of classes": np.arange(60) // 5}.get(kind)
    if kind == "one value":
        X = np.ones((60, 2))
    if kind == "no row":
        X = X[:3]
    y = np.arange(len(X)) % 2 if y is None else y
    assert scaling_of(X, y, feature_map="additive").coding is None


def test_a_class_of_few_rows_stops_no_additive_model(rng: np.random.Generator) -> None:
    X = rng.normal(size=(500, 2))
    y = (X[:, 0] > 0).astype(np.int64)
    y[:3] = 2
    found, _ = additive(X, y)
    assert found is not None
    assert found.rate[0] > 0


@pytest.mark.parametrize("n_rows", [20, 30, 40])
def test_few_rows_have_contributions_and_no_rounding(n_rows: int, rng: np.random.Generator) -> None:
    """What differs by rounding only is nothing, and not all."""
    X = rng.normal(size=(n_rows, 6))
    found, _ = additive(X, X[:, 0].copy(), task="regression")
    assert found is None or (found.name == "additive" and found.rate[0] > 0)
    model = DCPredRegressor(n_leaves=1, random_state=0, settings=dcpred.Settings(feature_map="additive"))
    assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.5
    assert additive(X, np.full(n_rows, 3.0), task="regression")[0] is None


def test_rows_of_alternating_classes_are_not_drawn_in_step(rng: np.random.Generator) -> None:
    n_rows = MOST_ROWS + 2
    y = np.arange(n_rows) % 2
    X = np.stack([y + rng.normal(size=n_rows), rng.normal(size=n_rows)], axis=1)
    coding = with_map(
        None, X, y, np.ones(n_rows), survey_of(X, y), make_settings({"feature_map": "additive"})
    )
    assert coding is not None


def test_equal_weights_are_no_weights(rng: np.random.Generator) -> None:
    """Quantiles with weights take half a minute on 500 features."""
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    given = survey_of(X, y), np.ones(2, bool), make_settings({"task": "regression"})
    one, other = (additive_map(X, y, np.full(300, weight), *given)[0] for weight in (1.0, 3.0))
    assert one is not None
    assert other is not None
    for name, values in one.arrays().items():
        np.testing.assert_array_equal(values, other.arrays()[name])
    failing = patch.object(HistGradientBoostingRegressor, "fit", autospec=True, side_effect=ZeroDivisionError)
    with failing as fit, pytest.raises(ZeroDivisionError):
        additive_map(X, y, np.ones(300), *given)
    assert fit.call_args.kwargs["sample_weight"] is None


@pytest.mark.filterwarnings("error")
def test_contributions_of_large_values_raise_no_warning(rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 2)) * [1e307, 1.0]
    found, _ = additive(X, (X[:, 0] > 0).astype(np.int64))
    assert found is not None


def test_a_curve_of_many_steps_keeps_the_largest() -> None:
    u = np.arange(200, dtype=np.float32)
    curve = np.sin(u / 10.0).round(2) + 5.0 * (u >= 120)
    knot, value = _steps(u, curve, np.ones(200, np.int64))
    assert len(knot) <= MOST_KNOTS
    assert (np.diff(knot) > 0).all()
    found = np.interp(u, knot, value)
    np.testing.assert_allclose(found, curve, atol=0.35)
    assert found[120] - found[119] > 4.5


def test_values_too_close_for_two_knots_share_a_contribution() -> None:
    u, curve = np.array([0, 1e-35, 1], np.float32), np.array([2.0, -5.0, 1.0])
    knot, value = _steps(u, curve, np.array([2, 1, 1]))
    np.testing.assert_array_equal(knot, u[[0, 2]])
    np.testing.assert_allclose(value, [-1 / 3, 1.0], rtol=1e-6)
    u, curve = np.array([0, 1e-35, 0.5, 1], np.float32), np.array([-1.0, 1.0, 1.0, 1.0])
    knot, value = _steps(u, curve, np.array([100, 20, 50, 50]))
    np.testing.assert_array_equal(knot, u[[0, 2, 3]])
    np.testing.assert_allclose(value, [-2 / 3, 1.0, 1.0], rtol=1e-6)


def test_wide_data_have_no_additive_candidates() -> None:
    """Gradient boosting would fit thousands of trees."""
    wide = SimpleNamespace(survey=SimpleNamespace(minimum=np.zeros(300)), n_classes=2, policy=STANDARD)
    few = SimpleNamespace(survey=SimpleNamespace(minimum=np.zeros(8)), n_classes=3, policy=STANDARD)
    values = {"feature_map": "additive"}
    assert not Trials.suits(cast(Trials, wide), values)
    assert Trials.suits(cast(Trials, few), values)
    assert Trials.suits(cast(Trials, wide), {"feature_map": "clip"})


# -- settings ------------------------------------------------------------------------------------------------


def test_a_map_that_there_is_not_is_refused() -> None:
    assert "feature_map" not in settings_dict(Settings())
    with pytest.raises(SettingsError, match=r"feature_map='cilp': .*did you mean 'clip'"):
        make_settings({"feature_map": "cilp"})


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("scaling", ["standard", "learned"])
def test_maps_find_what_long_tails_hide(name: str, scaling: str, rows: Any) -> None:
    X, y = rows
    found = {
        one: (scorer.score_rows(trained(X, y, scaling=scaling, feature_map=one), X)[0][:, 0] > 0) == y
        for one in ("none", name)
    }
    assert found[name].mean() > 0.93
    if scaling == "standard":
        assert found["none"].mean() < 0.8


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", EVERY)
def test_a_model_is_stored_with_its_map(rows: Any, tmp_path: Path, task: str, name: str) -> None:
    X, y = rows
    X[:50, 0] = NAN
    target = y.astype(float) if task == "regression" else y
    model = trained(X, target, task=task, feature_map=name)
    write_model(tmp_path / "m", model, settings_dict(make_settings({"feature_map": name})), {})
    version = json.loads((tmp_path / "m" / "model.json").read_text())["version"]
    follows = model.uncertainty is not None and model.uncertainty.scale is not None
    assert version == (11 if name == "additive" else 9 if follows else 8)
    stored = read_model(tmp_path / "m")
    X[0, 1] = np.inf
    for one, other in zip(score_rows(stored, X), score_rows(model, X), strict=True):
        assert one.tobytes() == other.tobytes()
    assert score_rows(stored, X)[1][0] == 2
    decision = scorer.score_rows(stored, X)[0]
    np.testing.assert_allclose(decision, score_rows(model, X)[0], rtol=1e-4, atol=1e-4)
    again = Scaling.of(json.loads(json.dumps(model.scaling.as_lists())))
    assert again.exact(X).tobytes() == model.scaling.exact(X).tobytes()
    assert open_artifact(tmp_path / "m").self_test() is not None
    reference = feature_reference(model.scaling, X[1:])  # Of raw features
    np.testing.assert_allclose(reference.mean[1], X[1:, 1].mean())
    how = {
        "clip": "by smooth clipping",
        "quantile": "by quantiles",
        "additive": "to contributions to an additive model",
    }[name]
    page = str(model_page(str(tmp_path / "m"), None, []))
    assert f"2 features are mapped {how}; means and deviations are raw." in page
    told = CliRunner().invoke(main, ["inspect", str(tmp_path / "m")]).output
    assert f"2 features are mapped {how}" in told


def test_a_model_without_a_map_is_what_it_was(rows: Any, tmp_path: Path) -> None:
    model = trained(*rows, scaling="standard")
    write_model(tmp_path / "m", model, settings_dict(Settings()), {})
    told = json.loads((tmp_path / "m" / "model.json").read_text())
    assert told["version"] == 2
    assert not [name for name in told["model"]["arrays"] if name.startswith("map_")]
    assert "feature_map" not in told["model"]["settings"]


def test_an_altered_map_is_refused(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(*rows, feature_map="quantile")
    coding = model.scaling.coding
    assert coding is not None
    assert isinstance(coding.map, Knots)
    coding.map.knot[:] = 0
    monkeypatch.setattr("dcpred_tasks.artifacts.model_artifact.make_self_test", lambda model: _NO_TEST)
    write_model(tmp_path / "m", model, {}, {})
    with pytest.raises(ModelFormatError, match=r"is damaged or was altered: .*knots of a map"):
        read_model(tmp_path / "m")


_NO_TEST = SelfTest(np.empty((0, 3)), np.empty((0, 1)), np.empty(0))


@pytest.mark.parametrize("scaling", ["clip", "clip gaps", "quantile", "additive", "additive coded gaps"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1"])
def test_the_engine_has_the_bits_of_the_definition(scaling: str, dtype: str) -> None:
    """Rows that the definition has mapped are to a model without a map what raw rows are to one with it."""
    for d in (1, 5, 21, 40):
        model = random_model(d, d=d, scaling=scaling, n_outputs=1 + d % 3)
        coding = model.scaling.coding
        assert coding is not None
        if coding.map is None:
            continue
        gap = None if coding.gap is None else coding.map(coding.gap[None])[0]
        bare = replace(model, scaling=replace(model.scaling, coding=replace(coding, gap=gap, map=None)))
        X = random_rows(model, 300, d, dtype, bad=0.1)
        with np.errstate(over="ignore"):
            rows = coding.map(X.astype(np.float64))
        found, expected = Engine(model).score(X), Engine(bare).score(rows)
        np.testing.assert_array_equal(found[1], expected[1])
        if not coding.is_coded.any():  # else rows in double precision are converted in it
            rows32 = rows.astype(np.float32)
            assert found[0].tobytes() == Engine(bare).score(rows32)[0].tobytes()


def test_importances_are_those_of_mapped_features(rows: Any) -> None:
    X, y = rows
    model = trained(X, y, n_leaves=1, feature_map="clip")
    rng = np.random.default_rng(0)
    one, other = (model.scaling.exact(X[rng.permutation(N)]) for _ in range(2))
    squares = ((one - other) ** 2).mean(axis=0)
    np.testing.assert_allclose(importances(model), squares / squares.sum(), atol=0.03)


@pytest.mark.parametrize("name", MAPS)
def test_a_row_costs_more_with_a_map(name: str) -> None:
    for d in (1, 20):
        plain = random_model(1, d=d)
        before = predict_cost(plain)
        found = fitted(np.arange(9.0), name)
        assert found is not None
        many = {key: np.repeat(getattr(found, key), d) for key in ("centre", "rate", "sd")}
        feature_map: FeatureMap = Clip(**many)
        if isinstance(found, Knots):
            many |= {"at": 9 * np.arange(d + 1)}
            feature_map = Knots(**many, **{key: np.tile(getattr(found, key), d) for key in ("knot", "value")})
        coding = coded_columns(d, {}, feature_map=feature_map)
        after = predict_cost(replace(plain, scaling=replace(plain.scaling, coding=coding)))
        assert after.convert > before.convert
        assert after.landmarks == before.landmarks


@pytest.mark.parametrize("name", EVERY)
def test_an_explanation_is_in_raw_units(name: str, rows: Any) -> None:
    X, y = rows
    model = DCPredRegressor(n_leaves=1, random_state=0, settings=dcpred.Settings(feature_map=name)).fit(
        X, X[:, 0].clip(-1, 1) + y
    )
    (told,) = explain(model, X, rows=[5])
    assert told.decision == pytest.approx(float(model.predict(X[5:6])[0]), abs=1e-4)
    for part in told.features:
        assert part.value == X[5, part.feature]
        assert part.of_landmark is not None
        assert np.isfinite(part.of_landmark)


def test_an_estimator_says_what_is_mapped(rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    DCPredClassifier(n_leaves=1, random_state=0, verbose=1, settings=dcpred.Settings(feature_map="clip")).fit(
        *rows
    )
    assert "2 features are mapped by smooth clipping" in capsys.readouterr().err
