"""Fit the tree by k-means, with balanced leaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.tree import MAX_ARITY, Tree
from dcpred_tasks.training.clusters import k_means

SAMPLE_ROWS_PER_CENTRE = 8  # fewest sample rows of a centre; with fewer it is noise


@dataclass
class Node:
    """The tree while it is built: centres (n_children, n_features), and for each a node or a leaf number."""

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


MAX_ROUNDS = 12
SPLIT_SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Split:
    """A leaf divided: centres (k, n_features) and the rows nearest to each."""

    centres: SingleArray
    counts: IntArray

    @property
    def divides(self) -> bool:
        """Whether the split helped, and so was carried out."""
        return len(self.centres) > 1 and int(self.counts.max()) < int(self.counts.sum())


@dataclass(frozen=True)
class Balanced:
    """The tree whose leaves are final, and final[routed leaf] for every leaf that rows were sent to on the
    way.

    `indivisible` are final leaves over the limit whose rows are (nearly) all alike: they are thinned when
    fitted.
    """

    root: Node | int
    final: NDArray[np.int32]
    indivisible: tuple[int, ...]


def split_arity(n_rows: int, max_leaf_rows: int) -> int:
    """Children for a leaf of n_rows: a power of two ≤ 16, with a margin for uneven children."""
    wanted = n_rows / (0.7 * max_leaf_rows)
    return int(np.clip(1 << int(np.ceil(np.log2(max(wanted, 2.0)))), 2, MAX_ARITY))


def split_centres(sample: SingleArray, n_rows: int, max_leaf_rows: int, seed: int) -> SingleArray:
    """Centres that divide a leaf of n_rows rows, of which `sample` is a sample."""
    return k_means(sample, split_arity(n_rows, max_leaf_rows), seed)


def split_rows(rows: SingleArray, centres: SingleArray) -> NDArray[np.int32]:
    """The child of each row; all 0 where there is nothing to divide."""
    if len(centres) < 2:
        return np.zeros(len(rows), np.int32)
    return nearest_centre(rows, centres)


def balance(
    root: Node | int,
    counts: IntArray,
    min_leaf_rows: int,
    max_leaf_rows: int,
    split: Callable[[Sequence[tuple[int, int]]], Sequence[Split]],
) -> Balanced:
    """Split and merge until every leaf is within the limits, or no split helps.

    counts  rows of each leaf of `root`
    split   given (leaf, first number of its children) of the leaves to divide, renumbers their rows to first,
            first + 1, …, where the split divides them
    """
    totals = [int(n) for n in counts]
    parents: dict[int, range] = {}
    stuck: set[int] = set()
    for _ in range(MAX_ROUNDS):
        large = [
            leaf
            for leaf, n in enumerate(totals)
            if n > max_leaf_rows and leaf not in stuck and leaf not in parents
        ]
        if not large:
            break
        first = len(totals)
        # Numbers are reserved for MAX_ARITY children each: all leaves of a round are divided at once.
        firsts = [first + MAX_ARITY * i for i in range(len(large))]
        results = split(list(zip(large, firsts, strict=True)))
        totals.extend([0] * (MAX_ARITY * len(large)))
        nodes: dict[int, Node | int] = {}
        for leaf, start, result in zip(large, firsts, results, strict=True):
            if int(result.counts.sum()) != totals[leaf]:
                raise DcpredError(
                    f"Cannot split leaf {leaf}: its {totals[leaf]:,} rows became"
                    f" {int(result.counts.sum()):,}. This is a bug; please report it."
                )
            if not result.divides:
                stuck.add(leaf)
                continue
            children = range(start, start + len(result.centres))
            parents[leaf] = children
            for child, n in zip(children, result.counts, strict=True):
                totals[child] = int(n)
            nodes[leaf] = Node(result.centres, list(children))
        root = relabel(root, lambda leaf, nodes=nodes: nodes.get(leaf, leaf))  # type: ignore[misc]
    live = np.array([0 if leaf in parents else n for leaf, n in enumerate(totals)], INDEX_DTYPE)
    root, final = _merge(root, live, min_leaf_rows)
    sizes = np.bincount(final[final >= 0], weights=live[final >= 0], minlength=1)
    indivisible = tuple(
        leaf for leaf in np.flatnonzero(sizes > max_leaf_rows).tolist() if _is_stuck(leaf, final, stuck)
    )
    return Balanced(root, final, indivisible)


def _is_stuck(leaf: int, final: NDArray[np.int32], stuck: set[int]) -> bool:
    return any(int(final[old]) == leaf for old in stuck)


def _merge(root: Node | int, live: IntArray, min_leaf_rows: int) -> tuple[Node | int, NDArray[np.int32]]:
    """merge_small on the leaves that the tree still has; routed leaves that were divided get −1."""
    in_tree: list[int] = []

    def number(leaf: int) -> int:
        in_tree.append(leaf)
        return len(in_tree) - 1

    root = relabel(root, number)
    root, merged = merge_small(root, live[in_tree], min_leaf_rows)
    final = np.full(len(live), -1, np.int32)
    final[in_tree] = merged
    return root, final
