"""The baselines of all_tables.py, each as strong as a practitioner makes it in minutes.

LightGBM and CatBoost are fitted to 85 % of all training rows and stop early by the log loss (classes) or the
squared error (numbers) of the other 15 %; up to SMALL rows, they are then fitted to all rows, with as many
rounds. trial.py uses the same LightGBM. No baseline is told which columns hold categories, nor are we.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from engine import optional
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

Predict = Callable[[NDArray[Any]], NDArray[Any]]
SMALL = 20_000  # training rows; above, boosting is not fitted again to all rows
VALIDATION_SHARE = 0.15
MOST_ROUNDS, PATIENCE = 4_000, 100
RATE, FAST_RATE = 0.05, 0.1  # the fast one for many rows, or three classes and more; with half the rounds
FEW_THRESHOLDS = 128  # of CatBoost
ROWS_PER_LEAF, FEWEST_LEAVES, MOST_LEAVES = 100, 31, 255  # leaves of a tree of LightGBM
CURVATURES = (1e-3, 1.0)  # least sums of second derivatives in a leaf: the default, and for many classes
SVM_ROWS, SVM_TUNING_ROWS = 20_000, 2_000
SVM_C, SVM_WIDTHS = (1.0, 10.0, 100.0), (0.25, 1.0, 4.0)  # C, and γ in multiples of "scale"


@dataclass(frozen=True)
class Problem:
    """Rows to train on, and how long that may take."""

    X: NDArray[Any]
    y: NDArray[Any]
    regression: bool
    seed: int = 0
    threads: int = 2
    seconds: float = 600.0  # of processor time, after which boosting stops with the rounds that it has
    rounds: int = MOST_ROUNDS  # at most, of the slow rate

    def drawn(self, n_rows: int) -> "Problem":
        """At most n_rows of the rows, of every class its share."""
        if len(self.y) <= n_rows:
            return self
        rows, _ = self._parted(len(self.y) - n_rows)
        return replace(self, X=self.X[rows], y=self.y[rows])

    def _parted(self, held: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        stratify = None if self.regression else self.y
        if stratify is not None and np.unique(stratify, return_counts=True)[1].min() < 2:
            stratify = None
        A, B = train_test_split(
            np.arange(len(self.y)), test_size=held, random_state=self.seed, stratify=stratify
        )
        return A, B

    @cached_property
    def parts(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows to fit to, and those that tell when to stop."""
        return self._parted(VALIDATION_SHARE)

    @cached_property
    def classes(self) -> NDArray[Any]:
        return np.unique(self.y)

    @cached_property
    def target(self) -> NDArray[Any]:
        return self.y if self.regression else np.searchsorted(self.classes, self.y)

    def error(self, predicted: NDArray[Any], rows: NDArray[np.intp]) -> float:
        """The share of wrong labels, or the mean squared error."""
        missed = predicted - self.y[rows] if self.regression else predicted != self.y[rows]
        return float(np.mean(np.square(missed, dtype=np.float64)))

    @property
    def is_small(self) -> bool:
        return len(self.y) <= SMALL

    @property
    def has_many_classes(self) -> bool:
        return not self.regression and len(self.classes) > 2

    @property
    def rate(self) -> float:
        return RATE if self.is_small and not self.has_many_classes else FAST_RATE

    @property
    def most_rounds(self) -> int:
        return round(self.rounds * RATE / self.rate)


@dataclass(frozen=True)
class Fitted:
    """scores  of rows: numbers, the probability of the second of two classes, or those of all"""

    scores: Predict
    classes: NDArray[Any] | None  # None: numbers
    note: str = ""

    def labels(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.classes is None:
            return scores
        return self.classes[scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0.5).astype(int)]

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.labels(self.scores(X))


# -- gradient boosting with early stopping -------------------------------------------------------------------


