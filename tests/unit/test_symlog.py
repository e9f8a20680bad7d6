"""Models of earlier versions with features on a symmetric logarithmic scale are read and scored as before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred import load_model
from dcpred.cli.main import main
from dcpred.cost import predict_cost
from dcpred.reports.report import model_page
from dcpred.tuning.search_result import found_before
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.contributions import importances, known_importances
from dcpred_tasks.model.feature_map import TOO_LARGE, Symlog, inverse_symlog, symlog
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.one_hot import Coding, coded_columns
from dcpred_tasks.model.scaling import BASES, Scaling, fit_scaling
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.self_test import SelfTest
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.models import random_model

N = 900
NAN = np.nan
SCALE = Symlog(np.array([2.0, 0]), np.array([0.5, 0]), np.array([1.0, 0]))


def trained(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Model:
    """A model as an earlier version trained it, with features 0 and 2 on the scale."""
    settings = make_settings({"n_leaves": 2, "landmarks": 8, "min_leaf_rows": 5, **values})
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    centre = np.median(X, axis=0)
    rate = np.array([1.0, 0, 1]) / np.median(np.abs(X - centre), axis=0)
    sd = symlog((X - centre) * rate).std(axis=0)
    coding = Coding(np.arange(3), np.full(3, NAN), symlog=Symlog(centre, rate, sd))
    scaling = fit_scaling("standard", X, np.ones(len(X)), survey.minimum, survey.maximum, coding)
    classes = tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes, scaling=scaling)


@pytest.fixture(name="rows")
def rows_of_long_tails(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features 0 and 2 are log-normal, and their logarithms separate the classes; feature 1 is normal."""
    Z = rng.normal(size=(N, 3))
    y = (np.sin(2 * Z[:, 0]) + Z[:, 1] + np.cos(2 * Z[:, 2]) + 0.2 * rng.normal(size=N) > 0).astype(np.int64)
    return np.column_stack([1_000 * np.exp(3 * Z[:, 0]), Z[:, 1], -np.exp(3 * Z[:, 2])]), y


# -- the scale -----------------------------------------------------------------------------------------------


def test_it_is_linear_to_one_and_then_one_more_for_each_doubling() -> None:
    u = np.array([0.0, 0.25, 1, 2, 3, 5, 7, 2.0**40 - 1])
    expected = [0, 0.25, 1, 1.5, 2, 2.5, 3, 40]
    np.testing.assert_array_equal(symlog(u), expected)
    np.testing.assert_array_equal(symlog(-u), -np.array(expected))
    assert np.signbit(symlog(np.array([-0.0])))[0]


def test_what_is_too_large_for_single_precision_is_infinite() -> None:
    found = symlog(np.array([NAN, np.inf, -np.inf, -1e300, TOO_LARGE, np.nextafter(TOO_LARGE, 0)]))
    np.testing.assert_array_equal(found[:5], [NAN, np.inf, -np.inf, -np.inf, np.inf])
    assert found[5] == pytest.approx(128)


@given(st.lists(st.floats(-3e38, 3e38), min_size=2, max_size=9))
def test_it_keeps_the_order_and_can_be_taken_back(values: list[float]) -> None:
    u = np.sort(np.array(values))
    s = symlog(u)
    assert (np.diff(s) >= 0).all()
    np.testing.assert_allclose(inverse_symlog(s), u, rtol=1e-13 * 130, atol=1e-15)


@pytest.mark.parametrize(
    "arrays",
    [
        ([0.0], [0.0], [0.0]),
        ([NAN], [1.0], [1.0]),
        ([0.0], [np.inf], [1.0]),
        ([0.0], [-1.0], [1.0]),
        ([0.0], [1.0], [-1.0]),
        ([0.0, 0.0], [1.0], [1.0]),
        ([[0.0]], [[1.0]], [[1.0]]),
    ],
)
def test_what_is_no_scale(arrays: Any) -> None:
    with pytest.raises(ValueError, match="logarithmic scale"):
        Symlog(*map(np.array, arrays))


def test_columns_of_a_scale() -> None:
    coding = Coding(np.arange(2), np.full(2, NAN), symlog=SCALE)
    X = np.array([[2.0, 5], [4, 6], [8, 7], [-12, 8]], np.float32)
    np.testing.assert_array_equal(coding(X), [[0, 5], [1, 6], [2, 7], [-3, 8]])
    np.testing.assert_array_equal(coding.raw(coding(X)), X)
    low, high = coding.limits(np.array([-12.0, 5]), np.array([8.0, 8]))
    assert (low.tolist(), high.tolist()) == ([-3, 5], [2, 8])
    for name in BASES:
        scaling = fit_scaling(name, X, np.ones(4), X.min(axis=0), X.max(axis=0), coding)
        np.testing.assert_allclose(scaling.raw(scaling.exact(X)), X, atol=1e-12)
        again = Scaling.of(json.loads(json.dumps(scaling.as_lists())))
        np.testing.assert_array_equal(again.exact(X), scaling.exact(X))
        reference = feature_reference(scaling, X)  # Of raw features
        np.testing.assert_allclose(reference.mean, X.mean(axis=0))
        np.testing.assert_allclose(reference.sd, X.std(axis=0))


