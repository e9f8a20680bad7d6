"""Intervals and novelty beside their definitions: what they promise of new rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model import predictive_outputs, uncertainty
from dcpred_tasks.model.uncertainty import LEVELS, Intervals, Novelty, check_alpha
from dcpred_tasks.training.held_out import ALPHAS, PRIOR_ROWS, HeldOut, fit_intervals
from support.models import random_model
from support.sureness import sure


def of(residual: np.ndarray, size: float | np.ndarray = 1.0, weight: np.ndarray | None = None) -> HeldOut:
    """Rows that were held out, of leaves with many rows each."""
    n = len(residual)
    return HeldOut(
        np.zeros((n, 1)),
        residual,
        np.ones(n) if weight is None else weight,
        np.full(n, 1.0) * size,
        np.full(n, 1e9),
        np.zeros(n),
        np.zeros(n),
    )


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_the_quantile_is_that_of_split_conformal(seed: int, n: int) -> None:
    residual = np.random.default_rng(seed).standard_t(3, n)
    found, _ = fit_intervals(np.ones(1), np.array([1e9]), of(residual))
    ordered = np.sort(np.abs(residual))
    for alpha in (0.01, 0.05, 0.1, 0.123, 0.25, 0.5):
        rank = math.ceil((n + 1) * (1 - alpha) - 1e-9)
        if rank > n:
            with pytest.raises(
                SettingsError,
                match=r"trained on (too few rows to hold any out|so few rows that alpha starts)",
            ):
                found.at(alpha)
        else:
            assert found.at(alpha) == pytest.approx(ordered[rank - 1], rel=1e-6)


def test_of_rows_like_those_of_training_a_share_alpha_lies_outside() -> None:
    """The mean over many draws of 99 rows, which split conformal gives exactly."""
    rng = np.random.default_rng(0)
    for alpha in (0.05, 0.1, 0.3):
        half = np.array(
            [
                fit_intervals(np.ones(1), np.array([1e9]), of(rng.standard_cauchy(99)))[0].at(alpha)
                for _ in range(1_000)
            ]
        )
        inside = np.abs(rng.standard_cauchy((1_000, 50))) <= half[:, None]
        assert inside.mean() == pytest.approx(1 - alpha, abs=4 * 0.5 * math.sqrt(alpha / 99 / 1_000 * 3))


def test_leaves_of_large_residuals_have_wide_intervals_and_small_leaves_those_of_all() -> None:
    rng = np.random.default_rng(0)
    size = np.repeat([1.0, 10.0], 1_000)
    held = of(rng.normal(size=2_000) * size, size)
    found, _ = fit_intervals(np.array([1.0, 10.0]), np.array([1e6, 1e6]), held)
    bounds = found.bounds(np.zeros(2), found.sizes(np.array([0, 1]), np.empty(0)), 0.1)
    np.testing.assert_allclose(bounds[:, 1], [1.645, 16.45], rtol=0.1)
    np.testing.assert_array_equal(bounds[:, 0], -bounds[:, 1])
    # A leaf without a residual, of as many rows as the common size counts for.
    few, _ = fit_intervals(np.array([0.0, 10.0]), np.array([PRIOR_ROWS, 1e9]), held)
    assert few.spread[0] == pytest.approx(10 / math.sqrt(2), rel=1e-3)
    assert few.spread[1] == pytest.approx(10, rel=1e-3)


def test_a_row_of_twice_the_weight_counts_as_two() -> None:
    residual = np.random.default_rng(0).exponential(size=400)
    weight = np.random.default_rng(1).integers(1, 4, 400).astype(float)
    once, _ = fit_intervals(np.ones(1), np.ones(1), of(residual, weight=weight))
    often, _ = fit_intervals(np.ones(1), np.ones(1), of(np.repeat(residual, weight.astype(int))))
    for alpha in (0.1, 0.3, 0.5):
        assert once.at(alpha) == pytest.approx(often.at(alpha), rel=0.05)


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_residuals_far_from_one(scale: float) -> None:
    residual = scale * np.random.default_rng(0).normal(size=300)
    sizes = np.array([scale, 0.5 * scale])
    found, _ = fit_intervals(sizes, np.array([100.0, 200.0]), of(residual, scale))
    assert (found.spread > 0).all()
    assert np.isfinite(found.spread).all()
    if scale:
        assert found.at(0.1) * found.spread[0] == pytest.approx(1.65 * scale, rel=0.2)
    else:
        assert found.at(0.1) == 0


def test_an_alpha_between_those_that_are_stored_is_kept_on_the_sure_side() -> None:
    found, _ = fit_intervals(np.ones(1), np.ones(1), of(np.random.default_rng(0).normal(size=5_000)))
    assert found.at(0.1234) == found.at(0.123)
    assert all(found.at(float(alpha)) == q for alpha, q in zip(found.alpha, found.quantile, strict=True))
    assert (np.diff(found.quantile) >= 0).all()
    assert ALPHAS[0] == 0.5
    assert ALPHAS[-1] == 0.01


@pytest.mark.parametrize("alpha", [0.0, 0.009, 0.51, 1.0, -0.1, math.nan, math.inf, "0.1", None])
def test_another_alpha_is_refused(alpha: object) -> None:
    with pytest.raises(SettingsError, match=r"number from 0.01 to 0.5"):
        check_alpha(alpha)


def test_a_row_without_a_score_has_no_bounds() -> None:
    found = Intervals(np.array([1.0, 2.0]), np.array([0.1]), np.array([3.0]))
    size = found.sizes(np.array([-1, 1], np.int32), np.empty(0))
    bounds = found.bounds(np.array([np.nan, 5.0]), size, 0.1)
    assert np.isnan(bounds[0]).all()
    assert bounds[1].tolist() == [-1.0, 11.0]


# -- novelty -------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_novelty_is_the_share_of_rows_that_lie_nearer(seed: int) -> None:
    """Linear between the stored levels, leaf by leaf; with edges that are alike."""
    rng = np.random.default_rng(seed)
    edge = np.sort(rng.choice([rng.random(6), rng.random(40)][seed % 2], (3, len(LEVELS))), axis=1)[:, ::-1]
    edge = edge.astype(np.float32)
    found = Novelty(np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32), edge)
    s = np.concatenate([rng.random(60).astype(np.float32), edge.ravel(), [0, 2, np.nan]]).astype(np.float32)
    leaf = rng.integers(0, 3, len(s)).astype(np.int32)
    leaf[-1] = -1
    share = found.of(s, leaf)
    assert np.isnan(share[-1])
    for value, number, told in zip(s[:-1], leaf[:-1], share[:-1], strict=True):
        own = edge[number].astype(float)
        if value < own[-1]:
            assert told == 1
        elif value > own[0]:
            assert told == 0
        else:
            at = np.flatnonzero(own == value)
            low = LEVELS[at[0]] if len(at) else np.interp(-float(value), -own, LEVELS)
            high = LEVELS[at[-1]] if len(at) else low
            assert low - 1e-9 <= told <= high + 1e-9
    assert found.of(s[:0], leaf[:0]).shape == (0,)


def test_strips_of_novelty_do_not_matter(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    model = sure(random_model(1))
    s = rng.random(100).astype(np.float32)
    leaf = rng.integers(0, model.n_leaves, 100).astype(np.int32)
    whole = predictive_outputs.novelty(model, s, leaf)
    monkeypatch.setattr(uncertainty, "STRIP_NUMBERS", 3 * len(LEVELS))
    np.testing.assert_array_equal(predictive_outputs.novelty(model, s, leaf), whole)


def test_what_a_model_does_not_know_is_said_in_a_sentence() -> None:
    classes, numbers = random_model(1), random_model(2, task="regression")
    for ask in (predictive_outputs.calibration_of, predictive_outputs.novelty_of):
        with pytest.raises(DataError, match=r": the model was trained with calibrate=false, or by"):
            ask(classes)
    with pytest.raises(DataError, match=r"Cannot compute probabilities: the task of the model is regression"):
        predictive_outputs.calibration_of(sure(numbers))
    with pytest.raises(DataError, match=r"Cannot compute intervals: the task of the model is classification"):
        predictive_outputs.intervals_of(sure(classes))
