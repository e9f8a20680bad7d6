"""One trial of settings on held-out rows, beside reference models."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.engine.layout import walks_by_distances
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import TargetTransform, fitted_transform
from dcpred_tasks.training.in_memory import leaves_of_share, settings_of_rest, train_rows
from dcpred_tasks.training.partition import kernel_unit, learn_scaling
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey, thinned
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
    present = model.beta.n_present.astype(float)
    works = float(rows.sum() / max(model.leaf_rows.sum(), 1))
    share = rows / max(rows.sum(), 1.0)
    walked = np.maximum(model.leaf_rows, 0) / max(model.leaf_rows.sum(), 1)
    levels = float(walked @ model.tree.leaf_levels(model.n_leaves)) if model.tree.n_nodes else 1.0
    uneven = levels / max(len(levels_for(model.n_leaves)), 1)
    shape = [works, share @ landmarks, share @ products, share @ present]
    return np.array([*shape, uneven, float(walks_by_distances(model))])


BOOSTING, KERNEL = "HistGradientBoosting", "SVM pipeline"
LEAST_PROBABILITY = 1e-12


def _pipeline(machine: Any) -> Any:
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), machine)


REFERENCES: dict[tuple[str, str], Callable[[], Any]] = {
    (BOOSTING, "classification"): lambda: HistGradientBoostingClassifier(random_state=0),
    (BOOSTING, "regression"): lambda: HistGradientBoostingRegressor(random_state=0),
    (KERNEL, "classification"): lambda: _pipeline(SVC(cache_size=200)),
    (KERNEL, "regression"): lambda: _pipeline(SVR(cache_size=200)),
}


def reference_decisions(
    rows: TrialRows, name: str, task: str, n_classes: int, most: int, seed: int
) -> FloatArray:
    """Decision values (n_held, n_outputs) of the held-out rows by a reference model of the other rows.

    most  rows that train it, at most
    """
    own = np.flatnonzero(~rows.held & rows.broad)
    rest = rows.take(own[thinned(rows.number[own], most, seed)])
    before, after = (one.astype(ACC_DTYPE) for one in (rest.X, rows.X[rows.held]))
    # Gradient boosting of scikit-learn fails on a feature without any value, every model without features.
    known = ~np.isnan(before).all(axis=0)
    before, after = (one[:, known] if known.any() else np.zeros((len(one), 1)) for one in (before, after))
    # Squares of large values overflow; none of the models minds the unit of a feature.
    unit = np.exp2(-np.frexp(np.nanmax(np.abs(before), axis=0, initial=0.0))[1])
    rest, X, model = replace(rest, X=unit * before), unit * after, REFERENCES[name, task]()
    step = "" if name == BOOSTING else f"{model.steps[-1][0]}__"
    weights = {f"{step}sample_weight": rest.weight / rest.weight.mean()}
    if task == "regression":
        target = rest.target.astype(ACC_DTYPE)
        centre, spread = float(target.mean()), float(target.std()) or 1.0
        model.fit(rest.X, (target - centre) / spread, **weights)
        return np.asarray(centre + spread * model.predict(X), ACC_DTYPE)[:, None]
    target = rest.target.astype(np.int64)
    present = np.unique(target)
    if len(present) < 2:
        found = np.ones((len(X), 1))
    else:
        model.fit(rest.X, target, **weights)
        if name == BOOSTING:
            found = np.log(np.maximum(model.predict_proba(X), LEAST_PROBABILITY))
        else:
            found = model.decision_function(X)
            found = np.stack([-found, found], axis=1) if found.ndim == 1 else found
    every = np.full((len(X), n_classes), float(found.min()) - 1.0)
    every[:, present] = found
    return every if n_classes > 2 else every[:, 1:] - every[:, :1]
