"""Regressions that learn on the logarithm or the root of the target: every door gives the user's scale."""

import json
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import dcpred
from dcpred.cli import main
from dcpred.evaluation.explanation import explain
from dcpred.training.policy import DEFAULT
from dcpred.training.search import Search
from dcpred.training.train import train
from dcpred.training.trials import Candidate
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, ModelFormatError, SettingsError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.contributions import contributions
from dcpred_tasks.model.target_transform import (
    LOG,
    NO_TRANSFORM,
    PLAIN,
    ROOT,
    TRANSFORMS,
    TargetTransform,
    fitted_transform,
    undone,
)
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from support.data import make_group
from support.models import random_model
from support.searches import few_candidates, trials_of
from support.setting_words import regressor_with

SETTINGS: dict[str, object] = {"landmarks": 8, "products": 8, "refine_steps": 20, "n_leaves": 2}
OUTPUTS = "decision,interval,q05,q95,novelty,contributions"
MUTATIONS = ("logarithm of the target", "root of the target")


def amounts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose noise is a share of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.exp(1 + 1.2 * X[:, 0] + 0.4 * np.sin(2 * X[:, 1]) + 0.4 * rng.normal(size=n))


def regression(name: str = PLAIN) -> Settings:
    return make_settings({"task": "regression", "target_transform": name})


