"""Approximation error of kernel bases: ‖Z Zᵀ − K‖ / ‖K‖ (Frobenius) by the number of functions."""

from typing import Any

import numpy as np

from dcpred.comparison.rows import Rows
from dcpred.comparison.systems import SIZES
from dcpred_tasks.machine_training.linear import fit_basis
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.machine import BASES

MOST_ROWS, SEEDS = 500, 3
OF_ROWS = ("nystrom", "kmeans_nystrom")  # exact where every row is a landmark


def kernel_errors(rows: Rows) -> list[dict[str, Any]]:
    """By basis, kernel and size: the number of functions, and the mean error over seeds.

    rbf         rows of standard scaling, γ by the median distance
    polynomial  (x·u + 1)², rows of standard scaling and length 1
    """
    rng = np.random.default_rng(0)
    X = rows.X[rng.permutation(len(rows.X))[:MOST_ROWS]].astype(np.float64)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    of_unit_length = (X / np.where(length > 0, length, 1.0)).astype(np.float32)
    standard = X.astype(np.float32)
    found = []
    for name, one in BASES.items():
        if "rbf" in one.kernels:
            kernel, own = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), standard)), standard
        else:
            kernel, own = Kernel("polynomial", 1.0, 2, 1.0), of_unit_length
        K = kernel(own, own)
        for size in (size for size in SIZES[name] if len(own) > size or name not in OF_ROWS):
            errors, functions = [], 0
            for seed in range(SEEDS):
                basis = fit_basis(name, own, kernel, size, np.random.default_rng(seed))
                Z = basis(own.astype(np.float64))
                functions = Z.shape[1]
                errors.append(float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)))
            found.append(
                {
                    "basis": name,
                    "kernel": kernel.name,
                    "functions": functions,
                    "error": float(np.mean(errors)),
                }
            )
    return found
