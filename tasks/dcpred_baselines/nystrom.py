"""The Nyström approximation as a basis (Williams and Seeger, NIPS 2000, printed 2001).

    K(x, u) ≈ z(x) · z(u),   z(x) = K(x, L) R,   R = V Λ^(−1/2)   with   K(L, L) = V Λ Vᵀ

for landmarks L: rows drawn at random, or the centres of k-means (Zhang, Tsang and Kwok, ICML 2008).
R is the normalization of sklearn.kernel_approximation.Nystroem: V Λ^(−1/2) Vᵀ, which differs from the above
by a rotation that changes neither z · z nor a linear model on z.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.exact import OF_KERNEL, KernelSums
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import kernel_arrays, kernel_of, taken

K_MEANS_ROWS = 20_000  # most rows that k-means sees


@dataclass(frozen=True)
class Nystrom:
    """K(x, L) R.

    landmarks  float32 (m, n_features), L, scaled
    root       float64 (m, size), R, whose terms cancel: single precision would lose digits. (m, 0) where R
               was multiplied into the weights of a linear model: K(x, L) is left
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
        """The same linear model on kernel values themselves: R β costs once what R costs every row."""
        return replace(self, root=np.empty((len(self.landmarks), 0))), self.root @ beta

    def sums(self, beta: FloatArray) -> KernelSums:
        return KernelSums(self.kernel, self.landmarks, self.root @ beta if self.root.size else beta)

    @property
    def cost(self) -> float:
        return float(self.landmarks.size + OF_KERNEL * len(self.landmarks) + self.root.size)

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = {"landmarks": self.landmarks, "root": self.root}
        return own | kernel_arrays(self.kernel)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Nystrom:
    landmarks, root = taken(arrays, landmarks=("float32", 2), root=("float64", 2))
    if len(landmarks) != len(root):
        raise ValueError("Nyström features have another matrix than landmarks")
    return Nystrom(kernel_of(arrays), landmarks, root)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Nystrom:
    """A basis for scaled rows like X. There are at most `size` landmarks: rows of X drawn by scikit-learn, or
    distinct centres of k-means.
    """
    from sklearn.kernel_approximation import Nystroem  # noqa: PLC0415 - prediction needs NumPy alone

    from dcpred_tasks.training.tree_fitting import k_means  # noqa: PLC0415

    if name == "kmeans_nystrom":
        some = rng.permutation(len(X))[:K_MEANS_ROWS]
        X = k_means(X[np.sort(some)], size, int(rng.integers(2**31)))
    n_components, seed = min(size, len(X)), int(rng.integers(2**31))
    found = Nystroem(kernel=kernel.name, gamma=kernel.gamma, n_components=n_components, random_state=seed)
    found.fit(X.astype(np.float64))
    landmarks = np.ascontiguousarray(found.components_, MODEL_DTYPE)
    return Nystrom(kernel, landmarks, np.ascontiguousarray(found.normalization_.T))
