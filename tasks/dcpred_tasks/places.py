"""How the engine holds rows: which features, in which order, from which point on; and arrays on cache lines."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.lanes import LANES
from dcpred_tasks.predictor import Model

FEW = 0.65  # share of features up to which the rest is skipped: to pick 16 of them takes as long as to convert 40 side by side
MANY = 24  # features from which on any are skipped


class Places(NamedTuple):
    """What a row is converted with, in the order in which it is held."""

    feature: NDArray[np.int32]
    used: NDArray[np.bool_]  # False where a vector is filled up: with a feature that is there, times 0
    factor: FloatArray
    shift: FloatArray


def held_features(model: Model) -> IntArray:
    """The features that rows are held with: those whose factor is not 0 where they are few, else all of them."""
    factor, shift = model.scaling.factor, model.scaling.shift
    held = np.flatnonzero(factor)
    overflow = (np.abs(shift[factor == 0]) >= 1e300).any()  # of x − μ: see load_some
    few = len(factor) >= MANY and len(held) <= FEW * len(factor)
    return held if few and not overflow else np.arange(len(factor))


def held_places(model: Model, held: IntArray) -> Places:
    n = len(held)
    length = n if n == model.n_features else -(-max(n, 1) // LANES) * LANES
    feature = np.pad(held, (0, length - n), constant_values=held[-1] if n else 0)
    used = np.arange(length) < n
    factor, shift = (np.where(used, values[feature], 0.0) for values in (model.scaling.factor, model.scaling.shift))
    return Places(feature.astype(np.int32), used, factor, shift)


def even(held: IntArray) -> int:
    return max(len(held) + len(held) % 2, 2)


def factors_fit(model: Model) -> bool:
    """Whether single precision holds the factors of the scaling with all digits."""
    factor = np.abs(model.scaling.factor)
    return bool(((factor == 0) | ((factor > 1e-30) & (factor < 1e30))).all())


def aligned_empty(length: int, dtype: type[np.generic]) -> NDArray[Any]:
    """An array that starts on a cache line: a vector load across two lines takes twice as long."""
    n_bytes = length * np.dtype(dtype).itemsize
    room = np.empty(n_bytes + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    return room[start : start + n_bytes].view(dtype)


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy of a flat array that starts on a cache line."""
    out = aligned_empty(len(values), values.dtype.type)
    out[:] = values
    return out


def centre_in(model: Model, points: FloatArray) -> FloatArray:
    """Points to centre on, (n, n_features) in scaled features: 0 where the way back to raw features is too far."""
    factor = np.where(model.scaling.factor == 0, np.nan, model.scaling.factor)
    with np.errstate(all="ignore"):
        usable = np.abs(points / factor) < 1e30
    return np.where(usable, points, 0.0).astype(np.float32).astype(ACC_DTYPE)


def halves(places: Places, centres: FloatArray) -> tuple[SingleArray, SingleArray, SingleArray]:
    """μ + centre / s in two parts of single precision, and the centre, by places, flat."""
    factor = np.where(places.factor == 0, 1.0, places.factor)
    centres = np.where(places.used, centres[..., places.feature], 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite part makes the engine leave the row to double precision
        a = places.shift + centres / factor
        high = a.astype(np.float32)
        low = (a - high).astype(np.float32)
    return aligned(high.ravel()), aligned(low.ravel()), aligned(centres.astype(np.float32).ravel())
