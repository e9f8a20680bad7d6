"""Random oblivious trees, and the definition of how they are grown."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.oblivious_trees import NEVER, ObliviousTrees
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.training.losses import Huber, Loss, residual_size
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_boosting import (
    MOST_SKETCHED,
    ROBUST_STEPS,
    ROW_SHARE,
    SETTLED_TREES,
    Trees,
    boosting_of,
)


def random_trees(
    seed: int, n_features: int, n_outputs: int = 1, n_trees: int = 20, depth: int = 6, most_borders: int = 40
) -> ObliviousTrees:
    """Trees of features around 0; some levels ask for nothing."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most_borders + 1, n_features)
    borders = [np.unique(rng.normal(size=n).astype(np.float32)) for n in counts]
    for edges in borders[::3]:
        edges[:1] = -np.inf
    feature = rng.integers(0, n_features, (n_trees, depth)).astype(np.int32)
    sizes = np.array([len(edges) for edges in borders])
    least = (1 + rng.integers(0, 2**30, (n_trees, depth)) % np.maximum(sizes[feature], 1)).astype(np.uint8)
    least[rng.random((n_trees, depth)) < 0.05] = NEVER
    largest = 2.0 ** rng.integers(3, 16, (n_trees, 1, 1))
    leaf = rng.uniform(-largest, largest, (n_trees, n_outputs, 1 << depth)).clip(-32767, 32767)
    return ObliviousTrees(
        border_at=np.cumsum([0, *sizes]).astype(np.int64),
        border=np.concatenate(borders),
        feature=feature,
        bin=least,
        leaf=leaf.astype(np.int16),
        scale=2.0 ** rng.integers(-20, 3, n_outputs),
        bias=rng.normal(size=n_outputs),
    )


def check_boosting(
    columns: NDArray[np.uint8],
    goal: FloatArray,
    weight: FloatArray,
    loss: Loss,
    settings: Settings,
    trees: Trees,
) -> None:
    """Each tree asks one of the best questions about the gradients that those before it leave, and has the
    leaf values of Newton's method, as training/tree_boosting.py says; rows (n, n_outputs) all teach.
    """
    n, n_outputs = goal.shape
    f = np.tile(trees.bias, (n, 1))
    ridge = boosting_of(columns, goal, weight, loss, settings, np.arange(n), np.arange(0)).ridge
    for number, (values, feature, least) in enumerate(zip(*trees[:3], strict=True)):
        if isinstance(loss, Huber) and number % SETTLED_TREES == 0:
            loss = loss.for_size(residual_size(goal - f, weight))
        slope, curvature = (part * weight[:, None] for part in (loss(f, goal)[1], loss.curvature(f, goal)))
        draws = row_hash(np.arange(n), settings.seed + 13 + number).astype(float) / 2.0**64
        rows = np.flatnonzero(draws < ROW_SHARE) if (draws < ROW_SHARE).any() else np.arange(n)
        followed = _followed(slope[rows], curvature[rows], settings.seed + 17 + number)
        _check_questions(columns[:, rows], *followed, feature, least, ridge)
        leaf = (1 << np.arange(len(feature))) @ (columns[feature] >= least[:, None])
        expected = np.zeros(values.shape)
        for step in range(ROBUST_STEPS if isinstance(loss, Huber) else 1):
            if step:
                moved = f + expected[:, leaf].T
                slope, curvature = loss(moved, goal)[1] * weight[:, None], loss.curvature(moved, goal)
                curvature = curvature * weight[:, None]
            g, h = (
                np.array([np.bincount(leaf, part[:, k], values.shape[1]) for k in range(n_outputs)])
                for part in (slope, curvature)
            )
            expected -= g / (h + ridge)
        scale = max(float(np.abs(goal - f).max()), 1.0)
        np.testing.assert_allclose(values, settings.tree_rate * expected, rtol=1e-3, atol=1e-5 * scale)
        f += values[:, leaf].T


def _followed(slope: FloatArray, curvature: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Slopes and curvatures of the outputs that questions follow: all, or random sums of many."""
    k = slope.shape[1]
    if k <= MOST_SKETCHED:
        return slope, curvature
    signs = 2.0 * (row_hash(np.arange(k * MOST_SKETCHED), seed) & np.uint64(1)).astype(float) - 1.0
    total = np.repeat(curvature.mean(axis=1, keepdims=True), MOST_SKETCHED, axis=1)
    return slope @ signs.reshape(k, MOST_SKETCHED) / np.sqrt(k), total


def _check_questions(
    columns: NDArray[np.uint8],
    slope: FloatArray,
    curvature: FloatArray,
    feature: NDArray[np.int32],
    least: NDArray[np.uint8],
    ridge: float,
) -> None:
    """The question of each level gains, but for rounding, as much as any after those above it."""
    leaf = np.zeros(columns.shape[1], np.int64)
    for level, (asked, bin_) in enumerate(zip(feature, least, strict=True)):

        def gain(yes: NDArray[np.bool_], leaf: IntArray = leaf, level: int = level) -> float:
            numbers = leaf | yes.astype(np.int64) << level
            sums = [
                np.array([np.bincount(numbers, column, 2 << level) for column in part.T])
                for part in (slope, curvature)
            ]
            return float((sums[0] ** 2 / (sums[1] + ridge)).sum())

        none, chosen = gain(columns[0] < 0), gain(columns[asked] >= bin_)
        best = max(gain(column >= b) for column in columns for b in range(int(column.max()) + 1))
        assert chosen >= best - 1e-5 * best
        assert chosen > none or bin_ == NEVER
        leaf |= (columns[asked] >= bin_).astype(np.int64) << level
