"""What refinement of a leaf starts from, in NumPy: the definition of training/compiled_start.py."""

from dataclasses import replace

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.training import clusters
from dcpred_tasks.training.clusters import STEPS, STILL
from dcpred_tasks.training.solvers import solve_positive


def joint_ridge(
    Z: FloatArray, target: FloatArray, weight: FloatArray, ridge: float
) -> tuple[FloatArray, FloatArray]:
    """min Σ weight_i |z_i W + b − y_i|² + λ‖W‖² over W (r, k) and b (k,) together.

    Z (n, r) · target (n, k) · weight (n,)
    """
    A = np.column_stack([Z, np.ones(len(Z))])
    system = (A * weight[:, None]).T @ A
    system[np.diag_indices_from(system)] += np.append(np.full(len(system) - 1, ridge), 1e-12)
    solution = solve_positive(system, A.T @ (weight[:, None] * target))
    return solution[:-1], solution[-1]


def landmarks(
    basis: LeafBasis,
    X: SingleArray,
    target: FloatArray,
    sign: FloatArray | None,
    weight: FloatArray,
    share: FloatArray,
    draws: FloatArray,
    ridge: float,
    floor: float,
) -> FloatArray:
    """What compiled_start.landmarks does."""
    given = len(basis.landmarks), draws, STEPS, STILL
    centres = clusters.definition(X, share, *given).astype(MODEL_DTYPE)
    values = replace(basis, landmarks=centres)(X)
    beta, intercept = joint_ridge(values, target, weight, ridge)
    left = target - values @ beta - intercept
    slack = left if sign is None else np.maximum(sign * left, 0.0)
    squares = (slack**2).sum(axis=1)
    if mean := np.average(squares, weights=share):
        share = share * ((1.0 - floor) * squares / mean + floor)
    return clusters.definition(X, share, *given)