def test_a_gap_and_a_code_beside_it() -> None:
    plain = coded_columns(3, {1: np.array([4])}, np.array([6.0, 1, 0]), [0])
    assert plain is not None
    coding = replace(plain, symlog=Symlog(*np.eye(3)[[2, 0, 0]]))
    np.testing.assert_array_equal(
        coding(np.array([[NAN, 4, 1], [-7, NAN, 2]])),
        [[np.log2(8) - 0.125 - 0.0625 * 2, 1, 1, 1], [-3, 0, 2, 0]],
    )
    with pytest.raises(ValueError, match="not its own, or are coded"):
        replace(plain, symlog=Symlog(*np.eye(3)[[2, 1, 1]]))
    with pytest.raises(ValueError, match="not its own, or are coded"):
        replace(plain, symlog=SCALE)


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_model_is_stored_with_its_scale(rows: Any, tmp_path: Path, task: str) -> None:
    X, y = rows
    model = trained(X, y.astype(float) if task == "regression" else y, task=task)
    write_model(tmp_path / "m", model, settings_dict(Settings(task)) | {"symlog": "0,2"}, {})
    follows = model.uncertainty is not None and model.uncertainty.scale is not None
    assert json.loads((tmp_path / "m" / "model.json").read_text())["version"] == (9 if follows else 6)
    stored = read_model(tmp_path / "m")
    X[0, 0] = 1e300
    for one, other in zip(score_rows(stored, X), score_rows(model, X), strict=True):
        assert one.tobytes() == other.tobytes()
    assert score_rows(stored, X)[1][0] == 2
    decision = scorer.score_rows(stored, X)[0]
    np.testing.assert_allclose(decision, score_rows(model, X)[0], rtol=1e-4, atol=1e-4)
    assert open_artifact(tmp_path / "m").self_test() is not None
    page = str(model_page(str(tmp_path / "m"), None, []))
    assert "2 features are mapped to a symmetric logarithmic scale; means and deviations are raw." in page


def test_an_altered_scale_is_refused(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(*rows)
    coding = model.scaling.coding
    assert coding is not None
    monkeypatch.setattr(Symlog, "__post_init__", lambda self: None)
    bad = Symlog(np.zeros(3), np.array([0.0, -1, 0]), np.zeros(3))
    object.__setattr__(coding, "symlog", bad)
    monkeypatch.setattr("dcpred_tasks.artifacts.model_artifact.make_self_test", _no_test)
    write_model(tmp_path / "m", model, {}, {})
    monkeypatch.undo()
    with pytest.raises(ModelFormatError, match=r"is damaged or was altered: .*logarithmic scale"):
        read_model(tmp_path / "m")


def _no_test(model: Model) -> SelfTest:
    return SelfTest(np.empty((0, model.n_features)), np.empty((0, 1)), np.empty(0))


def test_importances_are_those_of_columns(rows: Any) -> None:
    X, y = rows
    model = trained(X, y, n_leaves=1)
    rng = np.random.default_rng(0)
    one, other = (model.scaling.exact(X[rng.permutation(N)]) for _ in range(2))
    squares = ((one - other) ** 2).mean(axis=0)
    np.testing.assert_allclose(importances(model), squares / squares.sum(), atol=0.03)
    np.testing.assert_array_equal(known_importances(model), importances(model))


def test_a_row_costs_more_with_logarithms() -> None:
    for d in (1, 5, 20):
        scale = Symlog(np.zeros(d), np.ones(d), np.ones(d))
        plain = random_model(1, d=d)
        columns_alone = Coding(np.arange(d), np.full(d, NAN), symlog=scale)
        object.__setattr__(plain.scaling, "coding", None)
        before = predict_cost(plain)
        object.__setattr__(plain.scaling, "coding", columns_alone)
        after = predict_cost(plain)
        assert after.convert > before.convert
        assert (after.descend, after.landmarks, after.outputs) == (
            before.descend,
            before.landmarks,
            before.outputs,
        )


def test_a_model_that_names_the_setting_is_an_estimator_and_is_inspected(rows: Any, tmp_path: Path) -> None:
    X, y = rows
    model = trained(X, y)
    write_model(tmp_path / "m", model, settings_dict(Settings()) | {"symlog": "0,2"}, {})
    estimator = load_model(tmp_path / "m", estimator=True)
    np.testing.assert_array_equal(estimator.predict(X), load_model(tmp_path / "m").predict(X))
    assert "symlog" not in estimator.settings_
    assert estimator.fit(X, y).model_.scaling.coding is None
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "m")])
    assert shown.exit_code == 0, shown.output
    assert "2 features are mapped to a symmetric logarithmic scale" in " ".join(shown.output.split())
    found = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "m")]).stdout)
    assert found["feature_map"] == {"name": "symlog", "features": [0, 2], "knots": None}
    assert found["settings"]["symlog"] == "0,2"


def test_what_an_earlier_search_found_is_read_and_shown_with_its_model(rows: Any, tmp_path: Path) -> None:
    given = settings_dict(Settings()) | {"symlog": "0,2"}
    write_model(tmp_path / "m", trained(*rows), given, {})
    row = {"accuracy": 0.9, "standard_error": 0.01, "n_judged": 9, "cost_ratio": 4.0, "ns_per_row": 20.0}
    shape = {"within_budget": True, "scaling": "learned", "n_leaves": 2, "landmarks": 8, "products": 0}
    row |= shape | {"overlap": 1}
    found = {"settings": given, "chosen": row, "frontier": [row], "seconds": {}}
    kept = {"found": found, "scaling": trained(*rows).scaling.as_lists()}
    (tmp_path / "m.tuned.json").write_text(json.dumps(kept))
    again = found_before(kept, tmp_path / "m.tuned.json")
    assert make_settings(again["settings"]) == Settings()
    page = CliRunner().invoke(main, ["report", str(tmp_path / "m"), "--out", str(tmp_path / "page.html")])
    assert page.exit_code == 0, page.output
    assert "held-out rows" in (tmp_path / "page.html").read_text()
