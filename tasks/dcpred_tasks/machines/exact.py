"""The exact kernel machine: f(x) = Σ_i α_i K(x, x_i) + b over its support vectors.

In several leaves it is DC-SVM's early prediction (Hsieh, Si, Dhillon, ICML 2014): each row is given to the
kernel machine of its own cluster. Values are computed for blocks of rows, as one product of matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.machines.row_sums import KernelSums
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken

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

    @cached_property
    def _sums(self) -> KernelSums:
        return KernelSums(self.kernel, self.support, self.dual)

    def decision(self, X: RowArray) -> FloatArray:
        return self._sums(X) + self.intercept

    def sizes(self, X: RowArray) -> FloatArray:
        return self._sums.sizes(X)

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
