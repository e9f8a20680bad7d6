"""Kernels, as values: K(x, u) between rows of two arrays, in double precision.

A stationary kernel depends on a distance r(x, u) that obeys the triangle inequality, which is what the
triangle pseudo-landmarks need (Hsieh et al. 2014, section 4.1): the Euclidean distance for rbf, the
city-block distance for laplacian.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, SingleArray

STATIONARY = ("rbf", "laplacian")
KERNELS = (*STATIONARY, "polynomial")
Rows = NDArray[np.float32] | NDArray[np.float64]


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
        return _exp(r * r if self.name == "rbf" else r.copy(), self.gamma if gamma is None else gamma.astype(ACC_DTYPE))


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
