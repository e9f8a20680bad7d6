"""Trials of whole models: one is trained as a training does it, and judged on rows that are held out.

Trials of leaves (trial.py) are cheap, but they train a leaf on a part of its rows and without its division.
Of a table with long tails k-means puts most rows into one leaf, and such a trial says little of it.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.compact_model import class_numbers, score_rows
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.training.division import class_factors
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey


def model_losses(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    held: NDArray[np.bool_],
    survey: Survey,
    settings: Settings,
    scaling: Scaling,
) -> FloatArray:
    """The losses (n_held,) of the held-out rows by a model of the others: 1 for a wrong class and 0 for the
    right one, or the squared error.

    X        (n, n_features), raw rows
    target   (n,), class numbers or values
    weight   float64 (n,), > 0, sample weights
    held     (n,), rows that do not train
    survey   of all rows of the data
    """
    rest = ~held
    once = replace(settings, calibrate=False, keep_support_vectors=False)
    of_rest = replace(survey, n_used=int(rest.sum()))
    classes = tuple(range(len(survey.classes)))
    given = X[rest], target[rest], weight[rest], class_factors(survey, settings), of_rest, once, classes
    model = train_rows(*given, scaling=scaling)
    decision = score_rows(model, X[held])[0]
    if settings.task == "regression":
        return np.asarray((decision[:, 0] - target[held].astype(ACC_DTYPE)) ** 2, ACC_DTYPE)
    wrong = class_numbers(decision) != target[held]
    return np.asarray(wrong | np.isnan(decision).any(axis=1), ACC_DTYPE)
