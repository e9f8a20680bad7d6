"""A linear SVM or ridge regression on the functions of a basis: f(x) = β · c̄(x) + b. The bases are Nyström,
random Fourier features, Fastfood, random Maclaurin features and tensor sketches.

Z Zᵀ of the functions z = c̄(x) stands for the kernel: C and λ mean what they do in the exact model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.model.exact import OF_KERNEL, KernelSums, RowSums, blocks, is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import kernel_arrays, kernel_of, taken, text_array, text_of
from dcpred_tasks.training.clusters import k_means

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows


class SumsOfRows(Protocol):
    """Sums over functions of scaled rows, as dcpred_tasks.model.exact.RowSums gives them."""

    def __call__(self, X: RowArray) -> FloatArray: ...
    def sizes(self, X: RowArray) -> FloatArray: ...


class DrawnBasis(Protocol):
    """A basis drawn for a kernel, or made of rows. Test: tests/support/leaf_models.py."""

    @property
    def n_features(self) -> int:
        """Features of a scaled row."""

    @property
    def size(self) -> int:
        """The number of functions."""

    def __call__(self, X: RowArray) -> RealArray:
        """c̄ of scaled rows (n, n_features), in their dtype: (n, size)."""

    def sums(self, beta: FloatArray) -> SumsOfRows:
        """β · c̄(x) for β (size, n_outputs), as rows are predicted with."""

    @property
    def cost(self) -> float:
        """Multiplications for the functions of a row; a transcendental function counts as 10."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays that rebuild it."""


class FeatureSums(RowSums):
    """Σ_q β_q c̄_q(x) of a basis that is no kernel. `features` gives its functions of rows in their dtype, and
    in `sizes` the magnitude of the terms of each function, (n, functions), in double precision.
    """

    def __init__(self, features: Any, weights: RealArray) -> None:
        self.features, self.weights = features, weights.astype(ACC_DTYPE)
        self.width = len(weights)

    def add_single(self, X: RealArray, out: FloatArray) -> None:
        out += self.features(X) @ self.single_weights

    def add_double(self, X: RealArray, out: FloatArray) -> None:
        out += self.features(X) @ self.weights

    def sizes(self, X: RowArray) -> FloatArray:
        parts = [
            self.features.sizes(X[block].astype(ACC_DTYPE)) @ self.largest_weights
            for block in blocks(len(X), self.width)
        ]
        return np.concatenate([*parts, np.empty(0)])


@dataclass(frozen=True)
class Linear:
    """f(x) = β · c̄(x) + b.

    beta       float64 (size, n_outputs): terms of Nyström features cancel
    intercept  float64 (n_outputs,)
    """

    name: str
    basis: DrawnBasis
    beta: FloatArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.basis.n_features, len(self.intercept)

    @cached_property
    def _sums(self) -> SumsOfRows:
        return self.basis.sums(self.beta)

    def predict(self, X: RowArray) -> FloatArray:
        return self._sums(X) + self.intercept

    def sizes(self, X: RowArray) -> FloatArray:
        return self._sums.sizes(X)

    @property
    def cost(self) -> float:
        return self.basis.cost + self.beta.size

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            "basis": text_array(self.name),
            "beta": self.beta,
            "intercept": self.intercept,
        }
        return arrays | {f"basis.{key}": value for key, value in self.basis.arrays().items()}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Linear:
    raw, beta, intercept = taken(arrays, basis=("uint8", 1), beta=("float64", 2), intercept=("float64", 1))
    name = text_of(raw)
    if name not in BASES:
        raise ValueError(f"there is no basis {name[:40]!r}")
    parts = {key.removeprefix("basis."): value for key, value in arrays.items() if key.startswith("basis.")}
    basis = basis_from_arrays(name, parts)
    if beta.shape != (basis.size, len(intercept)):
        raise ValueError("a linear model has other weights than functions")
    return Linear(name, basis, beta, intercept)


def basis_from_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> DrawnBasis:
    """The basis that gave the arrays. Raises ValueError."""
    return BASES[name][0](arrays)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> DrawnBasis:
    """A basis for scaled rows like X."""
    return BASES[name][1](name, X, kernel, size, rng)


