"""A linear SVM or ridge regression on the functions of a basis: f(x) = β · c̄(x) + b."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.kernels import RowArray
from dcpred_tasks.model.machine import BASES, DrawnBasis, SumsOfRows, basis_module, taken, text_array, text_of


@dataclass(frozen=True)
class Linear:
    """f(x) = β · c̄(x) + b.

    beta       float64 (size, n_outputs): terms of Nyström features cancel
    intercept  float64 (n_outputs,)
    """

    name: str
    basis: DrawnBasis
    beta: FloatArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.basis.n_features, len(self.intercept)

    @cached_property
    def _sums(self) -> SumsOfRows:
        return self.basis.sums(self.beta)

    def decision(self, X: RowArray) -> FloatArray:
        return self._sums(X) + self.intercept

    def sizes(self, X: RowArray) -> FloatArray:
        return self._sums.sizes(X)

    @property
    def multiplications(self) -> float:
        return self.basis.multiplications + self.beta.size

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = {
            "basis": text_array(self.name),
            "beta": self.beta,
            "intercept": self.intercept,
        }
        return own | {f"basis.{key}": value for key, value in self.basis.arrays().items()}


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Linear:
    raw, beta, intercept = taken(arrays, basis=("uint8", 1), beta=("float64", 2), intercept=("float64", 1))
    name = text_of(raw)
    if name not in BASES:
        raise ValueError(f"there is no basis {name[:40]!r}")
    own = {key.removeprefix("basis."): value for key, value in arrays.items() if key.startswith("basis.")}
    basis: DrawnBasis = basis_module(name).basis_of_arrays(own)
    if beta.shape != (basis.size, len(intercept)):
        raise ValueError("a linear machine has other weights than functions")
    return Linear(name, basis, beta, intercept)
