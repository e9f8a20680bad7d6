"""Refinement of a leaf in machine code: the search of lbfgs.minimise around refinement.Objective, in one
call.

For every kernel and loss. NumPy needs some 60 small calls for each value and gradient, whose overhead
dominates in small leaves (DECISIONS.md).

The layout of rows is that of native/objective.h: 16 to a strip, with rows as lanes.
"""

from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.engine import described, words
from dcpred_tasks.engine.layout import AT_ONCE, LANES, UNROLLED
from dcpred_tasks.engine.machine_code import Bitcode, made_of, native_sources, own_code
from dcpred_tasks.errors import RefusedError
from dcpred_tasks.model.kernels import FAMILIES
from dcpred_tasks.training.lbfgs import MEMORY
from dcpred_tasks.training.losses import beyond_one
from dcpred_tasks.training.refinement import LOG_FACTOR, LOG_GAMMA, NEARNESS, Goal, Objective

FOLDER = Path(__file__).parent
REFINEMENT = Bitcode(
    folder=FOLDER,
    name="refinement",
    entry="refine",
    sources=(FOLDER / "lbfgs.py", *native_sources("refinement", "objective", "losses", "kernels")),
)
TILE_STRIPS = 16  # strips whose kernel values are held at a time: sums over them are in single precision
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
    scales of the leaf, compiled code writes Σ s² x² in place of |x|².
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


class Arguments(NamedTuple):
    """The arguments of compiled code: `refine` of native/refinement.cpp."""

    p: Problem
    room: Room


def check() -> None:
    """Compile what refines leaves, unless that is done, and load it. Raises CompilerError."""
    own_code(REFINEMENT).entry()
    made_of(REFINEMENT)


def minimise(objective: Objective, steps: int, tolerance: float) -> FloatArray:
    """Do what lbfgs.minimise does from objective.origin, for a basis without triangle points. The bits do not
    depend on the number of threads. Raises RefusedError where the bitcode has other sources.
    """
    found = call(arguments(objective, steps, tolerance))
    return found.x[: len(objective.origin)]


def call(handed: Arguments) -> Room:
    """Run compiled code; returns its workspace."""
    if described(handed) != made_of(REFINEMENT)["arguments"]:
        raise RefusedError(
            f"Cannot refine leaves: refinement.bc was made for other arguments. {REFINEMENT.remake}."
        )
    block = np.array(list(words(handed)), np.int64)
    code = own_code(REFINEMENT).entry()(block.__array_interface__["data"][0])
    if code != 0:
        raise IndexError(f"compiled code left an array, and ended with status {code}")
    return handed.room


def arguments(objective: Objective, steps: int, tolerance: float) -> Arguments:
    """The arguments of compiled code for a search from objective.origin."""
    X, goal, pairs = objective.X, objective.goal, objective.basis.pairs
    n, d = X.shape
    m, k = len(objective.start), objective.shape[1]
    middle, machine = X.mean(axis=0), objective.machine
    centred = X - middle
    used = padded(d + 2, LANES // AT_ONCE)
    own = padded(m, AT_ONCE)
    terms = own + padded(len(pairs), AT_ONCE)
    assert terms % UNROLLED == 0
    extended = np.column_stack([centred, np.einsum("ij,ij->i", centred, centred), np.ones(n, X.dtype)])
    _, beta_at, intercept_at, gamma_at, factor_at, n_unknowns = objective.at
    p = Problem(
        n_strips=padded(n, LANES) // LANES,
        tile_strips=TILE_STRIPS,
        n_features=d,
        width=used | 1,
        columns=used,
        n_landmarks=m,
        padded=own,
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
        tolerance=float(tolerance),
        scale=float(objective.scale),
        share=float(goal.share),
        nearness=NEARNESS / machine.squared_norm if machine else 0.0,
        machine_gamma=float(machine.kernel.gamma) if machine else 0.0,
        loss=goal.loss.native,
        log_gamma=LOG_GAMMA,
        log_factor=LOG_FACTOR,
        x=in_strips(extended, used | 1),
        shape=np.array(objective.basis.kernel.shape, ACC_DTYPE),
        loss_numbers=np.array(goal.loss.numbers(), np.float64),
        weight=in_strips(goal.weight[:, None], 1),
        goals=in_strips(intervals(goal).reshape(n, -1), 4 * k),
        middle=middle.astype(ACC_DTYPE),
        points=in_strips(machine.points - middle, d) if machine else np.empty(0, MODEL_DTYPE),
        point_weights=in_strips(machine.weights, k) if machine else np.empty(0, MODEL_DTYPE),
        gamma=objective.gamma.astype(ACC_DTYPE),
        left=pairs[:, 0].astype(np.int64),
        right=pairs[:, 1].astype(np.int64),
        stiff=objective.stiff,
        rest_point=objective.rest_point,
    )
    room = new_room(p)
    room.x[:n_unknowns] = objective.origin
    return Arguments(p, room)


def padded(n: int, to: int) -> int:
    """n, filled up to a multiple."""
    return -(-n // to) * to


def in_strips(rows: NDArray[np.floating], width: int) -> SingleArray:
    """Rows (n, at most `width`) as strips of `width` columns, filled up with 0."""
    n, used = rows.shape
    filled = np.zeros((padded(n, LANES), width), MODEL_DTYPE)
    filled[:n, :used] = rows
    return np.ascontiguousarray(filled.reshape(-1, LANES, width).transpose(0, 2, 1)).reshape(-1)


def intervals(goal: Goal) -> SingleArray:
    """(n, k, 4): both ends of the interval of the target, and of the distillation target."""
    distilled = beyond_one(goal.distilled) if goal.share else goal.loss.intervals(goal.target)
    return np.stack([*goal.loss.intervals(goal.target), *distilled], axis=-1).astype(MODEL_DTYPE)


def new_room(p: Problem) -> Room:
    unknowns = padded(p.n_unknowns, 2 * LANES)

    def singles(*shape: int) -> SingleArray:
        return np.zeros(prod(shape), MODEL_DTYPE)

    def doubles(*shape: int) -> FloatArray:
        return np.zeros(prod(shape), ACC_DTYPE)

    return Room(
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
    )