def fit(kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int) -> Linear:
    """A linear model on a basis of kind.size functions."""
    from dcpred_tasks.training.solvers import ABSENT, labellings, linear_ridge, linear_svm

    basis = fit_basis(kind.name, rows.X, kernel, kind.size, np.random.default_rng([settings.seed, seed]))
    weight = rows.compact_weight()
    Z = basis(rows.X.astype(ACC_DTYPE))
    if rows.task == "regression":
        w, b = linear_ridge(Z, rows.target.astype(np.float64), weight, settings.ridge)
        beta, intercept = w[:, None], np.array([b])
    else:
        beta, intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
        for output, sign in labellings(rows):
            beta[:, output], intercept[output] = linear_svm(Z, sign, weight, settings.C)
    if isinstance(basis, Nystrom):
        basis, beta = basis.folded(beta)
    return Linear(kind.name, basis, beta, intercept)


K_MEANS_ROWS = 20_000  # most rows that k-means sees


@dataclass(frozen=True)
class Nystrom:
    """K(x, L) R,   R = V Λ^(−1/2)   with   K(L, L) = V Λ Vᵀ (Williams and Seeger, NIPS 2000). L are rows
    drawn at random, or centres of k-means (Zhang, Tsang and Kwok, ICML 2008).

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
        arrays: dict[str, NDArray[Any]] = {"landmarks": self.landmarks, "root": self.root}
        return arrays | kernel_arrays(self.kernel)


def nystrom_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Nystrom:
    landmarks, root = taken(arrays, landmarks=("float32", 2), root=("float64", 2))
    if len(landmarks) != len(root):
        raise ValueError("Nyström features have another matrix than landmarks")
    return Nystrom(kernel_of(arrays), landmarks, root)


def fit_nystrom(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Nystrom:
    """A basis for scaled rows like X, of at most `size` rows drawn by scikit-learn, or k-means centres."""
    from sklearn.kernel_approximation import Nystroem

    if name == "kmeans_nystrom":
        some = rng.permutation(len(X))[:K_MEANS_ROWS]
        X = k_means(X[np.sort(some)], size, int(rng.integers(2**31)))
    n_components, seed = min(size, len(X)), int(rng.integers(2**31))
    fitted = Nystroem(kernel=kernel.name, gamma=kernel.gamma, n_components=n_components, random_state=seed)
    fitted.fit(X.astype(np.float64))
    landmarks = np.ascontiguousarray(fitted.components_, MODEL_DTYPE)
    return Nystrom(kernel, landmarks, np.ascontiguousarray(fitted.normalization_.T))


OF_COSINE = 10  # multiplications
BLOCK_VALUES = 2**17  # numbers that are transformed at a time; they stay in the cache
DENSE_WIDTH = 256  # largest d' where rows of single precision are multiplied with V


@dataclass(frozen=True)
class Fourier:
    """√(2/D) cos(Ω x + b), b uniform in [0, 2π] (Rahimi and Recht, NIPS 2007, algorithm 1): RBFSampler draws
    Ω of the rbf kernel, of variance 2γ. Models of earlier versions may hold those of the Laplacian kernel.

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
    from sklearn.kernel_approximation import RBFSampler

    drawn = RBFSampler(gamma=kernel.gamma, n_components=size, random_state=int(rng.integers(2**31)))
    drawn.fit(np.zeros((1, X.shape[1])))
    frequencies = np.ascontiguousarray(drawn.random_weights_.T, MODEL_DTYPE)
    return Fourier(frequencies, drawn.random_offset_.astype(MODEL_DTYPE))


