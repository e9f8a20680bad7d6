"""Landmarks as three int8 limbs, for processors that multiply int8 tiles.

The w of a landmark becomes integers W ≈ w / unit with |W| < 2²³, a row z becomes Z ≈ z · 2²² / max |z|, and
each integer is split into limbs between −128 and 127, Z = 2¹⁶ Z₀ + 2⁸ Z₁ + Z₂. Six of the nine sums of
products of limbs are computed, exactly:

    Σ Z W ≈ 2³² Σ Z₀W₀ + 2²⁴ Σ (Z₀W₁ + Z₁W₀) + 2¹⁶ Σ (Z₀W₂ + Z₁W₁ + Z₂W₀)

For d features, the error by rounding of z and w, by the three omitted sums, and by single precision after
them is at most

    2⁻²³ max |z| ‖w‖₁ + unit/2 ‖z‖₁ + 2⁻²² max |z| unit 128 (256 ‖W₁‖₁ + 257 ‖W₂‖₁) + 2⁻²¹ |z·w|

A leaf is stored as limbs where this, for each of its landmarks and every row, is at most the error of a
product in single precision, 2⁻²⁴ (d + 8) ‖z‖‖w‖ (layout.product_error): where no feature of a landmark is an
outlier.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import LANES, PARTS, ROOT_OF_HUGE, STEP, TILE_FEATURES, TILE_GROUPS
from dcpred_tasks.engine.row_layout import aligned

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
