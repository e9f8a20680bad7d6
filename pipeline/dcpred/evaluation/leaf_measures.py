"""Which leaves are wrong how often, or how far off."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import LeafNumbers
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers

LISTED = 500  # leaves that are told: those with the most rows


class LeafMeasures:
    """Gathered from rows piece by piece."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rows = np.zeros(model.n_leaves, np.int64)
        self.lost = np.zeros(model.n_leaves)
        """Rows that are wrong, or the sum of squared errors."""

    def add(self, decision: Scores, target: NDArray[Any], leaves: LeafNumbers) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers or values; leaves (n,)."""
        if self.model.task == "regression":
            loss = (target.astype(np.float64) - decision[:, 0]) ** 2
        else:
            loss = (class_numbers(decision) != target).astype(np.float64)
        self.rows += np.bincount(leaves, minlength=len(self.rows))
        self.lost += np.bincount(leaves, weights=loss, minlength=len(self.rows))

    def as_dict(self) -> dict[str, Any]:
        """leaves: of each with rows, at most LISTED, its number, rows, training_rows and error: the share
        that is wrong, or the root of the mean squared error.
        """
        order = np.argsort(-self.rows, kind="stable")[:LISTED]
        order = np.sort(order[self.rows[order] > 0])
        error = self.lost[order] / self.rows[order]
        return {
            "leaves": {
                "leaf": order.tolist(),
                "rows": self.rows[order].tolist(),
                "training_rows": self.model.leaf_rows[order].tolist(),
                "error": (np.sqrt(error) if self.model.task == "regression" else error).tolist(),
            }
        }
