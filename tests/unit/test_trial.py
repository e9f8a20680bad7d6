"""Trials: which rows are held out, and models of the others that predict them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dcpred.serving.cost import predict_cost
from dcpred.training.policy import cost_of
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.folds import FOLDS, Folds, rare_folds
from dcpred_tasks.training.in_memory import (
    BOOSTING,
    KERNEL,
    REFERENCES,
    Trial,
    TrialRows,
    fit_trial_scaling,
    leaves_of_share,
    reference_decisions,
    shape_of,
    tried_decisions,
    tried_model,
)
from dcpred_tasks.training.settings import TASKS, Settings
from dcpred_tasks.training.survey import Survey, thinned
from support.searches import trials_of

SETTINGS = Settings(n_leaves=1, gamma=1.0, compact_gamma=0.5, landmarks=8, products=0)


def moons(n: int, seed: int) -> TrialRows:
    rng = np.random.default_rng(seed)
    target = np.arange(n) % 2
    angle = rng.uniform(0, np.pi, n)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(target, 1, -1)[:, None]
    X = (X + np.where(target, 0.5, 0.0)[:, None] + rng.normal(0, 0.1, (n, 2))).astype(np.float32)
    held, every = Folds(SETTINGS.seed).of(np.arange(n)) == 0, np.ones(n, bool)
    return TrialRows(X, target, np.ones(n), np.arange(n), held, every, every, every)


def survey_of(rows: TrialRows, task: str = "classification") -> Survey:
    return trials_of(rows.X, rows.target, settings=Settings(task=task)).survey


def decided(rows: TrialRows, settings: Settings = SETTINGS, *, spread: bool = False) -> np.ndarray:
    """Decision values of the held-out rows."""
    survey = survey_of(rows, settings.task)
    scaling = fit_trial_scaling(rows, survey, settings).scaling
    return tried_decisions(rows, survey, Trial(settings, spread), scaling)[0]


def wrong(rows: TrialRows, settings: Settings = SETTINGS, *, spread: bool = False) -> float:
    return float((class_numbers(decided(rows, settings, spread=spread)) != rows.target[rows.held]).mean())


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_share_of_the_rows_trains_scalings_and_models(share: float) -> None:
    """The same rows of both, and a smaller share is a part of a larger one."""
    rows, settings = moons(800, 1), replace(SETTINGS, scaling="learned")
    survey, train = survey_of(rows), np.flatnonzero(~rows.held)
    part = train[thinned(rows.number[train], int(share * len(train)), settings.seed)]
    few = rows.take(np.sort(np.concatenate([part, np.flatnonzero(rows.held)])))
    scalings = [fit_trial_scaling(given, survey, settings, share=s) for given, s in ((rows, share), (few, 1))]
    factors = [fitted.scaling.factor for fitted in (*scalings, fit_trial_scaling(rows, survey, settings))]
    np.testing.assert_array_equal(*factors[:2])
    assert (factors[1] != factors[2]).any()
    whole, alone = (
        tried_decisions(given, survey, Trial(settings, spread=False, share=s), scaling.scaling)[0]
        for given, s, scaling in zip((rows, few), (share, 1.0), scalings, strict=True)
    )
    np.testing.assert_array_equal(whole, alone)


# -- folds ---------------------------------------------------------------------------------------------------


def test_every_row_is_held_out_once() -> None:
    fold = Folds(5).of(np.arange(10_000))
    assert np.bincount(fold) / 10_000 == pytest.approx(np.full(FOLDS, 0.25), abs=0.02)
    assert (Folds(6).of(np.arange(10_000)) != fold).any(), "other seeds hold others out"


def test_a_row_is_held_out_wherever_it_lies() -> None:
    numbers = np.arange(100, 400)
    some = np.random.default_rng(0).permutation(300)[:120]
    assert (Folds(3).of(numbers)[some] == Folds(3).of(numbers[some])).all()


def test_every_class_is_held_out_and_trains_in_each_fold() -> None:
    for seed in range(40):
        number, target = np.arange(3_000), np.arange(3_000) % 2
        target[np.random.default_rng(seed).choice(3_000, 10, replace=False)] = 2
        rare = rare_folds(number, target, seed)
        assert (rare[0] == np.flatnonzero(target == 2)).all(), "the others are left to chance"
        fold = Folds(seed).of(number, rare)
        assert set(np.bincount(fold[target == 2], minlength=FOLDS)) == {2, 3}
        some = np.random.default_rng(seed).permutation(3_000)[:500]
        assert (Folds(seed).of(some, rare) == fold[some]).all(), "wherever a row lies"
        others = target != 2
        assert (fold == Folds(seed).of(number))[others].all(), "as they were"


def test_a_class_of_a_row_or_two_trains_in_the_first_fold() -> None:
    for m in (1, 2):
        target = np.r_[np.zeros(100, int), np.ones(m, int)]
        fold = Folds(7).of(np.arange(100 + m), rare_folds(np.arange(100 + m), target, 7))
        assert (fold[100:] != 0).any()


# -- models --------------------------------------------------------------------------------------------------


def test_better_settings_have_fewer_wrong_rows() -> None:
    rows = moons(400, 0)
    flat, one = replace(SETTINGS, gamma=1e-6, compact_gamma=1e-6), replace(SETTINGS, landmarks=1)
    assert wrong(rows) < 0.05
    assert wrong(rows) < min(wrong(rows, flat), wrong(rows, one))


def test_held_out_rows_do_not_train() -> None:
    """Neither the model nor the scaling: what is other there changes nothing of either."""
    rows, rng = moons(300, 0), np.random.default_rng(0)
    noise = replace(rows, target=rng.integers(0, 2, 300))
    sharp = replace(SETTINGS, gamma=50.0, compact_gamma=50.0, landmarks=300, C=1e4)
    assert 0.3 < wrong(noise, sharp) < 0.7, "what trained on them would know them"
    other = replace(rows, X=np.where(rows.held[:, None], 9 * rows.X, rows.X))
    survey = survey_of(rows)
    learned = replace(SETTINGS, scaling="learned")
    scalings = [fit_trial_scaling(one, survey, learned).scaling for one in (rows, other)]
    assert scalings[0].factor.tolist() == scalings[1].factor.tolist()
    models = [tried_model(one, survey, Trial(learned, False), scalings[0]) for one in (rows, other)]
    assert np.array_equal(models[0].beta, models[1].beta)


def test_rows_of_cells_or_rows_from_everywhere_train() -> None:
    """Held-out rows are the same."""
    rows = moons(400, 0)
    cell = np.arange(400) < 250
    spoilt = replace(rows, target=np.where(cell, 1 - rows.target, rows.target))
    spoilt = replace(spoilt, cell=cell, spread=~cell, held=rows.held & cell)
    assert wrong(spoilt) < 0.1
    assert wrong(spoilt, spread=True) > 0.9
    survey = survey_of(rows)
    for spread, own in ((False, cell), (True, ~cell)):
        scaling = fit_trial_scaling(spoilt, survey, SETTINGS).scaling
        model = tried_model(spoilt, survey, Trial(SETTINGS, spread), scaling)
        assert model.leaf_rows.sum() == (own & ~spoilt.held).sum()


def test_leaves_are_as_large_as_in_training() -> None:
    """A part of the rows has a part of the leaves."""
    rows = moons(1_000, 0)
    settings = replace(SETTINGS, n_leaves=16, min_leaf_rows=1)
    survey = survey_of(rows)
    scaling = fit_trial_scaling(rows, survey, settings).scaling
    fourth = replace(rows, cell=np.arange(1_000) < 250)
    assert tried_model(rows, survey, Trial(settings, False), scaling).n_leaves == 16
    assert tried_model(fourth, survey, Trial(settings, False), scaling).n_leaves == 4
    assert [leaves_of_share(16, share) for share in (1.0, 0.7, 0.5, 0.01, 100.0)] == [16, 8, 8, 1, 2048]


def test_the_shape_of_a_model_is_what_its_cost_follows_from() -> None:
    rows, survey = moons(400, 0), survey_of(moons(400, 0))
    scaling = fit_trial_scaling(rows, survey, SETTINGS).scaling
    found = shape_of(tried_model(rows, survey, Trial(SETTINGS, False), scaling))
    assert found.tolist() == [1.0, 8.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    pure = replace(rows, target=np.where(rows.held, rows.target, 0))
    assert shape_of(tried_model(pure, survey, Trial(SETTINGS, False), scaling))[0] == 0.0


@pytest.mark.parametrize("far", [1.0, 1e5])
def test_a_tree_that_is_uneven_or_has_close_centres_costs_what_its_model_does(far: float) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.exponential(size=(3_000, 2)) ** 3, rng.normal(size=3_000)]).astype(np.float32)
    X[::2, 2] += far
    settings = Settings(
        n_leaves=64, min_leaf_rows=8, max_leaf_rows=60, landmarks=4, scaling="none", refine=False
    )
    rows = replace(moons(3_000, 0), X=X, target=(X[:, 0] > 1).astype(np.int64))
    scaling = fit_trial_scaling(rows, survey_of(rows), settings).scaling
    model = tried_model(rows, survey_of(rows), Trial(settings, False), scaling)
    exact, shape = predict_cost(model), shape_of(model)
    assert shape[5] == (far > 1), "both ways to walk"
    assert shape[4] > 1.2, "uneven"
    own = replace(settings, n_leaves=model.n_leaves)
    assert cost_of(own, model.scaling, 1, shape).descend == pytest.approx(exact.descend, rel=0.1)


@pytest.mark.parametrize("settings", [{"landmarks": 4}, {"landmarks": 0, "trees": 10, "n_leaves": 1}])
def test_a_model_of_many_classes_costs_what_its_shape_says(settings: dict[str, Any]) -> None:
    """Also of those that a leaf has no rows of: decision values of all begin and end."""
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(2_000, 3)).astype(np.float32), moons(2_000, 0)
    rows = replace(rows, X=X, target=np.searchsorted(np.linspace(-1.5, 1.5, 17), X[:, 0]))
    survey = replace(survey_of(rows), classes=np.arange(18.0))
    own = replace(SETTINGS, **{"n_leaves": 16, "min_leaf_rows": 1, "refine": True, **settings})
    scaling = fit_trial_scaling(rows, survey, own).scaling
    model = tried_model(rows, survey, Trial(own, False), scaling)
    cost = cost_of(replace(own, n_leaves=model.n_leaves), model.scaling, 18, shape_of(model))
    assert cost.outputs == pytest.approx(predict_cost(model).outputs, rel=0.2)
    assert cost.ns_per_row == pytest.approx(predict_cost(model).ns_per_row, rel=0.15)


def test_numbers_are_predicted_within_what_trained() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
    rows = replace(moons(400, 0), X=X, target=np.sin(3 * X[:, 0].astype(float)))
    settings = replace(SETTINGS, task="regression", ridge=1e-3)
    error = decided(rows, settings)[:, 0] - rows.target[rows.held]
    assert np.sqrt((error**2).mean()) < 0.1
    far = replace(rows, X=np.where(rows.held[:, None], np.float32(100.0), X))
    known = rows.target[~rows.held]
    assert known.min() <= decided(far, settings).min() <= decided(far, settings).max() <= known.max()


def test_three_classes_and_row_weights() -> None:
    rows = moons(400, 0)
    third = np.arange(400) % 4 == 3
    rows = replace(rows, target=np.where(third, 2, rows.target), X=rows.X + np.float32(6) * third[:, None])
    assert wrong(rows) < 0.1
    noise = np.random.default_rng(5).random(400) < 0.5
    flipped = replace(rows, target=np.where(noise & ~rows.held, (rows.target + 1) % 3, rows.target))
    weighted = replace(flipped, weight=np.where(noise, 1e-6, 1.0))
    assert wrong(weighted) < 0.1 < wrong(flipped), "rows without weight do not count"


# -- references ----------------------------------------------------------------------------------------------


def referred(rows: TrialRows, name: str, n_classes: int = 2, *, most: int = 10_000) -> np.ndarray:
    task = "classification" if n_classes else "regression"
    with one_thread():  # as in a task
        return reference_decisions(rows, name, task, n_classes, most, 0)


@pytest.mark.parametrize("name", [BOOSTING, KERNEL])
def test_reference_models_know_classes_and_numbers(name: str) -> None:
    """With missing values, more classes than train, and a feature that is nowhere there."""
    rows = moons(400, 0)
    X = np.where(np.random.default_rng(0).random(rows.X.shape) < 0.02, np.nan, rows.X)
    rows = replace(rows, X=np.hstack([X, np.full((400, 1), np.nan)]).astype(np.float32))
    target = rows.target[rows.held]
    two = referred(rows, name)
    assert two.shape == (len(target), 1)
    assert (class_numbers(two) == target).mean() > 0.9
    four = referred(rows, name, 4)
    assert four.shape == (len(target), 4)
    assert (class_numbers(four) == target).mean() > 0.9
    third = replace(rows, target=np.where(np.arange(400) % 7 == 0, 2, rows.target))
    assert referred(third, name, 3).shape == (len(target), 3)
    nothing = replace(rows, X=np.full_like(rows.X, np.nan))
    assert len(np.unique(referred(nothing, name))) == 1
    numbers = replace(rows, target=1e6 + 1e3 * rows.X[:, 0].astype(float))
    numbers = replace(numbers, target=np.nan_to_num(numbers.target, nan=1e6))
    found = referred(numbers, name, 0)[:, 0]
    assert np.corrcoef(found, numbers.target[rows.held])[0, 1] > 0.9
    assert set(REFERENCES) == {(one, task) for one in (BOOSTING, KERNEL) for task in TASKS}


@pytest.mark.parametrize("name", [BOOSTING, KERNEL])
def test_reference_models_of_one_class_or_one_value_know_it(name: str) -> None:
    rows = replace(moons(200, 0), target=np.ones(200, int))
    for n_classes in (2, 3):
        assert (class_numbers(referred(rows, name, n_classes)) == 1).all()
    assert referred(replace(rows, target=np.full(200, 3.5)), name, 0) == pytest.approx(3.5)


@pytest.mark.parametrize("name", [BOOSTING, KERNEL])
def test_reference_models_do_not_train_on_held_out_rows_and_count_weights(name: str) -> None:
    rows = moons(400, 0)
    other = replace(rows, target=np.where(rows.held, 1 - rows.target, rows.target))
    assert (referred(rows, name) == referred(other, name)).all()
    noise = np.random.default_rng(5).random(400) < 0.6
    flipped = replace(rows, target=np.where(noise & ~rows.held, 1 - rows.target, rows.target))
    right = rows.target[rows.held]
    assert (class_numbers(referred(flipped, name)) == right).mean() < 0.7
    weighted = replace(flipped, weight=np.where(noise, 1e-6, 1.0))
    assert (class_numbers(referred(weighted, name)) == right).mean() > 0.9
    assert (referred(rows, name, most=50) != referred(rows, name)).any()
