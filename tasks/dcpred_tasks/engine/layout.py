"""The numbers and the layouts that Python and C++ share, and how raw rows become rows of columns for compiled
code: one-hot encoding and missing values (model/one_hot.py), and mapped features (model/feature_map.py).
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_map import MOST_KNOTS, Knots
from dcpred_tasks.model.tree import Tree

# Raised when the last bits of scores change. From 2 on it is part of plans and of hashes of runs.
VERSION: int = 1
LANES = 16  # numbers in a vector: centres, landmarks or rows
SLAB = 256  # features of a group, 16 KiB, that stay in first-level cache while rows pass by
STRIP_ROWS = 64  # sorted rows whose products with landmarks are computed together
UNIT = 2.0**-24  # half a unit in the last place of single precision, relative
# Up to this many features, lanes are rows instead of centres.
FEW_FEATURES = 32
# Features of factor 0 are skipped where there are at least SKIP_FEATURES features, and at most this share of
# them is held: to gather 16 features takes as long as to convert 40 adjacent ones.
SKIP_SHARE = 0.65
SKIP_FEATURES = 24
# Largest share of rows that products may leave undecided; beyond it a walk by distances is faster.
BORDER_ROWS = 0.02
AT_ONCE = 8  # landmarks or outputs in one loop: as many chains of sums as keep two units busy
UNROLLED = 4  # terms in one turn of the loop for one output; their number is padded to a multiple of it
# ‖X‖ of a quantised row, and the largest ‖C‖ of a centre (packing.py): sums of their products stay below
# 2³¹, with rounding, which grows with the number of features, and int16 holds every feature.
FIXED_NORM, FIXED_CENTRE_NORM, FIXED_FEATURES = 32_000.0, 65_000.0, 2**20
# Landmarks as int8 limbs (packing.py): features that a processor with tiles takes at once, limbs of an
# integer, sums of their products; features, and groups of a leaf, from which on limbs are faster.
STEP, PARTS, PART_SUMS, TILE_FEATURES, TILE_GROUPS = 64, 3, 4, 128, 3
SUMMED_GROUPS = 2  # groups whose sums are held at once: 32 KiB for a strip
HUGE = 1e30  # limit of squares and γ: below it, sums and products of single precision stay finite
ROOT_OF_HUGE = 1e15  # norm of a row whose square is HUGE
NOWHERE = 2**32 - 1  # leaf number of a row that cannot be scored, or has no leaf yet
# Dtypes of raw rows that are read in place. The position of a dtype is its number in compiled code.
DTYPES = tuple(
    np.dtype(name) for name in ("f8", "f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
)
FLOATS = DTYPES[:3]  # those with NaN, which may mark a missing value


def dtype_code(dtype: "np.dtype[Any]") -> int:
    """The number of a dtype in compiled code, or −1 for one that is not read in place."""
    return DTYPES.index(dtype) if dtype in DTYPES and dtype.isnative else -1


def laid_out_bytes(model: Model) -> int:
    """About how many bytes the engine needs for a model. It pads centres of a node and landmarks of a leaf to
    groups of 16, and outputs of a leaf to groups of 8: many small nodes or leaves take many times their file.
    And it computes the terms of a leaf at all of its landmarks.
    """
    columns, landmarks = model.n_columns + LANES, np.diff(model.landmark_at)
    coding, outputs = model.scaling.coding, -(-model.beta.n_present // AT_ONCE) * AT_ONCE
    parts = (
        model.tree.n_nodes * LANES * columns * 6,
        int((-(-landmarks // LANES)).sum()) * LANES * columns * 4,
        model.n_leaves * (32 * columns + 16 * model.n_outputs),
        int((np.diff(model.beta_at) * (12 * outputs + 24)).sum()),
        int(landmarks.max()) * 6 * STRIP_ROWS,
        int((landmarks * (landmarks + np.diff(model.pair_at))).max()) * 24,
        0 if coding is None or coding.map is None else coding.n_features * MOST_KNOTS * LANES,
    )
    return sum(parts)


def held_features(model: Model) -> IntArray:
    """The features in converted rows, ascending: those of a factor other than 0 if few, else all."""
    factor, shift = model.scaling.factor, model.scaling.shift
    held = np.flatnonzero(factor)
    # With such a shift x − μ may overflow for an x that load_some lets pass: no feature is skipped then.
    overflow = (np.abs(shift[factor == 0]) >= 1e300).any()
    few = len(factor) >= SKIP_FEATURES and len(held) <= SKIP_SHARE * len(factor)
    return held if few and not overflow else np.arange(len(factor))


def group_features(held: IntArray) -> int:
    """Features of a group of 16 lanes: the held ones, padded to an even number."""
    return max(len(held) + len(held) % 2, 2)


def factors_fit(model: Model) -> bool:
    """Whether single precision holds the factors of the scaling, and those of leaves, in its normal range."""
    factor = np.abs(np.vstack([model.scaling.factor, model.factors]))
    return bool(((factor == 0) | ((factor > 1e-30) & (factor < 1e30))).all())


def centre_in(factor: FloatArray, points: FloatArray) -> FloatArray:
    """Points to centre on, (n, n_columns), in units of `factor` and single precision; 0 where too large."""
    factor = np.where(factor == 0, np.nan, factor)
    with np.errstate(all="ignore"):
        usable = np.abs(points / factor) < 1e30
    return np.where(usable, points, 0.0).astype(np.float32).astype(ACC_DTYPE)


def tree_of(model: Model) -> Tree:
    """The tree that the engine walks, one of nearest centres."""
    assert isinstance(model.tree, Tree)
    return model.tree


def origin(model: Model) -> FloatArray:
    """The origin of the tree."""
    centres = tree_of(model).centres.astype(ACC_DTYPE)
    middle = centres.mean(axis=0) if len(centres) else np.zeros(model.n_columns)
    return centre_in(model.scaling.factor, middle)


def product_error(model: Model) -> float:
    """The error of products in single precision, relative to ‖x‖‖c‖; infinite for walks in double."""
    return 2 * (len(held_features(model)) + 8) * UNIT if factors_fit(model) else np.inf


def walks_by_distances(model: Model) -> bool:
    """Whether products in single precision would leave too many rows undecided between two children. The
    share of such rows is estimated from the margins of `nearest_child` for rows at the centres, relative to
    the distances between centres.
    """
    tree, error = tree_of(model), product_error(model)
    if tree.n_nodes == 0 or not np.isfinite(error):
        return False
    centres = tree.centres.astype(ACC_DTYPE) - origin(model)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.einsum("ij,ij->i", centres, centres)
    below = tree.rows_below(model.leaf_rows)
    near = 0.0
    for first, last in pairwise(tree.starts):
        children = slice(int(first), int(last))
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = square[children, None] + square[children] - 2 * centres[children] @ centres[children].T
            np.fill_diagonal(gaps, np.inf)
            margin = (error + 16 * UNIT) * square[children]
            share = margin / np.maximum(gaps.min(axis=1) / 2, 1e-300)
        near += float(below[children] @ np.nan_to_num(np.minimum(share, 1.0)))
    return near / max(float(model.leaf_rows.sum()), 1.0) > BORDER_ROWS


class Source(NamedTuple):
    """Raw rows in memory, with adjacent features."""

    code: int
    """The number of their dtype in layout.DTYPES."""
    itemsize: int
    """Bytes of a feature."""
    address: int
    """Address of the first row, in bytes."""
    stride: int
    """Bytes from row to row."""


class Conversion(NamedTuple):
    """How raw features become held ones: n_converted entries, in the order of a converted row."""

    feature: NDArray[np.int32]
    """int32 (n_converted,), the number of the raw feature, or of the column with one-hot encoding."""
    used: NDArray[np.bool_]
    """bool (n_converted,), False in padding, which repeats a real feature with the factor 0."""
    factor: FloatArray
    """float64 (n_converted,), s in 1 / raw units."""
    shift: FloatArray
    """float64 (n_converted,), μ in raw units."""


class LeafFactors(NamedTuple):
    """The factors of raw features in leaves: s, times the ARD scales of a leaf where it has its own."""

    single: SingleArray
    """float32 (n_leaves · n_converted,), or (n_converted,) where all leaves have the same."""
    double: FloatArray
    """float64, the same in double precision."""
    step: int
    """1 with factors for each leaf, else 0: those of a leaf begin at this times leaf · n_converted."""


def held_conversion(model: Model, held: IntArray) -> Conversion:
    """The conversion to these features; where some are skipped, padded to a multiple of 16."""
    n = len(held)
    length = n if n == model.n_columns else -(-max(n, 1) // LANES) * LANES
    feature = np.pad(held, (0, length - n), constant_values=held[-1] if n else 0)
    used = np.arange(length) < n
    factor, shift = (
        np.where(used, values[feature], 0.0) for values in (model.scaling.factor, model.scaling.shift)
    )
    return Conversion(feature.astype(np.int32), used, factor, shift)


def aligned_empty(length: int, dtype: type[np.generic]) -> NDArray[Any]:
    """An array that starts on a cache line: a vector load across two lines takes twice as long."""
    n_bytes = length * np.dtype(dtype).itemsize
    space = np.empty(n_bytes + 64, np.uint8)
    start = -space.__array_interface__["data"][0] % 64
    return space[start : start + n_bytes].view(dtype)


def aligned_zeros(sizes: Mapping[str, tuple[type[np.generic], int]]) -> dict[str, NDArray[Any]]:
    """Arrays of so many zeros, of 4 or 8 bytes, in one piece of memory, each of which starts on a cache
    line.
    """
    lines = {name: -(-count * np.dtype(dtype).itemsize // 64) for name, (dtype, count) in sizes.items()}
    space = np.zeros(8 * (sum(lines.values()) + 1))
    at, arrays = -space.__array_interface__["data"][0] % 64 // 8, {}
    for name, (dtype, count) in sizes.items():
        arrays[name] = space[at : at + 8 * lines[name]].view(dtype)[:count]
        at += 8 * lines[name]
    return arrays


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy of a flat array that starts on a cache line."""
    out = aligned_empty(len(values), values.dtype.type)
    out[:] = values
    return out


