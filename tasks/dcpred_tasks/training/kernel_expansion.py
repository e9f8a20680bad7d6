"""Kernel expansions, w_k = Σ_i α_ik φ(x_i) of several outputs k, and how far few vectors are from them.

Of vectors z_j with weights β_jk, which need not be rows (Burges, ICML 1996; Schölkopf et al., IEEE
Transactions on Neural Networks 10, 1999), the squared distance is

    E(Z, B) = Σ_k ‖ w_k − Σ_j β_jk φ(z_j) ‖²,   least for B(Z) = K_zz⁻¹ K_zx A.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.lbfgs import minimise

# Share of the diagonal of K_zz that is added to it: two vectors may meet, and weights are single precision.
KEPT_APART = 1e-7
FARTHER_APART = 100.0  # factor of that where K_zz still has no Cholesky factor
ROUNDING = 1e-9  # share of Σ α² below which ‖w‖² is what rounding left
BLOCK = 2_000  # rows of a Gram matrix that are held at a time
DONE = 1e-7  # least relative gain of a step of `nearest` that another one follows


@dataclass(frozen=True)
class Expansion:
    """w_k = Σ_i α_ik φ(x_i): points float64 (s, n_features), weights float64 (s, n_outputs)."""

    kernel: Kernel
    points: FloatArray
    weights: FloatArray

    def values(self, Z: FloatArray) -> FloatArray:
        """Σ_i α_ik K(z, x_i), (len(Z), n_outputs)."""
        return self.kernel(Z, self.points) @ self.weights

    @cached_property
    def squared_norm(self) -> float:
        """Σ_k ‖w_k‖²."""
        total = 0.0
        for at in range(0, len(self.points), BLOCK):
            own = slice(at, at + BLOCK)
            total += float((self.weights[own] * self.values(self.points[own])).sum())
        return total

    @property
    def cancels(self) -> bool:
        """Whether all outputs are zero but for rounding, as of rows that are there with both signs."""
        return not self.squared_norm > ROUNDING * float((self.weights**2).sum())


def best_weights(w: Expansion, Z: FloatArray) -> FloatArray:
    """B(Z), (len(Z), n_outputs)."""
    return _solved(w.kernel(Z, Z), w.values(Z))


def squared_error(w: Expansion, Z: FloatArray, B: FloatArray) -> float:
    """E(Z, B) = ‖w‖² − 2 Σ B ⊙ (K_zx A) + Σ B ⊙ (K_zz B)."""
    return w.squared_norm - float((B * (2 * w.values(Z) - w.kernel(Z, Z) @ B)).sum())


def error_and_slopes(w: Expansion, Z: FloatArray, B: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """E(Z, B) − ‖w‖², and its derivatives by Z and by B. For rbf

    ∂E/∂z_j = −4γ Σ_k β_jk [ Σ_i α_ik K(z_j, x_i) (x_i − z_j) − Σ_l β_lk K(z_j, z_l) (z_l − z_j) ].
    """
    K_x, K_z = w.kernel(Z, w.points), w.kernel(Z, Z)
    right, own = K_x @ w.weights, K_z @ B
    value = -float((B * (2 * right - own)).sum())
    return value, _slope(w, Z, B, K_x, K_z), 2 * (own - right)


def least_error_and_slope(w: Expansion, Z: FloatArray) -> tuple[float, FloatArray]:
    """E(Z, B(Z)) − ‖w‖² and its derivative by Z, of an rbf kernel: ∂E/∂B is 0 there."""
    K_x, K_z = w.kernel(Z, w.points), w.kernel(Z, Z)
    right = K_x @ w.weights
    B = _solved(K_z, right)
    return -float((B * right).sum()), _slope(w, Z, B, K_x, K_z)


def nearest(w: Expansion, Z: FloatArray, steps: int) -> FloatArray:
    """Vectors of a lower E(Z, B(Z)) after at most so many steps of L-BFGS, of an rbf kernel; Z itself where
    none is lower.
    """

    def error(flat: FloatArray) -> tuple[float, FloatArray]:
        value, slope = least_error_and_slope(w, flat.reshape(Z.shape))
        return value, slope.ravel()

    with np.errstate(over="ignore", invalid="ignore"):  # A trial step may go too far.
        return minimise(error, Z.ravel(), steps, DONE).reshape(Z.shape)


def _slope(w: Expansion, Z: FloatArray, B: FloatArray, K_x: FloatArray, K_z: FloatArray) -> FloatArray:
    of_x, of_z = K_x * (B @ w.weights.T), K_z * (B @ B.T)
    pull = of_x @ w.points - of_z @ Z - (of_x.sum(axis=1) - of_z.sum(axis=1))[:, None] * Z
    return np.asarray(-4.0 * w.kernel.gamma * pull)


def _solved(K: FloatArray, right: FloatArray) -> FloatArray:
    """K⁻¹ right, with as little added to the diagonal as lets it be solved; NaN where K is not finite."""
    if not np.isfinite(K).all():
        return np.full(right.shape, np.nan)
    diagonal, added = np.diag_indices_from(K), KEPT_APART * (float(np.diag(K).max(initial=0.0)) or 1.0)
    while True:
        A = K.copy()
        A[diagonal] += added
        try:
            np.linalg.cholesky(A)
            return np.asarray(np.linalg.solve(A, right))
        except np.linalg.LinAlgError:
            added *= FARTHER_APART
