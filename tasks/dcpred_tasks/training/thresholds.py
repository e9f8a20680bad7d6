"""The probability from which on a row gets the label of the second of two classes.

A threshold t is the same as class weights w₀ = 2 t and w₁ = 2 (1 − t): w₁ p > w₀ (1 − p) where p > t. A
calibration with these weights (model.uncertainty.Calibration) moves decision values: their
sign is then the label, and leaves probabilities as they are.
"""

import re

import numpy as np

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import DataError, SettingsError

HALF = "none"  # the likelier class
NAMED = (HALF, "f1", "balanced")
LEAST, MOST = 1e-6, 1.0 - 1e-6
_BOUND = re.compile(r"(precision|recall)\s*>=\s*([0-9.eE+-]+)")
_COST = re.compile(r"cost\s*=\s*([0-9.eE+-]+)")


def check_threshold(given: str) -> None:
    """Raise SettingsError for a threshold outside of those described in the settings."""
    if given in NAMED:
        return
    bound, cost = _BOUND.fullmatch(given), _COST.fullmatch(given)
    try:
        value = float(bound[2] if bound else cost[1] if cost else given)
    except ValueError:
        value = 0.0
    if not 0 < value < (np.inf if cost else 1):
        raise SettingsError(
            f"Cannot use threshold={given!r}: it must be a probability between 0 and 1, {', '.join(NAMED)},"
            " cost=50 (a missed row costs 50 times a false alarm), precision>=0.9 or recall>=0.9."
        )


def check_two_classes(given: str, n_classes: int) -> None:
    """Raise DataError for a threshold where there are not two classes."""
    if given != HALF and n_classes != 2:
        raise DataError(
            f"Cannot use threshold={given!r}: the target has {n_classes} classes, and a threshold needs two."
            " Leave it out, or set class_weight."
        )


def chosen_threshold(given: str, p: FloatArray, target: IntArray, weight: FloatArray) -> float:
    """The threshold t: rows whose probability is larger get the label of the second class.

    given   the value of the setting
    p       float64 (n,), probabilities of the second class of held-out rows
    target  int64 (n,), class numbers
    weight  float64 (n,)

    f1 has the largest F1 of the second class on these rows, and balanced the largest balanced accuracy.
    precision>=x has the largest recall of those whose precision is at least x, recall>=x the largest
    precision; where none is, the one that comes nearest. Without rows of both classes it is one half.
    """
    if (cost := _COST.fullmatch(given)) is not None:
        return float(np.clip(1.0 / (1.0 + float(cost[1])), LEAST, MOST))
    bound = _BOUND.fullmatch(given)
    if bound is None and given not in NAMED:
        return float(np.clip(float(given), LEAST, MOST))
    order = np.argsort(-p, kind="stable")
    p, positive = p[order], (target == 1)[order]
    true, false = np.cumsum(weight[order] * positive), np.cumsum(weight[order] * ~positive)
    if not len(p) or true[-1] == 0 or false[-1] == 0:
        return 0.5
    last = np.append(p[1:] < p[:-1], True)  # Rows of one probability have one label.
    precision, recall = true / (true + false), true / true[-1]
    if given == "f1":
        score = 2 * true / (true + false + true[-1])
    elif given == "balanced":
        score = recall + 1 - false / false[-1]
    else:
        assert bound is not None
        kept, other = (precision, recall) if bound[1] == "precision" else (recall, precision)
        score = np.where(kept >= float(bound[2]), 1.0 + other, kept - 1.0)
    at = int(np.where(last, score, -np.inf).argmax())
    below = p[at + 1] if at + 1 < len(p) else 0.0
    return float(np.clip((p[at] + below) / 2, LEAST, MOST))


def weights_of(threshold: float) -> FloatArray:
    """The class weights (2,) of a threshold."""
    return np.array([2 * threshold, 2 * (1 - threshold)])
