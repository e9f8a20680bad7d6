"""How a setting is declared: its default, its meaning and its range."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TypeVar

T = TypeVar("T")


def setting(
    default: T,
    meaning: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float = math.inf,
    unit: str = "",
    zero: str = "",
    more: str = "",
) -> T:
    """A field with its description and checks: its choices, or its range from `low` to `high` in `unit`, or
    both; `zero` is the meaning of 0, and `more` what it may be beside its choices.
    """
    told = {
        "meaning": meaning,
        "choices": tuple(choices),
        "range": None if low is None else (low, high),
        "unit": unit,
        "zero": zero,
        "more": more,
    }
    return field(default=default, metadata=told)
