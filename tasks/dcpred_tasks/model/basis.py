"""Pseudo-landmarks: kernel values computed from those of the landmarks, not from x (Hsieh et al. 2014,
section 4).

c̄(x) = [ c | products | triangle ], where c_j = K(x, u_j) and
    products  c_i · c_j of sampled pairs i ≤ j, the degree-2 basis of eq. 7
    triangle  κ(r̂_t), r̂_t = max_j |r_j − s_tj| (lower) or min_j (r_j + s_tj) (upper), eq. 6,
              with r_j = ‖x − u_j‖ and s_tj = ‖v_t − u_j‖ for p points v_t
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.kernels import Kernel, Rows


@dataclass(frozen=True)
class Basis:
    """What c̄ is computed from.

    landmarks  float32 (m, n_features), scaled
    gamma      float32 (m,), γ of each landmark, and by it of products and triangle values
    pairs      int32 (p, 2)
    triangle   float32 (t, m), the distances s_tj
    """

    kernel: Kernel
    bound: str
    landmarks: SingleArray
    gamma: SingleArray
    pairs: NDArray[np.int32]
    triangle: SingleArray

    @property
    def size(self) -> int:
        return len(self.landmarks) + len(self.pairs) + len(self.triangle)

    def __call__(self, X: Rows) -> FloatArray:
        """c̄ of scaled rows, float64 (n_samples, m + p + t)."""
        if len(self.triangle):
            r = self.kernel.distances(X, self.landmarks)
            c = self.kernel.of_distance(r, self.gamma)
        else:
            r = c = self.kernel(X, self.landmarks, self.gamma)
        if self.size == len(self.landmarks):
            return c
        products = c[:, self.pairs[:, 0]] * c[:, self.pairs[:, 1]]
        return np.hstack([c, products, self._triangle_values(r)])

    def _triangle_values(self, r: FloatArray) -> FloatArray:
        out = np.empty((len(r), len(self.triangle)), ACC_DTYPE)
        for t, s in enumerate(self.triangle.astype(ACC_DTYPE)):
            out[:, t] = np.abs(r - s).max(axis=1) if self.bound == "lower" else (r + s).min(axis=1)
        return self.kernel.of_distance(out) if len(self.triangle) else out


def sample_pairs(m: int, n_products: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """At most n_products distinct pairs i ≤ j of m landmarks, int32 (p, 2)."""
    i, j = np.triu_indices(m)
    chosen = rng.permutation(len(i))[:n_products]
    return np.column_stack([i[chosen], j[chosen]]).astype(np.int32)


def triangle_distances(kernel: Kernel, points: Rows, landmarks: SingleArray) -> SingleArray:
    """s_tj of the points v_t, float32 (len(points), m)."""
    if len(points) == 0:
        return np.empty((0, len(landmarks)), MODEL_DTYPE)
    return kernel.distances(points, landmarks).astype(MODEL_DTYPE)
