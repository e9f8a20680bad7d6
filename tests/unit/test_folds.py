"""Rows held out by time, by group and by splitters of scikit-learn: in searches, in what is measured on
held-out rows, and in cross-validations. Nothing that is fitted has seen them.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
    TimeSeriesSplit,
)
from zarr.dtype import VariableLengthUTF8

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.cli.main import main
from dcpred.datasets.split_rules import by_groups, by_spans, folds_of_data, folds_of_estimator, group_keys
from dcpred.training.choice import choose_settings, described, memory_training
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred.training.search import Search
from dcpred.training.trials import Trials
from dcpred_compare.rows import draw_rows, read_rows, write_rows
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.schema.column import Boolean, Codes, Number, TargetCodes
from dcpred_tasks.schema.schema import ATTRIBUTE, Schema
from dcpred_tasks.scratch import read_trial
from dcpred_tasks.training.categories import NOT_CODED, CodedFeatures
from dcpred_tasks.training.folds import FOLDS, Folds
from dcpred_tasks.training.in_memory import LabelledSample, held_by_models, train_rows
from dcpred_tasks.training.partition import learn_scaling
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.survey import survey_rows
from support.pools import inline
from support.searches import SMALL, few_candidates

N, CUSTOMERS, SHOPS = 600, 40, 150
RNG = np.random.default_rng(0)
CUSTOMER, DAY = RNG.integers(0, CUSTOMERS, N), RNG.permutation(N) // 2
SHOP = RNG.integers(0, SHOPS, N)
X = np.stack([RNG.normal(size=N), SHOP], axis=1).astype(np.float32)
CHANCE = RNG.integers(0, 2, N)  # targets that nothing knows
CODED = CodedFeatures((1,), (SHOPS + 2,))
FEW: dict[str, object] = {"n_leaves": 1, "landmarks": 4, "products": 0, "refine_steps": 10, "local_rows": 100}
BY_GROUP = by_groups(lambda: iter([group_keys(CUSTOMER)]), None, 0, "whole groups")
BY_TIME = by_spans(lambda: iter([DAY.astype(float)]), None, "the latest rows")
EITHER = pytest.mark.parametrize("folds", [BY_GROUP, BY_TIME], ids=["group", "time"])


def data_set(path: Path, y: np.ndarray, schema: Schema | None = None) -> str:
    """Rows with their customers and days beside them."""
    attributes = {} if schema is None else {ATTRIBUTE: schema.document()}
    group = zarr.open_group(path, mode="w", attributes=attributes)
    group.create_array("X", data=X, chunks=(250, 2), attributes={"feature_names": ["a", "shop"]})
    for name, values in (("y", y), ("day", DAY), ("customer", CUSTOMER)):
        group.create_array(name, data=values, chunks=(250,))
    return str(path)


# -- which rows ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), min_size=2, max_size=80), st.integers(2, 5))
def test_later_rows_are_held_out_from_earlier_ones(days: list[int], count: int) -> None:
    values = np.array(days, float)
    if len(set(days)) < 2:
        with pytest.raises(ValueError, match="same value"):
            by_spans(lambda: iter([values]), count, "")
        return
    folds = by_spans(lambda: iter([values[:1], values[1:]]), count, "")
    fold = folds.of(np.arange(len(days)))
    for one in range(folds.count):
        held, trains = values[fold == one], values[~folds.out_of(one)[folds.parts(np.arange(len(days)))]]
        assert len(held)
        assert len(trains)
        assert trains.max() < held.min(), "rows of one day are on one side"


def test_folds_say_where_there_are_fewer_than_wanted() -> None:
    values = np.arange(60) % 2
    spans = by_spans(lambda: iter([values.astype(float)]), None, "later rows")
    assert spans.words == "later rows (in 1 span and not 3, since there are only 2 values)"
    groups = by_groups(lambda: iter([group_keys(values)]), None, 0, "groups")
    assert groups.words == "groups (in 2 folds and not 4, since there are only 2 groups)"
    assert by_spans(lambda: iter([np.arange(4.0)]), 3, "later rows").words == "later rows"


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Codes("shop", tuple(f"s{i}" for i in range(SHOPS))), "categories"),
        (Boolean("shop"), "true and false"),
    ],
)
def test_what_is_in_no_order_of_time_is_no_time(column: Any, words: str, tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE, Schema((Number("a"), column)))
    for command in (["train", data, str(tmp_path / "m"), *SET], ["split", data]):
        done = run(*command, "--by-time", "shop")
        assert f"by the time 'shop': it holds {words}, which have no order in time" in done.stderr


def test_train_prints_what_is_held_out(tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    zarr.open_group(data).create_array("half", data=np.arange(N) // (N // 2), chunks=(250,))
    done = CliRunner().invoke(main, ["train", data, str(tmp_path / "m"), "--by-time", "half", *SET])
    assert "held out: the latest rows by 'half' (in 1 span and not 3" in done.stderr


def test_half_of_the_rows_train_before_any_is_held_out() -> None:
    fold = by_spans(lambda: iter([np.arange(600.0)]), 5, "").of(np.arange(600))
    np.testing.assert_allclose(np.bincount(fold + 1) / 600, [0.5, 0.1, 0.1, 0.1, 0.1, 0.1], atol=0.01)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80), st.integers(2, 5))
def test_groups_stay_whole_and_folds_alike(groups: list[int], count: int) -> None:
    keys, n_groups = group_keys(np.array(groups)), len(set(groups))
    if n_groups < 2:
        with pytest.raises(ValueError, match="one group"):
            by_groups(lambda: iter([keys]), count, 0, "")
        return
    folds = by_groups(lambda: iter([keys[:1], keys[1:]]), count, 0, "")
    part = folds.parts(np.arange(len(keys)))
    assert all(len(set(part[keys == one])) == 1 for one in set(keys.tolist())), "not even means know a group"
    sizes = np.bincount(part // 2 - 1)
    assert len(sizes) == min(count, n_groups)
    assert sizes.max() - sizes.min() <= np.unique(keys, return_counts=True)[1].max()


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3),
        GroupKFold(4),
        LeaveOneGroupOut(),
        TimeSeriesSplit(4),
        TimeSeriesSplit(3, test_size=50),
        PredefinedSplit(np.arange(N) % 4 - 1),
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_a_splitter_holds_out_what_it_does_in_scikit_learn(cv: Any) -> None:
    groups = CUSTOMER if "Group" in type(cv).__name__ else None  # Others warn of groups.
    wanted = list(cv.split(X, CHANCE, groups))
    for asked in (cv, wanted):
        folds = folds_of_estimator(asked, groups, CHANCE, N, 0)
        assert folds is not None
        for theirs, ours in zip(wanted, folds.pairs(np.arange(N)), strict=True):
            for rows, own in zip(theirs, ours, strict=True):
                np.testing.assert_array_equal(np.sort(rows), own)


@pytest.mark.parametrize(
    ("cv", "groups", "words"),
    [
        (ShuffleSplit(3), None, "twice"),
        (TimeSeriesSplit(3, gap=5), None, "without gap"),
        (TimeSeriesSplit(3, max_train_size=20), None, "without gap and max_train_size"),
        (GroupKFold(3), None, "cannot split"),
        (1, None, "from 2 to 20"),
        ("time", None, "Cannot use cv 'time'"),
        (None, CUSTOMER[:9], "Cannot use groups: their shape is"),
        (None, np.zeros(N), "all rows are of one group"),
        (GroupKFold(3), None, r"should not be None\. Pass groups to fit\.$"),
        ([([0, 1], [N])], None, rf"it holds \[{N}\], but rows have numbers from 0 to {N - 1}"),
        ([([-1, 1], [2])], None, "it holds"),
        ([([0.5, 1], [2])], None, "it holds"),
        ([[0, 1, 2]], None, "Pass pairs"),
        (
            None,
            [None, "a"] * (N // 2),
            rf"Cannot use groups: row 0 has none \({N // 2} of {N} rows have none",
        ),
        (None, ["a", np.nan] * (N // 2), "Cannot use groups: row 1 has none"),
        (GroupKFold(3), np.where(DAY[7] == DAY, np.nan, CUSTOMER), "Cannot use groups: row"),
        (3, np.ma.masked_equal(CUSTOMER, CUSTOMER[0]), "Cannot use groups: row 0 has none"),
        (3, pd.Series(CUSTOMER).astype("Int64").where(CUSTOMER[0] != CUSTOMER), "row 0 has none"),
    ],
)
def test_what_cannot_be_held_out_is_refused(cv: Any, groups: Any, words: str) -> None:
    with pytest.raises((SettingsError, DataError), match=words):
        DCPredClassifier(cv=cv).fit(X, CHANCE, groups=groups)


def test_pairs_of_masks_and_of_numbers_are_the_same_folds() -> None:
    pairs = list(KFold(3).split(X))
    masks = [tuple(np.isin(np.arange(N), rows) for rows in pair) for pair in pairs]
    found = [folds_of_estimator(cv, None, CHANCE, N, 7) for cv in (pairs, masks)]
    np.testing.assert_array_equal(found[0].unit, found[1].unit)


@pytest.mark.parametrize("name", ["when", "who"])
def test_the_command_line_refuses_rows_without_a_group(name: str, tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    group = zarr.open_group(data)
    values = np.where(np.arange(N) == 150, np.nan, CUSTOMER) if name == "when" else CUSTOMER.astype(str)
    values[150] = np.nan if name == "when" else ""
    dtype = np.float64 if name == "when" else VariableLengthUTF8()
    group.create_array(name, shape=(N,), dtype=dtype, chunks=(100,))[:] = values
    for command in (["train", data, str(tmp_path / "m"), *SET], ["split", data]):
        done = run(*command, "--by-group", name)
        assert f"by {name!r}: row 150 has no value. Fill it in" in done.stderr


def test_command_line_and_estimator_hold_out_the_same_rows(tmp_path: Path) -> None:
    x = data_set(tmp_path / "d.zarr", CHANCE) + "/X"
    for count in (None, 3):
        ours = folds_of_data(x, None, "customer", count, 7)
        theirs = folds_of_estimator(count, CUSTOMER, CHANCE, N, 7)
        assert ours is not None
        assert theirs is not None
        np.testing.assert_array_equal(ours.unit, theirs.unit)
    assert folds_of_data(x, None, None, 3, 7) == replace(folds_of_estimator(3, None, CHANCE, N, 7))
    by_time = folds_of_data(x, "day", None, None, 7)
    assert by_time is not None
    np.testing.assert_array_equal(by_time.unit, BY_TIME.unit)
    feature = folds_of_data(x, None, "shop", None, 7)
    assert feature is not None, "a feature does, too"
    some = folds_of_data(x, "day", None, None, 7, DAY < 100)
    assert some is not None
    assert DAY[some.of(np.arange(N)) >= 0].max() < 100, "of some rows alone"


# -- what a search sees --------------------------------------------------------------------------------------


def trials_by(folds: Folds, y: np.ndarray, task: str = "classification", **policy: Any) -> Trials:
    training = memory_training(X, y, np.ones(N), make_settings({"task": task}), CODED, 1, folds)
    own = replace(SMALL, **policy)
    trials = Trials(training, training.survey(None), training.workers, own, None)
    trials.prepare()
    return trials


@EITHER
def test_a_search_trains_on_no_row_of_a_held_out_group_or_time(folds: Folds) -> None:
    for policy in ({}, {"trial_rows": 300}):
        trials = trials_by(folds, CHANCE, **policy)
        for judge in (trials, trials.unseen()):
            assert judge.folds
            for fold in judge.folds:
                rows, _ = read_trial(judge.job, fold)
                trains, held = rows.number[~rows.held], rows.number[rows.held]
                assert len(held)
                if folds.ordered:
                    assert DAY[trains].max() < DAY[held].min()
                else:
                    assert not set(CUSTOMER[trains]) & set(CUSTOMER[held])


@EITHER
def test_what_a_search_trains_on_knows_no_target_that_is_held_out(folds: Folds) -> None:
    """Were means of the target those of all rows, other targets of held-out rows would change them."""
    fold, one = folds.count - 1, trials_by(folds, CHANCE)
    held = folds.of(np.arange(N)) == fold
    two = trials_by(folds, np.where(held, 1 - CHANCE, CHANCE))
    rows, others = (read_trial(trials.job, fold)[0] for trials in (one, two))
    np.testing.assert_array_equal(rows.X, others.X)
    assert (one.training.sample(one.survey).X != two.training.sample(two.survey).X).any(), "those of all do"


def test_scaling_of_a_search_knows_no_limit_of_later_rows() -> None:
    late = np.stack([DAY.astype(np.float32), X[:, 0]], axis=1)
    training = memory_training(late, CHANCE, np.ones(N), Settings(), NOT_CODED, 1, BY_TIME)
    trials = Trials(training, training.survey(None), training.workers, SMALL, None)
    trials.prepare()
    rows, survey = read_trial(trials.job, BY_TIME.count - 1)
    assert survey.maximum[0] == rows.X[~rows.held, 0].max() < late[:, 0].max()


def test_the_latest_rows_foretell_and_errors_are_those_of_spans() -> None:
    trials = trials_by(BY_TIME, CHANCE)
    with few_candidates():
        found = Search(trials).run()
        assert found is not None
        told = described(found, trials)["chosen"]
    latest = (BY_TIME.of(np.arange(N)) == BY_TIME.count - 1).sum()
    assert told["n_judged"] == latest
    assert told["held_out"] == "the latest rows"
    n = int(latest)
    assert told["standard_error"] >= 0.9 * np.sqrt(0.25 / n), "no less than of independent rows"


def test_rows_of_one_group_are_one_piece_of_evidence() -> None:
    """Each customer with one answer: 600 rows are worth 40."""
    y = RNG.integers(0, 2, CUSTOMERS)[CUSTOMER]
    trials = trials_by(BY_GROUP, y)
    with few_candidates():
        found = Search(trials).run()
        assert found is not None
        told = described(found, trials)["chosen"]
    assert told["standard_error"] > 1.3 * np.sqrt(0.25 / N)
    assert abs(told["accuracy"] - 0.5) < 4 * told["standard_error"]


# -- what is measured on held-out rows -----------------------------------------------------------------------


def held(folds: Folds, y: np.ndarray, task: str = "classification") -> Any:
    settings = make_settings({"task": task, **FEW})
    n_classes = 2 if task == "classification" else 0
    rows = LabelledSample(X, y, np.ones(N), np.empty(0))
    survey = survey_rows(X, y, None, 0, task)
    scaling = learn_scaling(X, y, rows.weight, survey, settings)
    return held_by_models(rows, survey, settings, n_classes, CODED, folds, scaling)


@EITHER
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_held_out_rows_are_judged_by_what_does_not_know_them(folds: Folds, task: str) -> None:
    y = CHANCE if task == "classification" else CHANCE + X[:, 0].astype(float)
    found = held(folds, y, task)
    assert len(found.target)
    for fold in folds.enough(np.arange(N)):
        own = folds.of(np.arange(N)) == fold
        other = held(folds, np.where(own, y.max() - y, y), task)
        start = sum(int((folds.of(np.arange(N)) == one).sum()) for one in range(fold))
        here = slice(start, start + int(own.sum()))
        np.testing.assert_allclose(found.decision[here], other.decision[here], rtol=1e-9)


@EITHER
def test_nothing_beats_chance_on_shuffled_targets(folds: Folds) -> None:
    """Four rows a shop: means that know a row's own target tell it in most cases."""
    found = held(folds, CHANCE)
    right = float(((found.decision[:, 0] > 0) == found.target).mean())
    assert abs(right - 0.5) < 3.5 * np.sqrt(0.25 / len(found.target))
    with few_candidates():
        given_rows = X, CHANCE, np.ones(N), Settings(), CODED
        _, told = choose_settings(*given_rows, policy=SMALL, folds=folds)
    chosen = told["chosen"]
    assert abs(chosen["accuracy"] - 0.5) < 3.5 * max(
        chosen["standard_error"], np.sqrt(0.25 / chosen["n_judged"])
    )
    survey = survey_rows(X, CHANCE, None, 0, "classification")
    settings = make_settings(FEW)
    given = X, CHANCE, np.ones(N), np.empty(0), survey, settings, (0, 1)
    model = train_rows(*given, coded=CODED, folds=folds)
    assert model.uncertainty is not None
    assert model.uncertainty.calibration is not None
    p = model.uncertainty.calibration.free(
        model.uncertainty.calibration.scores(np.linspace(-1, 1, 9)[:, None])
    )
    assert np.abs(p[:, 1] - 0.5).max() < 0.15, "and no probability says otherwise"


