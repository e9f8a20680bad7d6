"""The Nyström approximation as a basis (Williams and Seeger, NIPS 2000, printed 2001).

    K(x, u) ≈ z(x) · z(u),   z(x) = K(x, L) R,   R = V Λ^(−1/2)   with   K(L, L) = V Λ Vᵀ

for landmarks L: rows drawn at random, or the centres of k-means (Zhang, Tsang and Kwok, ICML 2008).
Eigenvalues near 0 are left out with their eigenvectors, so that there may be fewer functions than landmarks.
R is K(L, L)^(−1/2) but for a rotation, which changes neither z · z nor a linear machine on z. Check:
sklearn.kernel_approximation.Nystroem.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, RealArray, SingleArray
from dcpred_tasks.machines.row_sums import KernelSums
from dcpred_tasks.model.basis import Prices, Weighted
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken

OF_KERNEL = 10  # multiplications that a kernel value takes beside its sum
SMALLEST_EIGENVALUE = 1e-8  # relative to the largest; what is left out of K is no larger


@dataclass(frozen=True)
class Nystrom:
    """K(x, L) R.

    landmarks  float32 (m, n_features), L, scaled
    root       float64 (m, size), R, whose terms cancel: single precision would lose digits. (m, 0) where R
               was multiplied into the weights of a linear machine: K(x, L) is left
    """

    kernel: Kernel
    landmarks: SingleArray
    root: FloatArray

    @property
    def n_features(self) -> int:
        return int(self.landmarks.shape[1])

    @property
    def size(self) -> int:
        return int(self.root.shape[1]) or len(self.landmarks)

    def __call__(self, X: RowArray) -> FloatArray:
        K = self.kernel(X, self.landmarks)
        return K @ self.root if self.root.size else K

    def folded(self, beta: FloatArray) -> tuple["Nystrom", FloatArray]:
        """The same linear machine on kernel values themselves: R β costs once what R costs every row."""
        return replace(self, root=np.empty((len(self.landmarks), 0))), self.root @ beta

    def sums(self, beta: FloatArray) -> KernelSums:
        return KernelSums(self.kernel, self.landmarks, self.root @ beta if self.root.size else beta)

    def weighted(self, X: RealArray) -> Weighted | None:
        """None: landmarks stay where they are."""
        return None

    @property
    def multiplications(self) -> float:
        return float(self.landmarks.size + OF_KERNEL * len(self.landmarks) + self.root.size)

    def predicted_ns(self, prices: Prices) -> float:
        return float(prices.landmarks(len(self.landmarks)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = {"landmarks": self.landmarks, "root": self.root}
        return own | kernel_arrays(self.kernel)


def basis_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Nystrom:
    landmarks, root = taken(arrays, landmarks=("float32", 2), root=("float64", 2))
    if len(landmarks) != len(root):
        raise ValueError("Nyström features have another matrix than landmarks")
    return Nystrom(kernel_of(arrays), landmarks, root)


def whitening(K: FloatArray) -> FloatArray:
    """V Λ^(−1/2) of a symmetric kernel matrix (m, m), without eigenvalues near 0: float64 (m, rank). One
    column of 0 where all are.
    """
    values, vectors = np.linalg.eigh(K)
    kept = values > SMALLEST_EIGENVALUE * max(values[-1], 0.0)
    if not kept.any():
        return np.zeros((len(K), 1))
    return np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]))


def of_landmarks(kernel: Kernel, landmarks: SingleArray) -> Nystrom:
    return Nystrom(kernel, landmarks, whitening(kernel(landmarks, landmarks)))
