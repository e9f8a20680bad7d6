"""Kernels: their formulas and parameters."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.row_sampling import at_most

LOG2_E = float(np.log2(np.e))
# Limit of γ‖u‖²: beyond it differences are squared, because the error of a product shows in the kernel value.
STEEP = 1e8
NEAR = 2.0  # largest exponent at the leaf's mean of a kernel value that is written as a difference from there
LARGEST = 1e6  # limit of a² of a Matérn kernel: its value is 0 there, in double precision
BEYOND = 3.0  # distance from the mean, in those of landmarks, at which unbounded values are measured


class Sum(IntEnum):
    """The sum over features that a kernel is a function of."""

    PRODUCTS = 0  # x·u
    SQUARES = 1  # ‖x − u‖²
    ABSOLUTE = 2  # ‖x − u‖₁


@dataclass(frozen=True)
class LeafLanes:
    """The constants of the engine for the m landmarks of a leaf.

    weights    float64 (m, n_held), the factors or minuends of rows
    constants  float64 (n_constants, m)
    factor     float64 (m,), in kernel value = factor · (e + shift)
    shift      float64 (m,)
    """

    weights: FloatArray
    constants: FloatArray
    factor: FloatArray
    shift: FloatArray


@dataclass(frozen=True)
class LeafPoints:
    """The m landmarks of a leaf, in double precision.

    v      (m, n_features), landmarks less the leaf's mean
    mean   (n_features,), in scaled features; 0 in features that are not held
    held   numbers of the features that rows are held with; in the others every row is 0
    gamma  (m,)
    wide   whether differences are squared, feature by feature, and not products summed
    """

    v: FloatArray
    mean: FloatArray
    held: Any
    gamma: FloatArray
    wide: bool

    @property
    def square(self) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", self.v, self.v))

    @property
    def held_square(self) -> FloatArray:
        v = self.v[:, self.held]
        return np.asarray(np.einsum("ij,ij->i", v, v))


@dataclass(frozen=True)
class KernelNumbers:
    """A family, by its name, with its γ and further numbers, each with its setting. A new number comes last,
    and has a place in `Shape` of native/kernels.h; models with its default omit it.
    """

    name: str
    gamma: float
    degree: int = 2  # exponent of the polynomial kernel
    coef0: float = 1.0  # constant term of the polynomial kernel

    @property
    def shape(self) -> tuple[float, ...]:
        """The numbers beside γ."""
        return tuple(float(getattr(self, name)) for name in SHAPE)

    @classmethod
    def from_settings(cls, settings: Any, gamma: float) -> Self:
        return cls(settings.kernel, gamma, **{name: getattr(settings, name) for name in SHAPE})

    @classmethod
    def from_numbers(cls, name: str, numbers: Sequence[float]) -> Self:
        """From γ and as many further numbers as there were when a model was stored."""
        given = zip(SHAPE, numbers[1:], strict=False)
        return cls(name, float(numbers[0]), **{key: type(DEFAULTS[key])(value) for key, value in given})

    def as_dict(self) -> dict[str, Any]:
        """The form in a model."""
        return {key: value for key, value in asdict(self).items() if key in STORED or value != DEFAULTS[key]}


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(KernelNumbers)}
SHAPE = tuple(DEFAULTS)[2:]  # the numbers beside γ
STORED = ("name", "gamma", "degree", "coef0")  # what every model stores


class Family(ABC):
    """A kernel without its numbers. A family has no state."""

    name: ClassVar[str]
    sum: ClassVar[Sum]
    libsvm: ClassVar[str | None] = None  # LIBSVM's own name for it
    steepest: ClassVar[float] = 1.0  # the largest |κ'(t)|: how far an error of t is felt
    n_constants: ClassVar[int] = 3
    group_ns: ClassVar[float] = 0.0  # extra nanoseconds for 16 landmarks, relative to an rbf
    fall_by_value: ClassVar[bool] = False  # whether −κ' follows from κ alone, without t

    @property
    def stationary(self) -> bool:
        """Whether it depends on a distance, which the triangle inequality holds for."""
        return self.sum != Sum.PRODUCTS

    @abstractmethod
    def value(self, t: RealArray, kernel: KernelNumbers) -> RealArray:
        """κ(t), which may take the place of t."""

    @abstractmethod
    def fall(self, t: RealArray, K: RealArray, kernel: KernelNumbers) -> RealArray:
        """−κ'(t), where K = κ(t); neither is written."""

    @abstractmethod
    def leaf_lanes(self, points: LeafPoints, kernel: KernelNumbers) -> LeafLanes:
        """The constants of the engine for a leaf."""

    def width(self, points: LeafPoints) -> FloatArray:
        """(m,), how far landmarks are from their mean: what single precision loses grows with it."""
        return self.steepest * points.gamma * points.square

    def magnitudes(self, points: LeafPoints, lanes: LeafLanes, kernel: KernelNumbers) -> FloatArray:
        """|e| of the landmarks (columns) at themselves (rows), (m, m), or the sums in it."""
        norms, v = points.square, points.v
        squares = np.maximum(norms[:, None] + norms - 2 * v @ v.T, 0.0)
        return np.abs(self.value(points.gamma * squares, kernel) / lanes.factor - lanes.shift)


