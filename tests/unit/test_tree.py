"""The tree: the walk against the nearest centre level by level, merging, and how it is fitted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model import compact_model, tree
from dcpred_tasks.model.tree import Router, Tree, read_router
from dcpred_tasks.scoring.scorer import arithmetic, described, score_rows
from dcpred_tasks.training.tree_fitting import (
    Node,
    fit_tree,
    flatten,
    levels_for,
    merge_small,
    nearest_centre,
    relabel,
)
from support.models import random_model


def random_tree(rng: np.random.Generator, d: int, depth: int, arity: int) -> tuple[Node | int, int]:
    """A tree with leaves at any depth, and their number."""
    leaves = iter(range(10**6))

    def build(level: int) -> Node | int:
        if level == depth or rng.random() < 0.25:
            return next(leaves)
        k = int(rng.integers(2, arity + 1))
        return Node(rng.normal(size=(k, d)).astype(np.float32), [build(level + 1) for _ in range(k)])

    root = build(0)
    return root, next(leaves)


def walk(root: Node | int, x: NDArray[np.float32]) -> int:
    """The definition: the nearest centre, level by level."""
    while isinstance(root, Node):
        distances = [sum((float(a) - float(b)) ** 2 for a, b in zip(x, c, strict=True)) for c in root.centres]
        root = root.children[distances.index(min(distances))]
    return root


trees = st.tuples(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 4), st.integers(2, 5))


@given(trees, st.integers(0, 25))
def test_descend_is_the_nearest_centre_level_by_level(shape: tuple[int, int, int, int], n: int) -> None:
    seed, d, depth, arity = shape
    rng = np.random.default_rng(seed)
    root, n_leaves = random_tree(rng, d, depth, arity)
    X = rng.normal(size=(n, d)).astype(np.float32)
    tree = flatten(root)
    leaf = tree.descend(X)
    assert leaf.dtype == np.int32
    assert leaf.tolist() == [walk(root, x) for x in X]
    assert tree.n_leaves == n_leaves
    assert tree.depth == depth_of(root)


def depth_of(root: Node | int) -> int:
    return 1 + max(depth_of(c) for c in root.children) if isinstance(root, Node) else 0


@given(trees)
def test_a_row_goes_the_same_way_in_any_company(shape: tuple[int, int, int, int]) -> None:
    seed, d, depth, arity = shape
    rng = np.random.default_rng(seed)
    root, _ = random_tree(rng, d, depth, arity)
    tree = flatten(root)
    X = rng.normal(size=(40, d)).astype(np.float32)
    leaf = tree.descend(X)
    order = rng.permutation(len(X))
    np.testing.assert_array_equal(tree.descend(X[order]), leaf[order])
    np.testing.assert_array_equal(np.concatenate([tree.descend(x[None]) for x in X]), leaf)
    np.testing.assert_array_equal(tree.descend(np.asfortranarray(X)), leaf)


def test_rows_halfway_between_centres_go_the_same_way_in_any_company() -> None:
    """Such rows exist where values are few; BLAS sums a product differently for one row and for many."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=37).astype(np.float32)
        b = rng.normal(size=37).astype(np.float32)
        for other in (np.zeros_like(a), b):
            tree = flatten(Node(np.stack([other, a]), [0, 1]))
            x = ((a.astype(float) + other) / 2).astype(np.float32)
            ways = {int(tree.descend(np.repeat(x[None], n, axis=0))[0]) for n in (1, 2, 3, 64)}
            assert len(ways) == 1, f"seed {seed}: a row goes to leaf 0 or 1 by the size of its batch"


def test_exact_ties_go_to_the_lower_number() -> None:
    centres = np.array([[1, 0], [0, 1], [1, 0], [-1, 0]], np.float32)
    X = np.array([[0.5, 0.5], [2, 0], [0, 0], [-1, 1]], np.float32)
    assert nearest_centre(X, centres).tolist() == [0, 0, 0, 1]


def test_a_tree_of_one_leaf() -> None:
    tree = flatten(0)
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (0, 1, 0)
    assert tree.descend(np.ones((3, 7), np.float32)).tolist() == [0, 0, 0]


def test_empty_input() -> None:
    tree = flatten(Node(np.eye(2, dtype=np.float32), [0, 1]))
    assert tree.descend(np.empty((0, 2), np.float32)).shape == (0,)


