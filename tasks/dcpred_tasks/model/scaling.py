"""Feature scaling x' = (x − μ) ∘ s, learned once, before the tree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray

BASES = ("none", "standard", "minmax")  # scalings of `fit_scaling`, which do not look at targets
LEARNED = ("learned", "sharpened")
SCALINGS = (*BASES, *LEARNED)


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
    # A constant column becomes exactly 0; its mean would be off by rounding.
    rows = sample.astype(ACC_DTYPE) - origin
    largest = 1.0 / _inverse(np.abs(rows).max(axis=0))
    rows /= largest  # No square overflows then.
    mean = np.average(rows, axis=0, weights=weight)
    spread = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weight))
    return Scaling(origin + largest * mean, _inverse(largest * spread))


def _inverse(width: FloatArray) -> FloatArray:
    usable = (width > 0) & np.isfinite(width)
    return np.where(usable, 1.0 / np.where(usable, width, 1.0), 1.0)
