"""The typicality of rows of a leaf, for novelty (dcpred_tasks.model.sureness.Novelty): mean and variance of
each feature, and the distance of each row from the others.

The distance is Mahalanobis with variances only, r² = Σ_f (x_f − m_f)² / v_f. A row of the leaf is measured
from the mean and variances of the others, as a new row is from those of all: rows of small leaves would else
seem nearer than new ones. DECISIONS.md compares this with other distances.
"""

from dataclasses import dataclass

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.sureness import LEVELS

PRIOR_ROWS = 3.0  # rows by which the variance of a feature is drawn to the mean of all features
LEAST_SHARE = 1e-3  # least mean variance of the other rows, as a share of that of all
# r times the result of `_scale` is 1 for a typical row. In single precision (1 + r) exp(−r) distinguishes
# distances up to about 18.
FARTHEST, MOST_TYPICAL = 14.0, 200.0
LIMITS = 1e-25, 1e25  # range of factors, which single precision holds
STRIP_ROWS = 2**12


def nearness_of(r: FloatArray) -> FloatArray:
    """(1 + r) exp(−r)."""
    return np.asarray((1.0 + r) * np.exp(-r))


@dataclass(frozen=True)
class Place:
    """Where the rows of one leaf lie: what Novelty has of it."""

    point: SingleArray
    factor: SingleArray
    edge: SingleArray


def own_place(X: SingleArray) -> Place:
    """X  float32 (n, n_features), the rows of the leaf, scaled; n ≥ 1"""
    n = len(X)
    mean = X.mean(axis=0, dtype=ACC_DTYPE)
    squares = np.zeros(X.shape[1])
    for start in range(0, n, STRIP_ROWS):
        squares += ((X[start : start + STRIP_ROWS] - mean) ** 2).sum(axis=0)
    r = _others_distance(X, mean, squares)
    scale = _scale(r)
    variance = _variance(squares, float(n), squares.mean() / n)
    factor = np.clip(scale / np.sqrt(variance), *LIMITS).astype(MODEL_DTYPE)
    near = np.sort(nearness_of(scale * r))[::-1]
    edge = np.interp(LEVELS, np.arange(1, n + 1) / (n + 1), near)
    return Place((mean * factor).astype(MODEL_DTYPE), factor, edge.astype(MODEL_DTYPE))


def _variance(squares: FloatArray, n: float, prior: FloatArray | float) -> FloatArray:
    """Variances of features from sums of squares of n rows, drawn to `prior`; 1 where no feature varies."""
    found = (squares + PRIOR_ROWS * np.asarray(prior)) / (n + PRIOR_ROWS)
    return np.where(found > 0, found, 1.0)


def _others_distance(X: SingleArray, mean: FloatArray, squares: FloatArray) -> FloatArray:
    """The distance r of each row from the others, (n,)."""
    n = len(X)
    out = np.zeros(n)
    if n == 1:
        return out
    least = LEAST_SHARE * squares.mean() / n
    for start in range(0, n, STRIP_ROWS):
        gap = X[start : start + STRIP_ROWS] - mean
        gap *= gap
        # Of the other rows: the mean is mean + (mean − x) / (n − 1), and sums of squares exclude this row.
        others = np.maximum(squares - gap * (n / (n - 1)), 0.0)
        prior = np.maximum(others.mean(axis=1, keepdims=True) / (n - 1), least)
        gap /= _variance(others, n - 1.0, prior)
        out[start : start + len(gap)] = np.sqrt(gap.sum(axis=1)) * (n / (n - 1))
    return out


def _scale(r: FloatArray) -> float:
    """The factor of distances: 1 / the median, unless some rows are much farther."""
    typical, largest = float(np.median(r)), float(r.max())
    if largest == 0:
        return 1.0
    if largest <= FARTHEST * typical:
        return 1.0 / typical
    return FARTHEST / (min(largest, MOST_TYPICAL * typical) or largest)
