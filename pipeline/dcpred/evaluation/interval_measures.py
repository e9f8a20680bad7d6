"""How often numbers lie inside their intervals, and how wide these are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import LeafNumbers
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.sureness import DEFAULT_ALPHA, Intervals


class IntervalMeasures:
    """Gathered from rows piece by piece, of intervals of DEFAULT_ALPHA, where the model gives them."""

    def __init__(self, model: Model) -> None:
        self.n = self.inside = 0
        self.width = 0.0
        self.intervals = _given(model)

    def add(self, decision: Scores, target: NDArray[Any], leaves: LeafNumbers) -> None:
        """decision (n, 1), finite; target (n,); leaves (n,)."""
        if self.intervals is None:
            return
        bounds = self.intervals.bounds(decision[:, 0].astype(np.float64), leaves, DEFAULT_ALPHA)
        self.n += len(target)
        self.inside += int(((bounds[:, 0] <= target) & (target <= bounds[:, 1])).sum())
        self.width += float((bounds[:, 1] - bounds[:, 0]).sum())

    def as_dict(self) -> dict[str, Any]:
        """interval_alpha, interval_coverage (the share of rows inside) and interval_width, the mean one;
        nothing without rows.
        """
        if not self.n:
            return {}
        return {
            "interval_alpha": DEFAULT_ALPHA,
            "interval_coverage": self.inside / self.n,
            "interval_width": self.width / self.n,
        }


def _given(model: Model) -> Intervals | None:
    """The intervals of a model that gives some of DEFAULT_ALPHA; others were trained on too few rows."""
    found = None if model.sureness is None else model.sureness.intervals
    return found if found is not None and (found.alpha <= DEFAULT_ALPHA).any() else None