def lightgbm(problem: Problem) -> Fitted:
    """LightGBM with as many leaves as the rows allow, up to 255."""
    library, (A, B) = optional("lightgbm"), problem.parts
    many = problem.has_many_classes
    options = {
        "objective": "regression" if problem.regression else "multiclass" if many else "binary",
        "learning_rate": problem.rate,
        "num_leaves": int(np.clip(len(A) // ROWS_PER_LEAF, FEWEST_LEAVES, MOST_LEAVES)),
        "num_threads": problem.threads,
        "seed": problem.seed,
        "verbose": -1,
    }
    if many:
        options["num_class"] = len(problem.classes)
    deadline = time.process_time() + problem.seconds

    def stop(env: Any) -> None:
        if time.process_time() > deadline:
            raise library.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    def fit(least: float, rows: Any, rounds: int, **more: Any) -> Any:
        data = library.Dataset(problem.X[rows], problem.target[rows])
        return library.train(options | {"min_sum_hessian_in_leaf": least}, data, rounds, **more)

    def stopped(least: float) -> tuple[float, float, Any]:
        """Loss on the held-out rows, and the model with it."""
        held = library.Dataset(problem.X[B], problem.target[B])
        callbacks = [library.early_stopping(PATIENCE, verbose=False), stop]
        found = fit(least, A, problem.most_rounds, valid_sets=[held], callbacks=callbacks)
        return next(iter(found.best_score["valid_0"].values())), least, found

    # Leaves with little curvature let the steps of rare classes diverge: krkopt has 10 %, not 87.
    curvatures = CURVATURES if many and problem.is_small else CURVATURES[many:][:1]
    _, least, booster = min(map(stopped, curvatures), key=lambda one: one[0])
    rounds, ran = booster.best_iteration, booster.current_iteration()
    note = _rounds(problem, rounds, ran, deadline) + f", {options['num_leaves']} leaves, curvature {least:g}"

    def fitted(booster: Any) -> Fitted:
        scores = partial(booster.predict, num_iteration=rounds, num_threads=problem.threads)
        return Fitted(scores, None if problem.regression else problem.classes, note)

    found = fitted(booster)
    if not problem.is_small:
        return found
    again = fitted(fit(least, slice(None), rounds))
    # A fit to all rows that is worse on the held-out rows, which it has seen, has diverged: krkopt has 18 %.
    return min((again, found), key=lambda one: problem.error(one.predict(problem.X[B]), B))


def catboost(problem: Problem) -> Fitted:
    """CatBoost with trees of depth 6, its default; with half the thresholds of a feature where there are many
    classes, which takes as much less time.
    """
    library, (A, B) = optional("catboost"), problem.parts
    make = library.CatBoostRegressor if problem.regression else library.CatBoostClassifier
    options = {
        "learning_rate": problem.rate,
        "random_seed": problem.seed,
        "thread_count": problem.threads,
        "allow_writing_files": False,
        "verbose": False,
    }
    if problem.has_many_classes:
        options["border_count"] = FEW_THRESHOLDS
    deadline = time.process_time() + problem.seconds
    ran = 0

    class Stop:
        def after_iteration(self, info: Any) -> bool:
            nonlocal ran
            ran = info.iteration
            return time.process_time() < deadline

    model = make(iterations=problem.most_rounds, early_stopping_rounds=PATIENCE, **options)
    model.fit(problem.X[A], problem.target[A], eval_set=(problem.X[B], problem.target[B]), callbacks=[Stop()])
    rounds = model.tree_count_
    if problem.is_small:
        model = make(iterations=rounds, **options).fit(problem.X, problem.target)
    classes = None if problem.regression else problem.classes
    return Fitted(
        model.predict if classes is None else model.predict_proba,
        classes,
        _rounds(problem, rounds, ran, deadline) + f", {model.get_all_params()['border_count']} thresholds",
    )


def _rounds(problem: Problem, rounds: int, ran: int, deadline: float) -> str:
    why = ""
    if ran >= problem.most_rounds:
        why = " (the most)"
    elif ran < rounds + PATIENCE and time.process_time() > deadline:
        why = f" (stopped after {problem.seconds:.0f} s)"
    return f"{rounds} rounds{why}, rate {problem.rate:g}"


# -- scikit-learn --------------------------------------------------------------------------------------------


def hist_gradient_boosting(problem: Problem) -> Fitted:
    """Default parameters."""
    make = HistGradientBoostingRegressor if problem.regression else HistGradientBoostingClassifier
    return _estimator(make(random_state=problem.seed), problem)


def random_forest(problem: Problem) -> Fitted:
    """100 trees."""
    make = RandomForestRegressor if problem.regression else RandomForestClassifier
    return _estimator(make(100, random_state=problem.seed, n_jobs=problem.threads), problem)


def tuned_svm(problem: Problem) -> Fitted:
    """SVC or SVR on standardized features, with medians for missing values: C and γ by cross-validation with
    three folds on at most SVM_TUNING_ROWS of the rows, then fitted to at most SVM_ROWS.
    """
    few = problem.drawn(SVM_TUNING_ROWS)
    scale = 1.0 / (few.X.shape[1] * max(float(np.nanvar(StandardScaler().fit_transform(few.X))), 1e-30))
    grid = {"svm__C": SVM_C, "svm__gamma": [width * scale for width in SVM_WIDTHS]}
    svm = SVR(cache_size=1_000) if problem.regression else SVC(cache_size=1_000)
    steps = {"imputation": SimpleImputer(strategy="median"), "scaling": StandardScaler(), "svm": svm}
    model: Any = Pipeline([*steps.items()])
    if problem.regression:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
        grid = {f"regressor__{name}": values for name, values in grid.items()}
    chosen = GridSearchCV(model, grid, cv=3, refit=False).fit(few.X, few.y).best_params_
    rows = problem.drawn(SVM_ROWS)
    fitted = _estimator(model.set_params(**chosen), rows)
    C, gamma = chosen.values()
    note = f"C = {C:g}, γ = {gamma / scale:g} × scale"
    if len(rows.y) < len(problem.y):
        note += f", {len(rows.y):,} of {len(problem.y):,} rows"
    return replace(fitted, note=note)


def _estimator(model: Any, problem: Problem) -> Fitted:
    return Fitted(model.fit(problem.X, problem.y).predict, None)


# name → what fits it, and the package that it comes from
BASELINES: dict[str, tuple[Callable[[Problem], Fitted], str]] = {
    "HistGradientBoosting": (hist_gradient_boosting, "sklearn"),
    "random forest": (random_forest, "sklearn"),
    "tuned SVM": (tuned_svm, "sklearn"),
    "LightGBM": (lightgbm, "lightgbm"),
    "CatBoost": (catboost, "catboost"),
}


def version(package: str) -> str:
    """Its name and version; empty where it is not installed."""
    module = optional(package)
    return f"{package} {module.__version__}" if module else ""
