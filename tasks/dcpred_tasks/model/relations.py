"""Rank correlations of pairs of raw features in training: columns that changed places, whose sign changed, or
whose values belong to other rows keep their distributions, and lose these.

A value has the mean rank of the training rows in its bin (model/bins.py), standardised. Sums of products of
two ranks are integers, which blocks add up in any order. Missing values take no part.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.leaf_arrays import Line
from dcpred_tasks.row_sampling import at_most

MOST_FEATURES = 64  # features whose pairs are compared: those with the strongest correlations
MOST_TRIED, MOST_NUMBERS = 2**10, 2**18  # features that are tried, and sampled values of all features
LEAST_ROWS = 100
LEAST_PAIRED = 25  # rows that have both features of a pair
LEAST_SPREAD, LEAST_OTHERS = 0.1, 50  # least share and number of rows outside of the most frequent bin
LARGEST = 0.999  # largest size of a correlation
SCALE = 32  # steps of a standard deviation that ranks are rounded to
QUARTERS = 4
SQUARE = ("related", "related_to")


@dataclass(frozen=True)
class Relations:
    """Pairs of features in sampled training rows.

    feature      int64 (n,), the features, ascending
    rows         int64 (n, n), sampled training rows that have both
    correlation  float64 (n, n), rank correlations; 0 of a feature with itself
    error        float64 (n, n), standard error of Fisher's z of one row: 1 of normal variables
    span         float64 (n, n), the largest difference of z in a quarter of these rows from that in all
    """

    feature: Annotated[IntArray, Line(INDEX_DTYPE, SQUARE[:1], order="<", since=2)]
    rows: Annotated[IntArray, Line(INDEX_DTYPE, SQUARE, values="[0, inf)", since=2)]
    correlation: Annotated[FloatArray, Line(ACC_DTYPE, SQUARE, values="(-1, 1)", since=2)]
    error: Annotated[FloatArray, Line(ACC_DTYPE, SQUARE, values="[0, inf)", since=2)]
    span: Annotated[FloatArray, Line(ACC_DTYPE, SQUARE, values="[0, inf)", since=2)]


def no_sums(n: int) -> IntArray:
    """Sums of no rows, int64 (2, n, n): of products of ranks, and of ones, over rows that have both features
    of a pair.
    """
    return np.zeros((2, n, n), INDEX_DTYPE)


def pairs_once(sums: IntArray) -> IntArray:
    """The sums of each pair, and of each feature with itself."""
    return sums[:, *np.triu_indices(sums.shape[1])]


def pairs_twice(once: IntArray, n: int) -> IntArray:
    """The sums of n features, from `pairs_once`."""
    sums, (a, b) = no_sums(n), np.triu_indices(n)
    sums[:, a, b] = sums[:, b, a] = once.reshape(2, -1)
    return sums


class RankMap:
    """The ranks of values by their bins."""

    def __init__(self, bins: Bins, features: IntArray) -> None:
        self.features = features
        self.of_bins = [_ranks(bins.rows[bins.slots[j]]) for j in features.tolist()]

    def __call__(self, positions: list[IntArray]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Ranks (n_rows, n_features), 0 of missing values, and which values are there.

        positions  of the bins of each feature of the model, by row
        """
        n = len(positions[0]) if positions else 0
        ranks, there = np.zeros((n, len(self.features))), np.ones((n, len(self.features)), bool)
        for k, (j, of_bin) in enumerate(zip(self.features.tolist(), self.of_bins, strict=True)):
            ranks[:, k] = of_bin[positions[j]]
            there[:, k] = positions[j] < len(of_bin) - 1
        return ranks, there

    def sums(self, positions: list[IntArray]) -> IntArray:
        """The sums of some rows, as in `no_sums`."""
        ranks, there = self(positions)
        here = there.astype(ACC_DTYPE)
        return np.stack([np.rint(each.T @ each).astype(INDEX_DTYPE) for each in (ranks, here)])

    def measured(self, bins: Bins, positions: list[IntArray]) -> FloatArray:
        """Rank correlations of some rows, as from `correlations`."""
        return self.correlations(self.sums(positions), bins, bins.counted(positions))

    def correlations(self, sums: IntArray, bins: Bins, bin_rows: IntArray) -> FloatArray:
        """Rank correlations of rows with these sums; NaN of a pair in too few rows, or with a feature that
        hardly varies.

        bin_rows  the same rows by bin
        """
        n = len(self.features)
        mean, sd, usable = np.zeros(n), np.ones(n), np.zeros(n, bool)
        for k, (j, of_bin) in enumerate(zip(self.features.tolist(), self.of_bins, strict=True)):
            rows = bin_rows[bins.slots[j]][:-1].astype(ACC_DTYPE)
            if total := rows.sum():
                mean[k] = rows @ of_bin[:-1] / total
                sd[k] = np.sqrt(rows @ (of_bin[:-1] - mean[k]) ** 2 / total)
                usable[k] = varies(bin_rows[bins.slots[j]]) and sd[k] > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            r = (sums[0] / sums[1] - np.outer(mean, mean)) / np.outer(sd, sd)
        r[(sums[1] < LEAST_PAIRED) | ~np.outer(usable, usable)] = np.nan
        np.fill_diagonal(r, 0)
        return np.asarray(np.clip(r, -LARGEST, LARGEST))