class Rbf(Family):
    """exp(−γ‖x − u‖²). c = exp(−γ‖v‖²) 2^x near the mean, with the scale γ log₂e."""

    name = "rbf"
    sum = Sum.SQUARES
    libsvm: ClassVar[str | None] = "rbf"
    fall_by_value = True

    def value(self, t: RealArray, kernel: KernelNumbers) -> RealArray:
        np.negative(t, out=t)
        return np.exp(t, out=t)

    def fall(self, t: RealArray, K: RealArray, kernel: KernelNumbers) -> RealArray:
        return K

    def leaf_lanes(self, points: LeafPoints, kernel: KernelNumbers) -> LeafLanes:
        exponent = points.gamma * points.square
        near = (exponent < NEAR).astype(np.float64)
        scale = points.gamma * LOG2_E
        v = points.v[:, points.held]
        offset = np.where(near > 0, 0.0, exponent) - points.wide * points.gamma * points.held_square
        return LeafLanes(
            weights=v if points.wide else v * (2 * scale)[:, None],
            constants=np.stack([scale, offset * LOG2_E, near]),
            factor=np.where(near > 0, np.exp(-exponent), 1.0),
            shift=near,
        )


class Laplacian(Rbf):
    """exp(−γ‖x − u‖₁)."""

    name = "laplacian"
    sum = Sum.ABSOLUTE
    libsvm = None

    def width(self, points: LeafPoints) -> FloatArray:
        return np.asarray((points.gamma * np.abs(points.v).sum(axis=1)) ** 2)

    def leaf_lanes(self, points: LeafPoints, kernel: KernelNumbers) -> LeafLanes:
        scale, m = points.gamma * LOG2_E, len(points.v)
        left_out = np.abs(np.delete(points.v, points.held, axis=1)).sum(axis=1)
        return LeafLanes(
            weights=points.v[:, points.held],
            constants=np.stack([scale, scale * left_out, np.zeros(m)]),
            factor=np.ones(m),
            shift=np.zeros(m),
        )

    def magnitudes(self, points: LeafPoints, lanes: LeafLanes, kernel: KernelNumbers) -> FloatArray:
        distances = np.zeros((len(points.v),) * 2)
        for feature in points.v.T:
            distances += np.abs(feature[:, None] - feature)
        return self.value(points.gamma * distances, kernel)


