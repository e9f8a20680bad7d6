"""What candidates are judged by: a loss of each held-out row, and one that breaks ties."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.training.calibration import fit_calibration

Losses = Callable[[FloatArray, FloatArray, FloatArray, int], FloatArray]


@dataclass(frozen=True)
class Metric:
    """A loss of each held-out row from decision values (n, n_outputs), targets (n,), weights (n,) and the
    number of classes.
    """

    name: str
    losses: Losses
    counted: bool = False
    """Whether a row is either right or wrong, so that the test is McNemar's."""


def errors(decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """1 for a wrong class, 0 for the right one."""
    wrong = class_numbers(decision) != target
    return np.asarray(wrong | np.isnan(decision).any(axis=1), np.float64)


def log_losses(decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """−log of the probability of the class, of probabilities that are calibrated on these rows: candidates
    are compared by how well they order rows, and a model is calibrated when it is trained.
    """
    number: IntArray = target.astype(np.int64)
    decision = np.nan_to_num(decision)  # Rows without a score are as far from all classes.
    calibration, offset = fit_calibration(decision, number, weight, n_classes)
    p = calibration.free(calibration.scores(decision - offset))
    return np.asarray(-np.log(np.maximum(p[np.arange(len(p)), number], 1e-12)))


def squared_errors(
    decision: FloatArray, target: FloatArray, weight: FloatArray, n_classes: int
) -> FloatArray:
    return np.asarray((decision[:, 0] - target) ** 2)


ERROR = Metric("error rate", errors, counted=True)
LOG_LOSS = Metric("log-loss", log_losses)
SQUARED = Metric("squared error", squared_errors)


@dataclass(frozen=True)
class Comparison:
    """A candidate beside an incumbent, row by row."""

    gain: float
    """How much less its mean loss is."""
    standard_error: float
    """Of the gain."""
    p: float
    """Chance of such a gain, or a larger one, where both are equally good."""


def compare(incumbent: FloatArray, candidate: FloatArray, weight: FloatArray, *, counted: bool) -> Comparison:
    """The one-sided paired test: McNemar's with Edwards' correction where rows are right or wrong, else
    Student's t, whose tail is taken as the normal one. Rows count that both have a loss of.
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
