"""Approximation error of kernel bases: ‖Z Zᵀ − K‖ / ‖K‖ (Frobenius) by the number of functions."""

from typing import Any

import numpy as np

from dcpred.comparison.rows import Rows
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_model import leaf_model_types

MOST_ROWS, SEEDS = 500, 3
LANDMARKS = "landmarks"  # what the size of a basis of rows counts


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
    for name, one in leaf_model_types().items():
        if not one.is_basis:
            continue
        if one.kernel == "rbf":
            kernel, own = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), standard)), standard
        else:
            kernel, own = Kernel("polynomial", 1.0, 2, 1.0), of_unit_length
        K = kernel(own, own)
        # A basis of rows is exact where every row is one.
        for size in (size for size in one.sizes if len(own) > size or one.counted != LANDMARKS):
            errors, functions = [], 0
            for seed in range(SEEDS):
                basis = one.fit_basis(own, kernel, size, np.random.default_rng(seed))
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
