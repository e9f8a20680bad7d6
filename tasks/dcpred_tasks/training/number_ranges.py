"""Ranges of numbers, in words."""

import math

TINY = 5e-324  # the smallest positive number: "more than 0"


def range_in_words(low: float, high: float) -> str:
    """The text of the range from `low` to `high`, both included."""
    if high == math.inf:
        return "more than 0" if low == TINY else f"{low:g} or more"
    if low == TINY:
        return f"more than 0 and at most {high:g}"
    return f"from {_in_words(low)} to {_in_words(high)}"


def _in_words(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) and number < 1e15 else f"{number:g}"
