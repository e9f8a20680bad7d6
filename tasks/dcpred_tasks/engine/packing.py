"""A model packed into the arrays that the engine reads."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import (
    AT_ONCE,
    FEW_FEATURES,
    FIXED_CENTRE_NORM,
    FIXED_FEATURES,
    FIXED_NORM,
    HUGE,
    LANES,
    PARTS,
    ROOT_OF_HUGE,
    STEP,
    TILE_FEATURES,
    TILE_GROUPS,
    UNROLLED,
    Columns,
    Conversion,
    Gaps,
    LeafFactors,
    Maps,
    aligned,
    centre_in,
    columns_of,
    factors_fit,
    factors_of_leaves,
    gaps_of,
    group_features,
    halves,
    held_conversion,
    held_features,
    in_single,
    leaf_factors,
    maps_of,
    origin,
    product_error,
    tree_of,
    walks_by_distances,
)
from dcpred_tasks.engine.tiles import allowed
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import FAMILIES, LeafPoints, Sum

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
    tree = tree_of(model)
    d, error = len(held), product_error(model)
    if (
        not FEW_FEATURES < group_features(held) <= FIXED_FEATURES
        or tree.n_nodes == 0
        or not np.isfinite(error)
    ):
        return no_nodes()
    n_pairs = group_features(held) // 2
    numbers = np.zeros((tree.n_nodes, n_pairs, LANES, 2), np.int16)
    unit, off = np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    undecided = 0.0
    below = tree.rows_below(model.leaf_rows)
    for node, (first, last) in enumerate(pairwise(tree.starts)):
        children = slice(int(first), int(last))
        moved = (tree.centres[children].astype(ACC_DTYPE) - middle)[:, held]
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
        undecided += float(below[children] @ np.minimum(share, 1.0))
    if undecided > UNDECIDED_ROWS * max(float(model.leaf_rows.sum()), 1.0):
        return no_nodes()
    return FixedNodes(
        numbers=aligned(numbers.ravel()),
        unit=aligned(unit.astype(np.float32)),
        error=aligned(off.astype(np.float32)),
        span=tree.spans.ravel(),
    )


def _lengths(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt(np.einsum("...j,...j->...", vectors, vectors))
    return lengths


# the largest integer of a landmark: 127 in every limb, less the rounding of units
LANDMARK_UNITS = 8_355_000.0
MOST_FEATURES = 2**31 // (3 * 2**14)  # Three sums of products of limbs fit in 32 bits.


class Digits(NamedTuple):
    """The landmarks of leaves that use int8 limbs; arrays are empty without such leaves."""

    steps: int
    """Steps of STEP features of a row, the last one padded."""
    group_at: IntArray
    """int64 (n_leaves,), the first group of a leaf here, or −1 for one without limbs."""
    numbers: NDArray[np.int8]
    """int8 (n_groups · steps · PARTS · 16 · STEP,): tile after tile, whose byte 64 l + 4 t + i belongs to
    landmark t and feature 16 i + l of the step; the most significant part comes first.
    """
    unit: SingleArray
    """float32 (n_groups · 16,), the units of the landmarks, times 2¹⁶."""


def no_digits(n_leaves: int) -> Digits:
    """The limbs of a model without leaves that use them."""
    none = aligned(np.empty(0, np.int8)), aligned(np.empty(0, np.float32))
    return Digits(0, np.full(n_leaves, -1, np.int64), *none)


def digits_of(groups: SingleArray, group_at: IntArray, counts: IntArray, fits: NDArray[np.bool_]) -> Digits:
    """The leaves in `fits` that are long enough, and precise enough as int8 limbs.

    groups    float32 (n_groups, features, 16), as Packed.groups
    group_at  int64 (n_leaves + 1,), the first group of each leaf
    counts    int64 (n_leaves,), landmarks of each leaf
    """
    n_leaves, d = len(counts), groups.shape[1]
    at = np.full(n_leaves, -1, np.int64)
    tiles: list[NDArray[np.int8]] = []
    units: list[SingleArray] = []
    for leaf, (first, last) in enumerate(pairwise(group_at.tolist())):
        if last - first < TILE_GROUPS or not TILE_FEATURES <= d <= MOST_FEATURES or not fits[leaf]:
            continue
        w = groups[first:last].transpose(0, 2, 1).astype(ACC_DTYPE)
        most = np.abs(w).max(axis=2, keepdims=True)
        if most.max() >= ROOT_OF_HUGE or most.reshape(-1)[: counts[leaf]].min() <= 1 / ROOT_OF_HUGE:
            continue
        unit = np.where(most > 0, most / LANDMARK_UNITS, 1.0).astype(np.float32)
        parts = _cut(np.rint(w / unit).astype(np.int64))
        if _precise(w, unit[..., 0], parts)[np.arange(w.shape[0] * LANES) < counts[leaf]].all():
            at[leaf] = sum(len(known) for known in units)
            tiles.append(_tiled(parts))
            units.append(unit[..., 0] * np.float32(2.0**16))
    if not units:
        return no_digits(n_leaves)
    numbers, unit = (aligned(np.concatenate(values).ravel()) for values in (tiles, units))
    return Digits(-(-d // STEP), at, numbers, unit)


def _cut(W: IntArray) -> NDArray[np.int8]:
    """The limbs of integers, (PARTS, …), the most significant one first."""
    biased = W + 0x808080  # Each byte is now a limb plus 128.
    return np.stack([((biased >> shift) & 255) - 128 for shift in (16, 8, 0)]).astype(np.int8)


def _precise(w: FloatArray, unit: SingleArray, parts: NDArray[np.int8]) -> NDArray[np.bool_]:
    """bool (n_groups · 16,): whether the error of products in limbs is at most that of single precision, both
    over 2⁻²⁴ ‖z‖.

    w  (n_groups, 16, d); unit  (n_groups, 16); parts  (PARTS, n_groups, 16, d)
    """
    d, length = w.shape[2], np.sqrt(np.einsum("gtj,gtj->gt", w, w))
    middle, last = np.abs(parts[1:].astype(ACC_DTYPE)).sum(axis=3)
    of_rounding = 2 * np.abs(w).sum(axis=2) + 2.0**23 * unit * np.sqrt(d) + 8 * length
    left_out = 4 * 128 * unit * (256 * middle + 257 * last)
    fits: NDArray[np.bool_] = of_rounding + left_out <= (d + 8) * length
    return fits.ravel()


def _tiled(parts: NDArray[np.int8]) -> NDArray[np.int8]:
    """int8 (n_groups, steps, PARTS, 16 · STEP) of (PARTS, n_groups, 16, d)."""
    padded = np.pad(parts, ((0, 0), (0, 0), (0, 0), (0, -parts.shape[3] % STEP)))
    apart = padded.reshape(PARTS, parts.shape[1], LANES, -1, STEP // LANES, LANES)
    return np.ascontiguousarray(apart.transpose(1, 3, 0, 5, 2, 4)).reshape(
        len(apart[0]), -1, PARTS, LANES * STEP
    )


class Terms(NamedTuple):
    """The terms of the decision values of a leaf: landmarks, then products e[left] · e[right]."""

    n_landmarks: int
    """Landmarks, padded to a multiple of UNROLLED."""
    left: IntArray
    """int64 (n_products,), the first landmark of each product, counted within the leaf; padded as landmarks
    are.
    """
    right: IntArray
    """int64 (n_products,), the second landmark."""
    present: IntArray
    """int64, the outputs with weights."""
    weights: FloatArray
    """float64 (n_landmarks + n_products, outputs with weights); 0 in padding."""


def terms_of(
    present: NDArray[np.int32], first: FloatArray, pairs: NDArray[np.int32], second: FloatArray
) -> Terms:
    """Landmarks with the weights `first` and products with `second`, of outputs `present`, each padded with
    weights 0.
    """
    m, none, n_present = len(first), -len(pairs) % UNROLLED, len(present)
    left, right = (np.pad(side, (0, none)).astype(np.int64) for side in pairs.T)
    padding = np.zeros((-m % UNROLLED, n_present))
    weights = np.vstack([first, padding, second, np.zeros((none, n_present))])
    return Terms(m + len(padding), left, right, present.astype(np.int64), weights)


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
    """The most output weights of a term: those of the outputs of a leaf, padded to a multiple of 8; or 1."""
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
    """int64 (n_leaves + 1,), where the weights of a leaf begin: landmarks, then products, for each term those
    of the leaf's outputs, padded as in `term_weights`.
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
    weights = [_padded_outputs(t.weights, model.n_outputs) for t in terms]
    high, low, middle = halves(conversion, means, factors_of_leaves(model, conversion))
    return Packed(
        n_features=model.n_features,
        n_columns=model.n_columns,
        columns=columns_of(model),
        gaps=gaps_of(model, conversion),
        maps=maps_of(model),
        n_outputs=model.n_outputs,
        n_converted=len(conversion.feature),
        width=-(-max(len(held), 1) // LANES) * LANES,
        group_features=group_features(held),
        term_weights=max(w.shape[1] for w in weights),
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
        present_at=_offsets(len(t.present) for t in terms),
        present=np.concatenate([t.present for t in terms]),
        constant=constant,
        bounds=np.array(model.bounds if has_bounds else np.zeros((model.n_leaves, 2)), ACC_DTYPE, order="C"),
        bounded=model.bounded,
    )


def _pack_tree(model: Model, held: IntArray, conversion: Conversion) -> dict[str, Any]:
    tree, d, by_distances = tree_of(model), len(held), walks_by_distances(model)
    centres = tree.centres.astype(ACC_DTYPE)
    # Distances need exact centres: float32 holds them, but not their difference from an origin.
    middle = np.zeros(model.n_columns) if by_distances else origin(model)
    groups = np.zeros((tree.n_nodes, group_features(held), LANES), np.float32)
    half_norms = np.full((tree.n_nodes, LANES), NO_CENTRE)
    children = np.zeros((tree.n_nodes, LANES), np.int32)
    radius = np.zeros(tree.n_nodes, np.float32)
    for node in range(tree.n_nodes):
        siblings = slice(int(tree.starts[node]), int(tree.starts[node + 1]))
        moved = (centres[siblings] - middle).astype(np.float32)
        norms = np.einsum("ij,ij->i", moved, moved, dtype=ACC_DTYPE)
        groups[node, :d, : len(moved)] = moved[:, held].T
        left_out = np.delete(moved, held, axis=1)  # Every row is 0 in these features.
        apart = (left_out.astype(ACC_DTYPE) ** 2).sum(axis=1)
        half_norms[node, : len(moved)] = apart if by_distances else norms / 2
        children[node] = tree.children[siblings.start]  # A walk ends, whichever lane it takes.
        children[node, : len(moved)] = tree.children[siblings]
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
    of_leaf = slice(int(model.landmark_at[leaf]), int(model.landmark_at[leaf + 1]))
    v = model.landmarks[of_leaf].astype(ACC_DTYPE) - mean
    return LeafPoints(v=v, mean=mean, held=held, gamma=model.gamma[of_leaf].astype(ACC_DTYPE), wide=wide)


def _pack_leaves(
    model: Model,
    held: IntArray,
    counts: IntArray,
    group_at: IntArray,
    means: FloatArray,
    wide: NDArray[np.bool_],
) -> tuple[SingleArray, SingleArray, FloatArray, list[Terms]]:
    """(groups, constants, constant, terms): weights and constants of lanes, constants and terms of leaves."""
    n_groups, kernel, none = int(group_at[-1]), model.kernel, np.zeros((0, 0))
    groups = np.zeros((n_groups, group_features(held), LANES), np.float32)
    constants = np.zeros((n_groups, kernel.family.n_constants, LANES), np.float32)
    constant = np.array(model.intercept, ACC_DTYPE, order="C")
    terms: list[Terms] = []
    for leaf, m in enumerate(counts):
        if m == 0:
            terms.append(terms_of(model.beta.outputs[:0], none, model.pairs[:0], none))
            continue
        points = _points(model, held, leaf, means[leaf], bool(wide[leaf]))
        lanes = kernel.family.leaf_lanes(points, kernel)
        group, lane = np.arange(m) // LANES + group_at[leaf], np.arange(m) % LANES
        groups[group, : len(held), lane] = lanes.weights
        constants[group, :, lane] = lanes.constants.T
        first, second, pairs, sums = _in_differences(model, leaf, lanes.factor, lanes.shift)
        present, _ = model.beta.present(leaf)
        constant[leaf, present] += sums
        terms.append(terms_of(present, first, pairs, second))
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
        largest = float(terms.max(initial=0.0)) if (np.abs(lanes.constants) < HUGE).all() else np.inf
    scale = float(np.ptp(model.bounds[leaf])) / 4 if model.bounds.shape[1] else 1.0
    return largest / scale if scale > 0 else 0.0


def _in_differences(
    model: Model, leaf: int, a: FloatArray, h: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.int32], FloatArray]:
    """Output weights of e_j and of e_i·e_j, the pairs, and the constant, after c_j = a_j (e_j + h_j), of the
    outputs that the leaf has weights for.
    """
    beta = model.beta.present(leaf)[1].astype(ACC_DTYPE)
    pairs = model.pairs[model.pair_at[leaf] : model.pair_at[leaf + 1]]
    i, j = pairs[:, 0], pairs[:, 1]
    first = beta[: len(a)] * a[:, None]
    second = beta[len(a) :] * (a[i] * a[j])[:, None]
    constant = (first * h[:, None]).sum(axis=0) + (second * (h[i] * h[j])[:, None]).sum(axis=0)
    np.add.at(first, i, second * h[j][:, None])
    np.add.at(first, j, second * h[i][:, None])
    return first, second, pairs, constant


def _padded_outputs(weights: FloatArray, n_outputs: int) -> FloatArray:
    """Weights of terms for a multiple of 8 outputs; for 1 where the model has one."""
    n = 1 if n_outputs == 1 else -(-weights.shape[1] // AT_ONCE) * AT_ONCE
    return np.pad(weights, ((0, 0), (0, n - weights.shape[1])))


def _offsets(lengths: Iterable[int]) -> IntArray:
    return np.cumsum([0, *lengths])
