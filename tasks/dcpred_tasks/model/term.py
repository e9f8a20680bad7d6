"""Terms of a model beside its kernels: f(x) = kernel part of the leaf + Σ terms(x) + intercept.

The kernel part is of the leaf that a row lies in; a term is of all of space. Rows of a term are encoded: raw
features with means in place of target-encoded categories, where NaN is a missing value. The bounds of a
regression hold for the whole sum.

A new term is a dataclass in a module of its own, with a place in TERMS (terms.py), and a fit with a place in
FITS (training/term_fits.py). Its arrays are declared by lines, as those of leaves are. One that exported
models hold is an ExportedTerm.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.leaf_arrays import from_held, held_arrays

RowValues = Callable[[NDArray[Any]], FloatArray]


class Term(ABC):
    """A fitted term. Tests: tests/support/terms.py, `check_term`."""

    name: ClassVar[str]
    """In models, where it comes before the names of its arrays."""
    since: ClassVar[int]
    """The first version of the model format that has it, at most model_artifact.VERSION: earlier releases
    refuse models with it."""

    @abstractmethod
    def values(self, X: NDArray[Any]) -> FloatArray:
        """Of encoded rows (n, n_features): float64 (n, n_outputs), where a row does not depend on the others.
        A row that cannot be scored may have any values.
        """

    @property
    def engine(self) -> RowValues:
        """A function that computes the same values faster, for any number of threads."""
        return self.values

    @abstractmethod
    def sizes(self, X: NDArray[Any]) -> FloatArray:
        """The magnitude of what is summed for rows, float64 (n,): rounding is relative to it."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Nanoseconds of a row in the engine."""

    @property
    def facts(self) -> dict[str, int]:
        """What it holds, by names for a reader."""
        return {}

    @abstractmethod
    def contributions(self, X: NDArray[Any], background: NDArray[Any], output: int) -> FloatArray:
        """What each encoded feature contributes to one output of rows (n, n_features), float64 of their
        shape: the sum of a row is its value less the mean value of the background rows.
        """

    @abstractmethod
    def check(self, n_features: int, n_outputs: int) -> None:
        """Raise ValueError where the arrays do not fit together, or a model with so many encoded features."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays that rebuild it, by their names in a model."""
        return held_arrays(self, f"{self.name}_")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`, among others."""
        return from_held(cls, arrays, f"{cls.name}_")


class Operations(Protocol):
    """A graph of ONNX under construction. A tensor is its name."""

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """The result of an operator. A number or an array among its inputs is a constant in double
        precision.
        """

    def constant(self, values: Any, dtype: Any = None) -> str:
        """A tensor with these values."""

    def cast(self, tensor: str, dtype: Any) -> str:
        """A tensor of another type."""

    def reshape(self, tensor: str, *shape: int) -> str:
        """A tensor of another shape; −1 is for what remains."""

    def columns(self, tensor: str, which: Any) -> str:
        """Some columns of a matrix."""


class ExportedTerm(Term):
    """A term that exported models compute as `values` does, in double precision."""

    @abstractmethod
    def onnx_values(self, graph: Operations, X: str) -> str:
        """Its values of encoded rows, a tensor float64 (n, n_outputs) of one (n, n_features)."""

    @property
    @abstractmethod
    def c_source(self) -> str:
        """Statements of C that add its values at one encoded row, double x[N_ENCODED], to double
        out[N_OUTPUTS]. Its arrays have their names in a model.
        """


def offset_of(values: Sequence[RowValues], X: NDArray[Any], n_outputs: int) -> FloatArray:
    """The sum of terms at encoded rows, float64 (n, n_outputs), by their values or engines; (n, 0) without
    terms.
    """
    if not values:
        return np.empty((len(X), 0))
    total = np.zeros((len(X), n_outputs), ACC_DTYPE)
    with np.errstate(all="ignore"):  # A value that is not finite becomes a status.
        for of_rows in values:
            total += of_rows(X)
    return total
