"""Bases: functions c̄ of a scaled row, whose sum with output weights β is the decision value of a leaf.

Those of a compact leaf (Hsieh et al. 2014, section 4) are c̄(x) = [ c | products | triangle ], where c_j =
K(x, u_j) are the values of landmarks, and pseudo-landmarks are computed from them and not from x:

    products  c_i · c_j of sampled pairs i ≤ j, the degree-2 basis of eq. 7
    triangle  κ(r̂_t), r̂_t = max_j |r_j − s_tj| (lower) or min_j (r_j + s_tj) (upper), eq. 6,
              with r_j = ‖x − u_j‖ and s_tj = ‖v_t − u_j‖ for p points v_t

Each is a member of the protocol `Basis`, and `LeafBasis` is all three, of one set of kernel values.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.kernels import Kernel, RowArray

BOUNDS = ("lower", "upper")  # on the distance of a triangle point


@dataclass(frozen=True)
class Prices:
    """Nanoseconds that the engine takes for a row, by operation; numbers, or arrays with one for each leaf
    (dcpred.serving.cost explains them).

    of_group      kernel values of `lanes` landmarks, computed together
    of_lane       each of these lanes in the sum of one output
    of_landmark   a landmark in the sums of several outputs
    of_product    a product in the sums of all outputs
    of_point      a triangle point
    of_distance   a landmark in the estimate of a triangle point
    """

    lanes: int
    of_group: float
    of_lane: float
    of_landmark: float | FloatArray
    of_product: float | FloatArray
    of_point: float
    of_distance: float

    def values(self, m: int | IntArray) -> FloatArray:
        """Kernel values of m landmarks."""
        return np.asarray(np.ceil(np.asarray(m) / self.lanes) * self.of_group)

    def landmarks(self, m: int | IntArray) -> FloatArray:
        """Kernel values of m landmarks, and their terms in the sums of outputs."""
        lanes = np.ceil(np.asarray(m) / self.lanes) * self.lanes
        return np.asarray(self.values(m) + lanes * self.of_lane + m * self.of_landmark)

    def products(self, p: int | IntArray) -> FloatArray:
        return np.asarray(p * self.of_product)

    def triangle(self, t: int | FloatArray, m: int | IntArray) -> FloatArray:
        return np.asarray(t * (self.of_point + m * self.of_distance))


class Basis(Protocol):
    """c̄, functions of a scaled row. Tests: tests/support/bases.py, `check_basis`."""

    @property
    def size(self) -> int:
        """The number of functions."""

    def __call__(self, X: RowArray) -> FloatArray:
        """c̄ of scaled rows (n, n_features): float64 (n, size)."""


@dataclass(frozen=True)
class Landmarks:
    """K(x, u_j), each with a γ of its own.

    points  float32 (m, n_features), scaled
    gamma   float32 (m,)
    """

    kernel: Kernel
    points: SingleArray
    gamma: SingleArray

    @property
    def size(self) -> int:
        return len(self.points)

    def __call__(self, X: RowArray) -> FloatArray:
        return self.kernel(X, self.points, self.gamma)


@dataclass(frozen=True)
class Products:
    """c_i · c_j of pairs of landmarks, int32 (p, 2)."""

    landmarks: Landmarks
    pairs: NDArray[np.int32]

    @property
    def size(self) -> int:
        return len(self.pairs)

    def __call__(self, X: RowArray) -> FloatArray:
        return self.of_values(self.landmarks(X))

    def of_values(self, c: FloatArray) -> FloatArray:
        """The products of kernel values (n, m)."""
        return c[:, self.pairs[:, 0]] * c[:, self.pairs[:, 1]]


@dataclass(frozen=True)
class TrianglePoints:
    """Kernel values of points by a bound of their distances to landmarks, float32 (t, m)."""

    landmarks: Landmarks
    bound: str
    distances: SingleArray

    @property
    def size(self) -> int:
        return len(self.distances)

    def __call__(self, X: RowArray) -> FloatArray:
        if self.size == 0:
            return np.empty((len(X), 0))
        return self.of_distances(self.landmarks.kernel.distances(X, self.landmarks.points))

    def of_distances(self, r: FloatArray) -> FloatArray:
        """The estimates from distances to the landmarks (n, m)."""
        out = np.empty((len(r), self.size), ACC_DTYPE)
        for t, s in enumerate(self.distances.astype(ACC_DTYPE)):
            out[:, t] = np.abs(r - s).max(axis=1) if self.bound == "lower" else (r + s).min(axis=1)
        return self.landmarks.kernel.of_distance(out)


@dataclass(frozen=True)
class LeafBasis:
    """c̄ of a compact leaf: landmarks, products and triangle points, as the arrays that are stored.

    landmarks  float32 (m, n_features), scaled, times `factor`
    gamma      float32 (m,), γ of each landmark, and by it of products and triangle values
    pairs      int32 (p, 2)
    triangle   float32 (t, m), the distances s_tj
    factor     float32 (n_features,), what scaled features are multiplied with in this leaf; (0,) for nothing
    """

    kernel: Kernel
    bound: str
    landmarks: SingleArray
    gamma: SingleArray
    pairs: NDArray[np.int32]
    triangle: SingleArray
    factor: SingleArray = field(default_factory=lambda: np.empty(0, MODEL_DTYPE))

    def inside(self, X: RowArray) -> RowArray:
        """Scaled rows, times the leaf's own factors."""
        return X.astype(ACC_DTYPE) * self.factor if len(self.factor) else X

    @property
    def members(self) -> tuple[Landmarks, Products, TrianglePoints]:
        landmarks = Landmarks(self.kernel, self.landmarks, self.gamma)
        return (
            landmarks,
            Products(landmarks, self.pairs),
            TrianglePoints(landmarks, self.bound, self.triangle),
        )

    @property
    def size(self) -> int:
        return sum(member.size for member in self.members)

    def __call__(self, X: RowArray) -> FloatArray:
        landmarks, products, triangle = self.members
        X = self.inside(X)
        if triangle.size == 0:
            c = landmarks(X)
            return np.hstack([c, products.of_values(c)]) if products.size else c
        r = self.kernel.distances(X, self.landmarks)
        c = self.kernel.of_distance(r, self.gamma)
        return np.hstack([c, products.of_values(c), triangle.of_distances(r)])

    def summed_sizes(self, X: RowArray) -> FloatArray:
        """The size of what the engine sums for each function of c̄, float64 (n, size), at least 1: errors of
        single precision are relative to it. Values of stationary kernels are written as differences from
        their values at the mean of the landmarks; a product x·u is summed of terms that may cancel.
        """
        if self.kernel.stationary:
            return np.maximum(np.abs(self(X)), 1.0)
        u = np.abs(self.landmarks)
        there = replace(self, landmarks=u, factor=self.factor[:0])
        return np.maximum(there(np.abs(self.inside(X)) + u.mean(axis=0)), 1.0)


# -- making them ---------------------------------------------------------------------------------------------


def sample_pairs(m: int, n_products: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """At most n_products distinct pairs i ≤ j of m landmarks, int32 (p, 2)."""
    i, j = _all_pairs(m)
    chosen = rng.permutation(len(i))[:n_products]
    return np.column_stack([i[chosen], j[chosen]]).astype(np.int32)


@lru_cache(8)
def _all_pairs(m: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(m)


def triangle_distances(kernel: Kernel, points: RowArray, landmarks: SingleArray) -> SingleArray:
    """s_tj of the points v_t, float32 (len(points), m)."""
    if len(points) == 0:
        return np.empty((0, len(landmarks)), MODEL_DTYPE)
    return kernel.distances(points, landmarks).astype(MODEL_DTYPE)
