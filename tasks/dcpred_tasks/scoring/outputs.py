"""The arrays of an output, in the order of writing: label, decision value and status, and those of
uncertainty (sure_outputs.py).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import SCORE_DTYPE, STATUS_DTYPE, VALUE_DTYPE, FloatArray, IntArray, Status
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.model.label_rule import Costs, LabelRule, label_rule
from dcpred_tasks.model.sureness import SHARES
from dcpred_tasks.scoring.decided import Decided
from dcpred_tasks.scoring.labels import Label, encode_labels, label_coding
from dcpred_tasks.scoring.output_column import BoolArray, OutputColumn, StatusArray, Values, by_row
from dcpred_tasks.scoring.sure_outputs import (
    ContributionsColumn,
    IntervalColumn,
    NoveltyColumn,
    ProbabilityColumn,
    QuantileColumn,
    possible_probabilities,
)

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

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        number = label_rule(model, self.costs)(rows.decision)
        return encode_labels(label_coding(model.classes), number, rows.status)

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values == fill)

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        classes = label_coding(model.classes).values
        other = np.flatnonzero(stored != right)
        rule = label_rule(model, self.costs)
        if isinstance(rule, LabelRule):
            other = other[np.isin(stored[other], classes) & np.isin(right[other], classes)]
            number = (classes[None] == stored[other][:, None]).argmax(axis=1)
            low, high = possible_probabilities(model, rows.take(other), tolerance[other])
            off = stored != right
            off[other] = ~rule.may_be(number, low, high)
            return np.flatnonzero(off)
        wrong = [not _ties(classes, stored[i], rows.decision[i], 2 * tolerance[i]) for i in other]
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


class _DecisionColumn(OutputColumn):
    """The decision values of a row, one or as many as there are classes; of a regression its prediction."""

    name = DECISION
    dtypes = (SCORE_DTYPE, VALUE_DTYPE)
    dimensions = ("sample", "output")

    def dtype(self, model: Model) -> np.dtype[Any]:
        return model.score_dtype

    def fill(self, model: Model) -> int | float:
        return float("nan")

    def row_shape(self, model: Model) -> tuple[int, ...]:
        return (model.n_outputs,) if model.n_outputs > 1 else ()

    def attributes(self, model: Model) -> dict[str, Any]:
        return {"classes": list(model.classes)} if model.classes else {}

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        return rows.decision if model.n_outputs > 1 else rows.decision[:, 0]

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values))

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        own = model.target.decided
        off = np.abs(own(by_row(stored)) - own(rows.decision))
        return np.flatnonzero((~(off <= tolerance[:, None])).any(axis=1))


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

    def said(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        meaning = attributes.get("meaning")
        if not isinstance(meaning, dict):
            return dict(attributes)
        given = {code: name for code, name in meaning.items() if (code, name) != NEVER_GIVEN}
        return {**attributes, "meaning": given}

    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
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


def columns(
    outputs: Collection[str], alpha: float | None = None, costs: Costs | None = None
) -> tuple[OutputColumn, ...]:
    """The columns of an output in the order of writing: the requested ones, and last the status.

    alpha  for columns with `takes_alpha`; None: their default
    costs  for columns with `takes_costs`; None: their default
    """
    asked = (column for column in (*OUTPUT_COLUMNS, *QUANTILE_COLUMNS) if column.name in outputs)
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


def encode_outputs(model: Model, asked: Collection[OutputColumn], rows: Decided) -> Values:
    """The values of each array of an output for rows."""
    return {column.name: column.encode(model, rows) for column in asked}
