"""A model's arrays as the engine reads them: groups of 16 lanes, feature-major, on cache lines.

**Centres.** Everything is centred on one point m, near all centres, so that single precision keeps its
digits: argmax_t x·c_t − ‖c_t‖²/2 is the same after both are moved by m. Where groups of rows are so far apart
that products cannot tell neighbours in them (counts without a bound, standardised), it is argmin_t ‖x −
c_t‖², at two operations a feature instead of one: kddcup99 went in 2.2 µs a row, nearly all of it in double
precision, and goes in 0.5.

**Landmarks.** In leaf l everything is centred on the mean μ_l of its landmarks, v_j = u_j − μ_l and z = x' −
μ_l. Kernel values are c_j = a_j · (e_j + h_j), where e_j is 0 or small at z = 0; of an rbf

    e_j = 2^(z·w_j − g_j‖z‖² − o_j) − h_j,   w_j = 2g_j · v_j,   g_j = γ_j log₂e

with (h, o, a) = (1, 0, exp(−γ_j‖v_j‖²)) where γ_j‖v_j‖² < 2, else (0, g_j‖v_j‖², 1); for the others see
dcpred_tasks.model.kernel_families. In a leaf much wider than the kernel ‖z − v‖² is a small difference of
large numbers; there it is summed of differences, at two operations a feature instead of one; and a leaf wider
still goes row by row (double_precision.py). Output weights are large and cancel; written in e they cancel
before single precision comes in. Constants are summed here in double precision. Largest error of a decision
value in standard deviations of them, 300 products: cpusmall 1.4e-4 in c, 4e-5 in e; cal_housing 5e-4 and
2e-4; letter 1.1e-4 and 1.5e-5.

**Features.** Those that the scaling gives the factor 0 are the same in every row. Where they are many, rows,
centres and landmarks are held without them; what centres and landmarks have there goes into half norms and
offsets.

**Outputs.** Lanes are rows of one leaf: sums over landmarks and products, an output weight being one number
for all of them.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.kernel_lanes import form_of
from dcpred_tasks.engine.layout import (
    AT_ONCE,
    LANES,
    UNROLLED,
    centre_in,
    even,
    factors_fit,
    held_features,
    origin,
    product_error,
    walks_by_distances,
)
from dcpred_tasks.engine.row_layout import Places, aligned, halves, held_places
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernel_families import LeafPoints, Sum

MUCH = 1e30  # squares and γ from which on sums and products of single precision may overflow
FAR = 3e38  # half norm of a lane that holds no centre
WIDE = 16.0  # width (an rbf's γ‖v‖²) from which on squares in a leaf are summed of differences, and
TOO_WIDE = 1e4  # rows go one by one in double precision, as in a leaf with large terms:
# Terms add up to so many scales of decision values, times 1 + √(γ‖v‖²). Without a limit errors on covtype (64
# leaves, default settings) reach 3e-3 standard deviations; 2e4 leaves 1.5e-4, and sends no leaf of letter or
# cal_housing to double precision.
TOO_LARGE = 2e4


class Terms(NamedTuple):
    """What a leaf's decision values are sums of: landmarks, then products e[left] · e[right]."""

    n_landmarks: int
    left: IntArray
    right: IntArray
    weights: FloatArray  # (terms, outputs)


class Packed(NamedTuple):
    """What the compiled functions take. Offsets count elements, not bytes."""

    n_features: int
    n_outputs: int
    places: int  # of features in what follows: n_features, or `width` where some are skipped
    width: int  # row length in buffers: features that are held, padded to a multiple of 16
    even: int  # padded to a multiple of 2, as in groups
    stride: int  # output weights of a term
    room: int  # kernel values of a row: landmarks of the largest leaf padded to groups, and 16 more
    regression: bool
    picks: NDArray[np.int32]  # (places,), the features that are held, where some are skipped; else empty
    factor: SingleArray  # (places,), s
    shift: FloatArray  # (places,), μ
    double_factor: FloatArray
    origin: SingleArray  # (places,), μ + m / s and what single precision lost of it
    origin_rest: SingleArray
    origin_centre: SingleArray  # m
    error: np.float32  # of products with centres, relative to ‖x‖‖c‖
    apart: bool  # walk down by squared distances instead of products
    nodes: SingleArray  # (n_nodes · even · 16,)
    half_norms: (
        SingleArray  # (n_nodes · 16,); where apart, what features that are left out add to squared distances
    )
    reach: SingleArray  # (n_nodes,), the largest ‖c − m‖
    children: NDArray[np.int32]  # (n_nodes · 16,)
    # (n_leaves,), the order in which leaves are scored: those computed by products, then those by differences
    rank: IntArray
    n_narrow: int  # of the first kind
    means: SingleArray  # (n_leaves · places,), μ + μ_l / s and what single precision lost of it
    means_rest: SingleArray
    means_centre: SingleArray  # μ_l
    group_at: IntArray  # (n_leaves + 1,)
    groups: SingleArray  # (n_groups · even · 16,), w
    constants: SingleArray  # (n_groups · n_constants · 16,), of the family's formula
    n_constants: int
    form: int  # of the family: see kernel_lanes.FORMS
    absolute: bool  # sums over features are of |z − v|
    landmarks: IntArray  # (n_leaves,), padded to a multiple of 4, as are products
    pair_at: IntArray  # (n_leaves + 1,), products e_i · e_j
    left: IntArray
    right: IntArray
    # (n_leaves,), where the weights of a leaf start: landmarks, then products, `stride` to a term
    weight_at: IntArray
    weights: SingleArray
    present_at: IntArray  # (n_leaves + 1,), outputs that a leaf has weights for, which come first
    present: IntArray
    constant: FloatArray  # (n_leaves, n_outputs)
    bounds: FloatArray  # (n_leaves, 2)
    bounded: NDArray[np.bool_]  # (n_leaves,)


