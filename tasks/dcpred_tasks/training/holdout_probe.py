"""Whether rows held out at random are an honest test: nearest neighbours on few rows, held out at random, and
as whole groups or forward in time. Where random rows do clearly better, rows of a group are alike, or the
relation of features and target moves with time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.remarks import Remark, remark

NEIGHBOURS, PROBED_ROWS, FOLDS, SPANS = 5, 2_000, 4, 8
FEWEST_ROWS, FEWEST_GROUPS = 200, 8
LEAST_GAIN = 0.02
EMPTY = 1e-300


@dataclass(frozen=True)
class Probe:
    """Scores of rows (n,) held out at random, and the same held out as whole units."""

    random: FloatArray
    whole: FloatArray
    unit: IntArray
    chance: float

    ordered: bool = False
    """Whether whole units are the latest rows."""

    @property
    def differs(self) -> bool:
        gains = self.random - self.whole
        by_unit = np.array([gains[self.unit == u].mean() for u in np.unique(self.unit)])
        gain, error, room = gains.mean(), np.sqrt(gains.var() / len(gains)), max(1 - self.chance, 0.2)
        if self.ordered:  # Losses grow with the distance in time, and features may move harmlessly.
            return bool(gain > 5 * error and gain > 0.25 * room and np.median(by_unit) > LEAST_GAIN)
        error = max(error, by_unit.std(ddof=1) / np.sqrt(len(by_unit)))
        return bool(gain > 3 * error and gain > max(LEAST_GAIN, 0.05 * room))


def probe_groups(X: FloatArray, y: NDArray[np.generic], key: IntArray, n_classes: int) -> Probe | None:
    """Rows (n, d), class numbers or values, and the numbers of groups (n,); None where they are too few."""
    rng = np.random.default_rng(0)
    if len(y) > PROBED_ROWS:
        order = rng.permutation(key.max() + 1)
        total = np.cumsum(np.bincount(key, minlength=len(order))[order])
        chosen = order[: max(int(np.searchsorted(total, PROBED_ROWS)), FEWEST_GROUPS)]
        keep = np.flatnonzero(np.isin(key, chosen))
        keep = np.sort(rng.choice(keep, min(len(keep), 2 * PROBED_ROWS), replace=False))
        X, y, key = X[keep], y[keep], key[keep]
    _, key = np.unique(key, return_inverse=True)
    n_groups = int(key.max()) + 1
    if len(y) < FEWEST_ROWS or n_groups < FEWEST_GROUPS or n_groups > 0.9 * len(y):
        return None
    whole = rng.permutation(n_groups)[key] % FOLDS
    distances = _distances(X)
    scores = []
    for fold in (rng.integers(0, FOLDS, len(y)), whole):
        near = np.where(fold[:, None] == fold, np.inf, distances)
        scores.append(_scores(_nearest(near), y, y, n_classes))
    random, together = scores
    return Probe(random, together, whole, _chance(y, n_classes))


def probe_times(X: FloatArray, y: NDArray[np.generic], time: FloatArray, n_classes: int) -> Probe | None:
    """The same forward in time: the later half of the rows from the earlier half, and from as many rows of
    any time.
    """
    rng = np.random.default_rng(0)
    keep = rng.choice(len(y), min(len(y), PROBED_ROWS), replace=False)
    X, y, time = X[keep], y[keep], time[keep]
    if len(y) < FEWEST_ROWS or len(np.unique(time)) < SPANS:
        return None
    span = np.argsort(np.argsort(time, kind="stable"), kind="stable") * SPANS // len(y)
    distances = _distances(X)
    early, late = np.flatnonzero(span < SPANS // 2), np.flatnonzero(span >= SPANS // 2)
    anytime, forward = (
        _scores(known[_nearest(distances[np.ix_(late, known)])], y, y[late], n_classes)
        for known in (rng.choice(len(y), len(early), replace=False), early)
    )
    return Probe(anytime, forward, span[late], _chance(y, n_classes), ordered=True)


def holdout_remark(probe: Probe | None, name: str, option: str, n_classes: int) -> Remark | None:
    """A remark where random rows are too easy a test."""
    if probe is None or not probe.differs:
        return None
    unit = "% right" if n_classes else "% of the variance"
    first, second = (f"{100 * part.mean():.3g} {unit}" for part in (probe.random, probe.whole))
    units = f"whole groups of {name!r}" if option == "--by-group" else f"the latest rows by {name!r}"
    what = f"nearest neighbours give {first} of rows held out at random, and {second} of {units}"
    do = f"hold rows out with {option} {name!r}, in split, train and validate"
    return remark("random-holdout", what, do, columns=[name])


def _chance(y: NDArray[np.generic], n_classes: int) -> float:
    return float(np.unique(y, return_counts=True)[1].max() / len(y)) if n_classes else 0.0


def _distances(X: FloatArray) -> FloatArray:
    """Squares of distances (n, n) in units of the spread of each feature, infinite to a row itself."""
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    low, middle, high = np.nanquantile(X, [0.05, 0.5, 0.95], axis=0)
    X = np.where(np.isnan(X), middle, X)
    spread = np.where(high > low, high - low, X.std(axis=0))
    scaled = np.clip((X - low) / np.where(spread > 0, spread, 1), -2, 3).astype(ACC_DTYPE)
    squares = np.einsum("nd,nd->n", scaled, scaled)
    distances = squares[:, None] - 2 * scaled @ scaled.T + squares
    np.fill_diagonal(distances, np.inf)
    return np.asarray(distances)


def _nearest(distances: FloatArray) -> IntArray:
    return np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]


def _scores(near: IntArray, known: NDArray[np.generic], y: NDArray[np.generic], n_classes: int) -> FloatArray:
    """1 for a right label and 0 for a wrong one; of numbers the explained part of the variance."""
    if n_classes:
        votes = np.stack([(known[near] == c).sum(axis=1) for c in range(n_classes)], axis=1)
        return np.asarray(votes.argmax(axis=1) == y, ACC_DTYPE)
    values = known.astype(ACC_DTYPE)
    return np.asarray(1 - (values[near].mean(axis=1) - y.astype(ACC_DTYPE)) ** 2 / max(values.var(), EMPTY))
