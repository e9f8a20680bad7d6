"""What the refinement of a leaf starts from, in machine code: landmarks, and output weights by ridge
regression (native/ridge.h; the definition is tests/support/start_definition.py).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.engine.layout import LANES, aligned_zeros
from dcpred_tasks.engine.machine_code import prepared
from dcpred_tasks.engine.native_modules import REFINEMENT, taken_by
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.training.clusters import STEPS, STILL
from dcpred_tasks.training.compiled_refinement import (
    Clustering,
    Problem,
    Room,
    RowStrips,
    arguments,
    in_strips,
    new_clustering,
    padded,
)
from dcpred_tasks.training.losses import Squares
from dcpred_tasks.training.objective import Goal, Objective


class Ridge(NamedTuple):
    """Targets and weights of rows, and what their ridge regression works with; n_terms output weights and
    intercepts of each output.
    """

    ridge: float
    """What is added to squares of output weights."""
    floor: float
    """Share of uniform weight among the weights of rows of the second k-means."""
    stride: int
    """Columns of a strip of `weighted`."""
    weight: SingleArray
    """float32 (n_strips, 16), 0 for padding."""
    target: SingleArray
    """float32 (n_strips, n_outputs, 16)."""
    sign: SingleArray
    """float32 (n_strips, n_outputs, 16), ±1 of classes: slack has this sign; (0,) for values."""
    weighted: SingleArray
    """float32 (tile_strips, stride, 16): kernel values, products, 1 and targets, times weights."""
    sums: FloatArray
    """float64 (terms / 8, stride / 2, 2, 8): Σ K_j of these."""
    system: FloatArray
    """float64 (n_terms, n_terms), its lower half."""
    factor: FloatArray
    """float64 (n_terms, padded n_terms): Cholesky's."""
    right: FloatArray
    """float64 (n_terms, n_outputs), then the solution."""
    values: SingleArray
    """float32 (n_strips, n_outputs, 16), of the solution."""
    squares: FloatArray
    """float64 (n,), of the slack of rows."""


@taken_by(REFINEMENT, "fit_ridge")
class RidgeArguments(NamedTuple):
    """The arguments of `fit_ridge` of native/refinement.cpp."""

    p: Problem
    room: Room
    ridge: Ridge


@taken_by(REFINEMENT, "place_landmarks")
class BeginningArguments(NamedTuple):
    """The arguments of `place_landmarks` of native/refinement.cpp."""

    p: Problem
    room: Room
    ridge: Ridge
    clustering: Clustering


class Start:
    """The ridge regressions of rows at one basis, without triangle points, from whose solution refinement
    goes on with the same `arguments`.
    """

    def __init__(self, objective: Objective, ridge: float, strips: RowStrips | None = None) -> None:
        """Output weights and intercepts of the objective do not count; `strips` are those of its rows, where
        they are known.
        """
        self.objective, self.n_rows = objective, len(objective.X)
        self.arguments = arguments(objective, 0, 0.0, strips=strips)
        self.ridge = _ridge(self.arguments.p, self.n_rows, ridge)
        self.run = prepared(REFINEMENT, RidgeArguments(*self.arguments, self.ridge))

    def solve(
        self, target: FloatArray, weight: FloatArray
    ) -> tuple[tuple[FloatArray, FloatArray], Callable[[], FloatArray]]:
        """β and intercepts of min Σ weight_i |c̄_i β + b − y_i|² + ridge ‖β‖², and a function of the values.

        target (n, k) · weight (n,)
        """
        k = target.shape[1]
        self.ridge.weight[:] = in_strips(weight[:, None], 1)
        self.ridge.target[:] = in_strips(target, k)
        self.run()
        (_, beta_at, intercept_at, gamma_at, *_), theta = self.objective.at, self.arguments.room.x
        beta = theta[beta_at:intercept_at].reshape(self.objective.shape) * self.objective.scale
        return (beta, theta[intercept_at:gamma_at].copy()), lambda: self._values(k)

    def _values(self, k: int) -> FloatArray:
        values = self.ridge.values.reshape(-1, k, LANES).transpose(0, 2, 1).reshape(-1, k)
        return values[: self.n_rows].astype(ACC_DTYPE)


def landmarks(
    basis: LeafBasis,
    X: SingleArray,
    target: FloatArray,
    sign: FloatArray | None,
    weight: FloatArray,
    share: FloatArray,
    draws: FloatArray,
    ridge: float,
    floor: float,
    strips: RowStrips | None = None,
) -> FloatArray:
    """As many landmarks (m, n_features) as the basis has: k-means by weight, whose ridge regression leaves a
    slack to each row, and again by the squares of that.

    sign   (n, k), of classes, which slack must have; None for values
    weight (n,), of the regression, of sum 1
    share  (n,), the same of k-means, the largest 1
    draws  (n,), exponential: rows of the least draws over weights are where centres begin
    strips  of the rows, where they are known
    """
    goal = Goal(*2 * (target.astype(MODEL_DTYPE),), 0.0, weight.astype(MODEL_DTYPE), Squares())
    p, room = arguments(unfitted(X, basis, goal), 0, 0.0, strips=strips, has_goals=False)
    regression = _ridge(p, len(X), ridge, floor)._replace(
        weight=p.weight,
        target=in_strips(target, p.n_outputs),
        sign=np.empty(0, MODEL_DTYPE) if sign is None else in_strips(sign, p.n_outputs),
    )
    clustering = new_clustering(X, share, p.n_landmarks, draws, STEPS, STILL)
    prepared(REFINEMENT, BeginningArguments(p, room, regression, clustering))()
    return room.x[: p.beta_at].reshape(p.n_landmarks, p.n_features)


def unfitted(
    X: SingleArray, basis: LeafBasis, goal: Goal, ridge: float = 0.0, own_factors: bool = False
) -> Objective:
    """An objective whose output weights are still 0."""
    k = goal.target.shape[1]
    return Objective(X, basis, np.zeros((basis.size, k)), np.zeros(k), goal, ridge, own_factors)


def _ridge(p: Problem, n_rows: int, ridge: float, floor: float = 0.0) -> Ridge:
    k, n_terms = p.n_outputs, p.n_landmarks + p.n_pairs + 1
    stride = p.terms + padded(1 + k, 2)
    hot = aligned_zeros(
        {"weighted": (MODEL_DTYPE, p.tile_strips * stride * LANES), "sums": (ACC_DTYPE, p.terms * stride)}
    )
    return Ridge(
        ridge=ridge,
        floor=floor,
        stride=stride,
        weight=np.zeros(p.n_strips * LANES, MODEL_DTYPE),
        target=np.zeros(p.n_strips * k * LANES, MODEL_DTYPE),
        sign=np.empty(0, MODEL_DTYPE),
        **hot,
        system=np.zeros(n_terms * n_terms),
        factor=np.zeros(n_terms * padded(n_terms, LANES)),
        right=np.zeros(n_terms * k),
        values=np.zeros(p.n_strips * k * LANES, MODEL_DTYPE),
        squares=np.zeros(n_rows),
    )
