"""Trials of settings in one leaf."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dcpred_tasks.training.sampling import drawn
from dcpred_tasks.training.settings import SETTING_NAMES, Settings
from dcpred_tasks.training.trial import (
    FOLDS,
    NOT_OF_LANDMARKS,
    NOT_OF_MACHINES,
    TrialRows,
    Verdict,
    folds_of,
    rare_folds,
    try_leaf,
)

SETTINGS = Settings(gamma=1.0, head_gamma=0.5, landmarks=8, products=0)


def moons(n: int, seed: int, rank: int = 0) -> TrialRows:
    rng = np.random.default_rng(seed)
    target = np.arange(n) % 2
    angle = rng.uniform(0, np.pi, n)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(target, 1, -1)[:, None]
    X = (X + np.where(target, 0.5, 0.0)[:, None] + rng.normal(0, 0.1, (n, 2))).astype(np.float32)
    number = np.arange(n) + 10_000 * rank
    return TrialRows(X, target, np.ones(n), number, np.full(n, rank), folds_of(number, SETTINGS.seed))


def held_out(number: np.ndarray, seed: int, fold: int = 0) -> np.ndarray:
    return folds_of(number, seed) == fold


def join(*parts: TrialRows) -> TrialRows:
    return TrialRows(
        *(
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("X", "target", "weight", "number", "rank", "fold")
        )
    )


def test_better_settings_are_judged_better() -> None:
    rows = moons(400, 0)
    tries = [SETTINGS, replace(SETTINGS, gamma=1e-6, head_gamma=1e-6), replace(SETTINGS, landmarks=1)]
    good, flat, one = try_leaf(rows, tries, 1, 0)
    assert good.hard < 0.05
    assert good.hard < min(flat.hard, one.hard)
    assert good.soft < min(flat.soft, one.soft)


def test_local_machines_are_shared_only_by_those_that_want_the_same() -> None:
    """Of as many rows: landmarks near one of 20 rows are others than near one of all."""
    near = replace(SETTINGS, loss="distance", head_gamma=0.0)
    rows, tries = moons(400, 0), [near, replace(near, local_rows=20), replace(near, gamma=4.0)]
    together = try_leaf(rows, tries, 1, 0)
    assert together == [try_leaf(rows, [one], 1, 0)[0] for one in tries]
    assert len(set(together)) == len(tries)


def test_held_out_rows_do_not_train() -> None:
    """Labels without any pattern: what trained on them would know them."""
    rng = np.random.default_rng(0)
    rows = replace(moons(300, 0), target=rng.integers(0, 2, 300))
    verdict = try_leaf(rows, [replace(SETTINGS, gamma=50.0, head_gamma=50.0, landmarks=300, C=1e4)], 1, 0)[0]
    assert 0.3 < verdict.hard < 0.7


def test_halo_rows_train_and_are_not_judged() -> None:
    near = join(moons(40, 0), replace(moons(400, 1, rank=1), number=np.arange(400) + 5_000))
    alone, helped = try_leaf(
        near, [replace(SETTINGS, overlap=1), replace(SETTINGS, overlap=2, halo_weight=1.0)], 1, 0
    )
    assert helped.soft < alone.soft
    wrong = replace(near, target=np.where(near.rank > 0, 1 - near.target, near.target))
    assert try_leaf(wrong, [replace(SETTINGS, overlap=1)], 1, 0)[0] == alone, (
        "beyond the overlap they are not there"
    )
    assert try_leaf(wrong, [replace(SETTINGS, overlap=2, halo_weight=1.0)], 1, 0)[0].hard > 0.5


def test_a_verdict_does_not_depend_on_what_else_is_tried() -> None:
    rows = moons(200, 0)
    tries = [SETTINGS, replace(SETTINGS, C=1.0), replace(SETTINGS, guide=1.0), replace(SETTINGS, landmarks=4)]
    together = try_leaf(rows, tries, 1, 3)
    assert together == [try_leaf(rows, [one], 1, 3)[0] for one in tries]
    assert together == try_leaf(rows, tries[::-1], 1, 3)[::-1]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_leaf_with_too_few_rows_is_not_judged(n: int) -> None:
    verdict = try_leaf(moons(n, 0), [SETTINGS], 1, 0)[0]
    assert np.isnan(verdict.soft)
    assert np.isnan(verdict.hard)


def test_constant_leaves_are_judged_by_their_class() -> None:
    rows = replace(moons(40, 0), target=np.ones(40, np.int64))
    assert try_leaf(rows, [SETTINGS], 1, 0)[0].hard == 0.0
    several = replace(rows, target=np.full(40, 2))
    assert try_leaf(several, [SETTINGS], 4, 0)[0].hard == 0.0


def test_regression_is_judged_by_its_squared_error() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
    target = np.sin(3 * X[:, 0].astype(float))
    rows = replace(moons(400, 0), X=X, target=target)
    settings = replace(SETTINGS, task="regression", ridge=1e-3)
    good, poor = try_leaf(rows, [settings, replace(settings, landmarks=1)], 1, 0)
    assert good == Verdict(good.hard, good.hard, good.variance)
    assert 0 < good.variance < good.hard**2
    assert good.hard < 0.01 < 0.1 < poor.hard


def test_the_variance_of_an_error_is_that_of_a_mean_of_rows() -> None:
    labels = np.random.default_rng(3).integers(0, 2, 4_000)
    verdict = try_leaf(replace(moons(4_000, 0), target=labels), [SETTINGS], 1, 0)[0]
    n = int(held_out(np.arange(4_000), SETTINGS.seed).sum())
    assert verdict.variance == pytest.approx(verdict.hard * (1 - verdict.hard) / n)
    assert abs(verdict.hard - 0.5) < 4 * verdict.variance**0.5


def test_three_classes_and_row_weights() -> None:
    rows = join(
        moons(100, 0), replace(moons(100, 1), target=np.full(100, 2), X=moons(100, 1).X + np.float32(6))
    )
    rows = replace(rows, number=np.arange(200))
    verdict = try_leaf(rows, [SETTINGS], 3, 0)[0]
    assert verdict.hard < 0.1
    weighted = replace(rows, weight=np.where(rows.target == 2, 1.0, 1e-9))
    assert try_leaf(weighted, [SETTINGS], 3, 0)[0].hard < 1e-6


def test_every_row_is_held_out_once() -> None:
    held = np.array([held_out(np.arange(10_000), 5, fold) for fold in range(FOLDS)])
    assert (held.sum(axis=0) == 1).all()
    assert held.mean(axis=1) == pytest.approx(np.full(FOLDS, 0.25), abs=0.02)


def test_every_class_is_held_out_and_trains_in_each_fold() -> None:
    for seed in range(40):
        number, target = np.arange(3_000), np.arange(3_000) % 2
        target[np.random.default_rng(seed).choice(3_000, 10, replace=False)] = 2
        rare = rare_folds(number, target, seed)
        assert (rare[0] == np.flatnonzero(target == 2)).all(), "the others are left to chance"
        fold = folds_of(number, seed, rare)
        counts = np.bincount(fold[target == 2], minlength=FOLDS)
        assert set(counts) == {2, 3}
        some = np.random.default_rng(seed).permutation(3_000)[:500]
        assert (folds_of(some, seed, rare) == fold[some]).all(), "wherever a row lies"
        others = target != 2
        assert (fold == folds_of(number, seed))[others].all(), "as they were"


def test_a_class_of_a_row_or_two_trains_in_the_first_fold() -> None:
    for m in (1, 2):
        target = np.r_[np.zeros(100, int), np.ones(m, int)]
        fold = folds_of(np.arange(100 + m), 7, rare_folds(np.arange(100 + m), target, 7))
        assert (fold[100:] != 0).any()


def test_a_row_is_held_out_wherever_it_lies() -> None:
    numbers = np.arange(100, 400)
    some = np.random.default_rng(0).permutation(300)[:120]
    assert (held_out(numbers, 3)[some] == held_out(numbers[some], 3)).all()


def test_each_fold_has_a_verdict_of_its_own() -> None:
    rows = moons(90, 0)
    assert len({try_leaf(rows, [SETTINGS], 1, 5, fold)[0].soft for fold in range(FOLDS)}) == FOLDS


def test_a_fold_without_rows_is_not_judged() -> None:
    six = moons(6, 0)
    empty = [fold for fold in range(FOLDS) if not held_out(six.number, SETTINGS.seed, fold).any()]
    assert empty, "six rows, of which each fold should have one and a half"
    assert all(np.isnan(try_leaf(six, [SETTINGS], 1, 5, fold)[0].hard) for fold in empty)


def test_a_share_of_the_rows_trains_and_the_same_are_judged() -> None:
    rows = moons(2_000, 0)
    rows = replace(rows, target=np.where(np.random.default_rng(1).random(2_000) < 0.2, 0, rows.target))
    full, again, tenth = (try_leaf(rows, [SETTINGS], 1, 5, 0, share)[0] for share in (1.0, 1.0, 0.1))
    assert full == again
    assert tenth != full
    few = np.flatnonzero(held_out(rows.number, SETTINGS.seed) | drawn(rows.number, 1, 0.1, SETTINGS.seed + 3))
    assert tenth == try_leaf(rows.take(few), [SETTINGS], 1, 5)[0]


@pytest.mark.parametrize(
    "changes",
    [
        *({"kernel": "laplacian"}, {"degree": 3}, {"coef0": 0.1}, {"seed": 5}, {"C": 0.01}),
        *({"refine": False}, {"overlap": 2}, {"halo_weight": 1.0}, {"landmarks": 2}, {"products": 3}),
        {"landmark_floor": 1.0},
    ],
    ids=str,
)
def test_settings_share_only_what_none_of_them_changes(changes: dict[str, Any]) -> None:
    """Whatever differs between two tries: each gets the errors that it gets alone."""
    polynomial = {"degree", "coef0"} & changes.keys()
    first = replace(SETTINGS, kernel="polynomial", products=0, local_rows=60) if polynomial else SETTINGS
    first = replace(first, local_rows=60, landmarks=4)
    tries = [first, replace(first, **changes)]
    rows = join(moons(160, 0), moons(80, 1, rank=1))
    assert try_leaf(rows, tries, 1, 0) == [try_leaf(rows, [one], 1, 0)[0] for one in tries]


def test_a_setting_that_nobody_has_looked_at_is_part_of_every_key() -> None:
    assert set(SETTING_NAMES) > NOT_OF_MACHINES > NOT_OF_LANDMARKS
