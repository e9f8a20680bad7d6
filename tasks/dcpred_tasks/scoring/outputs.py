"""The arrays of an output: what each of them holds for a row, and how a stored value is held against it.

One OutputColumn is one array of `scores.zarr`. Everything that writes, reads, verifies or counts an output
goes over columns, so that another column is another class here, a place in OUTPUT_COLUMNS, and whoever
computes what it holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import SCORE_DTYPE, STATUS_DTYPE, VALUE_DTYPE, FloatArray, IntArray, Status
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.scoring.labels import Label, encode_labels, label_coding

BoolArray = NDArray[np.bool_]
StatusArray = NDArray[np.uint8]
LABEL, DECISION = "label", "decision"  # names of output columns that readers of an output look for
Values = dict[str, NDArray[Any]]  # what each output column holds for some rows, by its name
NEVER_GIVEN = ("3", "out_of_range")  # a status that outputs of dcpred 0.1.0 name, but no row has


class OutputColumn(ABC):
    """One array of an output. It has no state: what depends on the model is asked with the model."""

    name: str
    tasks: tuple[str, ...] = ("classification", "regression")
    """Tasks whose models give it."""
    dtypes: tuple[type[np.generic], ...]
    """Every dtype that some model gives it: what is possible, for whoever has no model."""
    dimensions: tuple[str, ...] = ("sample",)
    """Names of its dimensions; an array may have only the first of them."""
    tally: str = ""
    """The name, in commit records and manifests, of a count of its rows by value; empty without one."""

    @abstractmethod
    def dtype(self, model: Model) -> np.dtype[Any]:
        """The dtype of the array, one of `dtypes`."""

    @abstractmethod
    def fill(self, model: Model) -> int | float:
        """What stands for a row that has no value, and for one that is not scored yet."""

    def row_shape(self, model: Model) -> tuple[int, ...]:
        """The shape of a row's value; () for one number."""
        return ()

    def attributes(self, model: Model) -> dict[str, Any]:
        """The attributes of the array, as JSON holds them."""
        return {}

    def said(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """What stored attributes say, as this version says it: an earlier one may have said it otherwise."""
        return dict(attributes)

    @abstractmethod
    def encode(self, model: Model, decision: Scores, status: StatusArray) -> NDArray[Any]:
        """What the array holds for rows, `dtype` (n, *row_shape).

        decision  (n, n_outputs), NaN where the status is not 1
        status    uint8 (n,)
        """

    @abstractmethod
    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        """Which stored numbers are the one that stands for no value, of the shape of `values`."""

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        """What can be wrong with stored values beside their status, as "row 5 …" goes on, and which rows (n,)
        it is so of. It needs no model.
        """
        good = status == Status.OK
        absent = _by_row(self.absent(values, fill))
        yield f"has no {self.name}, but its status is 1", good & absent.any(axis=1)
        yield f"has a {self.name}, but its status is not 1", ~good & ~absent.all(axis=1)

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        decision: Scores,
        tolerance: FloatArray,
    ) -> IntArray:
        """Which rows hold something else than they should, by more than rounding.

        right      as `encode` gives it, from the definition
        decision   (n, n_outputs), by the definition
        tolerance  (n,), how far decision values may be off by rounding
        """
        return np.flatnonzero(stored != right)

    def show(self, value: Any) -> str:
        """The value of a row, in a sentence."""
        return str(value)

    def tally_values(self, model: Model) -> NDArray[Any]:
        """Values whose rows are counted, as the array holds them; none without a `tally`."""
        return np.empty(0, self.dtype(model))

    def tally_names(self, model: Model) -> tuple[Label, ...]:
        """The same values, as a person knows them."""
        return ()


def _by_row(values: NDArray[Any]) -> NDArray[Any]:
    """(n, numbers of a row), also of no rows."""
    return values[:, None] if values.ndim == 1 else values


class _LabelColumn(OutputColumn):
    """The class of a row, as dcpred_tasks.scoring.labels codes it."""

    name = LABEL
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

    def encode(self, model: Model, decision: Scores, status: StatusArray) -> NDArray[Any]:
        return encode_labels(label_coding(model.classes), decision, status)

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values == fill)

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        decision: Scores,
        tolerance: FloatArray,
    ) -> IntArray:
        classes = label_coding(model.classes).values
        rows = np.flatnonzero(stored != right)
        wrong = [not _ties(classes, stored[i], decision[i], 2 * tolerance[i]) for i in rows]
        return np.asarray(rows[np.array(wrong, bool)])

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

    def encode(self, model: Model, decision: Scores, status: StatusArray) -> NDArray[Any]:
        return decision if model.n_outputs > 1 else decision[:, 0]

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(np.isnan(values))

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        decision: Scores,
        tolerance: FloatArray,
    ) -> IntArray:
        off = np.abs(_by_row(stored) - decision)
        return np.flatnonzero((~(off <= tolerance[:, None])).any(axis=1))

    def show(self, value: Any) -> str:
        shown = np.atleast_1d(value)
        return ", ".join(f"{v:.6g}" for v in shown[:3]) + (", …" if len(shown) > 3 else "")


class _StatusColumn(OutputColumn):
    """What became of a row. Every output has it, and it is written last."""

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

    def encode(self, model: Model, decision: Scores, status: StatusArray) -> NDArray[Any]:
        return status

    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        return np.asarray(values == Status.NOT_SCORED)

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        yield "has status 0 in a block that is committed", values == Status.NOT_SCORED
        yield "has a status that dcpred does not know", ~np.isin(values, list(Status))


STATUS = _StatusColumn()
OUTPUT_COLUMNS: tuple[OutputColumn, ...] = (_LabelColumn(), _DecisionColumn())  # in the order of writing
OUTPUTS = tuple(column.name for column in OUTPUT_COLUMNS)  # names that can be asked for


def columns(outputs: Collection[str]) -> tuple[OutputColumn, ...]:
    """The columns of an output in the order of writing: those that were asked for, and last the status."""
    return (*(column for column in OUTPUT_COLUMNS if column.name in outputs), STATUS)


def default_outputs(task: str) -> tuple[str, ...]:
    """The names of all outputs that models of this task give."""
    return tuple(column.name for column in OUTPUT_COLUMNS if task in column.tasks)


def encode_outputs(model: Model, outputs: Collection[str], decision: Scores, status: StatusArray) -> Values:
    """What each array of an output holds for rows: decision (n, n_outputs), status uint8 (n,)."""
    return {column.name: column.encode(model, decision, status) for column in columns(outputs)}
