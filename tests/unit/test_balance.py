"""Balancing: counts are conserved, limits hold where rows can be divided, and routed rows end where they are
served.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.tree import MAX_ARITY
from dcpred_tasks.training.tree_fitting import (
    Balanced,
    Node,
    Split,
    balance,
    fit_tree,
    flatten,
    split_arity,
    split_centres,
    split_rows,
)


class Holder:
    """Rows in memory, sent to leaves, and divided when asked: what training does, by blocks or not."""

    def __init__(self, X: NDArray[np.float32], root: Node | int, max_leaf_rows: int) -> None:
        self.X, self.root, self.max_leaf_rows = X, root, max_leaf_rows
        self.leaf = flatten(root).descend(X)
        self.rounds = 0

    def split(self, requests: Sequence[tuple[int, int]]) -> list[Split]:
        self.rounds += 1
        results = []
        for old, first in requests:
            own = np.flatnonzero(self.leaf == old)
            assert len(own) > self.max_leaf_rows, "only leaves over the limit are to be divided"
            centres = split_centres(self.X[own], len(own), self.max_leaf_rows, 0)
            child = split_rows(self.X[own], centres)
            result = Split(centres, np.bincount(child, minlength=max(len(centres), 1)))
            if result.divides:
                assert not np.isin(self.leaf, first + np.arange(len(centres))).any(), "a number is used twice"
                self.leaf[own] = first + child
            results.append(result)
        return results

    def balance(self, min_leaf_rows: int) -> Balanced:
        counts = np.bincount(self.leaf, minlength=flatten(self.root).n_leaves)
        return balance(self.root, counts, min_leaf_rows, self.max_leaf_rows, self.split)


def balanced(X: NDArray[np.float32], levels: tuple[int, ...], low: int, high: int) -> tuple[Holder, Balanced]:
    root = fit_tree(X, np.ones(len(X)), levels, len(X), low, 0)
    holder = Holder(X, root, high)
    return holder, holder.balance(low)


@given(
    n=st.integers(1, 600),
    d=st.integers(1, 4),
    levels=st.sampled_from([(), (2,), (4, 4), (16,)]),
    low=st.integers(1, 20),
    more=st.integers(1, 200),
    distinct=st.integers(1, 600),
    seed=st.integers(0, 10**6),
)
def test_balance_with_rows_in_memory(
    n: int, d: int, levels: tuple[int, ...], low: int, more: int, distinct: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    high = low + more
    X = rng.normal(size=(distinct, d)).astype(np.float32)[rng.integers(0, distinct, n)]
    holder, result = balanced(X, levels, low, high)
    leaf = result.final[holder.leaf]
    tree = flatten(result.root)
    sizes = np.bincount(leaf, minlength=tree.n_leaves)
    assert leaf.min() >= 0
    assert sizes.sum() == n
    assert len(sizes) == tree.n_leaves
    assert len(sizes) == 1 or sizes.min() >= low
    np.testing.assert_array_equal(tree.descend(X), leaf)  # rows are served where they were counted
    before_merging = np.bincount(holder.leaf)
    for over in np.flatnonzero(sizes > high):
        if over in result.indivisible:
            repeated = np.unique(X[leaf == over], axis=0, return_counts=True)[1]
            assert repeated.max() > high / 2  # it is one row many times over that could not be divided
        else:
            joined = np.unique(holder.leaf[leaf == over])
            assert len(joined) > 1  # only a merge of small leaves takes a leaf over the limit
            assert before_merging[joined].max() <= high
    assert all(sizes[over] > high for over in result.indivisible)


def test_limits_hold_on_uneven_data(rng: np.random.Generator) -> None:
    """A dense blob and a few rows far away in one leaf: all centres but one go to those few, and the blob,
    whose rows are all different, must be divided all the same.
    """
    X = np.concatenate([rng.normal(0, 0.01, (5_000, 3)), rng.normal(0, 5, (200, 3))]).astype(np.float32)
    holder, result = balanced(X, (16,), 20, 300)
    sizes = np.bincount(result.final[holder.leaf])
    assert sizes.sum() == 5_200
    assert sizes.max() <= 300
    assert sizes.min() >= 20
    assert result.indivisible == ()
    assert holder.rounds > 0


def test_identical_rows_are_indivisible() -> None:
    X = np.full((500, 2), 0.1, np.float32)
    holder, result = balanced(X, (4,), 5, 100)
    assert result.root == 0
    assert result.indivisible == (0,)
    assert holder.rounds == 1  # asked once, and not again
    assert (result.final[holder.leaf] == 0).all()


def test_nearly_identical_rows_are_indivisible() -> None:
    X = np.zeros((500, 1), np.float32)
    X[:5] = np.arange(1, 6)[:, None]
    holder, result = balanced(X, (), 10, 100)
    assert result.indivisible == (0,)
    assert (result.final[holder.leaf] == 0).all()  # five rows are too few for a leaf, and go back


def test_identical_rows_beside_others(rng: np.random.Generator) -> None:
    X = np.concatenate([np.full((400, 2), 9.0), rng.normal(size=(400, 2))]).astype(np.float32)
    holder, result = balanced(X, (2,), 5, 100)
    leaf = result.final[holder.leaf]
    sizes = np.bincount(leaf)
    (alike,) = result.indivisible
    assert set(leaf[:400].tolist()) == {alike}
    assert np.delete(sizes, alike).max() <= 100


def test_nothing_to_do() -> None:
    root = Node(np.array([[0.0], [1.0]], np.float32), [0, 1])
    result = balance(
        root, np.array([50, 60]), 10, 100, lambda requests: pytest.fail("no leaf is over the limit")
    )
    assert result.final.tolist() == [0, 1]
    assert result.indivisible == ()
    assert flatten(result.root).n_leaves == 2


def test_a_split_that_loses_rows_is_refused() -> None:
    centres = np.array([[0.0], [1.0]], np.float32)
    with pytest.raises(DcpredError, match=r"leaf 0: its 200 rows became 199"):
        balance(0, np.array([200]), 10, 100, lambda requests: [Split(centres, np.array([100, 99]))])


def test_all_leaves_of_a_round_are_divided_at_once() -> None:
    asked = []

    def split(requests: Sequence[tuple[int, int]]) -> list[Split]:
        asked.append(list(requests))
        return [Split(np.array([[0.0], [1.0]], np.float32) + old, np.array([75, 75])) for old, _ in requests]

    root = Node(np.array([[0.0], [2.0], [4.0]], np.float32), [0, 1, 2])
    result = balance(root, np.array([150, 150, 50]), 10, 100, split)
    assert asked == [[(0, 3), (1, 3 + MAX_ARITY)]]
    assert result.final[[3, 4, 3 + MAX_ARITY, 4 + MAX_ARITY, 2]].tolist() == [0, 1, 2, 3, 4]
    assert result.final[[0, 1]].tolist() == [-1, -1]


def test_a_split_that_never_helps_enough_ends() -> None:
    """97 % in one child counts as progress; the rounds are limited all the same."""
    totals = [10**6]

    def split(requests: Sequence[tuple[int, int]]) -> list[Split]:
        ((_, _),) = requests
        small = int(totals[0] * 0.03)
        totals[0] -= small
        return [Split(np.array([[0.0], [1.0]], np.float32), np.array([totals[0], small]))]

    result = balance(0, np.array([10**6]), 10, 100_000, split)
    assert flatten(result.root).n_leaves > 2


@pytest.mark.parametrize(
    ("n_rows", "arity"), [(101, 2), (140, 2), (141, 4), (280, 4), (281, 8), (1_120, 16), (10**9, 16)]
)
def test_split_arity(n_rows: int, arity: int) -> None:
    """A power of two that fills children to at most 70 % of 100 rows, and 16 at most."""
    assert split_arity(n_rows, 100) == arity


@pytest.mark.parametrize(
    ("counts", "divides"), [([100], False), ([100, 0], False), ([50, 50], True), ([90, 0, 10], True)]
)
def test_whether_a_split_divides(counts: list[int], divides: bool) -> None:
    assert Split(np.zeros((len(counts), 1), np.float32), np.array(counts)).divides is divides


def test_rows_of_an_undivided_leaf_stay_together() -> None:
    assert split_rows(np.zeros((3, 2), np.float32), np.zeros((1, 2), np.float32)).tolist() == [0, 0, 0]
