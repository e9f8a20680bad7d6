"""Random Maclaurin features of the polynomial kernel (Kar and Karnick, AISTATS 2012, algorithm 1).

The kernel is a series, (γ x·u + coef0)^p = Σ_n a_n (x·u)^n with a_n = C(p, n) γ^n coef0^(p−n). For an order
N, drawn with probability q_N, and vectors ω_j of random signs,

    z(x) = √(a_N / (q_N D)) · Π_{j ≤ N} ω_j·x,   E[ Σ z(x) z(u) ] = K(x, u)

over D of them. q_n is in proportion to 1 / 2^(n+1), the measure of the paper with its p = 2, over the orders
up to the degree whose a_n is not 0; the paper draws all orders, and features of others are 0. A homogeneous
kernel has the one order p.

With `maclaurin_h01`, which is H0/1 of the paper, constant and linear part are exact: the functions are √a_0,
√a_1 x, and D random ones of orders from 2 up; D, the setting `size`, counts only these. Parts whose a_n is 0
are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_baselines.linear import FeatureSums
from dcpred_tasks.dtypes import FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.model.exact import blocks
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import taken

MOST_ORDERS, MOST_OF_AN_ORDER = 11, 2**31 - 1


@dataclass(frozen=True)
class Maclaurin:
    """[√a_0, √a_1 x, products of ω_j·x by ascending order].

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
        for own in blocks(len(X), len(self.signs)):
            self._fill(out[own], X[own], X[own] @ vectors)
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
            own = out[:, start : start + count]
            own[:] = self.scale[order]
            for _ in range(order):
                own *= products[:, taken_up : taken_up + count]
                taken_up += count
            start += count

    @property
    def cost(self) -> float:
        """A feature of order n takes n sums of signed features, and n products of them and its scale."""
        return float(self.signs.size + len(self.signs) + self._linear)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"exact": self.exact, "counts": self.counts, "scale": self.scale, "signs": self.signs}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Maclaurin:
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


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Maclaurin:
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
