"""Random Fourier features, or random kitchen sinks (Rahimi and Recht, NIPS 2007, algorithm 1).

    K(x, u) = E[ z(x) · z(u) ],   z(x) = √(2/D) cos(Ω x + b),   b uniform in [0, 2π]

with frequencies Ω drawn from the Fourier transform of the kernel: normal of variance 2γ for rbf, Cauchy of
scale γ for laplacian. Check: sklearn.kernel_approximation.RBFSampler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.machines.row_sums import FeatureSums
from dcpred_tasks.model.basis import Prices, Weighted
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import taken

OF_COSINE = 10  # multiplications


@dataclass(frozen=True)
class Fourier:
    """√(2/D) cos(Ω x + b).

    frequencies  float32 (size, n_features), Ω
    phases       float32 (size,), b
    """

    frequencies: SingleArray
    phases: SingleArray

    @property
    def n_features(self) -> int:
        return int(self.frequencies.shape[1])

    @property
    def size(self) -> int:
        return len(self.phases)

    def __call__(self, X: RowArray) -> RealArray:
        angles: RealArray = X @ self.frequencies.T.astype(X.dtype)
        angles += self.phases
        np.cos(angles, out=angles)
        angles *= X.dtype.type(np.sqrt(2.0 / max(self.size, 1)))
        return angles

    def sums(self, beta: FloatArray) -> FeatureSums:
        return FeatureSums(self, beta)

    def sizes(self, X: FloatArray) -> FloatArray:
        lengths = (np.sqrt(np.einsum("ij,ij->i", a, a, dtype=np.float64)) for a in (X, self.frequencies))
        angles = np.outer(*lengths) + np.abs(self.phases)
        return np.asarray(np.sqrt(2.0 / max(self.size, 1)) * (1 + angles / 4))

    def weighted(self, X: RealArray) -> Weighted | None:
        """None: frequencies are drawn and stay."""
        return None

    @property
    def multiplications(self) -> float:
        return float(self.frequencies.size + OF_COSINE * self.size)

    def predicted_ns(self, prices: Prices) -> float:
        """A frequency costs what a landmark costs: one product, and one function of it."""
        return float(prices.landmarks(self.size))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"frequencies": self.frequencies, "phases": self.phases}


def basis_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Fourier:
    frequencies, phases = taken(arrays, frequencies=("float32", 2), phases=("float32", 1))
    if len(frequencies) != len(phases):
        raise ValueError("Fourier features have other phases than frequencies")
    return Fourier(frequencies, phases)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Fourier:
    """Features for rows like X; only how many features they have is looked at."""
    shape = (size, X.shape[1])
    if kernel.name == "rbf":
        frequencies = rng.normal(scale=np.sqrt(2.0 * kernel.gamma), size=shape)
    else:
        frequencies = kernel.gamma * rng.standard_cauchy(shape)
    phases = rng.uniform(0.0, 2.0 * np.pi, size)
    return Fourier(frequencies.astype(MODEL_DTYPE), phases.astype(MODEL_DTYPE))
