"""Metrics of a search: a loss of each held-out row, and one that breaks ties.

The default metrics are means over rows. Any other scorer of scikit-learn, for example the area under a curve,
is a function of all rows together. Each row then gets a pseudo-value, by the jackknife that omits a group of
rows at a time (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 11): one paired test
serves all metrics.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.evaluation.named_scores import (
    BY_NAME,
    MEAN_COST,
    ValueLosses,
    check_score,
    score_costs,
    value_losses,
)
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.model.label_rule import Costs
from dcpred_tasks.training.calibration import fit_calibration

Losses = Callable[[FloatArray, FloatArray, FloatArray, int], FloatArray]
Scorer = Callable[..., float]
"""As `make_scorer` of scikit-learn returns it: (estimator, X, y, sample_weight=…)."""
LEAST_SHARE = 1e-3  # A deviance needs predictions above 0, which not every candidate gives all rows.
GROUPS = 20  # Groups of rows that a jackknife omits, one at a time.


@dataclass(frozen=True)
class Metric:
    """A loss of each held-out row from decision values, targets, weights and the number of classes."""

    name: str
    """Its field in reports."""
    losses: Losses
    score: Callable[[float], float]
    """The name of the mean loss for users."""
    counted: bool = False
    """Whether a row is either right or wrong: the test is then McNemar's."""


