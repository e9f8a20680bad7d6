"""Refinement of a leaf in machine code: the search of lbfgs.minimise around objective.Objective, in one
call, or the stochastic steps of refinement.stochastic, a call for each pass. For every kernel and loss; the
definition is tests/support/refinement_definition.py.

The layout of rows is that of native/objective.h: 16 to a strip, with rows as lanes.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.engine.layout import AT_ONCE, LANES, UNROLLED, aligned_empty, aligned_zeros
from dcpred_tasks.engine.machine_code import load, prepared
from dcpred_tasks.engine.native_modules import REFINEMENT, taken_by
from dcpred_tasks.model.kernels import FAMILIES
from dcpred_tasks.training.lbfgs import MEMORY
from dcpred_tasks.training.losses import beyond_one
from dcpred_tasks.training.objective import LOG_FACTOR, LOG_GAMMA, NEARNESS, Goal, Objective

TILE_STRIPS = 16  # strips whose kernel values are held at a time: sums over them are in single precision
TILE_NUMBERS = 2**16  # size of the part of a pool that all rows are compared with while it stays in a cache
MOST_NEAR = 2 * LANES  # neighbours of a row, at most
SPARE_PAIRS = MEMORY + 1  # pairs of L-BFGS, and one that is not yet known to be curved


class Problem(NamedTuple):
    """The input of the search, read-only but for a column of `x`, padded to a multiple of AT_ONCE."""

    n_strips: int
    tile_strips: int
    n_features: int
    width: int
    """Columns of a strip of `x`: an odd number, which keeps strips from colliding in a cache."""
    columns: int
    """Columns of it that gradients are summed with: features, |x|², 1, and a 0 if their number is odd."""
    n_landmarks: int
    padded: int
    """Landmarks with padding, and the column of the first product."""
    n_pairs: int
    terms: int
    """Landmarks and products with padding."""
    k_stride: int
    """Columns of a strip of kernel values, an odd number."""
    n_outputs: int
    f_stride: int
    """Columns of a strip of decision values: outputs, and a 0 if their number is odd."""
    n_unknowns: int
    beta_at: int
    """Where output weights begin in θ."""
    intercept_at: int
    gamma_at: int
    factor_at: int
    """Where the logarithms of the leaf's own factors begin in θ."""
    kernel: int
    """The place of the kernel's family in FAMILIES."""
    own_factors: bool
    steps: int
    """The maximum of L-BFGS, or all stochastic steps of all passes."""
    n_batches: int
    """Stochastic steps of a pass; 0 for L-BFGS."""
    tolerance: float
    scale: float
    """Factor of output weights in θ."""
    share: float
    """Share of the loss that is the distance to the distillation target."""
    nearness: float
    """Weight of the squared distance to the local SVM; 0 without one."""
    machine_gamma: float
    """γ of the local SVM."""
    loss: int
    """The place of the loss in `for_loss` of native/losses.h."""
    log_gamma: float
    """The limit of |log γ/γ₀|."""
    log_factor: float
    """The limit of the logarithms of factors."""
    x: SingleArray
    """float32 (n_strips, width, 16): features about the middle of the rows, their |x|², and 1. With ARD
    scales of the leaf, compiled code writes Σ s² x² in place of |x|². For passes of stochastic steps, which
    take rows in any order, `x`, `goals` and `offset` are (n, padded columns), row by row.
    """
    shape: FloatArray
    """float64, KernelNumbers.shape."""
    loss_numbers: FloatArray
    """float64, what the loss is computed with: Loss.numbers."""
    weight: SingleArray
    """float32 (n_strips, 16), 0 for padding."""
    goals: SingleArray
    """float32 (n_strips, n_outputs, 4, 16): `intervals`, both ends for the target and for the distillation
    target.
    """
    offset: SingleArray
    """float32 (n_strips, n_outputs, 16), which is added to decision values; (0,) without."""
    middle: FloatArray
    """float64 (n_features,)."""
    points: SingleArray
    """float32 (strips of points, n_features, 16): those of the local SVM about the middle of the rows."""
    point_weights: SingleArray
    """float32 (strips of points, n_outputs, 16)."""
    gamma: FloatArray
    """float64 (n_landmarks,), γ₀."""
    left: IntArray
    """int64 (n_pairs,), the one landmark of each product."""
    right: IntArray
    """int64 (n_pairs,), the other."""
    stiff: FloatArray
    """float64 (n_unknowns,), as in Objective."""
    rest_point: FloatArray
    """float64 (n_unknowns,), as in Objective."""
    rates: FloatArray
    """float64 (n_unknowns,), lengths of stochastic steps; (0,) for L-BFGS."""


