"""Feature maps: smooth clipping, and knots by quantiles or to contributions to an additive model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.leaf_arrays import Line, held_arrays, table

MOST_KNOTS = 63  # six comparisons find the two that a number is between
BOUND, THIRD = np.float32(3), np.float32(1 / 3)
FAR = np.float32(2**20)  # From here on, s is the same in single precision.
LARGEST_KNOT = 1e30  # Differences of knots do not overflow.
MAP = "map_"  # begins the names of arrays
UNITS = "centre", "rate", "sd"


@dataclass(frozen=True, eq=False)
class FeatureMap(ABC):
    """The map of each feature, x → s((x − centre) · rate). Raises ValueError where a number is not finite, or
    no feature is mapped.

    centre  float64 (n_features,), in raw units
    rate    float64 (n_features,), in 1 / raw units; 0 for a feature that is not mapped
    sd      float64 (n_features,), standard deviation of s in sampled training rows
    """

    centre: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",), since=8)]
    rate: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",), since=8)]
    sd: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",), since=8)]

    def __post_init__(self) -> None:
        shapes = {values.shape for values in (self.centre, self.rate, self.sd)}
        if len(shapes) > 1 or self.rate.ndim != 1 or not (self.rate > 0).any():
            raise ValueError("no feature is mapped, or centres and rates of maps differ in number")
        if not all(np.isfinite(values).all() for values in (self.centre, self.rate, self.sd)):
            raise ValueError("a centre or a rate of a map is not finite")
        if (self.rate < 0).any() or (self.sd < 0).any():
            raise ValueError("a rate of a map is negative")

    @property
    @abstractmethod
    def name(self) -> str:
        """The value of the setting `feature_map` for this map."""

    @abstractmethod
    def mapped(self, u: SingleArray, feature: IntArray) -> SingleArray:
        """s of u, float32 (n, len(feature)), of these features; of no meaning where u is not finite."""

    @abstractmethod
    def inverse(self, s: FloatArray, feature: int) -> FloatArray:
        """One of the u with this s, (n,), but for rounding."""

    def limits(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest values of columns, from those of raw features, each (n_features,)."""
        least, most = self(np.stack([low, high]))
        return least, most

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by their names on disk."""
        return held_arrays(self, MAP)

    @property
    def features(self) -> list[int]:
        """The numbers of the mapped features."""
        return [int(feature) for feature in np.flatnonzero(self.rate)]

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Raw rows (n, n_features), with mapped features as s: float64, C order. A number that is infinite,
        or too large for single precision in units of 1 / rate, is infinite; NaN stays NaN.
        """
        out, mapped = np.array(rows, ACC_DTYPE, order="C"), np.flatnonzero(self.rate)
        if not len(out):
            return out
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            u = ((out[:, mapped] - self.centre[mapped]) * self.rate[mapped]).astype(MODEL_DTYPE)
            out[:, mapped] = np.where(np.isfinite(u), self.mapped(u, mapped), u)
        return out

    def raw(self, rows: FloatArray) -> FloatArray:
        """Raw rows of what the map made of them, but for rounding; one of several numbers with the same s."""
        out = rows.copy()
        for feature in self.features:
            u = self.inverse(rows[:, feature], feature)
            out[:, feature] = self.centre[feature] + u / self.rate[feature]
        return out

    def deviations(self, raw: FloatArray) -> FloatArray:
        """Standard deviations of features in columns, from those of raw features, each (n_features,)."""
        return np.where(self.rate > 0, self.sd, raw)


class Clip(FeatureMap):
    """Smooth clipping, s = u / √(1 + (u / 3)²)."""

    name = "clip"

    def mapped(self, u: SingleArray, feature: IntArray) -> SingleArray:
        near = np.clip(u, -FAR, FAR)
        part = near * THIRD
        return np.asarray(near / np.sqrt(np.float32(1) + part * part))

    def inverse(self, s: FloatArray, feature: int) -> FloatArray:
        part = np.clip(s / BOUND, -1 + 1e-6, 1 - 1e-6)
        return np.asarray(BOUND * part / np.sqrt(1 - part * part))


@dataclass(frozen=True, eq=False)
class Knots(FeatureMap):
    """Lines between knots, and constants beyond them. Raises ValueError where knots, or the values of any but
    an additive map, do not ascend.

    at     int64 (n_features + 1,), offsets of knots; a feature has 1 to 63 of them, or none if its rate is 0
    knot   float32 (n_knots,), ascending within a feature
    value  float32 (n_knots,), s at the knots: ascending within a feature, or contributions to an additive
           model, which have the mean 0
    name   quantile, additive, or symlog of earlier formats
    """

    at: Annotated[IntArray, Line(INDEX_DTYPE, ("knot_edge",), since=8)]
    knot: Annotated[SingleArray, Line(MODEL_DTYPE, ("map_knot",), offsets="at", since=8)]
    value: Annotated[SingleArray, Line(MODEL_DTYPE, ("map_knot",), offsets="at", since=8)]
    name: str = "quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._is_sound():
            raise ValueError("knots of a map are not 1 to 63 ascending numbers of each mapped feature")

    def _is_sound(self) -> bool:
        at, knot, value = self.at, self.knot, self.value
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
    def is_additive(self) -> bool:
        return self.name == "additive"

    def of(self, feature: int) -> slice:
        """Where the knots of a feature are."""
        return slice(int(self.at[feature]), int(self.at[feature + 1]))

    @cached_property
    def slope(self) -> SingleArray:
        """float32 (n_knots,), how fast s grows from each knot to the next; 0 after the last one."""
        slope = np.zeros(len(self.knot), MODEL_DTYPE)
        for first, last in pairwise(self.at):
            if last - first < 2:
                continue
            knot, value = (a[first:last].astype(ACC_DTYPE) for a in (self.knot, self.value))
            with np.errstate(over="ignore"):
                slope[first : last - 1] = np.diff(value) / np.diff(knot)
        return slope

    def mapped(self, u: SingleArray, feature: IntArray) -> SingleArray:
        s = np.empty_like(u)
        for column, number in enumerate(feature):
            span = self.of(number)
            above = np.searchsorted(self.knot[span], u[:, column], side="right")
            k = span.start + np.maximum(above - 1, 0)
            slope = np.where(above > 0, self.slope[k], np.float32(0))
            s[:, column] = (u[:, column] - self.knot[k]) * slope + self.value[k]
        return s

    def inverse(self, s: FloatArray, feature: int) -> FloatArray:
        knot, value = self.knot[self.of(feature)], self.value[self.of(feature)]
        return _first_crossing(s, knot, value) if self.is_additive else np.interp(s, value, knot)

    def limits(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        least, most = super().limits(low, high)
        for feature in self.features if self.is_additive else ():
            values = self.value[self.of(feature)]
            least[feature], most[feature] = values.min(), values.max()
        return least, most


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
    """The inverse of `arrays`, among others or as lists; None where it is absent. Raises ValueError.

    Files do not name the kind: knots of an additive map have values below 0, which quantiles have not.
    """
    lines = table(Knots)
    given = {
        name: np.asarray(arrays[MAP + name], line.dtype)
        for name, line in lines.items()
        if arrays.get(MAP + name) is not None
    }
    if not given:
        return None
    if absent := [name for name in lines if name not in given and (name in UNITS or len(given) > len(UNITS))]:
        raise ValueError(f"a map of features lacks its {absent[0]}")
    if len(given) == len(UNITS):
        return Clip(**given)
    return Knots(**given, name="additive" if (given["value"] < 0).any() else "quantile")
