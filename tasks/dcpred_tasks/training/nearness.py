"""Where the rows of a leaf lie, for novelty (dcpred_tasks.model.sureness.Novelty): their mean, how far they
spread in each feature, and how far each of them lies from all others.

The distance is Mahalanobis' with variances alone, r² = Σ_f (x_f − m_f)² / v_f. A row of the leaf is measured
from the mean and variances of the others, as a new row is from those of all: with the leaf's own ones rows of
small leaves would seem nearer than new ones are (of letter, 61 rows a leaf, 8.7 % of new rows lay beyond 95 %
of the training rows, and 5 % do so).

Beside it were tried the sum of the landmarks' kernel values, the largest of them, the distance to the mean
without variances, and to the nearest of 4 to 16 k-means centres. Area under the ROC curve of rows with noise
of one standard deviation in each feature, and of rows drawn evenly from the box of all rows, against test
rows (2026-11-24):

                          noise: connect_4 elec2 magic     box: connect_4 elec2 magic
    variances                    0.975     0.994 0.965          0.997     1.000 0.994
    sum of kernel values         0.075     0.976 0.916          0.624     0.998 0.946
    mean alone                   0.071     0.978 0.933          0.592     0.999 0.969
    16 centres                   0.683     0.997 0.970          0.949     0.999 0.988
"""

from dataclasses import dataclass

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.sureness import LEVELS

PRIOR_ROWS = 3.0  # rows by which the variance of a feature is drawn to the mean of all features
LEAST_SHARE = 1e-3  # least mean variance of the rows beside one, as a share of that of all
# r times what `_scale` gives is 1 for a typical row. In single precision (1 + r) exp(−r) tells distances
# apart up to about 18.
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
        # Of the others: the mean is mean + (mean − x) / (n − 1), and sums of squares are without this.
        others = np.maximum(squares - gap * (n / (n - 1)), 0.0)
        prior = np.maximum(others.mean(axis=1, keepdims=True) / (n - 1), least)
        gap /= _variance(others, n - 1.0, prior)
        out[start : start + len(gap)] = np.sqrt(gap.sum(axis=1)) * (n / (n - 1))
    return out


def _scale(r: FloatArray) -> float:
    """What distances are multiplied with: 1 / the median, unless some rows are much farther."""
    typical, largest = float(np.median(r)), float(r.max())
    if largest == 0:
        return 1.0
    if largest <= FARTHEST * typical:
        return 1.0 / typical
    return FARTHEST / (min(largest, MOST_TYPICAL * typical) or largest)
