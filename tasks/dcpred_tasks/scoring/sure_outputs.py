"""Optional arrays of an output: probabilities, intervals, quantiles and novelty, of models trained with
`calibrate`, and contributions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, SCORE_DTYPE, VALUE_DTYPE, FloatArray, IntArray, LeafNumbers
from dcpred_tasks.model.answers import (
    calibration_of,
    intervals,
    intervals_of,
    novelty,
    novelty_of,
    probabilities,
    quantile,
)
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.contributions import check_contributions, method, part_names
from dcpred_tasks.model.sureness import DEFAULT_ALPHA, check_share
from dcpred_tasks.scoring.decided import Decided
from dcpred_tasks.scoring.output_column import BoolArray, OutputColumn, StatusArray, by_row

ROUNDING = 2e-6  # error of probabilities in single precision, and of the typicality of novelty
BOUNDS = ("low", "high")  # both numbers of an interval
SHARES_OFF = 1e-4  # Tolerance of the sum of the probabilities of a row, in single precision.


class _NumbersColumn(OutputColumn):
    """Numbers, NaN where missing."""

    standard = False

    def dtype(self, model: Model) -> np.dtype[Any]:
        return np.dtype(self.dtypes[0])

    def fill(self, model: Model) -> int | float:
        return float("nan")

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values))


class ProbabilityColumn(_NumbersColumn):
    """The probability of each class; of the second one, where there are two."""

    name = "probability"
    tasks = ("classification",)
    dtypes = (SCORE_DTYPE,)
    dimensions = ("sample", "class")

    def row_shape(self, model: Model) -> tuple[int, ...]:
        return (model.n_outputs,) if model.n_outputs > 1 else ()

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"classes": list(model.classes)}

    def require(self, model: Model) -> None:
        calibration_of(model)

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        found = probabilities(model, rows.decision)
        return (found if model.n_outputs > 1 else found[:, 1]).astype(SCORE_DTYPE)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield from super().check(values, fill, status)
        shares = by_row(values)
        wrong = ((shares < 0) | (shares > 1)).any(axis=1)
        if shares.shape[1] > 1:
            wrong |= np.abs(shares.sum(axis=1, dtype=ACC_DTYPE) - 1) > SHARES_OFF
        yield f"has a {self.name} that is invalid", np.asarray(wrong)

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        low, high = possible_probabilities(model, rows, tolerance)
        if model.n_outputs == 1:
            low, high = low[:, 1:], high[:, 1:]
        stored = by_row(stored)
        return np.flatnonzero(~((stored >= low) & (stored <= high)).all(axis=1))


def possible_probabilities(
    model: Model, rows: Decided, tolerance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The least and the largest probabilities (n, n_classes) of rows whose decision values have errors up to
    `tolerance`.
    """
    calibration, slack = calibration_of(model), tolerance[:, None]
    decision = rows.decision.astype(ACC_DTYPE)
    low, high = calibration.scores(decision - slack), calibration.scores(decision + slack)
    if model.n_outputs == 1:
        least, most = (
            calibration.at_own_rates(_capped(calibration.free(g), d))[:, 1]
            for g, d in ((low, decision - slack), (high, decision + slack))
        )
        least, most = least - ROUNDING, most + ROUNDING
        return np.stack([1.0 - most, least], axis=1), np.stack([1.0 - least, most], axis=1)
    # log q changes by twice what g does, at most, and log p by twice that; and where two classes tie, either
    # may be the label.
    right = probabilities(model, rows.decision)
    weight = calibration.weight if len(calibration.weight) else np.ones(1)
    times = 4 if len(weight) > 1 else 2
    off = right * np.expm1(np.minimum(times * (high - low).max(axis=1), 50.0))[:, None] + ROUNDING
    two = np.sort(decision, axis=1)[:, -2:]
    tie = calibration.share[0] * weight.max() / weight.min()
    off += np.where(two[:, 1] - two[:, 0] <= 2 * tolerance, tie, 0.0)[:, None]
    return right - off, right + off


def _capped(m: FloatArray, decision: FloatArray) -> FloatArray:
    """m of two classes, that of the second on the side of one half where its decision value is."""
    second = np.where(decision[:, 0] > 0, np.maximum(m[:, 1], 0.5), np.minimum(m[:, 1], 0.5))
    return np.stack([1.0 - second, second], axis=1)


