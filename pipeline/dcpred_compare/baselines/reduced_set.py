"""Reduced sets: f'(x) = Σ_j β_j K(x, z_j) + b with a few vectors z_j that need not be rows.

Burges (ICML 1996); Schölkopf, Knirsch, Smola and Burges (DAGM 1998) and Schölkopf et al. (IEEE Transactions
on Neural Networks 10, 1999). Of w = Σ_i α_i φ(x_i), for one or several outputs that share the
vectors, minimise

    E(Z, B) = Σ_k ‖ w_k − Σ_j β_jk φ(z_j) ‖².

Vectors are found one by one. With c the coefficients of what is left, over the points p (rows and vectors so
far), and K(z, z) = 1, the next one maximises Σ_k g_k(z)² with g_k(z) = Σ_i c_ik K(z, p_i); then

    z = Σ_i m_i K(z, p_i) p_i / Σ_i m_i K(z, p_i),   m_i = Σ_k g_k(z) c_ik,

which is iterated from several rows. After each vector all coefficients are solved again, B = K_zz⁻¹ K_zx A;
at the end all vectors are moved together, by L-BFGS on E(Z, B(Z)). The papers write the iteration for one
output, where m_i is c_i times a number that cancels. What is ours: to the intercept of the exact model the
mean difference of the two models over the training rows is added. The papers were not at hand.
"""

from dataclasses import replace

import numpy as np

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.objective import Expansion, best_weights, nearest
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import LeafRows, fit_exact

RESTARTS = 8  # rows that the iteration begins with for one vector
LOOKED_AT = 1_000  # rows that these are chosen from
FIXED_POINT_STEPS = 30
SMALLEST_STEP = 1e-5  # relative gain below which the iteration ends
POLISH_STEPS = 50
SMALLEST_REST = 1e-10  # share of ‖w‖² that is not worth another vector


def reduced(w: Expansion, size: int, rng: np.random.Generator) -> FloatArray:
    """At most `size` vectors that stand for w, float64 (·, n_features)."""
    Z = np.empty((0, w.points.shape[1]))
    B = np.empty((0, w.weights.shape[1]))
    norm = w.squared_norm
    for _ in range(size):
        rest = Expansion(w.kernel, np.concatenate([w.points, Z]), np.concatenate([w.weights, -B]))
        z, gain = next_vector(rest, w.points, rng)
        if gain <= SMALLEST_REST * norm:
            break
        Z = np.concatenate([Z, z[None]])
        B = best_weights(w, Z)
    return nearest(w, Z, POLISH_STEPS) if len(Z) else Z


def fit(kind: LeafModelType, rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Exact:
    """The exact model of the leaf with kind.size vectors; itself where it has no more than that."""
    whole = fit_exact(rows, kernel, settings)
    if len(whole.support) <= kind.size:
        return whole
    rng = np.random.default_rng([settings.seed, seed])
    w = Expansion(kernel, whole.support.astype(np.float64), whole.dual.astype(np.float64))
    Z = reduced(w, kind.size, rng).astype(MODEL_DTYPE)
    B = best_weights(w, Z.astype(np.float64))
    few = Exact(kernel, Z, B.astype(MODEL_DTYPE), whole.intercept)
    off = whole.predict(rows.X) - few.predict(rows.X)
    return replace(few, intercept=whole.intercept + np.average(off, axis=0, weights=rows.weight))


def next_vector(rest: Expansion, among: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """The z of the largest Σ_k g_k(z)² that the iteration finds, and that value, by which E falls."""
    some = among[rng.permutation(len(among))[:LOOKED_AT]]
    values = (rest.values(some) ** 2).sum(axis=1)
    best = np.argsort(-values)[: RESTARTS // 2]
    other = rng.integers(len(some), size=RESTARTS - len(best))
    chosen = np.concatenate([best, other])
    Z, value = some[chosen], values[chosen]
    for _ in range(FIXED_POINT_STEPS):
        moved = _stepped(rest, Z)
        new = (rest.values(moved) ** 2).sum(axis=1)
        better = new > value
        gained = new - value > SMALLEST_STEP * value
        Z, value = np.where(better[:, None], moved, Z), np.where(better, new, value)
        if not gained.any():
            break
    first = int(value.argmax())
    return Z[first], float(value[first])


def _stepped(rest: Expansion, Z: FloatArray) -> FloatArray:
    """One step of the fixed-point iteration from each row of Z; a row stays where the sum below is zero."""
    K = rest.kernel(Z, rest.points)
    share = K * ((K @ rest.weights) @ rest.weights.T)
    # The sum below is Σ_k g_k(z)², never negative, and zero only where no vector helps.
    below = share.sum(axis=1, keepdims=True)
    safe = np.where(below > 0, below, 1.0)
    return np.where(below > 0, (share @ rest.points) / safe, Z)
