"""Tensor sketches, features of the polynomial kernel (γ x·u + coef0)^p (Pham and Pagh, KDD 2013, algorithm
1).

The kernel is the inner product of p-fold tensor products of x' = [√γ x, √coef0], the last feature left out
where coef0 is 0. A count sketch of x' adds each feature, times a random sign s(i), to a random bin h(i) of D.
That of the tensor product, with the bin Σ_k h_k(i_k) mod D and the sign Π_k s_k(i_k), is the circular
convolution of p count sketches of x' with hashes and signs of their own:

    z(x) = F⁻¹( F(C₁ x') ∘ … ∘ F(C_p x') ),   E[ z(x) · z(u) ] = (x'·u')^p

with F the discrete Fourier transform of D numbers. Check: sklearn.kernel_approximation.PolynomialCountSketch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, RealArray, SingleArray
from dcpred_tasks.model.basis import Prices, Weighted
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken

BLOCK_VALUES = 2**16  # numbers that are transformed at a time; they stay in the cache
OF_KERNEL = 10  # multiplications of a kernel value beside its sum, for what is predicted
MOST_BINS = 2**31 - 1


@dataclass(frozen=True)
class TensorSketch:
    """F⁻¹( F(C₁ x') ∘ … ∘ F(C_p x') ).

    size    D, the number of bins
    hashes  int32 (degree, features of x'), h_k(i) < D
    signs   bool (degree, features of x'), where s_k(i) is −1
    """

    kernel: Kernel
    size: int
    hashes: NDArray[np.int32]
    signs: NDArray[np.bool_]

    @property
    def n_features(self) -> int:
        return int(self.hashes.shape[1]) - _constants(self.kernel)

    def __call__(self, X: RowArray) -> FloatArray:
        out = np.empty((len(X), self.size))
        step = max(BLOCK_VALUES // max(self.size, self.hashes.shape[1], 1), 1)
        for at in range(0, len(X), step):
            out[at : at + step] = self._sketched(X[at : at + step])
        return out

    def _sketched(self, X: RowArray) -> FloatArray:
        extended = np.empty((self.hashes.shape[1], len(X)))  # x', rows last
        np.multiply(X.T, np.sqrt(self.kernel.gamma), out=extended[: self.n_features])
        extended[self.n_features :] = np.sqrt(self.kernel.coef0)
        sketches = (
            _count_sketch(extended, bins, negative, self.size)
            for bins, negative in zip(self.hashes, self.signs, strict=True)
        )
        if self.kernel.degree == 1:
            return next(sketches)
        product = np.fft.rfft(next(sketches), axis=1)
        for sketch in sketches:
            product *= np.fft.rfft(sketch, axis=1)
        return np.fft.irfft(product, self.size, axis=1)

    def weighted(self, X: RealArray) -> Weighted | None:
        """None: bins are drawn and stay."""
        return None

    def folded(self, beta: FloatArray) -> tuple["TensorSketch", FloatArray]:
        return self, beta

    @property
    def multiplications(self) -> float:
        """A transform of D real numbers takes D log₂ D: half of ½ D log₂ D complex ones, of four each. A term
        of a count sketch counts as one.
        """
        degree, terms = self.hashes.shape
        if degree == 1:
            return float(terms)
        transforms = (degree + 1) * self.size * np.log2(max(self.size, 2))
        products = (degree - 1) * 4 * (self.size // 2 + 1)
        return float(degree * terms + transforms + products)

    def predicted_ns(self, prices: Prices) -> float:
        """The price of as many landmarks as take so many multiplications."""
        return float(prices.landmarks(int(np.ceil(self.multiplications / (self.n_features + OF_KERNEL)))))

    def arrays(self) -> dict[str, NDArray[Any]]:
        size = np.array([self.size], np.int64)
        own: dict[str, NDArray[Any]] = {"size": size, "hashes": self.hashes, "signs": self.signs}
        return own | kernel_arrays(self.kernel)


def _constants(kernel: Kernel) -> int:
    return int(kernel.coef0 > 0)


def _count_sketch(
    extended: FloatArray, bins: NDArray[np.int32], negative: NDArray[np.bool_], size: int
) -> FloatArray:
    """Signed sums of the features (features, n) that share a bin: float64 (n, size)."""
    out = np.zeros((size, extended.shape[1]))
    order = np.argsort(bins, kind="stable")
    used, first = np.unique(bins[order], return_index=True)
    signed = extended[order] * np.where(negative[order], -1.0, 1.0)[:, None]
    out[used] = np.add.reduceat(signed, first, axis=0)
    return np.ascontiguousarray(out.T)


def basis_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> TensorSketch:
    numbers, hashes, signs = taken(arrays, size=("int64", 1), hashes=("int32", 2), signs=("bool", 2))
    kernel = kernel_of(arrays)
    if kernel.name != "polynomial" or kernel.coef0 < 0:
        raise ValueError("a tensor sketch has a kernel that it cannot stand for")
    if hashes.shape != signs.shape or len(hashes) != kernel.degree or hashes.shape[1] <= _constants(kernel):
        raise ValueError("a tensor sketch has other hashes than signs, or than its degree")
    if len(numbers) != 1 or not 0 < numbers[0] <= MOST_BINS:
        raise ValueError("a tensor sketch has no number of bins")
    # How many bins there may be is bounded by a linear machine, which has weights for each.
    if not 0 <= hashes.min() <= hashes.max() < numbers[0]:
        raise ValueError("a tensor sketch has hashes beyond its bins")
    return TensorSketch(kernel, int(numbers[0]), hashes, signs)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> TensorSketch:
    """Features for rows like X; only how many features they have is looked at."""
    shape = (kernel.degree, X.shape[1] + _constants(kernel))
    hashes = rng.integers(size, size=shape, dtype=np.int32)
    return TensorSketch(kernel, size, hashes, rng.random(shape) < 0.5)
