"""ARD scales learned from nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.compiler import with_compiler
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.model.scaling import BASES, Scaling, column_sums, fit_scaling, row_strips
from dcpred_tasks.training.losses import weighted_quantile, weighted_variance
from dcpred_tasks.training.refinement import machine_code
from dcpred_tasks.training.survey import RARE_SHARE, LabelledRows, distinct_rows

WIDEST = 256  # features up to which machine code is faster than BLAS
COMPILED = machine_code, "nearest rows are searched by NumPy, which is slower"
BATCH_ROWS = 128  # rows of a neighbour search at once: it holds 4 bytes for each of them and each sample row


def neighbours(
    A: SingleArray, pool_row: IntArray | None, pool: SingleArray, w: FloatArray, k: int
) -> tuple[IntArray, SingleArray]:
    """The numbers of the k nearest rows of the pool, in any order, and their squared distances: (m, k) each.

    A     (m, d) rows
    own   (m,) the numbers of these rows in the pool, which are excluded, or None
    w     (d,), ≥ 0

    Machine code does it for up to WIDEST features. NumPy divides the pool into groups, each of every
    n_groups-th row. The k nearest rows lie in the k groups whose nearest row is nearest: a fast minimum over
    groups leaves a small part to select from.
    """
    done: tuple[IntArray, SingleArray] | None = None
    if len(w) <= WIDEST:
        done = with_compiler(*COMPILED, lambda compiled: compiled.neighbours(A, pool_row, pool, w, k))
    if done is not None:
        return done
    numbers = _nearest(A, pool_row, pool, w, k)
    return numbers, squared_distances(A, pool, numbers, w)


def _nearest(A: SingleArray, pool_row: IntArray | None, pool: SingleArray, w: FloatArray, k: int) -> IntArray:
    used = np.flatnonzero(w > 0)
    s = np.sqrt(w[used]).astype(MODEL_DTYPE)
    n = len(pool)
    A, pool = (rows if len(used) == len(w) else rows[:, used] for rows in (A, pool))
    # A row of D is partitioned twice: n / group_rows minima, then k · group_rows values.
    group_rows = 1 << max(round(np.log2(n / (2 * k)) / 2), 0) if n > 2 * k else 1
    n_groups = max(-(-n // group_rows), k)
    # With |q|² in the last column, D − |a|² is one product.
    Q = np.zeros((n_groups * group_rows, len(used) + 1), MODEL_DTYPE)
    np.multiply(pool, s, out=Q[:n, :-1])
    Q[:, -1] = np.finfo(MODEL_DTYPE).max
    Q[:n, -1] = np.einsum("ij,ij->i", Q[:n, :-1], Q[:n, :-1])
    B = np.concatenate([-2 * s * A, np.ones((len(A), 1), MODEL_DTYPE)], axis=1)
    out = np.empty((len(A), k), np.int64)
    space = np.empty((min(BATCH_ROWS, len(A)), len(Q)), MODEL_DTYPE)
    in_group = np.arange(group_rows)[:, None] * n_groups
    for at in range(0, len(A), BATCH_ROWS):
        rows = B[at : at + BATCH_ROWS]
        D = np.matmul(rows, Q.T, out=space[: len(rows)])
        if pool_row is not None:
            D[np.arange(len(D)), pool_row[at : at + BATCH_ROWS]] = np.inf
        least = D.reshape(len(D), group_rows, n_groups).min(axis=1)
        near = np.argpartition(least, k - 1, axis=1)[:, :k]
        inside = (in_group + near[:, None, :]).reshape(len(D), -1)
        first = np.arange(len(D))[:, None] * len(Q)
        nearest = np.argpartition(D.ravel().take(first + inside), k - 1, axis=1)[:, :k]
        out[at : at + BATCH_ROWS] = np.take_along_axis(inside, nearest, axis=1)
    return out


def squared_distances(A: SingleArray, pool: SingleArray, near: IntArray, w: FloatArray) -> SingleArray:
    """Squared distances (m, k), summed of differences: |a|² − 2a·b + |b|² cancels between neighbours."""
    used = np.flatnonzero(w > 0)
    s = np.sqrt(w[used]).astype(MODEL_DTYPE)
    B = A[:, used] * s
    D = np.empty(near.shape, MODEL_DTYPE)
    for at in range(0, len(A), BATCH_ROWS):
        part = slice(at, at + BATCH_ROWS)
        rows = np.take(pool[near[part]], used, axis=2)
        rows *= s
        rows -= B[part, None]
        D[part] = np.square(rows, out=rows).sum(axis=2)
    return D


NEIGHBOURS = 32  # K
ROUNDS = 8  # times that neighbours are found anew
STEPS_PER_ROUND = 10
SLOPE_DECAY, SQUARE_LEFT = 0.9, 0.95  # β₁ and β₂ of Adam
ANCHORS = 1_000  # rows whose neighbours are found in a round
# Anchors of a step: each is in several steps of a round, which saves searches. NumPy takes fewer: it is slow.
BATCH, WIDE_BATCH = 500, 200
HELD_OUT_ROWS = 500  # rows that select a candidate; at most a fifth of the sample
# Most multiplications of one neighbour search, half a second: wide data use fewer rows.
MULTIPLICATIONS = 2e10
FEWEST_TO_LEAVE_OUT = 100  # held-out rows that it takes to leave features out
FEWEST_ROWS = 40  # distinct rows that it takes to learn factors
# Median squared distance from a row to its last neighbour in the scaled features. Local SVMs and ridge
# regressions then do best at γ between 1/4 and 4: letter 2 to 4, usps 1, covtype 2 (in leaves, at the density
# of all rows), housing 1/4, house_16H 1.
KERNEL_REACH = {"classification": 0.5, "regression": 0.25}
FLOOR = 1e-3  # least probability of a row, where all of its neighbours disagree
# Step of Adam in log w, and pull towards the base scaling. The first suits few features with very unequal
# relevance (covtype, housing), the second many features of similar relevance (usps, mnist, a9a).
PACES = ((0.3, 0.0), (0.15, 1e-3))
# Courses of steps, one after the other, as long as each lowers the loss on held-out rows to this share. Where
# one feature is all (elec2: the date), a single course ends long before its factor is large enough: 92 % of
# rows are right after one, 97 % after three. Elsewhere (cal_housing) large leaves do better after one.
COURSES, WORTH_GOING_ON = 5, 0.97
# Most repetitions, each with other held-out rows, whose mean is kept, and rows × features up to which all of
# them pay for their time; then four, and fewer from 3,000,000 / 4 numbers on (DECISIONS.md).
REPETITIONS, FEW_NUMBERS = 16, 40_000
USUAL_REPETITIONS, REPEATED_NUMBERS = 4, 3_000_000
# Share of the loss without features that neighbours must explain. With less they find factors by chance
# (DECISIONS.md).
LEAST_EXPLAINED = 0.1
# Share of the rows at either end of a feature that may not have most of its variance (`without_tails`).
OUTER, MOST_OF_VARIANCE = 0.005, 0.5
# Most that a category may add to the squared distance of two rows, at γ = 1 (DECISIONS.md).
FARTHEST_CODES = 4.0
# Widths of a kernel over the distance to the last neighbour; every third is tried, then those near the best.
WIDTHS, COARSE = np.geomspace(0.1, 1e4, 31), 3
COINCIDE = 1e-9  # share of the largest squared distance up to which rows coincide
LEAST_PART = 0.002  # share of the mean squared distance that counts


@dataclass(frozen=True)
class Metric:
    """shift μ and factor s, float64 (n_columns,): of features, or of the columns of one-hot encoded ones; s
    is exactly 0 where a feature does not matter.

    s includes the width of a kernel: a search starts at γ = 1 in exp(−γ |x' − z'|²) (see KERNEL_REACH).
    """

    name: str  # "learned", or the base scaling that did best on held-out rows: "none", "standard" or "minmax"
    shift: FloatArray
    factor: FloatArray
    # Score of every candidate on held-out rows, more is better: mean log-likelihood of the class, or R².
    scores: dict[str, float]
    # The same after more steps, where these were requested and helped.
    sharpened: "Metric | None" = None


Start: TypeAlias = tuple[str, float, float]  # a base scaling, a pace, and the pull towards it


@dataclass(frozen=True)
class Judged:
    """A candidate on held-out rows, at the best of its kernel widths."""

    w: FloatArray  # (d,), factors of squared differences, the width of the kernel among them
    losses: FloatArray  # (held-out rows,), weighted; their mean is the loss
    neighbour_distance: float  # median squared distance to the last neighbour

    @property
    def loss(self) -> float:
        return float(self.losses.mean())


def learn_metric(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
    task: str,
    seed: int,
    sharpen: bool = False,
    coding: Coding | None = None,
    most_repetitions: int = REPETITIONS,
    otherwise: FloatArray | None = None,
) -> Metric:
    """Learn factors from labels, and keep them if they do better on held-out rows than every base scaling:
    the mean of a few repetitions.

    sample            (n, n_features), real and finite
    target            (n,), class numbers or values
    weight            float64 (n,), > 0; identical rows count as one of all their weight
    minimum, maximum  float64 (n_features,), of all rows (as for `fit_scaling`)
    task              "classification" or "regression"
    sharpen           continue while it helps
    coding            of the one-hot encoded features; their columns have a factor each
    most_repetitions  with other rows held out, whose mean is kept
    otherwise  float64 (n_columns,), factors where these rows show none; None: the standard scaling
    """
    sample = np.ascontiguousarray(sample)  # The order in memory decides how sums are rounded.
    sample, minimum, maximum = without_tails(sample, weight, minimum, maximum, coding)
    bases = {name: fit_scaling(name, sample, weight, minimum, maximum, coding) for name in BASES}
    unit = bases["standard"]
    if coding is None:
        varies = (sample.min(axis=0) < sample.max(axis=0)) & (minimum < maximum)
        unit_scaling = Scaling(unit.shift[varies], unit.factor[varies])
        U = np.empty((len(sample), len(unit_scaling.shift)), MODEL_DTYPE)
        for strip in row_strips(*sample.shape):
            U[strip] = unit_scaling.exact(sample[strip][:, varies])
    else:
        U = unit(sample)
        minimum, maximum = coding.limits(minimum, maximum)
        varies = (U.min(axis=0) < U.max(axis=0)) & (minimum < maximum)
        U = U if varies.all() else U[:, varies]
    every, _ = distinct_rows(U, target, weight, task)
    del U
    rows = balanced_rows(every, seed) if task == "classification" else every
    if len(rows.y) < FEWEST_ROWS or np.ptp(rows.y) == 0:
        return _untold(unit, varies, otherwise)
    repetitions = min(_repetitions(rows.U.size), most_repetitions)
    first, start = _learn_once(rows, bases, varies, task, seed, sharpen)
    # The others start as the best of the first did: this halves the time.
    sharpen = first.sharpened is not None
    others = [
        _learn_once(
            rows if rows is every else balanced_rows(every, seed + i),
            *(bases, varies, task, seed + i, sharpen, start),
        )[0]
        for i in range(1, repetitions)
    ]
    metric = mean_metric([first, *others], unit.factor)
    if _explained(metric, rows, task) < LEAST_EXPLAINED:
        return _untold(unit, varies, otherwise)
    if rows is not every:
        metric = _as_wide_as(metric, every, unit.factor, varies, seed)
    return _near_codes(metric, coding)


def _repetitions(size: int) -> int:
    """The number of repetitions for so many rows × features."""
    if size <= REPEATED_NUMBERS // USUAL_REPETITIONS:
        return int(np.clip(REPETITIONS * FEW_NUMBERS // size, USUAL_REPETITIONS, REPETITIONS))
    return max(REPEATED_NUMBERS // size, 1)


def balanced_rows(rows: LabelledRows, seed: int) -> LabelledRows:
    """All rows of rare classes, at most twice as many of the frequent one, and the same mean weight of both;
    all rows, unchanged, where no class has `RARE_SHARE`. Few neighbours of rare classes would else explain
    nothing (DECISIONS.md).
    """
    y = rows.y.astype(np.int64)
    counts = np.bincount(y)
    frequent = y == counts.argmax()
    most = 2 * np.count_nonzero(~frequent)
    if counts.max() < RARE_SHARE * len(y) or not most:
        return rows
    drawn = np.random.default_rng(seed).permutation(np.flatnonzero(frequent))[:most]
    balanced = rows.take(np.sort(np.concatenate([np.flatnonzero(~frequent), drawn])))
    is_frequent = balanced.y == counts.argmax()
    means = [balanced.weight[~is_frequent].mean(), balanced.weight[is_frequent].mean()]
    return replace(balanced, weight=balanced.weight / np.where(is_frequent, *means[::-1]))


def _as_wide_as(
    metric: Metric, rows: LabelledRows, unit: FloatArray, varies: NDArray[np.bool_], seed: int
) -> Metric:
    """The same with the kernel width for these rows, which are denser than a sample of them."""
    w = (metric.factor[varies] / unit[varies]) ** 2
    some = held_out_rows(len(rows.y), rows.U.size, seed)[0]
    sampled = rows.take(some)
    squares = neighbours(sampled.U, some, rows.U, w, min(NEIGHBOURS, len(rows.y) // 4))[1]
    reach = _reach(squares, sampled, rows, w)
    factor = metric.factor * np.sqrt(KERNEL_REACH["classification"] / max(reach, 1e-30))
    farther = metric.sharpened
    if farther is not None:
        farther = _as_wide_as(farther, rows, unit, varies, seed)
    return replace(metric, factor=factor, sharpened=farther)


def without_tails(
    sample: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
    coding: Coding | None,
) -> tuple[NDArray[np.generic], FloatArray, FloatArray]:
    """A sample with its limits in which values beyond two outer quantiles are clipped, in every heavy-tailed
    feature with most of its variance beyond them, and some within them.

    The range and the deviation of such a feature describe a few rows. In units of these all other rows are
    alike, and no step separates them: their squared differences are 1e-8 of those of the few rows, which
    dominate the gradient.
    """
    amounts = np.ones(sample.shape[1], bool)
    if coding is not None:
        amounts = ~coding.is_coded
        amounts &= True if coding.map is None else coding.map.rate == 0
    out, low, high = sample, minimum.copy(), maximum.copy()
    for f in np.flatnonzero(amounts):
        column = sample[:, f].astype(ACC_DTYPE)
        known = ~np.isnan(column)
        there, weights = column[known], weight[known]
        if not len(there):
            continue
        a, b = (weighted_quantile(there, weights, share) for share in (OUTER, 1 - OUTER))
        with np.errstate(over="ignore", invalid="ignore"):
            inside, whole = (weighted_variance(values, weights) for values in (np.clip(there, a, b), there))
            if not (a < b and inside < (1 - MOST_OF_VARIANCE) * whole):
                continue
        out = sample.astype(ACC_DTYPE) if out is sample else out
        out[:, f] = np.clip(column, a, b)
        low[f], high[f] = np.clip(minimum[f], a, b), np.clip(maximum[f], a, b)
    return out, low, high


def _near_codes(metric: Metric, coding: Coding | None) -> Metric:
    """The same with factors of one-hot encoded columns and indicators that leave rows of other categories
    within reach. Neighbours of the same category may suffice for all rows, and nothing then bounds these
    factors; but landmarks, which are few, are useless for rows of other categories.
    """
    if coding is None:
        return metric
    limit = np.where(np.isnan(coding.code), np.inf, np.sqrt(FARTHEST_CODES / 2))
    farther = None if metric.sharpened is None else _near_codes(metric.sharpened, coding)
    return replace(metric, factor=np.minimum(metric.factor, limit), sharpened=farther)


def _untold(unit: Scaling, varies: NDArray[np.bool_], otherwise: FloatArray | None) -> Metric:
    """These factors or the standard scaling, where neighbours are uninformative."""
    factor = np.where(varies, unit.factor / np.sqrt(max(varies.sum(), 1)), 0.0)
    if otherwise is not None and otherwise.shape == factor.shape:
        factor = np.where(varies, otherwise, 0.0)
    return Metric("standard", unit.shift, factor, {})


def _explained(metric: Metric, rows: LabelledRows, task: str) -> float:
    """Share of the loss without any feature that the best candidate takes away."""
    best = max(metric.scores.values())
    if task == "regression":
        return best
    share = np.bincount(rows.y.astype(np.int64), weights=rows.weight) / rows.weight.sum()
    nothing = -float(share @ np.log(np.maximum(share, FLOOR)))
    return 1.0 + best / max(nothing, FLOOR)


def mean_metric(metrics: Sequence[Metric], unit: FloatArray) -> Metric:
    """The mean of squared factors, with the name of the best scaling. A feature is omitted where all
    repetitions omit it, or most do and hardly any distance remains: half of the features of magic, each
    omitted by most, hold 1.5 points.

    unit  (n_columns,), factors of the standard scaling, 0 for a feature without any value
    """
    factors = np.stack([metric.factor for metric in metrics])
    exponent = np.frexp(factors.max(axis=0))[1]  # Squares of the rest neither overflow nor vanish.
    mean = np.ldexp(np.sqrt((np.ldexp(factors, -exponent) ** 2).mean(axis=0)), exponent)
    parts = ((factors / np.where(unit > 0, unit, 1.0)) ** 2).mean(axis=0)
    left_out = 2 * np.count_nonzero(factors == 0, axis=0) > len(metrics)
    left_out &= parts <= LEAST_PART * parts.sum()
    scores = {
        name: float(np.mean([metric.scores[name] for metric in metrics]))
        for name in metrics[0].scores
        if all(name in metric.scores for metric in metrics)
    }
    name = max(sorted({metric.name for metric in metrics}), key=lambda name: scores.get(name, -np.inf))
    farther = [metric.sharpened or metric for metric in metrics]
    # A search evaluates both, and small leaves may benefit.
    sharper = any(metric.sharpened for metric in metrics)
    return Metric(
        name,
        next(metric.shift for metric in metrics if metric.name == name),
        np.where(left_out, 0.0, mean),
        scores,
        mean_metric([replace(metric, sharpened=None) for metric in farther], unit) if sharper else None,
    )


def _learn_once(
    rows: LabelledRows,
    bases: dict[str, Scaling],
    varies: NDArray[np.bool_],
    task: str,
    seed: int,
    sharpen: bool,
    start: Start | None = None,
) -> tuple[Metric, Start]:
    """See `learn_metric`, for one choice of held-out rows; and the start that was the best.

    start  the only one to try
    """
    unit = bases["standard"]
    held, pool = (rows.take(part) for part in held_out_rows(len(rows.y), rows.U.size, seed))
    judged: dict[str, Judged] = {}
    for name, base in bases.items():
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            w = (base.factor[varies] / unit.factor[varies]) ** 2
            w /= w.sum()
        equal = next(
            (other for other in judged.values() if np.allclose(other.w / other.w.sum(), w, rtol=1e-6)), None
        )
        if np.isfinite(w).all():
            judged[name] = equal or judge(w, held, pool, task)
    best = min(judged, key=lambda name: judged[name].loss)
    base_loss = judged[best].loss
    wanted = [(best, *pace) for pace in PACES]
    # A base that is best by chance may hide the features that matter.
    if best != "standard" and judged["standard"].loss < 1.5 * base_loss:
        wanted.append(("standard", *PACES[0]))
    if start is not None:
        wanted = [("standard" if start[0] == "standard" else best, *start[1:])]
    learned = (learn(pool, judged[base].w, task, pace, pull, seed) for base, pace, pull in wanted)
    tries = [judge(w, held, pool, task) for w in learned]
    taken = min(range(len(tries)), key=lambda i: tries[i].loss)
    chosen = tries[taken]

    def metric(learned: Judged) -> Metric:
        """The result of the candidates."""
        name, every = best, judged | {"learned": learned}
        gain = every[name].losses - learned.losses
        # One standard error is required: few held-out rows say little.
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            name = "learned"
        if len(held.y) >= FEWEST_TO_LEAVE_OUT:
            every[name] = leave_out(every[name], held, pool, task, base_loss)
        final = every[name]
        factor = np.zeros(len(varies))
        factor[varies] = (
            np.sqrt(final.w * (KERNEL_REACH[task] / final.neighbour_distance)) * unit.factor[varies]
        )
        scores = {name: _score(candidate, held, task) for name, candidate in every.items()}
        return Metric(name, bases.get(name, unit).shift, factor, scores)

    first = metric(chosen)
    farther = _sharpened(chosen, held, pool, task, seed) if sharpen and first.name == "learned" else chosen
    return first if farther is chosen else replace(first, sharpened=metric(farther)), wanted[taken]


def _sharpened(judged: Judged, held: LabelledRows, pool: LabelledRows, task: str, seed: int) -> Judged:
    """Where more steps lead to; `judged` itself if the first do not pay, or no held-out row is wrong."""
    for number in range(1, COURSES if judged.loss > FLOOR or task == "regression" else 1):
        farther = judge(learn(pool, judged.w, task, *PACES[0], seed + number), held, pool, task)
        if farther.loss > WORTH_GOING_ON * judged.loss:
            break
        judged = farther
    return judged


def _score(judged: Judged, held: LabelledRows, task: str) -> float:
    if task == "classification":
        return -judged.loss
    spread = float(np.average((held.y - np.average(held.y, weights=held.weight)) ** 2, weights=held.weight))
    return 1.0 - judged.loss / max(spread, 1e-12)


def held_out_rows(n: int, size: int, seed: int) -> tuple[IntArray, IntArray]:
    """The numbers of the rows that evaluate candidates, and of the others, of n rows of `size` numbers."""
    order = np.random.default_rng(seed).permutation(n)
    n_held = max(min(HELD_OUT_ROWS, n // 5, int(MULTIPLICATIONS / size)), n // 30, 1)
    return order[:n_held], order[n_held:]


def soft_weights(D: SingleArray, weight: FloatArray) -> SingleArray:
    """P of the module's equation, (m, k): D squared distances, weight those of the neighbours."""
    P = np.exp(D.min(axis=1, keepdims=True) - D) * weight.astype(MODEL_DTYPE)
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def row_losses(p: FloatArray, y: FloatArray, task: str) -> FloatArray:
    """The losses (m,) of rows whose neighbours predict p (m,)."""
    if task == "classification":
        return np.asarray(-np.log(FLOOR + (1 - FLOOR) * p))
    return np.asarray((p - y) ** 2)


