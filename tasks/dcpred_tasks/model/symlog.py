"""Features on a symmetric logarithmic scale, in models of formats 6 and 7, become knots of a feature map.

The scale is sign(u) · l(1 + |u|), u = (x − centre) · rate, where l(2ᵏ) = k and l is linear between: 31
doublings on either side are its knots. Beyond 2³¹ it went on growing, the map does not. A map leaves no
number out, so the other features get the same knots with the values of u, which change nothing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.feature_map import MOST_KNOTS, UNITS, Knots
from dcpred_tasks.model.leaf_arrays import table
from dcpred_tasks.model.one_hot import Coding

NAMES = tuple(f"symlog_{name}" for name in UNITS)
VALUE = np.arange(MOST_KNOTS) - MOST_KNOTS // 2.0
KNOT = np.sign(VALUE) * (2 ** np.abs(VALUE) - 1)


def log_knots(
    arrays: Mapping[str, Any], coding: Coding, shift: FloatArray, factor: FloatArray
) -> tuple[Knots, FloatArray, FloatArray]:
    """The scale among the arrays of a model as a map, and shift and factor of the columns after it. Raises
    ValueError where the scale is invalid.
    """
    centre, rate, sd = (np.array(arrays.get(name, []), ACC_DTYPE) for name in NAMES)
    if not centre.shape == rate.shape == sd.shape == coding.first.shape:
        raise ValueError("a logarithmic scale has not one centre and one rate for each feature")
    shift, factor = shift.copy(), factor.copy()
    column = coding.first
    plain = (rate == 0) & ~coding.is_coded & (factor[column] != 0)
    of_plain = column[plain]
    centre[plain], rate[plain] = shift[of_plain], np.abs(factor[of_plain])
    sd[plain] = rate[plain] * np.asarray(arrays["feature_sd"])[plain] if "feature_sd" in arrays else 1.0
    shift[of_plain], factor[of_plain] = 0.0, np.sign(factor[of_plain])
    mapped = np.flatnonzero(rate)
    value = np.stack([KNOT if plain[feature] else VALUE for feature in mapped]) if len(mapped) else VALUE[:0]
    at = np.append(0, np.cumsum(np.where(rate == 0, 0, MOST_KNOTS)))
    knots = {"at": at, "knot": np.tile(KNOT, len(mapped)), "value": value.ravel()}
    typed = {name: array.astype(table(Knots)[name].dtype) for name, array in knots.items()}
    return Knots(centre, rate, sd, **typed, name="symlog"), shift, factor
