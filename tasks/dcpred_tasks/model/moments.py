"""Means and standard deviations of features, gathered part by part; missing values are counted separately."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import Model, Reference
from dcpred_tasks.model.one_hot import LARGEST_CODE
from dcpred_tasks.model.scaling import Scaling

REFERENCE_ROWS = 2**12  # rows converted at once
LARGEST_LEFT_OUT = (
    1e30  # A limit of values that the scaling leaves out: records have moments in single precision.
)


def feature_reference(scaling: Scaling, sample: NDArray[np.generic]) -> Reference:
    """Mean and sd of a sample of raw rows, which count alike: scored rows have no weights."""
    moments = Moments(sample.shape[1])
    for start in range(0, len(sample), REFERENCE_ROWS):
        moments.add(moments_of(as_features(scaling, sample[start : start + REFERENCE_ROWS])))
    return raw_moments(scaling, moments)


def as_features(scaling: Scaling, X: NDArray[np.generic]) -> FloatArray:
    """Raw rows scaled as by `scaling.of_features()`, float64 (n, n_features), and only shifted where that has
    the factor 0. Numbers of a one-hot encoded feature that are too large to be squared are limited, and so
    are left-out features. A missing value is NaN. A target-encoded category is its first mean.
    """
    rows = _units(scaling).exact(X)
    if (left_out := scaling.of_features().factor == 0).any():
        rows[:, left_out] = np.clip(rows[:, left_out], -LARGEST_LEFT_OUT, LARGEST_LEFT_OUT)
    if scaling.coding is not None:
        coded = scaling.coding.is_coded[: scaling.n_features]
        rows[:, coded] = np.clip(rows[:, coded], -2.0 * LARGEST_CODE, 2.0 * LARGEST_CODE)
    return rows


def raw_moments(scaling: Scaling, moments: "Moments") -> Reference:
    """Mean and sd of raw features from moments of rows `as_features`, and the share of missing values in
    models with them; a feature without values has mean μ and sd 0.
    """
    gaps = 1.0 - moments.values / max(moments.n, 1) if scaling.knows_gaps else None
    scaling = _units(scaling)
    return Reference(scaling.shift + moments.mean / scaling.factor, moments.sd / np.abs(scaling.factor), gaps)


def _units(scaling: Scaling) -> Scaling:
    """`scaling.of_features()`, where a factor of 0 is 1: what kernels leave out may still move."""
    units = scaling.of_features()
    return replace(units, factor=np.where(units.factor == 0, 1.0, units.factor))


def known_reference(model: Model) -> Reference | None:
    """The reference of the raw features of a model. Earlier versions took no sd of features that the scaling
    leaves out: that of their bins replaces it.
    """
    if model.reference is None:
        return None
    reference = model.reference.first(model.n_features)
    unknown = (model.scaling.of_features().factor == 0) & (reference.sd == 0)
    if model.scaling.targets is not None:
        unknown[model.scaling.targets.feature] = False  # Bins are of categories, and the reference of means.
    if model.bins is None or not unknown.any():
        return reference
    mean, sd = reference.mean.copy(), reference.sd.copy()
    for j in np.flatnonzero(unknown).tolist():
        mean[j], sd[j] = _binned_moments(model.bins, j) or (mean[j], sd[j])
    return replace(reference, mean=mean, sd=sd)


def _binned_moments(bins: Bins, feature: int) -> tuple[float, float] | None:
    """The mean and sd of training rows in the middles of their bins; None without any."""
    edges, rows = bins.edges[feature][:-1], bins.rows[bins.slots[feature]][1:-2]
    if not rows.sum():
        return None
    middle = (edges[1:] + edges[:-1]) / 2
    mean = float(np.average(middle, weights=rows))
    return mean, float(np.sqrt(np.average((middle - mean) ** 2, weights=rows)))


def scored_reference(model: Model, moments: "Moments", training: Reference | None) -> Reference:
    """Mean and sd of scored rows. A feature that the scaling leaves out has those of training where they are
    unknown: in records of earlier versions, and beside their models without bins.
    """
    seen = raw_moments(model.scaling, moments)
    if training is None:
        return seen
    unknown = (moments.mean == 0) & (moments.squares == 0)
    if model.bins is None:
        unknown |= training.sd == 0
    unknown &= model.scaling.of_features().factor == 0
    return replace(
        seen, mean=np.where(unknown, training.mean, seen.mean), sd=np.where(unknown, training.sd, seen.sd)
    )


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
    moments = Moments(rows.shape[1])
    there = ~np.isnan(rows)
    moments.n, moments.values = len(rows), np.count_nonzero(there, axis=0).astype(INDEX_DTYPE)
    if there.all():
        moments.mean = rows.mean(axis=0) if len(rows) else moments.mean
        gap = rows - moments.mean
    else:
        moments.mean = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(moments.values, 1)
        gap = np.where(there, rows - moments.mean, 0.0)
    moments.squares = np.einsum("ij,ij->j", gap, gap)
    return moments


def packed_moments(n: int, values: IntArray, mean: FloatArray, sd: FloatArray) -> Moments:
    """Moments of n rows from their means and standard deviations."""
    moments = Moments(len(mean))
    moments.n, moments.values, moments.mean, moments.squares = n, values, mean, values * sd**2
    return moments
