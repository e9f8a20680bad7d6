"""Cross-validation of a whole training: for each fold, settings are chosen and a model is trained without its
rows, like `dcpred train`, and predicts them. Folds are weights of rows: those of a fold are 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred.datasets.holdout_check import holdout_remarks
from dcpred.datasets.split_rules import folds_of_data
from dcpred.execution.block_plan import plan_routing
from dcpred.execution.pools import chosen_pool, started_once
from dcpred.execution.progress import show
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.training.policy import STANDARD, SearchPolicy
from dcpred.training.reports import FoldReport, ValidationReport
from dcpred.training.train import chosen_settings, training_data
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, class_positions, names_of_classes
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import BESIDE_A_SEARCH

if TYPE_CHECKING:
    from dcpred.training.fit import TrainingRequest
    from dcpred.training.metrics import Metric

FOLDS = 5
OUTER_SEED = 2**20  # added to the seed of folds, which the search draws by the same rule
InnerFolds = Callable[[NDArray[np.bool_]], Folds | None]


@typed
def validate(
    data: Any,
    *,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
    by_time: str | None = None,
    by_group: str | None = None,
    folds: int | None = None,
    x: str = "X",
    y: Any = "y",
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    sample_weight: Any = None,
    scratch: Path | None = None,
    workers: int | None = None,
    client: Any = None,
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> ValidationReport:
    """Cross-validate `train` with the same arguments. No model is kept.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set or a table, or rows, as for `train`. Rows that are not stored as Zarr
        are written to a temporary directory, which workers need to see.
    settings : dict or Settings, optional
        Settings by name, as for `train`.
    metric : str, optional
        Score to measure, and to optimise by a search, as for `train`.
    folds : int, optional
        Number of folds, from 2 to 20. By default 5.
    scratch : Path, optional
        Directory for temporary files that driver and workers share. By default that of the system.

    Returns
    -------
    ValidationReport
        The quality of each fold, and the mean with its standard error.

    Raises
    ------
    RefusedError
        For wrong arguments or data.
    """
    from dcpred.training.fit import TrainingRequest

    values, start = chosen_settings(settings, task, metric)
    pool = chosen_pool(workers, client)
    more: dict[str, Any] = {"id": id, "drop": drop, "scratch": scratch}
    with training_data(data, x, y, sample_weight, client, None, **more) as at:
        by = at.x, by_time, by_group
        outer = folds_of_data(*by, FOLDS if folds is None else folds, start.seed + OUTER_SEED, y=at.y)
        assert outer is not None
        if by_time is None and by_group is None:
            add_remarks(*holdout_remarks(at.x, at.y))
        return _validated(
            TrainingRequest(at.x, at.y, Path(), start, pool, at.weight),
            outer,
            lambda trains: folds_of_data(*by, None, start.seed, trains, at.y),
            replace(STANDARD, metric=metric) if values.keys() <= BESIDE_A_SEARCH else None,
            metric,
            scratch,
        )


def _validated(
    request: "TrainingRequest",
    folds: Folds,
    inner: InnerFolds,
    policy: "SearchPolicy | None",
    metric: Any,
    scratch: Path | None,
) -> ValidationReport:
    """Train without each fold in turn, and evaluate on its rows.

    request  the training on all rows, of no model
    folds    held-out folds
    inner    how a training holds out some of its own rows, from a mask (n_rows,) of these
    policy   of a search for settings; None: those of the request are used
    metric   a scorer of scikit-learn or its name; None: as a search compares candidates
    scratch  a directory that driver and workers share, for models and temporary files
    """
    from dcpred.training.choice import search_and_fit
    from dcpred.training.fit import fit_model
    from dcpred.training.metrics import check_held_classes
    from dcpred.training.trials import metric_asked

    x, y, weight, task = request.x, request.y, request.weight, request.settings.task
    n_rows = int(open_array(x).shape[0])
    number, weights = np.arange(n_rows, dtype=np.int64), np.ones(n_rows)
    if weight is not None:
        weights = np.asarray(open_array(weight)[:], ACC_DTYPE)
    rows = _Rows(x, _targets(y, n_rows), weights)
    fold_of, parts = folds.of(number), folds.parts(number)
    judge = metric_asked(metric, task, rows.class_weights(task), policy)
    if task == "classification":
        codes = np.unique(rows.target, return_inverse=True)[1]
        for fold in range(folds.count):
            out = (fold_of == fold) & (weights > 0)
            fold_words = f"{fold + 1} of {folds.count}"
            check_held_classes(judge, codes, out, weights, int(codes.max()) + 1, fold_words)
    reports = []
    with (
        started_once(request.pool) as pool,
        TemporaryDirectory(prefix="dcpred-", dir=scratch) as place,
    ):
        for fold in range(folds.count):
            trains = ~folds.out_of(fold)[parts] & (weights > 0)
            held = np.flatnonzero((fold_of == fold) & (weights > 0))
            if not trains.any() or not len(held):
                raise DataError(f"Cannot validate: fold {fold + 1} of {x} has no rows. Use fewer folds.")
            show(f"fold {fold + 1} of {folds.count}: {int(trains.sum()):,} rows train")
            folder = Path(place) / f"fold-{fold}"
            weight, here = rows.without(trains, folder), folder / "model"
            part = replace(request, model=here, pool=pool, weight=weight, folds=inner(trains))
            predicted: dict[str, Any] = {}
            if policy is None:
                fit_model(part)
            else:
                predicted = search_and_fit(part, policy).chosen
            report = _judged(read_model(here), rows, held, judge, folds)
            report = replace(report, n_train=int(trains.sum()))
            if predicted.get("metric") == judge.name:
                error = predicted["standard_error"]
                report = replace(report, predicted=predicted[judge.name], predicted_error=error)
            reports.append(report)
    return _report(judge.name, reports, folds.words)


def _report(metric: str, folds: list[FoldReport], words: str) -> ValidationReport:
    each = np.array([fold.quality for fold in folds])
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else folds[0].standard_error
    predictions = [fold.predicted for fold in folds if fold.predicted is not None]
    predicted = float(np.mean(predictions)) if len(predictions) == len(folds) else None
    return ValidationReport(metric, float(each.mean()), error, predicted, words, folds)


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


def _judged(model: Model, rows: _Rows, held: IntArray, metric: "Metric", folds: Folds) -> FoldReport:
    """A model evaluated on held-out rows (ascending), read block by block."""
    from dcpred.training.metrics import standard_error

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
        classes = [str(label) for label in model.classes] if truth.dtype.kind == "U" else model.classes
        truth = class_positions(truth, classes)
        known &= truth >= 0
    if not known.any():
        raise DataError(
            f"Cannot validate: no held-out row of {rows.x} has a score and a class that trains. Use other"
            " folds."
        )
    scored, weight = held[known], rows.weights[held[known]]
    losses = metric.losses(decision[known], np.asarray(truth[known], ACC_DTYPE), weight, len(model.classes))
    mean = float(np.average(losses, weights=weight))
    error = standard_error(losses, weight, metric, folds.clusters(scored))
    return FoldReport(0, len(held), metric.score(mean), error, n_unknown=int((~known).sum()))
