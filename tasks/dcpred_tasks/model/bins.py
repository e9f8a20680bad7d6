"""Bins of raw features and of scores: the distribution of training rows, which scored rows are compared with.

A numeric feature has up to MOST_BINS bins with about equally many sampled training rows. A frequent value has
a bin of its own, and so has each value of a feature with few of them. Each category of a schema has a bin,
and so have unknown categories, and missing ones. Bins reach from the least to the largest value of all
training rows. Further bins hold lower values, higher values, and NaN.

Edges are moved outwards by 2⁻²⁰ of their value: a conversion to single precision does not matter. Features of
wide tables have fewer bins: all together about MOST_EDGES.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.leaf_arrays import Line

MOST_BINS, MOST_CATEGORIES, MOST_EDGES = 20, 256, 2**16
SAMPLE = 2**14  # most rows that bins are fitted to
TOLERANCE, TINY = 2.0**-20, 1e-30


@dataclass(frozen=True)
class Bins:
    """Bins of the columns of a matrix: the raw features, then the outputs of the model.

    at    int64 (n_columns + 1,), where the edges of each column start
    edge  float64, ascending in each column; a value on an edge lies above it
    rows  int64 (n_edges + 2 n_columns,), sampled training rows: of each column those below its first edge,
          between edges, above the last one, and those with NaN
    """

    at: Annotated[IntArray, Line(INDEX_DTYPE, ("binned_edge",), since=2)]
    edge: Annotated[FloatArray, Line(ACC_DTYPE, ("bin_edge",), offsets="at", since=2)]
    rows: Annotated[IntArray, Line(INDEX_DTYPE, ("bin",), since=2)]

    @cached_property
    def edges(self) -> list[FloatArray]:
        """Of each column. NumPy sorts NaN last: missing values have a bin."""
        return [np.append(self.edge[a:b], np.nan) for a, b in pairwise(self.at.tolist())]

    @property
    def n_columns(self) -> int:
        return len(self.at) - 1

    @cached_property
    def slots(self) -> list[slice]:
        """Where the bins of each column are in `rows`."""
        edges = (self.at + 2 * np.arange(len(self.at))).tolist()
        return [slice(a, b) for a, b in pairwise(edges)]

    def positions(self, *matrices: NDArray[np.generic]) -> list[IntArray]:
        """The bin of each value, by column. The matrices have the columns side by side, or the first ones."""
        columns = (column for matrix in matrices for column in np.asarray(matrix.T, ACC_DTYPE, order="C"))
        return [
            edges.searchsorted(column, "right") for column, edges in zip(columns, self.edges, strict=False)
        ]

    def counts(self, *matrices: NDArray[np.generic]) -> IntArray:
        """Rows by bin, as in `rows`."""
        return self.counted(self.positions(*matrices))

    def counted(self, positions: list[IntArray]) -> IntArray:
        """Rows of these positions by bin, as in `rows`."""
        counts = np.zeros(len(self.rows), INDEX_DTYPE)
        for position, slot in zip(positions, self.slots, strict=False):
            counts[slot] = np.bincount(position, minlength=slot.stop - slot.start)
        return counts


def fit_bins(
    X: NDArray[np.generic],
    minimum: FloatArray,
    maximum: FloatArray,
    decision: NDArray[np.generic],
    codes: Mapping[int, int],
) -> Bins:
    """The bins of sampled raw rows (n, n_features), and of the decision values (m, n_outputs) of some rows.

    minimum, maximum  of each feature, of all training rows; NaN for one without values
    codes             the number of positions of each categorical feature of a schema
    """
    n, n_outputs = X.shape[1], decision.shape[1]
    most = max(min(MOST_BINS, MOST_EDGES // n), 2)
    widest = MOST_CATEGORIES if MOST_CATEGORIES * len(codes) <= MOST_EDGES else most
    each = [
        _code_edges(X[:, f], codes[f], widest)
        if f in codes
        else _edges(X[:, f].astype(ACC_DTYPE), float(minimum[f]), float(maximum[f]), most)
        for f in range(n)
    ]
    scores = decision[np.isfinite(decision).all(axis=1)].astype(ACC_DTYPE)
    low, high = (scores.min(axis=0), scores.max(axis=0)) if len(scores) else np.full((2, n_outputs), np.nan)
    each += [_edges(scores[:, o], float(low[o]), float(high[o]), MOST_BINS) for o in range(n_outputs)]
    at = np.cumsum([0, *map(len, each)]).astype(INDEX_DTYPE)
    bins = Bins(at, np.concatenate(each), np.zeros(at[-1] + 2 * len(each), INDEX_DTYPE))
    return replace(bins, rows=bins.counts(X, scores))


def _edges(values: FloatArray, low: float, high: float, most: int) -> FloatArray:
    """Edges for numbers, at most `most` bins beside those of frequent values; empty where all are missing."""
    values = values[~np.isnan(values)]
    if not len(values) or np.isnan(low):
        return np.empty(0)
    alone = np.unique(values)
    inner = np.empty(0)
    if len(alone) > most:
        parts = np.quantile(values, np.arange(1, most) / most, method="lower")
        inner, n = np.unique(parts, return_counts=True)
        alone = inner[n > 1]
    starts, ends = np.append(alone, low), np.append(alone, high)
    starts, ends = starts - np.abs(starts) * TOLERANCE - TINY, ends + np.abs(ends) * TOLERANCE + TINY
    return np.unique(np.concatenate([starts, inner, ends]))


def _code_edges(codes: NDArray[np.generic], size: int, most: int) -> FloatArray:
    """Edges for categories: one bin for each; the rarest ones share a bin with their neighbours above the
    limit `most`. The last two positions, of unknown categories and of missing values, stay separate.
    """
    edges = np.arange(size + 1, dtype=ACC_DTYPE) - 0.5
    if size <= most:
        return edges
    numbers = codes.astype(INDEX_DTYPE)
    known = numbers[(numbers >= 0) & (numbers < size - 2)]
    counts = np.bincount(known, minlength=size - 2)
    frequent = np.argsort(-counts, kind="stable")[: most // 2]
    return np.asarray(edges[np.unique([0, *frequent, *(frequent + 1), size - 2, size - 1, size])])
