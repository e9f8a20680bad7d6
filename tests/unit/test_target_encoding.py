"""Means of the target in place of codes: what they are, which rows they know, and how models hold them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import TargetEncoder

from dcpred.datasets.importing import import_data
from dcpred.datasets.splitting import split
from dcpred.estimators.regressor import DCPredRegressor
from dcpred.evaluation.explanation import explain
from dcpred.execution.workers import InlineWorkers
from dcpred.serving.served_model import load_model
from dcpred.training.fit import TrainingRequest, check_training_data, fit_model, numbered_for
from dcpred.training.policy import STANDARD
from dcpred.training.steps import Training
from dcpred.training.train import train
from dcpred.training.trials import Trials
from dcpred_compare.rows import draw_rows
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.contributions import importances
from dcpred_tasks.model.target_encoding import TargetEncoding, encoding_of
from dcpred_tasks.schema.column import Means, Number, TargetCodes
from dcpred_tasks.schema.schema import ATTRIBUTE, Schema
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.scoring.statistics import bad_features
from dcpred_tasks.scratch import TrainJob, read_trial
from dcpred_tasks.training import categories
from dcpred_tasks.training.categories import (
    CodedFeatures,
    CrossFitted,
    fit_target_means,
    fit_to_rows,
    target_sums,
)
from dcpred_tasks.training.folds import FOLDS, Folds
from dcpred_tasks.training.in_memory import TrialRows, train_rows
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.survey import survey_rows
from support.pools import inline

N, SHOPS = 3_000, 150
RNG = np.random.default_rng(0)
SHOP = RNG.integers(0, SHOPS, N)
X = np.stack([RNG.normal(size=N), SHOP], axis=1).astype(np.float32)
EFFECT = RNG.normal(size=SHOPS)[SHOP]
TARGETS: dict[str, np.ndarray] = {
    "continuous": EFFECT + RNG.normal(size=N),
    "binary": (EFFECT + RNG.normal(size=N) > 0).astype(np.int64),
    "multiclass": np.digitize(EFFECT + RNG.normal(size=N), [-0.5, 0.5]),
}
CODED = CodedFeatures((1,), (SHOPS + 2,))
ROWS = np.arange(N)
SETTINGS = Settings()


def task_of(y: np.ndarray) -> str:
    return "regression" if y.dtype.kind == "f" else "classification"


def fitted_to(y: np.ndarray, weight: np.ndarray | None = None, rows: np.ndarray = X) -> CrossFitted:
    task = task_of(y)
    survey = survey_rows(rows, y, weight, 0, task)
    given = np.ones(len(rows)) if weight is None else weight
    return fit_to_rows(rows, y, given, CODED, survey, make_settings({"task": task}))


def means(fitted: CrossFitted, encoded: np.ndarray) -> np.ndarray:
    return encoded[:, fitted.encoding.columns(0)]


# -- What means are, and what they know ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", TARGETS)
def test_means_are_those_of_scikit_learn(kind: Any) -> None:
    """Of all rows for a new one, of other parts for one that trains, and without those that are held out."""
    y, codes = TARGETS[kind], X[:, 1:]

    def by(used: np.ndarray, these: np.ndarray) -> np.ndarray:
        return TargetEncoder(target_type=kind).fit(codes[used], y[used]).transform(codes[these])

    fitted, part = fitted_to(y), Folds(SETTINGS.seed).parts(ROWS)
    every = np.ones(N, bool)
    np.testing.assert_allclose(means(fitted, fitted.encoding(X)), by(every, every), atol=1e-6)
    trained, held = fitted(X, ROWS), fitted(X, ROWS, 2)
    for own in range(2 * FOLDS):
        this = part == own
        np.testing.assert_allclose(means(fitted, trained)[this], by(~this, this), atol=1e-6)
        rest = (part // 2 != 2) & ~this
        np.testing.assert_allclose(means(fitted, held)[this], by(rest, this), atol=1e-6)
    np.testing.assert_array_equal(part // 2, Folds(SETTINGS.seed).of(ROWS))


@pytest.mark.parametrize("kind", TARGETS)
def test_no_row_knows_its_own_target(kind: str) -> None:
    y = TARGETS[kind]
    other = y.copy()
    other[7] = 0 if y[7] else 1
    one, two = fitted_to(y), fitted_to(other)
    np.testing.assert_array_equal(one(X, ROWS)[7], two(X, ROWS)[7])
    assert (one.encoding(X)[7] != two.encoding(X)[7]).any()
    fold = int(Folds(SETTINGS.seed).of(ROWS)[7])
    np.testing.assert_array_equal(
        one(X, ROWS, fold), two(X, ROWS, fold), "nor do others, where it is held out"
    )
    assert (one(X, ROWS, (fold + 1) % FOLDS) != two(X, ROWS, (fold + 1) % FOLDS)).any()


@given(st.lists(st.integers(1, N - 1), max_size=4), st.sampled_from([*TARGETS]))
def test_blocks_of_any_cut_have_the_same_means(cuts: list[int], kind: str) -> None:
    y, edges = TARGETS[kind], [0, *sorted(cuts), N]
    task = task_of(y)
    sums = [target_sums(X[a:b], y[a:b], None, ROWS[a:b], CODED, task, Folds(0)) for a, b in pairwise(edges)]
    fitted = fit_target_means(sums, CODED, survey_rows(X, y, None, 0, task), Folds(0))
    np.testing.assert_allclose(fitted.tables, fitted_to(y).tables, atol=1e-6)


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_count_by_their_weight(kind: str) -> None:
    y = TARGETS[kind]
    weight = np.where(ROWS % 3 == 0, 0.0, 2.0)
    used = weight > 0
    fitted = fitted_to(y, weight)
    other = np.where(used, y, 1 - y)
    np.testing.assert_array_equal(fitted.tables, fitted_to(other, weight).tables, "rows of weight 0 do not")
    np.testing.assert_allclose(fitted.tables, fitted_to(y, 1e-3 * weight).tables, atol=1e-6)
    whole = TargetEncoder(target_type=kind).fit(X[used, 1:], y[used]).transform(X[:, 1:])
    np.testing.assert_allclose(means(fitted, fitted.encoding(X)), whole, atol=1e-6)
    heavy = np.where(EFFECT + y > 0, 1.0, 5.0)
    assert (fitted_to(y, heavy).tables != fitted.tables).any()


def test_a_category_without_rows_has_the_mean_of_all() -> None:
    y = TARGETS["continuous"]
    rows = np.array([[0, SHOPS], [0, SHOPS + 1], [0, SHOPS + 9], [0, -1], [0, 0.5], [0, 3]])
    found = fitted_to(y).encoding(rows)[:, 1]
    np.testing.assert_allclose(found[:5], y.mean(), rtol=1e-6)
    assert abs(found[5] - y.mean()) > 0.1


def test_large_numbers_keep_their_digits() -> None:
    y = TARGETS["continuous"] + 1e9
    fitted = fitted_to(y)
    assert not fitted.encoding.is_single
    exact = TargetEncoder(target_type="continuous").fit(X[:, 1:], y).transform(X[:, 1:])
    np.testing.assert_allclose(fitted.encoding(X)[:, 1:], exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("y", [np.zeros(8), np.full(8, 1e34), np.arange(8.0), np.array([0, 1] * 4)])
def test_means_of_odd_targets_are_numbers(y: np.ndarray) -> None:
    rows = np.stack([np.zeros(8), [0, 0, 1, 3] * 2], axis=1)
    fitted = fitted_to(y, None, rows)
    assert np.isfinite(fitted.tables).all()
    assert np.isfinite(fitted.survey(survey_rows(rows, y, None, 0, task_of(y))).minimum).all()


def test_what_is_too_much_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    y = ROWS % 40
    survey = survey_rows(X, y, None, 0, "classification")
    sums = [target_sums(X, y, None, ROWS, CODED, "classification", Folds(0))]
    with pytest.raises(DataError, match=r"column 'shop': .* y has 40 classes, .*--categorical"):
        fit_target_means(sums, CODED, survey, Folds(0), ["a", "shop"])
    monkeypatch.setattr(categories, "MOST_NUMBERS", 3)
    with pytest.raises(DataError, match=r"column 1: 152 categories .* more than the 3 numbers"):
        fitted_to(TARGETS["binary"])


# -- Encoded rows --------------------------------------------------------------------------------------------

TWO = TargetEncoding(
    3, np.array([0, 2]), np.array([0, 3, 7]), np.arange(21, dtype=np.float64).reshape(7, 3) / 4
)


def test_first_means_take_the_place_of_codes_and_others_come_last() -> None:
    rows = TWO(np.array([[0, 5, 1], [9, 6, 3]], np.uint8))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(4 * rows, [[0, 20, 12, 1, 2, 13, 14], [3, 24, 18, 4, 5, 19, 20]])
    assert TWO.source.tolist() == [0, 1, 2, 0, 0, 2, 2]
    assert TWO.names(["a", "b", "c"])[3:5] == ["a, mean 2 of 3", "a, mean 3 of 3"]
    np.testing.assert_array_equal(TWO.raw(rows.astype(float)), [[0, 5, 1], [1, 6, 3]])
    assert TWO.first_means()(np.zeros((1, 3))).shape == (1, 3)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "i4", "u8", "f8", ">f8", "g"])
def test_codes_of_any_dtype(dtype: str) -> None:
    rows = TWO(np.array([[1, 1, 0]]).astype(dtype))
    assert rows.dtype == (np.float32 if np.can_cast(np.dtype(dtype), np.float32) else np.float64)
    np.testing.assert_array_equal(4 * rows[0, :3], [3, 4, 9])


def test_a_code_that_is_not_finite_stays_so() -> None:
    rows = TWO(np.array([[np.nan, 1, np.inf]]))
    np.testing.assert_array_equal(np.isnan(rows[0]), [True, False, False, True, True, False, False])
    assert np.isinf(rows[0, [2, 5, 6]]).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"feature": np.array([0, 3])},
        {"feature": np.array([2, 0])},
        {"feature": np.empty(0, np.int64)},
        {"at": np.array([0, 1, 7])},
        {"at": np.array([0, 8, 7])},
        {"at": np.array([0, 3, 6])},
        {"at": np.array([0, 3])},
        {"table": np.full((7, 3), np.inf)},
        {"table": np.zeros((7, 0))},
        {"table": np.zeros(7)},
    ],
)
def test_what_is_no_encoding(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"encoding|feature"):
        replace(TWO, **changes)


def test_an_encoding_comes_back_from_its_arrays() -> None:
    found = encoding_of(TWO.arrays(), TWO.n_columns)
    assert found is not None
    assert found.n_features == 3
    np.testing.assert_array_equal(found.table, TWO.table)
    assert encoding_of({}, 3) is None


# -- Models --------------------------------------------------------------------------------------------------

SMALL = {"n_leaves": 2, "landmarks": 8, "products": 0, "scaling": "standard", "categorical": "none"}


def trained(kind: str, **more: Any) -> Model:
    y = TARGETS[kind]
    settings = make_settings({"task": task_of(y), **SMALL, **more})
    survey = survey_rows(X, y, None, 0, task_of(y))
    classes = tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(N), np.ones(len(classes)), survey, settings, classes, coded=CODED)


@pytest.fixture(scope="module", params=TARGETS)
def model(request: pytest.FixtureRequest) -> Model:
    return trained(request.param)


def test_rows_are_scored_by_the_means_of_all_that_train(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model.scaling.targets is not None
    assert (model.n_features, model.n_columns) == (2, 2 if model.n_outputs == 1 else 4)
    rows = np.vstack([X[:300], [[0, -1], [0, SHOPS + 7], [np.nan, 3], [0, np.inf]]]).astype(np.float32)
    leaves = np.empty(len(rows), np.int32)
    decision, status = score_rows(model, rows, leaves=leaves)
    wanted, wanted_status = compact_model.score_rows(model, rows)
    np.testing.assert_allclose(decision, wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(status, wanted_status)
    assert status[-2:].tolist() == [2, 2]
    inner = replace(model, scaling=model.scaling.of_encoded)
    np.testing.assert_array_equal(decision, score_rows(inner, model.scaling.targets(rows))[0])
    monkeypatch.setattr(scorer, "STRIP_ROWS", 7)
    again = np.empty(len(rows), np.int32)
    strips = score_rows(replace(model), rows, leaves=again)
    np.testing.assert_array_equal(strips[0], decision)
    np.testing.assert_array_equal(again, leaves)
    np.testing.assert_array_equal(bad_features(model.scaling, rows)[-3:], [-1, 0, 1])
    with pytest.raises(DataError, match="X has 3 features"):
        score_rows(model, np.zeros((2, 3)))


def test_no_rows_have_no_scores(model: Model) -> None:
    assert score_rows(replace(model), X[:0])[0].shape == (0, model.n_outputs), "nor has a new process any"


def test_importances_are_of_features_and_reference_of_means(model: Model) -> None:
    share = importances(model)
    assert share.shape == (2,)
    assert share[1] > 0.3
    assert model.reference is not None
    assert model.reference.mean.shape == (model.n_columns,)
    assert abs(model.reference.mean[1]) < 1, "of means, and not of codes"


def test_a_model_keeps_its_means_on_disk(model: Model, tmp_path: Path) -> None:
    write_model(tmp_path / "m", model, {}, {})
    artifact = open_artifact(tmp_path / "m")
    found = artifact.model()
    np.testing.assert_array_equal(found.scaling.targets.table, model.scaling.targets.table)
    np.testing.assert_array_equal(score_rows(found, X)[0], score_rows(model, X)[0])
    test = artifact.self_test()
    assert test is not None
    assert len(test.rows) > 2
    assert set(test.rows[:, 1]) <= set(range(SHOPS + 2)), "rows of a self-test have codes"
    group = zarr.open_group(tmp_path / "m" / "arrays.zarr", mode="r+")
    group["target_at"][1] = 5
    with pytest.raises(ModelFormatError):
        read_model(tmp_path / "m")


def test_an_earlier_hash_stays() -> None:
    """A model without such features is written as before."""
    y = TARGETS["binary"]
    survey = survey_rows(X, y, None, 0, "classification")
    plain = train_rows(X, y, np.ones(N), np.ones(2), survey, make_settings(SMALL), (0, 1))
    assert plain.scaling.targets is None
    assert not any(name.startswith("target") for name in plain.scaling.arrays())


# -- Rows that are held out ----------------------------------------------------------------------------------


def data_set(path: Path, y: np.ndarray, weight: np.ndarray | None = None) -> str:
    """Rows with codes, as an import writes them."""
    names = tuple(f"shop {i:03d}" for i in range(SHOPS))
    schema = Schema((Number("a"), TargetCodes("shop", names)))
    group = zarr.open_group(path, mode="w", attributes={ATTRIBUTE: schema.document()})
    group.create_array("X", data=X, chunks=(1_000, 2), attributes={"feature_names": ["a", "shop"]})
    group.create_array("y", data=y, chunks=(1_000,))
    if weight is not None:
        group.create_array("w", data=weight, chunks=(1_000,))
    return str(path)


def tried(folder: Path, y: np.ndarray, fold: int) -> TrialRows:
    """The rows that a search tries settings on in a fold."""
    folder.mkdir()
    data = data_set(folder / "d.zarr", y)
    address = f"{data}/X", f"{data}/y"
    start = make_settings({"task": task_of(y)})
    plan, names = check_training_data(*address, None, start)
    settings, coded = numbered_for(start, address[0])
    assert coded == CODED
    job = TrainJob(*address, None, str(folder), settings, plan.n_rows, 1_000, coded)
    (folder / "survey").mkdir()
    training = Training(job, replace(plan, block_rows=1_000), InlineWorkers())
    trials = Trials(training, training.survey(names), training.workers, STANDARD, None)
    trials.prepare()
    return read_trial(job, fold)[0]


@pytest.mark.parametrize("kind", TARGETS)
def test_what_a_search_trains_on_knows_no_row_that_is_held_out(tmp_path: Path, kind: str) -> None:
    y = TARGETS[kind]
    held = Folds(0).of(ROWS) == 1
    other = np.where(held, np.random.default_rng(1).permutation(y), y)
    rows, others = (
        [tried(tmp_path / f"{n}{f}", of, f) for f in (1, 0)] for n, of in (("a", y), ("b", other))
    )
    np.testing.assert_array_equal(rows[0].held, held)
    np.testing.assert_array_equal(rows[0].X, others[0].X)
    assert (rows[1].X != others[1].X).any()


def test_leaves_in_memory_and_on_workers_are_the_same(tmp_path: Path) -> None:
    """Their rows, means and held-out rows: so are the uncertainties."""
    y = TARGETS["continuous"]
    data, settings = data_set(tmp_path / "d.zarr", y), make_settings({"task": "regression", **SMALL})
    fit_model(TrainingRequest(f"{data}/X", f"{data}/y", tmp_path / "m", settings, inline))
    found, mine = read_model(tmp_path / "m"), trained("continuous")
    np.testing.assert_allclose(found.scaling.targets.table, mine.scaling.targets.table, rtol=1e-6)
    np.testing.assert_allclose(score_rows(found, X)[0], score_rows(mine, X)[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        found.uncertainty.intervals.quantile, mine.uncertainty.intervals.quantile, rtol=1e-3
    )


def test_intervals_hold_for_new_rows_where_categories_are_noise() -> None:
    """Held-out rows are encoded as new ones are: what is true of them is true of these."""
    rng = np.random.default_rng(3)
    shop, y = rng.integers(0, 300, 3_000), rng.normal(size=3_000)
    frame = pd.DataFrame({"a": rng.normal(size=3_000), "shop": [f"shop {i}" for i in shop]})
    fitted = DCPredRegressor(n_leaves=1, landmarks=16, scaling="standard", random_state=0)
    fitted.fit(frame[:1_500], y[:1_500])
    low, high = fitted.predict_interval(frame[1_500:], 0.2).T
    assert 0.75 < ((low <= y[1_500:]) & (y[1_500:] <= high)).mean() < 0.85
    assert cross_val_score(fitted, frame, y, cv=2).max() < 0.05


# -- From a table to a score ---------------------------------------------------------------------------------


def table() -> pd.DataFrame:
    shop = [f"shop {i:03d}" for i in SHOP]
    amount = TARGETS["continuous"]
    return pd.DataFrame({"a": X[:, 0], "shop": shop, "number": SHOP, "day": ROWS, "y": amount})


def r2(train_data: str, test_data: str, folder: Path) -> float:
    train(train_data, folder, settings={"task": "regression", **SMALL})
    group = zarr.open_group(test_data, mode="r")
    check_same_encoding(f"{test_data}/X", open_artifact(folder))
    y, decision = group["y"][:], score_rows(read_model(folder), group["X"][:])[0][:, 0]
    return float(1 - ((y - decision) ** 2).mean() / y.var())


@pytest.mark.parametrize("how", [{"by_group": "number"}, {"by_time": "day"}, {}])
def test_a_division_after_the_import_is_as_one_before(tmp_path: Path, how: dict[str, str]) -> None:
    frame = table()
    data, ids = str(tmp_path / "all.zarr"), {"ids": ["number", "day"], "target": "y"}
    import_data(frame, data, **ids)
    parts = str(tmp_path / "tr.zarr"), str(tmp_path / "te.zarr")
    split(data, into=parts, **how)
    found = r2(*parts, tmp_path / "m")
    aside = frame.day.isin(zarr.open_group(parts[1], mode="r")["day"][:])
    before = str(tmp_path / "known.zarr"), str(tmp_path / "new.zarr")
    import_data(frame[~aside], before[0], **ids)
    import_data(frame[aside], before[1], like=before[0])
    assert found == pytest.approx(r2(*before, tmp_path / "n"), abs=0.02)
    assert found < (0.2 if "by_group" in how else 0.6), "shops explain half of the variance"


def test_groups_of_codes_stay_together(tmp_path: Path) -> None:
    frame = table().drop(columns="number")
    import_data(frame, tmp_path / "all.zarr", target="y", ids=["day"])
    parts = str(tmp_path / "tr.zarr"), str(tmp_path / "te.zarr")
    split(str(tmp_path / "all.zarr"), by_group="shop", into=parts)
    known, new = ({*SHOP[zarr.open_group(part, mode="r")["day"][:].astype(int)]} for part in parts)
    assert len(new) > 10
    assert not known & new


@pytest.mark.parametrize("how", [{"by_group": "shop"}, {"by_time": ""}, {}])
def test_data_whose_means_were_fitted_at_import_are_not_divided(tmp_path: Path, how: dict[str, str]) -> None:
    schema = Schema((Number("a"), Means("shop", ("x",), ((0.5,), (0.5,), (0.5,)))))
    group = zarr.open_group(tmp_path / "old.zarr", mode="w", attributes={ATTRIBUTE: schema.document()})
    group.create_array("X", data=X, attributes={"feature_names": ["a", "shop"]})
    group.create_array("y", data=TARGETS["continuous"])
    with pytest.raises(DataError, match=r"earlier version .* of 'shop' .* Import the source again"):
        split(str(tmp_path / "old.zarr"), **how)


def test_a_model_of_an_earlier_version_scores_old_and_new_rows(tmp_path: Path) -> None:
    """Its schema holds the means that an import fitted: `--like` follows it, and other codes are refused."""
    names = tuple(f"shop {i:03d}" for i in range(SHOPS))
    table_of = tuple((float(np.float32(i / 7)),) for i in range(SHOPS + 2))
    schema = Schema((Number("a"), Means("shop", names, table_of)))
    assert Schema((TargetCodes("shop", names),)).document() != Schema((schema.columns[1],)).document()
    y = TARGETS["binary"]
    rows = np.stack([X[:, 0], np.array(table_of)[SHOP, 0]], axis=1).astype(np.float32)
    survey = survey_rows(rows, y, None, 0, "classification")
    model = train_rows(rows, y, np.ones(N), np.ones(2), survey, make_settings(SMALL), (0, 1))
    write_model(tmp_path / "old", model, {}, {}, schema)
    frame = table()[["a", "shop"]]
    import_data(frame, tmp_path / "new.zarr", like=tmp_path / "old")
    check_same_encoding(f"{tmp_path}/new.zarr/X", open_artifact(tmp_path / "old"))
    found = zarr.open_group(tmp_path / "new.zarr", mode="r")["X"][:]
    np.testing.assert_array_equal(score_rows(model, found)[0], score_rows(model, rows)[0])
    import_data(frame, tmp_path / "codes.zarr")
    with pytest.raises(DataError, match=r"as target, not a category as means.*--like"):
        check_same_encoding(f"{tmp_path}/codes.zarr/X", open_artifact(tmp_path / "old"))
    train_data = zarr.open_group(tmp_path / "new.zarr", mode="r+")
    train_data.create_array("y", data=y)
    settings = {"task": "classification", **SMALL}
    train(f"{tmp_path}/new.zarr", tmp_path / "again", settings=settings)
    assert read_model(tmp_path / "again").scaling.targets is None


def test_systems_are_compared_on_means_of_the_training_rows(tmp_path: Path) -> None:
    y = TARGETS["multiclass"]
    data = data_set(tmp_path / "d.zarr", y)
    rows = draw_rows((f"{data}/X", f"{data}/y"), None, "classification", N, 500, 0)
    assert rows.X.shape[1] == rows.X_test.shape[1] == 4
    order = np.random.default_rng(0).permutation(N)
    held = np.sort(order[:500])
    other = np.where(np.isin(ROWS, held), (y + 1) % 3, y)
    moved = draw_rows(
        (f"{data_set(tmp_path / 'e.zarr', other)}/X", f"{tmp_path}/e.zarr/y"),
        None,
        "classification",
        N,
        500,
        0,
    )
    np.testing.assert_array_equal(rows.X, moved.X)
    np.testing.assert_array_equal(rows.X_test, moved.X_test)
    different = zarr.open_group(tmp_path / "e.zarr", mode="r+")
    different.attrs[ATTRIBUTE] = Schema((Number("a"), TargetCodes("shop", ("other",)))).document()
    with pytest.raises(DataError, match=r"not encoded as those of .*--like"):
        draw_rows(
            (f"{data}/X", f"{data}/y"),
            (f"{tmp_path}/e.zarr/X", f"{tmp_path}/e.zarr/y"),
            "classification",
            N,
            9,
            0,
        )


def test_categories_are_named_where_rows_are_explained(tmp_path: Path) -> None:
    frame = table()[["a", "shop"]]
    fitted = DCPredRegressor(n_leaves=1, landmarks=8, scaling="standard", random_state=0)
    fitted.fit(frame, TARGETS["continuous"])
    fitted.save(tmp_path / "m")
    served = load_model(tmp_path / "m")
    np.testing.assert_array_equal(served.predict(frame[:50]), fitted.predict(frame[:50]))
    for one in explain(served, frame[:5], landmarks=True):
        assert {part.name: part.value for part in one.contributions}["shop"] == frame.shop[one.row]
        part = next(part for part in one.features if part.name == "shop")
        assert part.said == frame.shop[one.row]
        assert str(part.said_of_landmark).startswith("shop ")


@pytest.mark.parametrize("read", [lambda frame: frame, lambda frame: _lazily(frame)])
def test_a_frame_is_encoded_by_its_own_rows(read: Callable[[pd.DataFrame], Any]) -> None:
    frame = table()
    X_all, y = read(frame[["a", "shop"]]), read(frame)["y"]
    fitted = DCPredRegressor(n_leaves=1, landmarks=8, scaling="standard", random_state=0).fit(X_all, y)
    np.testing.assert_allclose(
        fitted.model_.scaling.targets.table[:SHOPS, 0],
        fitted_to(TARGETS["continuous"]).encoding.table[:SHOPS, 0],
        rtol=1e-5,
    )
    assert fitted.feature_names_in_.tolist() == ["a", "shop"]


def _lazily(frame: pd.DataFrame) -> Any:
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=3)
