"""A model's arrays as the engine reads them: groups of 16 lanes, feature-major, on cache lines.

**Centres.** Everything is centred on one point m, near all centres, which saves precision: argmax_t x·c_t −
‖c_t‖²/2 is the same after both are moved by m. Where clusters of rows are so far apart that products cannot
distinguish neighbours in them (standardised counts without a bound), the walk computes argmin_t ‖x − c_t‖²,
with two operations per feature in place of one (DECISIONS.md).

**Landmarks.** In leaf l everything is centred on the mean μ_l of its landmarks, v_j = u_j − μ_l and z = x' −
μ_l. Kernel values are c_j = a_j · (e_j + h_j), where e_j is 0 or small at z = 0; of an rbf

    e_j = 2^(z·w_j − g_j‖z‖² − o_j) − h_j,   w_j = 2g_j · v_j,   g_j = γ_j log₂e

with (h, o, a) = (1, 0, exp(−γ_j‖v_j‖²)) where γ_j‖v_j‖² < 2, else (0, g_j‖v_j‖², 1); for the others see
dcpred_tasks.model.kernel_families. In a leaf much wider than the kernel ‖z − v‖² is a small difference of
large numbers: there squared differences are summed, with two operations per feature. A leaf that is wider
still goes row by row (native/exact.h). Output weights are large and cancel; written in e they cancel before
single precision is used (DECISIONS.md). Constants are summed here in double precision.

Where leaves have ARD scales of their own (leaf_scaling), x' is multiplied with those here, and u_j and μ_l
lie in such features: a row is converted for its leaf with other factors.

**Features.** Features with the factor 0 are the same in every row. Where they are many, rows, centres and
landmarks omit them; their contribution goes into half norms and offsets.

**Outputs.** Lanes are rows of one leaf: sums run over landmarks and products, and an output weight is one
number for all of them.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.columns import (
    Columns,
    Gaps,
    LogScale,
    Maps,
    columns_of,
    gaps_of,
    log_scale_of,
    maps_of,
)
from dcpred_tasks.engine.digits import Digits, digits_of
from dcpred_tasks.engine.fixed_point import FixedNodes, fixed_nodes, no_nodes
from dcpred_tasks.engine.layout import (
    AT_ONCE,
    HUGE,
    LANES,
    centre_in,
    factors_fit,
    group_features,
    held_features,
    origin,
    product_error,
    walks_by_distances,
)
from dcpred_tasks.engine.row_layout import (
    Conversion,
    LeafFactors,
    aligned,
    factors_of_leaves,
    halves,
    held_conversion,
    in_single,
    leaf_factors,
)
from dcpred_tasks.engine.terms import Terms, terms_of
from dcpred_tasks.engine.tiles import allowed
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernel_families import FAMILIES, LeafPoints, Sum

NO_CENTRE = 3e38  # half norm of a lane that holds no centre
# A leaf is wide where its width (γ‖v‖² of an rbf) exceeds this: it squares differences.
WIDE_LEAF = 16.0
TOO_WIDE_LEAF = 1e4  # Rows of a still wider leaf go one by one in double precision.
# Limit of the sum of a leaf's terms for single precision, in scales of decision values and times 1 + √width
# (DECISIONS.md).
LARGE_TERMS = 2e4


class Packed(NamedTuple):
    """A model in the layout of the compiled functions, where it is `p`.

    Arrays are flat where the shape has a `·`. Offsets (`*_at`) count elements, not bytes. "Held" features are
    the features of converted rows (layout.held_features); a group is 16 lanes: centres of a node, or
    landmarks.
    """

    n_features: int
    """Features of a raw row."""
    n_columns: int
    """Columns that they become (`columns`): n_features without one-hot encoding and missing indicators."""
    columns: Columns
    gaps: Gaps
    log_scale: LogScale
    maps: Maps
    n_outputs: int
    """Decision values of a row."""
    n_converted: int
    """Entries of the arrays that convert a row: n_columns, or `width` where some are skipped."""
    width: int
    """Length of a converted row in its buffer: held features, padded to a multiple of 16."""
    group_features: int
    """Features of a group: held features, padded to an even number."""
    term_weights: int
    """Output weights of a term in `weights`: the most outputs of a leaf, padded to a multiple of 8; or 1."""
    row_values: int
    """Length of a row's kernel values in room.e: lanes of the leaf with most groups, and 16 more."""
    regression: bool
    """Whether decision values are float64 and bounded, and not float32."""
    picks: NDArray[np.int32]
    """int32 (n_converted,), the held features; empty where all are."""
    factor: SingleArray
    """float32 (n_converted,), s in 1 / raw units."""
    shift: FloatArray
    """float64 (n_converted,), μ in raw units."""
    double_factor: FloatArray
    """float64 (n_converted,), s in double precision."""
    origin_high: SingleArray
    """float32 (n_converted,), μ + m / s in raw units, the part that one float32 holds."""
    origin_low: SingleArray
    """float32 (n_converted,), the rest of μ + m / s."""
    origin_centre: SingleArray
    """float32 (n_converted,), m in scaled units: the origin of the tree."""
    error: np.float32
    """Error of products with centres, relative to ‖x‖‖c‖ (layout.product_error)."""
    by_distances: bool
    """Whether rows walk down by squared distances in place of products."""
    fixed: FixedNodes
    """The quantised centres, for the int16 quantised walk."""
    nodes: SingleArray
    """float32 (n_nodes · group_features · 16,), the centres of each node less m, feature by feature."""
    half_norms: SingleArray
    """float32 (n_nodes · 16,), ‖c − m‖² / 2, and NO_CENTRE in lanes without a centre; in a walk by distances,
    the contribution of skipped features to the squared distance.
    """
    radius: SingleArray
    """float32 (n_nodes,), the largest ‖c − m‖ of a node."""
    children: NDArray[np.int32]
    """int32 (n_nodes · 16,), the node that a centre leads to, or ~leaf."""
    rank: IntArray
    """int64 (n_leaves,), the rank of a leaf in the order of scoring: limbs, products, wide leaves."""
    n_by_digits: int
    """Leaves whose kernel values come from products of int8 limbs."""
    n_by_products: int
    """Leaves whose kernel values come from products, of limbs or not: all but the wide ones."""
    leaf_factors: LeafFactors
    """The factors of features in leaves, in place of `factor`."""
    means_high: SingleArray
    """float32 (n_leaves · n_converted,), μ + μ_l / s in raw units, as origin_high."""
    means_low: SingleArray
    """float32 (n_leaves · n_converted,), as origin_low."""
    means_centre: SingleArray
    """float32 (n_leaves · n_converted,), μ_l in scaled units: the mean of a leaf's landmarks."""
    group_at: IntArray
    """int64 (n_leaves + 1,), the first group of each leaf; no group for rows in double precision."""
    groups: SingleArray
    """float32 (n_groups · group_features · 16,), the factors or subtrahends of rows (w)."""
    digits: Digits
    """Landmarks as int8 limbs, in leaves that use them."""
    constants: SingleArray
    """float32 (n_groups · n_constants · 16,), constants of the landmarks in the family's formula."""
    kernel: int
    """The place of the kernel's family in FAMILIES."""
    absolute: bool
    """Whether the kernel is a function of Σ |z − v|."""
    n_landmarks: IntArray
    """int64 (n_leaves,), landmarks of each leaf, padded to a multiple of 4."""
    pair_at: IntArray
    """int64 (n_leaves + 1,), offsets of products e_i · e_j, padded to a multiple of 4 in each leaf."""
    left: IntArray
    """int64 (n_products,), i of each product, counted within the leaf."""
    right: IntArray
    """int64 (n_products,), j of each product."""
    weight_at: IntArray
    """int64 (n_leaves + 1,), where the weights of a leaf begin: landmarks, then products, term_weights per
    term.
    """
    weights: SingleArray
    """float32, output weights of e_j and of e_i · e_j, in units of decision values."""
    present_at: IntArray
    """int64 (n_leaves + 1,), offsets into `present`."""
    present: IntArray
    """int64, the outputs that a leaf has weights for; they come first among the weights of a term."""
    constant: FloatArray
    """float64 (n_leaves, n_outputs), the constants of the sums, in units of decision values."""
    bounds: FloatArray
    """float64 (n_leaves, 2), the least and the largest value of a regression in a leaf; 0 for classes."""
    bounded: NDArray[np.bool_]
    """bool (n_leaves,), whether `bounds` hold in a leaf."""


