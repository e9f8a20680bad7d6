"""Feature maps: logarithms, smooth clipping, quantiles, contributions to an additive model."""

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
    """The map of each feature; with knots by quantiles or to contributions, without them by smooth clipping.
    Raises ValueError where a number is not finite, no feature is mapped, or knots do not ascend.

    centre  float64 (n_features,), in raw units
    rate    float64 (n_features,), in 1 / raw units; 0 for a feature that is not mapped
    sd      float64 (n_features,), standard deviation of s in sampled training rows
    at      int64 (n_features + 1,), offsets of knots; a feature has 1 to 63 of them, or none if its rate is 0
    knot    float32 (n_knots,), ascending within a feature
    value   float32 (n_knots,), s at the knots: from 0 on and ascending within a feature, or contributions
            to an additive model, which have the mean 0
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
        ascending = (np.diff(knot)[inside] > 0).all()
        ascending &= self.is_additive or (np.diff(value)[inside] >= 0).all()
        return bool(ascending and np.isfinite(self.slope).all())

    @property
    def name(self) -> str:
        """The value of the setting `feature_map` for this map."""
        if self.at is None:
            return "clip"
        return "additive" if self.is_additive else "quantile"

    @property
    def is_additive(self) -> bool:
        return self.value is not None and bool((self.value < 0).any())

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
        """Raw rows of what the map made of them, but for rounding; one of several numbers with the same s."""
        out = rows.copy()
        for feature in self.features:
            if self.at is None:
                part = np.clip(rows[:, feature] / BOUND, -1 + 1e-6, 1 - 1e-6)
                u = BOUND * part / np.sqrt(1 - part * part)
            else:
                assert self.knot is not None
                assert self.value is not None
                own = slice(self.at[feature], self.at[feature + 1])
                s = rows[:, feature]
                if self.is_additive:
                    u = _first_crossing(s, self.knot[own], self.value[own])
                else:
                    u = np.interp(s, self.value[own], self.knot[own])
            out[:, feature] = self.centre[feature] + u / self.rate[feature]
        return out

    def limits(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest values of columns, from those of raw features, each (n_features,)."""
        least, most = self(np.stack([low, high]))
        if self.is_additive:
            assert self.at is not None
            assert self.value is not None
            for feature in self.features:
                own = self.value[self.at[feature] : self.at[feature + 1]]
                least[feature], most[feature] = own.min(), own.max()
        return least, most

    def deviations(self, raw: FloatArray) -> FloatArray:
        """Standard deviations of features in columns, from those of raw features, each (n_features,)."""
        return np.where(self.rate > 0, self.sd, raw)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by their names on disk."""
        return {
            f"map_{f.name}": values for f in fields(self) if (values := getattr(self, f.name)) is not None
        }


def _first_crossing(s: FloatArray, knot: SingleArray, value: SingleArray) -> FloatArray:
    """The least u (n,) of each s by a curve that is not monotone; the nearest knot beyond its limits."""
    u = knot[np.abs(s[:, None] - value).argmin(axis=1)].astype(ACC_DTYPE)
    low, high = np.minimum(value[:-1], value[1:]), np.maximum(value[:-1], value[1:])
    within = (low <= s[:, None]) & (s[:, None] <= high) & (low < high)
    if len(row := np.flatnonzero(within.any(axis=1))):
        k = within[row].argmax(axis=1)
        u[row] = knot[k] + (s[row] - value[k]) * (knot[k + 1] - knot[k]) / (value[k + 1] - value[k])
    return np.asarray(u)


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


BITS_OF_ONE = 1023 << 52
UNIT = 2.0**-52
TOO_LARGE = float(2**128 - 2**103)  # From here on, single precision takes a number for infinite.


def symlog(u: FloatArray) -> FloatArray:
    """sign(u) · l(1 + |u|), float64 of any shape; NaN stays NaN. A number that is too large for single
    precision becomes infinite, and thus a bad value, as for a feature without this scale.
    """
    beside = 1.0 + np.abs(u)
    logarithm = (beside.view(np.int64) - BITS_OF_ONE) * UNIT
    small = np.where(beside < TOO_LARGE, logarithm, np.where(np.isnan(u), np.nan, np.inf))
    return np.copysign(small, u)


def inverse_symlog(s: FloatArray) -> FloatArray:
    """The u of which s is the symlog, but for rounding."""
    whole = np.floor(np.abs(s))
    with np.errstate(over="ignore", invalid="ignore"):
        beside = np.ldexp(1.0 + (np.abs(s) - whole), np.clip(whole, 0, 2000).astype(np.int64))
    return np.copysign(beside - 1.0, s)


@dataclass(frozen=True, eq=False)
class Symlog:
    """The features on such a scale. Raises ValueError for a number that is not finite, or without such
    features.

    centre  float64 (n_features,), in raw units
    rate    float64 (n_features,), in 1 / raw units; 0 for an unchanged feature
    sd      float64 (n_features,), standard deviation on that scale in sampled training rows
    """

    centre: FloatArray
    rate: FloatArray
    sd: FloatArray

    def __post_init__(self) -> None:
        shapes = {values.shape for values in (self.centre, self.rate, self.sd)}
        if len(shapes) > 1 or self.rate.ndim != 1 or not (self.rate > 0).any():
            raise ValueError("no feature is on a symmetric logarithmic scale, or centres and rates differ")
        if not all(np.isfinite(values).all() for values in (self.centre, self.rate, self.sd)):
            raise ValueError("a centre or a rate of a symmetric logarithmic scale is not finite")
        if (self.rate < 0).any() or (self.sd < 0).any():
            raise ValueError("a rate of a symmetric logarithmic scale is negative")

    @property
    def features(self) -> list[int]:
        """The numbers of the features on such a scale."""
        return [int(feature) for feature in np.flatnonzero(self.rate)]

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Raw rows (n, n_features), with these features on their scale: float64, C order."""
        out, own = np.array(rows, ACC_DTYPE, order="C"), np.flatnonzero(self.rate)
        # A difference that overflows is infinite, and so a bad value.
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, own] = symlog((out[:, own] - self.centre[own]) * self.rate[own])
        return out

    def raw(self, rows: FloatArray) -> FloatArray:
        """Raw rows of what the scale made of them, but for rounding."""
        out, own = rows.copy(), np.flatnonzero(self.rate)
        with np.errstate(over="ignore"):
            out[:, own] = self.centre[own] + inverse_symlog(rows[:, own]) / self.rate[own]
        return out

    def limits(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest values of columns, from those of raw features, each (n_features,)."""
        least, most = self(np.stack([low, high]))
        return least, most

    def deviations(self, raw: FloatArray) -> FloatArray:
        """Standard deviations of features in columns, from those of raw features, each (n_features,)."""
        return np.where(self.rate > 0, self.sd, raw)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by their names on disk."""
        return {f"symlog_{name}": values for name, values in vars(self).items()}


def symlog_of(arrays: Mapping[str, Any]) -> Symlog | None:
    """The inverse of `arrays`, among others or as lists; None where it is absent. Raises ValueError."""
    own = {f.name: arrays.get(f"symlog_{f.name}") for f in fields(Symlog)}
    if all(values is None for values in own.values()):
        return None
    return Symlog(**{name: np.asarray(values, ACC_DTYPE) for name, values in own.items()})
