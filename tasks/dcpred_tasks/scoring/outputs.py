"""Output columns of a scoring run."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    SCORE_DTYPE,
    STATUS_DTYPE,
    VALUE_DTYPE,
    FloatArray,
    IntArray,
    LeafNumbers,
    Status,
)
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.model.contributions import check_contributions, method, part_names
from dcpred_tasks.model.label_rule import Costs, LabelRule, label_rule
from dcpred_tasks.model.predictive_outputs import (
    calibration_of,
    intervals,
    intervals_of,
    novelty,
    novelty_of,
    probabilities,
    quantile,
)
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA, SHARES, check_share
from dcpred_tasks.scoring.labels import Label, RawScores, encode_labels, label_coding

BoolArray = NDArray[np.bool_]
StatusArray = NDArray[np.uint8]
Values = dict[str, NDArray[Any]]  # what each output column holds for some rows, by its name


class Stored(NamedTuple):
    """Stored values of rows, beside those of the definition."""

    stored: NDArray[Any]
    right: NDArray[Any]
    """The result of `encode`, from the definition."""
    rows: RawScores
    """By the definition."""
    tolerance: FloatArray
    """(n,), errors of decision values by rounding."""


class OutputColumn(ABC):
    """One array of an output. Methods that depend on the model take it."""

    name: str
    tasks: tuple[str, ...] = ("classification", "regression")
    """Tasks whose models have it."""
    standard: bool = True
    """Whether it is a default output."""
    needs_typicality: bool = False
    """Whether it needs `RawScores.typicality`."""
    needs_scale: bool = False
    """Whether it needs `RawScores.log_scale`."""
    needs_reasons: bool = False
    """Whether it needs `RawScores.contributions`."""
    takes_costs: bool = False
    """Whether it depends on the costs of labels, which are then a part of the plan."""
    takes_alpha: bool = False
    """Whether it depends on an alpha, which is then a part of the plan."""
    dtypes: tuple[type[np.generic], ...]
    """Every possible dtype, for readers without the model."""
    dimensions: tuple[str, ...] = ("sample",)
    """Names of its dimensions; an array may have only the first of them."""
    tally: str = ""
    """The name, in commit records and manifests, of a count of its rows by value; empty without one."""

    @abstractmethod
    def dtype(self, model: Model) -> np.dtype[Any]:
        """The dtype of the array, one of `dtypes`."""

    @abstractmethod
    def fill(self, model: Model) -> int | float:
        """The value of a row without a value, and of one that is not scored yet."""

    def row_shape(self, model: Model) -> tuple[int, ...]:
        """The shape of a row's value; () for one number."""
        return ()

    def attributes(self, model: Model) -> dict[str, Any]:
        """The attributes of the array, as JSON holds them."""
        return {}

    def current_attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Stored attributes in the form of this version, which may differ from an earlier one."""
        return dict(attributes)

    def numbers(self, attributes: Mapping[str, Any], n: int) -> list[Any] | None:
        """The meanings of the n numbers of a row: classes, if the attributes list so many; else None."""
        classes = attributes.get("classes")
        return classes if isinstance(classes, list) and len(classes) == n else None

    def require(self, model: Model) -> None:  # noqa: B027 - most columns ask for nothing
        """Raise DataError, SettingsError where the model lacks it, though its task has it."""

    @abstractmethod
    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        """The values of the array for rows, `dtype` (n, *row_shape)."""

    @abstractmethod
    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        """Which stored numbers mean a missing value, of the shape of `values`."""

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        """Possible errors of stored values beside their status, as text that follows "row 5", and the
        affected rows (n,). Needs no model.
        """
        good = status == Status.OK
        absent = by_row(self.absent(values, fill))
        yield f"has no {self.name}, but its status is 1", good & absent.any(axis=1)
        yield f"has a {self.name}, but its status is not 1", ~good & ~absent.all(axis=1)

    def differing(self, model: Model, of: Stored) -> IntArray:
        """Which rows differ from their correct values by more than rounding."""
        return np.flatnonzero(of.stored != of.right)

    def show(self, value: Any) -> str:
        """The value of a row, in a sentence."""
        shown = np.atleast_1d(value)
        if shown.dtype.kind != "f" or not shown.ndim:
            return str(value)
        return ", ".join(f"{v:.6g}" for v in shown[:3]) + (", …" if len(shown) > 3 else "")

    def tally_values(self, model: Model) -> NDArray[Any]:
        """Values whose rows are counted, in the form of the array; empty without a `tally`."""
        return np.empty(0, self.dtype(model))

    def tally_names(self, model: Model) -> tuple[Label, ...]:
        """The names of these values."""
        return ()


class Needs(TypedDict):
    """Arguments of `score_with_leaves`."""

    typicality: bool
    scale: bool
    reasons: bool


def needed(asked: Iterable[OutputColumn]) -> Needs:
    """The arguments of `score_with_leaves` that columns need."""
    asked = tuple(asked)
    return {
        "typicality": any(column.needs_typicality for column in asked),
        "scale": any(column.needs_scale for column in asked),
        "reasons": any(column.needs_reasons for column in asked),
    }


def by_row(values: NDArray[Any]) -> NDArray[Any]:
    """(n, numbers of a row), also without rows."""
    return values[:, None] if values.ndim == 1 else values


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

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        chances = probabilities(model, rows.decision)
        return (chances if model.n_outputs > 1 else chances[:, 1]).astype(SCORE_DTYPE)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield from super().check(values, fill, status)
        shares = by_row(values)
        wrong = ((shares < 0) | (shares > 1)).any(axis=1)
        if shares.shape[1] > 1:
            wrong |= np.abs(shares.sum(axis=1, dtype=ACC_DTYPE) - 1) > SHARES_OFF
        yield f"has a {self.name} that is invalid", np.asarray(wrong)

    def differing(self, model: Model, of: Stored) -> IntArray:
        low, high = possible_probabilities(model, of.rows, of.tolerance)
        if model.n_outputs == 1:
            low, high = low[:, 1:], high[:, 1:]
        stored = by_row(of.stored)
        return np.flatnonzero(~((stored >= low) & (stored <= high)).all(axis=1))


def possible_probabilities(
    model: Model, rows: RawScores, tolerance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The least and largest probabilities (n, n_classes) for errors up to `tolerance`."""
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

    def given(self, rows: RawScores) -> tuple[FloatArray, LeafNumbers, FloatArray]:
        """Their predictions, leaves and scales."""
        return rows.decision[:, 0].astype(VALUE_DTYPE), rows.leaf, rows.log_scale

    def differing(self, model: Model, of: Stored) -> IntArray:
        stored, right = (model.target.forward(by_row(values)) for values in (of.stored, of.right))
        off = of.tolerance[:, None] + 1e-12 * np.abs(right)
        if len(of.rows.log_scale_off):
            off += (
                np.abs(right - model.target.to_decision(of.rows.decision))
                * np.expm1(np.minimum(of.rows.log_scale_off, 50.0))[:, None]
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

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
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

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        return quantile(model, *self.given(rows), self.share)


class NoveltyColumn(_NumbersColumn):
    """The share of the training rows of a row's leaf that are nearer than the row."""

    name = "novelty"
    dtypes = (SCORE_DTYPE,)
    needs_typicality = True

    def require(self, model: Model) -> None:
        novelty_of(model)

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        return novelty(model, rows.typicality, rows.leaf).astype(SCORE_DTYPE)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield from super().check(values, fill, status)
        yield f"has a {self.name} that is not a share", (values < 0) | (values > 1)

    def differing(self, model: Model, of: Stored) -> IntArray:
        nearer, farther = (
            novelty(model, (of.rows.typicality + off).astype(SCORE_DTYPE), of.rows.leaf)
            for off in (ROUNDING, -ROUNDING)
        )
        return np.flatnonzero(~((of.stored >= nearer - ROUNDING) & (of.stored <= farther + ROUNDING)))


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

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        if not len(rows.contributions):  # No row was read.
            return np.full((len(rows.status), *self.row_shape(model)), np.nan, self.dtype(model))
        return rows.contributions.astype(self.dtype(model))

    def differing(self, model: Model, of: Stored) -> IntArray:
        size = np.abs(of.right).max(axis=1, initial=0.0)
        off = (of.tolerance + ROUNDING * size)[:, None]
        wrong = (~(np.abs(of.stored - of.right) <= off)).any(axis=1)
        if model.n_outputs > 1:  # Where two classes tie, either may be explained.
            two = np.sort(of.rows.decision.astype(ACC_DTYPE), axis=1)[:, -2:]
            wrong &= two[:, 1] - two[:, 0] > 2 * of.tolerance
        return np.flatnonzero(wrong)


# Names of output columns that readers of an output look for.
LABEL, DECISION, CONTRIBUTIONS = "label", "decision", "contributions"
NEVER_GIVEN = ("3", "out_of_range")  # a status that outputs of dcpred 0.1.0 list, but no row has


@dataclass(frozen=True)
class _LabelColumn(OutputColumn):
    """The class of a row, in the form of dcpred_tasks.scoring.labels."""

    costs: Costs | None = None
    """dcpred_tasks.model.label_rule; None: the label is the class of decision values."""

    name = LABEL
    takes_costs = True
    tasks = ("classification",)
    dtypes = (np.int8, np.int16, np.int32, np.int64, np.float64)
    tally = "labels"

    def dtype(self, model: Model) -> np.dtype[Any]:
        return label_coding(model.classes).values.dtype

    def fill(self, model: Model) -> int | float:
        return label_coding(model.classes).missing

    def attributes(self, model: Model) -> dict[str, Any]:
        names = label_coding(model.classes).names
        return {} if names is None else {"labels": list(names)}

    def require(self, model: Model) -> None:
        label_rule(model, self.costs)

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        number = label_rule(model, self.costs)(rows.decision)
        return encode_labels(label_coding(model.classes), number, rows.status)

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values == fill)

    def differing(self, model: Model, of: Stored) -> IntArray:
        classes = label_coding(model.classes).values
        other = np.flatnonzero(of.stored != of.right)
        rule = label_rule(model, self.costs)
        if isinstance(rule, LabelRule):
            other = other[np.isin(of.stored[other], classes) & np.isin(of.right[other], classes)]
            number = (classes[None] == of.stored[other][:, None]).argmax(axis=1)
            low, high = possible_probabilities(model, of.rows.take(other), of.tolerance[other])
            off = of.stored != of.right
            off[other] = ~rule.may_be(number, low, high)
            return np.flatnonzero(off)
        wrong = [not _ties(classes, of.stored[i], of.rows.decision[i], 2 * of.tolerance[i]) for i in other]
        return np.asarray(other[np.array(wrong, bool)])

    def tally_values(self, model: Model) -> NDArray[Any]:
        return label_coding(model.classes).values

    def tally_names(self, model: Model) -> tuple[Label, ...]:
        return model.classes