@dataclass(frozen=True)
class Fastfood:
    """√(2/D) cos(V x + b), of blocks of `width` = d' frequencies: V = √(2γ/d') · S H G Π H B (Le, Sarlós and
    Smola, ICML 2013, equation 7), H the Walsh–Hadamard matrix. x has zeros put behind it up to the next power
    of two, d'. With S_ii = s_i / ‖G‖, s_i of the chi distribution of d' degrees of freedom, each frequency
    alone has the distribution of `fourier`; those of a block depend on each other. Narrow rows in single
    precision are multiplied with V itself, which takes less time than two transforms.

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
    if any(array.shape != signs.shape for array in (permutation, gaussian, scale)):
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


MOST_ORDERS, MOST_OF_AN_ORDER = 11, 2**31 - 1


@dataclass(frozen=True)
class Maclaurin:
    """[√a_0, √a_1 x, products of ω_j·x by ascending order] (Kar and Karnick, AISTATS 2012, algorithm 1).

    (γ x·u + coef0)^p = Σ_n a_n (x·u)^n; a feature of order N, drawn with probability q_N, is
    √(a_N / (q_N D)) · Π_{j ≤ N} ω_j·x with random signs ω_j. q_n is in proportion to 1 / 2^(n+1) over the
    orders whose a_n is not 0. With `maclaurin_h01` (H0/1) constant and linear part are exact, and D counts
    the others.

    exact   float64 (2,), √a_0 and √a_1, 0 for a part that is left out
    counts  int64 (orders,), how many features there are of the order 0, 1, …
    scale   float64 (orders,), √(a_n / (q_n D)) of each order
    signs   bool (Σ n counts_n, n_features), where ω is −1: of each order all first factors, then all second
            ones, and so on
    """

    exact: FloatArray
    counts: IntArray
    scale: FloatArray
    signs: NDArray[np.bool_]

    @property
    def n_features(self) -> int:
        return int(self.signs.shape[1])

    @property
    def size(self) -> int:
        return int(self.exact[0] > 0) + self._linear + int(self.counts.sum())

    @property
    def _linear(self) -> int:
        return self.n_features if self.exact[1] > 0 else 0

    def __call__(self, X: RowArray) -> RealArray:
        vectors: RealArray = self._vectors.astype(X.dtype)
        out = np.empty((len(X), self.size), X.dtype)
        for block in blocks(len(X), len(self.signs)):
            self._fill(out[block], X[block], X[block] @ vectors)
        return out

    def sums(self, beta: FloatArray) -> FeatureSums:
        return FeatureSums(self, beta)

    def sizes(self, X: FloatArray) -> FloatArray:
        """A factor has an error as ‖x‖ has."""
        length = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
        out = np.empty((len(X), self.size))
        self._fill(out, np.abs(X), np.abs(X @ self._vectors) + length)
        return out

    @cached_property
    def _vectors(self) -> SingleArray:
        """ω as columns, float32 (n_features, Σ n counts_n)."""
        return np.where(np.ascontiguousarray(self.signs.T), np.float32(-1), np.float32(1))

    def _fill(self, out: RealArray, X: RealArray, products: RealArray) -> None:
        """The functions of rows, whose products with ω are known."""
        start = int(self.exact[0] > 0)
        out[:, :start] = self.exact[0]
        linear = out[:, start : start + self._linear]
        np.multiply(X[:, : self._linear], X.dtype.type(self.exact[1]), out=linear)
        start += self._linear
        taken_up = 0
        for order, count in enumerate(self.counts.tolist()):
            columns = out[:, start : start + count]
            columns[:] = self.scale[order]
            for _ in range(order):
                columns *= products[:, taken_up : taken_up + count]
                taken_up += count
            start += count

    @property
    def cost(self) -> float:
        """A feature of order n takes n sums of signed features, and n products of them and its scale."""
        return float(self.signs.size + len(self.signs) + self._linear)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"exact": self.exact, "counts": self.counts, "scale": self.scale, "signs": self.signs}


def maclaurin_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Maclaurin:
    exact, scale = taken(arrays, exact=("float64", 1), scale=("float64", 1))
    counts, signs = taken(arrays, counts=("int64", 1), signs=("bool", 2))
    if len(exact) != 2 or (exact < 0).any() or not len(counts) == len(scale) <= MOST_ORDERS:
        raise ValueError("Maclaurin features have other parts than orders")
    # How many there are of order 0 is bounded by a linear model, which has weights for each.
    if ((counts < 0) | (counts > MOST_OF_AN_ORDER)).any():
        raise ValueError("Maclaurin features have an invalid count")
    if sum(order * count for order, count in enumerate(counts.tolist())) != len(signs):
        raise ValueError("Maclaurin features have other signs than orders")
    return Maclaurin(exact, counts, scale, signs)


def coefficients(kernel: Kernel) -> FloatArray:
    """a_0 to a_p of the polynomial kernel."""
    p, gamma, coef0 = kernel.degree, kernel.gamma, kernel.coef0
    return np.array([comb(p, n) * gamma**n * coef0 ** (p - n) for n in range(p + 1)])


def fit_maclaurin(
    name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator
) -> Maclaurin:
    """Features for rows like X; only their number of features is read."""
    a = coefficients(kernel)
    exact = np.zeros(2)
    if name == "maclaurin_h01":
        exact = np.sqrt(a[:2])
        a[:2] = 0.0
    counts = np.zeros(len(a), np.int64)
    scale = np.zeros(len(a))
    if a.any():  # There are no random ones where the kernel is linear and its parts are exact.
        q = np.where(a > 0, 0.5 ** np.arange(1.0, len(a) + 1.0), 0.0)
        q /= q.sum()
        counts += rng.multinomial(size, q)
        scale[a > 0] = np.sqrt(a[a > 0] / (q[a > 0] * max(size, 1)))
    signs = rng.random((int(counts @ np.arange(len(a))), X.shape[1])) < 0.5
    return Maclaurin(exact, counts, scale, signs)


SKETCH_VALUES = 2**16  # numbers that are transformed at a time; they stay in the cache
MOST_BINS = 2**31 - 1
DENSE_FEATURES = 128  # most features of x' where F C_k is a matrix


@dataclass(frozen=True)
class TensorSketch:
    """F⁻¹( F(C₁ x') ∘ … ∘ F(C_p x') ) (Pham and Pagh, KDD 2013, algorithm 1).

    x' = [√γ x, √coef0]. The count sketch C_k adds each feature, times a sign s_k(i), to bin h_k(i) of D; F is
    the discrete Fourier transform. Hashes and signs are those of PolynomialCountSketch. A linear model needs
    no F⁻¹: β · F⁻¹(P) is a product with what F makes of β. Where x' has few features, F C_k is a matrix.

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
        step = max(SKETCH_VALUES // max(self.size, self.hashes.shape[1], 1), 1)
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
        """Of each C_k: features in the order of bins, used bins, where each begins, and signs as a column."""
        parts: list[tuple[NDArray[Any], ...]] = []
        for bins, negative in zip(self.hashes, self.signs, strict=True):
            order = np.argsort(bins, kind="stable")
            used, first = np.unique(bins[order], return_index=True)
            parts.append((order, used, first, np.where(negative[order], -1.0, 1.0)[:, None]))
        return parts

    def transforms(self) -> list[SingleArray]:
        """F C_k, real and imaginary parts in turn, float32 (features of x', 2 (D/2 + 1)) each."""
        unit = np.eye(self.hashes.shape[1])
        every = (np.fft.rfft(self._sketched(unit, k), axis=1) for k in range(self.kernel.degree))
        return [np.ascontiguousarray(transform).view(ACC_DTYPE).astype(MODEL_DTYPE) for transform in every]

    def sums(self, beta: FloatArray) -> "SketchSums":
        return SketchSums(self, beta)

    @property
    def cost(self) -> float:
        """Of a transform of D real numbers D log₂ D, and 1 for a term of a count sketch."""
        degree, terms = self.hashes.shape
        if degree == 1:
            return float(terms)
        transforms = (degree + 1) * self.size * np.log2(max(self.size, 2))
        products = (degree - 1) * 4 * (self.size // 2 + 1)
        return float(degree * terms + transforms + products)

    def arrays(self) -> dict[str, NDArray[Any]]:
        size = np.array([self.size], np.int64)
        arrays: dict[str, NDArray[Any]] = {"size": size, "hashes": self.hashes, "signs": self.signs}
        return arrays | kernel_arrays(self.kernel)


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
            for transform in self._dense[1:]:
                product *= (extended @ transform).view(np.complex64)
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


def sketch_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> TensorSketch:
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


def fit_sketch(
    name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator
) -> TensorSketch:
    """Features for rows like X, drawn by scikit-learn; only the number of features of X matters."""
    from sklearn.kernel_approximation import PolynomialCountSketch

    drawn = PolynomialCountSketch(
        gamma=kernel.gamma,
        degree=kernel.degree,
        coef0=kernel.coef0,
        n_components=size,
        random_state=int(rng.integers(2**31)),
    ).fit(np.zeros((1, X.shape[1])))
    return TensorSketch(kernel, size, drawn.indexHash_.astype(np.int32), drawn.bitHash_ < 0)


# The functions that read and fit each basis.
BASES: dict[str, tuple[Callable[..., DrawnBasis], Callable[..., DrawnBasis]]] = {
    "nystrom": (nystrom_from_arrays, fit_nystrom),
    "kmeans_nystrom": (nystrom_from_arrays, fit_nystrom),
    "fourier": (fourier_from_arrays, fit_fourier),
    "fastfood": (fastfood_from_arrays, fit_fastfood),
    "tensor_sketch": (sketch_from_arrays, fit_sketch),
    "maclaurin": (maclaurin_from_arrays, fit_maclaurin),
    "maclaurin_h01": (maclaurin_from_arrays, fit_maclaurin),
}
