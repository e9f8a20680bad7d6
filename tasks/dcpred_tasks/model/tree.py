"""The fitted tree as flat arrays, and the walk down it. training/tree_fitting.py defines the arrays."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, LEAF_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.kernels import RowArray

AT_ONCE = 2**22  # numbers of rows in double precision that descend at once


@dataclass(frozen=True)
class Tree:
    """The arrays of a tree; every row walks from node 0 to a leaf."""

    starts: IntArray  # (n_nodes + 1,), the first centre of each node
    children: NDArray[np.int32]  # (n_centres,), the node that a centre leads to, or ~leaf
    centres: SingleArray  # (n_centres, n_features), scaled

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

    def leaf_levels(self, n_leaves: int) -> FloatArray:
        """Levels down to each leaf, (n_leaves,), a mean where several centres lead to one."""
        at_leaf = self.children < 0
        leaf = ~self.children[at_leaf]
        total = np.bincount(leaf, self.levels[at_leaf], minlength=n_leaves)
        return np.asarray(total / np.maximum(np.bincount(leaf, minlength=n_leaves), 1))

    def rows_below(self, leaf_rows: IntArray) -> FloatArray:
        """The rows in each leaf that arrive by each centre, (n_centres,); in equal parts where several lead
        to a leaf.
        """
        at_leaf = self.children < 0
        leads = np.bincount(~self.children[at_leaf], minlength=self.n_leaves)
        below = np.zeros(len(self.children))
        below[at_leaf] = (leaf_rows / np.maximum(leads, 1))[~self.children[at_leaf]]
        for node in range(self.n_nodes - 1, 0, -1):  # A node comes before its children.
            below[self.children == node] = below[self.starts[node] : self.starts[node + 1]].sum()
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

    def _descend(self, X: RowArray, centres: FloatArray, half_norms: FloatArray) -> NDArray[np.int32]:
        leaf = np.zeros(len(X), LEAF_DTYPE)
        pending = [(0, np.arange(len(X), dtype=INDEX_DTYPE), X.astype(ACC_DTYPE))]
        while pending:
            node, index, rows = pending.pop()
            own = slice(self.starts[node], self.starts[node + 1])
            scores = rows @ centres[own].T
            scores -= half_norms[own]
            # Scores are now −‖x−c‖²/2, far from 0 on a border: single precision hides in which order BLAS
            # sums.
            scores -= np.einsum("ij,ij->i", rows, rows)[:, None] / 2
            target = self.children[own][scores.astype(np.float32).argmax(axis=1)]
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