def rank_map(bins: Bins | None, relations: Relations | None) -> RankMap | None:
    """The ranks of the features of relations; None of models of earlier versions."""
    return None if bins is None or relations is None else RankMap(bins, relations.feature)


def _ranks(rows: IntArray) -> FloatArray:
    """The rounded ranks of the bins of a feature with so many training rows; the last one is of NaN."""
    here = rows[:-1].astype(ACC_DTYPE)
    middle, total = np.cumsum(here) - here / 2, max(here.sum(), 1.0)
    centred = middle - here @ middle / total
    sd = np.sqrt(here @ centred**2 / total)
    return np.append(np.rint(centred * (SCALE / sd)) if sd > 0 else np.zeros(len(here)), 0.0)


def varies(rows: IntArray) -> bool:
    """Whether rows by bin leave enough outside of the most frequent bin."""
    n = rows.sum()
    return bool(n - rows.max(initial=0) >= max(LEAST_SPREAD * n, LEAST_OTHERS))


def fit_relations(bins: Bins, X: NDArray[np.generic]) -> Relations | None:
    """The relations of sampled raw rows, in their order; None of too few rows or features."""
    usable = [j for j in range(X.shape[1]) if varies(bins.rows[bins.slots[j]])]
    usable = [usable[i] for i in at_most(len(usable), MOST_TRIED).tolist()]
    X = X[at_most(len(X), MOST_NUMBERS // max(X.shape[1], 1))]
    if len(usable) < 2 or len(X) < LEAST_ROWS:
        return None
    positions = bins.positions(X)
    r = np.nan_to_num(RankMap(bins, np.array(usable, INDEX_DTYPE)).measured(bins, positions))
    strongest = np.argsort(-np.abs(r).max(axis=1), kind="stable")[:MOST_FEATURES]
    ranks = RankMap(bins, np.sort(np.array(usable, INDEX_DTYPE)[strongest]))
    r, rows = np.nan_to_num(ranks.measured(bins, positions)), ranks.sums(positions)[1]
    edges = np.linspace(0, len(X), QUARTERS + 1).astype(int).tolist()
    quarters = [ranks.measured(bins, [each[a:b] for each in positions]) for a, b in pairwise(edges)]
    span = np.nan_to_num(np.abs(np.arctanh(quarters) - np.arctanh(r))).max(axis=0)
    return Relations(ranks.features, rows, r, _errors(*ranks(positions), r), span)


def _errors(ranks: FloatArray, there: NDArray[np.bool_], r: FloatArray) -> FloatArray:
    """Standard errors of z of one row, at least 1: the deviation of ab − r (a² + b²) / 2, the influence of a
    row with the standardised ranks a and b on r, over 1 − r².
    """
    n = np.maximum(there.sum(axis=0), 1)
    a = np.where(there, ranks - ranks.sum(axis=0) / n, 0.0)
    a /= np.sqrt(np.maximum((a**2).sum(axis=0) / n, 1e-300))
    here = there.astype(ACC_DTYPE)
    square, cube, fourth = a**2, (a**3).T @ a, (a**4).T @ here
    mixed = square.T @ square
    variance = mixed - r * (cube + cube.T) + r**2 / 4 * (fourth + fourth.T + 2 * mixed)
    variance /= np.maximum(here.T @ here, 1)
    return np.asarray(np.maximum(np.sqrt(np.maximum(variance, 0)) / (1 - r**2), 1.0))
