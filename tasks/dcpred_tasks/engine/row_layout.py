"""How the engine holds rows: which features, in which order, from which point on; and arrays on cache
lines.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.model.compact_model import Model


class Places(NamedTuple):
    """What a row is converted with, in the order in which it is held."""

    feature: NDArray[np.int32]
    used: NDArray[np.bool_]  # False where a vector is filled up: with a feature that is there, times 0
    factor: FloatArray
    shift: FloatArray


def held_places(model: Model, held: IntArray) -> Places:
    n = len(held)
    length = n if n == model.n_features else -(-max(n, 1) // LANES) * LANES
    feature = np.pad(held, (0, length - n), constant_values=held[-1] if n else 0)
    used = np.arange(length) < n
    factor, shift = (
        np.where(used, values[feature], 0.0) for values in (model.scaling.factor, model.scaling.shift)
    )
    return Places(feature.astype(np.int32), used, factor, shift)


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


def halves(places: Places, centres: FloatArray) -> tuple[SingleArray, SingleArray, SingleArray]:
    """μ + centre / s in two parts of single precision, and the centre, by places, flat."""
    factor = np.where(places.factor == 0, 1.0, places.factor)
    centres = np.where(places.used, centres[..., places.feature], 0.0)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # an infinite part makes the engine leave the row to double precision
        a = places.shift + centres / factor
        high = a.astype(np.float32)
        low = (a - high).astype(np.float32)
    return aligned(high.ravel()), aligned(low.ravel()), aligned(centres.astype(np.float32).ravel())
