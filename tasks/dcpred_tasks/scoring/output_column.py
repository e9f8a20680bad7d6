"""The contract of an array of an output: its value for a row, and how stored values are verified.

One OutputColumn is one array of `scores.zarr`. All code that writes, reads, verifies or counts an output
iterates over columns: a new column is a class (outputs.py, sure_outputs.py), a place in OUTPUT_COLUMNS, and
the code that computes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, Status
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.decided import Decided
from dcpred_tasks.scoring.labels import Label

BoolArray = NDArray[np.bool_]
StatusArray = NDArray[np.uint8]
Values = dict[str, NDArray[Any]]  # what each output column holds for some rows, by its name


class OutputColumn(ABC):
    """One array of an output. Methods that depend on the model take it."""

    name: str
    tasks: tuple[str, ...] = ("classification", "regression")
    """Tasks whose models have it."""
    standard: bool = True
    """Whether it is a default output."""
    needs_nearness: bool = False
    """Whether it needs `Decided.nearness`."""
    needs_scale: bool = False
    """Whether it needs `Decided.log_scale`."""
    needs_reasons: bool = False
    """Whether it needs `Decided.contributions`."""
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

    def said(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Stored attributes in the form of this version, which may differ from an earlier one."""
        return dict(attributes)

    def numbers(self, attributes: Mapping[str, Any], n: int) -> list[Any] | None:
        """The meanings of the n numbers of a row, by the attributes of the stored array: classes, if it lists
        so many; else None.
        """
        classes = attributes.get("classes")
        return classes if isinstance(classes, list) and len(classes) == n else None

    def require(self, model: Model) -> None:  # noqa: B027 - most columns ask for nothing
        """Raise DataError, SettingsError where the model lacks it, though its task has it."""

    @abstractmethod
    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
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

    def differing(
        self,
        model: Model,
        stored: NDArray[Any],
        right: NDArray[Any],
        rows: Decided,
        tolerance: FloatArray,
    ) -> IntArray:
        """Which rows differ from their correct values by more than rounding.

        right      the result of `encode`, from the definition
        rows       by the definition
        tolerance  (n,), errors of decision values by rounding
        """
        return np.flatnonzero(stored != right)

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
    """Arguments of `decide`."""

    nearness: bool
    scale: bool
    reasons: bool


def needed(asked: Iterable[OutputColumn]) -> Needs:
    """The arguments of `decide` that columns need."""
    asked = tuple(asked)
    return {
        "nearness": any(column.needs_nearness for column in asked),
        "scale": any(column.needs_scale for column in asked),
        "reasons": any(column.needs_reasons for column in asked),
    }


def by_row(values: NDArray[Any]) -> NDArray[Any]:
    """(n, numbers of a row), also without rows."""
    return values[:, None] if values.ndim == 1 else values
