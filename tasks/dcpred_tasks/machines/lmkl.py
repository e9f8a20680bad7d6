"""Localised multiple kernel learning (Gönen and Alpaydın, ICML 2008): an SVM of several kernels, weighted by
a gate that sees the row,

    f(x) = Σ_i a_i Σ_m η_m(x) K_m(x, x_i) η_m(x_i) + b,   η(x) = softmax(V x + v₀).

Each class against the rest has a gate of its own. The paper was not at hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.machines.row_sums import KernelSums
from dcpred_tasks.model.kernel_families import KERNELS
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_from_numbers, stored_numbers, taken, text_array, text_of

OF_FUNCTION = 10  # multiplications of an exponential


@dataclass(frozen=True)
class Lmkl:
    """f(x) = Σ_m η_m(x) Σ_i dual_mi K_m(x, x_i) + b, where dual has η_m(x_i) in it.

    support    float32 (s, n_features), scaled
    dual       float32 (n_kernels, s, n_outputs)
    gate       float64 (n_outputs, n_kernels, n_features + 1), V with v₀ as its last column
    intercept  float64 (n_outputs,)
    """

    kernels: tuple[Kernel, ...]
    support: SingleArray
    dual: SingleArray
    gate: FloatArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.support.shape[1], len(self.intercept)

    @cached_property
    def _sums(self) -> list[KernelSums]:
        """Of each kernel; a linear one is a product with one vector, Σ_i dual_i x_i."""
        return [
            KernelSums(kernel, *_merged(self.support, dual) if _is_linear(kernel) else (self.support, dual))
            for kernel, dual in zip(self.kernels, self.dual, strict=True)
        ]

    def decision(self, X: RowArray) -> FloatArray:
        eta = self._gates(X)
        out = np.tile(self.intercept, (len(X), 1))
        for m, sums in enumerate(self._sums):
            out += eta[:, m] * sums(X)
        return out

    def sizes(self, X: RowArray) -> FloatArray:
        """With the size of what the exponents of a gate are summed of."""
        X = X.astype(ACC_DTYPE)
        eta = self._gates(X).max(axis=2)
        logits = np.linalg.norm(self.gate, axis=2).max(initial=0.0) * np.sqrt(1 + (X * X).sum(axis=1))
        sums = sum(eta[:, m] * one.sizes(X) for m, one in enumerate(self._sums))
        return np.asarray((1 + logits / 4) * sums)

    def _gates(self, X: RowArray) -> RealArray:
        """η of rows, (n, n_kernels, n_outputs)."""
        return np.stack([gated(X, gate.astype(X.dtype)) for gate in self.gate], axis=2)

    @property
    def multiplications(self) -> float:
        d, k = self.shape
        of_kernels = 0
        for kernel in self.kernels:
            of_value = d + (OF_FUNCTION if kernel.stationary else kernel.degree) + k
            of_kernels += d * k if _is_linear(kernel) else of_value * len(self.support)
        n_gates = self.gate.shape[0] * self.gate.shape[1]
        return float(of_kernels + n_gates * (d + OF_FUNCTION + 1))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "kernels": text_array(",".join(kernel.name for kernel in self.kernels)),
            "kernel_numbers": stored_numbers(self.kernels),
            "support": self.support,
            "dual": self.dual,
            "gate": self.gate,
            "intercept": self.intercept,
        }


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Lmkl:
    raw, numbers = taken(arrays, kernels=("uint8", 1), kernel_numbers=("float64", 2))
    support, dual = taken(arrays, support=("float32", 2), dual=("float32", 3))
    gate, intercept = taken(arrays, gate=("float64", 3), intercept=("float64", 1))
    names = text_of(raw).split(",")
    if len(numbers) != len(names) or not set(names) <= set(KERNELS):
        raise ValueError("the kernels of localised multiple kernels are none")
    kernels = tuple(kernel_from_numbers(name, own) for name, own in zip(names, numbers, strict=True))
    if dual.shape != (len(names), len(support), len(intercept)):
        raise ValueError("localised multiple kernels have other weights than support vectors")
    if gate.shape != (len(intercept), len(names), support.shape[1] + 1) or not len(intercept):
        raise ValueError("localised multiple kernels have other gates than kernels")
    return Lmkl(kernels, support, dual, gate, intercept)


def gated(X: RealArray, gate: RealArray) -> RealArray:
    """η (n, n_kernels) of rows."""
    logits = X @ gate[:, :-1].T + gate[:, -1]
    eta = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(eta / eta.sum(axis=1, keepdims=True))


def _is_linear(kernel: Kernel) -> bool:
    return kernel.name == "polynomial" and kernel.degree == 1 and kernel.coef0 == 0


def _merged(support: SingleArray, dual: SingleArray) -> tuple[SingleArray, FloatArray]:
    """Σ_i dual_i x_i of each output as a point of its own."""
    points = dual.astype(ACC_DTYPE).T @ support.astype(ACC_DTYPE)
    return points.astype(support.dtype), np.eye(len(points))