def factors_of_leaves(model: Model, conversion: Conversion) -> FloatArray:
    """Factors of rows in leaves, float64 (n_leaves or 1, n_converted): 1 where all have the scaling's."""
    return np.where(conversion.used, model.factors[:, conversion.feature], 0.0)


def in_single(factor: FloatArray) -> SingleArray:
    """Factors in single precision, infinite where too large: double precision then scores."""
    with np.errstate(over="ignore"):
        return factor.astype(np.float32)


def leaf_factors(model: Model, conversion: Conversion) -> LeafFactors:
    """The result of factors_of_leaves for compiled code."""
    factors = factors_of_leaves(model, conversion)
    single = aligned(in_single(factors).ravel())
    return LeafFactors(single, aligned(factors.ravel()), int(model.leaf_factor.shape[1] > 0))


def halves(
    conversion: Conversion, centres: FloatArray, factor: FloatArray
) -> tuple[SingleArray, SingleArray, SingleArray]:
    """(high, low, centre), each float32 and flat, n_converted numbers for every centre: a = μ + centre / s as
    the sum of two float32, and the centre itself.

    centres  float64 (n_columns,) or (n, n_columns), scaled
    factor   float64 (n_converted,), (1, n_converted) or (n, n_converted), s of the centres
    """
    factor = np.where(factor == 0, 1.0, factor)
    centres = np.where(conversion.used, centres[..., conversion.feature], 0.0)
    # The engine computes rows with an infinite part in double precision.
    with np.errstate(over="ignore", invalid="ignore"):
        a = conversion.shift + centres / factor
        high = a.astype(np.float32)
        low = (a - high).astype(np.float32)
    return aligned(high.ravel()), aligned(low.ravel()), aligned(centres.astype(np.float32).ravel())


