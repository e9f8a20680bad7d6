"""What the rivals of paper.py predict with: float32 matrix products on blocks of rows that stay in cache."""

from typing import Any

import numpy as np
from engine import MIB
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from dcpred_tasks.model.scaling import Scaling, fit_scaling

BLOCK_BYTES = MIB  # kernel values held at a time
Rows = NDArray[np.float32]


def scaled(name: str, X: Rows) -> Scaling:
    """A scaling; "none" centres and divides all features by one number, which single precision needs."""
    if name == "none":
        return Scaling(X.mean(axis=0, dtype=np.float64), np.full(X.shape[1], unit_gamma(X) ** 0.5))
    return fit_scaling(
        name, X, np.ones(len(X)), X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    )


def same(d: int) -> Scaling:
    return Scaling(np.zeros(d), np.ones(d))


def unit_gamma(Z: Rows) -> float:
    return 1.0 / max(float(Z.var(axis=0, dtype=np.float64).sum()), 1e-12)


class Blocked:
    """Σ_j φ_j(x) W_jk + b_k for rows in blocks: scale, one matrix product for all φ, one for the outputs."""

    def __init__(
        self, scaling: Scaling, right: Rows, W: NDArray[Any], b: NDArray[Any] | float, gamma: float = 0.0
    ) -> None:
        """right  (d + 2, n), see `gaussian`; or (d + 1, n) for the cosines of random Fourier features, where
        gamma is 0
        """
        self.shift, self.factor = scaling.shift.astype(np.float32), scaling.factor.astype(np.float32)
        self.right, self.W, self.b, self.gamma = (
            right,
            np.asarray(W, np.float32),
            np.asarray(b, np.float32),
            np.float32(gamma),
        )
        self.rows = max(BLOCK_BYTES // (4 * right.shape[1]), 16)
        self.left = np.ones((self.rows, len(right)), np.float32)
        self.features = np.empty((self.rows, right.shape[1]), np.float32)

    def __call__(self, X: Rows) -> Rows:
        out = np.empty((len(X), *self.W.shape[1:]), np.float32)
        d = X.shape[1]
        for start in range(0, len(X), self.rows):
            x = X[start : start + self.rows]
            left, features = self.left[: len(x)], self.features[: len(x)]
            z = left[:, :d]
            np.subtract(x, self.shift, out=z)
            np.multiply(z, self.factor, out=z)
            if self.gamma:
                np.einsum("ij,ij->i", z, z, out=left[:, d])
            np.matmul(left, self.right, out=features)
            (np.exp if self.gamma else np.cos)(features, out=features)
            np.matmul(features, self.W, out=out[start : start + len(x)])
        out += self.b
        return out


def gaussian(scaling: Scaling, U: Rows, W: NDArray[Any], b: NDArray[Any] | float, gamma: float) -> Blocked:
    """Gaussian kernel values of scaled points U: −γ‖z − u‖² = [z, ‖z‖², 1] · [2γu, −γ, −γ‖u‖²]."""
    norms = np.einsum("ij,ij->i", U, U)
    right = np.vstack([2 * gamma * U.T, np.full((1, len(U)), -gamma), -gamma * norms[None]]).astype(
        np.float32
    )
    return Blocked(scaling, right, W, b, gamma)


def kernel(A: Rows, U: Rows, gamma: float) -> NDArray[np.float64]:
    a, u = A.astype(np.float64), U.astype(np.float64)
    D = a @ (2 * gamma * u.T) - gamma * (a * a).sum(axis=1)[:, None]
    D -= gamma * (u * u).sum(axis=1)
    return np.asarray(np.exp(np.minimum(D, 0.0, out=D), out=D))


def solve(G: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """With a jitter that rounding needs; G is overwritten. OpenBLAS has crashed in large ones with two
    threads.
    """
    with threadpool_limits(1):
        G[np.diag_indices_from(G)] += 1e-10 * np.trace(G) / len(G)
        return np.asarray(
            cho_solve(cho_factor(G, overwrite_a=True, check_finite=False), right, check_finite=False)
        )


def pair_weights(machine: Any) -> NDArray[np.float64]:
    """(support vectors, pairs of classes) from LIBSVM's (classes − 1, support vectors)."""
    dual, ends = machine.dual_coef_, np.cumsum([0, *machine.n_support_])
    n = len(machine.classes_)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    W = np.zeros((dual.shape[1], len(pairs)))
    for column, (i, j) in enumerate(pairs):
        W[ends[i] : ends[i + 1], column] = dual[j - 1, ends[i] : ends[i + 1]]
        W[ends[j] : ends[j + 1], column] = dual[i, ends[j] : ends[j + 1]]
    return W


def votes(machine: Any, decision: NDArray[Any]) -> NDArray[Any]:
    n = len(machine.classes_)
    if n == 2:
        return np.asarray(machine.classes_[(decision[:, 0] > 0).astype(int)])
    won = np.zeros((len(decision), n), int)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    for column, (i, j) in enumerate(pairs):
        won[:, i] += decision[:, column] > 0
        won[:, j] += decision[:, column] <= 0
    return np.asarray(machine.classes_[won.argmax(axis=1)])
