"""The cells of a ball tree over the support vectors of the local machine."""

import numpy as np

from dcpred_tasks.dtypes import SingleArray
from dcpred_tasks.machine_training import exact
from dcpred_tasks.machine_training.halves import cells
from dcpred_tasks.machines.ball_tree import BallTree
from dcpred_tasks.machines.cells import cells_of
from dcpred_tasks.machines.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings

MEASURED_ROWS = 500  # training rows whose multiplications are counted
WORTH = (
    0.8  # share of the multiplications of the exact machine, from which on cells are not worth their lines
)


def measured_rows(X: SingleArray) -> SingleArray:
    """Training rows whose multiplications are counted, spread over all."""
    return X[:: -(-len(X) // MEASURED_ROWS)]


def in_cells(whole: Exact, most: int) -> tuple[Exact, np.ndarray]:
    """The machine with its support vectors in the order of cells of at most so many, and their ends."""
    order, ends = cells(whole.support, most)
    return Exact(whole.kernel, whole.support[order], whole.dual[order], whole.intercept), ends


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> BallTree | Exact:
    """Cells of at most machine_size support vectors; the exact machine where they do not save a fifth."""
    whole, ends = in_cells(exact.fit(rows, kernel, settings, seed), settings.machine_size)
    if not len(ends):
        return whole
    tree = BallTree(cells_of(whole, ends), np.zeros(1))
    looked = tree.bounds(measured_rows(rows.X).astype(np.float64))[2]
    counted = tree.cells.multiplications(looked)
    return whole if counted > WORTH * whole.multiplications else BallTree(tree.cells, np.array([counted]))
