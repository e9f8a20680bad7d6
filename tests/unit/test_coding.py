"""Coded features: the columns that they become, scalings of these, and what is no coding."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.one_hot import LARGEST_CODE, WIDEST_RANGE, Coding, coded_columns
from dcpred_tasks.model.scaling import BASES, Scaling, fit_scaling
from dcpred_tasks.scoring.statistics import bad_features
from support.models import random_codes, random_coding

CODING = coded_columns(3, {1: np.array([7, -2, 3])})
ROWS = np.array([[0.5, -2, 1], [1.5, 3, 2], [2.5, 7, 3], [3.5, 0, 4], [4.5, 3.5, 5]])


def test_a_column_is_1_at_its_code_and_0_elsewhere() -> None:
    assert CODING is not None
    assert CODING.source.tolist() == [0, 1, 1, 1, 2]
    assert CODING.features == [1]
    assert CODING.codes(1) == [-2, 3, 7]
    np.testing.assert_array_equal(
        CODING(ROWS),
        [[0.5, 1, 0, 0, 1], [1.5, 0, 1, 0, 2], [2.5, 0, 0, 1, 3], [3.5, 0, 0, 0, 4], [4.5, 0, 0, 0, 5]],
    )


@pytest.mark.parametrize("without", range(4))
def test_the_category_without_a_column_comes_back(without: int) -> None:
    """Of columns that are 0, where codes are the numbers of categories; else it is a value without one."""
    coding = coded_columns(1, {0: np.delete(np.arange(4), without)})
    assert coding is not None
    X = np.arange(4.0)[:, None]
    np.testing.assert_array_equal(coding.raw(coding(X)), X)
    assert CODING is not None
    back = CODING.raw(CODING(ROWS))
    np.testing.assert_array_equal(back[:3], ROWS[:3])
    assert not np.isin(back[3:, 1], CODING.codes(1)).any()
    gap = coded_columns(1, {0: np.array([1, 9])}, np.array([5.0]))
    assert gap is not None
    np.testing.assert_array_equal(gap.raw(gap(np.array([[1.0], [5], [9]]))), [[1], [5], [9]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_spoils_every_column_of_its_feature(value: float) -> None:
    X = ROWS[:2].copy()
    X[1, 1] = value
    assert CODING is not None
    found = Scaling(np.zeros(5), np.ones(5), CODING)
    np.testing.assert_array_equal(np.isnan(found(X)), [[False] * 5, [False, True, True, True, False]])
    assert bad_features(found, X).tolist() == [-1, 1]


def test_no_feature_is_no_coding() -> None:
    assert coded_columns(3, {}) is None


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ([], []),
        ([1, 2], [np.nan, np.nan]),
        ([0, 2], [np.nan, np.nan]),
        ([1, 0], [np.nan, np.nan]),
        ([0, 0], [np.nan, np.nan]),
        ([0, 0], [1, np.nan]),
        ([0, 0], [2, 1]),
        ([0, 0], [1, 1]),
        ([0, 0], [1, 1.5]),
        ([0, 0], [1, np.inf]),
        ([0, 0], [1, 1 + WIDEST_RANGE]),
        ([0], [LARGEST_CODE + 1]),
        ([0, 1], [1]),
        ([[0]], [[1]]),
    ],
)
def test_what_is_no_coding(source: Any, code: Any) -> None:
    """Compiled code would look up what is not there."""
    with pytest.raises(ValueError, match=r"columns are not|indicators or values"):
        Coding(np.array(source, np.int64), np.array(code, np.float64))


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_the_definition_value_by_value_and_back_from_arrays_and_lists(seed: int, n_columns: int) -> None:
    rng = np.random.default_rng(seed)
    coding = random_coding(rng, n_columns)
    if coding is None:
        return
    assert len(coding.source) == n_columns
    X = rng.normal(size=(9, coding.n_features))
    for feature in coding.features:
        X[:, feature] = random_codes(rng, coding.codes(feature), 9)
    slow = [
        [
            x[feature] if np.isnan(code) else float(x[feature] == code)
            for feature, code in zip(coding.source, coding.code, strict=True)
        ]
        for x in X
    ]
    scaling = Scaling(rng.normal(size=n_columns), rng.uniform(0.5, 2, n_columns), coding)
    np.testing.assert_array_equal(coding(X), slow)
    np.testing.assert_allclose(scaling.exact(X), (np.array(slow) - scaling.shift) * scaling.factor)
    for kept in (scaling.arrays(), json.loads(json.dumps(scaling.as_lists()))):
        again = Scaling.of(kept)
        for name, values in scaling.arrays().items():
            np.testing.assert_array_equal(again.arrays()[name], values)


def test_raw_rows_of_scaled_points_are_those_rows() -> None:
    scaling = Scaling(np.arange(5.0), np.array([2.0, 1, 3, 0.5, 0]), CODING)
    back = scaling.raw(scaling.exact(ROWS[:3]))
    np.testing.assert_allclose(back[:, :2], ROWS[:3, :2])
    assert (back[:, 2] == 4).all()  # μ, for the factor is 0


@pytest.mark.parametrize("name", BASES)
def test_columns_of_a_feature_have_one_factor(name: str, rng: np.random.Generator) -> None:
    X = np.column_stack([rng.normal(size=4_000), rng.choice([0, 1, 2, 3], 4_000, p=[0.6, 0.2, 0.15, 0.05])])
    coding = coded_columns(2, {1: np.array([1, 2, 3])})
    found = fit_scaling(name, X, np.ones(4_000), X.min(axis=0), X.max(axis=0), coding)
    plain = fit_scaling(name, X[:, :1], np.ones(4_000), X.min(axis=0)[:1], X.max(axis=0)[:1])
    assert np.isclose(found.factor[0], plain.factor[0])
    assert len(set(found.factor[1:])) == 1
    if name == "standard":
        np.testing.assert_allclose(found.exact(X)[:, 1:].var(axis=0).sum(), 1)
    else:
        assert found.factor[1] == 1


def test_the_reference_is_that_of_raw_features(rng: np.random.Generator) -> None:
    X: NDArray[np.float64] = np.column_stack([rng.normal(size=500), rng.integers(5, 9, 500), np.ones(500)])
    coding = coded_columns(3, {1: np.array([6, 7, 8])})
    scaling = Scaling(rng.normal(size=5), np.array([2.0, 0, 1, 0, 3]), coding)
    found = feature_reference(scaling, X)
    np.testing.assert_allclose(found.mean, X.mean(axis=0))
    np.testing.assert_allclose(found.sd, X.std(axis=0), atol=1e-12)
