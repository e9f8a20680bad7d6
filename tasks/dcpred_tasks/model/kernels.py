"""Kernels, as values: K(x, u) between rows of two arrays, in double precision.

A stationary kernel depends on a distance r(x, u) that obeys the triangle inequality, which is what the
triangle pseudo-landmarks need (Hsieh et al. 2014, section 4.1): the Euclidean distance, or the city-block
distance for laplacian.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.kernel_families import BY_NAME, Family, KernelNumbers, Sum

RowArray = NDArray[np.float32] | NDArray[np.float64]
Slope = Callable[[RealArray], tuple[RealArray, RealArray, Callable[[], RealArray]]]
Differentiable = Callable[[RealArray, RealArray], tuple[RealArray, Slope]]


@dataclass(frozen=True)
class Kernel(KernelNumbers):
    """Values of a kernel."""

    @property
    def family(self) -> Family:
        return BY_NAME[self.name]

    @property
    def stationary(self) -> bool:
        return self.family.stationary

    def __call__(self, X: RowArray, U: RowArray, gamma: SingleArray | None = None) -> FloatArray:
        """float64 (len(X), len(U)); `gamma` (len(U),) is a γ of its own for each row of U."""
        return self._value(_SUMS[self.family.sum](X, U), gamma)

    def distances(self, X: RowArray, U: RowArray) -> FloatArray:
        """The distance of a stationary kernel, float64 (len(X), len(U))."""
        if not self.stationary:
            raise ValueError(f"the {self.name} kernel is not a function of a distance")
        s = _SUMS[self.family.sum](X, U)
        return np.sqrt(s, out=s) if self.family.sum == Sum.SQUARES else s

    def of_distance(self, r: FloatArray, gamma: SingleArray | None = None) -> FloatArray:
        """The value of a stationary kernel at distance r, with one γ or one for each column of r."""
        return self._value(r * r if self.family.sum == Sum.SQUARES else r.copy(), gamma)

    def _value(self, s: FloatArray, gamma: SingleArray | None) -> FloatArray:
        s *= self.gamma if gamma is None else gamma.astype(ACC_DTYPE)
        return self.family.value(s, self)

    def differentiable(self, X: RealArray) -> Differentiable:
        """A function from U (m, d) and γ (m,) to K (n, m), and to a function from ∂L/∂K (n, m) to ∂L/∂U,
        ∂L/∂log γ (m,), and a function that returns ∂L/∂log s (d,) of factors s that X and U are multiplied
        with. All in the dtype of X.
        """
        return _DIFFERENTIABLE[self.family.sum](self, X)

    def _falling(self, t: RealArray) -> tuple[RealArray, Callable[[], RealArray]]:
        """κ(t), in the place of t where that is not needed any more, and a function that returns −κ'(t)."""
        family = self.family
        K = family.value(t if family.fall_by_value else t.copy(), self)
        return K, lambda: family.fall(t, K, self)


def _of_squares(kernel: Kernel, X: RealArray) -> Differentiable:
    """−t as one product, [x, |x|², 1] · [2γu, −γ, −γ|u|²], about the middle of the rows, where it is
    accurate.
    """
    middle = X.mean(axis=0)
    centred = X - middle
    extended = np.column_stack([centred, np.einsum("ij,ij->i", centred, centred), np.ones(len(X), X.dtype)])

    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        V = U - middle
        v2 = (V * V).sum(axis=1)
        factor = np.column_stack([2 * gamma[:, None] * V, -gamma, -gamma * v2])
        t = extended @ factor.T
        np.minimum(t, 0, out=t)
        K, fall = kernel._falling(np.negative(t, out=t))

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            by_t = dK * fall()
            sums = by_t.T @ extended
            D_x, D_x2, D = sums[:, :-2], sums[:, -2], sums[:, -1]

            def by_factors() -> RealArray:
                of_x = (by_t @ gamma) @ (centred * centred)
                of_u = (gamma[:, None] * V * (2 * D_x - D[:, None] * V)).sum(axis=0)
                return np.asarray(-2 * (of_x - of_u))

            return (
                2 * gamma[:, None] * (D_x - D[:, None] * V),
                gamma * (2 * (V * D_x).sum(axis=1) - D_x2 - v2 * D),
                by_factors,
            )

        return K, slope

    return value_and_slope


