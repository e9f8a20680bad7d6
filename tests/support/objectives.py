"""Objectives of refinement, of random rows."""

import math

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.losses import SHARPNESS, Hinge, Huber, Logistic, Loss, Quantile, Squares
from dcpred_tasks.training.objective import Expansion, Goal
from support.refinement_definition import Definition

Doubles = NDArray[np.float64]
# By a word; of classes with the share of the guide behind it.
LOSSES: dict[str, Loss] = {
    "square": Squares(),
    "hinge": Hinge(),
    "hinge 0.5": Hinge(),
    "hinge 1": Hinge(),
    "logistic": Logistic(),
    "logistic 0.5": Logistic(),
    "logistic 1": Logistic(),
    "huber": Huber(width=0.8, steep=1.6),
    "quantile": Quantile(width=0.3, steep=1.5, tilt=0.6),
}


def loss_value(loss: Loss, f: Doubles, target: Doubles) -> float:
    """The loss of a row, all outputs together, written out in plain Python."""
    pairs = [(float(a), float(b)) for a, b in zip(f, target, strict=True)]
    if isinstance(loss, Huber):  # and Quantile
        w, tilt = loss.width, loss.tilt
        return sum(
            loss.steep * (tilt * (t - a) + (abs(t - a) - w / 2 if abs(t - a) > w else (t - a) ** 2 / (2 * w)))
            for a, t in pairs
        )
    if isinstance(loss, Squares):
        return sum((a - t) ** 2 for a, t in pairs)
    if isinstance(loss, Hinge):
        return sum(max(0.0, 1 - t * a) ** 2 for a, t in pairs)
    assert isinstance(loss, Logistic)
    pairs = [*pairs, *((-a, -t) for a, t in pairs if len(f) == 1)]
    power = [math.exp(SHARPNESS * a) for a, _ in pairs]
    return -math.log(sum(p for p, (_, t) in zip(power, pairs, strict=True) if t > 0) / sum(power))


def kernel_of(name: str) -> Kernel:
    return Kernel(name, 0.3, 3, 0.5)


def make_goal(word: str, n: int, k: int, rng: np.random.Generator) -> Goal:
    """Weights of sum 1, targets of ±1 or values, and guides on all three sides of ±1."""
    weight = rng.uniform(0.1, 2, n)
    loss, share = LOSSES[word], word.partition(" ")[2]
    target = np.where(rng.random((n, k)) < 0.5, 1.0, -1.0)
    if "regression" in loss.tasks:
        target = rng.normal(size=(n, k))
    elif isinstance(loss, Logistic) and k > 1:
        target = np.where(np.arange(k) == rng.integers(0, k, n)[:, None], 1.0, -1.0)
    return Goal(target, 1.5 * rng.normal(size=(n, k)), float(share or 0), weight / weight.sum(), loss)


def problem(
    name: str,
    products: int,
    k: int,
    loss: str,
    n: int = 40,
    m: int = 4,
    d: int = 3,
    ridge: float = 0.2,
    own_factors: bool = False,
) -> Definition:
    """In double precision; distances do not grow with the number of features."""
    rng = np.random.default_rng(n + m + k)
    pairs = np.column_stack([i[:products] for i in np.triu_indices(m)]).astype(np.int32)
    gamma = rng.uniform(0.1, 0.6, m).astype(np.float32)
    width = np.sqrt(3 / d)
    landmarks = (width * rng.normal(size=(m, d))).astype(np.float32)
    basis = LeafBasis(kernel_of(name), "lower", landmarks, gamma, pairs, np.empty((0, m), np.float32))
    X = width * rng.normal(size=(n, d))
    beta, intercept = rng.normal(size=(m + products, k)), rng.normal(size=k)
    return Definition(X, basis, beta, intercept, make_goal(loss, n, k, rng), ridge, own_factors)


def near(k: int, n: int = 30) -> Definition:
    """An objective that stays near a machine of n support vectors, away from it."""
    rng = np.random.default_rng(k)
    kernel, m = Kernel("rbf", 0.4), 4
    landmarks = rng.normal(size=(m, 3)).astype(np.float32)
    gamma = np.full(m, kernel.gamma, np.float32)
    basis = LeafBasis(
        kernel, "lower", landmarks, gamma, np.empty((0, 2), np.int32), np.empty((0, m), np.float32)
    )
    machine = Expansion(kernel, rng.normal(size=(n, 3)), rng.normal(size=(n, k)))
    beta, goal = rng.normal(size=(m, k)), make_goal("hinge", 40, k, rng)
    return Definition(rng.normal(size=(40, 3)), basis, beta, rng.normal(size=k), goal, 0.2, machine=machine)


def squared_error(w: Expansion, Z: FloatArray, B: FloatArray) -> float:
    """E(Z, B) = ‖w‖² − 2 Σ B ⊙ (K_zx A) + Σ B ⊙ (K_zz B)."""
    return w.squared_norm - float((B * (2 * w.values(Z) - w.kernel(Z, Z) @ B)).sum())
