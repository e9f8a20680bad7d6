"""A linear SVM or ridge regression on the functions of a basis: f(x) = β · c̄(x) + b.

Z Zᵀ of the functions z = c̄(x) stands for the kernel: C and λ mean what they do in the exact model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_baselines.nystrom import Nystrom
from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.model.exact import RowSums, blocks
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.leaf_model import LeafModelType
from dcpred_tasks.model.packed_arrays import taken, text_array, text_of

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

# The module of each basis, with the functions that read and fit it. It imports this one.
BASES = {
    "nystrom": ("nystrom", "from_arrays", "fit_basis"),
    "kmeans_nystrom": ("nystrom", "from_arrays", "fit_basis"),
    "fourier": ("fourier", "fourier_from_arrays", "fit_fourier"),
    "fastfood": ("fourier", "fastfood_from_arrays", "fit_fastfood"),
    "tensor_sketch": ("tensor_sketch", "from_arrays", "fit_basis"),
    "maclaurin": ("maclaurin", "from_arrays", "fit_basis"),
    "maclaurin_h01": ("maclaurin", "from_arrays", "fit_basis"),
}


class SumsOfRows(Protocol):
    """Sums over functions of scaled rows, as dcpred_tasks.model.exact.RowSums gives them."""

    def __call__(self, X: RowArray) -> FloatArray: ...
    def sizes(self, X: RowArray) -> FloatArray: ...


class DrawnBasis(Protocol):
    """A basis that is drawn at random for a kernel, or made of rows. Tests: tests/support/leaf_models.py,
    `check_drawn_basis`.
    """

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
            self.features.sizes(X[own].astype(ACC_DTYPE)) @ self.largest_weights
            for own in blocks(len(X), self.width)
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
        own: dict[str, NDArray[Any]] = {
            "basis": text_array(self.name),
            "beta": self.beta,
            "intercept": self.intercept,
        }
        return own | {f"basis.{key}": value for key, value in self.basis.arrays().items()}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Linear:
    raw, beta, intercept = taken(arrays, basis=("uint8", 1), beta=("float64", 2), intercept=("float64", 1))
    name = text_of(raw)
    if name not in BASES:
        raise ValueError(f"there is no basis {name[:40]!r}")
    own = {key.removeprefix("basis."): value for key, value in arrays.items() if key.startswith("basis.")}
    basis = basis_from_arrays(name, own)
    if beta.shape != (basis.size, len(intercept)):
        raise ValueError("a linear model has other weights than functions")
    return Linear(name, basis, beta, intercept)


def basis_from_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> DrawnBasis:
    """The basis that gave the arrays. Raises ValueError."""
    module, read, _ = BASES[name]
    basis: DrawnBasis = getattr(import_module(f"dcpred_baselines.{module}"), read)(arrays)
    return basis


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> DrawnBasis:
    """A basis for scaled rows like X."""
    module, _, fit_one = BASES[name]
    found: DrawnBasis = getattr(import_module(f"dcpred_baselines.{module}"), fit_one)(
        name, X, kernel, size, rng
    )
    return found


def fit(kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int) -> Linear:
    """A linear model on a basis of kind.size functions."""
    from dcpred_tasks.training.solvers import ABSENT, labellings, linear_ridge, linear_svm  # noqa: PLC0415 - scikit-learn comes with it  # noqa: PLC0415

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
