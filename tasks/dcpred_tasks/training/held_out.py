"""What held-out rows teach a model: probabilities, interval widths, novelty."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.compact_model import Model, class_numbers, leaf_values
from dcpred_tasks.model.label_rule import HALF, chosen_threshold, weights_of
from dcpred_tasks.model.leaf_arrays import KEPT_ROWS, join_leaves
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform, fitted_transform
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.model.uncertainty import (
    DEFAULT_ALPHA,
    FEWEST_ROWS,
    LARGEST_ALPHA,
    LEAST_ALPHA,
    LEVELS,
    SHARES,
    Intervals,
    Novelty,
    Scale,
    Uncertainty,
)
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.training.calibration import NEAR_OFFSET, NEAR_RATE, NO_FACTORS, PRESENT, fit_calibration
from dcpred_tasks.training.fitted_to_targets import FittedToTargets, Known
from dcpred_tasks.training.folds import FOLDS, Folds
from dcpred_tasks.training.leaf import FittedLeaf, Kernels, fit_leaf
from dcpred_tasks.training.losses import DISTANCE, Huber, loss_from_settings, weighted_quantile
from dcpred_tasks.training.partition import assemble
from dcpred_tasks.training.prior import LOCAL_ROWS
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import RARE_SHARE, rare_classes

PRIOR_NEIGHBOURS = 3.0  # rows by which the variance of a feature is drawn to the mean of all features
LEAST_VARIANCE = 1e-3  # least mean variance of the other rows, as a share of that of all
# r times the result of `_scale` is 1 for a typical row. In single precision (1 + r) exp(−r) distinguishes
# distances up to about 18.
FARTHEST, MOST_TYPICAL = 14.0, 200.0
LIMITS = 1e-25, 1e25  # range of factors, which single precision holds
STRIP_ROWS = 2**12


def nearness_of(r: FloatArray) -> FloatArray:
    """(1 + r) exp(−r)."""
    return np.asarray((1.0 + r) * np.exp(-r))


@dataclass(frozen=True)
class Place:
    """Where the rows of one leaf lie: what Novelty has of it."""

    point: SingleArray
    factor: SingleArray
    edge: SingleArray


def own_place(X: SingleArray) -> Place:
    """X  float32 (n, n_features), the rows of the leaf, scaled; n ≥ 1"""
    n = len(X)
    mean = X.mean(axis=0, dtype=ACC_DTYPE)
    squares = np.zeros(X.shape[1])
    for start in range(0, n, STRIP_ROWS):
        squares += ((X[start : start + STRIP_ROWS] - mean) ** 2).sum(axis=0)
    r = _others_distance(X, mean, squares)
    scale = _scale(r)
    variance = _variance(squares, float(n), squares.mean() / n)
    factor = np.clip(scale / np.sqrt(variance), *LIMITS).astype(MODEL_DTYPE)
    near = np.sort(nearness_of(scale * r))[::-1]
    edge = np.interp(LEVELS, np.arange(1, n + 1) / (n + 1), near)
    return Place((mean * factor).astype(MODEL_DTYPE), factor, edge.astype(MODEL_DTYPE))


def _variance(squares: FloatArray, n: float, prior: FloatArray | float) -> FloatArray:
    """Variances of features from sums of squares of n rows, drawn to `prior`; 1 where no feature varies."""
    variance = (squares + PRIOR_NEIGHBOURS * np.asarray(prior)) / (n + PRIOR_NEIGHBOURS)
    return np.where(variance > 0, variance, 1.0)


def _others_distance(X: SingleArray, mean: FloatArray, squares: FloatArray) -> FloatArray:
    """The distance r of each row from the others, (n,)."""
    n = len(X)
    out = np.zeros(n)
    if n == 1:
        return out
    least = LEAST_VARIANCE * squares.mean() / n
    for start in range(0, n, STRIP_ROWS):
        gap = X[start : start + STRIP_ROWS] - mean
        gap *= gap
        # Of the other rows: the mean is mean + (mean − x) / (n − 1), and sums of squares exclude this row.
        others = np.maximum(squares - gap * (n / (n - 1)), 0.0)
        prior = np.maximum(others.mean(axis=1, keepdims=True) / (n - 1), least)
        gap /= _variance(others, n - 1.0, prior)
        out[start : start + len(gap)] = np.sqrt(gap.sum(axis=1)) * (n / (n - 1))
    return out


def _scale(r: FloatArray) -> float:
    """The factor of distances: 1 / the median, unless some rows are much farther."""
    typical, largest = float(np.median(r)), float(r.max())
    if largest == 0:
        return 1.0
    if largest <= FARTHEST * typical:
        return 1.0 / typical
    return FARTHEST / (min(largest, MOST_TYPICAL * typical) or largest)


STEPS = 4  # steps of Fisher scoring
MOST_LEVERAGE = 0.7
FLEXIBILITY = 1.4  # A degree of freedom counts as so many: cross-validation alone takes too many.
MOST_FREEDOM = 0.9  # degrees of freedom, as a share of the rows
MOST_RESPONSE = 5.0  # A residual of more than so many σ counts as one of so many.
PENALTIES: FloatArray = np.logspace(-6, 3, 28)
ENDS = (0.01, 0.99)  # log σ stays between these quantiles of the leaf's rows.
LEAST_QUANTILE = 0.02  # quantile of |r| below which its log is not taken for the first step
SMALLEST = 1e-3  # size of a residual below which its log is not taken, in sizes of all


@dataclass(frozen=True)
class LeafScale:
    """log σ(x) − s of one leaf.

    beta       float32 (n_functions, 1)
    intercept  float64 (1,), b
    bounds     float64 (2,), the least and the largest value
    """

    beta: SingleArray
    intercept: FloatArray
    bounds: FloatArray

    def __call__(self, basis: FloatArray) -> FloatArray:
        """Of rows with functions (n, n_functions): float64 (n,)."""
        value = (basis @ self.beta.astype(ACC_DTYPE))[:, 0] + self.intercept[0]
        return np.asarray(np.clip(value, *self.bounds))


def constant_scale(n_functions: int) -> LeafScale:
    """σ(x) is the same for every row."""
    return LeafScale(np.zeros((n_functions, 1), MODEL_DTYPE), np.zeros(1), np.zeros(2))


def fit_scale(basis: FloatArray, residual: FloatArray, weight: FloatArray) -> LeafScale:
    """σ(x) of a leaf from the rows that trained it.

    basis     float64 (n, n_functions), c̄ of each
    residual  float64 (n,), |r| over the size of all, whose mean square is 1; or zeros
    weight    float64 (n,), > 0
    """
    if not basis.shape[1] or len(basis) < 3 or not residual.any():
        return constant_scale(basis.shape[1])
    root = np.sqrt(weight / weight.mean())
    mean = np.average(basis, axis=0, weights=weight)
    U, size, V = np.linalg.svd((basis - mean) * root[:, None], full_matrices=False)
    significant = size > size[0] * 1e-3 if size[0] > 0 else np.zeros(len(size), bool)
    leverage = np.minimum((U[:, significant] ** 2).sum(axis=1), MOST_LEVERAGE)
    r = residual / (1 - leverage)
    response = np.log(np.maximum(r, max(weighted_quantile(r, weight, LEAST_QUANTILE), SMALLEST)))
    for step in range(STEPS + 1):
        level = float(np.average(response, weights=weight))
        part = U.T @ ((response - level) * root)
        shrunk = _shrunk(part, size, float((weight / weight.mean()) @ (response - level) ** 2), len(r))
        log_size = level + (U @ shrunk) / root
        if step < STEPS:
            response = log_size + np.minimum(r * np.exp(-log_size), MOST_RESPONSE) - 1
    beta = V.T @ np.divide(shrunk, size, out=np.zeros_like(size), where=size > 0)
    single = beta[:, None].astype(MODEL_DTYPE)
    bounds = np.array([weighted_quantile(log_size, weight, end) for end in ENDS])
    return LeafScale(single, np.array([level - mean @ single[:, 0].astype(ACC_DTYPE)]), bounds)


def _shrunk(part: FloatArray, size: FloatArray, total: float, n: int) -> FloatArray:
    """Coordinates of the fitted response along singular vectors, by the best penalty; zeros where none beats
    the mean.

    part   the response along them
    total  its squared length
    """
    keep = size**2 / (size**2 + PENALTIES[:, None] * n)
    freedom = 1 + FLEXIBILITY * keep.sum(axis=1)
    left = total - part @ part + (((1 - keep) * part) ** 2).sum(axis=1)
    score = np.where(freedom < MOST_FREEDOM * n, left / (n - freedom) ** 2, np.inf)
    best = int(score.argmin())
    return keep[best] * part if score[best] < total / (n - 1) ** 2 else np.zeros_like(part)


def is_narrower(
    residual: FloatArray, sizes: FloatArray, others: FloatArray, weight: FloatArray, alpha: float
) -> bool:
    """Whether intervals of rows that were held out have a lower Winkler score with one σ than with another,
    by more than its standard error.

    residual  float64 (n,), |r|
    sizes     float64 (n,), half widths by the one, and `others` by the other
    """
    largest = float(residual.max()) or 1.0
    score, other = ((half + np.maximum(residual - half, 0.0) / alpha) / largest for half in (sizes, others))
    gain = other - score
    mean = float(np.average(gain, weights=weight))
    error = np.sqrt(weight**2 @ (gain - mean) ** 2) / weight.sum()
    return bool(mean > error)


KERNEL_SHARES, SURE_ERRORS = (0.5, 0.0), 2.0
# Rows that are held out at least, if leaves have so many; and below which they are in more than one fold.
WANTED_ROWS, FEW_ROWS = 5_000, 500
LEAST_OF_SEVERAL = 0.01  # share of all rows that the rarest of several classes counts as at least
LEAST_BEYOND = 5  # rows held out that have to lie beyond a quantile for its level to be measured
MOST_NUMBERS = 2**21  # decision values of held-out rows, with many classes
# Extra rows of mean residual of each leaf, which bound the interval of few rows.
PRIOR_ROWS = 20.0
# Powers of the scale that are tried: half of it where most residuals are nearly zero and a few are large.
POWERS = (1.0, 0.5)
ALPHAS = np.round(np.arange(round(LARGEST_ALPHA * 1_000), round(LEAST_ALPHA * 1_000) - 1, -1) / 1_000, 3)


@dataclass(frozen=True)
class HeldOut:
    """Rows of a leaf that were held out, fold by fold.

    decision  float64 (n, n_outputs), by the leaf that was fitted without them
    target    float64 (n,), class numbers or values
    weight    float64 (n,), > 0
    residual  float64 (n,), of a regression the size of a residual of the rows which trained that leaf
    rows      float64 (n,), how many these are
    log_scale float64 (n,), log of σ over that size, by that leaf
    part      float64 (n,), part of each row: rows that vary together are in one (folds.py)
    offset    float64 (n, n_outputs), what `decision` has of terms beside leaves
    """

    decision: FloatArray
    target: FloatArray
    weight: FloatArray
    residual: FloatArray
    rows: FloatArray
    log_scale: FloatArray
    part: FloatArray
    offset: FloatArray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.offset.shape != self.decision.shape:
            object.__setattr__(self, "offset", np.zeros_like(self.decision))

    @staticmethod
    def none(n_outputs: int) -> "HeldOut":
        return HeldOut(np.empty((0, n_outputs)), *(np.empty(0) for _ in range(6)))

    def take(self, index: NDArray[np.generic]) -> "HeldOut":
        return HeldOut(**{name: value[index] for name, value in vars(self).items()})


@dataclass(frozen=True)
class LeafRowsToFit:
    """The arguments of fit_leaf, row by row: rows of the leaf first, then its overlap rows.

    X       (n, n_features) stored rows, or scaled columns
    number  int64 (n,), row numbers
    offset  float64 (n, n_outputs), the sum of terms beside leaves; None of stored rows, and without terms
    """

    X: NDArray[Any]
    number: IntArray
    target: NDArray[np.generic]
    weight: FloatArray
    borrowed: NDArray[np.bool_]
    offset: FloatArray | None = None

    def take(self, index: NDArray[np.generic]) -> "LeafRowsToFit":
        taken = {name: value[index] for name, value in vars(self).items() if value is not None}
        return LeafRowsToFit(**taken)

    def scaled(self, fitted: FittedToTargets, n_outputs: int, fold: int | None = None) -> "LeafRowsToFit":
        """Stored rows as columns, with the sums of terms, that know no target of a fold."""
        X, offset = fitted.columns_and_offset(self.X, self.number, n_outputs, fold)
        return replace(self, X=X, offset=offset)


def folds_of_leaves(
    leaf_rows: IntArray, n_outputs: int, settings: Settings, totals: FloatArray, count: int = FOLDS
) -> IntArray:
    """How many folds of its rows are held out of each leaf in turn, int64 (n_leaves,): none of most leaves of
    large data.

    leaf_rows  int64 (n_leaves,), rows that came to each
    totals     float64 (n_classes,), weights of all training rows of each class; (0,) for a regression
    count      folds of a leaf
    """
    folds = np.zeros(len(leaf_rows), np.int64)
    trained = np.minimum(leaf_rows, settings.max_leaf_rows)
    if not settings.calibrate or trained.sum() < FEWEST_ROWS:
        return folds
    # As many more for rare classes, whose rows determine probabilities.
    # The rarest of several counts as if it had 1 %: a class of few rows would else refit all leaves.
    share, least = totals / max(totals.sum(), 1e-300), LEAST_OF_SEVERAL if len(totals) > 2 else 0.0
    rare = min([1.0 - share.max(initial=0.0), *np.maximum(share[rare_classes(totals)], least)])
    counts = min(rare / (1.0 - RARE_SHARE), 1.0) / count
    n_folds = int(np.clip(np.ceil(FEW_ROWS / max(counts * trained.sum(), 1.0)), 1, count))
    wanted = min(WANTED_ROWS, max(MOST_NUMBERS // n_outputs, 1))
    order = np.argsort(row_hash(np.arange(len(leaf_rows)), settings.seed + 4), kind="stable")
    before = np.cumsum(trained[order]) - trained[order]
    folds[order[counts * n_folds * before < wanted]] = n_folds
    return folds


def fit_and_judge(
    stored: LeafRowsToFit,
    n_outputs: int,
    fitted: FittedToTargets,
    settings: Settings,
    leaf: int,
    times: int,
) -> tuple[FittedLeaf, HeldOut]:
    """A leaf fitted to all rows, with what Novelty, Intervals and Background need; and the rows of the first
    folds, so many, by leaves fitted without them.
    """
    rows, kernels = stored.scaled(fitted, n_outputs), fitted.every.kernels
    fitted_leaf = _fit(rows, n_outputs, fitted.every, settings, leaf)
    if not settings.calibrate:
        return fitted_leaf, HeldOut.none(n_outputs)
    own_rows = rows.take(np.flatnonzero(~rows.borrowed))
    residual, scale = 0.0, constant_scale(0)
    if settings.task == "regression":
        residual, scale = _residuals(_alone(fitted_leaf, own_rows.X, kernels, settings), own_rows)
    place = own_place(own_rows.X)
    fitted_leaf = replace(
        fitted_leaf,
        own_point=place.point,
        own_factor=place.factor,
        own_edge=place.edge,
        own_residual=np.array([residual]),
        scale_beta=scale.beta,
        scale_intercept=scale.intercept,
        scale_bounds=scale.bounds,
    )
    drawn = np.argsort(row_hash(np.arange(len(own_rows.X)), settings.seed + leaf + 6), kind="stable")
    fitted_leaf = replace(fitted_leaf, own_rows=own_rows.X[drawn[:KEPT_ROWS]])
    judged = [_judged(stored, n_outputs, fitted, settings, leaf, fold) for fold in range(times)]
    return fitted_leaf, joined([HeldOut.none(n_outputs), *judged])


def _fit(rows: LeafRowsToFit, n_outputs: int, known: Known, settings: Settings, leaf: int) -> FittedLeaf:
    if known.prior is not None:
        number, target, weight = known.prior.rows(rows.X, rows.target, rows.weight, known.kernels)
        rows = replace(rows.take(number), target=target, weight=weight)
        # Landmarks only begin from these rows, and an SVM of rows that count as both classes takes long.
        if not (settings.keep_support_vectors or settings.loss == DISTANCE):
            settings = replace(settings, local_rows=min(settings.local_rows, LOCAL_ROWS))
    given = rows.X, rows.target, rows.weight, n_outputs, known.kernels, settings, leaf
    return fit_leaf(*given, rows.borrowed, rows.offset)


def _judged(
    stored: LeafRowsToFit,
    n_outputs: int,
    fitted: FittedToTargets,
    settings: Settings,
    leaf: int,
    fold: int,
) -> HeldOut:
    """The rows of a fold, by a leaf that knows no target of it."""
    rows, known, folds = stored.scaled(fitted, n_outputs, fold), fitted.without(fold), fitted.folds
    held = folds.of(stored.number) == fold
    rest, out = rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held & ~rows.borrowed))
    own_rows = rest.take(np.flatnonzero(~rest.borrowed))
    if not len(out.X) or not len(own_rows.X):
        return HeldOut.none(n_outputs)
    other = _alone(_fit(rest, n_outputs, known, settings, leaf), rest.X, known.kernels, settings)
    residuals = _residuals(other, own_rows) if settings.task == "regression" else (0.0, constant_scale(0))
    return _seen(other, *residuals, len(own_rows.X), out, folds, settings)


def judge_leaf(
    leaf: FittedLeaf, n_rows: int, out: LeafRowsToFit, kernels: Kernels, folds: Folds, settings: Settings
) -> HeldOut:
    """Scaled rows that came to a leaf which other rows trained, so many, and that `fit_and_judge` gave."""
    scale = LeafScale(leaf.scale_beta, leaf.scale_intercept, leaf.scale_bounds)
    residual = float(leaf.own_residual[0])
    return _seen(_alone(leaf, out.X, kernels, settings), residual, scale, n_rows, out, folds, settings)


def _seen(
    other: Model,
    residual: float,
    scale: LeafScale,
    n_rows: int,
    out: LeafRowsToFit,
    folds: Folds,
    settings: Settings,
) -> HeldOut:
    """Held-out rows by a leaf that so many other rows trained."""
    n = len(out.X)
    return HeldOut(
        _values(other, out),
        out.target.astype(ACC_DTYPE),
        out.weight,
        np.full(n, residual),
        np.full(n, float(n_rows)),
        scale(_functions(other, out.X)) if settings.task == "regression" else np.zeros(n),
        folds.parts(out.number).astype(ACC_DTYPE),
        np.empty(0) if out.offset is None else out.offset,
    )


def _alone(leaf: FittedLeaf, X: SingleArray, kernels: Kernels, settings: Settings) -> Model:
    """A leaf as a model of its own, of scaled rows."""
    d = X.shape[1]
    alone = Tree.single(d)
    scaling = Scaling(np.zeros(d), np.ones(d))
    return assemble([leaf], np.array([len(X)]), alone, scaling, kernels, (), settings)


def _values(model: Model, rows: LeafRowsToFit) -> FloatArray:
    """Decision values (n, n_outputs) of scaled rows in one leaf, with the terms beside it."""
    # In single precision a baseline omits rows that rounding would decide.
    X = rows.X if model.leaf_models is None else rows.X.astype(ACC_DTYPE)
    return np.array(leaf_values(model, 0, X, rows.offset), ACC_DTYPE)


def _functions(model: Model, X: SingleArray) -> FloatArray:
    """The functions that one leaf is linear in, (n, n_functions); empty for a constant or a baseline."""
    return model.basis(0)(X) if len(model.beta) else np.empty((len(X), 0))


def _residuals(model: Model, rows: LeafRowsToFit) -> tuple[float, LeafScale]:
    """The root of the weighted mean squared residual of a leaf of numbers, and how residuals spread."""
    off = np.abs(rows.target.astype(ACC_DTYPE) - _values(model, rows)[:, 0])
    largest = float(off.max())
    if largest == 0:
        return 0.0, constant_scale(len(model.beta))
    size = float(np.sqrt(np.average((off / largest) ** 2, weights=rows.weight)))
    return largest * size, fit_scale(_functions(model, rows.X), off / largest / size, rows.weight)


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Rows that were held out of several leaves, in their order."""
    names = HeldOut.__dataclass_fields__
    return HeldOut(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def measured(
    leaves: Sequence[FittedLeaf],
    leaf_rows: IntArray,
    held: HeldOut,
    judged: IntArray | None,
    n_classes: int,
    settings: Settings,
    totals: FloatArray,
    factors: FloatArray,
) -> tuple[Sequence[FittedLeaf], Uncertainty | None]:
    """Leaves, and the uncertainty of a model, from them and their held-out rows; None where settings request
    none. Intercepts are moved: the label is then the likeliest class.

    leaf_rows  int64 (n_leaves,), training rows of each leaf
    judged     int64 (n_leaves,), held-out rows of each leaf, in order; None where whole models hold them out
    totals     float64 (n_classes,), weights of all training rows of each class, without class weights
    factors    float64 (n_classes,), class weights, by which the weights of rows were multiplied; or (0,)
    """
    if not settings.calibrate:
        return leaves, None
    leaves, held = shared(leaves, held, settings)
    novelty = Novelty(**join_leaves(Novelty, leaves))
    if settings.task == "regression":
        leaves = as_held_out(leaves, leaf_rows, held, judged)
        leaves, held = at_level(leaves, held, loss_from_settings(settings).level)
        residual = np.concatenate([leaf.own_residual for leaf in leaves])
        rows = np.minimum(leaf_rows, settings.max_leaf_rows).astype(ACC_DTYPE)
        intervals, power = fit_intervals(residual, rows, held)
        scale = None
        if power:
            scale = Scale(**join_leaves(Scale, leaves))
            scaled = {name: getattr(scale, name) * power for name in ("beta", "intercept", "bounds")}
            scale = replace(scale, **scaled | {"beta": scaled["beta"].astype(MODEL_DTYPE)})
        return leaves, Uncertainty(novelty, intervals=intervals, scale=scale)
    of_intercepts = settings.leaf_model == COMPACT  # Other leaf models have intercepts of their own.
    target, weight = held.target.astype(np.int64), held.weight
    if (factors == factors[:1]).all():
        factors = NO_FACTORS
    weight = weight / factors[target] if len(factors) else weight
    weight = at_rates(weight, target, totals)
    given = held.decision, target, weight, n_classes, factors
    few = n_classes > 2 and len(rare_classes(totals)) > 0
    near = NEAR_RATE if few else NEAR_OFFSET
    calibration, offset = fit_calibration(*given, moves=of_intercepts, near_offset=near)
    if settings.threshold != HALF:
        p = cross_calibrated(*given, held.part, near)
        factors = weights_of(chosen_threshold(settings.threshold, p, target, weight))
        calibration, offset = fit_calibration(held.decision, target, weight, n_classes, factors)
    return [_moved(leaf, offset) for leaf in leaves], Uncertainty(novelty, calibration=calibration)


def cross_calibrated(
    decision: FloatArray,
    target: IntArray,
    weight: FloatArray,
    n_classes: int,
    factors: FloatArray,
    part: FloatArray,
    near_offset: float,
) -> FloatArray:
    """Probabilities of the second class, (n,), of held-out rows, by calibrations of the other parts.

    part  float64 (n,), the part of each row; the other arguments are those of `fit_calibration`
    """
    p = np.empty(len(target))
    for fold in np.unique(part):
        out, rest = np.flatnonzero(part == fold), np.flatnonzero(part != fold)
        given = decision[rest], target[rest], weight[rest], n_classes, factors
        calibration, offset = fit_calibration(*given, near_offset=near_offset)
        scores = calibration.scores(decision[out] - offset)
        p[out] = calibration.at_own_rates(calibration.free(scores))[:, 1]
    return p


def as_held_out(
    leaves: Sequence[FittedLeaf], leaf_rows: IntArray, held: HeldOut, judged: IntArray | None
) -> Sequence[FittedLeaf]:
    """Leaves with the sizes of residuals that held-out rows are measured in: those of fits without them,
    which follow their rows more closely. A leaf without held-out rows has as much of its own size as the
    others on average. The arguments are those of `measured`.
    """
    size = np.concatenate([leaf.own_residual for leaf in leaves])
    largest = max(size.max(), held.residual.max(initial=0.0))
    each = leaf_rows if judged is None else judged
    if not len(held.weight) or not each @ size > 0 or not held.residual.any():
        return leaves
    square, of_held = (size / largest) ** 2, held.weight * (held.residual / largest) ** 2
    times = (of_held.sum() / held.weight.sum()) / np.average(square, weights=each)
    square = times * square
    if judged is not None:
        leaf = np.repeat(np.arange(len(size)), judged)
        some = judged > 0
        sums = (np.bincount(leaf, values, len(size))[some] for values in (of_held, held.weight))
        square[some] = np.divide(*sums)
    sizes = largest * np.sqrt(square)
    return [replace(leaf, own_residual=sizes[i : i + 1]) for i, leaf in enumerate(leaves)]


def at_level(
    leaves: Sequence[FittedLeaf], held: HeldOut, level: float | None
) -> tuple[Sequence[FittedLeaf], HeldOut]:
    """Leaves, and values of rows that were held out, moved away from the median until this fraction of these
    rows lies below (Romano, Patterson and Candès, Conformalized Quantile Regression, 2019), by the same
    multiple of the size of residuals in each leaf. Of 4,000 made-up rows in 4 leaves, of new rows lay below
    the level 0.1 before 0.121 to 0.129, after 0.093 to 0.121; 0.98 before 0.956 to 0.965, after 0.975 to
    0.994 (3 seeds, 2026-11-26). The median itself stays: the fraction below it is as exact.
    """
    known = held.residual > 0
    if level is None or known.sum() * min(level, 1 - level) < LEAST_BEYOND:
        return leaves, held
    off = (held.target - held.decision[:, 0])[known] / held.residual[known]
    outward = np.sign(level - 0.5)
    by = outward * max(outward * weighted_quantile(off, held.weight[known], level), 0.0)
    moved = replace(held, decision=held.decision + by * held.residual[:, None])
    return [_moved(leaf, -by * leaf.own_residual) for leaf in leaves], moved


def measured_transform(held: HeldOut, settings: Settings) -> TargetTransform:
    """The transform of the target, with the shift that rows which were held out show."""
    if settings.task != "regression":
        return NO_TRANSFORM
    if loss_from_settings(settings).level is not None:  # A quantile loss needs no mean.
        return TargetTransform(settings.target_transform)
    return fitted_transform(settings.target_transform, held.decision[:, 0], held.target, held.weight)


def shared(
    leaves: Sequence[FittedLeaf], held: HeldOut, settings: Settings
) -> tuple[Sequence[FittedLeaf], HeldOut]:
    """Leaves beside terms, and rows that were held out, by the best share of what leaves add to the terms.

    Leaves learned what terms leave, and may have learned noise. They add less of it where that lowers the
    loss of held-out rows, of classes their wrong labels, by more than SURE_ERRORS standard errors.
    """
    if not held.offset.any():
        return leaves, held
    added = np.where(held.decision > PRESENT, held.decision - held.offset, held.decision)
    best, share = _loss_of(held.decision, held, settings), 1.0
    for less in KERNEL_SHARES:
        loss = _loss_of(held.offset + less * added, held, settings)
        if _gain(best, loss, held.weight) > SURE_ERRORS:
            best, share = loss, less
    held = replace(held, decision=held.offset + share * added)
    if not share:
        held = replace(held, log_scale=np.zeros(len(held.log_scale)))
    return [_shrunk_leaf(leaf, share) for leaf in leaves], held


def _gain(loss: FloatArray, lower: FloatArray, weight: FloatArray) -> float:
    """The mean difference of two losses of the same rows, in its standard errors."""
    gain = loss - lower
    mean = float(np.average(gain, weights=weight))
    error = float(np.sqrt(weight**2 @ (gain - mean) ** 2) / weight.sum())
    return mean / error if error else 0.0


def _loss_of(decision: FloatArray, held: HeldOut, settings: Settings) -> FloatArray:
    """The loss of each held-out row, (n,); whether it has the wrong label."""
    if settings.task != "regression":
        return np.asarray(class_numbers(decision) != held.target, ACC_DTYPE)
    off, loss = held.target - decision[:, 0], loss_from_settings(settings)
    return np.abs(off) + loss.tilt * off if isinstance(loss, Huber) else off**2


def _shrunk_leaf(leaf: FittedLeaf, share: float) -> FittedLeaf:
    """A leaf that adds a share of its values; without landmarks where that is 0."""
    intercept = np.where(leaf.intercept > PRESENT, share * leaf.intercept, leaf.intercept)
    beta = (share * leaf.beta.astype(ACC_DTYPE)).astype(leaf.beta.dtype)
    used = slice(None if share else 0)
    names = "landmarks", "gamma", "pairs", "triangle", "scale_beta"
    rows = {name: getattr(leaf, name)[used] for name in names}
    return replace(leaf, intercept=intercept, beta=beta[used], **rows)


def at_rates(weight: FloatArray, target: IntArray, totals: FloatArray) -> FloatArray:
    """Weights of rows that were held out, by which rare classes have the share that they have of all rows: of
    100 rows of a class that are held out where 120 would be, all probabilities are a sixth too small.
    """
    if not len(rare_classes(totals)):
        return weight
    held = np.bincount(target, weight, len(totals))
    ratio = (totals / totals.sum()) / np.where(held > 0, held / max(held.sum(), 1e-300), 1.0)
    return np.asarray(weight * ratio[target])


def _moved(leaf: FittedLeaf, offset: FloatArray) -> FittedLeaf:
    """A leaf with decision values that are less by an offset; a class that it has no row of stays absent."""
    moved = np.where(leaf.intercept > PRESENT, leaf.intercept - offset, leaf.intercept)
    return replace(leaf, intercept=moved.astype(leaf.intercept.dtype))


def fit_intervals(residual: FloatArray, rows: FloatArray, held: HeldOut) -> tuple[Intervals, float]:
    """Intervals by rows that were held out, and the power of the scale that their widths follow: the first of
    POWERS that lowers the Winkler score of these rows by more than its error, 0 without one. A row of twice
    the mean weight counts as two.

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

    size, off = spread(residual, rows), held.target - held.decision[:, 0]
    constant = spread(held.residual, held.rows)
    plain = _quantiles(size, off / constant, held.weight)
    if not held.log_scale.any() or not (plain.alpha <= DEFAULT_ALPHA).any():
        return plain, 0.0
    half = plain.at(DEFAULT_ALPHA) * constant
    for power in POWERS:
        varied = constant * np.exp(power * held.log_scale)
        scaled = _quantiles(size, off / varied, held.weight)
        widths = scaled.at(DEFAULT_ALPHA) * varied
        if is_narrower(np.abs(off), widths, half, held.weight, DEFAULT_ALPHA):
            return scaled, power
    return plain, 0.0


def _quantiles(spread: FloatArray, score: FloatArray, weight: FloatArray) -> Intervals:
    """Intervals by the residuals of rows held out, in sizes of residuals."""
    if not len(score):
        return Intervals(spread, *(np.empty(0) for _ in range(4)))
    n = len(score)

    def ordered(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        order = np.argsort(values, kind="stable")
        return values[order], np.cumsum(weight[order]) / weight.mean() / (n + 1)

    size, share = ordered(np.abs(score))
    at = np.searchsorted(share, (1.0 - ALPHAS) * (1 - 1e-12))
    possible = at < n
    signed, share = ordered(score)
    # The row below a lower quantile is as far as it can be, and so is the one above an upper one.
    place = np.searchsorted(share, SHARES * (1 - 1e-12))
    place = np.where(SHARES < 0.5, np.searchsorted(share, SHARES * (1 + 1e-12), side="right") - 1, place)
    known = (place >= 0) & (place < n)
    return Intervals(spread, ALPHAS[possible], size[at[possible]], SHARES[known], signed[place[known]])
