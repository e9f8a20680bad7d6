"""Scores by the names and in the orientation of scikit-learn's scorers: greater is better.

Two take a value after "=": neg_mean_pinball_loss=0.9 (the quantile, else 0.5), and neg_mean_cost=50, where a
missed row of the second class costs 50 times a false alarm, or with a matrix as 0,1,9;1,0,9;1,1,0, a line for
each class and a number for each label.
"""

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import COST, Costs, matrix_costs, threshold_costs

ValueLosses = Callable[[FloatArray, FloatArray], FloatArray]
"""Losses (n,) of predictions (n,) and targets (n,)."""
PINBALL, MEAN_COST = "neg_mean_pinball_loss", "neg_mean_cost"


@dataclass(frozen=True)
class Score:
    """A score that a user may name."""

    name: str
    task: str
    words: str = ""
    """Its name in texts, if that is another."""
    field: str = ""
    """Its name among the figures of an evaluation, if that is another."""
    aliases: tuple[str, ...] = ()
    """Names of other libraries, in lower case and without separators."""
    needs_labels_only: bool = True
    """Whether it needs predictions, and no probabilities."""
    is_share: bool = False
    """Whether it lies between 0 and 1."""
    takes_value: bool = False
    losses: ValueLosses | None = None
    """The loss of a row, of which the score is the negative mean."""
    is_deviance: bool = False
    """Whether predictions have to be above 0."""
    of_figures: Callable[[Mapping[str, Any]], float | None] | None = None
    """Its value by the figures of an evaluation, where no figure is this score."""

    @property
    def plain(self) -> str:
        """Its name in the result of a search."""
        return self.name.removeprefix("neg_")

    @property
    def less_is_better(self) -> bool:
        """Whether this holds of the figure of its plain name."""
        return self.name != self.plain


def _absolute(predicted: FloatArray, target: FloatArray) -> FloatArray:
    return np.asarray(np.abs(target - predicted))


def _pinball(quantile: float, predicted: FloatArray, target: FloatArray) -> FloatArray:
    above = target - predicted
    return np.maximum(quantile * above, (quantile - 1.0) * above)


def _poisson(predicted: FloatArray, target: FloatArray) -> FloatArray:
    _check_positive("poisson", predicted, target < 0)
    ratio = np.where(target > 0, target, 1.0) / predicted
    return np.asarray(2.0 * (np.where(target > 0, target * np.log(ratio), 0.0) - target + predicted))


def _gamma(predicted: FloatArray, target: FloatArray) -> FloatArray:
    _check_positive("gamma", predicted, target <= 0)
    return np.asarray(2.0 * (np.log(predicted / target) + target / predicted - 1.0))


def _check_positive(name: str, predicted: FloatArray, wrong: Any) -> None:
    if wrong.any() or (predicted <= 0).any():
        least = "more than 0" if name == "gamma" else "0 or more"
        what = f"a target that is not {least}" if wrong.any() else "a prediction that is not more than 0"
        raise DataError(
            f"Cannot compute neg_mean_{name}_deviance: the data have {what}. Choose another metric."
        )


def _minus_squared_error(figures: Mapping[str, Any]) -> float | None:
    return None if figures["rmse"] is None else -(figures["rmse"] ** 2)


def _matthews(figures: Mapping[str, Any]) -> float | None:
    """The correlation of classes and labels (Gorodkin 2004); 0 where either is the same for all rows."""
    matrix = figures["confusion_matrix"]
    if matrix is None:
        return None
    table = np.array(matrix, np.float64)
    n, rows, labels = table.sum(), table.sum(axis=1), table.sum(axis=0)
    size = np.sqrt((n**2 - rows @ rows) * (n**2 - labels @ labels))
    return float((np.trace(table) * n - rows @ labels) / size) if size > 0 else 0.0


