"""Ranges of numbers, in words."""

import math

TINY = 5e-324  # the smallest positive number: "more than 0"


def range_in_words(low: float, high: float) -> str:
    """What a number from `low` to `high` is, both included."""
    if high == math.inf:
        return "more than 0" if low == TINY else f"{low:g} or more"
    if low == TINY:
        return f"more than 0 and at most {high:g}"
    if high >= 1e15 or high < 1:
        return f"from {low:g} to {high:g}"
    return f"from {low:,.0f} to {high:,.0f}"