def _ties(classes: NDArray[Any], label: Any, decision: NDArray[Any], slack: float) -> bool:
    """Whether rounding may make this the label of a row."""
    number = np.flatnonzero(classes == label)
    if not len(number):
        return False
    if len(decision) == 1:
        return abs(float(decision[0])) <= slack
    return bool(decision[number[0]] >= decision[class_numbers(decision[None])[0]] - slack)


class _DecisionColumn(_NumbersColumn):
    """The decision values of a row, one or as many as there are classes; of a regression its prediction."""

    name = DECISION
    standard = True
    dtypes = (SCORE_DTYPE, VALUE_DTYPE)
    dimensions = ("sample", "output")

    def dtype(self, model: Model) -> np.dtype[Any]:
        return model.score_dtype

    def row_shape(self, model: Model) -> tuple[int, ...]:
        return (model.n_outputs,) if model.n_outputs > 1 else ()

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"classes": list(model.classes)} if model.classes else {}

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        return rows.decision if model.n_outputs > 1 else rows.decision[:, 0]

    def differing(self, model: Model, of: Stored) -> IntArray:
        to_decision = model.target.to_decision
        off = np.abs(to_decision(by_row(of.stored)) - to_decision(of.rows.decision))
        return np.flatnonzero((~(off <= of.tolerance[:, None])).any(axis=1))


