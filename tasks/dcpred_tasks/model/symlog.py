"""Features on a symmetric logarithmic scale, only in models of earlier versions; new ones have maps
(model/feature_map.py).

    s(x) = sign(u) · l(1 + |u|),   u = (x − centre) · rate

l is the binary logarithm with straight lines between the powers of two, l(2^e m) = e + m − 1 for 1 ≤ m < 2:
s(x) is u itself where |u| ≤ 1, and one more for each doubling of 1 + |u|. In double precision l(v) is the
bits of v as an integer, minus those of 1, in units of 2^−52: the same on every processor, in a few
instructions. The corners do not matter for a kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray

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
