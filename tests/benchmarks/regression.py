"""Regression: the compact model beside exact kernel ridge regression.

    python tests/benchmarks/regression.py [--seeds 5] [--quick]

Test RMSE on a random fifth of the rows, mean over seeds (a seed moves the split and everything else).
Settings of both were chosen on validation rows taken from the training rows. The exact machine uses all
training rows; its Gram matrix of cal_housing takes 2 GiB.
"""

import argparse

import numpy as np
from common import Table, data_folder
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

from dcpred import DCPredRegressor
from dcpred.estimators.settings import as_parameters
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import fit_scaling

# name → (ours, exact): each with the scaling that validation chose for it
JOBS = {
    "cpusmall": (
        {"scaling": "minmax", "gamma": 1.0, "ridge": 0.01, "n_leaves": 8},
        [("standard", 0.02, 0.01), ("minmax", 2.0, 0.01)],
    ),
    "cal_housing": (
        {"scaling": "standard", "gamma": 0.1, "ridge": 0.05, "n_leaves": 8},
        [("standard", 0.2, 0.05)],
    ),
}
HEAD = {"landmarks": 32, "products": 300, "refine": False}  # as in the paper
Rows = NDArray[np.float64]


def rmse(predicted: Rows, target: Rows) -> float:
    return float(np.sqrt(np.mean((predicted - target) ** 2)))


def exact_ridge(X: Rows, y: Rows, X_test: Rows, scaling: str, gamma: float, ridge: float) -> Rows:
    """Kernel ridge regression with centred targets, in place where it can be."""
    scale = fit_scaling(scaling, X, np.ones(len(X)), X.min(axis=0), X.max(axis=0))
    kernel = Kernel("rbf", gamma)
    rows = scale(X)
    G = kernel(rows, rows)
    G[np.diag_indices_from(G)] += ridge
    dual = cho_solve(cho_factor(G, overwrite_a=True, check_finite=False), y - y.mean(), check_finite=False)
    return np.asarray(kernel(scale(X_test), rows) @ dual + y.mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, 4,000 rows")
    args = parser.parse_args()
    threadpool_limits(1)  # OpenBLAS has crashed in a Cholesky decomposition of this size with two threads
    table = Table(
        "data", "linear", "exact kernel ridge", "compact", "local (early)", "compact / exact", "of each seed"
    )
    for name, (ours, rivals) in JOBS.items():
        with np.load(data_folder() / f"{name}.npz") as data:
            X, y = data["X"].astype(np.float64), data["y"].astype(np.float64)
        found = []
        for seed in range(1 if args.quick else args.seeds):
            order = np.random.default_rng(seed).permutation(len(X))[: 4_000 if args.quick else None]
            cut = int(0.8 * len(order))
            A, ya, B, yb = X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]
            settings = HEAD | ours | {"keep_support_vectors": True}
            model = DCPredRegressor(**as_parameters(settings), random_state=seed).fit(A, ya)
            found.append(
                [
                    rmse(LinearRegression().fit(A, ya).predict(B), yb),
                    min(rmse(exact_ridge(A, ya, B, *rival), yb) for rival in rivals),
                    rmse(model.predict(B), yb),
                    rmse(model.predict_early(B), yb),
                ]
            )
        linear, exact, compact, early = np.mean(found, axis=0)
        each = " ".join(f"{row[2] / row[1]:.3f}" for row in found)
        table.add(
            name,
            f"{linear:,.4g}",
            f"{exact:,.5g}",
            f"{compact:,.5g}",
            f"{early:,.5g}",
            f"{compact / exact:.3f}",
            each,
        )
    table.show()


if __name__ == "__main__":
    main()
