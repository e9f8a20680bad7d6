"""Gradient boosting of oblivious trees (model/oblivious_trees.py): the fit of that term.

Each tree follows the second-order gain Σ G² / (H + ridge) over all of its leaves and both sides of a question
(Chen and Guestrin 2016), where G and H are sums of slopes and curvatures of the loss. Both are rounded to
integers: sums are exact. Classes have the logistic loss, numbers that of the setting `loss`. The
trees of several classes have values of each; where there are many, splits follow random sums of their
gradients (Iosipoi and Vakhrushev 2022). Rows that are held out choose the number of trees.

Rows and columns are drawn by hashes of their places: the same rows give the same trees.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.compiler import compiled
from dcpred_tasks.engine.layout import LANES, aligned_empty
from dcpred_tasks.engine.native_modules import TREES, taken_by
from dcpred_tasks.model.oblivious_trees import NEVER, ObliviousTrees, bins_of, quantised, single
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.training.losses import (
    SHARPNESS,
    Huber,
    Logistic,
    Loss,
    loss_from_settings,
    residual_size,
    weighted_quantile,
)
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey

BORDERS = 127  # most of a feature
BORDER_ROWS = 2**17  # most rows that borders follow
HELD_SHARE, FEWEST_HELD = 0.1, 50  # rows that are held out, and below which none are
PATIENCE = 30  # trees after the best one
MORE_TREES = 1.25  # All rows bear more trees, and labels improve after the loss has its minimum.
ROW_SHARE = 0.8  # rows that choose the questions of a tree
RIDGE = 1.0  # in rows of the largest curvature, about
MOST_SKETCHED = 4  # outputs, or random sums of them, that questions follow
MOST_COLUMNS, HISTOGRAM_BYTES = 2**10, 2**24  # columns of a tree, and memory of their histograms
WHOLE_BITS = 30
ROBUST_STEPS = 4  # Steps of leaf values by a loss whose curvature is an upper bound.
EVERY = slice(None)
LARGEST = np.finfo(MODEL_DTYPE).max  # Larger values have the bin of this one.
SETTLED_TREES = 10  # trees after which the width of a loss is measured again


class Growth(NamedTuple):
    """What a tree is grown from."""

    n_features: int
    n_outputs: int
    """Those that questions follow."""
    depth: int
    n_bins: int
    """Of a column, a multiple of 16."""
    ridge: float
    """In units of `gradient`."""
    bins: NDArray[np.uint8]
    """uint8 (n_rows · n_features,)."""
    gradient: NDArray[np.int32]
    """int32 (n_rows, n_outputs, 2): slope and curvature."""
    columns: IntArray
    """int64, the features that a tree may ask for."""


class GrowthRoom(NamedTuple):
    """The workspace of compiled code, and its results."""

    rows: NDArray[np.int32]
    """int32, the rows that choose the questions, in any order."""
    back: NDArray[np.int32]
    """int32, of the same size."""
    histograms: IntArray
    """int64 (2^(depth − 1), n_columns, n_outputs, n_bins, 2)."""
    gains: FloatArray
    """float64 (n_columns, n_bins)."""
    below: FloatArray
    """float64 (2, n_bins)."""
    feature: NDArray[np.int32]
    """int32 (depth,)."""
    bin: NDArray[np.uint8]
    """uint8 (depth,); NEVER where no question divides more."""
    leaf: NDArray[np.uint8]
    """uint8 (n_rows,), of all rows."""


@taken_by(TREES, "grow")
class GrowthArguments(NamedTuple):
    """The arguments of `grow` of native/trees.cpp."""

    growth: Growth
    room: GrowthRoom


def fit_trees(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> ObliviousTrees:
    """As many trees as settings ask for, at most (term_fits.FitTerm)."""
    weight = weight / weight.max()
    weight /= weight.mean()
    if settings.task == "regression":
        loss = loss_from_settings(settings)
        y, mean, spread = loss.standardised(target.astype(ACC_DTYPE), weight / weight.sum())
        goal = y[:, None]
    else:
        loss, mean, spread = Logistic(), 0.0, 1.0
        goal = 2.0 * (target[:, None] == np.arange(len(survey.classes))) - 1.0
        goal = goal if goal.shape[1] > 2 else goal[:, 1:]
    borders = [borders_of(X[:, feature]) for feature in range(X.shape[1])]
    bins = np.stack([bins_of(X[:, f], edges) for f, edges in enumerate(borders)], axis=1)
    leaf, feature, least, bias = _Boosting(bins, goal, weight, loss, settings).run()
    whole, scale, bias = quantised(leaf * spread, bias * spread + mean)
    return _in_used_borders(borders, feature, least, whole, scale, bias)


def borders_of(x: NDArray[np.generic]) -> SingleArray:
    """At most BORDERS borders between values (n,), where about equally many rows lie between two; with
    missing values the first is −∞.
    """
    numbers = single(x)
    gaps = np.isnan(numbers)
    seen = numbers[~gaps].clip(-LARGEST, LARGEST)
    if len(seen) > BORDER_ROWS:
        seen = seen[row_hash(np.arange(len(seen)), 0) < np.uint64(int(BORDER_ROWS / len(seen) * 2.0**64))]
    values, counts = np.unique(seen, return_counts=True)
    most = BORDERS - 1
    if len(values) - 1 > most:
        share = np.cumsum(counts) / counts.sum()
        chosen = np.unique(np.searchsorted(share, np.arange(1, most + 1) / (most + 1)))
        chosen = chosen[chosen < len(values) - 1]
    else:
        chosen = np.arange(len(values) - 1)
    low, high = values[chosen].astype(ACC_DTYPE), values[chosen + 1]
    middle = ((low + high) / 2).astype(MODEL_DTYPE)
    borders = np.where(middle > values[chosen], middle, high)
    first = [-np.inf] if gaps.any() and len(values) else []
    return np.concatenate([first, borders]).astype(MODEL_DTYPE)


def machine_code() -> Any:
    """The module that grows trees in machine code."""
    from dcpred_tasks.engine import tree_engine

    return tree_engine


@dataclass
class _Boosting:
    """Trees of binned rows (n, n_features): of goals (n, n_outputs), ±1 of classes or numbers."""

    bins: NDArray[np.uint8]
    goal: FloatArray
    weight: FloatArray
    loss: Loss
    settings: Settings

    @cached_property
    def machine_code(self) -> Any:
        return compiled(machine_code, "grow trees", "or set trees=0, which trains without it")

    def run(self) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.uint8], FloatArray]:
        """Leaf values (n_trees, n_outputs, n_leaves), features and bins (n_trees, depth), bias.

        Where held-out rows show the best number of trees, MORE_TREES times as many are grown from all rows.
        """
        share = row_hash(np.arange(len(self.goal)), self.settings.seed + 11).astype(ACC_DTYPE) / 2.0**64
        held, most = np.flatnonzero(share < HELD_SHARE), self.settings.trees
        if len(held) >= FEWEST_HELD:
            most = min(int(MORE_TREES * len(self._boosted(held, most)[0])), most)
        return self._boosted(held[:0], most)

    def _boosted(
        self, held: IntArray, most: int
    ) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.uint8], FloatArray]:
        """The same without some rows, which choose the number of trees."""
        n, seed = len(self.goal), self.settings.seed
        learns = np.setdiff1d(np.arange(n), held)
        bias = self._constant(learns)
        f = np.tile(bias, (n, 1))
        leaves, features, least, best, lowest = [], [], [], 0, np.inf
        for number in range(most):
            if number % SETTLED_TREES == 0:
                self._settle(f, learns)
            parts = self._gradient(f)
            draws = row_hash(learns, seed + 13 + number).astype(ACC_DTYPE) / 2.0**64
            rows = learns[draws < ROW_SHARE]
            room = self._grown(*parts, rows if len(rows) else learns, number)
            values = self._leaf_values(f, parts, room.leaf, learns)
            f += values[:, room.leaf].T
            leaves.append(values)
            features.append(room.feature)
            least.append(room.bin)
            if len(held) and (judged := self._judged(f, held)) < lowest:
                best, lowest = number + 1, judged
            if len(held) and number + 1 - best >= PATIENCE:
                break
        used = slice(best if len(held) else None)
        return np.array(leaves[used]), np.array(features[used]), np.array(least[used]), bias

    def _constant(self, rows: IntArray) -> FloatArray:
        """The best constant of some rows."""
        goal, weight = self.goal[rows], self.weight[rows]
        if isinstance(self.loss, Logistic):
            p = (((goal > 0) * weight[:, None]).sum(axis=0) + 0.5) / (weight.sum() + 1.0)
            return np.asarray(np.log(p) if len(p) > 1 else np.log(p / (1 - p)) / 2) / SHARPNESS
        if isinstance(self.loss, Huber):
            level = 0.5 if self.loss.level is None else self.loss.level
            return np.array([weighted_quantile(goal[:, 0], weight, level)])
        return np.average(goal, axis=0, weights=weight)

    def _settle(self, f: FloatArray, rows: IntArray) -> None:
        """Measure the width of the loss by residuals."""
        if isinstance(self.loss, Huber):
            residual = self.goal[rows, 0] - f[rows, 0]
            self.loss = self.loss.for_size(residual_size(residual, self.weight[rows]))

    def _gradient(self, f: FloatArray, rows: IntArray | slice = EVERY) -> tuple[FloatArray, FloatArray]:
        goal, weight = self.goal[rows], self.weight[rows, None]
        return self.loss(f, goal)[1] * weight, self.loss.curvature(f, goal) * weight

    @property
    def _ridge(self) -> float:
        outputs = self.goal.shape[1]
        steep = SHARPNESS**2 * (4.0 if outputs == 1 else 1.0) if isinstance(self.loss, Logistic) else 2.0
        return RIDGE * steep

    def _judged(self, f: FloatArray, rows: IntArray) -> float:
        """The mean loss of rows; that of Huber and of a quantile without its width, which changes."""
        loss = replace(self.loss, width=1e-9, steep=1.0) if isinstance(self.loss, Huber) else self.loss
        return float(self.weight[rows] @ loss(f[rows], self.goal[rows])[0].sum(axis=1))

    def _leaf_values(
        self, f: FloatArray, parts: tuple[FloatArray, FloatArray], leaf: NDArray[np.uint8], rows: IntArray
    ) -> FloatArray:
        """Steps of Newton's method from f, where slopes and curvatures are `parts`, times the rate:
        (n_outputs, n_leaves).
        """
        size, number = 1 << self.settings.tree_depth, leaf[rows]
        f, parts = f[rows], (parts[0][rows], parts[1][rows])
        values = np.zeros((f.shape[1], size))
        for step in range(ROBUST_STEPS if isinstance(self.loss, Huber) else 1):
            if step:
                parts = self._gradient(f + values[:, number].T, rows)
            slope, curvature = (
                np.array([np.bincount(number, column, size) for column in part.T]) for part in parts
            )
            values -= slope / (curvature + self._ridge)
        return self.settings.tree_rate * values

    def _grown(self, slope: FloatArray, curvature: FloatArray, rows: IntArray, number: int) -> GrowthRoom:
        arguments = growth_arguments(
            self.bins,
            *_sketched(slope, curvature, self.settings.seed + 17 + number),
            rows,
            self._columns(min(slope.shape[1], MOST_SKETCHED), number),
            self.settings.tree_depth,
            self._ridge,
        )
        self.machine_code.call(arguments)
        return arguments.room

    def _columns(self, n_outputs: int, number: int) -> IntArray:
        """The columns that a tree may ask for: all, or those of the smallest hash."""
        d, depth = self.bins.shape[1], self.settings.tree_depth
        most = HISTOGRAM_BYTES // (16 * (BORDERS + 1) * n_outputs << (depth - 1))
        most = max(min(most, MOST_COLUMNS), 1)
        draws = row_hash(np.arange(d), self.settings.seed + 19 + number)
        return np.sort(np.argsort(draws, kind="stable")[:most]).astype(INDEX_DTYPE)


def growth_arguments(
    bins: NDArray[np.uint8],
    slope: FloatArray,
    curvature: FloatArray,
    rows: IntArray,
    columns: IntArray,
    depth: int,
    ridge: float,
) -> GrowthArguments:
    """The arguments of compiled code for a tree; slopes and curvatures (n_rows, n_outputs) become whole."""
    k = slope.shape[1]
    largest = max(float(np.abs(slope).max()), float(curvature.max()), 1e-300)
    unit = 2.0 ** (WHOLE_BITS - int(np.frexp(largest)[1]))
    whole = np.rint(np.stack([slope, curvature], axis=2) * unit).astype(np.int32)
    n_bins = -(-(int(bins.max(initial=0)) + 1) // LANES) * LANES
    growth = Growth(
        n_features=bins.shape[1],
        n_outputs=k,
        depth=depth,
        n_bins=n_bins,
        ridge=ridge * unit,
        bins=bins.reshape(-1),
        gradient=whole.reshape(-1),
        columns=columns,
    )
    room = GrowthRoom(
        rows=rows.astype(np.int32),
        back=np.empty(len(rows), np.int32),
        histograms=aligned_empty((len(columns) * k * n_bins * 2) << (depth - 1), np.int64),
        gains=aligned_empty(len(columns) * n_bins, np.float64),
        below=aligned_empty(2 * n_bins, np.float64),
        feature=np.empty(depth, np.int32),
        bin=np.empty(depth, np.uint8),
        leaf=np.empty(len(bins), np.uint8),
    )
    return GrowthArguments(growth, room)


def _sketched(slope: FloatArray, curvature: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Slopes and curvatures of the outputs that questions follow: all, or random sums of many."""
    k = slope.shape[1]
    if k <= MOST_SKETCHED:
        return slope, curvature
    draws = row_hash(np.arange(k * MOST_SKETCHED), seed) & np.uint64(1)
    signs = (2.0 * draws.astype(ACC_DTYPE) - 1.0).reshape(k, MOST_SKETCHED)
    total = np.repeat(curvature.mean(axis=1, keepdims=True), MOST_SKETCHED, axis=1)
    return sum(np.multiply.outer(slope[:, j], signs[j]) for j in range(k)) / np.sqrt(k), total


def _in_used_borders(
    borders: list[SingleArray],
    feature: NDArray[np.int32],
    least: NDArray[np.uint8],
    leaf: NDArray[np.int16],
    scale: FloatArray,
    bias: FloatArray,
) -> ObliviousTrees:
    """The term with those borders that its trees ask for."""
    asked = least != NEVER
    used = [np.unique(least[asked & (feature == f)]).astype(INDEX_DTYPE) for f in range(len(borders))]
    bins = least.copy()
    for f, numbers in enumerate(used):
        here = asked & (feature == f)
        bins[here] = 1 + np.searchsorted(numbers, least[here])
    counts = [len(numbers) for numbers in used]
    return ObliviousTrees(
        border_at=np.cumsum([0, *counts]).astype(INDEX_DTYPE),
        border=np.concatenate([edges[numbers - 1] for edges, numbers in zip(borders, used, strict=True)]),
        feature=feature,
        bin=bins,
        leaf=leaf,
        scale=scale,
        bias=bias,
    )
