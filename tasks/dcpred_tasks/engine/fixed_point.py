"""The int16 quantised walk: the centres of a tree as 16-bit integers, for a first walk that halves the cost
of products.

The centres c_t of a node become integers C_t ≈ (c_t − b) / unit, where b is their mean, and a row x becomes X
≈ x · FIXED_NORM / ‖x‖. The sums Σ_j X_j C_tj are exact in 32 bits, because ‖X‖‖C_t‖ is less than 2³¹. Up to a
part that all centres share, x·c_t is ‖x‖ · unit / FIXED_NORM · Σ_j X_j C_tj, and the error of a difference of
two is at most

    ‖x‖ (‖c_t − c_u‖ √d / 2 / FIXED_NORM + ‖δ_t‖ + ‖δ_u‖),   δ_t = c_t − b − unit · C_t

because X is rounded by half a unit in every feature. A row whose best child does not lead by as much is
decided in single precision: the leaf of a row does not depend on the walk that found it.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import (
    FEW_FEATURES,
    FIXED_CENTRE_NORM,
    FIXED_NORM,
    LANES,
    ROOT_OF_HUGE,
    group_features,
    product_error,
)
from dcpred_tasks.engine.row_layout import aligned
from dcpred_tasks.model.compact_model import Model

# Largest share of rows that the quantised walk may leave undecided between two children of a node.
UNDECIDED_ROWS = 0.05
SLACK = 1.01  # for rounding of the bound itself


class FixedNodes(NamedTuple):
    """The quantised centres of all nodes; arrays are empty for a tree without the quantised walk."""

    numbers: NDArray[np.int16]
    """int16 (n_nodes · group_features · 16,): C, two features of 16 centres after two features."""
    unit: SingleArray
    """float32 (n_nodes,), the unit of a node over FIXED_NORM."""
    error: SingleArray
    """float32 (n_nodes,), the error of two scores of a node, relative to ‖x‖‖c‖ as Packed.error."""
    span: IntArray
    """int64 (2 · depth,), the least node of each level of the tree, and the largest plus one."""


def no_nodes() -> FixedNodes:
    """The quantised nodes of a tree without the quantised walk."""
    unit, error = (aligned(np.empty(0, np.float32)) for _ in range(2))
    return FixedNodes(aligned(np.empty(0, np.int16)), unit, error, np.empty(0, np.int64))


def fixed_nodes(model: Model, held: IntArray, middle: FloatArray) -> FixedNodes:
    """The quantised tree, centred on `middle` and in held features, where it saves time."""
    tree = model.tree
    d, error = len(held), product_error(model)
    if group_features(held) <= FEW_FEATURES or tree.n_nodes == 0 or not np.isfinite(error):
        return no_nodes()
    n_pairs = group_features(held) // 2
    numbers = np.zeros((tree.n_nodes, n_pairs, LANES, 2), np.int16)
    unit, off = np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    undecided = 0.0
    below = tree.rows_below(model.leaf_rows)
    for node, (first, last) in enumerate(pairwise(tree.starts)):
        own = slice(int(first), int(last))
        moved = (tree.centres[own].astype(ACC_DTYPE) - middle)[:, held]
        with np.errstate(all="ignore"):
            apart = moved - moved.mean(axis=0)
            most = max(_lengths(apart).max() / FIXED_CENTRE_NORM, np.abs(apart).max() / 32_767)
            gaps = _lengths(moved[:, None] - moved)
            sizes = _lengths(moved)
        if not (sizes.max() < ROOT_OF_HUGE and (most > 1 / ROOT_OF_HUGE or most == 0)):
            return no_nodes()
        rounded = np.rint(apart / (most or 1.0))
        pairs = np.pad(rounded, ((0, 0), (0, 2 * n_pairs - d))).reshape(len(moved), n_pairs, 2)
        numbers[node, :, : len(moved)] = pairs.transpose(1, 0, 2)
        lost = _lengths(apart - most * rounded).max()
        bound = gaps.max() * np.sqrt(d) / 2 / FIXED_NORM + 2 * lost * (1 + np.sqrt(d) / FIXED_NORM)
        unit[node], off[node] = most / FIXED_NORM, SLACK * bound / (sizes.max() or 1.0) + error
        np.fill_diagonal(gaps, np.inf)
        share = off[node] * sizes.max() * sizes / np.maximum(gaps.min(axis=1) ** 2 / 2, 1e-300)
        undecided += float(below[own] @ np.minimum(share, 1.0))
    if undecided > UNDECIDED_ROWS * max(float(model.leaf_rows.sum()), 1.0):
        return no_nodes()
    levels = tree.levels[tree.starts[:-1]]
    at_level = [np.flatnonzero(levels == level) for level in range(1, tree.depth + 1)]
    span = [end for nodes in at_level for end in (nodes.min(), nodes.max() + 1)]
    return FixedNodes(
        numbers=aligned(numbers.ravel()),
        unit=aligned(unit.astype(np.float32)),
        error=aligned(off.astype(np.float32)),
        span=np.array(span, np.int64),
    )


def _lengths(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt(np.einsum("...j,...j->...", vectors, vectors))
    return lengths
