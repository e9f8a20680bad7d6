"""The cells of the support vectors of the local machine, and how far a cell may stand for its vectors."""

from dataclasses import replace

import numpy as np

from dcpred_tasks.machine_training import exact
from dcpred_tasks.machine_training.ball_tree import WORTH, in_cells, measured_rows
from dcpred_tasks.machines.exact import Exact
from dcpred_tasks.machines.support_tree import SupportTree, weighted_cells
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings

EPSILONS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 3e-3, 1e-3, 1e-4)  # errors of a kernel value


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> SupportTree | Exact:
    """Cells of at most machine_size support vectors, with the largest ε whose root mean squared error on
    training rows is within the tolerance; the exact machine where that does not save a fifth.
    """
    whole, ends = in_cells(exact.fit(rows, kernel, settings, seed), settings.machine_size)
    if not len(ends):
        return whole
    tree = SupportTree(weighted_cells(whole, ends), np.zeros(1), np.zeros(1))
    X = measured_rows(rows.X).astype(np.float64)
    true = whole.decision(X)
    allowed = settings.machine_tolerance * true.std(axis=0)
    for epsilon in EPSILONS:
        tree = replace(tree, epsilon=np.array([epsilon]))
        value, looked = tree.looked(X)
        if (np.sqrt(((value - true) ** 2).mean(axis=0)) <= allowed).all():
            counted = tree.cells.multiplications(looked)
            worth = counted <= WORTH * whole.multiplications
            return replace(tree, counted=np.array([counted])) if worth else whole
    return whole
