"""Feature scaling x' = (x − μ) ∘ s, learned once, before the tree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray

BASES = ("none", "standard", "minmax")  # those that do not look at targets, which `fit_scaling` knows
SCALINGS = (*BASES, "learned")


@dataclass(frozen=True)
class Scaling:
    """shift μ and factor s, float64 (n_features,)."""

    shift: FloatArray
    factor: FloatArray

    def __call__(self, X: NDArray[np.generic]) -> SingleArray:
        """float32 C-ordered (n_samples, n_features); the difference is taken in double precision, since a
        feature far from zero (a timestamp) would lose its digits in single precision."""
        return self.exact(X).astype(MODEL_DTYPE)

    def exact(self, X: NDArray[np.generic]) -> FloatArray:
        """The same in double precision."""
        out = np.array(X, dtype=ACC_DTYPE, order="C")
        out -= self.shift
        out *= self.factor
        return out


def fit_scaling(
    name: str, sample: NDArray[np.generic], weight: FloatArray, minimum: FloatArray, maximum: FloatArray
) -> Scaling:
    """`minimum` and `maximum` are those of all rows, `sample` some of the rows with their weights. A constant
    feature keeps factor 1 (minmax and standard then centre it, so that it adds nothing to any distance).
    """
    n_features = len(minimum)
    if name == "none":
        return Scaling(np.zeros(n_features), np.ones(n_features))
    if name == "minmax":
        return Scaling(minimum.copy(), _inverse(maximum - minimum))
    origin = sample[0].astype(ACC_DTYPE)
    # exactly 0 in a constant column, whose mean would be off by rounding
    rows = sample.astype(ACC_DTYPE) - origin
    reach = 1.0 / _inverse(np.abs(rows).max(axis=0))
    rows /= reach  # so that no square overflows
    mean = np.average(rows, axis=0, weights=weight)
    spread = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weight))
    return Scaling(origin + reach * mean, _inverse(reach * spread))


def _inverse(width: FloatArray) -> FloatArray:
    usable = (width > 0) & np.isfinite(width)
    return np.where(usable, 1.0 / np.where(usable, width, 1.0), 1.0)