class _ByScale(_NumbersColumn):
    """Numbers at some sizes of residuals from the prediction."""

    tasks = ("regression",)
    dtypes = (VALUE_DTYPE,)
    needs_scale = True

    def given(self, rows: Decided) -> tuple[FloatArray, LeafNumbers, FloatArray]:
        """Their predictions, leaves and scales."""
        return rows.decision[:, 0].astype(VALUE_DTYPE), rows.leaf, rows.log_scale

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        stored, right = model.target.forward(by_row(stored)), model.target.forward(by_row(right))
        off = tolerance[:, None] + 1e-12 * np.abs(right)
        if len(rows.log_scale_off):
            off += (
                np.abs(right - model.target.decided(rows.decision))
                * np.expm1(np.minimum(rows.log_scale_off, 50.0))[:, None]
            )
        return np.flatnonzero(~(np.abs(stored - right) <= off).all(axis=1))


@dataclass(frozen=True)
class IntervalColumn(_ByScale):
    """Lower and upper bound of a number; a share `alpha` of rows lies outside."""

    alpha: float = DEFAULT_ALPHA

    name = "interval"
    dimensions = ("sample", "bound")
    takes_alpha = True

    def row_shape(self, model: Model) -> tuple[int, ...]:
        return (2,)

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"alpha": self.alpha}

    def numbers(self, attributes: Mapping[str, Any], n: int) -> list[Any] | None:
        return list(BOUNDS) if n == len(BOUNDS) else None

    def require(self, model: Model) -> None:
        intervals_of(model).at(self.alpha)

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        return intervals(model, *self.given(rows), self.alpha)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield from super().check(values, fill, status)
        yield f"has an {self.name} whose bounds are exchanged", values[:, 0] > values[:, 1]


@dataclass(frozen=True)
class QuantileColumn(_ByScale):
    """The number below which a share of rows like this one lies, as q05 for 0.05."""

    share: float

    @property
    def name(self) -> str:  # type: ignore[override]
        return check_share(self.share)

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"share": self.share}

    def require(self, model: Model) -> None:
        intervals_of(model).signed_at(self.share)

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        return quantile(model, *self.given(rows), self.share)


class NoveltyColumn(_NumbersColumn):
    """The share of the training rows of a row's leaf that are nearer than the row."""

    name = "novelty"
    dtypes = (SCORE_DTYPE,)
    needs_nearness = True

    def require(self, model: Model) -> None:
        novelty_of(model)

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        return novelty(model, rows.nearness, rows.leaf).astype(SCORE_DTYPE)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield from super().check(values, fill, status)
        yield f"has a {self.name} that is not a share", (values < 0) | (values > 1)

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        nearer, farther = (
            novelty(model, (rows.nearness + off).astype(SCORE_DTYPE), rows.leaf)
            for off in (ROUNDING, -ROUNDING)
        )
        return np.flatnonzero(~((stored >= nearer - ROUNDING) & (stored <= farther + ROUNDING)))


class ContributionsColumn(_NumbersColumn):
    """What each part adds to the decision value of the label: columns of the table, the leaf, and the
    average. A row sums to its decision value, on the scale that its attribute `scale` names, if any.
    """

    name = "contributions"
    dtypes = (SCORE_DTYPE, VALUE_DTYPE)
    dimensions = ("sample", "part")
    needs_reasons = True

    def dtype(self, model: Model) -> np.dtype[Any]:
        return model.score_dtype

    def row_shape(self, model: Model) -> tuple[int, ...]:
        return (len(part_names(model)),)

    def attributes(self, model: Model) -> dict[str, Any]:
        scale = {"scale": model.target.name} if model.target else {}
        return {"parts": list(part_names(model)), "method": method(model), **scale}

    def numbers(self, attributes: Mapping[str, Any], n: int) -> list[Any] | None:
        parts = attributes.get("parts")
        return parts if isinstance(parts, list) and len(parts) == n else None

    def require(self, model: Model) -> None:
        check_contributions(model)

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        if not len(rows.contributions):  # No row was read.
            return np.full((len(rows.status), *self.row_shape(model)), np.nan, self.dtype(model))
        return rows.contributions.astype(self.dtype(model))

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        size = np.abs(right).max(axis=1, initial=0.0)
        off = (tolerance + ROUNDING * size)[:, None]
        wrong = (~(np.abs(stored - right) <= off)).any(axis=1)
        if model.n_outputs > 1:  # Where two classes tie, either may be explained.
            two = np.sort(rows.decision.astype(ACC_DTYPE), axis=1)[:, -2:]
            wrong &= two[:, 1] - two[:, 0] > 2 * tolerance
        return np.flatnonzero(wrong)
