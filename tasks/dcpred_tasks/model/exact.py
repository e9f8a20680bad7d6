"""The exact kernel model: f(x) = Σ_i α_i K(x, x_i) + b over its support vectors.

In several leaves it is the early prediction of DC-SVM (Hsieh, Si, Dhillon, ICML 2014): each row is given to
the kernel model of its own cluster. Sums over the functions of a row are computed for blocks of rows that
stay in the cache. Rows of double precision are summed by the definition. Rows of single precision are summed
as products of matrices in single precision; blocks are added in double precision. The size of a block depends
on the number of functions alone: the same rows in the same order give the same bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.kernels import Kernel, RowArray, Sum
from dcpred_tasks.model.packed_arrays import kernel_arrays, kernel_of, taken

BLOCK_VALUES = 2**18  # values of functions that are held at a time: 1 MiB in single precision
FEWEST_ROWS, MOST_ROWS = 64, 2_048  # limits of a block
POINTS = 1_024  # points whose kernel values are held at a time
OF_KERNEL = 10  # multiplications that a kernel value takes beside its product


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Rows of a block each, where a row has so many values."""
    step = int(np.clip(BLOCK_VALUES // max(width, 1), FEWEST_ROWS, MOST_ROWS))
    return (slice(at, at + step) for at in range(0, n_rows, step))


def is_single(X: RowArray) -> bool:
    return X.dtype == MODEL_DTYPE


class Centring:
    """Squared distances as one product of matrices about the middle of some points, where single precision
    keeps its digits: f ‖z − v‖² = [z, ‖z‖², 1] · f [−2v, 1, ‖v‖²], z = x − c and v = u − c.
    """

    def __init__(self, points: RealArray) -> None:
        mean = points.mean(axis=0, dtype=ACC_DTYPE) if len(points) else np.zeros(points.shape[1])
        self.middle = mean.astype(MODEL_DTYPE)

    def rows(self, X: RowArray) -> RealArray:
        """[z, ‖z‖², 1] of rows (n, d), in their dtype: (n, d + 2)."""
        left = np.empty((len(X), X.shape[1] + 2), X.dtype)
        z = left[:, :-2]
        np.subtract(X, self.middle, out=z)
        np.einsum("ij,ij->i", z, z, out=left[:, -2])
        left[:, -1] = 1
        return left

    def points(self, U: RealArray, factor: float, dtype: Any) -> RealArray:
        """f [−2v, 1, ‖v‖²] of points (m, d): (d + 2, m)."""
        V = U.astype(ACC_DTYPE) - self.middle
        norms = np.einsum("ij,ij->i", V, V)
        return np.ascontiguousarray(factor * np.vstack([-2 * V.T, np.ones((1, len(V))), norms]), dtype)


class RowSums(ABC):
    """Σ_q β_q c̄_q(x) of scaled rows: called with (n, n_features), float64 (n, n_outputs)."""

    weights: FloatArray
    """β, float64 (functions, n_outputs)."""
    width: int
    """Values that a row has at a time."""

    def __call__(self, X: RowArray) -> FloatArray:
        out = np.zeros((len(X), self.weights.shape[1]))
        add = self.add_single if is_single(X) else self.add_double
        for block in blocks(len(X), self.width):
            add(X[block], out[block])
        return out

    @abstractmethod
    def add_single(self, X: RealArray, out: FloatArray) -> None:
        """Add the sums of a block of rows to `out`, in single precision."""

    @abstractmethod
    def add_double(self, X: RealArray, out: FloatArray) -> None:
        """The same, in double precision and by the definition."""

    @abstractmethod
    def sizes(self, X: RowArray) -> FloatArray:
        """How large what is summed is, (n,): errors of single precision are relative to it."""

    @cached_property
    def single_weights(self) -> SingleArray:
        return self.weights.astype(MODEL_DTYPE)

    @cached_property
    def largest_weights(self) -> FloatArray:
        """The largest |β| of each function, (functions,)."""
        return np.asarray(np.abs(self.weights).max(axis=1, initial=0.0))


class KernelSums(RowSums):
    """Σ_j β_j K(x, u_j).

    A kernel of distances is a function of t = γ‖x − u‖², one product of matrices. That of rbf gives −t, the
    exponent itself: with two passes more it took 1.4 times as long (2026-11-24).
    """

    def __init__(self, kernel: Kernel, points: SingleArray, weights: RealArray) -> None:
        self.kernel, self.points, self.weights = kernel, points, weights.astype(ACC_DTYPE)
        self.width = min(len(points), POINTS)
        self._is_rbf = kernel.name == "rbf"

    def add_double(self, X: RealArray, out: FloatArray) -> None:
        for part in self._parts():
            out += self.kernel(X, self.points[part]) @ self.weights[part]

    def add_single(self, X: RealArray, out: FloatArray) -> None:
        left = self._centring.rows(X) if self.kernel.family.sum == Sum.SQUARES else X
        room = np.empty(len(X) * self.width, MODEL_DTYPE)
        for part, right in zip(self._parts(), self._right, strict=True):
            t = room[: len(X) * len(self.points[part])].reshape(len(X), -1)
            out += self._values(left, right, t) @ self.single_weights[part]

    def sizes(self, X: RowArray) -> FloatArray:
        """Σ_j |β_j| K(x, u_j) (1 + reach / 4), where the reach is the size of what a distance is made of; of
        products the sums of magnitudes.
        """
        X = X.astype(ACC_DTYPE)
        if not self.kernel.stationary:
            of_magnitudes = KernelSums(self.kernel, np.abs(self.points), self.largest_weights[:, None])
            return self.kernel.degree * of_magnitudes(np.abs(X))[:, 0]
        of_rows, of_points = (self._reach(rows) for rows in (X, self.points.astype(ACC_DTYPE)))
        both = np.column_stack([self.largest_weights, self.largest_weights * of_points])
        plain, reached = KernelSums(self.kernel, self.points, both)(X).T
        return np.asarray(self.kernel.family.steepest * (plain * (1 + of_rows / 4) + reached / 4))

    def _reach(self, X: FloatArray) -> FloatArray:
        gamma = self.kernel.gamma
        if self.kernel.family.sum == Sum.ABSOLUTE:
            return np.asarray(gamma * np.abs(X).sum(axis=1))
        z = X - self._centring.middle
        return np.asarray(gamma * np.einsum("ij,ij->i", z, z) + np.sqrt(gamma * np.einsum("ij,ij->i", X, X)))

    def _parts(self) -> Iterator[slice]:
        return (slice(at, at + POINTS) for at in range(0, len(self.points), POINTS))

    @cached_property
    def _centring(self) -> Centring:
        return Centring(self.points)

    @cached_property
    def _right(self) -> list[SingleArray]:
        """What rows of each part of the points are multiplied with, float32 (·, points)."""
        return [self._factors(self.points[part]) for part in self._parts()]

    def _factors(self, U: SingleArray) -> SingleArray:
        gamma = self.kernel.gamma
        if self.kernel.family.sum == Sum.SQUARES:
            return self._centring.points(U, -gamma if self._is_rbf else gamma, MODEL_DTYPE)
        of_products = self.kernel.family.sum == Sum.PRODUCTS
        return np.ascontiguousarray(U.T * (gamma if of_products else 1.0), MODEL_DTYPE)

    def _values(self, left: SingleArray, right: SingleArray, t: SingleArray) -> RealArray:
        """Kernel values (rows, points), which may take the place of t."""
        kernel = self.kernel
        if kernel.family.sum == Sum.ABSOLUTE:
            t[:] = 0
            off = np.empty_like(t)
            for x, u in zip(left.T, right, strict=True):
                np.subtract(x[:, None], u, out=off)
                t += np.abs(off, out=off)
            t *= MODEL_DTYPE(kernel.gamma)
        else:
            np.matmul(left, right, out=t)
            if self._is_rbf:
                return np.exp(t, out=t)
            if kernel.family.sum == Sum.SQUARES:
                np.maximum(t, 0, out=t)
        return kernel.family.value(t, kernel)


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

    def predict(self, X: RowArray) -> FloatArray:
        return self._sums(X) + self.intercept

    def sizes(self, X: RowArray) -> FloatArray:
        return self._sums.sizes(X)

    @property
    def cost(self) -> float:
        return float(self.support.size + self.dual.size + OF_KERNEL * len(self.support))

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = kernel_arrays(self.kernel)
        return arrays | {"support": self.support, "dual": self.dual, "intercept": self.intercept}


def exact_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Exact:
    """The exact model that gave the arrays. Raises ValueError where they do not fit together."""
    support, dual, intercept = taken(
        arrays, support=("float32", 2), dual=("float32", 2), intercept=("float64", 1)
    )
    if dual.shape != (len(support), len(intercept)):
        raise ValueError("an exact model has other weights than support vectors")
    return Exact(kernel_of(arrays), support, dual, intercept)
