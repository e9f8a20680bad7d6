"""Measures of decision values. Each is gathered from rows piece by piece, and merges with those of other
rows.

The curves of a class are the receiver operating characteristic and precision against recall (Fawcett 2006;
Davis and Goadrich 2006).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, LeafNumbers
from dcpred_tasks.evaluation.counts import LARGEST, CountedValues, ExactSums, as_float, quantiles, root
from dcpred_tasks.evaluation.named_scores import (
    MEAN_COST,
    check_score,
    named_score,
    score_costs,
    value_losses,
)
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.model.label_rule import Costs, label_rule
from dcpred_tasks.model.predictive_outputs import intervals, probabilities
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA

# -- Classes
COUNTED_SCORES = 2**20  # limit of distinct decision values, of all outputs together
MOST_COUNTED = 2**18  # the same of one output
CURVE_CLASSES = 256  # most classes whose curves are computed
PAIR_CLASSES = 1_024  # most classes with counts of pairs
MATRIX_CLASSES = 100  # most classes of a reported matrix
LISTED_PAIRS = 50  # reported pairs of classes
DRAWN_CLASSES = 12  # classes with reported curves: those with the smallest areas
POINTS = 101  # most points of a stored curve
# -- Probabilities
COUNTED_PROBABILITIES = 2**16
BINS = 15
FLAGGED = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # shares of rows, the likeliest ones
# -- Numbers
COUNTED_RESIDUALS = COUNTED_PREDICTIONS = 2**16
FINE, COARSE = 64, 12  # ranges of predictions for residuals, counted and reported
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
BAND = (0.05, 0.5, 0.95)  # quantiles of the residuals of a range of predictions
BARS = 40  # bars of the histogram of residuals, which reaches from quantile ENDS[0] to ENDS[1]
ENDS = (0.005, 0.995)
HALF = LARGEST / 2  # differences of numbers up to here do not overflow
# -- Leaves
LISTED_LEAVES = 500  # reported leaves: those with the most rows


class PredictedRows(Protocol):
    """Rows from `dcpred_tasks.scoring.labels.score_with_leaves`."""

    @property
    def decision(self) -> Scores: ...
    @property
    def leaf(self) -> LeafNumbers: ...
    @property
    def log_scale(self) -> FloatArray: ...


@dataclass(frozen=True)
class Curves:
    """Curves of a score that should be high for some rows and low for others, and the areas under them.

    Thresholds fall from the left to the right: the arrays begin where no row is predicted as positive.
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
    """1 where no row is predicted as positive."""

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


