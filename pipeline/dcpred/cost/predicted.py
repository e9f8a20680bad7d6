"""Predict the cost of a prediction from a model's arrays alone: counts of the engine's work per row, times
nanoseconds.

The nanoseconds are fitted to 223 models of many shapes (tests/benchmarks/predicted.py). See DECISIONS.md,
"Predicted cost". On other computers times differ more than their ratio, which is what is predicted. Rows
are assumed to fall into leaves as the training rows did. The unit, a linear prediction, is one of the raw
features, also if one-hot encoding gives rows more columns.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.engine.layout import AT_ONCE, FEW_FEATURES, LANES, held_features, walks_by_distances
from dcpred_tasks.model.basis import Prices
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernel_families import Sum

UNIT_FEATURES = 4  # float32 values in 16 bytes: BLAS is slower where rows start elsewhere
CLIP_NS, QUANTILE_NS = 0.6, 2.0  # per mapped feature, in vectors of 16
NEAR_CENTRES = 2**15  # bytes of centres up to which the walk runs at full speed
NEAR_LANDMARKS = 2**18  # the same for landmarks, which a block of rows reads only once


@dataclass(frozen=True)
class PredictedCost:
    """The predicted cost of a row, in nanoseconds."""

    convert: float
    """ns per row to scale it into single precision."""
    descend: float
    """ns per row to walk down the tree and sort rows by leaf."""
    landmarks: float
    """ns per row for the kernel values of its leaf."""
    outputs: float
    """ns per row for the sums of all outputs over them."""
    linear: float
    """ns per row of a linear prediction: the unit of costs."""

    @property
    def ns_per_row(self) -> float:
        return self.convert + self.descend + self.landmarks + self.outputs

    @property
    def cost_ratio(self) -> float:
        return self.ns_per_row / self.linear


def padded_features(n_features: int) -> int:
    """Features per row of the unit: float32 rows padded with zeros to a multiple of 16 bytes."""
    return -(-n_features // UNIT_FEATURES) * UNIT_FEATURES


def linear_ns(n_features: int) -> float:
    """A float32 `X @ w` streaming from memory, of rows aligned to 16 bytes: the unit of costs."""
    return 1.2 + 0.245 * padded_features(n_features)


def predict_cost(model: Model, by_distances: bool | None = None) -> PredictedCost:
    """The cost of float32 rows by the compiled engine.

    by_distances  whether rows walk down the tree in double precision; None: as the centres require
    """
    held = len(held_features(model))
    share = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    m, p = np.diff(model.landmark_at), np.diff(model.pair_at)
    works = float(share @ (m > 0))
    prices = prices_of(model)
    t = np.diff(model.triangle_at) / np.maximum(m, 1)
    in_leaf: FloatArray = np.sum([prices.landmarks(m), prices.products(p), prices.triangle(t, m)], axis=0)
    values = float(share @ prices.values(m))
    return PredictedCost(
        # Once before the walk, and once more about the middle of the leaf; features of factor 0 count, too.
        convert=((model.tree.n_nodes > 0) + works) * _convert_ns(model) + _encode_ns(model) + _map_ns(model),
        descend=_descend_ns(model, share, held, by_distances),
        landmarks=values,
        outputs=float(share @ in_leaf) - values + (1.3 * model.n_outputs if model.n_outputs > 1 else 0.0),
        linear=linear_ns(model.n_features),
    )


def _encode_ns(model: Model) -> float:
    """Look up categories and write rows with their means, in NumPy: see DECISIONS.md, "Predicted cost"."""
    targets = model.scaling.targets
    return (
        0.0 if targets is None else 0.85 * targets.n_columns + 12.0 * len(targets.feature) * targets.n_means
    )


def _map_ns(model: Model) -> float:
    """Feature maps, once for both conversions, in vectors of 16 features."""
    coding = model.scaling.coding
    if coding is None or coding.map is None:
        return 0.0
    lanes = LANES * -(-model.scaling.n_encoded // LANES)
    return (CLIP_NS if coding.map.at is None else QUANTILE_NS) * lanes


def _convert_ns(model: Model) -> float:
    """One conversion of a row: of contiguous features, or of the columns that they become first. A model
    that accepts missing values checks every number, and with indicators it copies the row. Logarithms are
    of whole vectors.
    """
    d, columns, coding = model.scaling.n_encoded, model.n_columns, model.scaling.coding
    if coding is None:
        return 4.0 + 0.424 * d
    own = 7.0 + 0.55 * d + 0.4 * columns if coding.is_coded.any() else 4.0 + 0.424 * columns
    if coding.symlog is not None:
        lanes = next(n for n in (LANES, 4, 1) if d >= n)
        own += 0.55 * lanes * -(-d // lanes)
    if coding.gap is not None:
        own += 0.8 + 0.07 * columns
    if len(coding.indicated) and not coding.is_coded.any():
        own += 3.0 + 0.06 * d + 0.5 * len(coding.indicated)
    return own


def prices_of(model: Model) -> Prices:
    """The cost per row of the bases of a model's leaves."""
    held, family = len(held_features(model)), model.kernel.family
    if len(model.triangle) > 0 or model.triangle_at[-1] > 0:  # row by row in double precision
        return Prices(1, 8.0 + 0.68 * model.n_columns, 0.0, 0.0, 3.0, 15.0, 1.2)
    few, absolute = held <= FEW_FEATURES, family.sum == Sum.ABSOLUTE
    groups = int(np.ceil(np.diff(model.landmark_at) / LANES).sum())
    far = _doublings(4 * LANES * held * groups, NEAR_LANDMARKS)
    # A feature in a sum of |x − u| takes longer than one in a product, and in wide rows much longer.
    of_feature = (0.32 if few else 0.143) * ((1.7 if few else 3.06) if absolute else 1.0)
    of_feature += (0.036 if few else 0.022) * far
    of_group = (1.8 if few else 8.6) + family.group_ns + held * of_feature
    if model.n_outputs == 1:
        return Prices(LANES, of_group, 0.0, 0.0, 0.06, 0.0, 0.0)
    outputs = AT_ONCE * -(-_present(model) // AT_ONCE)
    return Prices(LANES, of_group, 0.0, 0.01 * outputs, 0.02 * outputs, 0.0, 0.0)


def _doublings(n_bytes: float, near: float) -> float:
    """log₂ of the ratio of bytes to those that a core keeps near: the cost of farther reads grows slowly
    with their size.
    """
    return float(np.log2(max(n_bytes / near, 1.0)))


def _descend_ns(model: Model, share: FloatArray, held: int, by_distances: bool | None) -> float:
    """The walk, with the sort of rows by node at each level and by leaf at its end. With more than a few
    features rows are assumed to use the int16 quantised walk, which holds unless a tree's centres are very
    close.
    """
    if model.tree.n_nodes == 0:
        return 0.0
    centres = LANES * held * model.tree.n_nodes
    if by_distances is None:
        by_distances = walks_by_distances(model)
    if by_distances:  # in double precision; not measured with the others
        level = 25.0 + 0.68 * held
    elif held <= FEW_FEATURES:
        level = 9.4 + 0.114 * held * _doublings(4 * centres, NEAR_CENTRES)
    else:
        level = 20.4 + 0.07 * held * _doublings(2 * centres, NEAR_CENTRES)
    return float(share @ model.tree.leaf_levels(model.n_leaves)) * level


def _present(model: Model) -> FloatArray:
    """Number of outputs with weights in each leaf: with several classes, those that it has rows of."""
    if len(model.beta) < model.beta_at[-1]:  # an outline of a model, without weights
        return np.full(model.n_leaves, float(model.n_outputs))
    return np.array([float(model.beta[a:b].any(axis=0).sum()) for a, b in pairwise(model.beta_at)])
