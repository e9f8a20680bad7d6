"""Conditions on rows: what is written is what is compared, exactly, or a sentence says why not."""

import operator
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred.results.export import OPERATORS, parse_condition
from dcpred_tasks.errors import SettingsError

TYPES = {
    "label": pa.string(),
    "decision": pa.float32(),
    "decision_a<b": pa.float64(),
    "decision_": pa.int64(),
    "status": pa.uint8(),
    "id": pa.uint64(),
    "when": pa.date32(),
    "ok": pa.bool_(),
}
KNOWN = {"label": ("ash", "oak tree", '"quoted"')}
PLAIN = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def held(text: str, column: pa.Array) -> list[bool]:
    condition = parse_condition(text, TYPES, KNOWN)
    assert column.type == TYPES[condition.name]
    return [bool(one) for one in condition.holds(column)]


@given(
    st.sampled_from(sorted(OPERATORS)),
    st.lists(st.none() | st.floats(width=32), max_size=20),
    st.floats(width=32, allow_nan=False),
    st.sampled_from(["{}{}{}", " {} {} {} ", "{} {}{}"]),
)
def test_numbers(sign: str, values: list[float | None], limit: float, form: str) -> None:
    """A row without a value, and one with NaN, meets nothing."""
    plain = [v is not None and not np.isnan(v) and bool(PLAIN[sign](v, limit)) for v in values]
    assert held(form.format("decision", sign, repr(limit)), pa.array(values, pa.float32())) == plain


@given(
    st.sampled_from(sorted(OPERATORS)),
    st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=20),
    st.integers(-(2**70), 2**70) | st.sampled_from([0, 2**53 + 1, 2**63, 2**64 - 1]),
)
def test_whole_numbers_are_compared_exactly(sign: str, values: list[int | None], limit: int) -> None:
    plain = [v is not None and bool(PLAIN[sign](v, limit)) for v in values]
    assert held(f"id{sign}{limit}", pa.array(values, pa.uint64())) == plain


def test_a_number_is_that_of_the_column() -> None:
    """0.1 in single precision is not more than 0.1."""
    assert held("decision>0.1", pa.array([0.1, 0.2], pa.float32())) == [False, True]
    assert held("status>=1.5", pa.array([1, 2, None], pa.uint8())) == [False, True, False]


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("label==oak tree", ["oak tree", "ash", None], [True, False, False]),
        ("label != 'ash'", ["oak tree", "ash", None], [True, False, False]),
        ('label==""quoted""', ['"quoted"', "ash", None], [True, False, False]),
        ("when>=2026-03-01", [date(2026, 3, 1), date(2026, 2, 28), None], [True, False, False]),
        ("ok==true", [True, False, None], [True, False, False]),
        ("decision_a<b<0", [-1.0, 1.0, None], [True, False, False]),
        ("decision_<0", [-1, 1, None], [True, False, False]),
    ],
)
def test_other_columns(text: str, column: list[object], expected: list[bool]) -> None:
    """The longest name that is there counts, so that names may hold operators."""
    name = parse_condition(text, TYPES, KNOWN).name
    assert held(text, pa.array(column, TYPES[name])) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("status", "it is not a comparison. Write NAME"),
        ("==1", "is not a comparison"),
        ("statu==1", "there is no column statu. Did you mean status?"),
        ("nothing==1", "there is no column nothing. There are label"),
        ("label==oka tree", "no row can have that value. Did you mean oak tree?"),
        ("status==one", "the column holds uint8. Write a number"),
        ("id<nan", "Write a number"),
        ("decision>", "Write a number"),
        ("decision>nan", "Write a number"),
        ("when>soon", "Write a date: 2026-03-01"),
        ("ok==maybe", "Write true or false"),
    ],
)
def test_what_is_none(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parse_condition(text, TYPES, KNOWN)