def test_intervals_hold_where_groups_differ() -> None:
    """Targets that are all the customer's: of new customers nothing is known, and intervals say so."""
    rng = np.random.default_rng(0)
    trait, level = rng.normal(size=(80, 2)), rng.normal(size=80)
    customer = rng.integers(0, 80, 1_600)
    rows, y = trait[customer].astype(np.float32), level[customer] + 0.05 * rng.normal(size=1_600)
    new = customer >= 60
    covered = []
    for groups in (None, customer[~new]):
        model = DCPredRegressor(n_leaves=1, landmarks=64, random_state=0)
        model.fit(rows[~new], y[~new], groups=groups)
        low, high = model.predict_interval(rows[new], 0.1).T
        covered.append(float(((low <= y[new]) & (y[new] <= high)).mean()))
    assert covered[0] < 0.6
    assert covered[1] > 0.8


@EITHER
def test_training_on_workers_measures_the_same(folds: Folds, tmp_path: Path) -> None:
    names = tuple(f"shop {i:03d}" for i in range(SHOPS))
    data = data_set(tmp_path / "d.zarr", CHANCE, Schema((Number("a"), TargetCodes("shop", names))))
    settings = make_settings(FEW)
    fit_model(TrainingRequest(f"{data}/X", f"{data}/y", tmp_path / "m", settings, inline, folds=folds))
    survey = survey_rows(X, CHANCE, None, 0, "classification")
    given = X, CHANCE, np.ones(N), np.empty(0), survey, settings, (0, 1)
    own, found = train_rows(*given, coded=CODED, folds=folds), read_model(tmp_path / "m")
    np.testing.assert_allclose(found.scaling.targets.table, own.scaling.targets.table, rtol=1e-6)
    for name in ("knot", "value", "share"):
        ours, theirs = (getattr(model.uncertainty.calibration, name) for model in (own, found))
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-3)


