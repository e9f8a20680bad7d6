"""A linear SVM or ridge regression on the functions of a basis: f(x) = β · c̄(x) + b.

Z Zᵀ of the functions z = c̄(x) stands for the kernel, so that C and λ mean what they do in the exact machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import BASES, DrawnBasis, basis_module, taken, text_array, text_of
from dcpred_tasks.training.local_machine import ABSENT, LeafRows, labellings
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import linear_ridge, linear_svm

ROWS_AT_ONCE = 8_192  # rows whose functions are held at a time in a prediction


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

    def decision(self, X: RowArray) -> FloatArray:
        out = np.empty((len(X), len(self.intercept)))
        for at in range(0, len(X), ROWS_AT_ONCE):
            own = slice(at, at + ROWS_AT_ONCE)
            out[own] = self.basis(X[own]) @ self.beta + self.intercept
        return out

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


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Linear:
    """The machine of the setting `basis`."""
    name, rng = settings.basis, np.random.default_rng([settings.seed, seed])
    basis: DrawnBasis = basis_module(name).fit_basis(name, rows.X, kernel, settings.machine_size, rng)
    weight = rows.compact_weight(settings.halo_weight)
    Z = basis(rows.X)
    if rows.task == "regression":
        w, b = linear_ridge(Z, rows.target.astype(np.float64), weight, settings.ridge)
        return Linear(name, *basis.folded(w[:, None]), np.array([b]))
    beta, intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    for output, sign in labellings(rows):
        beta[:, output], intercept[output] = linear_svm(Z, sign, weight, settings.C)
    return Linear(name, *basis.folded(beta), intercept)