def errors(decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """1 for a wrong class, 0 for the right one."""
    wrong = class_numbers(decision) != target
    return np.asarray(wrong | np.isnan(decision).any(axis=1), np.float64)


def log_losses(decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """−log of the probability of the class, by probabilities calibrated on these rows: candidates are
    compared by their ranking of rows, and a model is calibrated when it is trained.
    """
    number: IntArray = target.astype(np.int64)
    # Rows without a score are equally far from all classes.
    p = _calibrated(np.nan_to_num(decision), number, weight, n_classes)
    return np.asarray(-np.log(np.maximum(p[np.arange(len(p)), number], 1e-12)))


def _calibrated(decision: FloatArray, number: IntArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """Probabilities (n, n_classes), calibrated on the same rows."""
    calibration, offset = fit_calibration(decision, number, weight, n_classes)
    return np.asarray(calibration.free(calibration.scores(decision - offset)))


def squared_errors(
    decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int
) -> FloatArray:
    return np.asarray((decision[:, 0] - target) ** 2)


def _costs_of_rows(
    costs: Costs, decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int
) -> FloatArray:
    """Costs of the labels with the least expected cost by probabilities calibrated on these rows."""
    matrix = np.array(costs).reshape(math.isqrt(len(costs)), -1)
    if len(matrix) != n_classes:
        raise SettingsError(
            f"Cannot compute {MEAN_COST}: it has costs of {len(matrix):,} classes, but the target has"
            f" {n_classes:,}. Give a line and a column for each class."
        )
    number: IntArray = target.astype(np.int64)
    p = _calibrated(np.nan_to_num(decision), number, weight, n_classes)
    return np.asarray(matrix[number, (p @ matrix).argmin(axis=1)])


def _least_share(name: str) -> float:
    return LEAST_SHARE if BY_NAME[name].is_deviance else 0.0


def _losses_of_values(
    losses: ValueLosses,
    least_share: float,
    decision: FloatArray,
    target: FloatArray,
    weight: FloatArray,
    n_classes: int,
) -> FloatArray:
    """Predictions are raised to `least_share` of the mean target, where that is not 0."""
    predicted = decision[:, 0].astype(np.float64)
    if least_share:
        predicted = np.maximum(predicted, least_share * float(np.average(target, weights=weight)))
    return losses(predicted, target)


ERROR = Metric("accuracy", errors, lambda loss: 1.0 - loss, counted=True)
LOG_LOSS = Metric("log_loss", log_losses, lambda loss: loss)
SQUARED = Metric("rmse", squared_errors, lambda loss: float(np.sqrt(loss)))
OF_ROWS = {
    "accuracy": ERROR,
    "neg_log_loss": LOG_LOSS,
    **dict.fromkeys(("r2", "neg_mean_squared_error", "neg_root_mean_squared_error"), SQUARED),
}
"""Metrics that are means over rows, by the names of scikit-learn's scorers; all three of regression rank
candidates alike.
"""


def metric_of(given: str | Scorer, task: str, n_classes: int) -> Metric:
    """The metric of a scorer of scikit-learn, or of its name. Raises SettingsError for another name."""
    if callable(given):
        name = getattr(getattr(given, "_score_func", given), "__name__", "score")
        name = f"neg_{name}" if getattr(given, "_sign", 1) < 0 else f"{name.removesuffix('_score')}_score"
        return _of_scorer(name, given, task)
    plain = check_score(given, task)
    if plain in OF_ROWS:
        return OF_ROWS[plain]
    if plain == MEAN_COST:
        return Metric("mean_cost", partial(_costs_of_rows, score_costs(given)), lambda loss: loss)
    if (losses := value_losses(given)) is not None:
        return Metric(
            plain.removeprefix("neg_"),
            partial(_losses_of_values, losses, _least_share(plain)),
            lambda loss: loss,
        )
    name = f"{given}_ovr" if given == "roc_auc" and n_classes > 2 else given
    return _of_scorer(given.removeprefix("neg_"), get_scorer(name), task, given.startswith("neg_"))


def check_held_classes(
    metric: Metric,
    target: FloatArray | IntArray,
    held: NDArray[np.bool_],
    weight: FloatArray,
    n_classes: int,
    fold: str,
) -> None:
    """Raise SettingsError for a metric without a value if all held-out rows of a fold have one class."""
    held_target = target[held].astype(np.float64)
    if n_classes < 2 or not len(held_target) or (held_target != held_target[0]).any():
        return
    try:
        decision = np.zeros((len(held_target), n_classes if n_classes > 2 else 1))
        metric.losses(decision, held_target, weight[held], n_classes)
    except SettingsError as error:
        n_rare = int(np.unique(target, return_counts=True)[1].min())
        raise SettingsError(
            f"Cannot compute {metric.name}: the {len(held_target):,} held-out rows of fold {fold} have one"
            f" class (of {len(target):,} rows {n_rare:,} have the rarest one). Choose another metric, for"
            " example accuracy or neg_log_loss."
        ) from error


def label_score(given: str, target: FloatArray | IntArray, predicted: FloatArray | IntArray) -> float:
    """The score of predicted class numbers or values. Greater is better."""
    plain = given.partition("=")[0]
    if plain == MEAN_COST:
        costs = score_costs(given)
        n = math.isqrt(len(costs))
        if max(target.max(), predicted.max()) >= n:
            raise SettingsError(
                f"Cannot compute {MEAN_COST}: the target has more than its {n:,} classes. Add them."
            )
        return -float(np.array(costs).reshape(n, n)[target.astype(int), predicted.astype(int)].mean())
    if (losses := value_losses(given)) is not None:
        values, wanted = np.asarray(predicted, np.float64)[:, None], np.asarray(target, np.float64)
        given_losses = losses, _least_share(plain), values, wanted, np.ones(len(wanted)), 0
        return -float(_losses_of_values(*given_losses).mean())
    scorer = get_scorer(plain)
    return float(scorer._sign * scorer._score_func(target, predicted, **scorer._kwargs))


def _of_scorer(name: str, scorer: Scorer, task: str, negated: bool = False) -> Metric:
    sign = 1.0 if negated else -1.0
    return Metric(name, partial(_pseudo_losses, scorer, task), lambda loss: sign * loss)


class _Known:
    """An estimator with known predictions of held-out rows. X holds numbers of these rows."""

    def __init__(self, decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int) -> None:
        self.known = np.nan_to_num(decision), target, weight, n_classes
        self.classes_ = np.arange(n_classes)


class _KnownClasses(ClassifierMixin, _Known, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    def look_at(self, target: IntArray) -> None:
        """Keep only the classes of these rows: scikit-learn refuses a column of an absent one."""
        present = np.unique(target)
        if self.known[3] > 2 and len(present) > 1:
            self.classes_ = present

    def predict(self, X: IntArray) -> IntArray:
        return np.asarray(class_numbers(self.known[0])[X])

    def decision_function(self, X: IntArray) -> FloatArray:
        decision = self.known[0][X]
        if decision.shape[1] == 1:
            return decision[:, 0]
        decision = decision[:, self.classes_]
        return decision[:, 1] - decision[:, 0] if len(self.classes_) == 2 else decision

    def predict_proba(self, X: IntArray) -> FloatArray:
        p = self.probability[X][:, self.classes_]
        return p if len(self.classes_) == self.known[3] else p / p.sum(axis=1, keepdims=True)

    @cached_property
    def probability(self) -> FloatArray:
        decision, target, weight, n_classes = self.known
        return _calibrated(decision, target.astype(np.int64), weight, n_classes)


class _KnownNumbers(RegressorMixin, _Known, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    def predict(self, X: IntArray) -> FloatArray:
        return np.asarray(self.known[0][X, 0])


def _pseudo_losses(
    scorer: Scorer, task: str, decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int
) -> FloatArray:
    """Pseudo-values of −score. Their mean is −score, and the error of their mean that of the jackknife.

    Raises SettingsError if these rows have no score.
    """
    given = decision, target, weight, n_classes
    known: Any = _KnownNumbers(*given) if task == "regression" else _KnownClasses(*given)
    target = target.astype(np.int64) if task == "classification" else target
    n = len(target)
    group = np.arange(n) % min(GROUPS, n)

    def loss(rows: IntArray) -> float:
        if task == "classification":
            known.look_at(target[rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A class may be absent among so few rows.
            try:
                return -float(scorer(known, rows, target[rows], sample_weight=weight[rows]))
            except (TypeError, ValueError) as error:
                raise SettingsError(
                    f"Cannot compute the metric on held-out rows: {str(error).splitlines()[0]}. Choose"
                    " another one, by its name or by make_scorer of sklearn.metrics."
                ) from error

    whole = loss(np.arange(n))
    if not np.isfinite(whole):
        raise SettingsError(
            f"Cannot use the metric: it is {-whole} on {n:,} held-out rows, perhaps because all have one"
            " class. Choose another one, for example accuracy or neg_log_loss."
            if task == "classification"
            else f"Cannot use the metric: it is {-whole} on {n:,} held-out rows. Choose another one."
        )
    without = np.array([loss(np.flatnonzero(group != left_out)) for left_out in range(group.max() + 1)])
    without[~np.isfinite(without)] = whole  # The only row of a class is in that group.
    g = len(without)
    pseudo = g * whole - (g - 1) * without
    # Rows of a group are equal: their spread is that of the mean of n independent rows.
    spread = np.sqrt(n / max(g - 1, 1)) * (pseudo - pseudo.mean())
    losses = spread[group]
    return np.asarray(whole + losses - np.average(losses, weights=weight))


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of a candidate with an incumbent."""

    gain: float
    """By how much its mean loss is less."""
    standard_error: float
    """Standard error of the gain."""
    p: float
    """Probability of this gain, or a larger one, if both are equally good."""


def compare(incumbent: FloatArray, candidate: FloatArray, weight: FloatArray, *, counted: bool) -> Comparison:
    """The one-sided paired test: McNemar's with Edwards' correction if rows are right or wrong, else
    Student's t with the tail of the normal distribution. Only rows with a loss of both count.
    """
    seen = ~np.isnan(incumbent) & ~np.isnan(candidate)
    incumbent, candidate, weight = incumbent[seen], candidate[seen], weight[seen]
    share = weight / weight.sum()
    difference = incumbent - candidate
    gain = float(share @ difference)
    if counted:
        spread = float(np.sqrt((share * difference) ** 2 @ np.ones(len(share))))
        z = (gain - float(share.max())) / spread if spread else 0.0
    else:
        spread = float(np.sqrt(share**2 @ (difference - gain) ** 2))
        z = gain / spread if spread else 0.0
    return Comparison(gain, spread, float(norm.sf(z)))


def standard_error(
    losses: FloatArray, weight: FloatArray, metric: Metric, clusters: IntArray, apart: float = 0.0
) -> float:
    """The standard error of a metric.

    clusters   (n,), the same number for rows that vary together
    apart      addition to that of the mean loss, in squares
    """
    share = weight / weight.sum()
    mean = float(share @ losses)
    sums, n_clusters = np.bincount(clusters, share * (losses - mean)), len(np.unique(clusters))
    error = float(np.sqrt(sums @ sums * n_clusters / max(n_clusters - 1, 1)))
    if metric.counted:
        # As if two more rows were right and two more wrong (Agresti and Coull, 1998).
        n = len(losses)
        wrong = (n * mean + 2.0) / (n + 4.0)
        error = max(error, float(np.sqrt(wrong * (1 - wrong) / (n + 4.0))))
    error = float(np.hypot(error, apart))
    return error / max(2.0 * metric.score(mean), 1e-300) if metric is SQUARED else error
