"""Conditions on rows for --only: NAME OPERATOR VALUE, for example status!=1 or novelty>0.99."""

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dcpred_tasks.errors import SettingsError

# Operators of NumPy, which compares integers of any size exactly, and of Arrow.
OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "==": (operator.eq, pc.equal),
    "!=": (operator.ne, pc.not_equal),
    "<=": (operator.le, pc.less_equal),
    ">=": (operator.ge, pc.greater_equal),
    "=": (operator.eq, pc.equal),
    "<": (operator.lt, pc.less),
    ">": (operator.gt, pc.greater),
}
OPERATOR = re.compile(r"\s*(==|!=|<=|>=|=|<|>)")
FORM = "Write NAME, one of == != < <= > >=, and a value, for example status!=1."


@dataclass(frozen=True)
class Condition:
    """A comparison that a row has to meet."""

    name: str
    operator: str
    value: Any
    """A number of Python if the column holds integers, else a scalar of Arrow."""

    def holds(self, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each row meets the condition. Missing values and NaN meet none."""
        of_numpy, of_arrow = OPERATORS[self.operator]
        if pa.types.is_integer(column.type):
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            return np.asarray(of_numpy(values, self.value) & column.is_valid().to_numpy(zero_copy_only=False))
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        held = pc.fill_null(of_arrow(column, self.value), False)
        return np.asarray(held.to_numpy(zero_copy_only=False))


def parse_condition(
    text: str, types: Mapping[str, pa.DataType], known: Mapping[str, Sequence[str]]
) -> Condition:
    """A condition on one of several columns.

    types  of each column
    known  all texts that a column may hold, if they are known

    Raises SettingsError for an invalid condition.
    """
    beginnings = [name for name in types if text.lstrip().startswith(name)]
    for name in sorted(beginnings, key=len, reverse=True):  # names may hold operators, and begin with others
        found = OPERATOR.match(text.lstrip(), len(name))
        if found is not None:
            value = text.lstrip()[found.end() :].strip()
            return Condition(name, found[1], _value(text, value, types[name], known.get(name)))
    found = OPERATOR.search(text)
    if found is None or not text[: found.start()].strip():
        raise SettingsError(f"Cannot select rows by {text!r}: it is not a comparison. {FORM}")
    asked = text[: found.start()].strip()
    raise SettingsError(
        f"Cannot select rows by {text!r}: there is no column {asked}. {_near(asked, list(types))}"
    )


def _value(text: str, value: str, kind: pa.DataType, known: Sequence[str] | None) -> Any:
    """The value in the column's type."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if known is not None and value not in known:
        raise SettingsError(
            f"Cannot select rows by {text!r}: no row can have that value. {_near(value, list(known))}"
        )
    if pa.types.is_string(kind):
        return pa.scalar(value)
    try:
        if pa.types.is_integer(kind):
            return _number(value)
        if pa.types.is_floating(kind):
            found = pa.scalar(float(value), kind)
            if math.isnan(float(value)):
                raise ValueError
            return found
        return pa.scalar(value).cast(kind)
    except (pa.ArrowException, ValueError, OverflowError):
        raise SettingsError(
            f"Cannot select rows by {text!r}: the column holds {kind}. Write {_form(kind)}."
        ) from None


def _form(kind: pa.DataType) -> str:
    """The form of a value of a column."""
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_date(kind):
        return "a date: 2026-03-01"
    return "a time: 2026-03-01T12:30:00" if pa.types.is_timestamp(kind) else "a number"


def _number(text: str) -> int | float:
    """A number to compare integers with: exact if it is an integer itself."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if math.isnan(value):
            raise
        return value


def _near(asked: str, names: list[str]) -> str:
    near = difflib.get_close_matches(asked, names, 1)
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
    return f"Did you mean {near[0]}? There are {shown}." if near else f"There are {shown}."
