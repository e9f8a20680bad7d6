"""The exact kernel machine: f(x) = Σ_i α_i K(x, x_i) + b over its support vectors.

In several leaves it is DC-SVM's early prediction (Hsieh, Si, Dhillon, ICML 2014): each row is given to the
kernel machine of its own cluster. Values are computed for blocks of rows, as one product of matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken
from dcpred_tasks.training.local_machine import LeafRows, local_machine
from dcpred_tasks.training.settings import Settings

BLOCK_VALUES = 2**22  # kernel values that are held at a time
OF_KERNEL = 10  # multiplications that a kernel value takes beside its product


@dataclass(frozen=True)
class Exact:
    """f(x) = Σ_i α_i K(x, x_i) + b.

    support    float32 (s, n_features), scaled
    dual       float32 (s, n_outputs), α
    intercept  float64 (n_outputs,)
    """

    kernel: Kernel
    support: SingleArray
    dual: SingleArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.support.shape[1], len(self.intercept)

    def decision(self, X: RowArray) -> FloatArray:
        out = np.empty((len(X), len(self.intercept)))
        step = max(BLOCK_VALUES // max(len(self.support), 1), 1)
        dual = self.dual.astype(np.float64)
        for at in range(0, len(X), step):
            own = slice(at, at + step)
            out[own] = self.kernel(X[own], self.support) @ dual + self.intercept
        return out

    @property
    def multiplications(self) -> float:
        return float(self.support.size + self.dual.size + OF_KERNEL * len(self.support))

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = kernel_arrays(self.kernel)
        return own | {"support": self.support, "dual": self.dual, "intercept": self.intercept}


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Exact:
    support, dual, intercept = taken(
        arrays, support=("float32", 2), dual=("float32", 2), intercept=("float64", 1)
    )
    if dual.shape != (len(support), len(intercept)):
        raise ValueError("an exact machine has other weights than support vectors")
    return Exact(kernel_of(arrays), support, dual, intercept)


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Exact:
    """The local machine of the leaf, on local_rows rows at most."""
    local = local_machine(rows, kernel, settings)
    used = np.flatnonzero(local.dual.any(axis=1))
    return Exact(kernel, rows.X[used], local.dual[used].astype(MODEL_DTYPE), local.intercept)
