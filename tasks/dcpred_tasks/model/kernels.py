"""Kernels, as values: K(x, u) between rows of two arrays, in double precision.

A stationary kernel depends on a distance r(x, u) that obeys the triangle inequality, which is what the
triangle pseudo-landmarks need (Hsieh et al. 2014, section 4.1): the Euclidean distance for rbf, the
city-block distance for laplacian.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray, SingleArray

STATIONARY = ("rbf", "laplacian")
KERNELS = (*STATIONARY, "polynomial")
Rows = NDArray[np.float32] | NDArray[np.float64]
Slope = Callable[[RealArray], tuple[RealArray, RealArray]]
Differentiable = Callable[[RealArray, RealArray], tuple[RealArray, Slope]]


@dataclass(frozen=True)
class Kernel:
    """rbf: exp(−γ‖x−u‖²); laplacian: exp(−γ‖x−u‖₁); polynomial: (γ x·u + coef0)^degree."""

    name: str
    gamma: float
    degree: int = 2
    coef0: float = 1.0

    @property
    def stationary(self) -> bool:
        return self.name in STATIONARY

    def __call__(self, X: Rows, U: Rows, gamma: SingleArray | None = None) -> FloatArray:
        """float64 (len(X), len(U)); `gamma` (len(U),) is a γ of its own for each row of U."""
        by = self.gamma if gamma is None else gamma.astype(ACC_DTYPE)
        if self.name == "rbf":
            return _exp(squared_distances(X, U), by)
        if self.name == "laplacian":
            return _exp(city_block_distances(X, U), by)
        products = np.asarray(X, ACC_DTYPE) @ np.asarray(U, ACC_DTYPE).T
        return np.asarray((by * products + self.coef0) ** self.degree)

    def distances(self, X: Rows, U: Rows) -> FloatArray:
        """The distance of a stationary kernel, float64 (len(X), len(U))."""
        if self.name == "rbf":
            return np.sqrt(squared_distances(X, U))
        if self.name == "laplacian":
            return city_block_distances(X, U)
        raise ValueError(f"the {self.name} kernel is not a function of a distance")

    def of_distance(self, r: FloatArray, gamma: SingleArray | None = None) -> FloatArray:
        """κ(r), the value of a stationary kernel at distance r, with one γ or one for each column of r."""
        return _exp(
            r * r if self.name == "rbf" else r.copy(),
            self.gamma if gamma is None else gamma.astype(ACC_DTYPE),
        )

    def differentiable(self, X: RealArray) -> Differentiable:
        """A function from U (m, d) and γ (m,) to K (n, m), and to a function from ∂L/∂K (n, m) to ∂L/∂U and
        ∂L/∂log γ (m,). All in the dtype of X.
        """
        return {"rbf": _rbf, "laplacian": _laplacian, "polynomial": _polynomial}[self.name](self, X)


def _rbf(_: Kernel, X: RealArray) -> Differentiable:
    """The exponent as one product, [x, |x|², 1] · [2γu, −γ, −γ|u|²], about the middle of the rows, where it
    keeps its digits.
    """
    middle = X.mean(axis=0)
    near = X - middle
    wide = np.column_stack([near, np.einsum("ij,ij->i", near, near), np.ones(len(X), X.dtype)])

    def of(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        V = U - middle
        v2 = (V * V).sum(axis=1)
        factor = np.column_stack([2 * gamma[:, None] * V, -gamma, -gamma * v2])
        K = wide @ factor.T
        np.exp(np.minimum(K, 0, out=K), out=K)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray]:
            sums = (dK * K).T @ wide
            D_x, D_x2, D = sums[:, :-2], sums[:, -2], sums[:, -1]
            return 2 * gamma[:, None] * (D_x - D[:, None] * V), gamma * (
                2 * (V * D_x).sum(axis=1) - D_x2 - v2 * D
            )

        return K, slope

    return of


def _laplacian(_: Kernel, X: RealArray) -> Differentiable:
    def of(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        r = np.zeros((len(X), len(U)), X.dtype)
        for f in range(X.shape[1]):
            r += np.abs(X[:, f, None] - U[None, :, f])
        K = np.exp(-gamma * r)

        def slope(dK: RealArray) -> tuple[RealArray, RealArray]:
            D = dK * K * gamma
            signs = [(D * np.sign(X[:, f, None] - U[None, :, f])).sum(axis=0) for f in range(X.shape[1])]
            return np.stack(signs, axis=1), -(D * r).sum(axis=0)

        return K, slope

    return of


def _polynomial(kernel: Kernel, X: RealArray) -> Differentiable:
    def of(U: RealArray, gamma: RealArray) -> tuple[RealArray, Slope]:
        products = X @ U.T
        base = gamma * products + kernel.coef0

        def slope(dK: RealArray) -> tuple[RealArray, RealArray]:
            D = dK * (kernel.degree * gamma * base ** (kernel.degree - 1))
            return D.T @ X, (D * products).sum(axis=0)

        return base**kernel.degree, slope

    return of


MEDIAN_ROWS = 200
SMALLEST_APART = 1e-30  # γ of a landmark is kept in single precision


def median_gamma(kernel: Kernel, X: Rows) -> float:
    """1 / the median squared distance (laplacian: distance) of different rows, of at most 200: the median
    heuristic.
    """
    some = X[:: -(-len(X) // MEDIAN_ROWS)].astype(ACC_DTYPE)
    between = []
    for i in range(
        1, len(some)
    ):  # from differences: |x|² − 2x·u + |u|² leaves more than 0 between rows that are the same
        off = np.abs(some[:i] - some[i])
        between.append((off if kernel.name == "laplacian" else off * off).sum(axis=1))
    apart = np.concatenate([*between, np.empty(0)])
    gamma = 1.0 / max(float(np.median(apart[apart > 0])), SMALLEST_APART) if apart.any() else kernel.gamma
    return float(np.float32(gamma))


def _exp(distances: FloatArray, gamma: float | FloatArray) -> FloatArray:
    distances *= -gamma
    return np.exp(distances, out=distances)


def squared_distances(X: Rows, U: Rows) -> FloatArray:
    """‖x−u‖² as |x|² − 2x·u + |u|², never negative."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = X @ U.T
    out *= -2.0
    out += np.einsum("ij,ij->i", X, X)[:, None]
    out += np.einsum("ij,ij->i", U, U)[None, :]
    return np.maximum(out, 0.0, out=out)


def city_block_distances(X: Rows, U: Rows) -> FloatArray:
    """Σ_f |x_f − u_f|, feature by feature, so that no array of rows × landmarks × features is made."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = np.zeros((len(X), len(U)), ACC_DTYPE)
    for f in range(X.shape[1]):
        out += np.abs(X[:, f, None] - U[None, :, f])
    return out
