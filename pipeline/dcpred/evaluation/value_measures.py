"""How far predicted numbers are off: R², errors, and the spread of residuals (target − prediction)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.evaluation.counted_values import CountedValues, quantiles
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.compact_model import Model, Scores

COUNTED = 2**16  # different residuals that are told apart
FINE, COARSE = 64, 12  # ranges of predictions that residuals are counted by, and that they are told by
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
BAND = (0.05, 0.5, 0.95)  # quantiles of the residuals of a range of predictions
BARS = 40  # bars of the histogram of residuals, which reaches from quantile ENDS[0] to ENDS[1]
ENDS = (0.005, 0.995)


class ValueMeasures:
    """Gathered from rows piece by piece. Sums of targets are taken about the first value."""

    def __init__(self, model: Model) -> None:
        self.n = 0
        self.squares = self.absolute = 0.0
        self.origin = self.total = self.spread = 0.0
        self.residuals = CountedValues(FINE, COUNTED)
        self.edges: FloatArray = np.empty(0)
        """(FINE − 1,) between the ranges of predictions."""
        self.predictions = np.zeros((FINE, 2))
        """Sum of the predictions of each range, and how many they are."""
        if model.bounds.size:
            self._set_edges(float(model.bounds.min()), float(model.bounds.max()))

    def _set_edges(self, low: float, high: float) -> None:
        with np.errstate(over="ignore"):
            self.edges = np.linspace(low, high, FINE + 1)[1:-1]

    def add(self, decision: Scores, target: NDArray[Any]) -> None:
        """decision (n, 1), finite; target (n,)."""
        if not len(target):
            return
        predicted, wanted = decision[:, 0].astype(np.float64), target.astype(np.float64)
        if self.n == 0:
            self.origin = float(wanted[0])
        if not self.edges.size:
            self._set_edges(float(predicted.min()), float(predicted.max()))
        residual, off = wanted - predicted, wanted - self.origin
        self.n += len(off)
        self.squares += float((residual**2).sum())
        self.absolute += float(np.abs(residual).sum())
        self.total += float(off.sum())
        self.spread += float((off**2).sum())
        ranges = np.searchsorted(self.edges, predicted, side="right")
        self.residuals.add(residual, ranges)
        self.predictions[:, 0] += np.bincount(ranges, weights=predicted, minlength=FINE)
        self.predictions[:, 1] += np.bincount(ranges, minlength=FINE)

    def as_dict(self) -> dict[str, Any]:
        """rmse, r2, mae, residual_quantiles by share, residual_resolution, residual_histogram and
        residuals_by_prediction.
        """
        spread = self.spread - self.total**2 / max(self.n, 1)
        values, counts = self.residuals.values, self.residuals.counts.sum(axis=1)
        told = quantiles(values, counts, np.array(SHARES))
        return {
            "rmse": float(np.sqrt(self.squares / self.n)),
            "r2": 1.0 - self.squares / spread if spread > 0 else None,
            "mae": self.absolute / self.n,
            "residual_quantiles": {f"{s:g}": float(q) for s, q in zip(SHARES, told, strict=True)},
            "residual_resolution": self.residuals.resolution,
            "residual_histogram": _histogram(values, counts),
            "residuals_by_prediction": self._by_prediction(),
        }

    def _by_prediction(self) -> list[dict[str, Any]]:
        """Ranges of predictions of about equal numbers of rows, put together of finer ones."""
        rows = self.predictions[:, 1]
        middle = np.cumsum(rows) - rows / 2
        group = np.minimum(middle * COARSE // self.n, COARSE - 1)
        told = []
        for number in range(COARSE):
            own = (group == number) & (rows > 0)
            if not own.any():
                continue
            counts = self.residuals.counts[:, own].sum(axis=1)
            low, median, high = quantiles(self.residuals.values, counts, np.array(BAND))
            told.append(
                {
                    "rows": int(rows[own].sum()),
                    "mean_prediction": float(self.predictions[own, 0].sum() / rows[own].sum()),
                    "residuals": {"0.05": float(low), "0.5": float(median), "0.95": float(high)},
                }
            )
        return told


def _histogram(values: FloatArray, counts: NDArray[np.int64]) -> dict[str, Any]:
    """Rows by residual between two quantiles; those beyond count to the bars at the ends."""
    low, high = quantiles(values, counts, np.array(ENDS))
    if not high > low:
        return {"edges": [float(low), float(high)], "rows": [int(counts.sum())]}
    edges = np.linspace(low, high, BARS + 1)
    rows = np.bincount(np.searchsorted(edges[1:-1], values, side="right"), weights=counts, minlength=BARS)
    return {"edges": edges.tolist(), "rows": rows.astype(int).tolist()}
