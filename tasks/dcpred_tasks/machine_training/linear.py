"""A linear SVM or ridge regression on the functions of a basis.

Z Zᵀ of the functions z = c̄(x) stands for the kernel, so that C and λ mean what they do in the exact machine.
"""

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, SingleArray
from dcpred_tasks.machines.linear import Linear
from dcpred_tasks.machines.nystrom import Nystrom, of_landmarks
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.machine import DrawnBasis, basis_module
from dcpred_tasks.training.local_machine import ABSENT, LeafRows, labellings
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import linear_ridge, linear_svm
from dcpred_tasks.training.tree_fitting import k_means

K_MEANS_ROWS = 20_000  # most rows that k-means sees


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Linear:
    """The machine of the setting `basis`."""
    name, rng = settings.basis, np.random.default_rng([settings.seed, seed])
    basis = fit_basis(name, rows.X, kernel, settings.machine_size, rng)
    weight = rows.compact_weight()
    Z = basis(rows.X.astype(ACC_DTYPE))
    if rows.task == "regression":
        w, b = linear_ridge(Z, rows.target.astype(np.float64), weight, settings.ridge)
        beta, intercept = w[:, None], np.array([b])
    else:
        beta, intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
        for output, sign in labellings(rows):
            beta[:, output], intercept[output] = linear_svm(Z, sign, weight, settings.C)
    if isinstance(basis, Nystrom):
        basis, beta = basis.folded(beta)
    return Linear(name, basis, beta, intercept)


def fit_basis(name: str, X: SingleArray, kernel: Kernel, size: int, rng: np.random.Generator) -> DrawnBasis:
    """A basis for scaled rows like X. Of landmarks there are at most `size`: all rows where there are no
    more, and of k-means all that are distinct.
    """
    if name == "nystrom":
        return of_landmarks(kernel, X[np.sort(rng.permutation(len(X))[:size])])
    if name == "kmeans_nystrom":
        some = rng.permutation(len(X))[:K_MEANS_ROWS]
        return of_landmarks(kernel, k_means(X[np.sort(some)], size, int(rng.integers(2**31))))
    basis: DrawnBasis = basis_module(name).fit_basis(name, X, kernel, size, rng)
    return basis
