"""What refinement minimises: the loss of a leaf in its landmarks, the γ of each, and its output weights.

The compact leaf f(x) = Σ_q β_q c̄_q(x) + b + f₀(x), with c_j = K(x, u_j; γ_j), products c_i·c_j and fixed f₀,
the sum of other terms of the model, is trained by L-BFGS on

    Σ_i w_i ℓ_i(f(x_i))  +  ridge ⟨β²⟩ / ⟨|β₀|⟩²  +  pull ‖U − U₀‖² γ₀
      +  spread Σ_j log²(γ_j / γ₀) / m  +  stretch Σ_f log²(s_f) / d,   Σ w_i = 1

with s = 1, or with ARD scales of leaves (leaf_scaling) c_j = K(s ∘ x, s ∘ u_j; γ_j), and with ⟨·⟩ the mean
over all output weights. ℓ is one of `losses`; with classes a share of it may be the distance to the decision
values of the local SVM, which is 0 on its side of ±1. Arrays and cost are the same, with far fewer landmarks
than Nyström.

A kernel expansion w_k = Σ_i α_ik φ(x_i) has from vectors z_j with weights β_jk (Burges, ICML 1996; Schölkopf
et al., IEEE Transactions on Neural Networks 10, 1999) the squared distance

    E(Z, B) = Σ_k ‖ w_k − Σ_j β_jk φ(z_j) ‖²,   least for B(Z) = K_zz⁻¹ K_zx A.

With loss=distance landmarks and β stay near the local SVM: the term E(U, β) / ‖w‖² of `expansion` joins the
squared hinge, all landmarks have the γ of the local SVM, and they start at the nearest ones that L-BFGS finds
from those of k-means.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, RealArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.lbfgs import minimise
from dcpred_tasks.training.losses import Loss

# Share of the diagonal of K_zz that is added to it: two vectors may meet, and weights are single precision.
KEPT_APART = 1e-7
FARTHER_APART = 100.0  # factor of that where K_zz still has no Cholesky factor
ROUNDING = 1e-9  # share of Σ α² below which ‖w‖² is what rounding left
BLOCK = 2_000  # rows of a Gram matrix that are held at a time
NEAREST_DONE = 1e-7  # least relative gain of a step of `nearest` that another one follows
PULL = 1e-5  # penalty on the way of landmarks
SPREAD = 1e-3  # penalty on the spread of log γ
NEARNESS = 1.0  # weight of the squared distance to the local SVM, relative to its squared norm
STRETCH = 0.1  # penalty on the spread of the logarithms of a leaf's own factors
LOG_GAMMA = 3.0  # limit of |log γ/γ₀|: a γ moves by no more than a factor of e³
LOG_FACTOR = 3.0  # the same for ARD scales of a leaf


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
            block = slice(at, at + BLOCK)
            total += float((self.weights[block] * self.values(self.points[block])).sum())
        return total

    @property
    def cancels(self) -> bool:
        """Whether all outputs are zero but for rounding, as of rows that are there with both signs."""
        return not self.squared_norm > ROUNDING * float((self.weights**2).sum())


def best_weights(w: Expansion, Z: FloatArray) -> FloatArray:
    """B(Z), (len(Z), n_outputs)."""
    return _solved(w.kernel(Z, Z), w.values(Z))


def least_error_and_slope(w: Expansion, Z: FloatArray) -> tuple[float, FloatArray]:
    """E(Z, B(Z)) − ‖w‖² and its derivative by Z, of an rbf kernel: ∂E/∂B is 0 there."""
    K_x, K_z = w.kernel(Z, w.points), w.kernel(Z, Z)
    right = K_x @ w.weights
    B = _solved(K_z, right)
    return -float((B * right).sum()), _slope(w, Z, B, K_x, K_z)


def nearest(w: Expansion, Z: FloatArray, steps: int) -> FloatArray:
    """Vectors of a lower E(Z, B(Z)) after at most so many L-BFGS steps, of an rbf kernel; or Z itself."""

    def error(flat: FloatArray) -> tuple[float, FloatArray]:
        value, slope = least_error_and_slope(w, flat.reshape(Z.shape))
        return value, slope.ravel()

    with np.errstate(over="ignore", invalid="ignore"):  # A trial step may go too far.
        return minimise(error, Z.ravel(), steps, NEAREST_DONE).reshape(Z.shape)


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


@dataclass(frozen=True)
class Goal:
    """The targets of the decision values of n rows, k outputs.

    target   (n, k): ±1 for classes, values of mean 0 and variance 1 for a regression
    distilled    (n, k): distillation target, the decision values of the local SVM
    share    share of the loss, 0 to 1, that is the distance to `distilled` (classes only)
    weight   (n,), of sum 1
    offset   (n, k), the sum of the other terms, which is added to decision values; None without any
    """

    target: RealArray
    distilled: RealArray
    share: float
    weight: RealArray
    loss: Loss
    offset: RealArray | None = None


class Objective:
    """The function that is minimised, of one flat vector: landmarks, output weights over their scale,
    intercepts, log γ/γ₀, and where the leaf has factors of its own their logarithms.
    """

    def __init__(
        self,
        X: RealArray,
        basis: LeafBasis,
        beta: RealArray,
        intercept: RealArray,
        goal: Goal,
        ridge: float,
        own_factors: bool = False,
        machine: Expansion | None = None,
    ) -> None:
        """X (n, d) · beta (m + p, k) · intercept (k,); all of one floating dtype. `machine` is the local SVM
        that landmarks and β stay near: an rbf kernel with the γ of all landmarks, without products and ARD
        scales.
        """
        self.X, self.goal, self.basis = X, goal, basis
        self.machine = machine
        self.start = basis.landmarks.astype(X.dtype)
        self.gamma = basis.gamma.astype(X.dtype)
        self.shape = beta.shape
        self.scale = max(float(np.abs(beta).mean()), 1e-3)
        m = len(self.start)
        d = X.shape[1]
        self.own_factors = own_factors
        sizes = (self.start.size, beta.size, beta.shape[1], m, d if own_factors else 0)
        self.sizes, self.at = sizes, np.cumsum([0, *sizes]).tolist()
        self.origin = np.concatenate(
            [self.start.ravel(), beta.ravel() / self.scale, intercept, np.zeros(m + sizes[4])]
        ).astype(ACC_DTYPE)
        # Penalties: stiff · (θ − rest_point)²
        pull = PULL * float(basis.kernel.gamma)
        self.stiff = np.repeat([pull, ridge / beta.size, 0.0, SPREAD / m, STRETCH / max(d, 1)], sizes)
        self.rest_point = np.where(np.arange(len(self.origin)) < self.at[1], self.origin, 0.0)

    def parts(self, theta: RealArray) -> tuple[RealArray, RealArray, RealArray, RealArray, RealArray]:
        """Landmarks (m, d), β (m + p, k), intercepts (k,), γ (m,) and factors, (d,) or (0,)."""
        theta = theta.astype(self.X.dtype)
        U, beta, b, log_gamma, log_factor = (theta[first:last] for first, last in pairwise(self.at))
        gamma = self.gamma * np.exp(log_gamma.clip(-LOG_GAMMA, LOG_GAMMA))
        factor = np.exp(log_factor.clip(-LOG_FACTOR, LOG_FACTOR))
        return U.reshape(self.start.shape), beta.reshape(self.shape) * self.scale, b, gamma, factor
