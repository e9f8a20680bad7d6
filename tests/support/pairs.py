"""A sample of many combinations in each run, all with `-m long`: every pair of values."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by several axes.

    An ordinary run holds the fewest combinations that a greedy choice finds, in which any two values of two
    axes meet once. The others carry the mark `long`.
    """
    values = [list(values) for values in axes.values()]
    every = list(product(*(range(len(own)) for own in values)))
    chosen = covering(every)
    cases = [
        pytest.param(
            *(own[i] for own, i in zip(values, at, strict=True)),
            marks=[] if at in chosen else [pytest.mark.long],
        )
        for at in every
    ]
    return pytest.mark.parametrize(",".join(axes), cases)


def covering(every: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Combinations that hold all pairs which any of them holds."""
    pairs = {at: set(combinations(enumerate(at), 2)) for at in every}
    left, chosen = set().union(*pairs.values()), set()
    while left:
        best = max(every, key=lambda at: len(pairs[at] & left))
        chosen.add(best)
        left -= pairs[best]
    return chosen