class Columns(NamedTuple):
    """How a raw row becomes columns; arrays are empty without one-hot encoding and missing indicators."""

    stride: int
    """Length of a row of columns: a multiple of 16 above n_columns. The last column is spare.
    """
    coded: int
    """1 with one-hot encoded features; else columns are the features, then the missing indicators."""
    first: NDArray[np.int32]
    """int32 (n_features,), the first column of each feature."""
    lowest: NDArray[np.int32]
    """int32 (n_features,), the least category of each feature."""
    extent: NDArray[np.int32]
    """int32 (n_features,), how many integers lie from the least category to the largest; 0 for a feature that
    is not one-hot encoded.
    """
    place_at: NDArray[np.int32]
    """int32 (n_features,), where the first of these integers is in `place`."""
    place: NDArray[np.int32]
    """int32, the columns of the integers of a feature, the spare one for an integer without a column, and the
    spare one again; for a feature that is not one-hot encoded its own column.
    """
    indicated: NDArray[np.int32]
    """int32 (n_indicators,), the features of the missing indicators in the last columns."""


class Maps(NamedTuple):
    """The map of heavy-tailed features, which is applied first; arrays are empty without such features."""

    stride: int
    """Length of a mapped row: n_features, padded to a multiple of 16; 0 where no feature is mapped."""
    centre: FloatArray
    """float64 (stride,), in raw units."""
    rate: FloatArray
    """float64 (stride,), in 1 / raw units; 0 for a feature that stays as it is."""
    knots: SingleArray
    """float32 (stride / 16 · 63 · 16,), the knots of 16 features side by side, infinite after the last one;
    (0,) where features are clipped.
    """
    pieces: SingleArray
    """float32 (stride · 64 · 3,), knot, slope and value of the lines before the first knot and after each;
    of a feature that stays as it is a line that changes nothing.
    """


