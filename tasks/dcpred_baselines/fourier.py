"""Random Fourier features (Rahimi and Recht, NIPS 2007, algorithm 1), and Fastfood, which draws their
frequencies as products of structured matrices (Le, Sarlós and Smola, ICML 2013, equation 7).

    K(x, u) = E[ z(x) · z(u) ],   z(x) = √(2/D) cos(Ω x + b),   b uniform in [0, 2π]

`fourier` draws the frequencies Ω of the rbf kernel by sklearn.kernel_approximation.RBFSampler: normal numbers
of variance 2γ. Models of earlier versions may hold those of the Laplacian kernel. `fastfood` has

    Ω = V = √(2γ/d') · S H G Π H B

x has zeros put behind it up to the next power of two, d'. A block has d' frequencies: B are random signs, H
is the Walsh–Hadamard matrix of ±1, Π a permutation, G normal numbers, all but H and Π diagonal. A row of
H G Π H B has the length √d' ‖G‖, for H Hᵀ = d' I; with S_ii = s_i / ‖G‖ and s_i drawn from the chi
distribution of d' degrees of freedom, a row of V is √(2γ) s_i long, and its direction is uniform: each
frequency alone has the distribution that `fourier` draws from: the features are unbiased. Those of a
block depend on each other. Where D is no multiple of d', the last frequencies of the last block are not used.

A product with H takes d' log₂ d' additions. No matrix is stored: five numbers for a frequency, whatever d is.
Rows of up to 256 features are multiplied with V itself in single precision: BLAS takes less time for that
than two transforms (1,024 frequencies of 64, 128 and 256 features: 1.8, 3.3 and 5.9 µs a row against 5 to 6;
2026-11-24).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_baselines.linear import FeatureSums
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.exact import is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import taken

OF_COSINE = 10  # multiplications
BLOCK_VALUES = 2**17  # numbers that are transformed at a time; they stay in the cache
DENSE_WIDTH = 256  # largest d' where rows of single precision are multiplied with V


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

    @property
    def cost(self) -> float:
        return float(self.frequencies.size + OF_COSINE * self.size)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"frequencies": self.frequencies, "phases": self.phases}


def fourier_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Fourier:
    frequencies, phases = taken(arrays, frequencies=("float32", 2), phases=("float32", 1))
    if len(frequencies) != len(phases):
        raise ValueError("Fourier features have other phases than frequencies")
    return Fourier(frequencies, phases)


def fit_fourier(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Fourier:
    """Features for rows like X, drawn by scikit-learn; only the number of features of X matters."""
    from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415 - prediction needs NumPy alone

    drawn = RBFSampler(gamma=kernel.gamma, n_components=size, random_state=int(rng.integers(2**31)))
    drawn.fit(np.zeros((1, X.shape[1])))
    frequencies = np.ascontiguousarray(drawn.random_weights_.T, MODEL_DTYPE)
    return Fourier(frequencies, drawn.random_offset_.astype(MODEL_DTYPE))


@dataclass(frozen=True)
class Fastfood:
    """√(2/D) cos(V x + b), of blocks of `width` = d' frequencies.

    signs        bool (blocks, width), where B is −1
    permutation  int32 (blocks, width), Π, the place that each number is taken from
    gaussian     float32 (blocks, width), G
    scale        float32 (blocks, width), S √(2γ/d')
    phases       float32 (size,), b
    """

    n_features: int
    signs: NDArray[np.bool_]
    permutation: NDArray[np.int32]
    gaussian: SingleArray
    scale: SingleArray
    phases: SingleArray

    @property
    def size(self) -> int:
        return len(self.phases)

    def __call__(self, X: RowArray) -> RealArray:
        return self._dense(X) if is_single(X) and self.signs.shape[1] <= DENSE_WIDTH else self.transformed(X)

    def transformed(self, X: RowArray) -> RealArray:
        """The functions of rows, by transforms."""
        out = np.empty((len(X), self.size), X.dtype)
        step = max(BLOCK_VALUES // max(self.signs.size, 1), 1)
        for at in range(0, len(X), step):
            out[at : at + step] = self._products(X[at : at + step]).T
        out += self.phases
        np.cos(out, out=out)
        out *= X.dtype.type(np.sqrt(2.0 / max(self.size, 1)))
        return out

    @cached_property
    def _dense(self) -> Fourier:
        """The same functions with V as a matrix."""
        frequencies = self._products(np.eye(self.n_features, dtype=ACC_DTYPE))
        return Fourier(np.ascontiguousarray(frequencies, MODEL_DTYPE), self.phases)

    def sums(self, beta: FloatArray) -> FeatureSums:
        return FeatureSums(self, beta)

    def sizes(self, X: FloatArray) -> FloatArray:
        return self._dense.sizes(X)

    def _products(self, X: RowArray) -> RealArray:
        """V x of rows, (size, n): rows lie last, and all steps go along them."""
        blocks, width = self.signs.shape
        values = np.zeros((blocks, width, len(X)), X.dtype)
        values[:, : self.n_features] = X.T
        values *= np.where(self.signs, -1.0, 1.0).astype(X.dtype)[:, :, None]
        walsh_hadamard(values)
        values = values[np.arange(blocks)[:, None], self.permutation]
        values *= self.gaussian[:, :, None]
        walsh_hadamard(values)
        values *= self.scale[:, :, None]
        return values.reshape(blocks * width, len(X))[: self.size]

    @property
    def cost(self) -> float:
        """With an addition of H counted as one, as that of a product of matrices is."""
        blocks, width = self.signs.shape
        transforms = 2 * width * (width.bit_length() - 1)
        return float(blocks * (transforms + 3 * width) + OF_COSINE * self.size)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "n_features": np.array([self.n_features], np.int64),
            "signs": self.signs,
            "permutation": self.permutation,
            "gaussian": self.gaussian,
            "scale": self.scale,
            "phases": self.phases,
        }


def walsh_hadamard(values: RealArray) -> None:
    """H v along the last axis but one, in place: (..., width, n), contiguous, its width a power of
    two. H is in Sylvester's order: H_1 = 1, H_2k = [[H_k, H_k], [H_k, −H_k]].
    """
    *before, width, n = values.shape
    half = 1
    while half < width:
        pairs = values.reshape(*before, width // (2 * half), 2, half * n)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        less = first - second
        first += second
        second[...] = less
        half *= 2


def width_of(n_features: int) -> int:
    """d', the next power of two."""
    return 1 << max(n_features - 1, 0).bit_length()


def fastfood_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Fastfood:
    numbers, phases = taken(arrays, n_features=("int64", 1), phases=("float32", 1))
    signs, permutation = taken(arrays, signs=("bool", 2), permutation=("int32", 2))
    gaussian, scale = taken(arrays, gaussian=("float32", 2), scale=("float32", 2))
    blocks, width = signs.shape
    if len(numbers) != 1 or numbers[0] < 0 or width != width_of(int(numbers[0])):
        raise ValueError("Fastfood features have blocks of another width than rows")
    if any(one.shape != signs.shape for one in (permutation, gaussian, scale)):
        raise ValueError("Fastfood features have matrices of different sizes")
    if blocks != -(-len(phases) // width):
        raise ValueError("Fastfood features have other phases than blocks")
    if permutation.size and not 0 <= permutation.min() <= permutation.max() < width:
        raise ValueError("Fastfood features have an invalid permutation")
    return Fastfood(int(numbers[0]), signs, permutation, gaussian, scale, phases)


def fit_fastfood(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Fastfood:
    """Features for rows like X; only their number of features is read."""
    width = width_of(X.shape[1])
    shape = (-(-size // width), width)
    signs = rng.random(shape) < 0.5
    permutation = rng.permuted(np.tile(np.arange(width, dtype=np.int32), (shape[0], 1)), axis=1)
    gaussian = rng.normal(size=shape)
    lengths = np.sqrt(rng.chisquare(width, shape) * 2.0 * kernel.gamma / width)
    scale = lengths / np.linalg.norm(gaussian, axis=1, keepdims=True)
    phases = rng.uniform(0.0, 2.0 * np.pi, size)
    return Fastfood(
        X.shape[1],
        signs,
        permutation,
        gaussian.astype(MODEL_DTYPE),
        scale.astype(MODEL_DTYPE),
        phases.astype(MODEL_DTYPE),
    )
