"""What is known of all rows, from blocks of any shape, and what is refused with its row and column."""

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.training.survey import (
    MAX_CLASSES,
    Survey,
    check_survey,
    heavy_row,
    merge_surveys,
    survey_rows,
)
from dcpred_tasks.training.training_remarks import training_remarks

X34 = np.arange(12.0).reshape(3, 4)
Y3 = np.array([0, 1, 1])


def check_equal(one: Survey, other: Survey) -> None:
    for f in fields(Survey):
        np.testing.assert_array_equal(getattr(one, f.name), getattr(other, f.name), err_msg=f.name)


def test_surveys_of_blocks_are_merged_one_by_one() -> None:
    """Of wide rows each is as large as many rows of a sample."""
    alive: list[weakref.ref[Survey]] = []

    def parts() -> Iterator[Survey]:
        for block in range(20):
            part = survey_rows(
                np.full((3, 4), float(block)), np.array([0, 1, block]), None, 3 * block, "classification"
            )
            alive.append(weakref.ref(part))
            yield part
            assert sum(one() is not None for one in alive) <= 3

    found = merge_surveys(parts())
    assert (found.n_rows, found.minimum[0], found.maximum[0], len(found.classes)) == (60, 0.0, 19.0, 20)
    assert found.class_weights.tolist() == [21.0, 21.0] + [1.0] * 18


def test_what_it_holds() -> None:
    X = np.array([[1, -5], [2, 0], [9, 9], [-3, 7]], np.int16)
    survey = survey_rows(
        X, np.array(["b", "a", "c", "a"]), np.array([1.0, 2.0, 0.0, 0.5]), 0, "classification"
    )
    assert (survey.n_rows, survey.n_used) == (4, 3)
    assert survey.minimum.tolist() == [-3, -5]
    assert survey.maximum.tolist() == [2, 7]  # the row of weight 0 counts for nothing
    assert survey.classes.tolist() == ["a", "b"]
    assert survey.class_weights.tolist() == [2.5, 1.0]
    assert survey.minimum.dtype == survey.maximum.dtype == np.float64


@pytest.mark.parametrize(("transform", "power"), [("none", 1), ("log1p", 1), ("sqrt", 2)])
def test_targets_that_differ_too_little_are_refused(transform: str, power: int) -> None:
    """On the scale of the model, and over all blocks; equal ones are fine."""

    def surveyed(y: np.ndarray) -> Survey:
        given = None, 0, "regression", "auto", transform
        return merge_surveys([survey_rows(X34, y, *given), survey_rows(X34, 2 * y, *given)])

    y = np.array([1.0, 2.0, 3.0])
    for size in (0.0, 1e-33**power, 1.0):
        check_survey(surveyed(size * y), "regression")
    check_survey(surveyed(np.zeros(3)), "regression")
    for size in (1e-36**power, 5e-324):
        with pytest.raises(DataError, match=r"^Cannot train on targets that differ by .* in a smaller unit"):
            check_survey(surveyed(size * y), "regression")
    weight = np.array([0.0, 1.0, 0.0])
    check_survey(survey_rows(X34, 1e-40 * y, weight, 0, "regression"), "regression")


def test_regression_has_no_classes() -> None:
    survey = survey_rows(X34, np.arange(3.0), None, 0, "regression")
    assert len(survey.classes) == len(survey.class_weights) == 0
    check_survey(survey, "regression")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_feature_is_named_by_row_of_the_data_set_and_column(dtype: type, bad: float) -> None:
    X = X34.astype(dtype)
    X[1, 2] = X[2, 0] = bad
    with pytest.raises(DataError, match=rf"X: it has {bad} in row 1001, column 2"):
        survey_rows(X, Y3, None, 1000, "classification", "refuse")


def test_a_bad_row_of_weight_0_is_refused_as_well() -> None:
    X = X34.copy()
    X[1, 2] = np.inf
    with pytest.raises(DataError, match="row 1, column 2"):
        survey_rows(X, Y3, np.array([1.0, 0.0, 1.0]), 0, "classification")


