"""Tensor sketches, features of the polynomial kernel (γ x·u + coef0)^p (Pham and Pagh, KDD 2013, algorithm
1).

The kernel is the inner product of p-fold tensor products of x' = [√γ x, √coef0], the last feature left out
where coef0 is 0. A count sketch of x' adds each feature, times a random sign s(i), to a random bin h(i) of D.
That of the tensor product, with the bin Σ_k h_k(i_k) mod D and the sign Π_k s_k(i_k), is the circular
convolution of p count sketches of x' with hashes and signs of their own:

    z(x) = F⁻¹( F(C₁ x') ∘ … ∘ F(C_p x') ),   E[ z(x) · z(u) ] = (x'·u')^p

with F the discrete Fourier transform of D numbers. Hashes and signs are drawn by
sklearn.kernel_approximation.PolynomialCountSketch.

A linear model needs no F⁻¹: β · F⁻¹(P) is a product of P with what F makes of β. Nor does it need F where
x' has few features: F C_k then is a matrix that rows are multiplied with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.exact import RowSums
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import kernel_arrays, kernel_of, taken

BLOCK_VALUES = 2**16  # numbers that are transformed at a time; they stay in the cache
MOST_BINS = 2**31 - 1
DENSE_FEATURES = 128  # most features of x' where F C_k is a matrix


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

    def __call__(self, X: RowArray) -> RealArray:
        out = np.empty((len(X), self.size), X.dtype)
        step = max(BLOCK_VALUES // max(self.size, self.hashes.shape[1], 1), 1)
        for at in range(0, len(X), step):
            product = self.product(self.extended(X[at : at + step]))
            out[at : at + step] = np.fft.irfft(product, self.size, axis=1)
        return out

    def extended(self, X: RowArray) -> RealArray:
        """x' of rows, (n, features of x')."""
        out = np.empty((len(X), self.hashes.shape[1]), X.dtype)
        np.multiply(X, X.dtype.type(np.sqrt(self.kernel.gamma)), out=out[:, : self.n_features])
        out[:, self.n_features :] = np.sqrt(self.kernel.coef0)
        return out

    def product(self, extended: RealArray) -> NDArray[Any]:
        """F(C₁ x') ∘ … ∘ F(C_p x'), complex (n, D/2 + 1)."""
        product = np.fft.rfft(self._sketched(extended, 0), axis=1)
        for k in range(1, self.kernel.degree):
            product *= np.fft.rfft(self._sketched(extended, k), axis=1)
        return product

    def _sketched(self, extended: RealArray, k: int) -> RealArray:
        """C_k x', signed sums of the features that share a bin: (n, D)."""
        order, used, first, sign = self._sums_of_bins[k]
        out = np.zeros((self.size, len(extended)), extended.dtype)
        out[used] = np.add.reduceat(extended.T[order] * sign.astype(extended.dtype), first, axis=0)
        return np.ascontiguousarray(out.T)

    @cached_property
    def _sums_of_bins(self) -> list[tuple[NDArray[Any], ...]]:
        """Of each C_k: features in the order of their bins, bins that are used, where each begins, and signs
        as a column.
        """
        found: list[tuple[NDArray[Any], ...]] = []
        for bins, negative in zip(self.hashes, self.signs, strict=True):
            order = np.argsort(bins, kind="stable")
            used, first = np.unique(bins[order], return_index=True)
            found.append((order, used, first, np.where(negative[order], -1.0, 1.0)[:, None]))
        return found

    def transforms(self) -> list[SingleArray]:
        """F C_k, real and imaginary parts in turn, float32 (features of x', 2 (D/2 + 1)) each."""
        unit = np.eye(self.hashes.shape[1])
        every = (np.fft.rfft(self._sketched(unit, k), axis=1) for k in range(self.kernel.degree))
        return [np.ascontiguousarray(one).view(ACC_DTYPE).astype(MODEL_DTYPE) for one in every]

    def sums(self, beta: FloatArray) -> "SketchSums":
        return SketchSums(self, beta)

    @property
    def cost(self) -> float:
        """A transform of D real numbers takes D log₂ D: half of ½ D log₂ D complex ones, of four each. A term
        of a count sketch counts as one.
        """
        degree, terms = self.hashes.shape
        if degree == 1:
            return float(terms)
        transforms = (degree + 1) * self.size * np.log2(max(self.size, 2))
        products = (degree - 1) * 4 * (self.size // 2 + 1)
        return float(degree * terms + transforms + products)

    def arrays(self) -> dict[str, NDArray[Any]]:
        size = np.array([self.size], np.int64)
        own: dict[str, NDArray[Any]] = {"size": size, "hashes": self.hashes, "signs": self.signs}
        return own | kernel_arrays(self.kernel)


class SketchSums(RowSums):
    """β · z(x) = (1/D) Σ_k w_k Re( P_k B̄_k ), P = F(C₁ x') ∘ …, B = F β, k ≤ D/2; w_k is 2, and 1 where P_k
    has no other half (k = 0, and k = D/2 where D is even).
    """

    def __init__(self, basis: TensorSketch, beta: FloatArray) -> None:
        self.basis, self.weights = basis, beta
        B = np.fft.rfft(beta, axis=0) / basis.size
        B[1 : (basis.size + 1) // 2] *= 2.0
        parts = np.stack([B.real, B.imag], axis=1).reshape(2 * len(B), beta.shape[1])
        self.of_parts = parts.astype(MODEL_DTYPE)
        self.width = len(parts)

    def add_double(self, X: RealArray, out: FloatArray) -> None:
        out += self.basis(X) @ self.weights

    def add_single(self, X: RealArray, out: FloatArray) -> None:
        extended = self.basis.extended(X)
        if self._dense is None:
            product = self.basis.product(extended)
        else:
            product = (extended @ self._dense[0]).view(np.complex64)
            for one in self._dense[1:]:
                product *= (extended @ one).view(np.complex64)
        out += product.view(MODEL_DTYPE) @ self.of_parts

    def sizes(self, X: RowArray) -> FloatArray:
        """A transform is about as large as ‖x'‖, and has an error as that has."""
        extended = self.basis.extended(X.astype(ACC_DTYPE))
        length = 2 * np.sqrt(np.einsum("ij,ij->i", extended, extended))
        whole = float(np.abs(self.of_parts).max(axis=1, initial=0.0).sum(dtype=ACC_DTYPE))
        return np.asarray(whole * length**self.basis.kernel.degree)

    @cached_property
    def _dense(self) -> list[SingleArray] | None:
        return self.basis.transforms() if self.basis.hashes.shape[1] <= DENSE_FEATURES else None


def _constants(kernel: Kernel) -> int:
    return int(kernel.coef0 > 0)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> TensorSketch:
    numbers, hashes, signs = taken(arrays, size=("int64", 1), hashes=("int32", 2), signs=("bool", 2))
    kernel = kernel_of(arrays)
    if kernel.name != "polynomial" or kernel.coef0 < 0:
        raise ValueError("a tensor sketch has a kernel that it cannot stand for")
    if hashes.shape != signs.shape or len(hashes) != kernel.degree or hashes.shape[1] <= _constants(kernel):
        raise ValueError("a tensor sketch has other hashes than signs, or than its degree")
    if len(numbers) != 1 or not 0 < numbers[0] <= MOST_BINS:
        raise ValueError("a tensor sketch has no number of bins")
    # How many bins there may be is bounded by a linear model, which has weights for each.
    if not 0 <= hashes.min() <= hashes.max() < numbers[0]:
        raise ValueError("a tensor sketch has hashes beyond its bins")
    return TensorSketch(kernel, int(numbers[0]), hashes, signs)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> TensorSketch:
    """Features for rows like X, drawn by scikit-learn; only the number of features of X matters."""
    from sklearn.kernel_approximation import (  # noqa: PLC0415 - prediction needs NumPy alone
        PolynomialCountSketch,
    )

    drawn = PolynomialCountSketch(
        gamma=kernel.gamma,
        degree=kernel.degree,
        coef0=kernel.coef0,
        n_components=size,
        random_state=int(rng.integers(2**31)),
    ).fit(np.zeros((1, X.shape[1])))
    return TensorSketch(kernel, size, drawn.indexHash_.astype(np.int32), drawn.bitHash_ < 0)
