"""Gradient boosting of oblivious trees (model/oblivious_trees.py): the fit of that term.

Each tree follows the second-order gain Σ G² / (H + ridge) over all of its leaves and both sides of a question
(Chen and Guestrin 2016), where G and H are sums of slopes and curvatures of the loss. Both are rounded to
integers: sums are exact. Classes have the logistic loss, numbers that of the setting `loss`. The
trees of several classes have values of each; where there are many, splits follow random sums of their
gradients (Iosipoi and Vakhrushev 2022). Rows that are held out choose the number of trees.

Rows and columns are drawn by hashes of their places: the same rows give the same trees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.compiler import compiled
from dcpred_tasks.engine.layout import LANES, STRIP_ROWS, aligned_empty
from dcpred_tasks.engine.native_modules import TREES, taken_by
from dcpred_tasks.model.oblivious_trees import NEVER, ObliviousTrees, bins_of, quantised, single
from dcpred_tasks.model.term import Term
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.training.losses import (
    SHARPNESS,
    Huber,
    Logistic,
    Loss,
    loss_from_settings,
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
MOST_COLUMNS, HISTOGRAM_BYTES = 2**10, 2**23  # columns of a tree, and memory of their histograms
WHOLE_BITS = 30
ROBUST_STEPS = 4  # Steps of leaf values by a loss whose curvature is an upper bound.
WORK_AT_ONCE, MOST_AT_ONCE = 2**27, 64  # rows × columns × outputs × trees of a call, and trees
LARGEST = np.finfo(MODEL_DTYPE).max  # Larger values have the bin of this one.
SETTLED_TREES = 10  # trees after which the width of a loss is measured again


class Boosting(NamedTuple):
    """What trees are fitted to. Rows that teach come first, then those that are held out, each padded to
    strips of 64 with rows without a weight.
    """

    n_rows: int
    """With padding."""
    n_learning: int
    """Rows that teach, without padding."""
    n_held: int
    """Rows that are held out, with padding."""
    n_features: int
    n_outputs: int
    depth: int
    most: int
    """Trees, at most."""
    loss: int
    """Loss.native."""
    seed: int
    rate: float
    ridge: float
    bins: NDArray[np.uint8]
    """uint8 (n_rows, n_features)."""
    columns: NDArray[np.uint8]
    """uint8 (n_features, n_rows), the same."""
    n_bins: IntArray
    """int64 (n_features,), of each column."""
    goal: SingleArray
    """float32 (n_outputs, n_rows)."""
    weight: SingleArray
    """float32 (n_rows,)."""
    loss_numbers: FloatArray
    """float64, Loss.numbers; those of Huber for residuals of size 1."""
    of_sums: FloatArray
    """float64 (2,), the factors of random sums of slopes, and of curvatures."""


class BoostingRoom(NamedTuple):
    """The state of a boosting, and the workspace of compiled code."""

    reached: FloatArray
    """float64 (2,), the least loss of rows that are held out, and the size of residuals."""
    f: SingleArray
    """float32 (n_outputs, n_rows), decision values."""
    moved: SingleArray
    """float32 (n_rows,), after a step of leaf values."""
    slope: SingleArray
    """float32 (n_outputs, n_rows)."""
    curvature: SingleArray
    """float32 (n_outputs, n_rows)."""
    signs: NDArray[np.uint8]
    """uint8 (n_outputs, MOST_SKETCHED), those of random sums; (0,) of few outputs."""
    whole: IntArray
    """int64 (n_rows, width), slopes and curvatures that questions follow, in halves of 64 bits."""
    rows: NDArray[np.int32]
    """int32 (n_learning,), the rows that choose the questions, in any order."""
    back: NDArray[np.int32]
    """int32, of the same size."""
    columns: IntArray
    """int64 (n_features,), in any order: a tree may ask for the first ones."""
    cell_at: IntArray
    """int64, where the cells of each of these columns begin."""
    histograms: IntArray
    """int64 (2^(depth − 1), cells of columns, width)."""
    gains: SingleArray
    """float32 (cells of columns, width)."""
    leaf: NDArray[np.uint8]
    """uint8 (n_rows,)."""


class Grown(NamedTuple):
    """The results of a call."""

    counts: IntArray
    """int64 (2,), trees of all calls, and the number with the least loss."""
    leaf: FloatArray
    """float64 (n_trees, n_outputs, 2^depth), those of a call at most."""
    feature: NDArray[np.int32]
    """int32 (n_trees, depth)."""
    bin: NDArray[np.uint8]
    """uint8 (n_trees, depth); NEVER where no question divides more."""


@taken_by(TREES, "boost")
class BoostingArguments(NamedTuple):
    """The arguments of `boost` of native/trees.cpp."""

    boosting: Boosting
    room: BoostingRoom
    grown: Grown


class Trees(NamedTuple):
    """Trees of bins."""

    leaf: FloatArray
    """float64 (n_trees, n_outputs, n_leaves)."""
    feature: NDArray[np.int32]
    """int32 (n_trees, depth)."""
    bin: NDArray[np.uint8]
    """uint8 (n_trees, depth)."""
    bias: FloatArray
    """float64 (n_outputs,)."""


def fit_trees(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    like: Sequence[Term] = (),
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
    columns = np.stack([bins_of(X[:, f], edges) for f, edges in enumerate(borders)])
    leaf, feature, least, bias = _Boosting(columns, goal, weight, loss, settings).run(
        next((len(term.leaf) for term in like if isinstance(term, ObliviousTrees)), None)
    )
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
    """Trees of bins (n_features, n): of goals (n, n_outputs), ±1 of classes or numbers."""

    columns: NDArray[np.uint8]
    goal: FloatArray
    weight: FloatArray
    loss: Loss
    settings: Settings

    @cached_property
    def machine_code(self) -> Any:
        return compiled(machine_code, "grow trees", "or set trees=0, which trains without it")

    def run(self, number: int | None) -> Trees:
        """A number of trees from all rows: by default MORE_TREES times the best one by held-out rows."""
        if number is not None:
            return self._boosted(np.empty(0, INDEX_DTYPE), number)
        share = row_hash(np.arange(len(self.goal)), self.settings.seed + 11).astype(ACC_DTYPE) / 2.0**64
        held, most = np.flatnonzero(share < HELD_SHARE), self.settings.trees
        if len(held) >= FEWEST_HELD:
            most = min(int(MORE_TREES * len(self._boosted(held, most).leaf)), most)
        return self._boosted(held[:0], most)

    def _boosted(self, held: IntArray, most: int) -> Trees:
        """The same without some rows, which choose the number of trees."""
        learns = np.setdiff1d(np.arange(len(self.goal)), held)
        bias = self._constant(learns)
        boosting = boosting_of(self.columns, self.goal, self.weight, self.loss, self.settings, learns, held)
        return boosted(boosting._replace(most=most), bias, self.machine_code.call)

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


def boosting_of(
    columns: NDArray[np.uint8],
    goal: FloatArray,
    weight: FloatArray,
    loss: Loss,
    settings: Settings,
    learns: IntArray,
    held: IntArray,
) -> Boosting:
    """What compiled code is given of bins (n_features, n), goals (n, n_outputs) and weights (n,)."""
    places = [np.append(rows, np.zeros(-len(rows) % STRIP_ROWS, INDEX_DTYPE)) for rows in (learns, held)]
    order = np.concatenate(places).astype(INDEX_DTYPE)
    own_weight = weight[order].astype(MODEL_DTYPE)
    own_weight[len(learns) : len(places[0])] = 0.0
    own_weight[len(places[0]) + len(held) :] = 0.0
    bins, n_outputs = columns[:, order], goal.shape[1]
    numbers = loss.for_size(1.0).numbers() if isinstance(loss, Huber) else loss.numbers()
    steep = SHARPNESS**2 * (4.0 if n_outputs == 1 else 1.0) if isinstance(loss, Logistic) else 2.0
    return Boosting(
        n_rows=len(order),
        n_learning=len(learns),
        n_held=len(places[1]),
        n_features=len(columns),
        n_outputs=n_outputs,
        depth=settings.tree_depth,
        most=settings.trees,
        loss=loss.native,
        seed=settings.seed,
        rate=settings.tree_rate,
        ridge=RIDGE * steep,
        bins=np.ascontiguousarray(bins.T).reshape(-1),
        columns=bins.reshape(-1),
        n_bins=columns.max(axis=1).astype(INDEX_DTYPE) + 1,
        goal=np.ascontiguousarray(goal[order].T, MODEL_DTYPE).reshape(-1),
        weight=own_weight,
        loss_numbers=np.array(numbers, ACC_DTYPE),
        of_sums=np.array([n_outputs**-0.5, 1.0 / n_outputs]),
    )


def boosted(boosting: Boosting, bias: FloatArray, call: Callable[[BoostingArguments], None]) -> Trees:
    """The trees of compiled code, a few at each call: a process that is to end, ends between."""
    width = min(boosting.n_outputs, MOST_SKETCHED)
    width = width if width < 3 else MOST_SKETCHED
    most_cells = HISTOGRAM_BYTES >> (boosting.depth + 2)  # 8 bytes in each of 2^(depth − 1) histograms
    n_columns = min(
        boosting.n_features, MOST_COLUMNS, max(most_cells // (width * int(boosting.n_bins.max())), 1)
    )
    cells = width * LANES * -(-int(np.sort(boosting.n_bins)[-n_columns:].sum()) // LANES)
    n_rows, n_outputs, depth = boosting.n_rows, boosting.n_outputs, boosting.depth
    room = BoostingRoom(
        reached=np.array([np.inf, 1.0]),
        f=np.repeat(bias, n_rows).astype(MODEL_DTYPE),
        moved=np.empty(n_rows, MODEL_DTYPE),
        slope=aligned_empty(n_outputs * n_rows, np.float32),
        curvature=aligned_empty(n_outputs * n_rows, np.float32),
        signs=np.empty(n_outputs * width if n_outputs > width else 0, np.uint8),
        whole=aligned_empty(n_rows * width, np.int64),
        rows=np.empty(boosting.n_learning, np.int32),
        back=np.empty(boosting.n_learning, np.int32),
        columns=np.arange(boosting.n_features, dtype=INDEX_DTYPE),
        cell_at=np.empty(n_columns, INDEX_DTYPE),
        histograms=aligned_empty(cells << (depth - 1), np.int64),
        gains=aligned_empty(cells, np.float32),
        leaf=np.empty(n_rows, np.uint8),
    )
    at_once = int(np.clip(WORK_AT_ONCE // (n_rows * n_columns * width), 1, MOST_AT_ONCE))
    counts, parts = np.zeros(2, INDEX_DTYPE), []
    while counts[0] < boosting.most and counts[0] - counts[1] < PATIENCE:
        before = int(counts[0])
        grown = Grown(
            counts,
            np.empty(at_once * n_outputs << depth),
            np.empty(at_once * depth, np.int32),
            np.empty(at_once * depth, np.uint8),
        )
        call(BoostingArguments(boosting, room, grown))
        parts.append([array[: (counts[0] - before) * len(array) // at_once] for array in grown[1:]])
    leaf, feature, least = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    best = int(counts[1])
    return Trees(
        leaf.reshape(-1, n_outputs, 1 << depth)[:best],
        feature.reshape(-1, depth)[:best],
        least.reshape(-1, depth)[:best],
        bias,
    )


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
