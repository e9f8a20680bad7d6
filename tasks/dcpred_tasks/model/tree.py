"""The fitted tree as flat arrays, and the walk down it. training/tree_fitting.py defines the arrays.

The core has one router, the tree of nearest centres. A further one is a class with the members of `Router`
and a place in ROUTERS; lines declare its arrays, and artifacts/model_layout.py has them in COMPACT. The
compiled engine walks trees of nearest centres alone: the definition scores rows of other routers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    INDEX_DTYPE,
    LEAF_DTYPE,
    MODEL_DTYPE,
    FloatArray,
    IntArray,
    SingleArray,
)
from dcpred_tasks.model.kernels import RowArray
from dcpred_tasks.model.leaf_arrays import Line, from_held, held_arrays

TREE = "tree_"  # begins the names of its arrays
BEAM_ROWS = 16_384
EXTRA_WAYS = 2  # extra ways: after merges of leaves, several ways lead to one leaf
PADDING = np.iinfo(INDEX_DTYPE).max  # the node or leaf of a way that a row does not have
MAX_ARITY = 16  # most children of a node: one group of lanes of the engine
# The engine takes time for the nodes from the first of a level to its last: all levels span at most this many
# times the nodes of a tree. Trees that were trained have fewer levels than that.
MOST_SPANS = 1_000
AT_ONCE = 2**22  # numbers of rows in double precision that descend at once


@dataclass(frozen=True)
class Tree:
    """The arrays of a tree; every row walks from node 0 to a leaf."""

    starts: Annotated[IntArray, Line(INDEX_DTYPE, ("node_edge",))]
    """The first centre of each node."""
    children: Annotated[NDArray[np.int32], Line(LEAF_DTYPE, ("child",))]
    """The node that a centre leads to, or ~leaf."""
    centres: Annotated[SingleArray, Line(MODEL_DTYPE, ("child", "feature"))]
    """Scaled."""

    @classmethod
    def single(cls, n_columns: int) -> Self:
        """The tree of one leaf."""
        return cls(np.zeros(1, INDEX_DTYPE), np.zeros(0, LEAF_DTYPE), np.zeros((0, n_columns), MODEL_DTYPE))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return from_held(cls, arrays, TREE)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its arrays by their names in a model."""
        return held_arrays(self, TREE)

    @property
    def points(self) -> SingleArray:
        return self.centres

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())

    @property
    def n_nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def n_leaves(self) -> int:
        return int((~self.children[self.children < 0]).max()) + 1 if len(self.children) else 1

    @property
    def depth(self) -> int:
        """Levels that the longest walk takes."""
        return int(self.levels.max(initial=0))

    @property
    def levels(self) -> IntArray:
        """Levels that a walk has taken with the step from each centre, int64 (n_centres,)."""
        of_node = np.ones(max(self.n_nodes, 1), INDEX_DTYPE)
        for node in range(self.n_nodes):  # A node comes before its children.
            below = self.children[self.starts[node] : self.starts[node + 1]]
            of_node[below[below >= 0]] = of_node[node] + 1
        return np.repeat(of_node[: self.n_nodes], np.diff(self.starts))

    @property
    def spans(self) -> IntArray:
        """The least node of each level, and the largest plus one, int64 (depth, 2)."""
        level, node = self.levels[self.starts[:-1]] - 1, np.arange(self.n_nodes)
        spans = np.tile(np.array([self.n_nodes, 0], INDEX_DTYPE), (self.depth, 1))
        np.minimum.at(spans[:, 0], level, node)
        np.maximum.at(spans[:, 1], level, node + 1)
        return spans

    def leaf_levels(self, n_leaves: int) -> FloatArray:
        """Levels down to each leaf, (n_leaves,), a mean where several centres lead to one."""
        at_leaf = self.children < 0
        leaf = ~self.children[at_leaf]
        total = np.bincount(leaf, self.levels[at_leaf], minlength=n_leaves)
        return np.asarray(total / np.maximum(np.bincount(leaf, minlength=n_leaves), 1))

    def rows_below(self, leaf_rows: IntArray) -> FloatArray:
        """The rows of each leaf that arrive by each centre, (n_centres,); in equal parts by several."""
        at_leaf = self.children < 0
        leads = np.bincount(~self.children[at_leaf], minlength=self.n_leaves)
        below = np.zeros(len(self.children))
        below[at_leaf] = (leaf_rows / np.maximum(leads, 1))[~self.children[at_leaf]]
        parent = np.empty(self.n_nodes, INDEX_DTYPE)  # the one centre that leads to each node but the root
        parent[self.children[~at_leaf]] = np.flatnonzero(~at_leaf)
        for node in range(self.n_nodes - 1, 0, -1):  # A node comes before its children.
            below[parent[node]] = below[self.starts[node] : self.starts[node + 1]].sum()
        return below

    def descend(self, X: RowArray) -> NDArray[np.int32]:
        """The leaf of each scaled row, int32 (n_samples,).

        Products are summed in double precision and compared in single precision: a row as near to one centre
        as to another then takes the lower number, whatever the size of the batch that it came in.
        """
        leaf = np.zeros(len(X), LEAF_DTYPE)
        if self.n_nodes == 0:
            return leaf
        centres = self.centres.astype(ACC_DTYPE)
        half_norms = np.einsum("ij,ij->i", centres, centres) / 2
        step = max(AT_ONCE // max(X.shape[1], 1), 1)
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            leaf[rows] = self._descend(X[rows], centres, half_norms)
        return leaf

    def near_leaves(self, X: SingleArray, n_near: int) -> NDArray[np.int32]:
        """The leaves nearest to scaled rows but their own, int32 (n_samples, n_near), −1 where ways end."""
        nearest = np.full((len(X), n_near), -1, np.int32)
        if n_near and self.n_leaves > 1:
            centres, home = self.centres.astype(ACC_DTYPE), self.descend(X)
            for start in range(0, len(X), BEAM_ROWS):
                rows = slice(start, start + BEAM_ROWS)
                leaf = _beam(self, centres, X[rows].astype(ACC_DTYPE), n_near + 1 + EXTRA_WAYS)
                nearest[rows] = _first_others(leaf, home[rows], n_near)
        return nearest

    def check(self, n_leaves: int, n_columns: int) -> None:
        """Raise ValueError unless this is a tree whose walks end in leaves of a model: a node comes before
        its children, and all but the root have one parent.
        """
        starts, children = self.starts, self.children.astype(np.int64)
        if len(starts) == 0:
            raise ValueError("array tree_starts lacks an end")
        counts = np.diff(starts)
        if starts[0] != 0 or starts[-1] != len(children) or ((counts < 1) | (counts > MAX_ARITY)).any():
            raise ValueError(f"array tree_starts does not describe nodes with 1 to {MAX_ARITY} centres")
        node = np.repeat(np.arange(self.n_nodes), counts)
        if ((children >= 0) & ((children <= node) | (children >= self.n_nodes))).any():
            raise ValueError("array tree_children names a node that does not come after its parent")
        if (np.bincount(children[children >= 0], minlength=self.n_nodes)[1:] != 1).any():
            raise ValueError("array tree_children does not name every node but the root once")
        if np.diff(self.spans).sum() > MOST_SPANS * self.n_nodes:
            raise ValueError("array tree_children scatters the nodes of many levels")
        if (~children[children < 0] >= n_leaves).any() or self.n_leaves != n_leaves:
            raise ValueError(f"array tree_children names other leaves than the {n_leaves} of the model")
        shape = len(children), n_columns if len(children) else self.centres.shape[1]
        if self.centres.shape != shape:
            raise ValueError(f"array tree_centres has shape {list(self.centres.shape)}, not {list(shape)}")
        if not np.isfinite(self.centres).all():
            raise ValueError("array tree_centres holds a value that is not finite")

    def _descend(self, X: RowArray, centres: FloatArray, half_norms: FloatArray) -> NDArray[np.int32]:
        leaf = np.zeros(len(X), LEAF_DTYPE)
        pending = [(0, np.arange(len(X), dtype=INDEX_DTYPE), X.astype(ACC_DTYPE))]
        while pending:
            node, index, rows = pending.pop()
            span = slice(self.starts[node], self.starts[node + 1])
            scores = rows @ centres[span].T
            scores -= half_norms[span]
            # Scores are now −‖x−c‖²/2, far from 0 on a border: single precision hides in which order BLAS
            # sums.
            scores -= np.einsum("ij,ij->i", rows, rows)[:, None] / 2
            target = self.children[span][scores.astype(np.float32).argmax(axis=1)]
            at_leaf = target < 0
            leaf[index[at_leaf]] = ~target[at_leaf]
            if at_leaf.all():
                continue
            order = np.argsort(target, kind="stable")
            order = order[np.count_nonzero(at_leaf) :]
            index, rows, target = index[order], rows[order], target[order]
            bounds = np.flatnonzero(np.diff(target, prepend=-1, append=-1))
            pending.extend((int(target[a]), index[a:b], rows[a:b]) for a, b in pairwise(bounds))
        return leaf


def _beam(tree: Tree, centres: FloatArray, X: FloatArray, n_ways: int) -> NDArray[np.int64]:
    """Leaves at the end of the nearest ways, nearest first, (n, ≤ n_ways); PADDING where a row has fewer."""
    n, arity = len(X), int(np.diff(tree.starts).max())
    node, away = np.zeros((n, 1), INDEX_DTYPE), np.zeros((n, 1), np.float32)
    while ((node >= 0) & (node != PADDING)).any():
        ways = node.shape[1]
        children = np.full((n * ways, arity), PADDING, INDEX_DTYPE)
        distance = np.full((n * ways, arity), np.inf, np.float32)
        flat, at = node.ravel(), away.ravel()
        done = flat < 0
        children[done, 0], distance[done, 0] = flat[done], at[done]
        pending = np.flatnonzero(~done & (flat != PADDING))
        pending = pending[np.argsort(flat[pending], kind="stable")]
        bounds = np.flatnonzero(np.diff(flat[pending], prepend=-1, append=-1))
        for first, last in pairwise(bounds.tolist()):
            pairs = pending[first:last]
            span = slice(int(tree.starts[flat[pairs[0]]]), int(tree.starts[flat[pairs[0]] + 1]))
            k = span.stop - span.start
            children[pairs, :k] = tree.children[span]
            distance[pairs, :k] = at[pairs, None] + _past_borders(X[pairs // ways], centres[span])
        n_nearest = min(n_ways, ways * arity)
        order = np.argsort(distance.reshape(n, -1), axis=1, kind="stable")[:, :n_nearest]
        node = np.take_along_axis(children.reshape(n, -1), order, axis=1)
        away = np.take_along_axis(distance.reshape(n, -1), order, axis=1)
    return np.where(node < 0, ~node, PADDING)


def _past_borders(X: FloatArray, centres: FloatArray) -> NDArray[np.float32]:
    """The squared distance of rows to the borders between their nearest centre and others, (n, k)."""
    half_norms = np.einsum("ij,ij->i", centres, centres) / 2
    scores = X @ centres.T - half_norms
    # As in Tree.descend, −‖x−c‖²/2 in single precision: rounding that depends on the batch never changes a
    # comparison.
    scores = (scores - np.einsum("ij,ij->i", X, X)[:, None] / 2).astype(np.float32).astype(ACC_DTYPE)
    best = scores.argmax(axis=1)
    between = np.sqrt(np.maximum(2 * (half_norms[:, None] + half_norms - centres @ centres.T), 0.0))[best]
    gap = scores[np.arange(len(X)), best][:, None] - scores
    return np.asarray(np.divide(gap, between, out=np.zeros_like(gap), where=between > 0) ** 2, np.float32)


def _first_others(leaf: NDArray[np.int64], home: NDArray[np.int32], n_near: int) -> NDArray[np.int32]:
    """The first n_near different leaves of each row that are not its own, −1 for none."""
    out = np.full((len(leaf), n_near), -1, np.int32)
    count = np.zeros(len(leaf), INDEX_DTYPE)
    for column in leaf.T:
        seen = (out == column[:, None]).any(axis=1)
        new = (column != home) & (column != PADDING) & (count < n_near) & ~seen
        out[new, count[new]] = column[new]
        count[new] += 1
    return out


class Router(Protocol):
    """Every scaled row belongs to one of `n_leaves` leaves."""

    @property
    def n_leaves(self) -> int:
        """The number of leaves, at least 1."""

    @property
    def n_nodes(self) -> int:
        """The number of inner nodes; 0 for a single leaf."""

    @property
    def depth(self) -> int:
        """Levels that the longest walk takes."""

    @property
    def points(self) -> SingleArray:
        """Scaled rows that lie in different leaves, (n, n_columns): rows of the self-test."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""

    def descend(self, X: RowArray) -> NDArray[np.int32]:
        """The leaf of each scaled row, int32 (n_samples,), the same in every batch."""

    def near_leaves(self, X: SingleArray, n_near: int) -> NDArray[np.int32]:
        """The leaves nearest to each scaled row after its own, int32 (n_samples, n_near), −1 for none."""

    def leaf_levels(self, n_leaves: int) -> FloatArray:
        """Levels down to each leaf, (n_leaves,)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its arrays by their names in a model."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`, among other arrays."""

    def check(self, n_leaves: int, n_columns: int) -> None:
        """Raise ValueError unless every walk ends in one of the leaves of a model."""


ROUTERS: tuple[type[Router], ...] = (Tree,)


def read_router(arrays: Mapping[str, NDArray[Any]]) -> Router:
    """The router whose arrays are among these. Raises ValueError where there is none."""
    for router in ROUTERS:
        try:
            return router.from_arrays(arrays)
        except KeyError:
            continue
    raise ValueError("the arrays of a tree are missing")