def test_gaps_are_counted_and_no_limit_knows_them() -> None:
    """Of rows that are used; a feature without any value has no limits, in a block and in all of them."""
    X = np.array([[1, np.nan, np.nan], [np.nan, 4, np.nan], [3, 6, np.nan], [np.nan] * 3])
    weight = np.array([1.0, 1.0, 2.0, 0.0])
    found = survey_rows(X, np.array([0, 1, 1, 0]), weight, 0, "classification")
    parts = [
        survey_rows(X[a:b], np.array([0, 1, 1, 0])[a:b], weight[a:b], a, "classification")
        for a, b in ((0, 1), (1, 3), (3, 4))
    ]
    for one in (found, merge_surveys(parts)):
        assert one.gaps.tolist() == [1, 1, 3]
        np.testing.assert_array_equal(one.minimum, [1, 4, np.nan])
        np.testing.assert_array_equal(one.maximum, [3, 6, np.nan])
    X[3, 0] = np.inf
    with pytest.raises(DataError, match=r"X: it has inf in row 3, column 0\. Correct such rows"):
        survey_rows(X, np.array([0, 1, 1, 0]), weight, 0, "classification")


def test_gaps_are_refused_where_the_setting_says_so() -> None:
    X = X34.copy()
    X[2, 1] = np.nan
    with pytest.raises(DataError, match=r"X: it has nan in row 2.*missing is refuse.*[Ss]et missing to auto"):
        survey_rows(X, Y3, None, 0, "classification", "refuse")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_bad_target_is_named_by_row(bad: float, task: str) -> None:
    with pytest.raises(DataError, match=rf"row 502 has the target {bad} "):
        survey_rows(X34, np.array([1.0, 2.0, bad]), None, 500, task)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_bad_weight_is_named_by_row(bad: float) -> None:
    with pytest.raises(DataError, match=rf"row 501 has {bad},"):
        survey_rows(X34, Y3, np.array([1.0, bad, 1.0]), 500, "classification")


