"""The exact kernel machine: an SVM, or ridge regression, on the rows of the leaf."""

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE
from dcpred_tasks.machines.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.local_machine import LeafRows, local_machine
from dcpred_tasks.training.settings import Settings


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Exact:
    """The local machine of the leaf, on local_rows rows at most."""
    local = local_machine(rows, kernel, settings)
    used = np.flatnonzero(local.dual.any(axis=1))
    return Exact(kernel, rows.X[used], local.dual[used].astype(MODEL_DTYPE), local.intercept)
