"""Cross-validation of a whole training: for each fold, settings are chosen and a model is trained without its
rows, like `dcpred train`, and predicts them. Folds are weights of rows: those of a fold are 0.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.execution.pools import started_once
from dcpred.execution.progress import show
from dcpred.execution.workers import Pool
from dcpred.plan import plan_routing
from dcpred.training.reports import FoldReport, ValidationReport
from dcpred.training.train import train
from dcpred.tuning.metrics import Metric, check_held_classes
from dcpred.tuning.policy import SearchPolicy
from dcpred.tuning.trials import metric_asked
from dcpred.tuning.tune import standard_error, tune
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, class_positions, names_of_classes
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import Settings

OUTER_SEED = 2**20  # added to the seed of folds, which the search draws by the same rule
InnerFolds = Callable[[NDArray[np.bool_]], Folds | None]


def validate(
    x: str,
    y: str,
    folds: Folds,
    inner: InnerFolds,
    settings: Settings,
    policy: SearchPolicy | None,
    metric: Any,
    pool: Pool,
    *,
    weight: str | None,
    scratch: Path | None,
) -> ValidationReport:
    """Train without each fold in turn, and evaluate on its rows.

    folds    held-out folds
    inner    how a training holds out some of its own rows, from a mask (n_rows,) of these
    policy   of a search for settings; None: `settings` are used
    metric   a scorer of scikit-learn or its name; None: as a search compares candidates
    scratch  a directory that driver and workers share, for models and temporary files

    Raises what `train` and `tune` raise.
    """
    n_rows = int(open_array(x).shape[0])
    number, weights = np.arange(n_rows, dtype=np.int64), np.ones(n_rows)
    if weight is not None:
        weights = np.asarray(open_array(weight)[:], ACC_DTYPE)
    rows = _Rows(x, _targets(y, n_rows), weights)
    fold_of, parts = folds.of(number), folds.parts(number)
    judge = metric_asked(metric, settings.task, rows.class_weights(settings.task), policy)
    if settings.task == "classification":
        codes = np.unique(rows.target, return_inverse=True)[1]
        for fold in range(folds.count):
            out = (fold_of == fold) & (weights > 0)
            fold_words = f"{fold + 1} of {folds.count}"
            check_held_classes(judge, codes, out, weights, int(codes.max()) + 1, fold_words)
    found = []
    with started_once(pool) as same, tempfile.TemporaryDirectory(prefix="dcpred-", dir=scratch) as place:
        for fold in range(folds.count):
            trains = ~folds.out_of(fold)[parts] & (weights > 0)
            held = np.flatnonzero((fold_of == fold) & (weights > 0))
            if not trains.any() or not len(held):
                raise DataError(f"Cannot validate: fold {fold + 1} of {x} has no rows. Use fewer folds.")
            show(f"fold {fold + 1} of {folds.count}: {int(trains.sum()):,} rows train")
            folder = Path(place) / f"fold-{fold}"
            given: dict[str, Any] = {"weight": rows.without(trains, folder)}
            given["folds"] = inner(trains)
            predicted: dict[str, Any] = {}
            if policy is None:
                train(x, y, folder / "model", settings, same, **given)
            else:
                predicted = tune(x, y, folder / "model", same, start=settings, policy=policy, **given).chosen
            one = _judged(read_model(folder / "model"), rows, held, judge, folds)
            one = replace(one, n_train=int(trains.sum()))
            if predicted.get("metric") == judge.name:
                error = predicted["standard_error"]
                one = replace(one, predicted=predicted[judge.name], predicted_error=error)
            found.append(one)
    return _report(judge.name, found, folds.words)


def _report(metric: str, found: list[FoldReport], words: str) -> ValidationReport:
    each = np.array([one.quality for one in found])
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else found[0].standard_error
    summary = [one.predicted for one in found if one.predicted is not None]
    predicted = float(np.mean(summary)) if len(summary) == len(found) else None
    return ValidationReport(metric, float(each.mean()), error, predicted, words, found)


@dataclass(frozen=True)
class _Rows:
    """The rows of a data set.

    x        address of the features
    target   (n_rows,), as a model names classes, or values
    weights  float64 (n_rows,)
    """

    x: str
    target: NDArray[Any]
    weights: FloatArray

    def class_weights(self, task: str) -> FloatArray:
        if task == "regression":
            return np.empty(0)
        return np.asarray(
            np.bincount(np.unique(self.target, return_inverse=True)[1], self.weights), ACC_DTYPE
        )

    def without(self, trains: NDArray[np.bool_], folder: Path) -> str:
        """The address of weights that are 0 for rows that do not train."""
        group = zarr_arrays.create_group(folder / "weights.zarr")
        chunk_rows = min(zarr_arrays.chunk_rows(open_array(self.x)), len(trains))
        array = zarr_arrays.create_array(group, "weight", trains.shape, np.dtype(ACC_DTYPE), chunk_rows)
        array[:] = np.where(trains, self.weights, 0.0)
        return f"{folder}/weights.zarr/weight"


def _targets(y: str, n_rows: int) -> NDArray[Any]:
    array = open_array(y)
    raw = zarr_arrays.read_target(array, 0, n_rows)
    names = names_of_classes(array.attrs, raw.dtype, f"y at {y}")
    return raw if names is None else np.array(names, str)[class_codes(raw, len(names), y)]


def _judged(model: Model, rows: _Rows, held: IntArray, metric: Metric, folds: Folds) -> FoldReport:
    """A model evaluated on held-out rows (ascending), read block by block."""
    X = open_array(rows.x)
    plan = plan_routing(len(rows.target), X.shape[1], np.dtype(X.dtype).itemsize, zarr_arrays.chunk_rows(X))
    decisions = []
    for _, start, stop in plan.spans():
        at = held[slice(*np.searchsorted(held, (start, stop)))]
        if len(at):
            read = zarr_arrays.read_rows(X, start, stop)[at - start]
            decisions.append(score_rows(model, read)[0].astype(ACC_DTYPE))
    decision, truth = np.concatenate(decisions), rows.target[held]
    known = ~np.isnan(decision).any(axis=1)
    if model.task == "classification":
        classes = [str(one) for one in model.classes] if truth.dtype.kind == "U" else model.classes
        truth = class_positions(truth, classes)
        known &= truth >= 0
    if not known.any():
        raise DataError(
            f"Cannot validate: no held-out row of {rows.x} has a score and a class that trains. Use other"
            " folds."
        )
    own, weight = held[known], rows.weights[held[known]]
    losses = metric.losses(decision[known], np.asarray(truth[known], ACC_DTYPE), weight, len(model.classes))
    mean = float(np.average(losses, weights=weight))
    error = standard_error(losses, weight, metric, folds.clusters(own))
    return FoldReport(0, len(held), metric.score(mean), error, n_unknown=int((~known).sum()))
