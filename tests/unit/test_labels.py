"""Labels in an array: every class has its own value, and no row without a label looks like one that has."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.scoring.labels import encode_labels, label_coding


@pytest.mark.parametrize(
    ("classes", "dtype", "values", "missing"),
    [
        ((0, 1), "int8", [0, 1], -1),
        ((False, True), "int8", [0, 1], -1),
        ((-1, 1), "int8", [-1, 1], -128),
        ((-1, 127), "int8", [-1, 127], -128),
        ((-128, 5), "int16", [-128, 5], -1),
        ((1, 128), "int16", [1, 128], -1),
        ((-1, 40_000), "int32", [-1, 40_000], -(2**31)),
        ((0, 2**40), "int64", [0, 2**40], -1),
        (("cat", "dog"), "int8", [0, 1], -1),
        ((0.5, 1.5), "float64", [0.5, 1.5], math.nan),
        ((-1.0, 1.0), "float64", [-1.0, 1.0], math.nan),
    ],
)
def test_coding(
    classes: tuple[int | float | str | bool, ...], dtype: str, values: list[float], missing: float
) -> None:
    coding = label_coding(classes)
    assert coding.values.dtype.name == dtype
    assert coding.values.tolist() == values
    np.testing.assert_equal(coding.missing, missing)
    assert coding.names == (classes if isinstance(classes[0], str) else None)


@example({-(2**63), 2**62, 2**62 + 1})
@example({-(2**63), -1, 2**62 + 1})
@given(st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130), min_size=2, max_size=20))
def test_whole_numbers_stay_distinct_and_missing_is_none_of_them(classes: set[int]) -> None:
    coding = label_coding(tuple(sorted(classes)))
    assert [int(v) for v in coding.values] == sorted(classes)
    assert coding.missing not in classes
    array = np.full(1, coding.missing, coding.values.dtype)  # the array can hold it
    np.testing.assert_equal(array[0].item(), coding.missing)


@given(st.sets(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_other_numbers_are_kept_bit_for_bit(classes: set[float]) -> None:
    coding = label_coding(tuple(sorted(classes)))
    assert coding.values.tolist() == sorted(classes)
    assert math.isnan(coding.missing)


def test_many_strings() -> None:
    classes = tuple(f"c{i:03d}" for i in range(300))
    coding = label_coding(classes)
    assert coding.names == classes
    assert coding.values.dtype == np.int16
    assert coding.values.tolist() == list(range(300))
    assert coding.missing == -1


def test_two_classes_by_sign_and_several_by_the_largest() -> None:
    two = np.array([[-0.1], [0.0], [0.1]], np.float32)
    assert class_numbers(two).tolist() == [0, 0, 1]
    three = np.array([[0, 1, 2], [5, 1, 2], [-3, -1, -2], [1, 1, 0]], np.float32)
    assert class_numbers(three).tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize("bad", [s for s in Status if s != Status.OK], ids=lambda s: s.name)
def test_rows_without_a_label_hold_missing(bad: Status) -> None:
    decision = np.array([[1.0], [np.nan], [-1.0]], np.float32)
    status = np.array([Status.OK, bad, Status.OK], np.uint8)
    for classes, expected in (
        ((10, 20), [20, -1, 10]),
        ((-1, 1), [1, -128, -1]),
        (("no", "yes"), [1, -1, 0]),
        ((False, True), [1, -1, 0]),
    ):
        coding = label_coding(classes)
        labels = encode_labels(coding, class_numbers(decision), status)
        assert labels.tolist() == expected
        assert labels.dtype == coding.values.dtype
        assert coding.values.tolist() == label_coding(classes).values.tolist()  # not written into
    floats = encode_labels(label_coding((0.5, 2.5)), class_numbers(decision), status)
    np.testing.assert_array_equal(floats, [2.5, np.nan, 0.5])