class Room(NamedTuple):
    """The workspace of compiled code. All begins with 0, and padding stays 0."""

    factors: SingleArray
    """float32 (padded / 8, n_features + 2, 8): of the logarithm of kernel values, in units of log 2."""
    beta: SingleArray
    """float32 (n_outputs, terms)."""
    intercept: SingleArray
    """float32 (n_outputs,)."""
    K: SingleArray
    """float32 (tile_strips, k_stride, 16): kernel values and products; of an rbf then as `falls`."""
    falls: SingleArray
    """float32 (tile_strips, k_stride, 16): −κ', then −∂L/∂t; (0,) where −κ' = κ."""
    f: SingleArray
    """float32 (tile_strips, f_stride, 16): decision values, then ∂L/∂f."""
    powers: SingleArray
    """float32 (n_outputs, 16): exp(SHARPNESS · f) of a strip over the largest."""
    pulled: SingleArray
    """float32 (terms, 16): ∂L/∂c of a strip."""
    gamma: FloatArray
    """float64 (n_landmarks,)."""
    square: FloatArray
    """float64 (n_landmarks,), |s ∘ u|² about the middle of the rows."""
    squares: SingleArray
    """float32 (n_features,), s² of the leaf's own factors (s of absolute differences), or 1."""
    coefficients: SingleArray
    """float32 (padded,), what the values in K are weighted with in the derivative by factors."""
    by_row: SingleArray
    """float32 (tile_strips, 16), their sums."""
    square_sums: FloatArray
    """float64 (n_features,), what the derivatives by log factors are made of."""
    slopes: FloatArray
    """float64 (n_outputs,), Σ ∂L/∂f."""
    sums: FloatArray
    """float64 (padded / 8, columns / 2, 2, 8): −Σ ∂L/∂t_j x; of absolute differences (padded / 8, n_features,
    2, 8), the same with signs of x − u_j, and with |x − u_j|.
    """
    beta_sums: FloatArray
    """float64 (terms / 8, f_stride / 2, 2, 8): Σ K_j ∂L/∂f."""
    x: FloatArray
    """float64 (padded unknowns,): the start, then the lowest point that was found."""
    gradient: FloatArray
    """float64 (padded unknowns,), of `x`."""
    trial: FloatArray
    """float64 (padded unknowns,)."""
    at_trial: FloatArray
    """float64 (padded unknowns,), the gradient there."""
    direction: FloatArray
    """float64 (padded unknowns,)."""
    moves: FloatArray
    """float64 (SPARE_PAIRS, padded unknowns), the steps of the pairs."""
    changes: FloatArray
    """float64 (SPARE_PAIRS, padded unknowns), the changes of the gradient."""
    inverse: FloatArray
    """float64 (SPARE_PAIRS,), 1 / curvature."""
    along: FloatArray
    """float64 (SPARE_PAIRS,)."""
    value: FloatArray
    """float64 (1,), of `x`."""
    adam: FloatArray
    """float64 (3,): stochastic steps that were done, and the weights that both means, which are `trial` and
    `direction`, still give to their start; (0,) for L-BFGS.
    """
    order: IntArray
    """int64 (rows,), in which a pass takes them; (0,) for L-BFGS."""
    batch_x: SingleArray
    """float32 (strips of a batch, width, 16), as `x` of a problem; like the next three (0,) for L-BFGS."""
    batch_weight: SingleArray
    """float32 (strips of a batch, 16), as `weight`."""
    batch_goals: SingleArray
    """float32 (strips of a batch, n_outputs, 4, 16), as `goals`."""
    batch_offset: SingleArray
    """float32 (strips of a batch, n_outputs, 16), as `offset`."""


@taken_by(REFINEMENT)
class Arguments(NamedTuple):
    """The arguments of compiled code: `refine` of native/refinement.cpp."""

    p: Problem
    room: Room


