"""The label of a row by its probabilities and the cost of every mistake, in place of the sign of its decision
value.

A threshold t for the second of two classes is the case of the costs 0, t, 1 − t, 0: p > t where a wrong label
of the second class costs t and a missed row costs 1 − t. It is the same as class weights w₀ = 2 t and w₁ =
2 (1 − t): a calibration with them moves decision values, and leaves probabilities as they are.
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.model.predictive_outputs import calibration_of
from dcpred_tasks.model.uncertainty import Calibration

Costs = tuple[float, ...]
"""Costs of a label, row by row of the matrix: of rows of the first class for each label, then of the second
class, and so on.
"""
COST = "cost="  # before the cost of a missed row of the second class, in false alarms


@dataclass(frozen=True, eq=False)
class LabelRule:
    """Class numbers (n,) of decision values (n, n_outputs): each row gets the label with the least expected
    cost.

    costs  float64 (n_classes, n_classes), of a row's class and its label
    """

    calibration: Calibration
    costs: FloatArray

    def __call__(self, decision: Scores) -> IntArray:
        p = self.calibration.probabilities(decision.astype(ACC_DTYPE), class_numbers(decision))
        return np.asarray((p @ self.costs).argmin(axis=1), np.int64)

    def may_be(self, number: IntArray, low: FloatArray, high: FloatArray) -> Any:
        """Whether probabilities between these bounds, (n, n_classes), allow these labels: bool (n,)."""
        more = self.costs[:, number].T[:, :, None] - self.costs[None]  # the extra cost over each other label
        least = np.minimum(low[:, :, None] * more, high[:, :, None] * more).sum(axis=1)
        return (least <= 0).all(axis=1)


Rule = Callable[[Scores], IntArray]


def label_rule(model: Model, costs: Costs | None) -> Rule:
    """How a model labels rows, by decision values or costs. Raises DataError where it cannot."""
    if costs is None:
        return class_numbers
    calibration, n = calibration_of(model, "labels by a threshold or costs"), len(model.classes)
    if len(costs) != n * n:
        given = math.isqrt(len(costs))
        raise DataError(
            f"Cannot use costs of {given:,} classes: the model has {n:,}. Pass a threshold only for two"
            " classes, and a cost matrix with a line and a column for each class, in the order of the model."
        )
    return LabelRule(calibration, np.array(costs, ACC_DTYPE).reshape(n, n))


def threshold_of(model: Model, costs: Costs | None = None) -> float | None:
    """The probability from which on rows get the label of the second class: that of the model, or of costs.
    None where there are not two classes, or no probabilities, or costs that no probability divides.
    """
    calibration = None if model.uncertainty is None else model.uncertainty.calibration
    if calibration is None or len(model.classes) != 2:
        return None
    if costs is None:
        return float(calibration.weight[0] / calibration.weight.sum()) if len(calibration.weight) else 0.5
    wrong, missed = costs[1] - costs[0], costs[2] - costs[3]
    return wrong / (wrong + missed) if min(wrong, missed) >= 0 < wrong + missed else None


def threshold_of_two(model: Model) -> float:
    """The same of an attribute that other models do not have: it raises AttributeError."""
    threshold = threshold_of(model)
    if threshold is None:
        raise AttributeError("Only models of two classes with calibrate=true have a threshold.")
    return threshold


def threshold_costs(threshold: float | str) -> Costs:
    """The costs of a threshold: a probability, or cost=50. Raises SettingsError."""
    text = str(threshold).replace(" ", "")
    try:
        value = float(text.removeprefix(COST))
    except ValueError:
        value = math.nan
    if text.startswith(COST) and 0 < value < math.inf:
        return 0.0, 1.0, value, 0.0
    if not text.startswith(COST) and 0 < value < 1:
        return 0.0, value, 1.0 - value, 0.0
    raise SettingsError(
        f"Cannot use threshold={threshold!r}: it must be a probability between 0 and 1, or cost=50 (a missed"
        " row of the second class costs 50 times a false alarm). f1 and others are chosen in training."
    )


def matrix_costs(lines: Sequence[Sequence[Any]], name: str = "costs") -> Costs:
    """The costs of a matrix: lines for classes of rows, columns for labels. Raises SettingsError."""
    n = len(lines)
    wrong = [i for i, line in enumerate(lines, 1) if len(line) != n or not all(map(is_cost, line))]
    if n < 2 or wrong:
        fault = (
            f"line {wrong[0]} of {n} is {', '.join(map(str, lines[wrong[0] - 1]))}"
            if wrong
            else f"the number of lines is {n}"
        )
        raise SettingsError(
            f"Cannot use {name}: {fault}. Give a line for each class of rows, with a number of 0 or more for"
            " each label."
        )
    cheap = [i for i, line in enumerate(lines) if min(line) < line[i]]
    if cheap or all(min(line) == max(line) for line in lines):
        what = (
            f"line {cheap[0] + 1} of {n} has a wrong label that costs less"
            if cheap
            else "no label costs more"
        )
        raise SettingsError(
            f"Cannot use {name}: {what}. Charge more for mistakes than for the right labels on the diagonal."
        )
    return tuple(float(cost) for line in lines for cost in line)


def is_cost(value: Any) -> bool:
    """Whether it may be a cost."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def given_costs(threshold: float | str | None, costs: Any) -> Costs | None:
    """The costs of a threshold, or of a matrix or the path of its CSV file; None without either. Raises
    SettingsError.
    """
    if threshold is not None and costs is not None:
        raise SettingsError("Cannot use threshold together with costs. Pass one of them.")
    if threshold is not None:
        return threshold_costs(threshold)
    if costs is None:
        return None
    if isinstance(costs, str | os.PathLike):
        return matrix_costs(_lines_of_file(Path(costs)), str(costs))
    try:
        lines = [list(line) for line in getattr(costs, "to_numpy", lambda: costs)()]
    except TypeError:
        raise SettingsError(
            f"Cannot use costs={costs!r}: it is no matrix. Pass a row of costs for each class, or a CSV file."
        ) from None
    return matrix_costs(lines)


def _lines_of_file(file: Path) -> list[list[Any]]:
    """The numbers of each line; other cells stay text."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").removeprefix("\ufeff").splitlines()
    except OSError as error:
        raise SettingsError(
            f"Cannot read costs from {file}: {error.strerror}. Pass a matrix, or the path of a CSV file."
        ) from None
    return [[_number(cell) for cell in line.split(",")] for line in lines if line.strip()]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell.strip()


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
        bounded, other = (precision, recall) if bound[1] == "precision" else (recall, precision)
        score = np.where(bounded >= float(bound[2]), 1.0 + other, bounded - 1.0)
    at = int(np.where(last, score, -np.inf).argmax())
    below = p[at + 1] if at + 1 < len(p) else 0.0
    return float(np.clip((p[at] + below) / 2, LEAST, MOST))


def weights_of(threshold: float) -> FloatArray:
    """The class weights (2,) of a threshold."""
    return np.array([2 * threshold, 2 * (1 - threshold)])