# -- commands ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())


def run(*args: str) -> Any:
    return CliRunner().invoke(main, [*args, "-q"])


SET = ["--set", "n_leaves=1", "--set", "landmarks=4", "--set", "refine_steps=5"]


def test_validate_foretells_by_group_and_by_time(tmp_path: Path) -> None:
    y = ((X[:, 0] > 0) ^ (np.random.default_rng(1).random(N) < 0.1)).astype(np.int64)
    data = data_set(tmp_path / "d.zarr", y)
    for option in (["--by-group", "customer"], ["--by-time", "day"], []):
        done = run("validate", data, *option, "--folds", "3", *SET, "--json")
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert len(report["folds"]) == 3
        assert report["metric"] == "accuracy"
        assert report["mean"] == pytest.approx(np.mean([one["quality"] for one in report["folds"]]))
        assert report["mean"] == pytest.approx(0.9, abs=0.06)
        assert all(one["n_train"] + one["n_held_out"] <= N for one in report["folds"])
        assert all(one["predicted"] is None for one in report["folds"]), "settings were given"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.zarr"], "nothing is kept"


def test_validate_counts_the_rows_that_train(tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    lines = CliRunner().invoke(main, ["validate", data, "--folds", "2", *SET]).stderr.splitlines()
    said = [re.search(r"training on (\d+) rows|(\d+) rows train", line) for line in lines]
    assert sum(int(words[1] or words[2]) for words in said if words) == N, "each row trains once"


def test_validate_shows_what_searches_foretold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.training.policy.STANDARD", SMALL)
    data = data_set(tmp_path / "d.zarr", (X[:, 0] > 0).astype(np.int64))
    with few_candidates():
        done = run("validate", data, "--by-group", "customer", "--folds", "2")
    assert done.exit_code == 0, done.output
    assert re.search("held out +whole groups of 'customer'", done.stdout)
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("fold 1"))
    head, first, second, mean = lines[at - 1 : at + 3]
    assert head.split()[-1] == "predicted"
    assert [line[:6].strip() for line in (first, second, mean)] == ["fold 1", "fold 2", "mean"]
    assert all(line.count("%") >= 3 for line in (first, second, mean))