class Search(NamedTuple):
    """Rows, and a pool in which their nearest are searched: native/neighbours.h. The number of rows is a
    multiple of AT_ONCE.
    """

    columns: int
    """Features of `given` and `source`."""
    n_features: int
    """Those with a factor."""
    n_pool: int
    """Rows of the pool without padding."""
    k: int
    room: int
    """Candidates that a row has room for."""
    tile_strips: int
    """Strips of the pool that stay in a cache while all rows are compared with them."""
    given: SingleArray
    """float32 (n_rows, columns)."""
    source: SingleArray
    """float32 (n_pool, columns)."""
    root: SingleArray
    """float32 (padded columns,), √w, and zeros."""
    used: IntArray
    """int64 (n_features,), the columns with a factor."""
    rows: SingleArray
    """float32 (n_rows, n_features), −2 times the rows, times √w."""
    pool_row: IntArray
    """int64 (n_rows,), the row's number in the pool, or −1."""
    pool: SingleArray
    """float32 (n_strips, n_features + 1, 16): features times √w, and their squares."""
    held: IntArray
    """int64 (n_rows,), how many candidates each row has."""
    limit: SingleArray
    """float32 (n_rows,), the largest distance of a new candidate."""
    distance: SingleArray
    """float32 (n_rows, room), of candidates, less |a|²; then the squared distances of the nearest."""
    number: NDArray[np.int32]
    """int32 (n_rows, room), their numbers in the pool."""


@taken_by(REFINEMENT, "nearest")
class SearchArguments(NamedTuple):
    """The arguments of `nearest` of native/refinement.cpp."""

    search: Search


class Learning(NamedTuple):
    """A pool whose factors are learned from anchors among its rows: native/scaling.h."""

    classes: bool
    """Whether targets are classes."""
    rounds: int
    steps: int
    """Steps of a round."""
    n_anchors: int
    """Of a round."""
    batch: int
    """Anchors of a step: a round takes them one batch after the other, again and again."""
    pace: float
    pull: float
    floor: float
    """Least probability of a row."""
    anchors: IntArray
    """int64 (rounds, n_anchors)."""
    target: FloatArray
    """float64 (n_pool,)."""
    weight: FloatArray
    """float64 (n_pool,)."""
    first: FloatArray
    """float64 (columns,), log w at the start."""
    log_w: FloatArray
    """float64 (columns,)."""
    slope: FloatArray
    """float64 (columns,), mean gradients."""
    square: FloatArray
    """float64 (columns,), mean squares of gradients."""
    mean: FloatArray
    """float64 (columns,), of log w."""
    squares: SingleArray
    """float32 (n_anchors, columns, MOST_NEAR), squared differences of anchors from their neighbours."""
    near_weight: SingleArray
    """float32 (n_anchors, MOST_NEAR), of neighbours, and zeros."""
    near_target: FloatArray
    """float64 (n_anchors, MOST_NEAR), of neighbours; of classes whether it is that of the anchor."""
    sums: SingleArray
    """float32 (columns, 16), whose sums over lanes are derivatives by w."""
    search: Search


@taken_by(REFINEMENT, "learn")
class LearningArguments(NamedTuple):
    """The arguments of `learn` of native/refinement.cpp."""

    learning: Learning


class Predictions(NamedTuple):
    """What the neighbours of rows predict at some widths of the kernel: native/scaling.h."""

    k: int
    squares: SingleArray
    """float32 (n, k), squared distances."""
    weight: SingleArray
    """float32 (n, k), weights of the neighbours."""
    target: FloatArray
    """float64 (n, k), their targets."""
    widths: FloatArray
    """float64 (n_widths,), factors of squared distances."""
    predicted: FloatArray
    """float64 (n_widths, n)."""


@taken_by(REFINEMENT, "predict")
class PredictionArguments(NamedTuple):
    """The arguments of `predict` of native/refinement.cpp."""

    predictions: Predictions


