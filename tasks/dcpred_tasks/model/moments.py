"""Means and standard deviations of features, gathered part by part; missing values are counted separately."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.compact_model import Reference
from dcpred_tasks.model.one_hot import LARGEST_CODE
from dcpred_tasks.model.scaling import Scaling

REFERENCE_ROWS = 2**12  # rows converted at once


def feature_reference(scaling: Scaling, sample: NDArray[np.generic]) -> Reference:
    """Mean and sd of a sample of raw rows, which count alike: scored rows have no weights."""
    moments = Moments(sample.shape[1])
    for start in range(0, len(sample), REFERENCE_ROWS):
        moments.add(moments_of(as_features(scaling, sample[start : start + REFERENCE_ROWS])))
    return raw_moments(scaling, moments)


def as_features(scaling: Scaling, X: NDArray[np.generic]) -> FloatArray:
    """Raw rows scaled as by `scaling.of_features()`, float64 (n, n_features). Numbers of a one-hot encoded
    feature that are too large to be squared are limited. A missing value is NaN. A target-encoded category is
    its first mean.
    """
    rows = scaling.of_features().exact(X)
    if scaling.coding is not None:
        own = scaling.coding.is_coded[: scaling.n_features]
        rows[:, own] = np.clip(rows[:, own], -2.0 * LARGEST_CODE, 2.0 * LARGEST_CODE)
    return rows


def raw_moments(scaling: Scaling, moments: "Moments") -> Reference:
    """Mean and sd of raw features from moments of rows `as_features`, and the share of missing values in
    models with them; a feature of factor 0, or without values, has mean μ and sd 0.
    """
    gaps = 1.0 - moments.values / max(moments.n, 1) if scaling.knows_gaps else None
    scaling = scaling.of_features()
    factor = np.where(scaling.factor == 0, 1.0, scaling.factor)
    return Reference(scaling.shift + moments.mean / factor, moments.sd / np.abs(factor), gaps)


class Moments:
    """Mean and sum of squares about it, of joined parts (Chan, Golub and LeVeque, 1983).

    n       rows
    values  int64 (n_features,), the rows that have each feature
    """

    def __init__(self, n_features: int) -> None:
        self.n = 0
        self.values = np.zeros(n_features, INDEX_DTYPE)
        self.mean = np.zeros(n_features, ACC_DTYPE)
        self.squares = np.zeros(n_features, ACC_DTYPE)

    def add(self, part: "Moments") -> None:
        if part.n == 0:
            return
        both, gap = np.maximum(self.values + part.values, 1), part.mean - self.mean
        self.mean = self.mean + gap * (part.values / both)
        self.squares = self.squares + part.squares + gap * gap * (self.values * part.values / both)
        self.n, self.values = self.n + part.n, self.values + part.values

    @property
    def sd(self) -> FloatArray:
        return np.asarray(np.sqrt(self.squares / np.maximum(self.values, 1)))


def moments_of(rows: FloatArray) -> Moments:
    """The moments of rows (n, n_features); NaN is missing."""
    found = Moments(rows.shape[1])
    there = ~np.isnan(rows)
    found.n, found.values = len(rows), np.count_nonzero(there, axis=0).astype(INDEX_DTYPE)
    if there.all():
        found.mean = rows.mean(axis=0) if len(rows) else found.mean
        gap = rows - found.mean
    else:
        found.mean = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(found.values, 1)
        gap = np.where(there, rows - found.mean, 0.0)
    found.squares = np.einsum("ij,ij->j", gap, gap)
    return found


def packed_moments(n: int, values: IntArray, mean: FloatArray, sd: FloatArray) -> Moments:
    """Moments of n rows from their means and standard deviations."""
    found = Moments(len(mean))
    found.n, found.values, found.mean, found.squares = n, values, mean, values * sd**2
    return found