def pack(model: Model) -> Packed:
    """Lay a model out for the engine."""
    conversion = held_conversion(model, held := held_features(model))
    in_lanes = len(model.triangle) == 0 and factors_fit(model)
    (means, width), has_bounds = _centred(model), model.bounds.shape[1] > 0
    wide = (width > WIDE_LEAF) & (model.kernel.family.sum == Sum.SQUARES)
    counts = np.diff(model.landmark_at) * (np.diff(model.beta_at) > 0) * (width <= TOO_WIDE_LEAF) * in_lanes
    for leaf in np.flatnonzero(counts).tolist():
        size = _terms_at_landmarks(model, held, leaf, means[leaf], bool(wide[leaf]))
        counts[leaf] *= size * (1 + np.sqrt(width[leaf])) <= LARGE_TERMS
    group_at = np.concatenate([[0], np.cumsum(-(-counts // LANES))]).astype(np.int64)
    groups, constants, constant, terms = _pack_leaves(model, held, counts, group_at, means, wide)
    by_products = ~wide & (model.kernel.family.sum != Sum.ABSOLUTE)
    digits = digits_of(groups, group_at, counts, by_products & allowed())
    by_digits = digits.group_at >= 0
    present, term_weights, weights = _output_weights(terms, model.n_outputs)
    high, low, middle = halves(conversion, means, factors_of_leaves(model, conversion))
    return Packed(
        n_features=model.n_features,
        n_columns=model.n_columns,
        columns=columns_of(model),
        gaps=gaps_of(model, conversion),
        log_scale=log_scale_of(model),
        maps=maps_of(model),
        n_outputs=model.n_outputs,
        n_converted=len(conversion.feature),
        width=-(-max(len(held), 1) // LANES) * LANES,
        group_features=group_features(held),
        term_weights=term_weights,
        row_values=(int(np.diff(group_at).max()) + 1) * LANES,
        regression=model.task == "regression",
        picks=aligned(conversion.feature[: 0 if len(held) == model.n_columns else None]),
        factor=aligned(in_single(conversion.factor)),
        shift=aligned(conversion.shift),
        double_factor=aligned(conversion.factor),
        **_pack_tree(model, held, conversion),
        rank=np.argsort(np.argsort(2 * wide - by_digits, kind="stable"), kind="stable"),
        n_by_digits=int(by_digits.sum()),
        n_by_products=int((~wide).sum()),
        leaf_factors=leaf_factors(model, conversion),
        means_high=high,
        means_low=low,
        means_centre=middle,
        group_at=group_at,
        groups=aligned(groups.ravel()),
        digits=digits,
        constants=aligned(constants.ravel()),
        kernel=FAMILIES.index(model.kernel.family),
        absolute=model.kernel.family.sum == Sum.ABSOLUTE,
        n_landmarks=np.array([t.n_landmarks for t in terms]),
        pair_at=_offsets(len(t.left) for t in terms),
        left=np.concatenate([t.left for t in terms]),
        right=np.concatenate([t.right for t in terms]),
        weight_at=_offsets(w.size for w in weights),
        weights=aligned(np.concatenate([w.ravel() for w in weights]).astype(np.float32)),
        present_at=_offsets(map(len, present)),
        present=np.concatenate(present),
        constant=constant,
        bounds=np.array(model.bounds if has_bounds else np.zeros((model.n_leaves, 2)), ACC_DTYPE, order="C"),
        bounded=(np.diff(model.beta_at) > 0) & has_bounds,
    )


def _pack_tree(model: Model, held: IntArray, conversion: Conversion) -> dict[str, Any]:
    tree, d, by_distances = model.tree, len(held), walks_by_distances(model)
    centres = tree.centres.astype(ACC_DTYPE)
    # Distances need exact centres: float32 holds them, but not their difference from an origin.
    middle = np.zeros(model.n_columns) if by_distances else origin(model)
    groups = np.zeros((tree.n_nodes, group_features(held), LANES), np.float32)
    half_norms = np.full((tree.n_nodes, LANES), NO_CENTRE)
    children = np.zeros((tree.n_nodes, LANES), np.int32)
    radius = np.zeros(tree.n_nodes, np.float32)
    for node in range(tree.n_nodes):
        own = slice(int(tree.starts[node]), int(tree.starts[node + 1]))
        moved = (centres[own] - middle).astype(np.float32)
        norms = np.einsum("ij,ij->i", moved, moved, dtype=ACC_DTYPE)
        groups[node, :d, : len(moved)] = moved[:, held].T
        left_out = np.delete(moved, held, axis=1)  # Every row is 0 in these features.
        apart = (left_out.astype(ACC_DTYPE) ** 2).sum(axis=1)
        half_norms[node, : len(moved)] = apart if by_distances else norms / 2
        children[node] = tree.children[own.start]  # A walk ends, whichever lane it takes.
        children[node, : len(moved)] = tree.children[own]
        radius[node] = np.sqrt(norms.max())
    high, low, centre = halves(conversion, middle, conversion.factor)
    return {
        "origin_high": high,
        "origin_low": low,
        "origin_centre": centre,
        "nodes": aligned(groups.ravel()),
        "half_norms": aligned(np.minimum(half_norms, NO_CENTRE).astype(np.float32).ravel()),
        "radius": radius,
        "error": np.float32(product_error(model)),
        "by_distances": by_distances,
        "fixed": no_nodes() if by_distances else fixed_nodes(model, held, middle),
        "children": children.ravel(),
    }


def _centred(model: Model) -> tuple[FloatArray, FloatArray]:
    """The centring point of each leaf, (n_leaves, n_columns), and the largest width of its landmarks,
    (n_leaves,): infinite where the exponent of a row with a finite square may not be finite.
    """
    means, width = np.zeros((model.n_leaves, model.n_columns)), np.zeros(model.n_leaves)
    factors = np.broadcast_to(model.factors, means.shape)
    held = np.arange(model.n_columns)
    for leaf, (start, stop) in enumerate(pairwise(model.landmark_at)):
        if start < stop:
            middle = model.landmarks[start:stop].astype(ACC_DTYPE).mean(axis=0)
            means[leaf] = centre_in(factors[leaf], middle)
            points = _points(model, held, leaf, means[leaf], False)
            fits = max(points.square.max(), points.gamma.max()) < HUGE
            width[leaf] = model.kernel.family.width(points).max() if fits else np.inf
    return means, width


def _points(model: Model, held: IntArray, leaf: int, mean: FloatArray, wide: bool) -> LeafPoints:
    """The landmarks of a leaf minus its mean, in double precision."""
    own = slice(int(model.landmark_at[leaf]), int(model.landmark_at[leaf + 1]))
    v = model.landmarks[own].astype(ACC_DTYPE) - mean
    return LeafPoints(v=v, mean=mean, held=held, gamma=model.gamma[own].astype(ACC_DTYPE), wide=wide)


def _pack_leaves(
    model: Model,
    held: IntArray,
    counts: IntArray,
    group_at: IntArray,
    means: FloatArray,
    wide: NDArray[np.bool_],
) -> tuple[SingleArray, SingleArray, FloatArray, list[Terms]]:
    """(groups, constants, constant, terms): weights and constants of the lanes, constants and terms of
    leaves.
    """
    n_groups, kernel, none = int(group_at[-1]), model.kernel, np.zeros((0, model.n_outputs))
    groups = np.zeros((n_groups, group_features(held), LANES), np.float32)
    constants = np.zeros((n_groups, kernel.family.n_constants, LANES), np.float32)
    constant = np.array(model.intercept, ACC_DTYPE, order="C")
    terms: list[Terms] = []
    for leaf, m in enumerate(counts):
        if m == 0:
            terms.append(terms_of(none, model.pairs[:0], none))
            continue
        points = _points(model, held, leaf, means[leaf], bool(wide[leaf]))
        lanes = kernel.family.leaf_lanes(points, kernel)
        group, lane = np.arange(m) // LANES + group_at[leaf], np.arange(m) % LANES
        groups[group, : len(held), lane] = lanes.weights
        constants[group, :, lane] = lanes.constants.T
        first, second, pairs, sums = _in_differences(model, leaf, lanes.factor, lanes.shift)
        constant[leaf] += sums
        terms.append(terms_of(first, pairs, second))
    return groups, constants, constant, terms


def _terms_at_landmarks(model: Model, held: IntArray, leaf: int, mean: FloatArray, wide: bool) -> float:
    """The largest sum of magnitudes of terms at a landmark of the leaf, in scales of decision values: 1 for
    classes, a quarter of the bounded range of a regression. Infinite where a constant overflows.
    """
    kernel = model.kernel
    points = _points(model, held, leaf, mean, wide)
    with np.errstate(all="ignore"):  # A leaf with infinite terms uses double precision.
        lanes = kernel.family.leaf_lanes(points, kernel)
        e = kernel.family.magnitudes(points, lanes, kernel)
        first, second, pairs, _ = _in_differences(model, leaf, lanes.factor, lanes.shift)
        terms = e @ np.abs(first) + e[:, pairs[:, 0]] * e[:, pairs[:, 1]] @ np.abs(second)
        largest = float(terms.max()) if (np.abs(lanes.constants) < HUGE).all() else np.inf
    scale = float(np.ptp(model.bounds[leaf])) / 4 if model.bounds.shape[1] else 1.0
    return largest / scale if scale > 0 else 0.0


def _in_differences(
    model: Model, leaf: int, a: FloatArray, h: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.int32], FloatArray]:
    """Output weights of e_j and of e_i·e_j, the pairs, and the constant, after c_j = a_j (e_j + h_j)."""
    beta = model.beta[model.beta_at[leaf] : model.beta_at[leaf + 1]].astype(ACC_DTYPE)
    pairs = model.pairs[model.pair_at[leaf] : model.pair_at[leaf + 1]]
    i, j = pairs[:, 0], pairs[:, 1]
    first = beta[: len(a)] * a[:, None]
    second = beta[len(a) :] * (a[i] * a[j])[:, None]
    constant = (first * h[:, None]).sum(axis=0) + (second * (h[i] * h[j])[:, None]).sum(axis=0)
    np.add.at(first, i, second * h[j][:, None])
    np.add.at(first, j, second * h[i][:, None])
    return first, second, pairs, constant


def _output_weights(terms: list[Terms], n_outputs: int) -> tuple[list[IntArray], int, list[FloatArray]]:
    """(present, term_weights, weights) of all leaves: the outputs with weights, and the weights."""
    present = [np.flatnonzero(t.weights.any(axis=0)) for t in terms]
    length = 1 if n_outputs == 1 else -(-max(1, *map(len, present)) // AT_ONCE) * AT_ONCE
    weights = [
        np.pad(t.weights[:, own], ((0, 0), (0, length - len(own))))
        for t, own in zip(terms, present, strict=True)
    ]
    return present, length, weights


def _offsets(lengths: Iterable[int]) -> IntArray:
    return np.cumsum([0, *lengths])
