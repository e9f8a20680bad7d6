"""Mean and variance of a Gaussian kernel value over a group of support vectors.

The model is that of Cossalter, Yan and Zheng (ICML 2011, section 2.1). A group has the mean μ; d = ‖μ − z‖ is
the distance of a row z from it. Of its vectors x, drawn with their weights, ‖x − μ‖ is always r (assumption
1), and cos θ between μ − z and x − μ is normal with mean 0 and variance σ² = λ/K (assumption 2), so that

    ‖x − z‖² = d² + r² + 2 d y,   y = r cos θ normal with variance v = σ² r².

The Gaussian integral E exp(−2γ d y) = exp(2 γ² d² v) gives, with u = 2 γ² d² v and nothing left out,

    E[f]        = exp(−γ (d² + r²) + u)
    Var[f]/E²   = exp(2u) − 1.

Theorem 1 has instead a sum of N terms for an integral over β, of the third order in σ² d²; its limit for many
terms and orders is E[f] here. What is printed differs from the derivation at these places:

    γ_n        has r, where the integral gives r²  (the appendix has r²)
    A_n1..A_n3 lack the factors ρ, ρ², ρ³          (the appendix has them, but lacks d², d⁴, d⁶)
    A_n3       has −4/3 ρ⁴ r_n⁸, where the integral gives −8/3 ρ⁴ r_n⁸
    V          lacks the factor r²/N; with it, d² e^(−2ρd²) V is not below the first order of Var[f] in σ²
"""

from dataclasses import dataclass

import numpy as np

from dcpred_tasks.dtypes import FloatArray, RealArray

FAR = 1e30  # a squared distance beyond all others


@dataclass(frozen=True)
class Moments:
    """What a group has beside its mean, for each of g groups.

    radius  float64 (g,), r²
    along   float64 (g,), v
    """

    radius: FloatArray
    along: FloatArray

    def exponents(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        """log E[f] as a function of the squared distance: factors of d², and what is added, (g,) each."""
        return np.asarray(2.0 * gamma * gamma * self.along - gamma), np.asarray(-gamma * self.radius)

    def mean(self, gamma: float, d2: FloatArray) -> FloatArray:
        """E[f] at squared distances d², (n, g). It is at most 1, as each value of f is: at a large variance
        the normal distribution has parts that no cosine has.
        """
        factors, offset = self.exponents(gamma)
        return np.asarray(np.exp(np.minimum(d2 * factors + offset, 0.0)))

    def farthest(self, gamma: float, tolerance: float) -> FloatArray:
        """d² from which on Var[f] ≥ tolerance · E[f]², (g,); at most 1e30."""
        rate = 4.0 * gamma * gamma * self.along  # log(1 + Var[f]/E[f]²), for each d²
        limit = np.full(len(rate), FAR if tolerance > 0 else 0.0)
        with np.errstate(over="ignore"):
            np.divide(np.log1p(tolerance), rate, out=limit, where=rate > 0)
        return np.asarray(np.minimum(limit, FAR))


def group_moments(
    vectors: RealArray, weight: FloatArray, mean: RealArray, looked_at: RealArray
) -> tuple[float, float]:
    """r² and v of one group: the weighted mean of ‖x − μ‖², and of y² in the directions of the rows that are
    looked at.
    """
    share = weight / weight.sum()
    middle = mean.astype(np.float64)
    off, to = vectors - middle, middle - looked_at
    radius = float(share @ np.einsum("ij,ij->i", off, off))
    d2 = np.einsum("ij,ij->i", to, to)
    away = d2 > 0
    if not away.any() or radius == 0:
        return radius, 0.0
    projected = off @ (to[away] / np.sqrt(d2[away])[:, None]).T
    return radius, float((share @ projected**2).mean())
