"""What a prediction will cost, from a model's arrays alone: counts of what the engine does for a row, times
nanoseconds.

The nanoseconds were fitted to 223 models of float32 rows: 8 to 784 features, 1 to 4,096 leaves, 4 to 256
landmarks, 1 to 26 outputs, up to 300 products, every kernel (2026-11-22, as tests/benchmarks/predicted.py
measures; x86-64 with AVX-512 and 2 MiB of second-level cache). Half of them are within 5 %, nine of ten
within 15 %, all within a third; of models held out from a fit half were within 5 %, nine of ten within 17
%. On other machines times differ more than their ratio, which is what is predicted. Rows are taken to fall
into leaves as the training rows did. The unit, a linear prediction, is one of the raw features, also where
some are coded and rows have more columns; what their conversion takes was fitted to five such models.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.engine.layout import AT_ONCE, FEW_FEATURES, LANES, held_features, walks_by_distances
from dcpred_tasks.model.basis import Prices
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernel_families import Sum

UNIT_FEATURES = 4  # float32 values in 16 bytes: BLAS takes longer where rows start elsewhere
CLIP_NS, QUANTILE_NS = 0.6, 2.0  # a feature of a vector of 16 that is mapped
NEAR_CENTRES = 2**15  # bytes of centres that rows walk past at full speed
NEAR_LANDMARKS = 2**18  # the same of landmarks, which a tile of rows reads but once


@dataclass(frozen=True)
class PredictedCost:
    """What a row will cost, in nanoseconds."""

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
    """Features of a row of the unit: float32 rows filled up with zeros to a multiple of 16 bytes."""
    return -(-n_features // UNIT_FEATURES) * UNIT_FEATURES


def linear_ns(n_features: int) -> float:
    """A float32 `X @ w` streaming from memory, of rows that start on 16 bytes: the unit of costs."""
    return 1.2 + 0.245 * padded_features(n_features)


def predict_cost(model: Model, by_distances: bool | None = None) -> PredictedCost:
    """The cost of float32 rows by the compiled engine.

    by_distances  whether rows walk down the tree in double precision; None: as the centres ask for
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
    """Codes looked up, and a row with their means written, in NumPy (one code: 19 ns of 8 features, 58 of 54;
    2026-11).
    """
    targets = model.scaling.targets
    return (
        0.0 if targets is None else 0.85 * targets.n_columns + 12.0 * len(targets.feature) * targets.n_means
    )


def _map_ns(model: Model) -> float:
    """Amounts mapped, once for both conversions, in vectors of 16 features (2026-11)."""
    coding = model.scaling.coding
    if coding is None or coding.map is None:
        return 0.0
    lanes = LANES * -(-model.scaling.n_encoded // LANES)
    return (CLIP_NS if coding.map.at is None else QUANTILE_NS) * lanes


def _convert_ns(model: Model) -> float:
    """One conversion of a row: of features that lie side by side, or of the columns that they become first.
    Where gaps are known, every number is looked at, and with indicators the row is copied. Logarithms are of
    whole vectors.
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
    """What the bases of a model's leaves cost for a row."""
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
    """log₂ of how many times bytes exceed those that a core keeps near: what is read from farther away grows
    slowly with how much there is.
    """
    return float(np.log2(max(n_bytes / near, 1.0)))


def _descend_ns(model: Model, share: FloatArray, held: int, by_distances: bool | None) -> float:
    """The walk, with the sort of rows by node at each level and by leaf at its end. Rows of more than a few
    features are taken to walk by whole numbers of 16 bits, and so they do but for trees with centres that lie
    very close.
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
    """Outputs that each leaf has weights for: of several classes those that it has rows of."""
    if len(model.beta) < model.beta_at[-1]:  # an outline of a model, without weights
        return np.full(model.n_leaves, float(model.n_outputs))
    return np.array([float(model.beta[a:b].any(axis=0).sum()) for a, b in pairwise(model.beta_at)])
