"""Means of verdicts over leaves."""

import numpy as np
import pytest

from dcpred.tuning.judging import mean_verdicts


def verdicts(*leaves: list[float]) -> np.ndarray:
    """Of one try each, in one fold: errors of leaves, without variance."""
    hard = np.array(leaves)[:, None, :]
    return np.stack([hard / 2, hard, 0 * hard], axis=3)


def test_leaves_count_by_their_weight() -> None:
    [[soft, hard, variance]] = mean_verdicts(verdicts([0.1], [0.5]), np.array([3.0, 1.0]), drawn=False)
    assert (soft, hard, variance) == pytest.approx((0.1, 0.2, 0.0))


def test_a_leaf_that_is_not_judged_does_not_count() -> None:
    """Its variance is 0 and its errors are NaN: a search of California housing once took the latter for a try
    that failed.
    """
    found = verdicts([0.1, 0.2], [0.3, 0.4])
    found[1, :, :, :2] = np.nan
    [[_, hard, _], [_, other, _]] = mean_verdicts(found, np.array([1.0, 9.0]), drawn=True)
    assert (hard, other) == pytest.approx((0.1, 0.2))


def test_a_try_without_a_result_where_others_have_one_is_infinitely_bad() -> None:
    found = verdicts([0.1, 0.2], [0.3, np.nan])
    good, failed = mean_verdicts(found, np.ones(2), drawn=True)
    assert good[1] == pytest.approx(0.2)
    assert np.isinf(failed).all()


def test_variances_are_those_of_rows_and_of_the_leaves_that_were_drawn() -> None:
    found = verdicts([0.1], [0.3])
    found[..., 2] = 0.02
    assert mean_verdicts(found, np.ones(2), drawn=False)[0, 2] == pytest.approx(0.01)
    assert mean_verdicts(found, np.ones(2), drawn=True)[0, 2] == pytest.approx(0.01 + 0.005)


def test_nothing_judged_is_no_error() -> None:
    assert (mean_verdicts(np.full((2, 1, 3, 3), np.nan), np.ones(2), drawn=True) == 0).all()
