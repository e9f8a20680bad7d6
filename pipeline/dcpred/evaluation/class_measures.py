"""How well classes are told apart: confusion, recall, precision, areas under curves."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.evaluation.counted_values import CountedValues
from dcpred.evaluation.curves import Curves, curves
from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers

COUNTED = 2**20  # different decision values that are told apart, of all outputs together
MOST_COUNTED = 2**18  # the same of one output
CURVE_CLASSES = 256  # most classes whose curves are computed
PAIR_CLASSES = 1_024  # most classes of which it is counted which is taken for which
MATRIX_CLASSES = 100  # most classes whose matrix is told
LISTED_PAIRS = 50  # pairs of classes that are told
DRAWN_CLASSES = 12  # classes whose curves are told: those with the smallest areas


class ClassMeasures:
    """Gathered from rows piece by piece."""

    def __init__(self, model: Model) -> None:
        self.classes = model.classes
        n = len(model.classes)
        self.rows = np.zeros(n, np.int64)
        """Rows by their class."""
        self.predicted = np.zeros(n, np.int64)
        """Rows by the class that they are taken for."""
        self.right = np.zeros(n, np.int64)
        """Rows of a class that are taken for it."""
        self.confusion: IntArray | None = np.zeros((n, n), np.int64) if n <= PAIR_CLASSES else None
        """Rows by class, and by the class that they are taken for."""
        most = min(COUNTED // model.n_outputs, MOST_COUNTED)
        n_curves = model.n_outputs if n <= CURVE_CLASSES else 0
        self.scores = [CountedValues(2, most) for _ in range(n_curves)]

    def add(self, decision: Scores, target: NDArray[np.int64]) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers."""
        n, taken = len(self.classes), class_numbers(decision)
        self.rows += np.bincount(target, minlength=n)
        self.predicted += np.bincount(taken, minlength=n)
        self.right += np.bincount(target[taken == target], minlength=n)
        if self.confusion is not None:
            self.confusion += np.bincount(target * n + taken, minlength=n * n).reshape(n, n)
        for output, scores in enumerate(self.scores):
            positive = target == (1 if decision.shape[1] == 1 else output)
            scores.add(decision[:, output], positive.astype(np.int64))

    def as_dict(self) -> dict[str, Any]:
        """accuracy, balanced_accuracy, auc, average_precision, auc_resolution, classes, confusion_matrix (a
        line for each class, by the class that rows are taken for), confusions (the most frequent), curves.

        Of two classes the curves are of the second against the first. Of several each is held against all
        others, and `auc` and `average_precision` are the means over the classes that have rows.
        """
        found = [curves(scores) for scores in self.scores]
        known = [one for one in found if one is not None]
        recall = self.right[self.rows > 0] / self.rows[self.rows > 0]
        return {
            "accuracy": int(self.right.sum()) / int(self.rows.sum()),
            "balanced_accuracy": float(recall.mean()),
            "auc": float(np.mean([one.auc for one in known])) if known else None,
            "average_precision": float(np.mean([one.average_precision for one in known])) if known else None,
            "auc_resolution": max((scores.resolution for scores in self.scores), default=None),
            "classes": self._classes(found),
            "confusion_matrix": self._matrix(),
            "confusions": self._pairs(),
            "curves": self._curves(found),
        }

    def _classes(self, found: list[Curves | None]) -> list[dict[str, Any]]:
        areas = [None if one is None else one.auc for one in found]
        if len(areas) < len(self.classes):
            areas = [*areas * 2] if len(areas) == 1 else [None] * len(self.classes)
        return [
            {
                "class": name,
                "rows": int(rows),
                "predicted": int(predicted),
                "recall": int(right) / int(rows) if rows else None,
                "precision": int(right) / int(predicted) if predicted else None,
                "auc": area,
            }
            for name, rows, predicted, right, area in zip(
                self.classes, self.rows, self.predicted, self.right, areas, strict=True
            )
        ]

    def _matrix(self) -> list[list[int]] | None:
        if self.confusion is None or len(self.classes) > MATRIX_CLASSES:
            return None
        return [[int(n) for n in row] for row in self.confusion]

    def _pairs(self) -> list[dict[str, Any]] | None:
        if self.confusion is None:
            return None
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:LISTED_PAIRS]
        pairs = [divmod(int(at), len(self.classes)) for at in order if wrong.flat[at]]
        return [
            {"class": self.classes[i], "taken_for": self.classes[j], "rows": int(wrong[i, j])}
            for i, j in pairs
        ]

    def _curves(self, found: list[Curves | None]) -> list[dict[str, Any]]:
        """Of two classes one, else those of the classes that are told from the others the worst."""
        named = self.classes[1:] if len(found) == 1 else self.classes
        known = [(name, one) for name, one in zip(named, found, strict=bool(found)) if one is not None]
        worst = sorted(known, key=lambda item: item[1].auc)[:DRAWN_CLASSES]
        return [
            {"class": name, "auc": one.auc, "average_precision": one.average_precision, **one.as_dict()}
            for name, one in worst
        ]