def _of_absolute(kernel: Kernel, X: RealArray) -> Differentiable:
    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        r = np.zeros((len(X), len(U)), X.dtype)
        for f in range(X.shape[1]):
            r += np.abs(X[:, f, None] - U[None, :, f])
        K, fall = kernel._falling(gamma * r)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            D = dK * fall() * gamma
            signs = [(D * np.sign(X[:, f, None] - U[None, :, f])).sum(axis=0) for f in range(X.shape[1])]

            def by_factors() -> RealArray:
                away = [(D * np.abs(X[:, f, None] - U[None, :, f])).sum() for f in range(X.shape[1])]
                return -np.array(away, X.dtype)

            return np.stack(signs, axis=1), -(D * r).sum(axis=0), by_factors

        return K, slope

    return value_and_slope


def _of_products(kernel: Kernel, X: RealArray) -> Differentiable:
    def value_and_slope(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        products = X @ U.T
        K, fall = kernel._falling(gamma * products)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray, Callable[[], RealArray]]:
            D = dK * (gamma * fall())
            dU = -(D.T @ X)
            return dU, -(D * products).sum(axis=0), lambda: np.asarray(2 * (U * dU).sum(axis=0))

        return K, slope

    return value_and_slope


MEDIAN_ROWS = 200  # most rows that the median distance is taken from
SMALLEST_DISTANCE = 1e-30  # Its inverse, γ of a landmark, is stored in single precision.


def median_gamma(kernel: Kernel, X: RowArray) -> float:
    """1 / the median squared distance (laplacian: distance) of different rows, of at most 200: the median
    heuristic.
    """
    some = X[:: -(-len(X) // MEDIAN_ROWS)].astype(ACC_DTYPE)
    absolute = kernel.family.sum == Sum.ABSOLUTE
    between = []
    # Distances are summed of differences: |x|² − 2x·u + |u|² leaves more than 0 between equal rows.
    for i in range(1, len(some)):
        off = np.abs(some[:i] - some[i])
        between.append((off if absolute else off * off).sum(axis=1))
    distances = np.concatenate([*between, np.empty(0)])
    if not distances.any():
        return float(np.float32(kernel.gamma))
    gamma = 1.0 / max(float(np.median(distances[distances > 0])), SMALLEST_DISTANCE)
    return float(np.float32(gamma))


def squared_distances(X: RowArray, U: RowArray) -> FloatArray:
    """‖x−u‖² as |x|² − 2x·u + |u|², never negative."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = X @ U.T
    out *= -2.0
    out += np.einsum("ij,ij->i", X, X)[:, None]
    out += np.einsum("ij,ij->i", U, U)[None, :]
    return np.maximum(out, 0.0, out=out)


def city_block_distances(X: RowArray, U: RowArray) -> FloatArray:
    """Σ_f |x_f − u_f|, feature by feature, without an array of rows × landmarks × features."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = np.zeros((len(X), len(U)), ACC_DTYPE)
    for f in range(X.shape[1]):
        out += np.abs(X[:, f, None] - U[None, :, f])
    return out


def _products(X: RowArray, U: RowArray) -> FloatArray:
    return np.asarray(X, ACC_DTYPE) @ np.asarray(U, ACC_DTYPE).T


_SUMS = {Sum.PRODUCTS: _products, Sum.SQUARES: squared_distances, Sum.ABSOLUTE: city_block_distances}
_DIFFERENTIABLE = {Sum.PRODUCTS: _of_products, Sum.SQUARES: _of_squares, Sum.ABSOLUTE: _of_absolute}