class Gaps(NamedTuple):
    """The markers of missing values in converted columns; arrays are empty where NaN is a bad value."""

    double: FloatArray
    """float64 (n_converted,), in units of columns; without meaning for one-hot encoded features and
    indicators.
    """
    high: SingleArray
    """float32 (n_converted,), the part that one float32 holds."""
    low: SingleArray
    """float32 (n_converted,), the rest."""


def maps_of(model: Model) -> Maps:
    """The map of a model's features."""
    none, coding = np.empty(0, np.float32), model.scaling.coding
    if coding is None or coding.map is None:
        return Maps(0, np.empty(0), np.empty(0), none, none)
    mapped, n = coding.map, coding.n_features
    stride = -(-n // LANES) * LANES
    centre, rate = (np.pad(values, (0, stride - n)) for values in (mapped.centre, mapped.rate))
    if not isinstance(mapped, Knots):
        return Maps(stride, aligned(centre), aligned(rate), none, none)
    knots = np.full((stride, MOST_KNOTS), np.inf, np.float32)
    pieces = np.zeros((stride, MOST_KNOTS + 1, 3), np.float32)
    pieces[:, :, 1] = 1.0
    for f in mapped.features:
        span = mapped.of(f)
        last = span.stop - span.start
        knots[f, :last] = mapped.knot[span]
        lines = mapped.knot[span], mapped.slope[span], mapped.value[span]
        pieces[f, 1 : last + 1] = np.stack(lines, axis=1)
        pieces[f, 0] = mapped.knot[span.start], 0.0, mapped.value[span.start]
    side_by_side = knots.reshape(-1, LANES, MOST_KNOTS).transpose(0, 2, 1)
    return Maps(
        stride, aligned(centre), aligned(rate), aligned(side_by_side.ravel()), aligned(pieces.ravel())
    )


def raw_gaps(model: Model) -> FloatArray:
    """The marker of missing values of each raw feature, float64 (n_features,); (0,) where NaN is bad."""
    coding = model.scaling.coding
    if coding is None or coding.gap is None:
        return np.empty(0)
    return coding.gap if coding.map is None else coding.map(coding.gap[None])[0]


def gaps_of(model: Model, conversion: Conversion) -> Gaps:
    """The markers of missing values of columns, in their order."""
    gap = raw_gaps(model)
    double = gap[model.scaling.source[conversion.feature]] if len(gap) else gap
    # The engine computes rows with an infinite part in double precision.
    with np.errstate(over="ignore", invalid="ignore"):
        high = double.astype(np.float32)
        low = (double - high).astype(np.float32)
    return Gaps(aligned(double), aligned(high), aligned(low))


def columns_of(model: Model) -> Columns:
    """How the raw rows of a model become columns."""
    coding = model.scaling.coding
    if coding is None or not (coding.is_coded.any() or len(coding.indicated)):
        return Columns(0, 0, *(np.empty(0, np.int32) for _ in range(6)))
    stride = -(-(model.n_columns + 1) // LANES) * LANES
    places = []
    for feature, is_coded in enumerate(coding.is_coded):
        columns = coding.columns(feature)
        if is_coded:
            above = (coding.code[columns] - coding.lowest[feature]).astype(np.int64)
            place = np.full(above[-1] + 2, stride - 1, np.int32)
            place[above] = columns
        places.append(place if is_coded else columns.astype(np.int32))
    length = np.array([len(place) for place in places])
    return Columns(
        stride=stride,
        coded=int(coding.is_coded.any()),
        first=coding.first.astype(np.int32),
        lowest=np.where(coding.is_coded, coding.lowest, 0.0).astype(np.int32),
        extent=(length - 1).astype(np.int32),
        place_at=(np.cumsum(length) - length).astype(np.int32),
        place=np.concatenate(places),
        indicated=coding.indicated.astype(np.int32),
    )