class _StatusColumn(OutputColumn):
    """The outcome of a row. Every output has it, and it is written last."""

    name = "status"
    dtypes = (STATUS_DTYPE,)

    def dtype(self, model: Model) -> np.dtype[Any]:
        return np.dtype(STATUS_DTYPE)

    def fill(self, model: Model) -> int | float:
        return int(Status.NOT_SCORED)

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"meaning": {str(int(s)): s.name.lower() for s in Status}}

    def current_attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        meaning = attributes.get("meaning")
        if not isinstance(meaning, dict):
            return dict(attributes)
        given = {code: name for code, name in meaning.items() if (code, name) != NEVER_GIVEN}
        return {**attributes, "meaning": given}

    def encode(self, model: Model, rows: RawScores) -> NDArray[Any]:
        return rows.status

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(values == Status.NOT_SCORED)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield "has status 0 in a block that is committed", values == Status.NOT_SCORED
        yield "has a status that dcpred does not know", ~np.isin(values, list(Status))


STATUS = _StatusColumn()
# In the order of writing.
OUTPUT_COLUMNS: tuple[OutputColumn, ...] = (
    _LabelColumn(),
    _DecisionColumn(),
    ProbabilityColumn(),
    IntervalColumn(),
    NoveltyColumn(),
    ContributionsColumn(),
)
OUTPUTS = tuple(column.name for column in OUTPUT_COLUMNS)  # names that can be requested, and quantiles
QUANTILE_COLUMNS: tuple[OutputColumn, ...] = tuple(QuantileColumn(float(share)) for share in SHARES)
QUANTILES = tuple(column.name for column in QUANTILE_COLUMNS)
# Every block asks for its columns, and to name a quantile takes as long as to find one.
_BY_NAME = dict(zip((*OUTPUTS, *QUANTILES), (*OUTPUT_COLUMNS, *QUANTILE_COLUMNS), strict=True))


