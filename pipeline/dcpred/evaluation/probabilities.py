"""How far probabilities can be believed: log-loss, and how often what has a probability is so.

log-loss           −Σ ln p(class of the row) / n, of probabilities from ε of their dtype on
calibration error  Σ_b (n_b / n) |share of rows that are so − mean probability| over 15 bins of about equally
                   many rows (expected calibration error; Naeini, Cooper and Hauskrecht 2015). Of two classes
                   the probability is that of the second, of several that of the class that is predicted.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.evaluation.counted_values import CountedValues
from dcpred_tasks.model.answers import probabilities
from dcpred_tasks.model.compact_model import Model, Scores

COUNTED = 2**16  # different probabilities that are told apart
BINS = 15


def class_probabilities(model: Model, decision: Scores) -> NDArray[np.floating] | None:
    """The probabilities (n, n_classes) of rows with these decision values; None where a model gives none."""
    calibrated = model.sureness is not None and model.sureness.calibration is not None
    return probabilities(model, decision) if calibrated else None


class ProbabilityMeasures:
    """Gathered from rows piece by piece."""

    def __init__(self) -> None:
        self.n = 0
        self.loss = 0.0
        self.stated = CountedValues(2, COUNTED)
        """Probabilities of what is not so (kind 0) and of what is (kind 1)."""

    def add(self, probabilities: NDArray[np.floating], target: NDArray[np.int64]) -> None:
        """probabilities (n, n_classes), target (n,) class numbers."""
        own = probabilities[np.arange(len(target)), target]
        least = np.finfo(probabilities.dtype).eps
        self.n += len(target)
        self.loss -= float(np.log(np.clip(own, least, 1.0), dtype=np.float64).sum())
        if probabilities.shape[1] == 2:
            self.stated.add(probabilities[:, 1], target)
        else:
            taken = probabilities.argmax(axis=1)
            self.stated.add(probabilities.max(axis=1), (taken == target).astype(np.int64))

    def as_dict(self) -> dict[str, Any]:
        """log_loss, calibration_error and reliability: of each bin rows, mean_probability and share."""
        values, counts = self.stated.values, self.stated.counts
        rows = counts.sum(axis=1)
        bins = np.minimum((np.cumsum(rows) - rows / 2) * BINS // self.n, BINS - 1).astype(int)
        n = np.bincount(bins, weights=rows, minlength=BINS)
        stated = np.bincount(bins, weights=values * rows, minlength=BINS)
        so = np.bincount(bins, weights=counts[:, 1], minlength=BINS)
        told = np.flatnonzero(n)
        return {
            "log_loss": self.loss / self.n,
            "calibration_error": float(np.abs(so - stated).sum() / self.n),
            "reliability": [
                {
                    "rows": int(n[b]),
                    "mean_probability": float(stated[b] / n[b]),
                    "share": float(so[b] / n[b]),
                }
                for b in told
            ],
        }
