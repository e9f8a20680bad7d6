"""Neighbouring leaves: the beam search against a plain definition, way by way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model import tree as tree_module
from dcpred_tasks.model.tree import EXTRA_WAYS, Tree
from support.models import random_tree


def plain_ways(tree: Tree, x: NDArray[np.float64]) -> list[tuple[float, int]]:
    """(distance, leaf) of every way from the root to a leaf, nearest first."""
    ways, pending = [], [(0.0, 0 if tree.n_nodes else ~0)]
    while pending:
        away, node = pending.pop()
        if node < 0:
            ways.append((away, ~node))
            continue
        own = slice(int(tree.starts[node]), int(tree.starts[node + 1]))
        centres = tree.centres[own].astype(float)
        squares = ((x - centres) ** 2).sum(axis=1)
        best = int(squares.argmin())
        for t, child in enumerate(tree.children[own]):
            apart = np.sqrt(((centres[t] - centres[best]) ** 2).sum())
            border = 0.0 if apart == 0 else (squares[t] - squares[best]) / 2 / apart
            pending.append((away + border**2, int(child)))
    return sorted(ways)


def check_row(tree: Tree, x: NDArray[np.float32], own: int, found: NDArray[np.int32]) -> None:
    """As far away as the definition's, and different leaves that are not the row's own; rounding may turn
    ties.
    """
    ways = plain_ways(tree, x.astype(float))
    away: dict[int, float] = {}
    for distance, leaf in ways:
        away.setdefault(leaf, distance)
    expected = {}  # leaf: distance, of the nearest ways
    for distance, leaf in ways[: len(found) + 1 + EXTRA_WAYS]:
        if leaf != own:
            expected.setdefault(leaf, distance)
    distances = list(expected.values())[: len(found)]
    leaves = found[found >= 0].tolist()
    assert (found[len(leaves) :] == -1).all()
    assert own not in leaves
    assert len(set(leaves)) == len(leaves)
    size = 1e-4 * (1 + float((x.astype(float) ** 2).sum()))
    assert len(leaves) == len(distances)
    np.testing.assert_allclose([away[leaf] for leaf in leaves], distances, atol=size)


def rows_near(tree: Tree, n: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = tree.centres if len(tree.centres) else np.zeros((1, 3), np.float32)
    return (centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, centres.shape[1]))).astype(
        np.float32
    )


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 3), st.integers(1, 12), st.integers(2, 40))
def test_the_nearest_leaves_are_those_of_the_definition(
    seed: int, d: int, depth: int, n_near: int, most: int
) -> None:
    """Nodes of 2 to 16 centres, ways of different length, merged leaves among them."""
    tree = random_tree(np.random.default_rng(seed), d, depth, most)
    X = rows_near(tree, 6, seed) if len(tree.centres) else np.zeros((6, d), np.float32)
    found = tree.near_leaves(X, n_near)
    assert found.shape == (6, n_near)
    assert found.dtype == np.int32
    for x, own, near in zip(X, tree.descend(X), found, strict=True):
        check_row(tree, x, int(own), near)


def two_levels(merged: bool) -> Tree:
    """Four quadrants, each of two leaves beside each other; with `merged`, all leaves on the left are one."""
    quadrants = np.array([[-4, -4], [-4, 4], [4, -4], [4, 4]], np.float32)
    aside = np.array([[-1, 0], [1, 0]])
    below = (quadrants[:, None] + aside).reshape(8, 2)
    leaves = np.array([0, 0, 0, 0, 1, 2, 3, 4] if merged else range(8), np.int32)
    return Tree(
        np.array([0, 4, 6, 8, 10, 12]),
        np.concatenate([np.arange(1, 5, dtype=np.int32), ~leaves]),
        np.concatenate([quadrants, below]).astype(np.float32),
    )


def test_known_neighbours() -> None:
    """From (3.9, 1): its sibling is 0.1 away, the leaves below are 1 away and √(1² + 0.1²)."""
    found = two_levels(merged=False).near_leaves(np.array([[3.9, 1.0]], np.float32), 3)
    assert found.tolist() == [[7, 4, 5]]


@pytest.mark.parametrize("n_near", [1, 4, 7, 30])
def test_every_other_leaf_is_found_where_there_are_no_more(n_near: int) -> None:
    tree = two_levels(merged=False)
    X = rows_near(tree, 50, 0)
    for own, near in zip(tree.descend(X), tree.near_leaves(X, n_near), strict=True):
        count = min(n_near, 7)
        assert len(set(near[:count].tolist()) - {-1, int(own)}) == count
        assert (near[count:] == -1).all()


def test_merged_leaves_are_found_once() -> None:
    tree = two_levels(merged=True)
    X = rows_near(tree, 50, 0)
    for own, near in zip(tree.descend(X), tree.near_leaves(X, 10), strict=True):
        assert sorted(near.tolist()) == [-1] * 6 + sorted(set(range(5)) - {int(own)})


def test_one_leaf_has_no_neighbours() -> None:
    no_nodes = Tree(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros((0, 3), np.float32))
    for tree in (no_nodes, Tree(np.array([0, 2]), np.full(2, ~0, np.int32), np.eye(2, 3, dtype=np.float32))):
        assert tree.near_leaves(np.ones((4, 3), np.float32), 2).tolist() == [[-1, -1]] * 4


def test_none_asked_for_and_no_rows() -> None:
    tree = two_levels(merged=False)
    assert tree.near_leaves(np.ones((4, 2), np.float32), 0).shape == (4, 0)
    assert tree.near_leaves(np.ones((0, 2), np.float32), 3).shape == (0, 3)


def test_centres_that_are_the_same() -> None:
    """No border lies between them: the row is 0 away."""
    centres = np.array([[0, 0], [0, 0], [9, 0]], np.float32)
    tree = Tree(np.array([0, 3]), ~np.arange(3, dtype=np.int32), centres)
    assert tree.near_leaves(np.array([[1, 1], [8, 1]], np.float32), 2).tolist() == [[1, 2], [0, 1]]


@pytest.mark.parametrize("tile_rows", [1, 7, 64])
@pytest.mark.parametrize("kind", ["random", "ties"])
def test_tiles_of_any_size_and_any_batch_give_the_same(
    kind: str, tile_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where leaves are as near as others, sums that are rounded in another order must not turn them."""
    if kind == "random":
        tree = random_tree(np.random.default_rng(3), 5, 3)
        X = rows_near(tree, 300, 1)
    else:  # the same numbers in another order, and rows of one number: all centres are equally near
        rng = np.random.default_rng(0)
        numbers = (10.0 ** rng.uniform(-3, 3, 19)).astype(np.float32)
        centres = rng.permuted(np.tile(numbers, (16, 1)), axis=1)
        tree = Tree(np.array([0, 16]), ~np.arange(16, dtype=np.int32), centres)
        X = np.repeat(rng.normal(0, 300, (300, 1)), 19, axis=1).astype(np.float32)
    whole = tree.near_leaves(X, 4)
    monkeypatch.setattr(tree_module, "BEAM_ROWS", tile_rows)
    np.testing.assert_array_equal(tree.near_leaves(X, 4), whole)
    order = np.random.default_rng(2).permutation(300)
    np.testing.assert_array_equal(tree.near_leaves(X[order], 4), whole[order])
    np.testing.assert_array_equal(tree.near_leaves(X, 2), whole[:, :2])
