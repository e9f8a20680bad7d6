"""The hierarchical k-means tree: how it is fitted, and how a row walks down it.

A level sends a scaled row x to argmax_t (x·c_t − ‖c_t‖²/2), its nearest centre. The tree is stored as flat
arrays: internal node i owns the centres `starts[i]:starts[i+1]`, and centre t leads to internal node
`children[t]` if that is ≥ 0, else to leaf `~children[t]`. Several centres may lead to one leaf, as after
merges of leaves with few rows. A tree without internal nodes has the single leaf 0.

DECISIONS.md compares it with other partitions.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from dcpred_tasks.dtypes import INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.tree import Tree

MAX_ARITY = 16  # most children of a node: one group of lanes of the engine
SAMPLE_ROWS_PER_CENTRE = 8  # fewest sample rows of a centre; with fewer it is noise
TREE_ITERATIONS = 50


@dataclass
class Node:
    """The tree while it is being built: centres (n_children, n_features) and, per centre, a node or a leaf
    number.
    """

    centres: SingleArray
    children: list["Node | int"] = field(default_factory=list)


def levels_for(n_leaves: int) -> tuple[int, ...]:
    """Arities whose product is the largest power of two that is ≤ n_leaves: 1,024 → (4, 16, 16).

    The odd one comes first: as many leaves with a quarter of the nodes, which the engine keeps in cache."""
    n_leaves = 1 << (max(n_leaves, 1).bit_length() - 1)
    levels: list[int] = []
    while n_leaves > 1:
        arity = min(MAX_ARITY, n_leaves)
        levels.insert(0, arity)
        n_leaves //= arity
    return tuple(levels)


def k_means(
    X: NDArray[np.floating],
    k: int,
    seed: int,
    weight: NDArray[np.float64] | None = None,
    start: Literal["k-means++", "random"] = "k-means++",
) -> SingleArray:
    """At most k distinct centres, float32 (≤ k, n_features): fewer where there are fewer distinct rows.

    start  where the centres begin: random rows take half the time of k-means++
    """
    # OpenBLAS raises the invalid flag on lanes that it does not use; the centres are checked instead.
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # There may be fewer distinct rows than centres.
        if weight is not None:
            # KMeans holds weights in single precision, and draws no rows whose weight is 0 there.
            weight = np.maximum(weight / max(weight.max(), 1e-300), 1e-30)
        fitted = KMeans(
            min(k, len(X)), init=start, n_init=1, max_iter=TREE_ITERATIONS, random_state=seed
        ).fit(X, sample_weight=weight)
    centres = np.unique(fitted.cluster_centers_.astype(MODEL_DTYPE), axis=0)
    if not np.isfinite(centres).all():
        raise DcpredError(
            "Cannot fit the tree: k-means gave a centre that is not finite. This is a bug; please report it."
        )
    return centres


def fit_tree(
    sample: SingleArray, weight: FloatArray, levels: Sequence[int], n_rows: int, min_leaf_rows: int, seed: int
) -> Node | int:
    """Build the tree on a sample of scaled rows with their weights, level by level.

    An arity shrinks where the sample, or the rows that it represents, cannot fill the children. Leaf numbers
    are depth-first. Returns the root, or the leaf number 0 where no division is possible.
    """
    rows_per_sample = n_rows / max(len(sample), 1)
    per_centre = max(SAMPLE_ROWS_PER_CENTRE, min_leaf_rows / rows_per_sample)
    next_leaf = iter(range(1 << 62))

    def build(rows: SingleArray, weight: FloatArray, depth: int) -> Node | int:
        arity = 0 if depth == len(levels) else min(levels[depth], int(len(rows) / per_centre))
        centres = k_means(rows, arity, seed + depth, weight) if arity > 1 else rows[:0]
        if len(centres) < 2:
            return next(next_leaf)
        nearest = nearest_centre(rows, centres)
        parts = [nearest == t for t in range(len(centres))]
        return Node(centres, [build(rows[part], weight[part], depth + 1) for part in parts])

    return build(sample, weight, 0)


def nearest_centre(X: SingleArray, centres: SingleArray) -> NDArray[np.int32]:
    """One level of the walk; int32 (n_samples,)."""
    return flatten(Node(centres, list(range(len(centres))))).descend(X)


def flatten(root: Node | int) -> Tree:
    """The flat arrays of a tree."""
    nodes: list[Node] = []

    def collect(node: Node | int) -> None:
        if isinstance(node, Node):
            nodes.append(node)
            for child in node.children:
                collect(child)

    collect(root)
    number = {id(node): i for i, node in enumerate(nodes)}
    children = [number[id(c)] if isinstance(c, Node) else ~c for node in nodes for c in node.children]
    centres = np.concatenate([node.centres for node in nodes]) if nodes else np.empty((0, 0), MODEL_DTYPE)
    starts = np.cumsum([0] + [len(node.children) for node in nodes])
    return Tree(
        starts.astype(INDEX_DTYPE), np.array(children, LEAF_DTYPE), np.ascontiguousarray(centres, MODEL_DTYPE)
    )


def relabel(node: Node | int, number: Callable[[int], "Node | int"]) -> Node | int:
    """The tree with each leaf replaced by number(leaf), which may be another leaf or a whole subtree."""
    if not isinstance(node, Node):
        return number(node)
    return Node(node.centres, [relabel(child, number) for child in node.children])


def merge_small(
    root: Node | int, counts: IntArray, min_leaf_rows: int
) -> tuple[Node | int, NDArray[np.int32]]:
    """Join leaves with fewer than `min_leaf_rows` rows to the nearest one.

    counts  rows of each leaf of `root`, by its number
    returns the tree with leaves numbered depth-first, and final[old leaf] = new leaf. A node whose centres
    all lead to one leaf is that leaf, and is then merged one level higher if it is still small. A leaf
    without a leaf beside it goes to the one that its rows would reach without it.
    """
    final = np.arange(len(counts), dtype=LEAF_DTYPE)
    total = counts.astype(np.int64).copy()

    def fold(node: Node | int) -> Node | int:
        if not isinstance(node, Node):
            return node
        children = [fold(child) for child in node.children]
        while not _one_leaf(children):
            leaves = {c for c in children if isinstance(c, int)}
            small = min(leaves, key=lambda leaf: (total[leaf], leaf), default=-1)
            if small < 0 or total[small] >= min_leaf_rows:
                break
            other = _nearest_other_leaf(node.centres, children, small)
            total[other] += total[small]
            final[final == small] = other
            children = [other if c == small else c for c in children]
        return children[0] if _one_leaf(children) else Node(node.centres, children)

    root = fold(root)
    order: dict[int, int] = {}
    root = relabel(root, lambda leaf: order.setdefault(leaf, len(order)))
    return root, np.array([order[int(leaf)] for leaf in final], LEAF_DTYPE)


def _one_leaf(children: Sequence[Node | int]) -> bool:
    return isinstance(children[0], int) and all(child == children[0] for child in children)


def _nearest_other_leaf(centres: SingleArray, children: Sequence[Node | int], small: int) -> int:
    """The leaf that a row at the small leaf's centre would reach if that leaf were not there."""
    mine = centres[children.index(small)].astype(np.float64)
    others = [t for t, child in enumerate(children) if child != small]
    nearest = min(others, key=lambda t: float(((mine - centres[t]) ** 2).sum()))
    child = children[nearest]
    while isinstance(child, Node):
        nearest = int(((mine - child.centres) ** 2).sum(axis=1).argmin())
        child = child.children[nearest]
    return child