class Clustering(NamedTuple):
    """Rows with weights, and what k-means works with: native/clusters.h."""

    n_features: int
    width: int
    """Columns of a row: features with padding of 0."""
    k: int
    trials: int
    """Draws for each centre of k-means++; 0 where rows are drawn by weight."""
    steps: int
    """Of Lloyd, at most."""
    tolerance: float
    """The sum of squared ways of centres after which they stay, in mean variances of a feature."""
    rows: SingleArray
    """float32 (n, width)."""
    weight: FloatArray
    """float64 (n,)."""
    draws: FloatArray
    """float64 (k, trials), between 0 and 1, or (n,), exponential."""
    first: IntArray
    """int64 (k,), the rows that centres begin at."""
    strips: SingleArray
    """float32 (n_strips, n_features, 16): the rows less `middle`."""
    middle: FloatArray
    """float64 (width,), the mean of the rows."""
    factors: SingleArray
    """float32 (padded k / 8, n_features + 1, 8): −2 times the centres less `middle`, and their squares."""
    label: NDArray[np.int32]
    """int32 (n_strips · 16,), the nearest centre."""
    closest: SingleArray
    """float32 (n,), of k-means++ squared distances from the nearest centre so far; else draws over
    weights.
    """
    distance: SingleArray
    """float32 (n_strips · 16,), of k-means++ squared distances from a candidate; else (0,)."""
    sums: FloatArray
    """float64 (k, width), of the rows of a centre."""
    totals: FloatArray
    """float64 (k,), their weights."""
    centres: FloatArray
    """float64 (k, width)."""


@taken_by(REFINEMENT, "cluster")
class ClusteringArguments(NamedTuple):
    """The arguments of `cluster` of native/refinement.cpp."""

    clustering: Clustering


def neighbours(
    A: SingleArray, pool_row: IntArray | None, pool: SingleArray, w: FloatArray, k: int
) -> tuple[IntArray, SingleArray]:
    """Do what learned_scaling.neighbours does."""
    search = new_search(len(A), pool, w, k)
    search.given[: A.size] = A.ravel()
    if pool_row is not None:
        search.pool_row[: len(A)] = pool_row
    prepared(REFINEMENT, SearchArguments(search))()
    numbers, squares = search.number.reshape(-1, search.room), search.distance.reshape(-1, search.room)
    return numbers[: len(A), :k].astype(np.int64), squares[: len(A), :k].copy()


