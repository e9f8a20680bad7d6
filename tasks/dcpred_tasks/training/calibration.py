"""Probabilities fitted to decision values of rows that were held out (dcpred_tasks.model.sureness.Calibration
says what is fitted).

g is linear between a few decision values and rises everywhere, so that the order of classes stays; ε and g
minimise the loss −Σ log p, with two penalties that few rows need: neighbouring slopes are alike, and slopes
are near 2. Loss and expected calibration error (15 bins of equal mass, percent) of test rows, with 2,000 to
13,500 rows held out (2026-11-24):

                        a9a          elec2        connect_4    satimage     letter26
    g as it is          0.322 1.1    0.291 1.1    0.413 0.9    0.275 1.6    0.117 0.4
    one slope (Platt)   0.325 2.3    0.293 2.2    0.417 2.0    0.286 1.7    0.117 0.5
    beta                0.324 1.2    0.293 1.0    –            –            –
    biases of classes   –            –            –            0.295 1.9    0.122 0.5

Beta is that of Kull, Silva Filho and Flach (2017) on (1 + f) / 2. Where the likeliest class is not that of
the decision value, the step that puts them together changed no loss in four digits.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.sureness import Calibration

KNOT_LEVELS = np.array([0.005, 0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 0.995])
SLOPE, SHARE = 2.0, 0.01  # what slopes and ε are drawn to, and begin with
ALIKE, NEAR_SLOPE, NEAR_SHARE = 3.0, 0.5, 0.1  # weights of penalties, in units of −log p
FEW_KNOTS = (-3.0, 3.0)  # knots of a calibration without rows
PRESENT = -1e29  # Decision values of classes that a leaf has no row of are lower.
STEPS = 200  # L-BFGS steps, at most
LARGEST = 30.0  # Slopes and ε are within exp(±LARGEST) of 1.


def plain_calibration(prior: FloatArray) -> Calibration:
    """What is taken for granted of models of very few rows: one slope."""
    knot = np.array(FEW_KNOTS)
    return Calibration(knot, SLOPE * knot, prior, np.array([SHARE]))


def fit_calibration(
    decision: FloatArray, target: IntArray, weight: FloatArray, n_classes: int
) -> Calibration:
    """The calibration by rows that were held out; plain where there are none.

    decision  float64 (n, n_outputs)
    target    int64 (n,), class numbers
    weight    float64 (n,), > 0
    """
    prior = class_shares(target, weight, n_classes)
    if not len(target):
        return plain_calibration(prior)
    knot = _knots(decision, weight / weight.mean())
    if len(knot) == 1:  # Decision values say nothing.
        return Calibration(knot, np.zeros(1), prior, np.ones(1))
    problem = _Problem.of(decision, target, weight / weight.mean(), prior, knot)
    start = np.concatenate([[SLOPE * knot[0]], np.full(len(knot) - 1, np.log(SLOPE)), [_logit(SHARE)]])
    limits = [(None, None)] + [(-LARGEST, LARGEST)] * len(knot)
    found = minimize(problem, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": STEPS})
    return problem.calibration(found.x)


def class_shares(target: IntArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """Shares of classes, with a row of mean weight more of each."""
    if not len(target):
        return np.full(n_classes, 1.0 / n_classes)
    counts = np.bincount(target, weights=weight / weight.mean(), minlength=n_classes) + 1.0
    return np.asarray(counts / counts.sum())


def _knots(decision: FloatArray, weight: FloatArray) -> FloatArray:
    """Quantiles of decision values; of several, those of the two largest of each row."""
    values, weights = decision[:, 0], weight
    if decision.shape[1] > 1:
        values, weights = np.sort(decision, axis=1)[:, -2:].ravel(), np.repeat(weight, 2)
        values, weights = values[values > PRESENT], weights[values > PRESENT]
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(below, KNOT_LEVELS * below[-1]), len(order) - 1)
    return np.unique(values[order][at])


def _logit(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


@dataclass(frozen=True)
class _Problem:
    """−Σ w log p of rows and its gradient, with the penalties, as a function of g at the first knot, the log
    of each slope, and the logit of ε.

    before  int64, the knot before each decision value, flat; way float64, how far it is to the next, 0 to 1
    """

    before: IntArray
    way: FloatArray
    shape: tuple[int, int]
    target: IntArray
    weight: FloatArray
    prior: FloatArray
    knot: FloatArray

    @staticmethod
    def of(
        decision: FloatArray, target: IntArray, weight: FloatArray, prior: FloatArray, knot: FloatArray
    ) -> "_Problem":
        at = np.interp(decision.ravel(), knot, np.arange(len(knot), dtype=ACC_DTYPE))
        before = np.minimum(at.astype(np.int64), len(knot) - 2)
        n, k = decision.shape
        return _Problem(before, at - before, (n, k), target, weight, prior, knot)

    def calibration(self, parameters: FloatArray) -> Calibration:
        value = self._values(parameters)
        if self.shape[1] > 1:
            value = value - value[0]
        share = 1.0 / (1.0 + np.exp(-parameters[-1:]))
        return Calibration(self.knot, value, self.prior, share)

    def _values(self, parameters: FloatArray) -> FloatArray:
        rises = np.exp(parameters[1:-1]) * np.diff(self.knot)
        return np.asarray(parameters[0] + np.concatenate([[0.0], np.cumsum(rises)]))

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        value, slopes = self._values(parameters), parameters[1:-1]
        rise = np.diff(value)
        g = (value[self.before] + self.way * rise[self.before]).reshape(self.shape)
        found = self.calibration(parameters)
        share = float(found.share[0])
        rows = np.arange(len(self.target))
        q = (found.free(g) - share * self.prior) / (1.0 - share)
        own_q, own_prior = q[rows, self.target], self.prior[self.target]
        p = (1.0 - share) * own_q + share * own_prior
        loss = -float(self.weight @ np.log(p))
        # ∂ log p / ∂ log q of the row's class, then ∂ log q / ∂ g.
        part = self.weight * (1.0 - share) * own_q / p
        if self.shape[1] == 1:
            d_g = -part * np.where(self.target == 1, 1.0 - own_q, own_q - 1.0)
        else:
            d_g = part[:, None] * q
            d_g[rows, self.target] -= part
        d_g = d_g.ravel()
        d_value = np.bincount(self.before, d_g * (1.0 - self.way), len(self.knot))
        d_value += np.bincount(self.before + 1, d_g * self.way, len(self.knot))
        above = np.cumsum(d_value[::-1])[::-1]
        d_share = -float(self.weight @ ((own_prior - own_q) / p)) * share * (1.0 - share)
        gradient = np.concatenate([[above[0]], above[1:] * rise, [d_share]])
        return self._penalised(loss, gradient, slopes, parameters[-1])

    def _penalised(
        self, loss: float, gradient: FloatArray, slopes: FloatArray, logit: float
    ) -> tuple[float, FloatArray]:
        apart, off, level = np.diff(slopes), slopes - np.log(SLOPE), logit - _logit(SHARE)
        loss += (
            ALIKE * float(apart @ apart) + NEAR_SLOPE * float(off @ off) / len(off) + NEAR_SHARE * level**2
        )
        gradient[1:-1] += 2 * NEAR_SLOPE * off / len(off)
        gradient[1:-2] -= 2 * ALIKE * apart
        gradient[2:-1] += 2 * ALIKE * apart
        gradient[-1] += 2 * NEAR_SHARE * level
        return loss, gradient