@pytest.fixture(scope="module", params=[LOG, ROOT])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained by tasks, rows of which one has no score, and labelled rows."""
    folder = tmp_path_factory.mktemp(request.param)
    make_group(folder / "known.zarr", *amounts(1_500, 0))
    X, y = amounts(300, 1)
    make_group(folder / "labelled.zarr", X, y)
    X[5, 1] = np.nan
    make_group(folder / "new.zarr", X, chunk_rows=100)
    settings = SETTINGS | {"task": "regression", "target_transform": request.param}
    known = f"{folder}/known.zarr"
    train(known, folder / "model", settings=settings)
    ran = CliRunner().invoke(
        main, ["score", f"{folder}/model", f"{folder}/new.zarr", f"{folder}/out", "--outputs", OUTPUTS]
    )
    assert ran.exit_code == 0, ran.output
    return folder


# -- the transform -------------------------------------------------------------------------------------------


@given(
    st.sampled_from(TRANSFORMS),
    st.floats(-2, 2),
    st.lists(st.floats(-30, 30), min_size=1, max_size=20, unique=True),
)
def test_what_is_undone_can_be_done_again(name: str, shift: float, values: list[float]) -> None:
    transform, v = TargetTransform(name, shift if name != PLAIN else 0.0), np.sort(values)
    for there, again in (
        (transform.back, transform.forward),
        (transform.predicted, transform.to_decision),
        (transform.forward, transform.back),
    ):
        with np.errstate(all="raise", under="ignore"):
            found = there(v)
        # A shift of the root's prediction leaves its rounding in the square.
        np.testing.assert_allclose(again(found), v, rtol=1e-12, atol=1e-7 if name == ROOT else 1e-14)
        assert (np.diff(found) >= 0).all()
    assert TargetTransform.of_document(json.loads(json.dumps(transform.document()))) == transform


def test_the_scale_of_targets_is_the_named_one() -> None:
    y = np.array([0.0, 1.0, 1_240.0])
    np.testing.assert_allclose(TargetTransform(LOG).forward(y), np.log1p(y))
    np.testing.assert_allclose(TargetTransform(ROOT).forward(y), np.sqrt(y))
    assert TargetTransform().forward(y) is y


@pytest.mark.parametrize("name", [LOG, ROOT])
def test_predictions_of_held_out_rows_have_the_mean_of_their_targets(name: str) -> None:
    rng = np.random.default_rng(0)
    value = rng.uniform(1, 3, 500)
    target, weight = value + rng.normal(size=500), rng.uniform(0.5, 2, 500)
    value[3] = np.nan
    found, known = fitted_transform(name, value, np.maximum(target, 0), weight), np.arange(500) != 3
    means = (
        np.average(values[known], weights=weight[known])
        for values in (found.predicted(value), found.back(np.maximum(target, 0)))
    )
    assert next(means) == pytest.approx(next(means), rel=1e-9)
    assert found.shift > 0.1
    assert fitted_transform(name, value[:0], target[:0], weight[:0]).shift == 0
    assert fitted_transform(PLAIN, value, target, weight) is not found


@pytest.mark.parametrize("name", [LOG, ROOT])
def test_a_quantile_stays_one_on_the_scale_of_targets(name: str) -> None:
    settings = {**SETTINGS, "loss": "quantile", "quantile": 0.9, "target_transform": name}
    X, y = amounts(2_000, 0)
    found = regressor_with(random_state=0, **settings).fit(X, y)
    assert found.model_.target == TargetTransform(name)
    X_new, y_new = amounts(4_000, 1)
    assert np.mean(y_new < found.predict(X_new)) == pytest.approx(0.9, abs=0.03)


def test_a_prediction_that_overflows_is_no_score() -> None:
    status = np.array([1, 1, 2], np.uint8)
    found, after = undone(TargetTransform(LOG), np.array([[1.0], [800.0], [np.nan]]), status)
    assert after.tolist() == [Status.OK, Status.NON_FINITE_RESULT, Status.NON_FINITE_FEATURE]
    assert np.isnan(found[1:]).all()
    assert found[0, 0] == np.expm1(1.0)


# -- trained and scored --------------------------------------------------------------------------------------


def test_every_door_gives_the_users_scale(folder: Path, tmp_path: Path) -> None:
    group = zarr.open_group(folder / "out/scores.zarr", mode="r")
    stored = {name: array[...] for name, array in group.arrays()}
    assert verify(folder / "out", "full").findings == []
    assert verify(folder / "out", "sample", rows=300, seed=0).findings == []
    X, y = amounts(300, 1)
    good = np.arange(300) != 5
    assert np.corrcoef(stored["decision"][good], y[good])[0, 1] > 0.7
    assert stored["decision"][good].mean() == pytest.approx(y[good].mean(), rel=0.2)
    served = dcpred.load_model(folder / "model")
    estimator = dcpred.load_model(folder / "model", estimator=True)
    lazy = da.from_array(X, chunks=(128, 3))
    for found in (served.predict(X), estimator.predict(X), estimator.predict(lazy).compute()):
        np.testing.assert_array_equal(found[good], stored["decision"][good])
    assert served.predict(X[7:8])[0] == stored["decision"][7]
    np.testing.assert_array_equal(served.predict_interval(X)[good], stored["interval"][good])
    np.testing.assert_array_equal(estimator.predict_quantile(lazy, 0.05).compute()[good], stored["q05"][good])
    low, high = stored["interval"][good].T
    assert 0.8 < ((low <= y[good]) & (y[good] <= high)).mean() < 0.98
    assert np.corrcoef(high - low, stored["decision"][good])[0, 1] > 0.5
    ran = CliRunner().invoke(main, ["export", f"{folder}/out", str(tmp_path / "t.parquet")])
    assert ran.exit_code == 0, ran.output
    np.testing.assert_array_equal(
        pq.read_table(tmp_path / "t.parquet")["decision"].to_numpy()[good], stored["decision"][good]
    )


def test_parts_sum_to_the_decision_value_on_the_scale_of_the_model(folder: Path) -> None:
    group, model = zarr.open_group(folder / "out/scores.zarr", mode="r"), read_model(folder / "model")
    assert group["contributions"].attrs["scale"] == model.target.name
    good = np.arange(300) != 5
    own = model.target.to_decision(group["decision"][...])
    np.testing.assert_allclose(group["contributions"][...].sum(axis=1)[good], own[good], rtol=1e-9)
    data = [f"{folder}/model", f"{folder}/new.zarr", "--rows", "3"]
    listed = CliRunner().invoke(main, ["explain", *data, "--json"])
    [one] = json.loads(listed.stdout)["rows"]
    assert one["scale"] == model.target.name
    assert one["predicted"] == pytest.approx(group["decision"][3], rel=1e-6)
    assert one["decision"] == pytest.approx(own[3], rel=1e-6)
    told = CliRunner().invoke(main, ["explain", *data])
    assert f"decision value on the {model.target.name} scale" in told.output
    [explained] = explain(folder / "model", amounts(300, 1)[0], [3])
    assert f"(decision value on the {model.target.name} scale {own[3]:.3g}: " in str(explained)


def test_the_page_of_a_run_names_the_scale_of_contributions(folder: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["report", f"{folder}/out", "--out", str(tmp_path / "page.html")])
    assert ran.exit_code == 0, ran.output
    name = read_model(folder / "model").target.name
    assert f"decision value, on the {name} scale of the model" in (tmp_path / "page.html").read_text()


def test_the_engine_agrees_with_the_definition(folder: Path) -> None:
    model, (X, _) = read_model(folder / "model"), amounts(300, 2)
    rows = score_with_leaves(model, X, scale=True)
    plain = score_with_leaves(model, X, scale=True, score=compact_model.score_rows)
    np.testing.assert_allclose(rows.decision, plain.decision, rtol=1e-4)
    found = contributions(model, X[:5], rows.decision[:5], rows.leaf[:5])
    leaves = compact_model.leaf_values(model, int(rows.leaf[0]), model.scaling.exact(X[:1]))
    assert found[0].sum() == pytest.approx(float(leaves[0, 0]), rel=1e-4)


def test_verification_finds_another_score(folder: Path, tmp_path: Path) -> None:
    paths = [f"{folder}/model", f"{folder}/new.zarr", str(tmp_path / "out")]
    assert CliRunner().invoke(main, ["score", *paths, "--outputs", "decision,q95"]).exit_code == 0
    group = zarr.open_group(tmp_path / "out/scores.zarr", mode="r+")
    for name in ("decision", "q95"):
        array = group[name]
        array[10] = 1.01 * array[10]
        said = [one.sentence for one in verify(tmp_path / "out", "sample", rows=300).findings]
        assert any("row 10 has" in sentence and f"{name} " in sentence for sentence in said)


def test_evaluate_states_errors_of_targets(folder: Path) -> None:
    listed = CliRunner().invoke(
        main, ["evaluate", f"{folder}/model", f"{folder}/labelled.zarr", "--no-cost", "--json"]
    )
    found, (X, y) = json.loads(listed.stdout), amounts(300, 1)
    off = dcpred.load_model(folder / "model").predict(X) - y
    assert found["rmse"] == pytest.approx(np.sqrt((off**2).mean()))


def test_a_fit_in_memory_is_that_of_the_tasks(folder: Path) -> None:
    right = read_model(folder / "model")
    given = {**SETTINGS, "target_transform": right.target.name, "calibrate": True}
    found = regressor_with(random_state=0, **given).fit(*amounts(1_500, 0))
    X, _ = amounts(300, 1)
    np.testing.assert_allclose(found.predict(X), dcpred.load_model(folder / "model").predict(X), rtol=1e-6)
    assert found.model_.target.shift == pytest.approx(right.target.shift)


def test_a_transform_lowers_the_winkler_score_of_amounts(folder: Path) -> None:
    X, y = amounts(2_000, 1)

    def winkler(model: object) -> float:
        low, high = model.predict_interval(X, 0.1).T  # type: ignore[attr-defined]
        return float((high - low + 20 * np.maximum(np.maximum(low - y, y - high), 0)).mean())

    plain = regressor_with(random_state=0, **SETTINGS).fit(*amounts(1_500, 0))
    assert winkler(dcpred.load_model(folder / "model")) < 0.97 * winkler(plain)


@pytest.mark.parametrize("name", [LOG, ROOT])
def test_no_interval_of_targets_of_0_or_more_reaches_below_0(name: str) -> None:
    X, y = amounts(600, 0)
    y = np.maximum(y - np.quantile(y, 0.3), 0.0)
    model = regressor_with(random_state=0, target_transform=name, **SETTINGS).fit(X, y)
    bounds = [model.predict_interval(X, 0.1), model.predict_quantile(X, [0.05, 0.95])]
    assert min(one.min() for one in bounds) == 0.0
    assert all((one[:, 0] <= one[:, 1]).all() for one in bounds)


def test_rows_held_out_by_time_are_measured_on_the_users_scale() -> None:
    X, y = amounts(600, 0)
    groups = np.arange(600) // 60
    model = regressor_with(random_state=0, target_transform=LOG, **SETTINGS).fit(X, y, groups=groups)
    new, true = amounts(1_000, 1)
    low, high = model.predict_interval(new, 0.1).T
    assert 0.83 < ((low <= true) & (true <= high)).mean() < 0.97
    assert model.predict(new).mean() == pytest.approx(true.mean(), rel=0.2)


# -- refused -------------------------------------------------------------------------------------------------


def test_negative_targets_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    X, y = amounts(200, 0)
    y[150] = -2.5
    why = r"target_transform=log1p: y has -2.5 in row 150, .* Use target_transform=none, or correct the row"
    with pytest.raises(DataError, match=why):
        regressor_with(target_transform=LOG, **SETTINGS).fit(X, y)
    make_group(tmp_path / "d.zarr", X, y)
    settings = SETTINGS | {"task": "regression", "target_transform": LOG}
    with pytest.raises(DataError, match=why):
        train(f"{tmp_path}/d.zarr", tmp_path / "model", settings=settings)
    assert [path.name for path in tmp_path.iterdir()] == ["d.zarr"]


def test_other_transforms_and_classes_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"target_transform='log': it is unknown.*Use one of none"):
        make_settings({"task": "regression", "target_transform": "log"})
    with pytest.raises(SettingsError, match="only regression uses it"):
        make_settings({"target_transform": LOG})


# -- stored --------------------------------------------------------------------------------------------------


def test_a_model_without_a_transform_is_what_it_was(tmp_path: Path) -> None:
    model = random_model(2, task="regression")
    write_model(tmp_path / "plain", model, {}, {})
    told = json.loads((tmp_path / "plain/model.json").read_text())
    assert "target" not in told["model"]
    assert told["version"] < 10
    assert read_model(tmp_path / "plain").target == NO_TRANSFORM
    assert "target_transform" not in settings_dict(regression())


def test_the_hash_covers_the_transform(tmp_path: Path) -> None:
    model = random_model(2, task="regression")
    targets = NO_TRANSFORM, TargetTransform(ROOT), TargetTransform(LOG), TargetTransform(LOG, 0.1)
    for number, target in enumerate(targets):
        write_model(tmp_path / str(number), replace(model, target=target), {}, {})
        assert read_model(tmp_path / str(number)).target == target
    assert len({open_artifact(tmp_path / str(number)).hash for number in range(4)}) == 4


@pytest.mark.parametrize(
    "damage",
    [None, {}, {"name": "log", "shift": 0.0}, {"name": LOG}, {"name": LOG, "shift": "0"}],
    ids=str,
)
def test_a_damaged_transform_is_refused(damage: object, folder: Path, tmp_path: Path) -> None:
    told = json.loads((folder / "model/model.json").read_text())
    assert told["version"] == 10
    assert told["model"]["target"]["shift"] != 0
    told["model"]["target"] = damage
    told["hash"] = digest_json(told["model"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.json").write_text(json.dumps(told))
    with pytest.raises(ModelFormatError, match="target transform"):
        read_model(tmp_path / "model")


# -- searched ------------------------------------------------------------------------------------------------


def test_a_search_takes_a_transform_that_lowers_the_error_of_targets() -> None:
    X, y = amounts(900, 1)
    trials = trials_of(X, np.exp(1.2 * np.log(y)), settings=regression())
    with few_candidates((DEFAULT,), MUTATIONS):
        found = Search(trials).run()
    assert found is not None
    assert found.chosen.settings.target_transform in (LOG, ROOT)
    losses = {one.settings.target_transform: one.loss for one in found.judged}
    assert losses[found.chosen.settings.target_transform] < 0.97 * losses[PLAIN]


@pytest.mark.parametrize(
    "change", [lambda y: y - y.mean(), np.log1p, np.ones_like], ids=["negative", "even", "one"]
)
def test_a_search_tries_none_for_other_targets(change: object) -> None:
    X, y = amounts(400, 0)
    trials = trials_of(X, change(y), settings=regression())  # type: ignore[operator]
    with few_candidates((DEFAULT,), MUTATIONS):
        found = Search(trials).run()
    assert found is not None
    assert {one.settings.target_transform for one in found.judged} == {PLAIN}


def test_a_search_keeps_the_transform_of_settings() -> None:
    X, y = amounts(400, 0)
    trials = trials_of(X, y, settings=regression(ROOT))
    for values in ({}, {"target_transform": LOG}, {"target_transform": PLAIN}):
        assert trials.realised(Candidate("c", values).values)[0].target_transform == ROOT
