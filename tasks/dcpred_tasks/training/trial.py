"""Trials: candidate settings train a model on some rows, as training does, and predict held-out rows.

Small data are used as a whole. Of large data, a trial uses the rows of some cells of space, at the density of
all rows, which keeps leaves as large and as near as in the model; and as many rows from everywhere, for
leaves that are larger than a cell. Held-out rows are rows of cells, the same for every candidate, and
candidates are compared row by row. The forecast of the choice has a scaling of more rows, as the model will
(DECISIONS.md).
"""

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.engine.layout import walks_by_distances
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import TargetTransform, fitted_transform
from dcpred_tasks.training.division import kernel_unit, learn_scaling
from dcpred_tasks.training.in_memory import leaves_of_share, settings_of_rest, train_rows
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.thresholds import HALF
from dcpred_tasks.training.tree_fitting import levels_for

# Repetitions of learned scalings: a training takes the mean of several, which is better and slower.
TRIAL_REPETITIONS = 1
# Settings that decide what a scaling is (division.learn_scaling).
SCALING_SETTINGS = (
    *("task", "scaling", "feature_map", "categorical", "missing", "seed", "kernel", "target_transform"),
)


@dataclass(frozen=True)
class TrialRows:
    """The rows of a trial, raw, in the order of their numbers.

    X       (n, n_features), codes of categories replaced by target means that know no held-out row
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights times class weights
    number  int64 (n,), row numbers in the input
    held    bool (n,), rows that are held out
    cell    bool (n,), rows of the cells; all rows where rows are few
    spread  bool (n,), rows from everywhere; all rows where rows are few
    broad   bool (n,), rows from everywhere that scalings and reference models learn from
    """

    X: NDArray[np.generic]
    target: NDArray[np.generic]
    weight: FloatArray
    number: IntArray
    held: NDArray[np.bool_]
    cell: NDArray[np.bool_]
    spread: NDArray[np.bool_]
    broad: NDArray[np.bool_]

    def take(self, index: NDArray[np.generic]) -> "TrialRows":
        return TrialRows(**{name: array[index] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, Any]:
        """Its arrays by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Trial:
    """How candidate settings are tried.

    spread  whether rows from everywhere train, not those of the cells
    """

    settings: Settings
    spread: bool


@dataclass(frozen=True)
class FittedScaling:
    """The scaling of a candidate, and γ "scale" in its columns."""

    scaling: Scaling
    unit: float


def fit_trial_scaling(
    rows: TrialRows, survey: Survey, settings: Settings, repetitions: int = TRIAL_REPETITIONS
) -> FittedScaling:
    """The scaling that settings ask for, learned without the held-out rows.

    Raises DataError where scaled features do not fit single precision.
    """
    rest = rows.take(np.flatnonzero(~rows.held & rows.broad))
    settings = settings_of_rest(settings, 1.0)
    target = TargetTransform(settings.target_transform).forward(rest.target)
    scaling = learn_scaling(rest.X, target, rest.weight, survey, settings, repetitions)
    return FittedScaling(scaling, kernel_unit(scaling(rest.X), rest.weight, settings))


def tried_model(rows: TrialRows, survey: Survey, trial: Trial, scaling: Scaling) -> Model:
    """A model of the rows that are not held out.

    survey  of all rows of the data, with codes replaced
    """
    settings = trial.settings
    own = ~rows.held & (rows.spread if trial.spread else rows.cell)
    rest = rows.take(np.flatnonzero(own))
    n_leaves = leaves_of_share(settings.n_leaves, len(rest.X) / survey.n_used)
    plain = replace(settings, calibrate=False, keep_support_vectors=False, threshold=HALF)
    once = replace(plain, n_leaves=n_leaves)
    of_rest = replace(survey, n_used=len(rest.X))
    classes = tuple(range(len(survey.classes)))
    given = rest.X, rest.target, rest.weight, np.empty(0), of_rest, once, classes
    return train_rows(*given, n_jobs=1, scaling=scaling)


def tried_decisions(
    rows: TrialRows, survey: Survey, trial: Trial, scaling: Scaling
) -> tuple[FloatArray, Model]:
    """Decision values (n_held, n_outputs) of the held-out rows, in their order, and the model."""
    model = tried_model(rows, survey, trial, scaling)
    decision = score_rows(model, rows.X[rows.held])[0].astype(ACC_DTYPE)
    settings = trial.settings
    if settings.task == "regression":
        transform = TargetTransform(settings.target_transform)
        own = transform.forward(decision)[:, 0], transform.forward(rows.target[rows.held])
        decision = fitted_transform(transform.name, *own, rows.weight[rows.held]).predicted(own[0])[:, None]
        known = rows.target[~rows.held].astype(ACC_DTYPE)
        decision = np.clip(decision, known.min(), known.max())
    return decision, model


def shape_of(model: Model) -> FloatArray:
    """What the cost of a model follows from, (6,): the share of rows in leaves with landmarks; of a mean row
    there the landmarks, the products, and the outputs that its leaf has rows of; the levels that a mean row
    walks down, by those of an even tree; and whether it walks in double precision.
    """
    landmarks, products = np.diff(model.landmark_at), np.diff(model.pair_at)
    rows = np.where(landmarks > 0, np.maximum(model.leaf_rows, 0), 0).astype(ACC_DTYPE)
    present: FloatArray = np.array(
        [float(model.beta[a:b].any(axis=0).sum()) for a, b in pairwise(model.beta_at)]
    )
    works = float(rows.sum() / max(model.leaf_rows.sum(), 1))
    share = rows / max(rows.sum(), 1.0)
    walked = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    levels = float(walked @ model.tree.leaf_levels(model.n_leaves)) if model.tree.n_nodes else 1.0
    uneven = levels / max(len(levels_for(model.n_leaves)), 1)
    shape = [works, share @ landmarks, share @ products, share @ present]
    return np.array([*shape, uneven, float(walks_by_distances(model))])
