"""Value and gradient of dcpred_tasks.training.refinement.Objective for an rbf kernel."""

import math

from dcpred_tasks.engine.layout import AT_ONCE, LANES
from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.refinement_source.columns import (
    kernel_columns,
    loss_columns,
    outer_sums,
    product_columns,
    pull_columns,
    scale_columns,
    square_columns,
    square_sums,
    weighted_columns,
)
from dcpred_tasks.refinement_source.logistic import logistic_columns

LOG2_E = 1.0 / math.log(2.0)


@inlined
def touch(values, at, n):
    """An IndexError unless values[at : at + n] is there (with bounds checks only)."""
    return values[at], values[at + n - 1]


@inlined
def place_parts(p, room, theta):
    """Factors of kernel values, output weights and intercepts in the order in which columns are computed."""
    m, d, terms = p.n_landmarks, p.n_features, p.n_features + 1
    for f in range(d):
        log_factor = theta[p.factor_at + f] if p.own_factors else 0.0
        room.squares[f] = math.exp(2.0 * min(max(log_factor, -p.log_factor), p.log_factor))
    for j in range(m):
        log_gamma = theta[p.gamma_at + j]
        gamma = p.gamma[j] * math.exp(min(max(log_gamma, -p.log_gamma), p.log_gamma))
        room.gamma[j] = gamma
        at = (j // AT_ONCE) * (terms + 1) * AT_ONCE + j % AT_ONCE
        square = 0.0
        for f in range(d):
            v = theta[j * d + f] - p.middle[f]
            scaled = room.squares[f] * v
            square += scaled * v
            room.factors[at + f * AT_ONCE] = 2.0 * LOG2_E * gamma * scaled
        room.square[j] = square
        room.factors[at + d * AT_ONCE] = -LOG2_E * gamma
        room.factors[at + terms * AT_ONCE] = -LOG2_E * gamma * square
    k = p.n_outputs
    for output in range(k):
        for j in range(m):
            room.beta[output * p.terms + j] = p.scale * theta[p.beta_at + j * k + output]
        for q in range(p.n_pairs):
            room.beta[output * p.terms + p.padded + q] = p.scale * theta[p.beta_at + (m + q) * k + output]
        room.intercept[output] = theta[p.intercept_at + output]
    alone = k == 1 and p.n_pairs == 0
    for j in range(m):
        room.coefficients[j] = room.gamma[j] * (float(room.beta[j]) if alone else 1.0)


@inlined
def tile_loss(p, room, first, strips):
    """The loss of some strips, whose decision values become the derivatives by them."""
    if p.sharpness > 0.0:
        return logistic_columns(
            room.f,
            p.f_stride,
            strips,
            p.n_outputs,
            p.goals,
            first,
            p.weight,
            p.share,
            p.sharpness,
            room.powers,
            room.slopes,
        )
    return loss_columns(
        room.f, p.f_stride, strips, p.n_outputs, p.goals, first, p.weight, p.share, room.slopes
    )


@inlined
def add_tile(p, room, first, strips, alone):
    """The loss of some strips of rows; its derivatives are added to room.slopes, sums and beta_sums.

    alone  whether there is one output and no product: then β is left out of the derivatives, and the sums of
           landmarks hold those of β, too
    """
    if CHECKED:
        check_tile(p, room, first, strips)
    if p.own_factors:
        square_columns(p.x, first, strips, p.width, p.n_features, room.squares)
    kernel_columns(
        p.x,
        first,
        strips,
        p.width,
        p.n_features + 1,
        room.factors,
        p.padded // AT_ONCE,
        room.K,
        p.k_stride,
    )
    if p.n_pairs > 0:
        product_columns(room.K, p.k_stride, strips, p.left, p.right, p.n_pairs, p.padded)
    weighted_columns(
        room.K, p.k_stride, strips, p.terms, room.beta, room.intercept, p.n_outputs, room.f, p.f_stride
    )
    value = tile_loss(p, room, first, strips)
    if alone:
        scale_columns(room.K, p.k_stride, strips, p.padded, room.f, p.f_stride)
    else:
        outer_sums(room.K, p.k_stride, p.terms, room.f, 0, p.f_stride, p.f_stride, strips, room.beta_sums)
        pull_columns(
            room.K,
            p.k_stride,
            strips,
            p.padded,
            p.terms,
            room.f,
            p.f_stride,
            p.n_outputs,
            room.beta,
            p.left,
            p.right,
            p.n_pairs,
            room.pulled,
        )
    outer_sums(room.K, p.k_stride, p.padded, p.x, first, p.width, p.columns, strips, room.sums)
    if p.own_factors:
        square_sums(
            room.K,
            p.k_stride,
            strips,
            p.padded,
            room.coefficients,
            p.x,
            first,
            p.width,
            p.n_features,
            room.by_row,
            room.square_sums,
        )
    return value


@compiled
def check_tile(p, room, first, strips):
    """Touch everything that a tile is computed from and in (with bounds checks only)."""
    touch(p.x, first * p.width * LANES, strips * p.width * LANES)
    touch(p.weight, first * LANES, strips * LANES)
    touch(p.goals, 4 * first * p.n_outputs * LANES, 4 * strips * p.n_outputs * LANES)
    touch(room.factors, 0, p.padded * (p.n_features + 2))
    touch(room.K, 0, strips * p.k_stride * LANES)
    touch(room.f, 0, strips * p.f_stride * LANES)
    touch(room.powers, 0, p.n_outputs * LANES)
    touch(room.beta, 0, p.n_outputs * p.terms)
    touch(room.intercept, 0, p.n_outputs)
    touch(room.slopes, 0, p.n_outputs)
    touch(room.sums, 0, p.padded * p.columns)
    touch(room.beta_sums, 0, p.terms * p.f_stride)
    touch(room.pulled, 0, p.terms * LANES)
    touch(room.squares, 0, p.n_features)
    touch(room.coefficients, 0, p.padded)
    touch(room.by_row, 0, strips * LANES)
    touch(room.square_sums, 0, p.n_features)
    for q in range(p.n_pairs):
        touch(room.K, p.left[q] * LANES, LANES)
        touch(room.K, p.right[q] * LANES, LANES)


@inlined
def summed(sums, columns, i, j):
    """The element (i, j) of what outer_sums wrote."""
    return sums[i // AT_ONCE * AT_ONCE * columns + j * AT_ONCE + i % AT_ONCE]


@compiled
def value_and_gradient(p, room, theta, gradient):
    """The value; writes the gradient, both as Objective.__call__."""
    place_parts(p, room, theta)
    room.sums[:] = 0.0
    room.beta_sums[:] = 0.0
    room.slopes[:] = 0.0
    room.square_sums[:] = 0.0
    m, d, k, columns = p.n_landmarks, p.n_features, p.n_outputs, p.columns
    alone = k == 1 and p.n_pairs == 0
    value = 0.0
    for first in range(0, p.n_strips, p.tile_strips):
        value += add_tile(p, room, first, min(p.tile_strips, p.n_strips - first), alone)
    for i in range(p.n_unknowns):
        off = theta[i] - p.rest_point[i]
        pulled = p.stiff[i] * off
        value += pulled * off
        gradient[i] = 2.0 * pulled
    for j in range(m):
        gamma = room.gamma[j]
        factor = float(room.beta[j]) if alone else 1.0
        D = factor * summed(room.sums, columns, j, d + 1)
        along = 0.0
        for f in range(d):
            v = theta[j * d + f] - p.middle[f]
            D_x = factor * summed(room.sums, columns, j, f)
            square = float(room.squares[f])
            along += square * v * D_x
            gradient[j * d + f] += 2.0 * gamma * square * (D_x - v * D)
            room.square_sums[f] -= gamma * v * (2.0 * D_x - v * D)
        if abs(theta[p.gamma_at + j]) < p.log_gamma:
            D_x2 = factor * summed(room.sums, columns, j, d)
            gradient[p.gamma_at + j] += gamma * (2.0 * along - D_x2 - room.square[j] * D)
    if p.own_factors:
        for f in range(d):
            if abs(theta[p.factor_at + f]) < p.log_factor:
                gradient[p.factor_at + f] -= 2.0 * float(room.squares[f]) * room.square_sums[f]
    if alone:
        for j in range(m):
            gradient[p.beta_at + j] += p.scale * summed(room.sums, columns, j, d + 1)
    else:
        for j in range(m + p.n_pairs):
            own = j if j < m else p.padded + j - m
            for output in range(k):
                place = p.beta_at + j * k + output
                gradient[place] += p.scale * summed(room.beta_sums, p.f_stride, own, output)
    for output in range(k):
        gradient[p.intercept_at + output] += room.slopes[output]
    return value
