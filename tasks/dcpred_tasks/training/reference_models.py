"""First baselines with default settings, on the rows of a trial: gradient boosting, and an SVM or a kernel
ridge regression of scaled features. A search compares its choice with them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.training.sampling import thinned
from dcpred_tasks.training.trial import TrialRows

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