class Matern32(Family):
    """(1 + a) e^−a, a = √(6t), t = γ‖x − u‖² (Rasmussen and Williams 2006, eq. 4.17, ν = 3/2).

    γ = 1 / (2ℓ²) of the length scale ℓ, as of an rbf, which Matérn kernels of the same γ tend to as ν grows.

    In lanes: with A the value of a for the landmark's own distance from the mean, δ = a − A is (a² − A²) /
    (a + A), where a² − A² is a product as of an rbf, and

        c = e^−A (e + P(A)),   e = P(a) e^−δ − P(A) = P(a) (e^−δ − 1) + δ + k (a² − A²),   P(a) = 1 + a + k a²

    with the second form where δ < 1: there it is accurate. Far from the mean A counts as 0 and P(A)
    too.
    """

    name = "matern32"
    sum = Sum.SQUARES
    steepest = 3.0
    n_constants = 7
    group_ns = 3.5
    a2_of_t: ClassVar[float] = 6.0  # a² / t
    k: ClassVar[float] = 0.0  # factor of a² in P(a)

    def value(self, t: RealArray, kernel: KernelNumbers) -> RealArray:
        t *= self.a2_of_t
        np.minimum(t, LARGEST, out=t)
        a = np.sqrt(t)
        t *= self.k
        t += a
        t += 1.0
        t *= np.exp(np.negative(a, out=a), out=a)
        return t

    def fall(self, t: RealArray, K: RealArray, kernel: KernelNumbers) -> RealArray:
        return np.asarray(3.0 * np.exp(-np.sqrt(6.0 * t)))

    def leaf_lanes(self, points: LeafPoints, kernel: KernelNumbers) -> LeafLanes:
        scale = self.a2_of_t * points.gamma
        square, v = scale * points.square, points.v[:, points.held]
        A = np.sqrt(square)
        near = A < NEAR
        A = np.where(near, A, 0.0)
        P = np.where(near, 1.0 + A + self.k * square, 0.0)
        offset = np.zeros(len(v))
        if points.wide:  # x is the whole of a², except for features that are not held.
            offset = np.where(near, -scale * points.held_square, 0.0)
            square = np.where(near, square, square - scale * points.held_square)
        return LeafLanes(
            weights=v if points.wide else v * (2 * scale)[:, None],
            constants=np.stack(
                [scale, offset, near.astype(np.float64), square, A, P, np.full(len(v), self.k)]
            ),
            factor=np.where(near, np.exp(-A), 1.0),
            shift=P,
        )


class Matern52(Matern32):
    """(1 + a + a²/3) e^−a, a = √(10t), t = γ‖x − u‖² (Rasmussen and Williams 2006, eq. 4.17, ν = 5/2)."""

    name = "matern52"
    steepest = 5 / 3
    a2_of_t = 10.0
    k = 1 / 3

    def fall(self, t: RealArray, K: RealArray, kernel: KernelNumbers) -> RealArray:
        a = np.sqrt(np.minimum(10.0 * t, LARGEST))
        return np.asarray(5 / 3 * (1.0 + a) * np.exp(-a))


class Polynomial(Family):
    """(γ x·u + coef0)^degree. In lanes, with o its base at the mean, c = e + o^degree and e = P Σ_i (P +
    o)^i o^(degree − 1 − i).
    """

    name = "polynomial"
    sum = Sum.PRODUCTS
    libsvm = "poly"
    n_constants = 2

    def value(self, t: RealArray, kernel: KernelNumbers) -> RealArray:
        t += kernel.coef0
        return np.asarray(t**kernel.degree)

    def fall(self, t: RealArray, K: RealArray, kernel: KernelNumbers) -> RealArray:
        return np.asarray(-kernel.degree * (t + kernel.coef0) ** (kernel.degree - 1))

    def width(self, points: LeafPoints) -> FloatArray:
        return np.zeros(len(points.v))

    def leaf_lanes(self, points: LeafPoints, kernel: KernelNumbers) -> LeafLanes:
        u = points.v + points.mean
        at_mean = points.gamma * (u @ points.mean) + kernel.coef0
        return LeafLanes(
            weights=u[:, points.held] * points.gamma[:, None],
            constants=np.stack([at_mean, np.full(len(u), float(kernel.degree))]),
            factor=np.ones(len(u)),
            shift=at_mean**kernel.degree,
        )

    def magnitudes(self, points: LeafPoints, lanes: LeafLanes, kernel: KernelNumbers) -> FloatArray:
        """The base method, with the sums of magnitudes of a product: the product itself may cancel. These
        values have no bound, and are measured at rows well beyond the landmarks.
        """
        products = BEYOND * np.abs(points.v[:, points.held]) @ np.abs(lanes.weights).T
        at_mean = np.abs(lanes.constants[0])
        return np.asarray((products + at_mean) ** kernel.degree - at_mean**kernel.degree)


# The place of a family is its number in compiled code (native/kernels.h).
FAMILIES: tuple[Family, ...] = (Rbf(), Laplacian(), Polynomial(), Matern32(), Matern52())
BY_NAME = {family.name: family for family in FAMILIES}
KERNELS = tuple(BY_NAME)
STATIONARY = tuple(family.name for family in FAMILIES if family.stationary)


