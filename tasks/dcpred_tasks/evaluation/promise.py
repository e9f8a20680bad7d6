"""Whether targets agree with predictions as much as the model expects of itself.

A calibrated model states how probable each class of a row is, and intervals that hold a share of the targets.
Far less agreement has a cause: targets of other rows, swapped classes, another unit or sign.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.evaluation.measures import PredictedRows, class_probabilities
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.remarks import Remark, remark

FEWEST, SURE, GAP, COVERAGE_GAP = 50, 6.0, 0.10, 0.20  # rows, standard errors, and points
N_SUMS = 10


class Promise:
    """Sums over rows: of classes n, the probability of labels, its variance, and agreement with the target,
    with that of the row before and after; of numbers n and the sums of their correlations.
    """

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros(N_SUMS)

    def add(self, model: Model, rows: PredictedRows, target: NDArray[Any]) -> None:
        """Consecutive rows with a score, and their targets: class numbers or values."""
        decision = rows.decision
        if not len(target):
            return
        if model.task == "classification":
            self._add_classes(class_probabilities(model, decision), class_numbers(decision), target)
        else:
            self._add_values(decision[:, 0].astype(ACC_DTYPE), target.astype(ACC_DTYPE))

    def _add_classes(self, stated: NDArray[Any] | None, label: NDArray[Any], target: NDArray[Any]) -> None:
        if stated is None:
            return
        top = stated[np.arange(len(label)), label]
        shifted = (label[1:] == target[:-1]).sum(), (label[:-1] == target[1:]).sum()
        sums = len(label), top.sum(), (top * (1 - top)).sum(), (label == target).sum(), *shifted
        self.sums[: len(sums)] += sums

    def _add_values(self, value: FloatArray, target: FloatArray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            moments = [value.sum(), target.sum(), value @ value, target @ target, value @ target]
            shifted = [value[1:] @ target[:-1], value[:-1] @ target[1:]]
            self.sums[: len(moments) + 4] += np.array([len(value), *moments, len(value) - 1, *shifted])

    def merge(self, other: "Promise") -> None:
        self.sums += other.sums

    def remark(self, figures: dict[str, Any]) -> Remark | None:
        """A remark on an evaluation with these figures, if its targets agree too little."""
        is_classes = figures.get("task") == "classification"
        return self._of_classes(figures) if is_classes else self._of_values(figures)

    def _of_classes(self, figures: dict[str, Any]) -> Remark | None:
        n, expected, variance, right, before, after, *_ = self.sums.tolist()
        if n < FEWEST:
            return None
        share, gap = figures["most_frequent_share"], (expected - right) / n
        if gap <= GAP or expected - right <= SURE * max(np.sqrt(variance), 1.0):
            return None
        causes = {"they look shifted by one row": max(before, after) / n}
        if len(figures.get("classes", ())) == 2:
            causes["the two classes look swapped"] = 1 - right / n
        best = max(causes, key=lambda cause: causes[cause])
        why = ""
        if causes[best] > max(expected / n, share) - GAP / 2 and causes[best] > share + GAP / 2:
            why = f": {best}"
        elif right / n <= share + 2 * np.sqrt(share * (1 - share) / n):
            why = ": predictions are no better than the most frequent class"
        what = f"{100 * right / n:.3g} % of the targets are the predicted label, the model expects"
        return remark("wrong-targets", f"{what} {100 * expected / n:.3g} %{why}", file=figures["data"])

    def _of_values(self, figures: dict[str, Any]) -> Remark | None:
        n, coverage, alpha = (
            self.sums[0],
            figures.get("interval_coverage"),
            figures.get("interval_alpha", 0.1),
        )
        if n < FEWEST or coverage is None:
            return None
        gap = 1 - alpha - coverage
        if gap <= COVERAGE_GAP or gap <= SURE * np.sqrt(alpha * (1 - alpha) / n):
            return None
        what = f"{100 * coverage:.3g} % of the targets lie inside their interval, the model expects"
        return remark(
            "wrong-targets", f"{what} {100 * (1 - alpha):.3g} %{self._cause()}", file=figures["data"]
        )

    def _cause(self) -> str:
        """The cause in words, by correlations of predictions and targets."""
        n, p, y, pp, yy, py, pairs, before, after, _ = self.sums.tolist()
        with np.errstate(all="ignore"):
            spread = (pp / n - (p / n) ** 2) * (yy / n - (y / n) ** 2)
            if not spread > 0:
                return ""
            same = (py / n - p * y / n**2) / np.sqrt(spread)
            shifted = max((each / pairs - p * y / n**2) / np.sqrt(spread) for each in (before, after))
            slope = (py / n - p * y / n**2) / (pp / n - (p / n) ** 2)
            squares = (pp - 2 * py + yy) / n / (yy / n - (y / n) ** 2)
        if shifted > max(same, 0) + 0.3:
            return ": they look shifted by one row"
        if same > 0.5 and not 0.67 < slope < 1.5:
            return f": they are about {slope:.3g} times the predictions"
        if same < -0.5:
            return ": they have the other sign or order"
        return ": predictions are worse than the mean of these targets" if squares >= 1 else ""
