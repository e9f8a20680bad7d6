"""Losses of numbers that outliers move little, and quantiles: on whole leaves and models."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from dcpred import DCPredRegressor
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.held_out import HeldOut, at_level
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.losses import (
    CHOICES,
    LOSSES,
    NUMBERS,
    Huber,
    Quantile,
    Squares,
    loss_from_settings,
    loss_tasks,
    weighted_quantile,
)
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import LeafRows, local_machine
from support.objectives import Doubles
from support.setting_words import regressor_with

SEEDS = range(3)


def table(seed: int, n: int = 4_000) -> tuple[Doubles, Doubles, Doubles, np.random.Generator]:
    """Rows, their mean and noise, which is larger in one half of them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 5))
    mean = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2
    return X, mean, np.where(X[:, 3] > 0, 0.5, 0.2) * rng.normal(size=n), rng


def regressor(**given: Any) -> DCPredRegressor:
    few = {"n_leaves": 2, "landmarks": 12, "calibrate": False, "random_state": 0}
    return regressor_with(**(few | given))


@cache
def wrong(seed: int) -> Doubles:
    """What the mean of the first rows predicts for the others."""
    X, mean, noise, _ = table(seed)
    return regressor().fit(X[:2_000], (mean + noise)[:2_000]).predict(X[2_000:])


@pytest.mark.parametrize("seed", SEEDS)
def test_outliers_move_huber_and_the_median_little(seed: int) -> None:
    """One training row of twenty is off by tens of standard deviations; clean rows are judged."""
    X, mean, noise, rng = table(seed)
    y = mean + noise
    out = rng.random(2_000) < 0.05
    y[:2_000][out] += 10 + 30 * rng.normal(size=out.sum())
    errors = {}
    for loss in ("hinge", "huber", "quantile"):
        off = regressor(loss=loss).fit(X[:2_000], y[:2_000]).predict(X[2_000:])
        off -= mean[2_000:]
        errors[loss] = np.abs(off).mean(), np.sqrt((off**2).mean())
    for loss in ("huber", "quantile"):
        assert errors[loss][0] < 0.4 * errors["hinge"][0]
        assert errors[loss][1] < 0.4 * errors["hinge"][1]


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_quantile_has_its_level_on_new_rows(level: float) -> None:
    """In the mean of three tables, and within each; and a lower loss than the mean."""
    below, gains = [], []
    for seed in SEEDS:
        X, mean, noise, _ = table(seed)
        y = mean + noise
        model = regressor(loss="quantile", quantile=level).fit(X[:2_000], y[:2_000])
        assert model.settings_.get("quantile", 0.5) == level
        found = model.predict(X[2_000:])
        below.append(np.mean(y[2_000:] < found))
        off = [y[2_000:] - values for values in (found, wrong(seed))]
        gains.append(np.diff([np.maximum(level * r, (level - 1) * r).mean() for r in off]))
    assert np.mean(below) == pytest.approx(level, abs=0.03)
    np.testing.assert_allclose(below, level, atol=0.06)
    if level != 0.5:
        assert np.min(gains) > 0


@pytest.mark.parametrize("loss", ["huber", "quantile"])
@pytest.mark.parametrize("far", [1e3, 1e12, 1e150])
def test_an_outlier_however_far_changes_the_others_little(loss: str, far: float) -> None:
    """Squares of the farthest overflow single precision, and products of them double precision."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0].astype(float)) + 1e3
    kernel = Kernel("rbf", 0.5)
    settings = Settings(task="regression", loss=loss, landmarks=12)
    y[7] = far
    leaf = fit_leaf(X, y, np.ones(400), 1, Kernels(kernel, kernel), settings, 0)
    for part, array in vars(leaf).items():
        assert np.isfinite(array).all(), part
    value = kernel(X, leaf.landmarks, leaf.gamma) @ leaf.beta[: len(leaf.gamma)]
    products = np.prod(kernel(X, leaf.landmarks, leaf.gamma)[:, leaf.pairs], axis=2)
    value += products @ leaf.beta[len(leaf.gamma) :]
    off = np.abs(value[:, 0] + leaf.intercept[0] - y)
    assert np.median(off) < 0.1


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_the_local_machine_has_the_same_loss(loss: str) -> None:
    """Landmarks come from it, and early predictions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1)).astype(np.float32)
    y = np.sin(2 * X[:, 0].astype(float)) + 0.1 * rng.normal(size=600)
    y[::10] += 20
    kernel = Kernel("rbf", 0.5)
    rows = LeafRows(X, y, np.ones(600), np.zeros(600, bool), 1, "regression")
    off = {}
    for name in ("hinge", loss):
        settings = Settings(task="regression", loss=name, ridge=1.0)
        local = local_machine(rows, kernel, settings)
        value = (kernel(X, X) @ local.dual)[:, 0] + local.intercept
        off[name] = float(np.abs(value - np.sin(2 * X[:, 0])).mean())
    assert off[loss] < 0.3 * off["hinge"]


def test_quantiles_of_weighted_values() -> None:
    values, weight = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert [weighted_quantile(values, weight, q) for q in (0.2, 0.3, 0.7, 0.8)] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("level", "moved"), [(0.9, True), (0.1, True), (0.5, False), (None, False), (0.999, False)]
)
def test_held_out_rows_move_a_quantile_away_from_the_median(level: float | None, moved: bool) -> None:
    """Where so many are held out that some lie beyond it."""
    rng = np.random.default_rng(0)
    n = 2_000
    held = HeldOut(
        np.zeros((n, 1)),
        rng.normal(size=n),
        np.ones(n),
        np.full(n, 2.0),
        np.full(n, 9.0),
        np.zeros(n),
        np.zeros(n),
    )
    _, after = at_level([], held, level)
    assert (after.decision != 0).any() == moved
    if moved:
        assert np.mean(held.target < after.decision[:, 0]) == pytest.approx(level, abs=0.01)


def test_it_is_never_moved_towards_the_median() -> None:
    n = 2_000
    above = np.random.default_rng(0).normal(size=n) - 5  # 0 is above all of them
    held = HeldOut(np.zeros((n, 1)), above, np.ones(n), np.ones(n), np.full(n, 9.0), np.zeros(n), np.zeros(n))
    assert not at_level([], held, 0.9)[1].decision.any()
    assert at_level([], held, 0.1)[1].decision.any()


def test_every_loss_has_a_name_and_a_task() -> None:
    assert LOSSES[0] == Settings.loss
    for choice in CHOICES:
        assert not choice.meaning.endswith(".")
        for task in choice.tasks:
            found = loss_from_settings(Settings(task=task, loss=choice.name, **_products(choice.name)))
            assert type(found) is choice
    assert loss_tasks("other") == ()
    assert loss_from_settings(Settings(task=NUMBERS)) == loss_from_settings(Settings(task=NUMBERS))
    found = loss_from_settings(Settings(task=NUMBERS, loss="quantile", quantile=0.9))
    assert (found.level, Huber().level, Squares().level) == (pytest.approx(0.9), None, None)


def _products(name: str) -> dict[str, Any]:
    return {"products": 0} if name == "distance" else {}


def test_a_constant_residual_has_a_size() -> None:
    """As of targets that the first fit meets."""
    loss, found = Quantile(tilt=0.8).settled(
        np.ones(9), np.ones(9), lambda target, weight: (3, lambda: np.ones(9))
    )
    assert found == 3
    assert loss.width > 0