def columns(
    outputs: Collection[str], alpha: float | None = None, costs: Costs | None = None
) -> tuple[OutputColumn, ...]:
    """The columns of an output in the order of writing: the requested ones, and last the status.

    alpha  for columns with `takes_alpha`; None: their default
    costs  for columns with `takes_costs`; None: their default
    """
    asked = (column for name, column in _BY_NAME.items() if name in outputs)
    if alpha is not None:
        asked = (IntervalColumn(alpha) if column.takes_alpha else column for column in asked)
    if costs is not None:
        asked = (_LabelColumn(costs) if column.takes_costs else column for column in asked)
    return (*asked, STATUS)


def possible_outputs(task: str) -> tuple[str, ...]:
    """The names of all outputs that models of this task may have."""
    return tuple(column.name for column in OUTPUT_COLUMNS if task in column.tasks)


def possible_quantiles(task: str) -> tuple[str, ...]:
    """The names of the one-sided quantiles that models of this task may have beside those."""
    return QUANTILES if task in QUANTILE_COLUMNS[0].tasks else ()


def default_outputs(task: str) -> tuple[str, ...]:
    """The names of the default outputs."""
    return tuple(column.name for column in OUTPUT_COLUMNS if task in column.tasks and column.standard)


def encode_outputs(model: Model, asked: Collection[OutputColumn], rows: RawScores) -> Values:
    """The values of each array of an output for rows."""
    return {column.name: column.encode(model, rows) for column in asked}
