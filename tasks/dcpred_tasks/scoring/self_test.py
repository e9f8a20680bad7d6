"""The self-test of a model: a few stored raw rows, with their decision values by the definition.

A process that scores with a model compares first: another processor, compiler or library may compute other
values, which would affect every row without an error.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, Status
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.leaf_arrays import Line
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring import scorer

ROWS = 16
# Tolerance of a decision value, relative to the size of its sums. Tests hold the engine to a tenth of that:
# only a wrong scorer is refused.
TOLERANCE = 1e-5
# Relative change of a row that must not change its value: a row nearer to a border between leaves cannot test
# a scorer.
NUDGE = 2.0**-40


@dataclass(frozen=True)
class SelfTest:
    """Up to ROWS raw rows and their decision values; n is 0 for a model that rows cannot test."""

    rows: Annotated[FloatArray, Line(ACC_DTYPE, ("self_test_row", "feature"))]
    """Raw."""
    decision: Annotated[FloatArray, Line(ACC_DTYPE, ("self_test_row", "output"))]
    tolerance: Annotated[FloatArray, Line(ACC_DTYPE, ("self_test_row",))]
    """The absolute tolerance of a decision value of the row."""


def make_self_test(model: Model) -> SelfTest:
    """Rows at centres and landmarks, spread over the model, with their values by the definition."""
    with one_thread():
        rows = _candidates(model)
        decision, status = compact_model.score_rows(model, rows)
        tolerance = TOLERANCE * _summed_sizes(model, rows)
        sound = (status == Status.OK) & np.isfinite(tolerance)
        for factor in (1 - NUDGE, 1 + NUDGE):
            moved, moved_status = compact_model.score_rows(*_nudged(model, rows, factor))
            with np.errstate(invalid="ignore"):
                near = _off(model, moved, decision) <= tolerance
            sound &= near & (moved_status == Status.OK)
    index = np.flatnonzero(sound)
    index = index[_spread(len(index), ROWS)]
    return SelfTest(rows[index], decision[index].astype(ACC_DTYPE), tolerance[index])


def check_self_test(model: Model, test: SelfTest | None, place: str, *, plain: bool = False) -> None:
    """Raise ModelFormatError if this process does not reproduce the values of `test`. None is a model of an
    older format, which is accepted.

    plain  whether the definition scores rows, not the scorer: checks that this version of dcpred interprets
           the model correctly
    """
    if test is None or len(test.rows) == 0:
        return
    n, shape = len(test.rows), test.rows.shape
    if (shape[1], test.decision.shape, test.tolerance.shape) != (
        model.n_features,
        (n, model.n_outputs),
        (n,),
    ):
        raise ModelFormatError(
            f"Cannot use the model at {place}: it is damaged or was altered: its self-test has other features"
            " or outputs than the model. Copy it again from its source or train it again."
        )
    decision, status = (compact_model if plain else scorer).score_rows(model, test.rows)
    off, tolerance = _off(model, decision, test.decision), test.tolerance
    if not model.kernel.stationary:
        # The tolerance of an older model is of kernel values in double precision.
        tolerance = np.maximum(tolerance, TOLERANCE * _summed_sizes(model, test.rows))
    wrong = np.flatnonzero((status != Status.OK) | ~(off <= tolerance))
    if len(wrong):
        worst = int(wrong[0])
        otherwise = "" if plain else ", or set DCPRED_NO_COMPILER=1 to score without compiled code"
        raise ModelFormatError(
            f"Cannot score with the model at {place}: for {len(wrong)} of the {len(test.rows)} rows of its"
            " self-test this machine computes other decision values than stored (row"
            f" {worst}: {_shown(decision[worst])}, not {_shown(test.decision[worst])}). Compare the versions"
            " of dcpred, NumPy and llvmlite with those in its provenance, which `dcpred inspect` shows"
            f"{otherwise}."
        )


def _off(model: Model, decision: Scores, other: Scores) -> FloatArray:
    """The difference of decision values on the scale of the leaves, float64 (n,)."""
    first, second = (model.target.to_decision(values.astype(ACC_DTYPE)) for values in (decision, other))
    return np.asarray(np.abs(first - second).max(axis=1, initial=0.0))


def _shown(values: FloatArray) -> str:
    return ", ".join(f"{value:.7g}" for value in values[:3]) + (", …" if len(values) > 3 else "")


def _candidates(model: Model) -> FloatArray:
    """Raw rows, finite but for missing values if the model has them: centres and landmarks transformed back
    through the scaling, or μ for a model with neither. With missing values, every second row has one more of
    them, and the last one nothing else.
    """
    held = [points for points in (model.tree.points, model.landmarks) if len(points)]
    parts = [points[_spread(len(points), ROWS)].astype(ACC_DTYPE) for points in held] or [
        np.zeros((1, model.n_columns))
    ]
    with np.errstate(over="ignore"):
        rows = model.scaling.raw(np.concatenate(parts))
    rows = rows[~np.isinf(rows).any(axis=1)]
    if model.scaling.knows_gaps:
        rows = np.vstack([rows, np.full((1, model.n_features), np.nan)])
        some = np.arange(0, len(rows), 2)
        rows[some, some // 2 % model.n_features] = np.nan
    return rows


def _nudged(model: Model, rows: FloatArray, factor: float) -> tuple[Model, FloatArray]:
    """Rows a little further out; categories have no neighbours, but the means that replace them have."""
    if model.scaling.targets is not None:
        rows = model.scaling.targets(rows).astype(ACC_DTYPE)
        model = replace(model, scaling=model.scaling.of_encoded)
    coding = model.scaling.coding
    if coding is None:
        return model, rows * factor
    further = np.where(coding.is_coded, 1.0, factor)
    if coding.gap is not None:
        coding = replace(coding, gap=coding.gap * further)
    return replace(model, scaling=replace(model.scaling, coding=coding)), rows * further


def _spread(n: int, most: int) -> IntArray:
    """Up to `most` of n positions, evenly spaced."""
    return (
        np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))
        if n
        else np.zeros(0, np.int64)
    )


def _summed_sizes(model: Model, rows: FloatArray) -> FloatArray:
    """1 + the size of the sums in each row's value, float64 (n,), row by row for the same last bits."""
    sizes = [compact_model.summed_sizes(model, rows[i : i + 1]) for i in range(len(rows))]
    terms, intercept = np.array(sizes).reshape(-1, 2).T
    return 1.0 + terms + (intercept if model.task == "classification" else 1.0)
