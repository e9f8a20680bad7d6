"""How the engine holds rows: columns, order and centre; the memory of raw rows; and arrays aligned to cache
lines.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.model.compact_model import Model


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


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy of a flat array that starts on a cache line."""
    out = aligned_empty(len(values), values.dtype.type)
    out[:] = values
    return out


def factors_of_leaves(model: Model, conversion: Conversion) -> FloatArray:
    """The factors of rows in leaves, float64 (n_leaves, n_converted), or (1, n_converted) where all leaves
    have the scaling's.
    """
    return np.where(conversion.used, model.factors[:, conversion.feature], 0.0)


def in_single(factor: FloatArray) -> SingleArray:
    """Factors in single precision. A factor that is too large is infinite: such a model is scored in double
    precision.
    """
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