def pack(model: Model) -> Packed:
    """Lay a model out for the engine."""
    held = held_features(model)
    n_held, places = len(held), held_places(model, held)
    in_lanes = len(model.triangle) == 0 and factors_fit(model)
    means, width = _centred(model)
    wide = (width > WIDE) & (model.kernel.family.sum == Sum.SQUARES)
    counts = np.diff(model.landmark_at) * (np.diff(model.beta_at) > 0) * (width <= TOO_WIDE) * in_lanes
    for leaf in np.flatnonzero(counts).tolist():
        size = _terms_at_landmarks(model, held, leaf, means[leaf], bool(wide[leaf]))
        counts[leaf] *= size * (1 + np.sqrt(width[leaf])) <= TOO_LARGE
    group_at = np.concatenate([[0], np.cumsum(-(-counts // LANES))]).astype(np.int64)
    groups, constants, constant, terms = _pack_leaves(model, held, counts, group_at, means, wide)
    left, right = (np.concatenate([getattr(t, side) for t in terms]) for side in ("left", "right"))
    present = [np.flatnonzero(t.weights.any(axis=0)) for t in terms]
    stride = 1 if model.n_outputs == 1 else -(-max(1, *map(len, present)) // AT_ONCE) * AT_ONCE
    weights = [
        np.pad(t.weights[:, own], ((0, 0), (0, stride - len(own))))
        for t, own in zip(terms, present, strict=True)
    ]
    high, low, middle = halves(places, means)
    has_bounds = model.bounds.shape[1] > 0
    apart = walks_by_distances(model)
    return Packed(
        n_features=model.n_features,
        n_outputs=model.n_outputs,
        places=len(places.feature),
        width=-(-max(n_held, 1) // LANES) * LANES,
        even=even(held),
        stride=stride,
        room=(int(np.diff(group_at).max()) + 1) * LANES,
        regression=model.task == "regression",
        picks=aligned(places.feature[: 0 if n_held == model.n_features else None]),
        factor=aligned(places.factor.astype(np.float32)),
        shift=aligned(places.shift),
        double_factor=aligned(places.factor),
        **_pack_tree(model, held, places, apart),
        error=np.float32(product_error(model)),
        apart=apart,
        rank=np.argsort(np.argsort(wide, kind="stable"), kind="stable"),
        n_narrow=int((~wide).sum()),
        means=high,
        means_rest=low,
        means_centre=middle,
        group_at=group_at,
        groups=aligned(groups.ravel()),
        constants=aligned(constants.ravel()),
        n_constants=constants.shape[1],
        form=form_of(model.kernel.family),
        absolute=model.kernel.family.sum == Sum.ABSOLUTE,
        landmarks=np.array([t.n_landmarks for t in terms]),
        pair_at=_offsets(len(t.left) for t in terms),
        left=left,
        right=right,
        weight_at=_offsets(w.size for w in weights),
        weights=aligned(np.concatenate([w.ravel() for w in weights]).astype(np.float32)),
        present_at=_offsets(map(len, present)),
        present=np.concatenate(present),
        constant=constant,
        bounds=np.array(model.bounds if has_bounds else np.zeros((model.n_leaves, 2)), ACC_DTYPE, order="C"),
        bounded=(np.diff(model.beta_at) > 0) & has_bounds,
    )


def _pack_tree(model: Model, held: IntArray, places: Places, apart: bool) -> dict[str, NDArray[Any]]:
    tree, d = model.tree, len(held)
    centres = tree.centres.astype(ACC_DTYPE)
    # where single precision holds centres exactly
    middle = np.zeros(model.n_features) if apart else origin(model)
    groups = np.zeros((tree.n_nodes, even(held), LANES), np.float32)
    half_norms = np.full((tree.n_nodes, LANES), FAR)
    children = np.zeros((tree.n_nodes, LANES), np.int32)
    reach = np.zeros(tree.n_nodes, np.float32)
    for node in range(tree.n_nodes):
        own = slice(int(tree.starts[node]), int(tree.starts[node + 1]))
        moved = (centres[own] - middle).astype(np.float32)
        norms = np.einsum("ij,ij->i", moved, moved, dtype=ACC_DTYPE)
        groups[node, :d, : len(moved)] = moved[:, held].T
        left_out = np.delete(moved, held, axis=1)  # in which every row is 0
        half_norms[node, : len(moved)] = (left_out.astype(ACC_DTYPE) ** 2).sum(axis=1) if apart else norms / 2
        children[node, : len(moved)] = tree.children[own]
        reach[node] = np.sqrt(norms.max())
    high, low, centre = halves(places, middle)
    return {
        "origin": high,
        "origin_rest": low,
        "origin_centre": centre,
        "nodes": aligned(groups.ravel()),
        "half_norms": aligned(np.minimum(half_norms, FAR).astype(np.float32).ravel()),
        "reach": reach,
        "children": children.ravel(),
    }


def _centred(model: Model) -> tuple[FloatArray, FloatArray]:
    """The point that each leaf is centred on, (n_leaves, n_features), and the largest width of its landmarks:
    infinite where exponents of rows whose squares are finite may overflow single precision.
    """
    means, width = np.zeros((model.n_leaves, model.n_features)), np.zeros(model.n_leaves)
    held = np.arange(model.n_features)
    for leaf, (start, stop) in enumerate(pairwise(model.landmark_at)):
        if start < stop:
            means[leaf] = centre_in(model, model.landmarks[start:stop].astype(ACC_DTYPE).mean(axis=0))
            points = _points(model, held, leaf, means[leaf], False)
            fits = max(points.square.max(), points.gamma.max()) < MUCH
            width[leaf] = model.kernel.family.width(points).max() if fits else np.inf
    return means, width


def _points(model: Model, held: IntArray, leaf: int, mean: FloatArray, wide: bool) -> LeafPoints:
    """The landmarks of a leaf from its mean on, in double precision."""
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
    """(groups, constants, constant, terms): weights and constants of lanes, constants of leaves."""
    n_groups, kernel = int(group_at[-1]), model.kernel
    groups = np.zeros((n_groups, even(held), LANES), np.float32)
    constants = np.zeros((n_groups, kernel.family.n_constants, LANES), np.float32)
    constant = np.array(model.intercept, ACC_DTYPE, order="C")
    terms: list[Terms] = []
    for leaf, m in enumerate(counts):
        if m == 0:
            terms.append(
                _terms(np.zeros((0, model.n_outputs)), model.pairs[:0], np.zeros((0, model.n_outputs)))
            )
            continue
        points = _points(model, held, leaf, means[leaf], bool(wide[leaf]))
        lanes = kernel.family.leaf_lanes(points, kernel.degree, kernel.coef0)
        group, lane = np.arange(m) // LANES + group_at[leaf], np.arange(m) % LANES
        groups[group, : len(held), lane] = lanes.weights
        constants[group, :, lane] = lanes.constants.T
        first, second, pairs, sums = _in_differences(model, leaf, lanes.factor, lanes.shift)
        constant[leaf] += sums
        terms.append(_terms(first, pairs, second))
    return groups, constants, constant, terms


def _terms_at_landmarks(model: Model, held: IntArray, leaf: int, mean: FloatArray, wide: bool) -> float:
    """The largest sum of magnitudes of terms at a landmark of the leaf, in scales of decision values: 1 for
    classes, a quarter of the range that a regression is bounded by. Infinite where a constant overflows.
    """
    kernel = model.kernel
    points = _points(model, held, leaf, mean, wide)
    with np.errstate(all="ignore"):  # what is not finite is left to double precision
        lanes = kernel.family.leaf_lanes(points, kernel.degree, kernel.coef0)
        e = kernel.family.magnitudes(points, lanes, kernel.degree, kernel.coef0)
        first, second, pairs, _ = _in_differences(model, leaf, lanes.factor, lanes.shift)
        terms = e @ np.abs(first) + e[:, pairs[:, 0]] * e[:, pairs[:, 1]] @ np.abs(second)
        largest = float(terms.max()) if (np.abs(lanes.constants) < MUCH).all() else np.inf
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


def _offsets(lengths: Iterable[int]) -> IntArray:
    return np.cumsum([0, *lengths])


def _terms(first: FloatArray, pairs: NDArray[np.int32], second: FloatArray) -> Terms:
    """Landmarks with the weights `first` and products with the weights `second`, each padded with
    weights 0.
    """
    (m, n_outputs), none = first.shape, -len(pairs) % UNROLLED
    left, right = (np.pad(side, (0, none)).astype(np.int64) for side in pairs.T)
    padding = np.zeros((-m % UNROLLED, n_outputs))
    return Terms(
        m + len(padding), left, right, np.vstack([first, padding, second, np.zeros((none, n_outputs))])
    )
