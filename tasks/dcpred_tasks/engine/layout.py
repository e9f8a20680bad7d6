"""What decides how the engine holds and walks a model, without the compiler: dcpred.cost.predicted asks the
same.
"""

from itertools import pairwise

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.compact_model import Model

LANES = 16
UNIT = 2.0**-24  # half a unit in the last place of single precision, relative
# up to so many features, lanes are rows (few_features.py, row_lanes.py) instead of centres (centre_lanes.py)
NARROW = 32
# share of features up to which the rest is skipped: to pick 16 of them takes as long as to convert 40 side by
# side
FEW = 0.65
MANY = 24  # features from which on any are skipped
BORDER_ROWS = (
    0.02  # share of rows too near to a border for products from which on a walk by distances takes less time
)
AT_ONCE = 8  # landmarks or outputs in one loop: as many chains as keep two units busy
UNROLLED = 4  # terms of one output, whose number is padded to a multiple
HUGE = 1e30  # squares and products of single precision stay finite below it
NOWHERE = 2**32 - 1  # the leaf of a row that cannot be scored


def held_features(model: Model) -> IntArray:
    """The features that rows are held with: those whose factor is not 0 where they are few, else all
    of them.
    """
    factor, shift = model.scaling.factor, model.scaling.shift
    held = np.flatnonzero(factor)
    overflow = (np.abs(shift[factor == 0]) >= 1e300).any()  # of x − μ: see load_some
    few = len(factor) >= MANY and len(held) <= FEW * len(factor)
    return held if few and not overflow else np.arange(len(factor))


def even(held: IntArray) -> int:
    return max(len(held) + len(held) % 2, 2)


def factors_fit(model: Model) -> bool:
    """Whether single precision holds the factors of the scaling with all digits."""
    factor = np.abs(model.scaling.factor)
    return bool(((factor == 0) | ((factor > 1e-30) & (factor < 1e30))).all())


def centre_in(model: Model, points: FloatArray) -> FloatArray:
    """Points to centre on, (n, n_features) in scaled features: 0 where the way back to raw features is too
    far.
    """
    factor = np.where(model.scaling.factor == 0, np.nan, model.scaling.factor)
    with np.errstate(all="ignore"):
        usable = np.abs(points / factor) < 1e30
    return np.where(usable, points, 0.0).astype(np.float32).astype(ACC_DTYPE)


def origin(model: Model) -> FloatArray:
    """The point that the tree is centred on."""
    centres = model.tree.centres.astype(ACC_DTYPE)
    return centre_in(model, centres.mean(axis=0) if len(centres) else np.zeros(model.n_features))


def product_error(model: Model) -> float:
    """Of products of rows and centres in single precision, relative to ‖x‖‖c‖; infinite: every walk goes in
    double precision.
    """
    return 2 * (len(held_features(model)) + 8) * UNIT if factors_fit(model) else np.inf


def walks_by_distances(model: Model) -> bool:
    """Whether products in single precision would leave too many rows between two children: by the margins of
    `nearest_child` for rows at the centres, in the gaps from centre to centre.
    """
    tree, error = model.tree, product_error(model)
    if tree.n_nodes == 0 or not np.isfinite(error):
        return False
    centres = tree.centres.astype(ACC_DTYPE) - origin(model)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.einsum("ij,ij->i", centres, centres)
    below = tree.rows_below(model.leaf_rows)
    near = 0.0
    for first, last in pairwise(tree.starts):
        own = slice(int(first), int(last))
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = square[own, None] + square[own] - 2 * centres[own] @ centres[own].T
            np.fill_diagonal(gaps, np.inf)
            margin = (error + 16 * UNIT) * square[own]
            share = margin / np.maximum(gaps.min(axis=1) / 2, 1e-300)
        near += float(below[own] @ np.nan_to_num(np.minimum(share, 1.0)))
    return near / max(float(model.leaf_rows.sum()), 1.0) > BORDER_ROWS
