"""Scores by the names and in the orientation of scikit-learn's scorers: greater is better.

Two take a value after "=": neg_mean_pinball_loss=0.9 (the quantile, else 0.5), and neg_mean_cost=50, where a
missed row of the second class costs 50 times a false alarm, or with a matrix as 0,1,9;1,0,9;1,1,0, a line for
each class and a number for each label.
"""

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import COST, Costs, matrix_costs, threshold_costs

DEVIANCES = ("neg_mean_poisson_deviance", "neg_mean_gamma_deviance")
PINBALL, MEAN_COST = "neg_mean_pinball_loss", "neg_mean_cost"
SCORERS = {
    "classification": (
        *("accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score", "roc_auc"),
        *("average_precision", "f1_macro", "matthews_corrcoef", MEAN_COST),
    ),
    "regression": (
        *("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error"),
        *("neg_median_absolute_error", *DEVIANCES, PINBALL),
    ),
}
"""Names by task."""
FIELDS = {"roc_auc": "auc", "neg_root_mean_squared_error": "rmse", "neg_mean_absolute_error": "mae"}
"""Their names in an evaluation, where these differ."""
ValueLosses = Callable[[FloatArray, FloatArray], FloatArray]
"""Losses (n,) of predictions (n,) and targets (n,)."""


ALIASES = {
    "acc": "accuracy",
    "auroc": "roc_auc",
    "aucroc": "roc_auc",
    "rocauc": "roc_auc",
    "aucpr": "average_precision",
    "prauc": "average_precision",
    "auprc": "average_precision",
    "ap": "average_precision",
    "averageprecision": "average_precision",
    "logloss": "neg_log_loss",
    "crossentropy": "neg_log_loss",
    "binarylogloss": "neg_log_loss",
    "multilogloss": "neg_log_loss",
    "brier": "neg_brier_score",
    "brierscore": "neg_brier_score",
    "f1score": "f1",
    "mse": "neg_mean_squared_error",
    "l2": "neg_mean_squared_error",
    "mae": "neg_mean_absolute_error",
    "l1": "neg_mean_absolute_error",
    "rmse": "neg_root_mean_squared_error",
    "medae": "neg_median_absolute_error",
    "pinball": PINBALL,
    "pinballloss": PINBALL,
    "quantile": PINBALL,
    "cost": MEAN_COST,
}
"""Names of other libraries, in lower case and without separators."""


def meant(name: str, known: Collection[str]) -> str | None:
    """The known score that a name may stand for: by its name in an evaluation, elsewhere, or its spelling."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    here = {re.sub(r"[^a-z0-9]", "", other): score for score, other in FIELDS.items()}
    spelled = {re.sub(r"[^a-z0-9]", "", one.removeprefix("neg_")): one for one in known}
    for word in (plain, plain.removesuffix("score")):
        for names in (spelled, ALIASES, here):
            if names.get(word) in known:
                return names[word]
    close = difflib.get_close_matches(plain, list(spelled), 1)
    return spelled[close[0]] if close else None


def check_score(name: str, task: str) -> str:
    """The name without its value. Raises SettingsError for a name that is not a score of the task."""
    plain, equals, _ = name.partition("=")
    if plain not in SCORERS[task] or (equals and plain not in (PINBALL, MEAN_COST)):
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
    named = ("neg_mean_absolute_error", *DEVIANCES)
    return dict(zip(named, (_absolute, _poisson, _gamma), strict=True)).get(plain)


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


def named_score(name: str, found: Mapping[str, Any], mean_loss: float | None) -> float | None:
    """A score from the fields of an evaluation, or the mean of its loss; None without either."""
    plain = name.partition("=")[0]
    if mean_loss is not None:
        return -mean_loss
    if plain == "neg_mean_squared_error":
        return None if found["rmse"] is None else -(found["rmse"] ** 2)
    if plain == "matthews_corrcoef":
        return _matthews(found["confusion_matrix"])
    value = found.get(FIELDS.get(plain, plain.removeprefix("neg_")))
    return value if value is None or not plain.startswith("neg_") else -value


def _matthews(matrix: list[list[int]] | None) -> float | None:
    """The correlation of classes and labels (Gorodkin 2004); 0 where either is the same for all rows."""
    if matrix is None:
        return None
    table = np.array(matrix, np.float64)
    n, rows, labels = table.sum(), table.sum(axis=1), table.sum(axis=0)
    size = np.sqrt((n**2 - rows @ rows) * (n**2 - labels @ labels))
    return float((np.trace(table) * n - rows @ labels) / size) if size > 0 else 0.0
