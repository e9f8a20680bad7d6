"""How sure a model is, measured on rows that were held out.

A leaf that is drawn for it is fitted once more, in the same way, without a quarter of its rows, and judged on
those: the model keeps the leaf that all rows trained. Some thousand such rows are enough, so that of large
data only a few leaves are fitted twice. Of small data all are, and the least even without each of the four
quarters in turn.

From rows that were held out come the probabilities of classes (calibration.py) and intervals of numbers.
Which they are depends on the number of the leaf and on the place of a row in it alone, so that every driver
holds the same rows out; where columns know targets, on the number of the row, by which they leave these out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.compact_model import leaf_values
from dcpred_tasks.model.leaf_arrays import join_leaves
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.sureness import LARGEST_ALPHA, LEAST_ALPHA, Intervals, Novelty, Sureness
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.assembly import assemble
from dcpred_tasks.training.calibration import NO_FACTORS, PRESENT, fit_calibration
from dcpred_tasks.training.folds import FOLDS, HELD_OUT_SHARE
from dcpred_tasks.training.labelled_rows import RARE_SHARE
from dcpred_tasks.training.leaf import Kernels, LeafModel, fit_leaf
from dcpred_tasks.training.machine_settings import DISTANCE
from dcpred_tasks.training.nearness import own_place
from dcpred_tasks.training.prior import LOCAL_ROWS, Prior
from dcpred_tasks.training.sampling import row_hash
from dcpred_tasks.training.settings import Settings

FEWEST_ROWS = 40  # training rows below which none is held out
# Rows that are held out at least, if leaves have so many; and below which they are in more than one fold.
WANTED_ROWS, FEW_ROWS = 5_000, 500
MOST_NUMBERS = 2**21  # decision values of rows that were held out, of many classes
# Rows of mean residual that each leaf has beside its own: the least interval that few rows can make.
PRIOR_ROWS = 20.0
ALPHAS = np.round(np.arange(round(LARGEST_ALPHA * 1_000), round(LEAST_ALPHA * 1_000) - 1, -1) / 1_000, 3)


@dataclass(frozen=True)
class HeldOut:
    """Rows of a leaf that were held out, fold by fold.

    decision  float64 (n, n_outputs), by the leaf that was fitted without them
    target    float64 (n,), class numbers or values
    weight    float64 (n,), > 0
    residual  float64 (n,), of a regression the size of a residual of the rows which trained that leaf
    rows      float64 (n,), how many these are
    """

    decision: FloatArray
    target: FloatArray
    weight: FloatArray
    residual: FloatArray
    rows: FloatArray

    @staticmethod
    def none(n_outputs: int) -> "HeldOut":
        return HeldOut(np.empty((0, n_outputs)), *(np.empty(0) for _ in range(4)))


@dataclass(frozen=True)
class Recoded:
    """Rows whose columns know the targets of others (target_means.py).

    fold  int64 (n,), the fold that each is in
    X     gives the scaled columns (n, n_columns) that know nothing of the targets of a fold
    """

    fold: IntArray
    X: Callable[[int], SingleArray]


@dataclass(frozen=True)
class LeafRowsToFit:
    """What fit_leaf takes, row by row: rows of the leaf first, then those of its halo."""

    X: SingleArray
    target: NDArray[np.generic]
    weight: FloatArray
    halo: NDArray[np.bool_]
    recoded: Recoded | None = None

    def take(self, index: NDArray[np.generic]) -> "LeafRowsToFit":
        return LeafRowsToFit(self.X[index], self.target[index], self.weight[index], self.halo[index])

    def without(self, fold: int) -> "LeafRowsToFit":
        """These rows as they are where a fold is held out."""
        return self if self.recoded is None else replace(self, X=self.recoded.X(fold))


def folds_of_leaves(leaf_rows: IntArray, n_outputs: int, settings: Settings, totals: FloatArray) -> IntArray:
    """How many quarters of its rows are held out of each leaf in turn, int64 (n_leaves,): none of most leaves
    of large data.

    leaf_rows  int64 (n_leaves,), rows that came to each
    totals     float64 (n_classes,), weights of all training rows of each class; (0,) for a regression
    """
    folds = np.zeros(len(leaf_rows), np.int64)
    trained = np.minimum(leaf_rows, settings.max_leaf_rows)
    if not settings.calibrate or trained.sum() < FEWEST_ROWS:
        return folds
    # Of rare classes as many more, since their rows are what probabilities are learned from.
    rare = 1.0 - totals.max(initial=0.0) / max(totals.sum(), 1e-300)
    counts = min(rare / (1.0 - RARE_SHARE), 1.0) * HELD_OUT_SHARE
    share = counts * trained.sum()
    n_folds = int(np.clip(np.ceil(FEW_ROWS / max(share, 1.0)), 1, FOLDS))
    wanted = min(WANTED_ROWS, max(MOST_NUMBERS // n_outputs, 1))
    order = np.argsort(row_hash(np.arange(len(leaf_rows)), settings.seed + 4), kind="stable")
    before = np.cumsum(trained[order]) - trained[order]
    folds[order[counts * n_folds * before < wanted]] = n_folds
    return folds


def fit_and_judge(
    rows: LeafRowsToFit,
    n_outputs: int,
    kernels: Kernels,
    settings: Settings,
    leaf: int,
    folds: int,
    prior: Prior | None = None,
) -> tuple[LeafModel, HeldOut]:
    """A leaf fitted to all rows, with what Novelty and Intervals need of them; and rows that were held out of
    further fits, in so many folds.
    """
    fitted = _fit(rows, n_outputs, kernels, settings, leaf, prior)
    if not settings.calibrate:
        return fitted, HeldOut.none(n_outputs)
    own = rows.take(np.flatnonzero(~rows.halo))
    residual = np.array([_residual(fitted, own, kernels, settings)])
    place = own_place(own.X)
    fitted = replace(
        fitted, own_point=place.point, own_factor=place.factor, own_edge=place.edge, own_residual=residual
    )
    part = row_hash(np.arange(len(own.X)) + (leaf + 1) * 2**32, settings.seed + 5).astype(ACC_DTYPE) / 2.0**64
    fold = np.full(len(rows.X), FOLDS)
    fold[: len(own.X)] = np.minimum((part * FOLDS).astype(np.int64), FOLDS - 1)
    if rows.recoded is not None:
        fold[: len(own.X)] = rows.recoded.fold[: len(own.X)]
    judged = [
        _judged(rows.without(number), fold == number, n_outputs, kernels, settings, leaf, prior)
        for number in range(folds)
    ]
    return fitted, joined([HeldOut.none(n_outputs), *judged])


def _fit(
    rows: LeafRowsToFit,
    n_outputs: int,
    kernels: Kernels,
    settings: Settings,
    leaf: int,
    prior: Prior | None,
) -> LeafModel:
    if prior is not None:
        number, target, weight = prior.rows(rows.X, rows.target, rows.weight, kernels)
        rows = replace(rows.take(number), target=target, weight=weight)
        # An SVM of rows that count as both classes takes long, and landmarks only begin from it.
        if not (settings.keep_support_vectors or settings.loss == DISTANCE):
            settings = replace(settings, local_rows=min(settings.local_rows, LOCAL_ROWS))
    return fit_leaf(rows.X, rows.target, rows.weight, n_outputs, kernels, settings, leaf, rows.halo)


def _judged(
    rows: LeafRowsToFit,
    held: NDArray[np.bool_],
    n_outputs: int,
    kernels: Kernels,
    settings: Settings,
    leaf: int,
    prior: Prior | None,
) -> HeldOut:
    rest, out = rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))
    own = rest.take(np.flatnonzero(~rest.halo))
    if not len(out.X) or not len(own.X):
        return HeldOut.none(n_outputs)
    other = _fit(rest, n_outputs, kernels, settings, leaf, prior)
    decision = _values(other, out.X, kernels, settings)
    residual = _residual(other, own, kernels, settings)
    n = len(out.X)
    return HeldOut(
        decision,
        out.target.astype(ACC_DTYPE),
        out.weight,
        np.full(n, residual),
        np.full(n, float(len(own.X))),
    )


def _values(leaf: LeafModel, X: SingleArray, kernels: Kernels, settings: Settings) -> FloatArray:
    """Decision values (n, n_outputs) of scaled rows in one leaf."""
    d = X.shape[1]
    alone = Tree(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros((0, d), np.float32))
    scaling = Scaling(np.zeros(d), np.ones(d))
    model = assemble([leaf], np.array([len(X)]), alone, scaling, kernels, (), settings)
    # In single precision a machine leaves out rows that rounding would decide.
    rows = X if model.machines is None else X.astype(ACC_DTYPE)
    return np.array(leaf_values(model, 0, rows), ACC_DTYPE)


def _residual(leaf: LeafModel, own: LeafRowsToFit, kernels: Kernels, settings: Settings) -> float:
    """The root of the mean squared residual of a leaf's own rows, weighted; 0 for classes."""
    if settings.task != "regression":
        return 0.0
    off = np.abs(own.target.astype(ACC_DTYPE) - _values(leaf, own.X, kernels, settings)[:, 0])
    largest = float(off.max())
    if largest == 0:
        return 0.0
    return largest * float(np.sqrt(np.average((off / largest) ** 2, weights=own.weight)))


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Rows that were held out of several leaves, in their order."""
    names = HeldOut.__dataclass_fields__
    return HeldOut(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def measured(
    leaves: Sequence[LeafModel],
    leaf_rows: IntArray,
    held: HeldOut,
    n_classes: int,
    settings: Settings,
    totals: FloatArray,
    factors: FloatArray,
) -> tuple[Sequence[LeafModel], Sureness | None]:
    """Leaves, and what a model knows of how sure it is, from them and the rows that were held out of some of
    them; None where settings ask for nothing. Intercepts are moved so that the label is the likeliest class.

    leaf_rows  int64 (n_leaves,), training rows of each leaf
    totals     float64 (n_classes,), weights of all training rows of each class, without class weights
    factors    float64 (n_classes,), class weights, by which the weights of rows were multiplied; or (0,)
    """
    if not settings.calibrate:
        return leaves, None
    novelty = Novelty(**join_leaves(Novelty, leaves))
    if settings.task == "regression":
        residual = np.concatenate([leaf.own_residual for leaf in leaves])
        rows = np.minimum(leaf_rows, settings.max_leaf_rows).astype(ACC_DTYPE)
        return leaves, Sureness(novelty, intervals=fit_intervals(residual, rows, held))
    of_intercepts = not settings.other_machine  # Other machines add none.
    target, weight = held.target.astype(np.int64), held.weight
    if (factors == factors[:1]).all():
        factors = NO_FACTORS
    weight = weight / factors[target] if len(factors) else weight
    weight = at_rates(weight, target, totals)
    given = held.decision, target, weight, n_classes, factors
    calibration, offset = fit_calibration(*given, moves=of_intercepts)
    return [_moved(leaf, offset) for leaf in leaves], Sureness(novelty, calibration=calibration)


def at_rates(weight: FloatArray, target: IntArray, totals: FloatArray) -> FloatArray:
    """Weights of rows that were held out, by which rare classes have the share that they have of all rows: of
    100 rows of a class that are held out where 120 would be, all probabilities are a sixth too small.
    """
    if totals.max() < RARE_SHARE * totals.sum():
        return weight
    held = np.bincount(target, weight, len(totals))
    ratio = (totals / totals.sum()) / np.where(held > 0, held / max(held.sum(), 1e-300), 1.0)
    return np.asarray(weight * ratio[target])


def _moved(leaf: LeafModel, offset: FloatArray) -> LeafModel:
    """A leaf with decision values that are less by an offset; a class that it has no row of stays absent."""
    moved = np.where(leaf.intercept > PRESENT, leaf.intercept - offset, leaf.intercept)
    return replace(leaf, intercept=moved.astype(leaf.intercept.dtype))


def fit_intervals(residual: FloatArray, rows: FloatArray, held: HeldOut) -> Intervals:
    """Intervals by rows that were held out; a row of twice the mean weight counts as two.

    residual  float64 (n_leaves,), size of the residuals of the rows that trained each leaf
    rows      float64 (n_leaves,), how many these are
    """
    largest = float(residual.max())
    common = np.sqrt(np.average((residual / (largest or 1.0)) ** 2, weights=rows)) if largest else 1.0

    def spread(of: FloatArray, n: FloatArray) -> FloatArray:
        """Sizes of residuals of n rows, drawn to the common one."""
        scale = largest or 1.0
        square = (n * (of / scale) ** 2 + PRIOR_ROWS * common**2) / (n + PRIOR_ROWS)
        return np.asarray(scale * np.sqrt(square))

    score = np.abs(held.target - held.decision[:, 0]) / spread(held.residual, held.rows)
    order = np.argsort(score, kind="stable")
    if not len(score):
        return Intervals(spread(residual, rows), np.empty(0), np.empty(0))
    share = np.cumsum(held.weight[order]) / held.weight.mean() / (len(score) + 1)
    at = np.searchsorted(share, (1.0 - ALPHAS) * (1 - 1e-12))
    possible = at < len(score)
    return Intervals(spread(residual, rows), ALPHAS[possible], score[order][at[possible]])