CLASSES, NUMBERS = "classification", "regression"
PROBABILITIES: dict[str, Any] = {"needs_labels_only": False}
SCORES = (
    Score("accuracy", CLASSES, aliases=("acc",), is_share=True),
    Score("balanced_accuracy", CLASSES, is_share=True),
    Score(
        "neg_log_loss",
        CLASSES,
        "log-loss",
        aliases=("logloss", "crossentropy", "binarylogloss", "multilogloss"),
        **PROBABILITIES,
    ),
    Score("neg_brier_score", CLASSES, aliases=("brier", "brierscore"), **PROBABILITIES),
    Score(
        "roc_auc",
        CLASSES,
        "ROC AUC",
        field="auc",
        aliases=("auroc", "aucroc", "rocauc"),
        is_share=True,
        **PROBABILITIES,
    ),
    Score(
        "average_precision",
        CLASSES,
        aliases=("aucpr", "prauc", "auprc", "ap", "averageprecision"),
        is_share=True,
        **PROBABILITIES,
    ),
    Score("f1_macro", CLASSES, "macro F1", is_share=True),
    Score("matthews_corrcoef", CLASSES, of_figures=_matthews),
    Score(MEAN_COST, CLASSES, aliases=("cost",), takes_value=True),
    Score("r2", NUMBERS, "R²"),
    Score("neg_mean_squared_error", NUMBERS, aliases=("mse", "l2"), of_figures=_minus_squared_error),
    Score("neg_root_mean_squared_error", NUMBERS, "RMSE", field="rmse", aliases=("rmse",)),
    Score("neg_mean_absolute_error", NUMBERS, field="mae", aliases=("mae", "l1"), losses=_absolute),
    Score("neg_median_absolute_error", NUMBERS, aliases=("medae",)),
    Score("neg_mean_poisson_deviance", NUMBERS, losses=_poisson, is_deviance=True),
    Score("neg_mean_gamma_deviance", NUMBERS, losses=_gamma, is_deviance=True),
    Score(PINBALL, NUMBERS, aliases=("pinball", "pinballloss", "quantile"), takes_value=True),
)
BY_NAME = {score.name: score for score in SCORES}
SCORERS = {task: tuple(score.name for score in SCORES if score.task == task) for task in (CLASSES, NUMBERS)}
"""Names by task."""


def score_of_figure(name: str) -> Score | None:
    """The score whose name this is in a search or an evaluation."""
    return next((score for score in SCORES if name in (score.plain, score.field)), None)


def meant(name: str, known: Collection[str]) -> str | None:
    """The known score that a name may stand for: by its name in an evaluation, elsewhere, or its spelling."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    here = {score.field: score.name for score in SCORES if score.field}
    aliases = {alias: score.name for score in SCORES for alias in score.aliases}
    spelled = {re.sub(r"[^a-z0-9]", "", listed.removeprefix("neg_")): listed for listed in known}
    for word in (plain, plain.removesuffix("score")):
        for names in (spelled, aliases, here):
            if names.get(word) in known:
                return names[word]
    close = difflib.get_close_matches(plain, list(spelled), 1)
    return spelled[close[0]] if close else None


def check_score(name: str, task: str) -> str:
    """The name without its value. Raises SettingsError for a name that is not a score of the task."""
    plain, equals, _ = name.partition("=")
    if plain not in SCORERS[task] or (equals and not BY_NAME[plain].takes_value):
        near = meant(plain, SCORERS[task])
        raise SettingsError(
            f"Cannot use metric {name!r} for {task}{f' (did you mean {near!r}?)' if near else ''}. Use one of"
            f" {', '.join(SCORERS[task])}."
        )
    if plain == PINBALL:
        pinball_quantile(name)
    if plain == MEAN_COST:
        score_costs(name)
    return plain


def check_label_score(given: str, task: str) -> None:
    """Raise SettingsError for a score that needs more than predictions."""
    if not BY_NAME[plain := check_score(given, task)].needs_labels_only:
        known = [score.name for score in SCORES if score.task == task and score.needs_labels_only]
        raise SettingsError(
            f"Cannot compare by metric {given!r}: {plain} needs probabilities, which not every system gives."
            f" Choose one of {', '.join(known)}."
        )


def pinball_quantile(name: str) -> float:
    """The quantile of a pinball loss. Raises SettingsError."""
    try:
        value = float(name.partition("=")[2] or 0.5)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise SettingsError(
            f"Cannot use metric {name!r}: the quantile must be a number between 0 and 1. Write it as"
            f" {PINBALL}=0.9."
        )
    return value


def score_costs(name: str) -> Costs:
    """The costs of a mean cost. Raises SettingsError."""
    value = name.partition("=")[2]
    try:
        if ";" in value:
            lines = [[float(cell) for cell in line.split(",")] for line in value.split(";")]
            return matrix_costs(lines, MEAN_COST)
        return threshold_costs(COST + value)
    except (ValueError, SettingsError):
        raise SettingsError(
            f"Cannot use metric {name!r}: it needs the cost of a missed row of the second class. Write it as"
            f" {MEAN_COST}=50, or with a square matrix as {MEAN_COST}=0,1,9;1,0,9;1,1,0."
        ) from None


def value_losses(name: str) -> ValueLosses | None:
    """The loss of a row, of which the score is the negative mean; None for other scores."""
    plain = name.partition("=")[0]
    if plain == PINBALL:
        return partial(_pinball, pinball_quantile(name))
    return BY_NAME[plain].losses if plain in BY_NAME else None


def named_score(name: str, figures: Mapping[str, Any], mean_loss: float | None) -> float | None:
    """A score from the fields of an evaluation, or the mean of its loss; None without either."""
    plain = name.partition("=")[0]
    if mean_loss is not None:
        return -mean_loss
    score = BY_NAME[plain]
    if score.of_figures is not None:
        return score.of_figures(figures)
    value = figures.get(score.field or score.plain)
    return value if value is None or not score.less_is_better else -value
