"""Probabilities fitted to decision values of held-out rows (model.uncertainty.Calibration has the formula).

g is linear between a few decision values and rises everywhere: the order of classes stays. ε, g and, with
several classes, an offset of each minimise the loss −Σ log p, with penalties for few rows: neighbouring
slopes are alike, slopes are near 2, and offsets near 0. DECISIONS.md compares this with other calibrations.
A slope near 0 costs little: decision values of noise say nothing. Of two classes, g is then drawn to the rate
of the rows, by the positive-part rule of James and Stein: the more, the less of the loss it explains.

The label of a row is its likeliest class. Decision values of noisy data may have another threshold than 0: of
2,000 rows of which a third is positive, rows with f just above 0 are positive in 34 of 100 cases. Offsets
move f: its class is then the likeliest one. Training subtracts them from the intercepts of leaves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import minimize

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.engine.compiler import with_compiler
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.refinement import machine_code
from dcpred_tasks.training.survey import RARE_SHARE

LossAndSlopes: TypeAlias = tuple[float, float, FloatArray, float, FloatArray]
LossOfRows: TypeAlias = Callable[[float, FloatArray, float, FloatArray], LossAndSlopes]
COMPILED = machine_code, "calibrations are fitted by NumPy, which is slower"
KNOT_LEVELS = np.array([0.005, 0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 0.995])
SLOPE, SHARE = 2.0, 0.01  # what slopes and ε are drawn to, and begin with
ALIKE, NEAR_SLOPE, NEAR_SHARE = 3.0, 0.5, 0.1  # weights of penalties, in units of −log p
FEW_KNOTS = (-3.0, 3.0)  # knots of a calibration without rows
PRESENT = -1e29  # Decision values of classes that a leaf has no row of are lower.
STEPS = 200  # L-BFGS steps, at most
NEAR_OFFSET = 30.0  # weight of the penalty on squared offsets of several classes
NEAR_RATE = 3.0  # the same where few rows are of a class, whose mean would miss its share
MOST_SHARE = 0.45  # Below one half, decision values determine the likelier of two classes.
BEYOND = 0.5  # how far knots lie beyond decision values where a class is rare, in ranges of these
NO_FACTORS: FloatArray = np.empty(0)  # the weights of classes where all are 1
LEAST_KEPT = 0.05  # share of g that stays at least: rows keep their order
# Widths of the range of decision values within which p = 1/2 lies: nearer to rows, p would be too large.
FARTHEST_MIDDLE = 100.0
LARGEST = 30.0  # Slopes and ε are within exp(±LARGEST) of 1.


def plain_calibration(prior: FloatArray, factors: FloatArray = NO_FACTORS) -> Calibration:
    """The default for models of very few rows: one slope."""
    knot = np.array(FEW_KNOTS)
    return Calibration(knot, SLOPE * knot, prior, np.array([SHARE]), factors)


def fit_calibration(
    decision: FloatArray,
    target: IntArray,
    weight: FloatArray,
    n_classes: int,
    factors: FloatArray = NO_FACTORS,
    *,
    moves: bool = True,
    near_offset: float = NEAR_OFFSET,
) -> tuple[Calibration, FloatArray]:
    """The calibration by held-out rows, the plain one without rows, and offsets, float64 (n_outputs,). It
    applies to decision values minus offsets, whose class is the likeliest one.

    decision  float64 (n, n_outputs)
    target    int64 (n,), class numbers
    weight    float64 (n,), > 0, without class weights
    factors   float64 (n_classes,), class weights; or (0,)
    moves     whether offsets may be other than 0
    near_offset  weight of the penalty on squared offsets of several classes
    """
    with one_thread():  # Several would round sums differently, and take 30 times the processor time.
        return _fitted(decision, target, weight, n_classes, factors, moves, near_offset)


def _fitted(
    decision: FloatArray,
    target: IntArray,
    weight: FloatArray,
    n_classes: int,
    factors: FloatArray,
    moves: bool,
    near_offset: float,
) -> tuple[Calibration, FloatArray]:
    weighted = weight * factors[target] if len(factors) else weight
    prior, none = class_shares(target, weighted, n_classes), np.zeros(decision.shape[1])
    if not len(target):
        return plain_calibration(prior, factors), none
    rare = class_shares(target, weight, n_classes).max() >= RARE_SHARE
    knot = _knots(decision, weight / weight.mean(), rare)
    if len(knot) == 1:  # Decision values are uninformative.
        calibration, offset = _of_shares(knot, prior, none) if moves else (_flat(knot, prior), none)
        return replace(calibration, weight=factors), offset
    several = n_classes > 2 and moves
    if several:  # A common part of all classes does not change their order.
        prior = np.full(n_classes, 1.0 / n_classes)
    problem = _Problem(decision, target, weight / weight.mean(), prior, knot, factors, near_offset)
    start = np.concatenate([[SLOPE * knot[0]], np.full(len(knot) - 1, np.log(SLOPE)), [_logit(SHARE)]])
    start = np.concatenate([start, none]) if several else start
    limits = [(None, None), *[(-LARGEST, LARGEST)] * (len(knot) - 1), (-LARGEST, _logit(MOST_SHARE))]
    limits += [(None, None)] * (len(start) - len(limits))
    optimum = minimize(problem, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": STEPS})
    calibration = problem.calibration(optimum.x)
    if several:
        shares = class_shares(target, weighted, n_classes)
        moved = problem.moved(optimum.x)
        if problem.gain(calibration, moved, shares) < n_classes + 1:
            return _near_shares(decision, shares, factors)
        return calibration, -moved
    calibration = _shrunk(calibration, problem) if n_classes == 2 else calibration
    return _centred(calibration, decision) if moves else (calibration, none)


def _of_shares(knot: FloatArray, prior: FloatArray, none: FloatArray) -> tuple[Calibration, FloatArray]:
    """Shares of classes as probabilities, and offsets that make the largest class the label."""
    largest, offset = int(prior.argmax()), none.copy()
    if len(none) > 1:
        offset[largest] = -1.0
    elif (knot[0] > 0) != largest:
        offset[0] = knot[0] + (-1.0 if largest else 1.0)
    return _flat(knot - offset[0] if len(none) == 1 else knot, prior), offset


def _near_shares(
    decision: FloatArray, shares: FloatArray, factors: FloatArray
) -> tuple[Calibration, FloatArray]:
    """Shares of several classes, where decision values show hardly more, and offsets for that. A small slope
    stays: rows keep their order, and the label is the likeliest class.
    """
    present = np.where(decision > PRESENT, decision, np.nan)
    width, log_shares = max(float(np.nanmax(present) - np.nanmin(present)), 1e-300), np.log(shares)
    slope = max(LEAST_KEPT, float(np.ptp(log_shares)) / FARTHEST_MIDDLE) / width
    offset = np.nanmean(present, axis=0) - (log_shares - log_shares.max()) / slope
    far = float(np.ptp(offset)) + 2.0 * width
    even, knot = np.full(len(shares), 1.0 / len(shares)), np.array([-far, far])
    return Calibration(knot, slope * (knot - knot[0]), even, np.zeros(1), factors), offset


def _flat(knot: FloatArray, prior: FloatArray) -> Calibration:
    return Calibration(knot, np.zeros(1), prior, np.ones(1))


def _shrunk(calibration: Calibration, problem: "_Problem") -> Calibration:
    """The calibration of two classes with g nearer to the rate of the rows: by half a unit of the loss, which
    a slope explains by chance, over what it explains.
    """
    rate, weight = _logit(float(calibration.prior[1])), problem.weight
    g = np.stack([np.full(len(weight), rate), calibration.scores(problem.decision)[:, 0]])
    constant, fitted = (problem.of_scores(scores[:, None], calibration)[0] for scores in g)
    share = max(1.0 - 0.5 / (constant - fitted), LEAST_KEPT) if constant > fitted else LEAST_KEPT
    return replace(calibration, value=rate + share * (calibration.value - rate))


def _centred(calibration: Calibration, decision: FloatArray) -> tuple[Calibration, FloatArray]:
    """The calibration of two classes with p = 1/2 at f = 0, or beyond all knots, and the offset for that."""
    knot, value, share = calibration.knot, calibration.value, float(calibration.share[0])
    middle = _logit((0.5 - share * calibration.prior[1]) / (1.0 - share))
    at = int(np.searchsorted(value, middle))
    far = FARTHEST_MIDDLE * (knot[-1] - knot[0])
    if at == 0:
        slope = (value[1] - value[0]) / (knot[1] - knot[0])
        least = min(float(decision.min()), knot[0])
        zero = float(np.clip(knot[0] - (value[0] - middle) / max(slope, 1e-300), least - far, least))
    elif at == len(value):
        slope = (value[-1] - value[-2]) / (knot[-1] - knot[-2])
        largest = max(float(decision.max()), knot[-1])
        zero = float(np.clip(knot[-1] + (middle - value[-1]) / max(slope, 1e-300), largest, largest + far))
    else:
        zero = float(np.interp(middle, value, knot))
    stays = knot != zero
    moved = np.insert(knot[stays] - zero, np.searchsorted(knot[stays], zero), 0.0)
    values = np.insert(value[stays], np.searchsorted(knot[stays], zero), middle)
    distinct = np.append(True, np.diff(moved) > 0)
    values = np.maximum.accumulate(values)
    return replace(calibration, knot=moved[distinct], value=values[distinct]), np.array([zero])


def class_shares(target: IntArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """Shares of classes, with a row of mean weight more of each."""
    if not len(target):
        return np.full(n_classes, 1.0 / n_classes)
    counts = np.bincount(target, weights=weight / weight.mean(), minlength=n_classes) + 1.0
    return np.asarray(counts / counts.sum())


def _knots(decision: FloatArray, weight: FloatArray, rare: bool) -> FloatArray:
    """Quantiles of the (two largest) decision values, and outermost values, which belong to rare classes."""
    values, weights = decision[:, 0], weight
    if decision.shape[1] > 1:
        values, weights = np.sort(decision, axis=1)[:, -2:].ravel(), np.repeat(weight, 2)
        values, weights = values[values > PRESENT], weights[values > PRESENT]
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(below, KNOT_LEVELS * below[-1]), len(order) - 1)
    knots = np.unique(values[order][at])
    if rare and len(knots) > 1:
        least, largest = values[order[[0, -1]]]
        beyond = min(BEYOND * (largest - least), LARGEST)
        knots = np.unique([least - beyond, *knots, largest + beyond])
    return knots


def _logit(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


@dataclass(frozen=True)
class _Problem:
    """−Σ w log p of rows and its gradient, with the penalties, as a function of g at the first knot, the log
    of each slope, the logit of ε, and, with several classes, the offsets of decision values.
    """

    decision: FloatArray
    target: IntArray
    weight: FloatArray
    prior: FloatArray
    knot: FloatArray
    factors: FloatArray
    near_offset: float = NEAR_OFFSET

    def calibration(self, parameters: FloatArray) -> Calibration:
        value = self._values(float(parameters[0]), np.exp(parameters[1 : len(self.knot)]))
        if self.decision.shape[1] > 1:
            value = value - value[0]
        share = 1.0 / (1.0 + np.exp(-parameters[len(self.knot) : len(self.knot) + 1]))
        return Calibration(self.knot, value, self.prior, share, self.factors)

    def moved(self, parameters: FloatArray) -> FloatArray:
        """The offsets of decision values, float64 (n_outputs,) or (0,)."""
        return parameters[len(self.knot) + 1 :]

    def _values(self, first: float, slope: FloatArray) -> FloatArray:
        return np.asarray(first + np.concatenate([[0.0], np.cumsum(slope * np.diff(self.knot))]))

    @cached_property
    def loss(self) -> LossOfRows:
        """The loss of rows, where there is a compiler in machine code."""
        given = self.decision, self.target, self.weight, self.prior, self.knot, self.factors

        def compiled(_: Any) -> LossOfRows:
            from dcpred_tasks.training.compiled_calibration import CompiledLoss

            return CompiledLoss(*given)

        return with_compiler(*COMPILED, compiled) or self.definition

    def definition(self, first: float, slope: FloatArray, share: float, moved: FloatArray) -> LossAndSlopes:
        """−Σ w log p, and its derivatives by g at the first knot, slopes, the logit of ε, and offsets.

        slope  float64 (m − 1,), of g from knot to knot
        share  ε
        moved  float64 (n_outputs,), what is added to decision values; or (0,)
        """
        m, value = len(self.knot), self._values(first, slope)
        decision = self.decision + moved if len(moved) else self.decision
        at = np.interp(decision.ravel(), self.knot, np.arange(m, dtype=ACC_DTYPE))
        before = np.minimum(at.astype(np.int64), m - 2)
        way = at - before
        calibration = Calibration(self.knot, value, self.prior, np.array([share]), self.factors)
        loss, d_g, d_share = self.of_scores(
            (value[before] + way * np.diff(value)[before]).reshape(decision.shape), calibration
        )
        d_value = np.bincount(before, d_g.ravel() * (1.0 - way), m).astype(ACC_DTYPE)
        d_value += np.bincount(before + 1, d_g.ravel() * way, m)
        above = np.cumsum(d_value[::-1])[::-1]
        inside = (decision > self.knot[0]) & (decision < self.knot[-1])
        d_moved = (d_g * slope[before].reshape(decision.shape) * inside).sum(axis=0)
        return loss, above[0], above[1:] * np.diff(self.knot), d_share, d_moved[: len(moved)]

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        m, slope = len(self.knot), np.exp(parameters[1 : len(self.knot)])
        share = 1.0 / (1.0 + np.exp(-float(parameters[m])))
        loss, *parts = self.loss(float(parameters[0]), slope, share, self.moved(parameters))
        d_first, d_slope, d_share, d_moved = parts
        gradient = np.concatenate([[d_first], d_slope * slope, [d_share], d_moved])
        return self._penalised(loss, gradient, parameters)

    def gain(self, calibration: Calibration, moved: FloatArray, shares: FloatArray) -> float:
        """Units of loss that a calibration of several classes takes away from that of their shares. Chance
        takes one for each number that is fitted: offsets, a slope, ε.
        """
        loss, _, _ = self.of_scores(calibration.scores(self.decision + moved), calibration)
        p = np.broadcast_to(shares, (len(self.target), len(shares)))
        if len(self.factors):
            p = p / self.factors
            p = p / p.sum(axis=1, keepdims=True)
        return -float(self.weight @ np.log(p[np.arange(len(p)), self.target])) - loss

    def of_scores(self, g: FloatArray, calibration: Calibration) -> tuple[float, FloatArray, float]:
        """−Σ w log p, its gradient by g, and its derivative by the logit of ε."""
        share, rows = float(calibration.share[0]), np.arange(len(self.target))
        q = (calibration.free(g) - share * self.prior) / (1.0 - share)
        own_q, own_prior = q[rows, self.target], self.prior[self.target]
        p = (1.0 - share) * own_q + share * own_prior  # m of Calibration, until class weights are divided out
        # ∂ log p / ∂ log q of the row's class, then ∂ log q / ∂ g.
        part = self.weight * (1.0 - share) * own_q / p
        if g.shape[1] == 1:
            d_g = (-part * np.where(self.target == 1, 1.0 - own_q, own_q - 1.0))[:, None]
        else:
            d_g = part[:, None] * q
            d_g[rows, self.target] -= part
        d_share = -float(self.weight @ ((own_prior - own_q) / p)) * share * (1.0 - share)
        loss = -float(self.weight @ np.log(p))
        if not len(self.factors):
            return loss, d_g, d_share
        total = ((1.0 - share) * q + share * self.prior) @ (1.0 / self.factors)
        by_m = (self.weight / total)[:, None] / self.factors  # the gradient of Σ w log total
        by_g = (1.0 - share) * q * (by_m - (q * by_m).sum(axis=1, keepdims=True))
        loss += float(self.weight @ (np.log(total) + np.log(self.factors)[self.target]))
        d_share += float((by_m * (self.prior - q)).sum()) * share * (1.0 - share)
        return loss, d_g + (by_g[:, 1:] if g.shape[1] == 1 else by_g), d_share

    def _penalised(
        self, loss: float, gradient: FloatArray, parameters: FloatArray
    ) -> tuple[float, FloatArray]:
        m, moved = len(self.knot), self.moved(parameters)
        slopes, logit = parameters[1:m], parameters[m]
        apart, above, level = np.diff(slopes), slopes - np.log(SLOPE), logit - _logit(SHARE)
        steep = above > 0  # A slope of 0 is as far from SLOPE as one of e times SLOPE.
        off = np.where(steep, above, np.expm1(np.minimum(above, 0.0)))
        loss += (
            ALIKE * float(apart @ apart) + NEAR_SLOPE * float(off @ off) / len(off) + NEAR_SHARE * level**2
        )
        gradient[1:m] += 2 * NEAR_SLOPE * off * np.where(steep, 1.0, 1.0 + off) / len(off)
        gradient[1 : m - 1] -= 2 * ALIKE * apart
        gradient[2:m] += 2 * ALIKE * apart
        gradient[m] += 2 * NEAR_SHARE * level
        gradient[m + 1 :] += 2 * self.near_offset * moved
        return loss + self.near_offset * float(moved @ moved), gradient
