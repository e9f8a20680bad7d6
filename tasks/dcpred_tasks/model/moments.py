"""Means and standard deviations of features, gathered part by part."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.coding import LARGEST_CODE
from dcpred_tasks.model.compact_model import Reference
from dcpred_tasks.model.scaling import Scaling

REFERENCE_ROWS = 2**12  # rows converted at once


def feature_reference(scaling: Scaling, sample: NDArray[np.generic]) -> Reference:
    """Mean and sd of a sample of raw rows. Rows count alike, whatever their weights: those of scored rows
    have none.
    """
    moments = Moments(sample.shape[1])
    for start in range(0, len(sample), REFERENCE_ROWS):
        moments.add(*moments_of(as_features(scaling, sample[start : start + REFERENCE_ROWS])))
    return raw_moments(scaling, moments.mean, moments.sd)


def as_features(scaling: Scaling, X: NDArray[np.generic]) -> FloatArray:
    """Raw rows as `scaling.of_features()` scales them, float64 (n, n_features). A coded feature may hold any
    number, and here one that is not too large to be squared.
    """
    rows = scaling.of_features().exact(X)
    if scaling.coding is not None:
        own = scaling.coding.is_coded
        rows[:, own] = np.clip(rows[:, own], -2.0 * LARGEST_CODE, 2.0 * LARGEST_CODE)
    return rows


def raw_moments(scaling: Scaling, mean: FloatArray, sd: FloatArray) -> Reference:
    """Mean and sd of raw features from those of rows `as_features`; a feature of factor 0 has
    mean μ and sd 0.
    """
    scaling = scaling.of_features()
    factor = np.where(scaling.factor == 0, 1.0, scaling.factor)
    return Reference(scaling.shift + mean / factor, sd / np.abs(factor))


class Moments:
    """Mean and sum of squares about it, of parts put together (Chan, Golub and LeVeque, 1983)."""

    def __init__(self, n_features: int) -> None:
        self.n = 0
        self.mean = np.zeros(n_features, ACC_DTYPE)
        self.squares = np.zeros(n_features, ACC_DTYPE)

    def add(self, n: int, mean: FloatArray, squares: FloatArray) -> None:
        if n == 0:
            return
        both, gap = self.n + n, mean - self.mean
        self.mean = self.mean + gap * (n / both)
        self.squares = self.squares + squares + gap * gap * (self.n * n / both)
        self.n = both

    @property
    def sd(self) -> FloatArray:
        return np.asarray(np.sqrt(self.squares / max(self.n, 1)))


def moments_of(rows: FloatArray) -> tuple[int, FloatArray, FloatArray]:
    """Number of rows, mean, and sum of squares about it."""
    mean = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
    gap = rows - mean
    return len(rows), mean, np.einsum("ij,ij->j", gap, gap)