def test_flat_layout_and_shared_leaves() -> None:
    c = np.arange(10, dtype=np.float32)[:, None]
    root = Node(c[:3], [0, Node(c[3:5], [1, 0]), 1])
    tree = flatten(root)
    assert tree.starts.tolist() == [0, 3, 5]
    assert tree.children.tolist() == [~0, 1, ~1, ~1, ~0]
    assert tree.centres[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (2, 2, 2)
    assert [a.dtype.name for a in (tree.starts, tree.children, tree.centres)] == ["int64", "int32", "float32"]


@pytest.mark.parametrize(
    ("n_leaves", "levels"),
    [
        (0, ()),
        (1, ()),
        (2, (2,)),
        (3, (2,)),
        (16, (16,)),
        (17, (16,)),
        (32, (2, 16)),
        (1_024, (4, 16, 16)),
        (1_500, (4, 16, 16)),
        (4_096, (16, 16, 16)),
    ],
)
def test_levels_for(n_leaves: int, levels: tuple[int, ...]) -> None:
    assert levels_for(n_leaves) == levels


@given(trees, st.integers(1, 60), st.integers(0, 2**31))
def test_merging_small_leaves(shape: tuple[int, int, int, int], minimum: int, seed: int) -> None:
    tree_seed, d, depth, arity = shape
    rng = np.random.default_rng(tree_seed)
    root, n_leaves = random_tree(rng, d, depth, arity)
    X = rng.normal(size=(200, d)).astype(np.float32)
    old = flatten(root).descend(X)
    counts = np.bincount(old, minlength=n_leaves)
    before = counts.copy()
    merged, final = merge_small(root, counts, minimum)
    tree = flatten(merged)
    sizes = np.bincount(final, weights=counts, minlength=tree.n_leaves)
    np.testing.assert_array_equal(counts, before)
    assert sizes.sum() == 200
    assert len(sizes) == 1 or sizes.min() >= minimum
    assert set(final.tolist()) == set(range(tree.n_leaves))
    # Rows walk to the leaf that their old leaf became: what was counted is what will be served.
    np.testing.assert_array_equal(tree.descend(X), final[old])
    assert n_leaves == 1 or counts.min() < minimum or tree.n_leaves == n_leaves


def test_merging_takes_the_nearest_leaf_across_levels() -> None:
    near = Node(np.array([[4.0], [6.0]], np.float32), [1, 2])
    root = Node(np.array([[0.0], [5.0], [20.0]], np.float32), [0, near, 3])
    merged, final = merge_small(root, np.array([3, 50, 50, 50]), 10)
    assert final.tolist() == [0, 0, 1, 2]  # leaf 0 lies nearest to the node of 1 and 2, and in it to leaf 1
    assert flatten(merged).descend(np.array([[-1.0]], np.float32))[0] == 0


def test_merging_goes_up_where_a_whole_node_is_small() -> None:
    small = Node(np.array([[10.0], [11.0]], np.float32), [1, 2])
    root = Node(np.array([[0.0], [10.0], [12.0]], np.float32), [0, small, 3])
    _, final = merge_small(root, np.array([50, 2, 2, 50]), 10)
    assert final.tolist() == [0, 1, 1, 1]


def test_everything_merges_into_one_leaf() -> None:
    root = Node(np.array([[0.0], [1.0]], np.float32), [0, Node(np.array([[1.0], [2.0]], np.float32), [1, 2])])
    merged, final = merge_small(root, np.array([1, 1, 1]), 10)
    assert merged == 0
    assert final.tolist() == [0, 0, 0]


def test_relabel_can_graft_a_subtree() -> None:
    c = np.array([[0.0], [1.0]], np.float32)
    grafted = relabel(Node(c, [0, 1]), lambda leaf: Node(c, [5, 6]) if leaf else 4)
    assert flatten(grafted).descend(np.array([[0.0], [1.0]], np.float32)).tolist() == [4, 6]


def fitted(
    X: NDArray[np.float32], levels: tuple[int, ...], min_leaf_rows: int = 1, n_rows: int = 0
) -> Node | int:
    return fit_tree(X, np.ones(len(X)), levels, n_rows or max(len(X), 1), min_leaf_rows, 0)


def test_fitted_tree_has_the_leaves_asked_for_and_narrow_ones(rng: np.random.Generator) -> None:
    X = rng.normal(size=(2_000, 3)).astype(np.float32)
    tree = flatten(fitted(X, (8, 4)))
    leaf = tree.descend(X)
    assert tree.n_leaves == 32
    assert tree.depth == 2
    assert np.bincount(leaf, minlength=32).min() > 0
    within = sum(((X[leaf == t] - X[leaf == t].mean(axis=0)) ** 2).sum() for t in range(32))
    assert within < 0.2 * ((X - X.mean(axis=0)) ** 2).sum()


def test_well_separated_groups_are_found(rng: np.random.Generator) -> None:
    group = rng.integers(0, 4, 400)
    X = (100.0 * np.eye(4)[group] + rng.normal(size=(400, 4))).astype(np.float32)
    leaf = flatten(fitted(X, (4,))).descend(X)
    assert len(set(zip(group.tolist(), leaf.tolist(), strict=True))) == 4


def test_weights_move_the_centres() -> None:
    X = np.repeat(np.array([[0.0], [1.0], [10.0], [11.0]], np.float32), 20, axis=0)
    weight = np.repeat([1.0, 3.0, 3.0, 1.0], 20)
    root = fit_tree(X, weight, (2,), len(X), 1, 0)
    assert isinstance(root, Node)
    np.testing.assert_allclose(root.centres[:, 0], [0.75, 10.25], rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_constant_rows_make_one_leaf(n: int) -> None:
    assert fitted(np.full((n, 3), 0.1, np.float32), (16, 16)) == 0


def test_few_distinct_rows_make_few_leaves() -> None:
    X = np.repeat(np.array([[0.0], [1.0], [5.0]], np.float32), 100, axis=0)
    assert flatten(fitted(X, (16, 16))).n_leaves == 3


def test_a_sample_that_cannot_fill_the_children_makes_fewer(rng: np.random.Generator) -> None:
    X = rng.normal(size=(64, 2)).astype(np.float32)
    assert flatten(fitted(X, (16,))).n_leaves == 8  # 8 sampled rows for each centre
    assert flatten(fitted(X, (16,), min_leaf_rows=16)).n_leaves == 4
    assert flatten(fitted(X, (16,), min_leaf_rows=160, n_rows=640)).n_leaves == 4  # each row stands for ten


class Cut:
    """A router of two leaves, on both sides of a value of the first column."""

    n_leaves, n_nodes, depth, nbytes = 2, 1, 1, 8

    def __init__(self, value: NDArray[Any]) -> None:
        self.value = value

    @property
    def points(self) -> NDArray[np.float32]:
        return np.array([[self.value[0] + side, 0, 0] for side in (-1, 1)], np.float32)

    def descend(self, X: NDArray[Any]) -> NDArray[np.int32]:
        return (X[:, 0].astype(np.float32) > self.value[0]).astype(np.int32)

    def near_leaves(self, X: NDArray[np.float32], n_near: int) -> NDArray[np.int32]:
        return np.pad(1 - self.descend(X)[:, None], ((0, 0), (0, n_near - 1)), constant_values=-1)

    def leaf_levels(self, n_leaves: int) -> NDArray[np.float64]:
        return np.ones(n_leaves)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"cut": self.value}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Cut":
        return cls(arrays["cut"])

    def check(self, n_leaves: int, n_columns: int) -> None:
        """Every row goes to one of two leaves."""


def test_another_router_scores_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "ROUTERS", (Tree, Cut))
    cut: Router = Cut(np.array([0.25], np.float32))
    found = read_router({"other": np.zeros(1), **cut.arrays()})
    assert isinstance(found, Cut)
    model = replace(random_model(3), tree=found)
    assert model.n_leaves > 1
    X = np.random.default_rng(0).normal(size=(50, model.n_features))
    leaves = np.empty(50, np.int32)
    scores, _ = score_rows(model, X, leaves=leaves)
    right, _ = compact_model.score_rows(model, X)
    assert described(model) == "numpy (not compiled: its tree has no centres)"
    assert (arithmetic(model), arithmetic(model, random_model(3))) == ("numpy", arithmetic())
    np.testing.assert_array_equal(scores, right)
    np.testing.assert_array_equal(leaves, cut.descend(model.scaling.exact(X)))


def test_arrays_without_a_tree_are_refused() -> None:
    with pytest.raises(ValueError, match="arrays of a tree are missing"):
        read_router({"landmarks": np.zeros(1)})