def test_validate_refuses_a_fold_of_one_class_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.training.fit.fit_model", None)
    data = data_set(tmp_path / "d.zarr", (np.arange(N) == 5).astype(np.int64))
    done = run("validate", data, "--folds", "3", *SET, "--metric", "roc_auc")
    assert re.search(rf"^.*Cannot compute roc_auc: .*[(]of {N} rows 1 have the rarest", done.stderr), (
        done.stderr
    )


@pytest.mark.parametrize("command", ["train", "tune", "validate"])
def test_columns_that_cannot_be_used_are_named(command: str, tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    model = [] if command == "validate" else [str(tmp_path / "m")]
    for option, words in (
        (["--by-time", "nothing"], "'nothing'"),
        (["--by-group", "customer", "--by-time", "day"], "exclude each other"),
    ):
        done = run(command, data, *model, *option)
        assert done.exit_code not in (0, 1)
        assert words in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_model_by_time_is_another_training(tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    assert run("train", data, str(tmp_path / "m"), "--by-time", "day", *SET).exit_code == 0
    assert run("train", data, str(tmp_path / "m"), "--by-time", "day", *SET).exit_code == 0, "it is there"
    other = run("train", data, str(tmp_path / "m"), *SET)
    assert other.exit_code != 0
    assert "other data or settings" in other.stderr


def test_a_comparison_holds_out_by_time_and_by_group(tmp_path: Path) -> None:
    data = data_set(tmp_path / "d.zarr", CHANCE)
    group = zarr.open_group(data)
    group["X"][:, 0] = DAY
    group["X"][:, 1] = CUSTOMER
    given = (f"{data}/X", f"{data}/y"), None, "classification", 400, 100, 0
    for by in (("day", None), (None, "customer")):
        rows = draw_rows(*given, *by)
        write_rows(tmp_path, rows)
        for own in (rows, read_rows(tmp_path)):
            pairs = own.held_out()
            assert pairs is not None
            sides = [(own.X, own.X_test), *((own.X[a], own.X[b]) for a, b in pairs)]
            for trains, held_rows in sides:
                if by[0]:
                    assert trains[:, 0].max() < held_rows[:, 0].min()
                else:
                    assert not set(trains[:, 1]) & set(held_rows[:, 1])
    assert draw_rows(*given).held_out() is None


def test_as_many_folds_as_are_asked_for() -> None:
    assert set(Folds(0, 7).of(np.arange(N))) == set(range(7))
    assert Folds(0).count == FOLDS
    trials = trials_by(Folds(0, 7), CHANCE)
    assert len(trials.held) == 7