def new_search(n_rows: int, pool: SingleArray, w: FloatArray, k: int) -> Search:
    """A search of the k nearest rows of the pool for so many rows, which are still 0."""
    (n, d), used = pool.shape, np.flatnonzero(w > 0)
    n_rows, room = padded(n_rows, AT_ONCE), padded(4 * (k + 1), 2 * LANES)
    root = np.zeros(padded(d, LANES), MODEL_DTYPE)
    root[:d] = np.sqrt(w)
    return Search(
        columns=d,
        n_features=len(used),
        n_pool=n,
        k=k,
        room=room,
        tile_strips=max(TILE_NUMBERS // ((len(used) + 1) * LANES), 1),
        given=np.zeros(n_rows * d, MODEL_DTYPE),
        source=np.ascontiguousarray(pool, MODEL_DTYPE).reshape(-1),
        root=root,
        used=used,
        rows=np.empty(n_rows * len(used), MODEL_DTYPE),
        pool_row=np.full(n_rows, -1),
        pool=aligned_empty(padded(n, LANES) * (len(used) + 1), MODEL_DTYPE),
        held=np.zeros(n_rows, np.int64),
        limit=np.zeros(n_rows, MODEL_DTYPE),
        distance=np.empty(n_rows * room, MODEL_DTYPE),
        number=np.empty(n_rows * room, np.int32),
    )


def learned_factors(
    pool: SingleArray,
    target: FloatArray,
    weight: FloatArray,
    start: FloatArray,
    anchors: IntArray,
    k: int,
    steps: int,
    batch: int,
    pace: float,
    pull: float,
    floor: float | None,
) -> FloatArray:
    """Do what learned_scaling.mean_factors does from log w = `start`.

    floor  of probabilities; None where targets are values
    """
    d, m = pool.shape[1], anchors.shape[1]
    learning = Learning(
        classes=floor is not None,
        rounds=len(anchors),
        steps=steps,
        n_anchors=m,
        batch=min(batch, m),
        pace=pace,
        pull=pull,
        floor=floor or 0.0,
        anchors=anchors.reshape(-1),
        target=target.astype(ACC_DTYPE),
        weight=weight.astype(ACC_DTYPE),
        first=start,
        log_w=start.copy(),
        slope=np.zeros(d),
        square=np.zeros(d),
        mean=np.zeros(d),
        squares=np.zeros(m * d * MOST_NEAR, MODEL_DTYPE),
        near_weight=np.zeros(m * MOST_NEAR, MODEL_DTYPE),
        near_target=np.zeros(m * MOST_NEAR),
        sums=np.zeros(d * LANES, MODEL_DTYPE),
        search=new_search(m, pool, np.ones(d), k),
    )
    prepared(REFINEMENT, LearningArguments(learning))()
    return learning.mean


def predicted(squares: SingleArray, weight: FloatArray, target: FloatArray, widths: FloatArray) -> FloatArray:
    """What neighbours predict for rows at each width, (n_widths, n).

    squares, weight, target  (n, k), of the neighbours
    """
    n, k = squares.shape
    predictions = Predictions(
        k=k,
        squares=np.ascontiguousarray(squares, MODEL_DTYPE).reshape(-1),
        weight=np.ascontiguousarray(weight, MODEL_DTYPE).reshape(-1),
        target=np.ascontiguousarray(target, ACC_DTYPE).reshape(-1),
        widths=np.asarray(widths, ACC_DTYPE),
        predicted=np.empty(len(widths) * n),
    )
    prepared(REFINEMENT, PredictionArguments(predictions))()
    return predictions.predicted.reshape(len(widths), n)


def clusters(
    X: SingleArray, weight: FloatArray, k: int, draws: FloatArray, steps: int, still: float
) -> FloatArray:
    """Do what clusters.definition does."""
    clustering = new_clustering(X, weight, k, draws, steps, still)
    prepared(REFINEMENT, ClusteringArguments(clustering))()
    return clustering.centres.reshape(k, -1)[:, : X.shape[1]]


def new_clustering(
    X: SingleArray, weight: FloatArray, k: int, draws: FloatArray, steps: int, still: float
) -> Clustering:
    (n, d), trials = X.shape, draws.shape[1] if draws.ndim == 2 else 0
    width, lanes = padded(max(d, 1), LANES), padded(n, LANES)
    rows = np.zeros((n, width), MODEL_DTYPE)
    rows[:, :d] = X
    return Clustering(
        n_features=d,
        width=width,
        k=k,
        trials=trials,
        steps=steps,
        tolerance=still,
        rows=rows.reshape(-1),
        weight=weight.astype(ACC_DTYPE),
        draws=draws.reshape(-1),
        first=np.zeros(k, np.int64),
        strips=aligned_empty(lanes * d, MODEL_DTYPE),
        middle=np.zeros(width),
        factors=np.empty(padded(k, AT_ONCE) * (d + 1), MODEL_DTYPE),
        label=np.empty(lanes, np.int32),
        closest=np.empty(n, MODEL_DTYPE),
        distance=aligned_empty(lanes if trials else 0, MODEL_DTYPE),
        sums=np.zeros(k * width),
        totals=np.zeros(k),
        centres=np.zeros(k * width),
    )


def check() -> None:
    """Compile what refines leaves, unless that is done, and load it. Raises CompilerError."""
    load(REFINEMENT)


def minimise(
    objective: Objective, steps: int, tolerance: float, known: Arguments | None = None
) -> FloatArray:
    """Do what lbfgs.minimise does from objective.origin, for a basis without triangle points. The bits do not
    depend on the number of threads. Raises RefusedError where the bitcode has other sources.

    known  arguments for the same rows, targets and basis, which are used up
    """
    given = arguments(objective, 0, 0.0) if known is None else known
    given.room.x[: len(objective.origin)] = objective.origin
    p = given.p._replace(
        steps=steps,
        tolerance=float(tolerance),
        scale=float(objective.scale),
        stiff=objective.stiff,
        rest_point=objective.rest_point,
        loss_numbers=np.array(objective.goal.loss.numbers(), np.float64),
    )
    return call(given._replace(p=p)).x[: len(objective.origin)]


def value(objective: Objective, theta: FloatArray) -> float:
    """The value of the objective at θ."""
    handed = arguments(objective, 0, 0.0)
    handed.room.x[: len(theta)] = theta
    return float(call(handed).value[0])


def stochastic(
    objective: Objective, rates: FloatArray, n_batches: int, orders: Iterable[IntArray], steps: int
) -> FloatArray:
    """Do what refinement.stochastic does from objective.origin: a pass for each order of the rows.

    rates      float64 (n_unknowns,), length of a step
    n_batches  of a pass
    steps      of all passes
    """
    handed = arguments(objective, steps, 0.0, rates, n_batches)
    run = prepared(REFINEMENT, handed)
    for order in orders:
        handed.room.order[:] = order
        run()
    return handed.room.x[: len(objective.origin)]


def call(handed: Arguments) -> Room:
    """Run compiled code; returns its workspace."""
    prepared(REFINEMENT, handed)()
    return handed.room


class RowStrips(NamedTuple):
    """Rows as a problem has them."""

    middle: RealArray
    """(n_features,), their mean."""
    x: SingleArray
    """Problem.x."""


def row_strips(X: RealArray, laid: Callable[[RealArray, int], SingleArray] | None = None) -> RowStrips:
    """Rows (n, n_features), for all problems of a leaf; `laid` is in_strips or in_rows."""
    n, d = X.shape
    middle = X.mean(axis=0)
    extended = np.empty((n, d + 2), X.dtype)
    centred = np.subtract(X, middle, out=extended[:, :d])
    extended[:, d] = np.einsum("ij,ij->i", centred, centred)
    extended[:, d + 1] = 1
    return RowStrips(middle, (laid or in_strips)(extended, _used(d) | 1))


def _used(n_features: int) -> int:
    return padded(n_features + 2, LANES // AT_ONCE)


def arguments(
    objective: Objective,
    steps: int,
    tolerance: float,
    rates: FloatArray | None = None,
    n_batches: int = 0,
    strips: RowStrips | None = None,
    has_goals: bool = True,
) -> Arguments:
    """The arguments of compiled code for a search from objective.origin, or for passes of stochastic steps.
    Fields that those need only are empty for a search.

    strips     of the rows, where they are known
    has_goals  whether the loss is needed
    """
    X, goal, pairs = objective.X, objective.goal, objective.basis.pairs
    n, d = X.shape
    m, k = len(objective.start), objective.shape[1]
    laid = in_rows if n_batches else in_strips
    (middle, x), machine = strips or row_strips(X, laid), objective.machine
    used = _used(d)
    n_padded = padded(m, AT_ONCE)
    terms = n_padded + padded(len(pairs), AT_ONCE)
    assert terms % UNROLLED == 0
    _, beta_at, intercept_at, gamma_at, factor_at, n_unknowns = objective.at
    p = Problem(
        n_strips=padded(n, LANES) // LANES,
        tile_strips=TILE_STRIPS,
        n_features=d,
        width=used | 1,
        columns=used,
        n_landmarks=m,
        padded=n_padded,
        n_pairs=len(pairs),
        terms=terms,
        k_stride=terms | 1,
        n_outputs=k,
        f_stride=padded(k, LANES // AT_ONCE),
        n_unknowns=n_unknowns,
        beta_at=beta_at,
        intercept_at=intercept_at,
        gamma_at=gamma_at,
        factor_at=factor_at,
        kernel=FAMILIES.index(objective.basis.kernel.family),
        own_factors=objective.own_factors,
        steps=steps,
        n_batches=n_batches,
        tolerance=float(tolerance),
        scale=float(objective.scale),
        share=float(goal.share),
        nearness=NEARNESS / machine.squared_norm if machine else 0.0,
        machine_gamma=float(machine.kernel.gamma) if machine else 0.0,
        loss=goal.loss.native,
        log_gamma=LOG_GAMMA,
        log_factor=LOG_FACTOR,
        x=x,
        shape=np.array(objective.basis.kernel.shape, ACC_DTYPE),
        loss_numbers=np.array(goal.loss.numbers(), np.float64),
        weight=in_strips(goal.weight[:, None], 1),
        goals=laid(intervals(goal).reshape(n, -1), 4 * k) if has_goals else np.empty(0, MODEL_DTYPE),
        offset=np.empty(0, MODEL_DTYPE) if goal.offset is None else laid(goal.offset, k),
        middle=middle.astype(ACC_DTYPE),
        points=in_strips(machine.points - middle, d) if machine else np.empty(0, MODEL_DTYPE),
        point_weights=in_strips(machine.weights, k) if machine else np.empty(0, MODEL_DTYPE),
        gamma=objective.gamma.astype(ACC_DTYPE),
        left=pairs[:, 0].astype(np.int64),
        right=pairs[:, 1].astype(np.int64),
        stiff=objective.stiff,
        rest_point=objective.rest_point,
        rates=np.empty(0) if rates is None else rates,
    )
    room = new_room(p, n)
    room.x[:n_unknowns] = objective.origin
    return Arguments(p, room)


def padded(n: int, to: int) -> int:
    """n, filled up to a multiple."""
    return -(-n // to) * to


def in_strips(rows: NDArray[np.floating], width: int) -> SingleArray:
    """Rows (n, at most `width`) as strips of `width` columns, filled up with 0."""
    (n, used), whole = rows.shape, len(rows) // LANES
    n_strips = padded(n, LANES) // LANES
    flat = aligned_zeros({"strips": (MODEL_DTYPE, n_strips * width * LANES)})["strips"]
    strips = flat.reshape(n_strips, width, LANES)
    strips[:whole, :used] = rows[: whole * LANES].reshape(whole, LANES, used).transpose(0, 2, 1)
    if whole < len(strips):
        strips[whole, :used, : n % LANES] = rows[whole * LANES :].T
    return flat


def in_rows(rows: NDArray[np.floating], width: int) -> SingleArray:
    """Rows (n, at most `width`) one after the other, filled up with 0 to a multiple of LANES columns."""
    filled = np.zeros((len(rows), padded(width, LANES)), MODEL_DTYPE)
    filled[:, : rows.shape[1]] = rows
    return filled.reshape(-1)


def intervals(goal: Goal) -> SingleArray:
    """(n, k, 4): both ends of the interval of the target, and of the distillation target."""
    distilled = beyond_one(goal.distilled) if goal.share else goal.loss.intervals(goal.target)
    return np.stack([*goal.loss.intervals(goal.target), *distilled], axis=-1).astype(MODEL_DTYPE)


def new_room(p: Problem, n_rows: int) -> Room:
    unknowns = padded(p.n_unknowns, 2 * LANES)
    strips = padded(-(-n_rows // p.n_batches), LANES) // LANES if p.n_batches else 0

    def singles(*shape: int) -> tuple[type[np.generic], int]:
        return MODEL_DTYPE, prod(shape)

    def doubles(*shape: int) -> tuple[type[np.generic], int]:
        return ACC_DTYPE, prod(shape)

    sizes: dict[str, tuple[type[np.generic], int]] = dict(
        factors=singles(p.padded, p.n_features + 2),
        beta=singles(p.n_outputs, p.terms),
        intercept=singles(p.n_outputs),
        K=singles(p.tile_strips, p.k_stride, LANES),
        falls=singles(0 if FAMILIES[p.kernel].fall_by_value else p.tile_strips, p.k_stride, LANES),
        f=singles(p.tile_strips, p.f_stride, LANES),
        powers=singles(p.n_outputs, LANES),
        pulled=singles(p.terms, LANES),
        gamma=doubles(p.n_landmarks),
        square=doubles(p.n_landmarks),
        squares=singles(p.n_features),
        coefficients=singles(p.padded),
        by_row=singles(p.tile_strips, LANES),
        square_sums=doubles(p.n_features),
        slopes=doubles(p.n_outputs),
        sums=doubles(p.padded, max(p.columns, 2 * p.n_features)),
        beta_sums=doubles(p.terms, p.f_stride),
        x=doubles(unknowns),
        gradient=doubles(unknowns),
        trial=doubles(unknowns),
        at_trial=doubles(unknowns),
        direction=doubles(unknowns),
        moves=doubles(SPARE_PAIRS, unknowns),
        changes=doubles(SPARE_PAIRS, unknowns),
        inverse=doubles(SPARE_PAIRS),
        along=doubles(SPARE_PAIRS),
        value=doubles(1),
        adam=doubles(3 if p.n_batches else 0),
        order=(np.int64, n_rows if p.n_batches else 0),
        batch_x=singles(strips, p.width, LANES),
        batch_weight=singles(strips, LANES),
        batch_goals=singles(strips, p.n_outputs, 4, LANES),
        batch_offset=singles(strips if p.offset.size else 0, p.n_outputs, LANES),
    )
    room = Room(**aligned_zeros(sizes))
    room.adam[1:] = 1.0
    return room
