"""Refinement by NumPy: the definition that machine code is held to. Value and gradient of `Objective`, and
the stochastic steps on it; the search is training/lbfgs.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, RealArray
from dcpred_tasks.model.kernels import Kernel, Sum
from dcpred_tasks.training.objective import (
    LOG_FACTOR,
    LOG_GAMMA,
    NEARNESS,
    Expansion,
    Goal,
    Objective,
    _slope,
)
from dcpred_tasks.training.refinement import MEAN_DECAY, SQUARE_DECAY, TINY

Slope = Callable[[RealArray], tuple[RealArray, RealArray, Callable[[], RealArray]]]
Differentiable = Callable[[RealArray, RealArray], tuple[RealArray, Slope]]
Pull = Callable[[RealArray], tuple[RealArray, RealArray, Callable[[], RealArray], RealArray]]
Weighted = Callable[[RealArray, RealArray, RealArray], tuple[RealArray, Pull]]


class Definition(Objective):
    """An objective that can be evaluated."""

    def _weighted(self, X: RealArray) -> Weighted:
        return weighted_sums(self.basis.kernel, X, self.basis.pairs)

    @cached_property
    def _values(self) -> Weighted:
        return self._weighted(self.X)

    def __call__(self, theta: RealArray) -> tuple[float, RealArray]:
        """Value and gradient."""
        return self._at(theta, self.X, self.goal)

    def some(self, theta: RealArray, rows: IntArray) -> RealArray:
        """The gradient, estimated from some of the rows."""
        return self._at(theta, self.X[rows], goal_of(self.goal, rows))[1]

    def _at(self, theta: RealArray, X: RealArray, goal: Goal) -> tuple[float, RealArray]:
        U, beta, b, gamma, factor = self.parts(theta)
        if self.own_factors:
            U, values = U * factor, self._weighted(X * factor)
        else:
            values = self._values if X is self.X else self._weighted(X)
        sums, pull = values(U, gamma, beta)
        value, df = goal_value(goal, sums + b if goal.offset is None else sums + b + goal.offset)
        dU, d_log_gamma, d_log_factor, d_beta = pull(df)
        moved = theta - self.rest_point
        pulled = self.stiff * moved
        gradient = 2.0 * pulled
        first, second, third, last, end = self.at[1:]
        gradient[:first] += (dU * factor if self.own_factors else dU).ravel()
        gradient[first:second] += d_beta.ravel() * self.scale
        gradient[second:third] += df.sum(axis=0)
        if self.machine is None:
            gradient[third:last] += np.where(np.abs(theta[third:last]) < LOG_GAMMA, d_log_gamma, 0.0)
        else:
            share = NEARNESS / self.machine.squared_norm
            off, by_landmarks, by_beta = error_and_slopes(
                self.machine, U.astype(ACC_DTYPE), beta.astype(ACC_DTYPE)
            )
            value += share * off + NEARNESS
            gradient[:first] += share * by_landmarks.ravel()
            gradient[first:second] += share * by_beta.ravel() * self.scale
        if self.own_factors:
            gradient[last:end] += np.where(np.abs(theta[last:end]) < LOG_FACTOR, d_log_factor(), 0.0)
        return value + float(pulled @ moved), gradient


def goal_of(goal: Goal, rows: IntArray) -> Goal:
    """The goal of some rows, with weights that represent all."""
    more = goal.weight.dtype.type(len(goal.weight) / len(rows))
    own = {name: getattr(goal, name)[rows] for name in ("target", "distilled")}
    offset = None if goal.offset is None else goal.offset[rows]
    return replace(goal, **own, weight=goal.weight[rows] * more, offset=offset)


def goal_value(goal: Goal, f: RealArray) -> tuple[float, RealArray]:
    """Σ w ℓ(f), and its derivative by f, (n, k)."""
    w = goal.weight[:, None]
    loss, slope = goal.loss(f, goal.target)
    if goal.share == 0.0:
        return float((w * loss).sum()), w * slope
    off = np.where(
        goal.distilled > 1,
        np.minimum(f - 1, 0),
        np.where(goal.distilled < -1, np.maximum(f + 1, 0), f - goal.distilled),
    )
    value = float((w * ((1 - goal.share) * loss + goal.share * off**2)).sum())
    return value, w * ((1 - goal.share) * slope + 2 * goal.share * off)


def differentiable(kernel: Kernel, X: RealArray) -> Differentiable:
    """A function from U (m, d) and γ (m,) to K (n, m), and to a function from ∂L/∂K (n, m) to ∂L/∂U,
    ∂L/∂log γ (m,), and a function that returns ∂L/∂log s (d,) of factors s that X and U are multiplied with.
    All in the dtype of X.
    """
    of = {Sum.PRODUCTS: _of_products, Sum.SQUARES: _of_squares, Sum.ABSOLUTE: _of_absolute}
    return of[kernel.family.sum](kernel, X)


def _falling(kernel: Kernel, t: RealArray) -> tuple[RealArray, Callable[[], RealArray]]:
    """κ(t), in the place of t where that is not needed any more, and a function that returns −κ'(t)."""
    family = kernel.family
    K = family.value(t if family.fall_by_value else t.copy(), kernel)
    return K, lambda: family.fall(t, K, kernel)