RowArray = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True)
class Kernel(KernelNumbers):
    """Values of a kernel."""

    @property
    def family(self) -> Family:
        return BY_NAME[self.name]

    @property
    def stationary(self) -> bool:
        return self.family.stationary

    def __call__(self, X: RowArray, U: RowArray, gamma: SingleArray | None = None) -> FloatArray:
        """float64 (len(X), len(U)); `gamma` (len(U),) is a γ of its own for each row of U."""
        s = _SUMS[self.family.sum](X, U)
        if self.family.sum == Sum.SQUARES:
            reach = np.einsum("ij,ij->i", U, U, dtype=ACC_DTYPE) * (self.gamma if gamma is None else gamma)
            for j in np.flatnonzero(reach > STEEP):
                s[:, j] = np.square(X - U[j].astype(ACC_DTYPE)).sum(axis=1)
        return self._value(s, gamma)

    def distances(self, X: RowArray, U: RowArray) -> FloatArray:
        """The distance of a stationary kernel, float64 (len(X), len(U))."""
        if not self.stationary:
            raise ValueError(f"the {self.name} kernel is not a function of a distance")
        s = _SUMS[self.family.sum](X, U)
        return np.sqrt(s, out=s) if self.family.sum == Sum.SQUARES else s

    def of_distance(self, r: FloatArray, gamma: SingleArray | None = None) -> FloatArray:
        """The value of a stationary kernel at distance r, with one γ or one for each column of r."""
        return self._value(r * r if self.family.sum == Sum.SQUARES else r.copy(), gamma)

    def _value(self, s: FloatArray, gamma: SingleArray | None) -> FloatArray:
        s *= self.gamma if gamma is None else gamma.astype(ACC_DTYPE)
        return self.family.value(s, self)


MEDIAN_ROWS = 200  # most rows that the median distance is taken from
SMALLEST_DISTANCE = 1e-30  # Its inverse, γ of a landmark, is stored in single precision.


def median_gamma(kernel: Kernel, X: RowArray, weight: FloatArray | None = None) -> float:
    """1 / the median squared distance (laplacian: distance) of at most 200 different rows.

    weight  (n,), > 0: a pair counts by the product of its weights; None: each as one
    """
    picked = at_most(len(X), MEDIAN_ROWS)
    some = X[picked].astype(ACC_DTYPE)
    weights = np.ones(len(some)) if weight is None else weight[picked] / weight.max()
    absolute = kernel.family.sum == Sum.ABSOLUTE
    between = []
    # Distances are summed of differences: |x|² − 2x·u + |u|² leaves more than 0 between equal rows.
    for i in range(1, len(some)):
        off = np.abs(some[:i] - some[i])
        between.append((off if absolute else off * off).sum(axis=1))
    distances = np.concatenate([*between, np.empty(0)])
    if not distances.any():
        return float(np.float32(kernel.gamma))
    apart = distances > 0
    pairs = np.concatenate([weights[:i] * weights[i] for i in range(1, len(weights))])[apart]
    gamma = 1.0 / max(_median(distances[apart], pairs), SMALLEST_DISTANCE)
    return float(np.float32(gamma))


def _median(values: FloatArray, weight: FloatArray) -> float:
    if (weight == weight[0]).all():
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(below, below[-1] / 2)]])


def squared_distances(X: RowArray, U: RowArray) -> FloatArray:
    """‖x−u‖² as |x|² − 2x·u + |u|², never negative."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = X @ U.T
    out *= -2.0
    out += np.einsum("ij,ij->i", X, X)[:, None]
    out += np.einsum("ij,ij->i", U, U)[None, :]
    return np.maximum(out, 0.0, out=out)


def city_block_distances(X: RowArray, U: RowArray) -> FloatArray:
    """Σ_f |x_f − u_f|, feature by feature, without an array of rows × landmarks × features."""
    X, U = np.asarray(X, ACC_DTYPE), np.asarray(U, ACC_DTYPE)
    out = np.zeros((len(X), len(U)), ACC_DTYPE)
    for f in range(X.shape[1]):
        out += np.abs(X[:, f, None] - U[None, :, f])
    return out


def _products(X: RowArray, U: RowArray) -> FloatArray:
    return np.asarray(X, ACC_DTYPE) @ np.asarray(U, ACC_DTYPE).T


_SUMS = {Sum.PRODUCTS: _products, Sum.SQUARES: squared_distances, Sum.ABSOLUTE: city_block_distances}
