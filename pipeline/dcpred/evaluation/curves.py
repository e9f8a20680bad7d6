"""Curves of a score that is to be high for some rows and low for others, and the areas under them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dcpred.evaluation.counted_values import CountedValues
from dcpred_tasks.dtypes import FloatArray

POINTS = 101  # most points of a curve that is kept


@dataclass(frozen=True)
class Curves:
    """Receiver operating characteristic and precision against recall (Fawcett 2006; Davis and Goadrich 2006).

    Thresholds fall from the left to the right: the arrays begin where no row is taken for a positive one.
    """

    auc: float
    """The share of pairs of a positive and a negative row in which the positive has the larger score; equal
    scores count half.
    """
    average_precision: float
    """Σ (R_i − R_{i−1}) P_i over all thresholds."""
    false_positive_rate: FloatArray
    recall: FloatArray
    precision: FloatArray
    """1 where no row is taken for a positive one."""

    def as_dict(self) -> dict[str, Any]:
        """At most POINTS points of each curve."""
        roc = _few(self.false_positive_rate + self.recall)
        pr = _few(self.recall + (1.0 - self.precision))
        return {
            "roc": {"x": _listed(self.false_positive_rate[roc]), "y": _listed(self.recall[roc])},
            "precision_recall": {"x": _listed(self.recall[pr]), "y": _listed(self.precision[pr])},
        }


def curves(scores: CountedValues) -> Curves | None:
    """The curves of scores of negative rows (kind 0) and positive ones (kind 1); None where one is absent."""
    negative, positive = scores.counts[::-1].T
    n, p = int(negative.sum()), int(positive.sum())
    if n == 0 or p == 0:
        return None
    false, true = np.cumsum(negative), np.cumsum(positive)
    below = n - false  # negative rows with a smaller score
    auc = float((positive * (below + 0.5 * negative)).sum() / (p * n))
    precision = true / (true + false)
    return Curves(
        auc=auc,
        average_precision=float((positive * precision).sum() / p),
        false_positive_rate=np.concatenate([[0.0], false / n]),
        recall=np.concatenate([[0.0], true / p]),
        precision=np.concatenate([[1.0], precision]),
    )


def _few(way: FloatArray) -> Any:
    """Numbers of points that lie about evenly along a curve, the first and the last among them."""
    if len(way) <= POINTS:
        return slice(None)
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(way)))])
    at = np.searchsorted(length, np.linspace(0.0, length[-1], POINTS))
    return np.unique(np.append(at.clip(max=len(way) - 1), [0, len(way) - 1]))


def _listed(values: FloatArray) -> list[float]:
    return [round(float(value), 5) for value in values]
