"""What an array of an output promises: what it holds for a row, and how a stored value is held against it.

One OutputColumn is one array of `scores.zarr`. Everything that writes, reads, verifies or counts an output
goes over columns, so that another column is another class (outputs.py, sure_outputs.py), a place in
OUTPUT_COLUMNS, and whoever computes what it holds.
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
    """One array of an output. What depends on the model is asked with the model."""

    name: str
    tasks: tuple[str, ...] = ("classification", "regression")
    """Tasks whose models give it."""
    standard: bool = True
    """Whether an output has it without being asked for it."""
    needs_nearness: bool = False
    """Whether it is made of `Decided.nearness`."""
    needs_scale: bool = False
    """Whether it is made of `Decided.log_scale`."""
    needs_reasons: bool = False
    """Whether it is made of `Decided.contributions`."""
    takes_costs: bool = False
    """Whether what it holds depends on the costs of labels, which are then a part of the plan."""
    takes_alpha: bool = False
    """Whether what it holds depends on an alpha, which is then a part of the plan."""
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

    def numbers(self, attributes: Mapping[str, Any], n: int) -> list[Any] | None:
        """What tells the n numbers of a row apart, by the attributes of the stored array: classes, if it says
        so many; None where nothing does.
        """
        classes = attributes.get("classes")
        return classes if isinstance(classes, list) and len(classes) == n else None

    def require(self, model: Model) -> None:  # noqa: B027 - most columns ask for nothing
        """Raise DataError, SettingsError where the model cannot give it, though its task can."""

    @abstractmethod
    def encode(self, model: Model, rows: Decided) -> NDArray[Any]:
        """What the array holds for rows, `dtype` (n, *row_shape)."""

    @abstractmethod
    def absent(self, values: NDArray[Any], fill: Any) -> BoolArray:
        """Which stored numbers are the one that stands for no value, of the shape of `values`."""

    def check(self, values: NDArray[Any], fill: Any, status: StatusArray) -> Iterator[tuple[str, BoolArray]]:
        """What can be wrong with stored values beside their status, as "row 5 …" goes on, and which rows (n,)
        it is so of. It needs no model.
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
        """Which rows hold something else than they should, by more than rounding.

        right      as `encode` gives it, from the definition
        rows       by the definition
        tolerance  (n,), how far decision values may be off by rounding
        """
        return np.flatnonzero(stored != right)

    def show(self, value: Any) -> str:
        """The value of a row, in a sentence."""
        shown = np.atleast_1d(value)
        if shown.dtype.kind != "f" or not shown.ndim:
            return str(value)
        return ", ".join(f"{v:.6g}" for v in shown[:3]) + (", …" if len(shown) > 3 else "")

    def tally_values(self, model: Model) -> NDArray[Any]:
        """Values whose rows are counted, as the array holds them; none without a `tally`."""
        return np.empty(0, self.dtype(model))

    def tally_names(self, model: Model) -> tuple[Label, ...]:
        """The same values, as a person knows them."""
        return ()


class Needs(TypedDict):
    """Arguments of `decide`."""

    nearness: bool
    scale: bool
    reasons: bool


def needed(asked: Iterable[OutputColumn]) -> Needs:
    """What columns need of `decide` beside decision values."""
    asked = tuple(asked)
    return {
        "nearness": any(column.needs_nearness for column in asked),
        "scale": any(column.needs_scale for column in asked),
        "reasons": any(column.needs_reasons for column in asked),
    }


def by_row(values: NDArray[Any]) -> NDArray[Any]:
    """(n, numbers of a row), also of no rows."""
    return values[:, None] if values.ndim == 1 else values