@given(
    n=st.integers(1, 60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    weighted=st.booleans(),
    y_dtype=st.sampled_from(["int8", "int64", "float64", "bool", "U"]),
    x_dtype=st.sampled_from(["float64", "float32", "int32", "uint8", "bool"]),
    task=st.sampled_from(["classification", "regression"]),
    seed=st.integers(0, 10**6),
)
def test_merged_surveys_of_blocks_are_the_survey_of_the_whole(
    n: int, cuts: list[int], weighted: bool, y_dtype: str, x_dtype: str, task: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 50, (n, 3)).astype(x_dtype)
    y = rng.integers(0, 4, n)
    # Strings of several lengths, so that blocks have several dtypes.
    y = np.array(["x" * int(i + 1) for i in y]) if y_dtype == "U" else y.astype(y_dtype)
    weight = rng.integers(0, 3, n) / 2 if weighted else None  # sums of halves are exact in any order
    bounds = [0, *sorted(min(cut, n) for cut in cuts), n]
    parts = []
    for start, stop in itertools.pairwise(bounds):
        block = y[start:stop].astype(str) if y_dtype == "U" else y[start:stop]
        parts.append(
            survey_rows(X[start:stop], block, None if weight is None else weight[start:stop], start, task)
        )
    whole = survey_rows(X, y, weight, 0, task)
    check_equal(merge_surveys(iter(parts)), whole)
    assert whole.n_rows == n
    assert whole.n_used == (n if weight is None else (weight > 0).sum())


def labels(n: int) -> NDArray[np.int64]:
    return np.arange(n)


def test_too_many_classes_are_refused() -> None:
    fine = survey_rows(np.zeros((MAX_CLASSES, 1)), labels(MAX_CLASSES), None, 0, "classification")
    check_survey(merge_surveys([fine] * 3), "classification")
    with pytest.raises(DataError, match=r"more than 1,000 different values"):
        survey_rows(np.zeros((MAX_CLASSES + 1, 1)), labels(MAX_CLASSES + 1), None, 0, "classification")


@pytest.mark.parametrize(
    ("y", "why"),
    [
        (np.linspace(0, 1, 300).repeat(10), r"300 different values in 3,000 rows \(0\.003"),
        (np.arange(30), "30 different values in 30 rows, and each"),
        (np.arange(21).repeat(3)[1:], "21 different values in 62 rows"),
    ],
)
def test_a_target_of_amounts_is_no_class(y: NDArray[np.generic], why: str) -> None:
    survey = survey_rows(np.zeros((len(y), 1)), y, None, 0, "classification")
    with pytest.raises(DataError, match=why + r".* class\. Use regression \(--task regression\)"):
        check_survey(survey, "classification")
    check_survey(survey, "classification", [str(one) for one in survey.classes])  # They have names.


@pytest.mark.parametrize("y", [np.arange(20) / 3, np.arange(21).repeat(3), np.array([-0.5, 0.5])])
def test_numbers_may_be_classes(y: NDArray[np.generic]) -> None:
    survey = survey_rows(np.zeros((len(y), 1)), y, None, 0, "classification")
    check_survey(survey, "classification")
    assert survey.classes.tolist() == np.unique(y).tolist()


def test_too_many_classes_are_refused_however_they_are_spread_over_blocks() -> None:
    """A target that is sorted, or blocks that are short, hide a regression target from a look at each
    block.
    """
    parts = [survey_rows(np.zeros((600, 1)), labels(600) + at, None, at, "classification") for at in (0, 600)]
    with pytest.raises(DataError, match=r"more than 1,000 different values"):
        check_survey(merge_surveys(parts), "classification")


def test_a_target_that_single_precision_cannot_hold_weights_for() -> None:
    y = np.array([0.0, 1e33, -1e200])
    with pytest.raises(DataError, match=r"row 12 has the target -1e.200, above the limit of 1e.34"):
        survey_rows(np.zeros((3, 1)), y, None, 10, "regression")
    survey_rows(np.zeros((2, 1)), y[:2], None, 0, "regression")


@pytest.mark.parametrize("weight", [None, np.zeros(3)])
def test_no_rows_to_train_on(weight: NDArray[np.float64] | None) -> None:
    n = 0 if weight is None else 3
    survey = survey_rows(X34[:n], Y3[:n], weight, 0, "classification")
    with pytest.raises(DataError, match="Cannot train without rows"):
        check_survey(survey, "classification")


def test_one_class_is_refused_for_classification_alone() -> None:
    survey = survey_rows(X34, np.full(3, 7), None, 0, "classification")
    with pytest.raises(DataError, match="only one class, 7"):
        check_survey(survey, "classification")
    check_survey(survey_rows(X34, np.full(3, 7), None, 0, "regression"), "regression")


def test_a_class_of_weight_0_is_no_class() -> None:
    survey = survey_rows(X34, np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0]), 0, "classification")
    with pytest.raises(DataError, match="only one class, 1"):
        check_survey(survey, "classification")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_row_that_outweighs_all_others(task: str) -> None:
    n, row = 200, 123
    X, y, weight = np.zeros((n, 1)), np.arange(n) % 2, np.ones(n)
    parts = [(slice(a, b), a) for a, b in itertools.pairwise((0, 70, 140, n))]

    def told(limit: float = 1.0) -> str:
        survey = merge_surveys(survey_rows(X[s], y[s], weight[s], a, task) for s, a in parts)
        found = heavy_row(survey.weights, survey.n_used, limit)
        return "" if found is None else found.text

    weight[row] = 0.2 / 0.8 * (n - 1)
    assert not told(0.25)
    weight[row] = 0.3 / 0.7 * (n - 1)
    assert "row 123 has 30 % of the weight of all 200 rows" in told()
    assert told(0.31)
    with pytest.raises(DataError, match=r"row 123 has 30 % .* allow it with the setting largest_weight=1\."):
        told(0.25)
    survey = survey_rows(X, y, weight, 0, task)
    found = training_remarks(X, y, np.arange(n), survey, None, None, () if task == "regression" else (0, 1))
    assert any("row 123 has 30 %" in remark.what for remark in found)
    weight[np.arange(n) != row] *= np.arange(n)[np.arange(n) != row] < 98  # Few rows have weight.
    assert not told(0.25)
    assert not heavy_row(survey_rows(X, y, None, 0, task).weights, n, 0.01)
