"""Widths of intervals that follow the prediction, and one-sided quantiles: fitted, stored, scored."""

import json
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner

import dcpred
from dcpred import DCPredRegressor
from dcpred.cli import main
from dcpred.reports.evaluation_page import evaluation_page
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.evaluation.measures import IntervalMeasures
from dcpred_tasks.model import predictive_outputs
from dcpred_tasks.model.uncertainty import Intervals
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.training.held_out import HeldOut, constant_scale, fit_intervals, fit_scale
from support.data import make_group
from support.models import random_model
from support.setting_words import regressor_with
from support.sureness import sure

SETTINGS: dict[str, object] = {"landmarks": 8, "products": 8, "refine_steps": 20}


def amounts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose noise is a share of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.exp(X[:, 0] + 0.4 * np.sin(2 * X[:, 1]) + 0.4 * rng.normal(size=n))


def quarters(inside: np.ndarray, value: np.ndarray) -> list[float]:
    return [inside[part].mean() for part in np.array_split(np.argsort(value, kind="stable"), 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained by tasks, and rows of which one has no score."""
    folder = tmp_path_factory.mktemp("scale")
    X, y = amounts(2_000, 0)
    make_group(folder / "known.zarr", X, y)
    X, y = amounts(600, 1)
    make_group(folder / "labelled.zarr", X, y)
    X[5, 1] = np.nan
    make_group(folder / "new.zarr", X, chunk_rows=200)
    settings = SETTINGS | {"task": "regression", "n_leaves": 2}
    known = f"{folder}/known.zarr"
    train(known, folder / "model", settings=settings)
    return folder


# -- fitted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [1, 4])
def test_each_quarter_of_the_predictions_has_its_share_inside(leaves: int) -> None:
    """In the mean of six models: their rows are a sample, too."""
    draws = []
    for seed in range(0, 12, 2):
        model = regressor_with(n_leaves=leaves, random_state=0, **SETTINGS).fit(*amounts(2_500, seed))
        X, y = amounts(5_000, seed + 1)
        assert model.model_.uncertainty.scale is not None
        for alpha in (0.1, 0.3):
            low, high = model.predict_interval(X, alpha).T
            draws.append((alpha, quarters((low <= y) & (y <= high), model.predict(X))))
        q = model.predict_quantile(X, [0.05, 0.5, 0.95])
        draws.append((0.0, (y[:, None] <= q).mean(axis=0)))
    for alpha in (0.1, 0.3):
        shares = np.mean([values for a, values in draws if a == alpha], axis=0)
        assert min(shares) > 1 - alpha - 0.08
        assert max(shares) < 1 - alpha + 0.08
    below = np.mean([values for a, values in draws if not a], axis=0)
    np.testing.assert_allclose(below, [0.05, 0.5, 0.95], atol=0.06)
    assert (np.diff(q, axis=1) > 0).all()
    np.testing.assert_array_equal(model.predict_quantile(X, 0.95), q[:, 2])
    for q_given in ([], [[0.05, 0.95]]):
        with pytest.raises(SettingsError, match=r"^Cannot use q=.* Pass a share from 0\.01 to 0\.99"):
            model.predict_quantile(X, q_given)


def test_too_few_rows_for_intervals_and_quantiles_say_how_many_it_takes() -> None:
    X, y = amounts(100, 0)

    def fitted(n: int) -> DCPredRegressor:
        return regressor_with(n_leaves=1, random_state=0, **SETTINGS).fit(X[:n], y[:n])

    with pytest.raises(SettingsError, match="Train it on 40 rows or more"):
        fitted(39).predict_interval(X)
    assert fitted(40).predict_interval(X).shape == (100, 2)
    with pytest.raises(SettingsError, match=r"q01.* Train it on 100 rows or more"):
        fitted(60).predict_quantile(X, 0.01)
    assert fitted(100).predict_quantile(X, 0.01).shape == (100,)


def test_the_size_of_residuals_is_found_on_the_functions_of_a_leaf() -> None:
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(3_000, 20))
    truth = 0.8 * basis[:, 0] - 0.4 * basis[:, 1]
    residual = np.abs(rng.normal(size=3_000)) * np.exp(truth)
    scale = fit_scale(basis, residual / np.sqrt(np.mean(residual**2)), np.ones(3_000))
    found = scale(basis)
    inside = (found > scale.bounds[0]) & (found < scale.bounds[1])
    assert np.std((found - truth)[inside]) < 0.1
    even = fit_scale(basis, np.abs(rng.normal(size=3_000)), np.ones(3_000))
    assert even(basis).std() < 0.05


def test_a_residual_of_a_row_that_bends_the_leaf_to_itself_counts_for_more() -> None:
    """Of rows that alone have a function, which the leaf fits by that, half a residual is left."""
    rng = np.random.default_rng(0)
    basis = np.zeros((400, 101))
    basis[:200, 0] = 1.0
    basis[np.arange(200), 1 + np.arange(200) // 2] = 1.0
    residual = np.abs(rng.normal(size=400)) * np.where(np.arange(400) < 200, 0.5, 1.0)
    log_scale = fit_scale(basis, residual, np.ones(400))(basis)
    assert abs(log_scale[:200].mean() - log_scale[200:].mean()) < 0.3


@pytest.mark.parametrize("basis", [np.empty((50, 0)), np.ones((50, 3)), np.ones((2, 3))])
def test_without_functions_that_vary_the_size_is_one(basis: np.ndarray) -> None:
    for residual in (np.zeros(len(basis)), np.linspace(0.5, 1.5, len(basis))):
        found = fit_scale(basis, residual, np.ones(len(basis)))
        assert np.ptp(found(basis)) == 0
    assert not constant_scale(3)(np.ones((4, 3))).any()


def held(log_scale: np.ndarray, residual: np.ndarray) -> HeldOut:
    n, ones = len(residual), np.ones(len(residual))
    return HeldOut(np.zeros((n, 1)), residual, ones, ones, np.full(n, 1e9), log_scale, 0 * ones)


def test_widths_follow_only_a_scale_that_makes_them_better() -> None:
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=2_000), rng.normal(size=2_000)
    given = np.ones(1), np.array([1e9])
    assert fit_intervals(*given, held(truth, noise * np.exp(truth)))[1] == 1.0
    assert fit_intervals(*given, held(2 * truth, noise * np.exp(truth)))[1] == 0.5
    plain, power = fit_intervals(*given, held(truth, noise))
    assert power == 0
    assert plain.at(0.1) == fit_intervals(*given, held(0 * truth, noise))[0].at(0.1)
    assert fit_intervals(*given, held(truth[:8], noise[:8]))[1] == 0  # too few rows for alpha 0.1


# -- quantiles -----------------------------------------------------------------------------------------------


def test_a_quantile_is_the_row_held_out_at_its_rank() -> None:
    noise = np.random.default_rng(0).normal(size=99)
    found, _ = fit_intervals(np.ones(1), np.array([1e9]), held(np.zeros(99), noise))
    ordered = np.sort(noise)
    for share in (0.01, 0.05, 0.37, 0.5, 0.9, 0.99):
        assert found.signed_at(share) == ordered[round(100 * share) - 1]
    few, _ = fit_intervals(np.ones(1), np.array([1e9]), held(np.zeros(30), noise[:30]))
    assert few.share[0] == pytest.approx(0.04)
    with pytest.raises(SettingsError, match=r"Cannot compute q02: .* on too few rows for q02"):
        few.signed_at(0.02)


@pytest.mark.parametrize("share", [0, 1, 0.005, 0.123, "q05", None, np.nan])
def test_another_quantile_is_refused(share: object) -> None:
    with pytest.raises(SettingsError, match=r"Choose one of 0.01, 0.02 and so on to 0.99"):
        Intervals(np.ones(1), np.empty(0), np.empty(0)).signed_at(share)  # type: ignore[arg-type]


def test_a_model_of_an_earlier_version_has_intervals_and_no_quantiles() -> None:
    model = sure(random_model(2, task="regression"), seed=1)
    assert model.uncertainty is not None
    assert model.uncertainty.intervals is not None
    earlier = replace(model.uncertainty.intervals, share=np.empty(0), signed=np.empty(0))
    old = replace(model, uncertainty=replace(model.uncertainty, intervals=earlier))
    assert predictive_outputs.intervals_of(old).at(0.1) > 0
    with pytest.raises(DataError, match=r"q05: .* version of dcpred without quantiles\. Train"):
        predictive_outputs.quantile_shares(old, 0.05)


# -- stored and scored ---------------------------------------------------------------------------------------


def test_only_a_model_with_a_scale_needs_the_newest_format(tmp_path: Path) -> None:
    plain, scaled = (sure(random_model(2, task="regression"), seed) for seed in (1, 2))
    for model, version in ((plain, 3), (scaled, 9)):
        path = tmp_path / str(version)
        write_model(path, model, {}, {})
        assert json.loads((path / "model.json").read_text())["version"] <= version
        back = read_model(path).uncertainty
        assert back is not None
        assert (back.scale is None) == (version == 3)
    assert json.loads((tmp_path / "9/model.json").read_text())["version"] == 9


def test_a_run_holds_what_a_served_and_a_lazy_model_give(folder: Path) -> None:
    paths = [f"{folder}/{name}" for name in ("model", "new.zarr", "out")]
    ran = CliRunner().invoke(main, ["score", *paths, "--outputs", "q95,interval,q05,decision"])
    assert ran.exit_code == 0, ran.output
    group = zarr.open_group(folder / "out/scores.zarr", mode="r")
    stored = {name: array[...] for name, array in group.arrays()}
    assert set(stored) == {"decision", "interval", "q05", "q95", "status"}
    assert group["q05"].attrs["share"] == 0.05
    assert verify(folder / "out", "sample", rows=300, seed=0).findings == []
    assert verify(folder / "out", "full").findings == []
    X, good = zarr.open_array(folder / "new.zarr/X", mode="r")[...], np.arange(600) != 5
    served = dcpred.load_model(folder / "model")
    assert served.model.uncertainty is not None
    assert served.model.uncertainty.scale is not None
    estimator = dcpred.load_model(folder / "model", estimator=True)
    lazy = da.from_array(X, chunks=(250, 3))
    for name, share in (("q05", 0.05), ("q95", 0.95)):
        assert np.isnan(stored[name][5])
        np.testing.assert_array_equal(served.predict_quantile(X[good], share), stored[name][good])
        np.testing.assert_array_equal(estimator.predict_quantile(lazy, share).compute(), stored[name])
    np.testing.assert_array_equal(estimator.predict_interval(lazy).compute(), stored["interval"])
    np.testing.assert_array_equal(served.predict_interval(X[good]), stored["interval"][good])
    with pytest.raises(DataError, match=r"Cannot predict row 5 of X"):
        served.predict_quantile(X, 0.05)


def test_a_frame_of_dask_has_quantiles_by_name() -> None:
    dd = pytest.importorskip("dask.dataframe")
    X, y = amounts(400, 0)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = regressor_with(n_leaves=1, random_state=0, **SETTINGS).fit(frame, y)
    lazy, right = dd.from_pandas(frame, npartitions=2), model.predict_quantile(frame, [0.05, 0.95])
    found = model.predict_quantile(lazy, [0.05, 0.95]).compute()
    assert list(found.columns) == ["q05", "q95"]
    np.testing.assert_array_equal(found.to_numpy(), right)
    np.testing.assert_array_equal(model.predict_quantile(lazy, 0.95).compute(), right[:, 1])


def test_a_quantile_that_a_model_cannot_give_is_refused_before_anything_is_written(folder: Path) -> None:
    paths = [f"{folder}/{name}" for name in ("model", "new.zarr", "other")]
    for name in ("q5", "q100", "q00"):
        ran = CliRunner().invoke(main, ["score", *paths, "--outputs", name])
        assert ran.exit_code == 3
        assert f"output '{name}'" in ran.output
        assert "q01 to q99" in ran.output
    assert not (folder / "other").exists()


def test_verification_finds_an_interval_of_another_width(folder: Path, tmp_path: Path) -> None:
    paths = [f"{folder}/model", f"{folder}/new.zarr", str(tmp_path / "out")]
    assert CliRunner().invoke(main, ["score", *paths, "--outputs", "interval,q05"]).exit_code == 0
    served, X = dcpred.load_model(folder / "model"), zarr.open_array(folder / "new.zarr/X", mode="r")[10:11]
    low, high = served.predict_interval(X)[0]
    for name, value in (("interval", [low - 0.01 * (high - low), high]), ("q05", low)):
        array = zarr.open_group(tmp_path / "out/scores.zarr", mode="r+")[name]
        array[10] = value
        said = [finding.sentence for finding in verify(tmp_path / "out", "sample", rows=600).findings]
        assert any("row 10 has" in sentence and f"{name} " in sentence for sentence in said)


def test_evaluate_states_coverage_by_quarter(folder: Path, tmp_path: Path) -> None:
    data = [f"{folder}/model", f"{folder}/labelled.zarr", "--no-cost"]
    told = CliRunner().invoke(main, ["evaluate", *data])
    assert "intervals by quarter of the prediction" in told.output
    assert "interval_winkler" in told.output
    listed = CliRunner().invoke(main, ["evaluate", *data, "--json"])
    found = json.loads(listed.stdout)
    assert any(section.title == "Intervals" for section in evaluation_page(found).sections)
    X, y = amounts(600, 1)
    model = open_artifact(folder / "model").model()
    rows = score_with_leaves(model, X, scale=True)
    value = rows.decision[:, 0]
    low, high = predictive_outputs.intervals(model, value, rows.leaf, rows.log_scale, 0.1).T
    inside = (low <= y) & (y <= high)
    assert [one["coverage"] for one in found["interval_quarters"]] == pytest.approx(quarters(inside, value))
    score = high - low + 20 * np.maximum(np.maximum(low - y, y - high), 0)
    assert found["interval_winkler"] == pytest.approx(score.mean())
    (tmp_path / "e.json").write_text(listed.stdout)
    page = CliRunner().invoke(main, ["report", str(tmp_path / "e.json"), "--out", str(tmp_path / "e.html")])
    assert page.exit_code == 0, page.output
    assert "by quarter of the prediction" in (tmp_path / "e.html").read_text()


def test_measures_of_parts_merge_to_those_of_all() -> None:
    model = sure(random_model(2, task="regression"), seed=2)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, model.n_features))
    rows = score_with_leaves(model, X, scale=True)
    y = rows.decision[:, 0] + rng.normal(size=200)
    whole, parts = IntervalMeasures(), IntervalMeasures()
    whole.add(model, rows, y)
    for part in (slice(120, 200), slice(0, 120)):
        one = IntervalMeasures()
        one.add(model, rows.take(part), y[part])
        parts.merge(one)
    found, right = parts.as_dict(), whole.as_dict()
    assert found.pop("interval_quarters") == (by_quarter := right.pop("interval_quarters"))
    assert found == pytest.approx(right, rel=1e-12)
    assert sum(one["rows"] for one in by_quarter) == 200