def _of_squares(kernel: Kernel, X: RealArray) -> Differentiable:
    """−t as one product, [x, |x|², 1] · [2γu, −γ, −γ|u|²], accurate about the middle of the rows."""
    middle = X.mean(axis=0)
    centred = X - middle
    extended = np.column_stack([centred, np.einsum("ij,ij->i", centred, centred), np.ones(len(X), X.dtype)])

    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        V = U - middle
        v2 = (V * V).sum(axis=1)
        factor = np.column_stack([2 * gamma[:, None] * V, -gamma, -gamma * v2])
        t = extended @ factor.T
        np.minimum(t, 0, out=t)
        K, fall = _falling(kernel, np.negative(t, out=t))

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            by_t = dK * fall()
            sums = by_t.T @ extended
            D_x, D_x2, D = sums[:, :-2], sums[:, -2], sums[:, -1]

            def by_factors() -> RealArray:
                of_x = (by_t @ gamma) @ (centred * centred)
                of_u = (gamma[:, None] * V * (2 * D_x - D[:, None] * V)).sum(axis=0)
                return np.asarray(-2 * (of_x - of_u))

            return (
                2 * gamma[:, None] * (D_x - D[:, None] * V),
                gamma * (2 * (V * D_x).sum(axis=1) - D_x2 - v2 * D),
                by_factors,
            )

        return K, slope

    return value_and_slope


def _of_absolute(kernel: Kernel, X: RealArray) -> Differentiable:
    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        r = np.zeros((len(X), len(U)), X.dtype)
        for f in range(X.shape[1]):
            r += np.abs(X[:, f, None] - U[None, :, f])
        K, fall = _falling(kernel, gamma * r)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            D = dK * fall() * gamma
            signs = [(D * np.sign(X[:, f, None] - U[None, :, f])).sum(axis=0) for f in range(X.shape[1])]

            def by_factors() -> RealArray:
                away = [(D * np.abs(X[:, f, None] - U[None, :, f])).sum() for f in range(X.shape[1])]
                return -np.array(away, X.dtype)

            return np.stack(signs, axis=1), -(D * r).sum(axis=0), by_factors

        return K, slope

    return value_and_slope


def _of_products(kernel: Kernel, X: RealArray) -> Differentiable:
    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        products = X @ U.T
        K, fall = _falling(kernel, gamma * products)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            D = dK * (gamma * fall())
            dU = -(D.T @ X)
            return dU, -(D * products).sum(axis=0), lambda: np.asarray(2 * (U * dU).sum(axis=0))

        return K, slope

    return value_and_slope


def weighted_sums(kernel: Kernel, X: RealArray, pairs: NDArray[np.int32]) -> Weighted:
    """Σ_q β_q c̄_q(x) of landmarks and then products, as a function of the refined arrays.

    From landmarks (m, n_features), their γ (m,) and β (size, k) to f (n, k), and to a function from ∂L/∂f to
    ∂L/∂landmarks, ∂L/∂log γ, a function that returns ∂L/∂log of factors of rows and landmarks (n_features,),
    and ∂L/∂β, all in the dtype of X. Products go as quadratic forms, far less work than one by one: Q
    symmetric (m, m) of each output, with ½ cᵀ Q c = Σ_q β_q c_i c_j.
    """
    values = differentiable(kernel, X)
    i, j = pairs[:, 0], pairs[:, 1]

    def sums_and_pull(U: RealArray, gamma: RealArray, beta: RealArray) -> tuple[RealArray, Pull]:
        m = len(U)
        c, slope_of = values(U, gamma)
        first, mixed = beta[:m], []
        for weights in beta[m:].T if len(pairs) else ():
            Q = np.zeros((m, m), X.dtype)
            np.add.at(Q, (i, j), weights)
            mixed.append(c @ (Q + Q.T))
        f = c @ first
        for output, part in enumerate(mixed):
            f[:, output] += 0.5 * (part * c).sum(axis=1)

        def pull(df: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray], RealArray]:
            dc = df * first[:, 0] if df.shape[1] == 1 else df @ first.T
            for output, part in enumerate(mixed):
                dc += df[:, output, None] * part
            of_pairs = [((c * df[:, output, None]).T @ c)[i, j] for output in range(len(mixed))]
            d_beta = [c.T @ df, *([np.stack(of_pairs, axis=1)] if mixed else [])]
            return *slope_of(dc), np.concatenate(d_beta)

        return f, pull

    return sums_and_pull


def error_and_slopes(w: Expansion, Z: FloatArray, B: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """E(Z, B) − ‖w‖², and its derivatives by Z and by B. For rbf

    ∂E/∂z_j = −4γ Σ_k β_jk [ Σ_i α_ik K(z_j, x_i) (x_i − z_j) − Σ_l β_lk K(z_j, z_l) (z_l − z_j) ].
    """
    K_x, K_z = w.kernel(Z, w.points), w.kernel(Z, Z)
    right, own = K_x @ w.weights, K_z @ B
    value = -float((B * (2 * right - own)).sum())
    return value, _slope(w, Z, B, K_x, K_z), 2 * (own - right)


def adam(
    objective: Definition, rates: FloatArray, n_batches: int, orders: Iterable[IntArray], steps: int
) -> FloatArray:
    """θ after a pass for each order of the rows, of so many steps in all."""
    theta, step = objective.origin.copy(), 0
    mean, square = np.zeros_like(theta), np.zeros_like(theta)
    for order in orders:
        for batch in np.array_split(order, n_batches):
            step += 1
            gradient = objective.some(theta, batch)
            mean += (1 - MEAN_DECAY) * (gradient - mean)
            square += (1 - SQUARE_DECAY) * (gradient * gradient - square)
            rate = min(1.0, 2.0 * (1.0 - step / steps)) / (1 - MEAN_DECAY**step)
            theta -= rate * rates * mean / (np.sqrt(square / (1 - SQUARE_DECAY**step)) + TINY)
    return theta
