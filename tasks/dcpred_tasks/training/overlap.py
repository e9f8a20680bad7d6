"""Overlap: which other leaves are near a row, which then helps to train them.

The distance of a row from a leaf is measured by the borders in between: on a level where the nearest centre
is c and the way to the leaf leads to c', the row is (s_c − s_c') / ‖c − c'‖ away from the border between the
two, with s = x·c − ‖c‖²/2; the squares of the levels add up. A beam search keeps the nearest ways and ignores
all other leaves.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.tree import Tree

TILE_ROWS = 16_384
EXTRA_WAYS = 2  # extra ways: after merges of leaves, several ways lead to one leaf
PADDING = np.iinfo(INDEX_DTYPE).max  # the node or leaf of a way that a row does not have


def near_leaves(tree: Tree, X: SingleArray, n_near: int) -> NDArray[np.int32]:
    """The leaves nearest to each scaled row, its own not among them: int32 (n_samples, n_near), −1 where the
    nearest n_near + 3 ways lead to no more.
    """
    found = np.full((len(X), n_near), -1, np.int32)
    if n_near and tree.n_leaves > 1:
        centres = tree.centres.astype(ACC_DTYPE)
        own = tree.descend(X)
        for start in range(0, len(X), TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            leaf = _beam(tree, centres, X[tile].astype(ACC_DTYPE), n_near + 1 + EXTRA_WAYS)
            found[tile] = _first_others(leaf, own[tile], n_near)
    return found


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
            own = slice(int(tree.starts[flat[pairs[0]]]), int(tree.starts[flat[pairs[0]] + 1]))
            k = own.stop - own.start
            children[pairs, :k] = tree.children[own]
            distance[pairs, :k] = at[pairs, None] + _past_borders(X[pairs // ways], centres[own])
        kept = min(n_ways, ways * arity)
        order = np.argsort(distance.reshape(n, -1), axis=1, kind="stable")[:, :kept]
        node = np.take_along_axis(children.reshape(n, -1), order, axis=1)
        away = np.take_along_axis(distance.reshape(n, -1), order, axis=1)
    return np.where(node < 0, ~node, PADDING)


def _past_borders(X: FloatArray, centres: FloatArray) -> NDArray[np.float32]:
    """The squared distance of each row to the border between its nearest centre and each of the others, (n,
    k).
    """
    half_norms = np.einsum("ij,ij->i", centres, centres) / 2
    scores = X @ centres.T - half_norms
    # As in Tree.descend, −‖x−c‖²/2 in single precision: rounding that depends on the batch never changes a
    # comparison.
    scores = (scores - np.einsum("ij,ij->i", X, X)[:, None] / 2).astype(np.float32).astype(ACC_DTYPE)
    best = scores.argmax(axis=1)
    between = np.sqrt(np.maximum(2 * (half_norms[:, None] + half_norms - centres @ centres.T), 0.0))[best]
    gap = scores[np.arange(len(X)), best][:, None] - scores
    return np.asarray(np.divide(gap, between, out=np.zeros_like(gap), where=between > 0) ** 2, np.float32)


def _first_others(leaf: NDArray[np.int64], own: NDArray[np.int32], n_near: int) -> NDArray[np.int32]:
    """The first n_near different leaves of each row that are not its own, −1 for none."""
    out = np.full((len(leaf), n_near), -1, np.int32)
    count = np.zeros(len(leaf), INDEX_DTYPE)
    for column in leaf.T:
        new = (column != own) & (column != PADDING) & (count < n_near) & ~(out == column[:, None]).any(axis=1)
        out[new, count[new]] = column[new]
        count[new] += 1
    return out