def loss_and_gradient(
    w: FloatArray,
    S: SingleArray,
    t: FloatArray,
    y: FloatArray,
    near_weight: FloatArray,
    weight: FloatArray,
    task: str,
) -> tuple[float, FloatArray]:
    """Weighted mean loss and its gradient over w.

    w            (d,)
    S            (m, k, d) squared differences of m rows to their k neighbours
    t            (m, k) of the module's equation
    y            (m,) values, not used for classes
    near_weight  (m, k), weights of the neighbours
    weight       (m,), weights of the rows
    """
    P = soft_weights(S @ w.astype(MODEL_DTYPE), near_weight).astype(ACC_DTYPE)
    p = (P * t).sum(axis=1)
    share = weight / weight.sum()
    slope = -(1 - FLOOR) / (FLOOR + (1 - FLOOR) * p) if task == "classification" else 2 * (p - y)
    by_distance = -P * (t - p[:, None]) * (share * slope)[:, None]  # ∂p/∂D_ij = −P_ij (t_ij − p_i)
    gradient = by_distance.astype(MODEL_DTYPE).ravel() @ S.reshape(-1, S.shape[2])
    return float(share @ row_losses(p, y, task)), gradient.astype(ACC_DTYPE)


def learn(
    pool: LabelledRows, start: FloatArray, task: str, pace: float, pull: float, seed: int
) -> FloatArray:
    """w (d,), from `start`: Adam (Kingma and Ba, 2015) in log w, falling to 0 in the second half, with the
    mean of the last two fifths of its path in log w. `pull` · |log w − log start|² / 2 is added to the loss.
    """
    rng = np.random.default_rng(seed + 1)
    n = len(pool.U)
    k = min(NEIGHBOURS, n // 4)
    m = min(n, max(min(ANCHORS, int(1.2 * MULTIPLICATIONS / pool.U.size)), 500))
    first = np.log(np.maximum(start, 1e-6 * start.max()))
    anchors = np.stack([rng.choice(n, m, replace=False) for _ in range(ROUNDS)])
    floor = FLOOR if task == "classification" else None
    done: FloatArray | None = None
    if len(start) <= WIDEST:
        given = pool.U, pool.y, pool.weight, first, anchors, k, STEPS_PER_ROUND, BATCH, pace, pull, floor
        done = with_compiler(*COMPILED, lambda compiled: compiled.learned_factors(*given))
    if done is None:
        done = mean_factors(pool, first, anchors, k, task, WIDE_BATCH, pace, pull)
    return np.exp(done)


def mean_factors(
    pool: LabelledRows,
    first: FloatArray,
    anchors: IntArray,
    k: int,
    task: str,
    batch: int,
    pace: float,
    pull: float,
) -> FloatArray:
    """The mean log w of the last two fifths of the path from `first`, with anchors (rounds, m)."""
    log_w, slope, square, mean = first.copy(), *(np.zeros_like(first) for _ in range(3))
    batch = min(batch, anchors.shape[1])
    step, n_steps = 0, len(anchors) * STEPS_PER_ROUND
    n_mean = 2 * n_steps // 5
    for rows in anchors:
        near = _nearest(pool.U[rows], rows, pool.U, np.exp(log_w), k)
        for number in range(STEPS_PER_ROUND):
            part = (number * batch + np.arange(batch)) % len(rows)
            i, j, w = rows[part], near[part], np.exp(log_w)
            S = pool.U[j]
            S -= pool.U[i][:, None]
            np.square(S, out=S)
            t = _agreement(pool.y[j], pool.y[i], task)
            gradient = loss_and_gradient(w, S, t, pool.y[i], pool.weight[j], pool.weight[i], task)[1] * w
            gradient += pull * (log_w - first)
            step += 1
            slope = SLOPE_DECAY * slope + (1 - SLOPE_DECAY) * gradient
            square = SQUARE_LEFT * square + (1 - SQUARE_LEFT) * gradient**2
            move = slope / (1 - SLOPE_DECAY**step) / (np.sqrt(square / (1 - SQUARE_LEFT**step)) + 1e-12)
            log_w = log_w - pace * min(1.0, 2 - 2 * (step - 1) / n_steps) * move
            if step > n_steps - n_mean:
                mean += log_w / n_mean
    return mean


def judge(w: FloatArray, held: LabelledRows, pool: LabelledRows, task: str) -> Judged:
    """The loss of held-out rows predicted from the pool, at their best width."""
    near, D = neighbours(held.U, None, pool.U, w, min(NEIGHBOURS, len(pool.y) // 4))
    t = _agreement(pool.y[near], held.y, task)
    share = held.weight / held.weight.mean()
    widths = WIDTHS / (distance := max(_reach(D, held, pool, w), 1e-30))

    def losses(some: Sequence[int]) -> dict[int, FloatArray]:
        predicted = _predicted(D, pool.weight[near], t, widths[list(some)])
        return {i: share * row_losses(p, held.y, task) for i, p in zip(some, predicted, strict=True)}

    tried = losses(range(0, len(widths), COARSE))
    first = min(tried, key=lambda i: float(tried[i].mean()))
    tried |= losses(range(max(first - COARSE + 1, 0), min(first + COARSE, len(widths))))
    best = min(tried, key=lambda i: float(tried[i].mean()))
    return Judged(w * widths[best], tried[best], distance * widths[best])


def _predicted(D: SingleArray, weight: FloatArray, t: FloatArray, widths: FloatArray) -> FloatArray:
    """What neighbours (m, k) predict for rows at each width of the kernel, (n_widths, m)."""
    done: FloatArray | None = with_compiler(
        *COMPILED, lambda compiled: compiled.predicted(D, weight, t, widths)
    )
    if done is not None:
        return done
    with np.errstate(over="ignore"):  # Most neighbours may be copies of a row, and others far from it.
        soft = (soft_weights(np.nan_to_num(D * MODEL_DTYPE(width)), weight) for width in widths)
        return np.stack([(P * t).sum(axis=1) for P in soft])


def _reach(squares: SingleArray, held: LabelledRows, pool: LabelledRows, w: FloatArray) -> float:
    """The median squared distance to the last neighbour, of distances (n, k) to neighbours in the pool. Where
    most rows coincide with all of their neighbours, as with few integer features, the median distance to the
    nearest of some distinct rows: a kernel without width would be useless.
    """
    reach = float(np.median(squares.max(axis=1)))
    if reach > COINCIDE * squares.max():
        return reach
    some = np.linspace(0, len(pool.y) - 1, 2 * NEIGHBOURS).astype(np.int64)
    others = squared_distances(held.U, pool.U, np.tile(some, (len(held.y), 1)), w)
    nearest = np.where(others > COINCIDE * others.max(), others, np.inf).min(axis=1)
    apart = nearest[np.isfinite(nearest)]
    return float(np.median(apart)) if len(apart) else reach


def leave_out(full: Judged, held: LabelledRows, pool: LabelledRows, task: str, limit: float) -> Judged:
    """The candidate without the features that do not matter. As few are kept as lose at most 0.5 % more than
    all do, are by one standard error sure to lose less than a twentieth more, and lose no more than `limit`.

    Features go in the order of what they add to the mean squared distance of two rows.
    """
    strips = row_strips(*pool.U.shape)
    mean = column_sums(pool.U[strip].astype(ACC_DTYPE) for strip in strips) / len(pool.U)
    variance = column_sums((pool.U[strip] - mean) ** 2 for strip in strips) / len(pool.U)
    order = np.argsort(-full.w * variance, kind="stable")
    best, low, high = full, 0, len(order)  # `low` features are too few, `high` are enough.
    while high - low > max(1, high // 20):
        middle = (low + high) // 2 if low else max(high // 2, 1)
        w = np.zeros(len(order))
        w[order[:middle]] = full.w[order[:middle]]
        now = judge(w, held, pool, task)
        noise = float((now.losses - full.losses).std()) / np.sqrt(len(held.y))
        if now.loss <= min(1.05 * full.loss - noise, 1.005 * full.loss, limit):
            best, high = now, middle
        else:
            low = middle
    return best


def _agreement(near: FloatArray, y: FloatArray, task: str) -> FloatArray:
    return (near == y[:, None]).astype(ACC_DTYPE) if task == "classification" else near