class ClassMeasures:
    """Confusion, recall, precision, areas under curves."""

    def __init__(self, model: Model) -> None:
        self.classes = model.classes
        n = len(model.classes)
        self.rows = np.zeros(n, np.int64)
        """Rows by their class."""
        self.predicted = np.zeros(n, np.int64)
        """Rows by predicted class."""
        self.right = np.zeros(n, np.int64)
        """Correctly predicted rows by class."""
        self.confusion: IntArray | None = np.zeros((n, n), np.int64) if n <= PAIR_CLASSES else None
        """Rows by class and predicted class."""
        most = min(COUNTED_SCORES // model.n_outputs, MOST_COUNTED)
        n_curves = model.n_outputs if n <= CURVE_CLASSES else 0
        self.scores = [CountedValues(2, most) for _ in range(n_curves)]

    def add(self, decision: Scores, target: NDArray[np.int64], taken: IntArray | None = None) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers; taken (n,), the class numbers of labels
        where these do not follow decision values.
        """
        n, taken = len(self.classes), class_numbers(decision) if taken is None else taken
        self.rows += np.bincount(target, minlength=n)
        self.predicted += np.bincount(taken, minlength=n)
        self.right += np.bincount(target[taken == target], minlength=n)
        if self.confusion is not None:
            self.confusion += np.bincount(target * n + taken, minlength=n * n).reshape(n, n)
        for output, scores in enumerate(self.scores):
            positive = target == (1 if decision.shape[1] == 1 else output)
            scores.add(decision[:, output], positive.astype(np.int64))

    def merge(self, other: "ClassMeasures") -> None:
        self.rows += other.rows
        self.predicted += other.predicted
        self.right += other.right
        if self.confusion is not None and other.confusion is not None:
            self.confusion += other.confusion
        for mine, its in zip(self.scores, other.scores, strict=True):
            mine.merge(its)

    def as_dict(self) -> dict[str, Any]:
        """Of two classes the curves are of the second against the first. Of several each is compared with all
        others, and `auc` and `average_precision` are the means over the classes that have rows.
        """
        each_curves = [curves(scores) for scores in self.scores]
        known = [curve for curve in each_curves if curve is not None]
        precisions = [curve.average_precision for curve in known]
        recall = self.right[self.rows > 0] / self.rows[self.rows > 0]
        met = self.rows + self.predicted > 0
        f1 = 2 * self.right[met] / (self.rows + self.predicted)[met]
        most = int(self.rows.argmax())
        return {
            "accuracy": int(self.right.sum()) / int(self.rows.sum()),
            "most_frequent_class": self.classes[most],
            "most_frequent_share": int(self.rows[most]) / int(self.rows.sum()),
            "balanced_accuracy": float(recall.mean()),
            "f1_macro": float(f1.mean()),
            "auc": float(np.mean([curve.auc for curve in known])) if known else None,
            "average_precision": float(np.mean(precisions)) if known else None,
            "auc_resolution": max((scores.resolution for scores in self.scores), default=None),
            "classes": self._classes(each_curves),
            "confusion_matrix": self._matrix(),
            "confusions": self._pairs(),
            "curves": self._curves(each_curves),
        }

    def cost(self, costs: Costs) -> dict[str, float]:
        """cost_per_row, the mean over rows; empty beyond PAIR_CLASSES classes."""
        if self.confusion is None:
            return {}
        return {"cost_per_row": float(self.confusion.ravel() @ np.array(costs)) / int(self.rows.sum())}

    def _classes(self, each_curves: list[Curves | None]) -> list[dict[str, Any]]:
        areas = [None if curve is None else curve.auc for curve in each_curves]
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

    def _curves(self, each_curves: list[Curves | None]) -> list[dict[str, Any]]:
        """One for two classes, else those of the classes with the smallest areas."""
        named = self.classes[1:] if len(each_curves) == 1 else self.classes
        known = [
            (name, curve)
            for name, curve in zip(named, each_curves, strict=bool(each_curves))
            if curve is not None
        ]
        worst = sorted(known, key=lambda item: item[1].auc)[:DRAWN_CLASSES]
        return [
            {"class": name, "auc": curve.auc, "average_precision": curve.average_precision, **curve.as_dict()}
            for name, curve in worst
        ]


def class_probabilities(model: Model, decision: Scores) -> NDArray[np.floating] | None:
    """The probabilities (n, n_classes) of rows with these decision values; None where a model has none."""
    calibrated = model.uncertainty is not None and model.uncertainty.calibration is not None
    return probabilities(model, decision) if calibrated else None


class ProbabilityMeasures:
    """How well probabilities are calibrated.

    log-loss           −Σ ln p(class of the row) / n, of probabilities from ε of their dtype on
    Brier score        Σ |p − class of the row|² / n over classes, of two classes half of it (Brier 1950)
    calibration error  Σ_b (n_b / n) |share of positive rows − mean probability| over 15 bins of about
                       equally many rows (expected calibration error; Naeini, Cooper and Hauskrecht 2015). Of
                       two classes the probability is that of the second, of several that of the predicted one
    """

    def __init__(self) -> None:
        self.n = 0
        self.loss, self.squares = ExactSums(), ExactSums()
        self.of_two = True
        self.stated = CountedValues(2, COUNTED_PROBABILITIES)
        """Probabilities of negative (kind 0) and of positive rows (kind 1)."""

    def add(self, probabilities: NDArray[np.floating], target: NDArray[np.int64]) -> None:
        """probabilities (n, n_classes), target (n,) class numbers."""
        of_target = probabilities[np.arange(len(target)), target]
        least = np.finfo(probabilities.dtype).eps
        self.n += len(target)
        p = probabilities.astype(np.float64)
        p[np.arange(len(target)), target] -= 1.0
        self.squares.add((p**2).sum(axis=1) / (2.0 if p.shape[1] == 2 else 1.0))
        self.loss.add(-np.log(np.clip(of_target, least, 1.0), dtype=np.float64))
        self.of_two = probabilities.shape[1] == 2
        if self.of_two:
            self.stated.add(probabilities[:, 1], target)
        else:
            taken = probabilities.argmax(axis=1)
            self.stated.add(probabilities.max(axis=1), (taken == target).astype(np.int64))

    def merge(self, other: "ProbabilityMeasures") -> None:
        self.of_two = other.of_two if other.n else self.of_two
        self.n += other.n
        self.loss.merge(other.loss)
        self.squares.merge(other.squares)
        self.stated.merge(other.stated)

    def as_dict(self) -> dict[str, Any]:
        values, counts = self.stated.values, self.stated.counts
        rows = counts.sum(axis=1)
        bins = np.minimum((np.cumsum(rows) - rows / 2) * BINS // self.n, BINS - 1).astype(int)
        n = np.bincount(bins, weights=rows, minlength=BINS)
        stated = np.bincount(bins, weights=values * rows, minlength=BINS)
        so = np.bincount(bins, weights=counts[:, 1], minlength=BINS)
        return {
            "log_loss": as_float(self.loss.total / self.n),
            "brier_score": as_float(self.squares.total / self.n),
            "calibration_error": float(np.abs(so - stated).sum() / self.n),
            "reliability": [
                {"rows": int(n[b]), "mean_probability": float(stated[b] / n[b]), "share": float(so[b] / n[b])}
                for b in np.flatnonzero(n)
            ],
            **({"thresholds": self._thresholds()} if self.of_two else {}),
        }

    def _thresholds(self) -> list[dict[str, Any]]:
        """Rows whose probability of the second class is at least a threshold: how many they
        are, precision, recall, and gain, precision as a multiple of the share that the class has of all rows.
        """
        counts = self.stated.counts[::-1]
        flagged, positive = np.cumsum(counts.sum(axis=1)), np.cumsum(counts[:, 1])
        if not positive[-1]:
            return []
        at = np.unique(np.minimum(np.searchsorted(flagged, np.multiply(FLAGGED, self.n)), len(flagged) - 1))
        return [
            {
                "threshold": float(self.stated.values[::-1][i]),
                "rows": int(flagged[i]),
                "precision": float(positive[i] / flagged[i]),
                "recall": float(positive[i] / positive[-1]),
                "gain": float(positive[i] / flagged[i] * self.n / positive[-1]),
            }
            for i in at
        ]


def difference(a: FloatArray, b: FloatArray | float) -> FloatArray:
    """a − b, at most the largest float64 in size."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(a - b, -LARGEST, LARGEST))


class ValueMeasures:
    """Errors of predicted numbers: R², mean errors, and the spread of residuals (target − prediction)."""

    def __init__(self, model: Model) -> None:
        self.n = 0
        self.squares, self.absolute = ExactSums(), ExactSums()
        self.total, self.square_total = Fraction(0), Fraction(0)
        """Sums of targets and of their squares, as rounded distances from one of the targets."""
        self.residuals = CountedValues(FINE, COUNTED_RESIDUALS)
        self.edges: FloatArray = np.empty(0)
        """(FINE − 1,) between the ranges of predictions."""
        self.predictions = ExactSums(FINE)
        self.in_range = np.zeros(FINE, np.int64)
        """Sum of the predictions of each range, and how many they are."""
        if model.bounds.size:  # else from the first rows
            self._set_edges(float(model.bounds.min()), float(model.bounds.max()))

    def _set_edges(self, low: float, high: float) -> None:
        self.edges = 2 * np.linspace(low / 2, high / 2, FINE + 1)[1:-1]

    def add(self, decision: Scores, target: NDArray[Any]) -> None:
        """decision (n, 1), finite; target (n,), finite."""
        if not len(target):
            return
        predicted, wanted = decision[:, 0].astype(np.float64), target.astype(np.float64)
        if not self.edges.size:
            self._set_edges(float(predicted.min()), float(predicted.max()))
        residual = difference(wanted, predicted)
        self.n += len(wanted)
        self.squares.add(residual, squared=True)
        self.absolute.add(np.abs(residual))
        self._add_targets(wanted)
        ranges = np.searchsorted(self.edges, predicted, side="right")
        self.residuals.add(residual, ranges)
        self.predictions.add(predicted, ranges)
        self.in_range += np.bincount(ranges, minlength=FINE)

    def _add_targets(self, wanted: FloatArray) -> None:
        """Add distances from one of the targets, which saves the precision of large, nearly equal targets."""
        origin = float(wanted[0]) if np.abs(wanted).max() < HALF else 0.0
        off, squares = ExactSums(), ExactSums()
        off.add(wanted - origin)
        squares.add(wanted - origin, squared=True)
        first, n = Fraction(origin), len(wanted)
        self.total += off.total + n * first
        self.square_total += squares.total + 2 * first * off.total + n * first**2

    def merge(self, other: "ValueMeasures") -> None:
        """Merge; both must count by the same ranges of predictions."""
        self.n += other.n
        self.squares.merge(other.squares)
        self.absolute.merge(other.absolute)
        self.total += other.total
        self.square_total += other.square_total
        self.residuals.merge(other.residuals)
        self.predictions.merge(other.predictions)
        self.in_range += other.in_range

    def as_dict(self) -> dict[str, Any]:
        spread = self.square_total - self.total**2 / self.n
        values, counts = self.residuals.values, self.residuals.counts.sum(axis=1)
        residuals = quantiles(values, counts, np.array(SHARES))
        size = np.abs(values)
        order = np.argsort(size, kind="stable")
        middle = np.searchsorted(np.cumsum(counts[order]), [(self.n + 1) // 2, self.n // 2 + 1])
        return {
            "rmse": root(self.squares.total / self.n),
            "r2": as_float(1 - self.squares.total / spread) if spread > 0 else None,
            "mae": as_float(self.absolute.total / self.n),
            "median_absolute_error": 2 * float((size[order][middle] / 2).mean()),
            "residual_quantiles": {f"{s:g}": float(q) for s, q in zip(SHARES, residuals, strict=True)},
            "residual_resolution": self.residuals.resolution,
            "residual_histogram": _histogram(values, counts),
            "residuals_by_prediction": self._by_prediction(),
        }

    def _by_prediction(self) -> list[dict[str, Any]]:
        """Ranges of predictions with about equal numbers of rows, merged from finer ones."""
        rows = self.in_range
        middle = np.cumsum(rows) - rows / 2
        group = np.minimum(middle * COARSE // self.n, COARSE - 1)
        ranges = []
        for number in range(COARSE):
            merged = np.flatnonzero((group == number) & (rows > 0))
            if not len(merged):
                continue
            n = int(rows[merged].sum())
            counts = self.residuals.counts[:, merged].sum(axis=1)
            low, median, high = quantiles(self.residuals.values, counts, np.array(BAND))
            ranges.append(
                {
                    "rows": n,
                    "mean_prediction": as_float(self.predictions.of(merged) / n),
                    "residuals": {"0.05": float(low), "0.5": float(median), "0.95": float(high)},
                }
            )
        return ranges


def _histogram(values: FloatArray, counts: NDArray[np.int64]) -> dict[str, Any]:
    """Rows by residual between two quantiles; those beyond count to the bars at the ends."""
    low, high = quantiles(values, counts, np.array(ENDS))
    if not high > low:
        return {"edges": [float(low), float(high)], "rows": [int(counts.sum())]}
    edges = 2 * np.linspace(low / 2, high / 2, BARS + 1)
    rows = np.bincount(np.searchsorted(edges[1:-1], values, side="right"), weights=counts, minlength=BARS)
    return {"edges": edges.tolist(), "rows": rows.astype(int).tolist()}


class IntervalMeasures:
    """How often numbers lie inside their intervals of DEFAULT_ALPHA, and the width of intervals. The Winkler
    score is the width, plus 2 / alpha of the distance of a number outside; less is better.
    """

    def __init__(self) -> None:
        self.n = 0
        self.width, self.outside = ExactSums(), ExactSums()
        self.inside = CountedValues(2, COUNTED_PREDICTIONS)
        """Predictions of rows outside (kind 0) and inside (kind 1)."""

    def add(self, model: Model, rows: PredictedRows, target: FloatArray) -> None:
        value = rows.decision[:, 0].astype(np.float64)
        low, high = intervals(model, value, rows.leaf, rows.log_scale, DEFAULT_ALPHA).T
        self.n += len(target)
        self.inside.add(value, ((low <= target) & (target <= high)).astype(np.int64))
        self.width.add(difference(high, low))
        beyond = np.maximum(difference(low, target), difference(target, high))
        self.outside.add(np.maximum(beyond, 0.0))

    def merge(self, other: "IntervalMeasures") -> None:
        self.n += other.n
        self.inside.merge(other.inside)
        self.width.merge(other.width)
        self.outside.merge(other.outside)

    def as_dict(self) -> dict[str, Any]:
        """Rows of one prediction are in one quarter."""
        alpha = Fraction(DEFAULT_ALPHA)
        return {
            "interval_alpha": DEFAULT_ALPHA,
            "interval_coverage": int(self.inside.counts[:, 1].sum()) / self.n,
            "interval_width": as_float(self.width.total / self.n),
            "interval_winkler": as_float((self.width.total + 2 / alpha * self.outside.total) / self.n),
            "interval_quarters": self._quarters(),
        }

    def _quarters(self) -> list[dict[str, Any]]:
        values, counts = self.inside.values, self.inside.counts
        rows = counts.sum(axis=1)
        quarter = np.minimum((np.cumsum(rows) - rows / 2) * 4 // self.n, 3)
        parts = [np.flatnonzero(quarter == number) for number in range(4)]
        return [
            {
                "rows": int(rows[part].sum()),
                "least_prediction": float(values[part[0]]),
                "largest_prediction": float(values[part[-1]]),
                "coverage": int(counts[part, 1].sum()) / int(rows[part].sum()),
            }
            for part in parts
            if len(part)
        ]


def gives_intervals(model: Model) -> bool:
    """Whether a model has intervals of DEFAULT_ALPHA; others were trained on too few rows."""
    known = None if model.uncertainty is None else model.uncertainty.intervals
    return known is not None and bool((known.alpha <= DEFAULT_ALPHA).any())


class LeafMeasures:
    """Error rates, or mean errors, of leaves."""

    def __init__(self, model: Model) -> None:
        self.training_rows = model.leaf_rows
        self.rows = np.zeros(model.n_leaves, np.int64)
        self.wrong = np.zeros(model.n_leaves, np.int64)
        self.squares = ExactSums(model.n_leaves if model.task == "regression" else 0)
        """Sum of squared errors of each leaf, of a regression."""

    def add(
        self, decision: Scores, target: NDArray[Any], leaves: LeafNumbers, taken: IntArray | None = None
    ) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers or values; leaves (n,)."""
        self.rows += np.bincount(leaves, minlength=len(self.rows))
        if self.squares.units:
            residual = difference(target.astype(np.float64), decision[:, 0].astype(np.float64))
            self.squares.add(residual, leaves, squared=True)
        else:
            wrong = (class_numbers(decision) if taken is None else taken) != target
            self.wrong += np.bincount(leaves[wrong], minlength=len(self.rows))

    def merge(self, other: "LeafMeasures") -> None:
        self.rows += other.rows
        self.wrong += other.wrong
        self.squares.merge(other.squares)

    def as_dict(self) -> dict[str, Any]:
        """Figures of each leaf with rows, at most LISTED_LEAVES."""
        order = np.argsort(-self.rows, kind="stable")[:LISTED_LEAVES]
        order = np.sort(order[self.rows[order] > 0])
        if self.squares.units:
            error = [root(self.squares.of([leaf]) / int(self.rows[leaf])) for leaf in order]
        else:
            error = (self.wrong[order] / self.rows[order]).tolist()
        return {
            "leaves": {
                "leaf": order.tolist(),
                "rows": self.rows[order].tolist(),
                "training_rows": self.training_rows[order].tolist(),
                "error": error,
            }
        }


class Measures:
    """All measures of one set of decision values, without the model: workers send them to the driver."""

    def __init__(self, model: Model, costs: Costs | None = None, metric: str | None = None) -> None:
        """costs   of labels (dcpred_tasks.model.label_rule); None: labels follow decision values
        metric  of dcpred_tasks.evaluation.named_scores, an extra field; None: without it
        """
        label_rule(model, costs)
        self.metric, self.losses = metric, ExactSums()
        if metric is not None and check_score(metric, model.task) == MEAN_COST:
            label_rule(model, score_costs(metric))
        self.n = 0
        """Rows that have a score."""
        self.costs = costs
        self.quality: ClassMeasures | ValueMeasures = (
            ClassMeasures(model) if model.task == "classification" else ValueMeasures(model)
        )
        self.leaves = LeafMeasures(model)
        self.probabilities = ProbabilityMeasures()
        self.intervals = IntervalMeasures()

    def add(
        self, model: Model, decision: Scores, target: NDArray[Any], rows: PredictedRows | None = None
    ) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers or values; rows, with this decision,
        where their leaves are known.
        """
        self.n += len(target)
        taken = None
        if isinstance(self.quality, ClassMeasures):
            taken = label_rule(model, self.costs)(decision)
            self.quality.add(decision, target, taken)
        else:
            self.quality.add(decision, target)
            losses = value_losses(self.metric or "")
            if losses is not None:
                self.losses.add(losses(decision[:, 0].astype(np.float64), target.astype(np.float64)))
        if rows is not None:
            self.leaves.add(decision, target, rows.leaf, taken)
            if gives_intervals(model):
                self.intervals.add(model, rows, target.astype(np.float64))
        if model.task == "classification":
            stated = class_probabilities(model, decision)
            if stated is not None:
                self.probabilities.add(stated, target)

    def merge(self, other: "Measures") -> None:
        """Merge the measures of other rows, in any order."""
        self.n += other.n
        self.losses.merge(other.losses)
        self.quality.merge(other.quality)  # type: ignore[arg-type]  # both are of one model
        self.leaves.merge(other.leaves)
        self.probabilities.merge(other.probabilities)
        self.intervals.merge(other.intervals)

    def as_dict(self) -> dict[str, Any]:
        """The figures of all measures, as `dcpred.evaluation.figures` describes them."""
        figures = self.quality.as_dict()
        if self.costs is not None and isinstance(self.quality, ClassMeasures):
            figures |= {"costs": list(self.costs), **self.quality.cost(self.costs)}
        figures |= self.probabilities.as_dict() if self.probabilities.n else {}
        figures |= self.intervals.as_dict() if self.intervals.n else {}
        figures |= self.leaves.as_dict() if self.leaves.rows.any() else {}
        if self.metric is None:
            return figures
        return figures | {"metric": self.metric, "score": self._score(figures)}

    def _score(self, figures: dict[str, Any]) -> float | None:
        """The value of `metric`."""
        assert self.metric is not None
        mean = None
        if isinstance(self.quality, ClassMeasures):
            if self.metric.startswith(MEAN_COST):
                mean = self.quality.cost(score_costs(self.metric)).get("cost_per_row")
        elif value_losses(self.metric) is not None:
            mean = as_float(self.losses.total / self.n)
        return named_score(self.metric, figures, mean)
