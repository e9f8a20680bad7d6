"""The loss of a calibration by held-out rows, in machine code (native/calibration.h); the definition is
calibration._Problem.definition.
"""

from typing import NamedTuple

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine.machine_code import prepared
from dcpred_tasks.engine.native_modules import REFINEMENT, taken_by
from dcpred_tasks.training.compiled_refinement import padded


class Calibrating(NamedTuple):
    """Held-out rows, a calibration, and the derivatives of their loss."""

    n_outputs: int
    n_classes: int
    decision: FloatArray
    """float64 (n_strips, n_outputs, 16), as the next two padded with rows of the weight 0."""
    target: FloatArray
    """float64 (n_strips, 16), class numbers."""
    weight: FloatArray
    """float64 (n_strips, 16)."""
    prior: FloatArray
    """float64 (n_classes,)."""
    factors: FloatArray
    """float64 (n_classes,), class weights; (0,) where all are 1."""
    knot: FloatArray
    """float64 (m,), m > 1."""
    slope: FloatArray
    """float64 (m − 1,), of g from knot to knot."""
    numbers: FloatArray
    """float64 (2,): g at the first knot, and ε."""
    moved: FloatArray
    """float64 (n_outputs,), what is added to decision values."""
    q: FloatArray
    """float64 (n_classes, 16), of a strip."""
    right: FloatArray
    """float64 (n_strips, 16), m of the class of each row."""
    total: FloatArray
    """float64 (n_strips, 16), Σ m over class weights; (0,) where these are 1."""
    by_slope: FloatArray
    """float64 (m, 16), sums over strips: derivatives by slopes, and the last by g at the first knot."""
    by_share: FloatArray
    """float64 (1, 16), the same by the logit of ε."""
    by_moved: FloatArray
    """float64 (n_outputs, 16)."""


@taken_by(REFINEMENT, "calibrate")
class CalibratingArguments(NamedTuple):
    """The arguments of `calibrate` of native/refinement.cpp."""

    calibrating: Calibrating


class CompiledLoss:
    """Does what the definition does."""

    def __init__(
        self,
        decision: FloatArray,
        target: IntArray,
        weight: FloatArray,
        prior: FloatArray,
        knot: FloatArray,
        factors: FloatArray,
    ) -> None:
        (n, k), m = decision.shape, len(knot)
        rows = padded(n, LANES)
        filled = np.zeros((rows, k + 2))
        filled[:n, :k], filled[:n, k], filled[:n, k + 1] = decision, target, weight
        strips = np.ascontiguousarray(filled.reshape(-1, LANES, k + 2).transpose(2, 0, 1))
        self.weight = strips[k + 1].reshape(-1)
        self.constant = float(weight @ np.log(factors)[target]) if len(factors) else 0.0
        self.rows = Calibrating(
            n_outputs=k,
            n_classes=len(prior),
            decision=np.ascontiguousarray(strips[:k].transpose(1, 0, 2)).reshape(-1),
            target=strips[k].reshape(-1),
            weight=self.weight,
            prior=np.asarray(prior, ACC_DTYPE),
            factors=np.asarray(factors, ACC_DTYPE),
            knot=np.asarray(knot, ACC_DTYPE),
            slope=np.empty(m - 1),
            numbers=np.empty(2),
            moved=np.zeros(k),
            q=np.empty(len(prior) * LANES),
            right=np.empty(rows),
            total=np.empty(rows if len(factors) else 0),
            by_slope=np.empty(m * LANES),
            by_share=np.empty(LANES),
            by_moved=np.empty(k * LANES),
        )
        self.run = prepared(REFINEMENT, CalibratingArguments(self.rows))

    def __call__(
        self, first: float, slope: FloatArray, share: float, moved: FloatArray
    ) -> tuple[float, float, FloatArray, float, FloatArray]:
        rows = self.rows
        rows.slope[:], rows.numbers[:], rows.moved[: len(moved)] = slope, (first, share), moved
        self.run()
        loss = self.constant - float(self.weight @ np.log(rows.right))
        if len(rows.total):
            loss += float(self.weight @ np.log(rows.total))
        by_slope, by_moved = (sums.reshape(-1, LANES).sum(axis=1) for sums in (rows.by_slope, rows.by_moved))
        return loss, by_slope[-1], by_slope[:-1], float(rows.by_share.sum()), by_moved[: len(moved)]
