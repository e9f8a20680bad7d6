"""Maps of heavy-tailed features, applied before the scaling.

    u = (x − centre) · rate,   rounded to single precision;   rate is 1 / the interquartile range, or wider

**Smooth clipping** (Holzmüller, Grinsztajn and Steinwart, 2024): s = u / √(1 + (u/3)²). It is u near the
median, and ±3 far out.

**Quantiles**: s is linear between at most 63 knots u_k, which are quantiles of sampled training rows, and
constant outside of them. At a knot it is the share of rows below it, and half the share of rows equal to it.

All of s is computed in single precision, by operations that IEEE 754 rounds correctly: every processor has
the same bits, with vectors or without. A mapped row is a row in single precision: later steps treat it as raw
float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray

MOST_KNOTS = 63  # six comparisons find the two that a number is between
BOUND, THIRD = np.float32(3), np.float32(1 / 3)
FAR = np.float32(2**20)  # From here on, s is the same in single precision.
LARGEST_KNOT = 1e30  # Differences of knots do not overflow.


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """The map of each feature; with knots by quantiles, without them by smooth clipping. Raises ValueError
    where a number is not finite, no feature is mapped, or knots do not ascend.

    centre  float64 (n_features,), in raw units
    rate    float64 (n_features,), in 1 / raw units; 0 for a feature that is not mapped
    sd      float64 (n_features,), standard deviation of s in sampled training rows
    at      int64 (n_features + 1,), offsets of knots; a feature has 1 to 63 of them, or none if its rate is 0
    knot    float32 (n_knots,), ascending within a feature
    value   float32 (n_knots,), s at the knots, ascending within a feature
    """

    centre: FloatArray
    rate: FloatArray
    sd: FloatArray
    at: IntArray | None = None
    knot: SingleArray | None = None
    value: SingleArray | None = None

    def __post_init__(self) -> None:
        shapes = {values.shape for values in (self.centre, self.rate, self.sd)}
        if len(shapes) > 1 or self.rate.ndim != 1 or not (self.rate > 0).any():
            raise ValueError("no feature is mapped, or centres and rates of maps differ in number")
        if not all(np.isfinite(values).all() for values in (self.centre, self.rate, self.sd)):
            raise ValueError("a centre or a rate of a map is not finite")
        if (self.rate < 0).any() or (self.sd < 0).any():
            raise ValueError("a rate of a map is negative")
        if not self._has_sound_knots():
            raise ValueError("knots of a map are not 1 to 63 ascending numbers of each mapped feature")

    def _has_sound_knots(self) -> bool:
        at, knot, value = self.at, self.knot, self.value
        if at is None or knot is None or value is None:
            return at is None and knot is None and value is None
        if (
            at.shape != (len(self.rate) + 1,)
            or at[0] != 0
            or at[-1] != len(knot)
            or knot.shape != value.shape
        ):
            return False
        counts = np.diff(at)
        if (counts < 0).any() or (counts > MOST_KNOTS).any() or ((counts == 0) != (self.rate == 0)).any():
            return False
        if not (np.abs(knot) <= LARGEST_KNOT).all() or not (np.abs(value) <= LARGEST_KNOT).all():
            return False
        inside = np.diff(np.repeat(np.arange(len(counts)), counts)) == 0
        ascending = (np.diff(knot)[inside] > 0).all() and (np.diff(value)[inside] >= 0).all()
        return bool(ascending and np.isfinite(self.slope).all())

    @property
    def name(self) -> str:
        """The value of the setting `feature_map` for this map."""
        return "clip" if self.at is None else "quantile"

    @property
    def features(self) -> list[int]:
        """The numbers of the mapped features."""
        return [int(feature) for feature in np.flatnonzero(self.rate)]

    @cached_property
    def slope(self) -> SingleArray:
        """float32 (n_knots,), how fast s grows from each knot to the next; 0 after the last one."""
        assert self.at is not None
        assert self.knot is not None
        assert self.value is not None
        slope = np.zeros(len(self.knot), MODEL_DTYPE)
        for first, last in pairwise(self.at):
            if last - first < 2:
                continue
            knot, value = (a[first:last].astype(ACC_DTYPE) for a in (self.knot, self.value))
            with np.errstate(over="ignore"):
                slope[first : last - 1] = np.diff(value) / np.diff(knot)
        return slope

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Raw rows (n, n_features), with mapped features as s: float64, C order. A number that is infinite,
        or too large for single precision in units of 1 / rate, is infinite; NaN stays NaN.
        """
        out, own = np.array(rows, ACC_DTYPE, order="C"), np.flatnonzero(self.rate)
        if not len(out):
            return out
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            u = ((out[:, own] - self.centre[own]) * self.rate[own]).astype(MODEL_DTYPE)
            out[:, own] = np.where(np.isfinite(u), self._mapped(u, own), u)
        return out

    def _mapped(self, u: SingleArray, own: IntArray) -> SingleArray:
        """s of u (n, n_mapped), of the features `own`; of no meaning where u is not finite."""
        if self.at is None:
            near = np.clip(u, -FAR, FAR)
            part = near * THIRD
            return np.asarray(near / np.sqrt(np.float32(1) + part * part))
        assert self.knot is not None
        assert self.value is not None
        s = np.empty_like(u)
        for column, feature in enumerate(own):
            first, last = self.at[feature], self.at[feature + 1]
            above = np.searchsorted(self.knot[first:last], u[:, column], side="right")
            k = first + np.maximum(above - 1, 0)
            slope = np.where(above > 0, self.slope[k], np.float32(0))
            s[:, column] = (u[:, column] - self.knot[k]) * slope + self.value[k]
        return s

    def raw(self, rows: FloatArray) -> FloatArray:
        """Raw rows of what the map made of them, but for rounding; where several numbers have the same s, one
        of them.
        """
        out = rows.copy()
        for feature in self.features:
            if self.at is None:
                part = np.clip(rows[:, feature] / BOUND, -1 + 1e-6, 1 - 1e-6)
                u = BOUND * part / np.sqrt(1 - part * part)
            else:
                assert self.knot is not None
                assert self.value is not None
                own = slice(self.at[feature], self.at[feature + 1])
                u = np.interp(rows[:, feature], self.value[own], self.knot[own])
            out[:, feature] = self.centre[feature] + u / self.rate[feature]
        return out

    def deviations(self, raw: FloatArray) -> FloatArray:
        """Standard deviations of features in columns, from those of raw features, each (n_features,)."""
        return np.where(self.rate > 0, self.sd, raw)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by their names on disk."""
        return {
            f"map_{f.name}": values for f in fields(self) if (values := getattr(self, f.name)) is not None
        }


def map_from_arrays(arrays: Mapping[str, Any]) -> FeatureMap | None:
    """The inverse of `arrays`, among others or as lists; None where it is absent. Raises ValueError."""
    dtypes = {"at": INDEX_DTYPE, "knot": MODEL_DTYPE, "value": MODEL_DTYPE}
    own = {
        f.name: np.asarray(arrays[f"map_{f.name}"], dtypes.get(f.name, ACC_DTYPE))
        for f in fields(FeatureMap)
        if arrays.get(f"map_{f.name}") is not None
    }
    if not own:
        return None
    if not {"centre", "rate", "sd"} <= own.keys():
        raise ValueError("a map of features lacks its centres or its rates")
    return FeatureMap(**own)
