"""Leaves of a usable size: those with too many rows are split again, those with too few are merged.

This module handles counts only; the caller splits the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, IntArray, SingleArray
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.training.tree_fitting import MAX_ARITY, Node, k_means, merge_small, nearest_centre, relabel

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
        # Numbers are reserved for MAX_ARITY children each, so that all leaves of a round are divided at once.
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
