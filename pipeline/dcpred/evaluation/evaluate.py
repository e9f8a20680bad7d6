"""Measure the quality of a model on labelled data, and its cost.

Rows are evaluated in blocks (dcpred_tasks.task_bodies.evaluate_block), in this process or on workers, and the
results of blocks are merged: the result is the same, bit for bit, for any number of workers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.datasets.located import address_of_model, labelled_rows
from dcpred.execution.block_plan import MIB, BlockPlan, plan_scoring
from dcpred.execution.pools import chosen_pool, this_process
from dcpred.execution.progress import COMPILING, counted, show, show_dashboard, show_step
from dcpred.execution.workers import Pool, Workers
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult
from dcpred.serving.cost import measure_cost, predict_cost
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.errors import DataError, Failure, IncompleteError, InterruptedRunError
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.model.compact_model import Model, check_features, check_matrix
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.label_rule import Costs, given_costs, threshold_of
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring.drift import describe_drift
from dcpred_tasks.scoring.drift_fields import drift_remarks
from dcpred_tasks.scoring.scorer import chosen, is_compiled
from dcpred_tasks.scoring.statistics import Statistics, sample_stride, why_unscored
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address, absolute
from dcpred_tasks.task_bodies.evaluate_block import (
    Evaluated,
    EvaluationJob,
    evaluate_block,
    nothing_evaluated,
    open_evaluated,
    ready_to_evaluate,
)

SHOWN_SHARE = 0.02  # minimum fraction of training rows among evaluated ones for a warning
FEW_ROWS, PERFECT_ROWS, PERFECT_R2 = 50, 100, 0.9999  # limits of remarks
EARLY = ("accuracy", "rmse", "r2")  # figures of the local models
MEASURES_BYTES = 128 * MIB  # counts of a task, and copies of its rows and scores
FEW_NUMBERS = 2**27  # numbers in X that one process evaluates faster than workers start


def is_small(x: Address) -> bool:
    """Whether X has so few numbers that workers would not save time."""
    return int(np.prod(open_array(x).shape, dtype=np.int64)) <= FEW_NUMBERS


@dataclass(frozen=True, repr=False)
class Evaluation(PublicResult, Mapping[str, Any]):
    """Figures of a model on labelled data: a mapping, whose keys are also attributes.

    Parameters
    ----------
    figures : dict
        The figures by name, as `dcpred evaluate --json` prints them: accuracy, auc, log_loss, and so on, or
        rmse, r2, mae, and so on.
    """

    figures: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures and the remarks, as the command prints them with --json.

        Returns
        -------
        dict
            Figures by name, and `remarks`.
        """
        return {**self.figures, "remarks": document_of(list(self.remarks))}

    def _shown(self) -> list[tuple[str, Any]]:
        of_model = ("model", "model_hash", "data", "engine")
        shown = [(name, value) for name, value in self.figures.items() if name not in of_model]
        return [(name, value) for name, value in shown if isinstance(value, str | int | float)]

    def __getattr__(self, name: str) -> Any:
        if name != "figures" and name in self.figures:
            return self.figures[name]
        raise AttributeError(f"This evaluation has no {name!r}. It has {', '.join(sorted(self))}.")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.figures]

    def __getitem__(self, name: str) -> Any:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


@typed
def evaluate(
    model: Any,
    data: Any,
    *,
    early: bool = False,
    cost: bool = True,
    drop_unlabelled: bool = False,
    threshold: float | str | None = None,
    costs: Any = None,
    metric: str | None = None,
    x: str = "X",
    y: Any = "y",
    workers: int | None = None,
    client: Any = None,
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> Evaluation:
    """Measure the quality of a model on labelled data, and its cost in linear predictions.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set, or its rows. Rows that are not stored as Zarr are written to a
        temporary directory, which workers need to see.
    early : bool, default False
        Also measure the local models (early prediction).
    cost : bool, default True
        Measure the cost, which takes two or three seconds.
    metric : str, optional
        Also compute this score: the name of a scikit-learn scorer, ``"neg_mean_pinball_loss=0.9"`` or
        ``"neg_mean_cost=50"``.

    Returns
    -------
    Evaluation
        Figures by name, which are also attributes: accuracy, auc and so on, or rmse, r2 and so on.

    Raises
    ------
    RefusedError
        For wrong arguments or data.
    IncompleteError
        If workers died.

    Notes
    -----
    Classification adds recall, precision, AUC and the most frequent confusions; regression adds quantiles of
    residuals. Local processes or a Dask cluster evaluate large data, with the same result.

    Examples
    --------
    >>> dcpred.evaluate("model", X_test, y=y_test).accuracy  # doctest: +SKIP
    0.98
    """
    path, taken = address_of_model(model), given_costs(threshold, costs)
    pool = chosen_pool(workers, client)
    with labelled_rows(data, x, y, path, client) as at:
        if workers == -1 and is_small(at.x):
            pool = this_process
        figures = _figures(
            path,
            at.x,
            at.y,
            pool,
            early=early,
            cost=cost,
            drop_unlabelled=drop_unlabelled,
            costs=taken,
            metric=metric,
        )
    return Evaluation(figures)


def _figures(
    path: str | Path,
    x: Address,
    y: Address,
    pool: Pool,
    *,
    early: bool,
    cost: bool,
    drop_unlabelled: bool,
    costs: Costs | None,
    metric: str | None,
) -> dict[str, Any]:
    """The figures of rows at addresses, block by block."""
    artifact = open_artifact(path)
    model = open_evaluated(absolute(path), artifact.hash, early)
    Measures(model, costs, metric)  # It refuses what the model does not provide.
    X, target = open_array(x), open_array(y)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    check_same_names(feature_names(X), artifact.feature_names, str(x))
    add_remarks(*check_targets(X, target, x, y, model.task))
    plan = plan_scoring(
        X.shape[0], X.shape[1], np.dtype(X.dtype).itemsize, zarr_arrays.chunk_rows(X), model.n_outputs
    )
    job = EvaluationJob(
        model=absolute(path),
        model_hash=artifact.hash,
        x=absolute(x),
        y=absolute(y),
        chunk_rows=plan.chunk_rows,
        early=early,
        drop_unlabelled=drop_unlabelled,
        costs=costs,
        metric=metric,
        trained=TrainedRows.of(artifact.provenance),
        stride=sample_stride(plan.n_rows, plan.block_rows),
    )
    with pool() as workers:
        workers.check_memory(
            plan.task_bytes + MEASURES_BYTES,
            "Write the data with smaller chunks, or start fewer or larger workers",
        )
        if workers.where or workers.n_threads() > 1:
            show(f"evaluating {plan}{workers.where}")
        show_dashboard(workers)
        sampled = Statistics(model)
        evaluated = evaluate_blocks(job, nothing_evaluated(job, model), sampled, plan, workers)
    result = _described(path, artifact.hash, x, model, evaluated)
    if (threshold := threshold_of(model, costs)) is not None:
        result["threshold"] = threshold
    result["engine"] = str(chosen(model))
    result["drift"] = document_of(describe_drift(model, sampled, artifact.feature_names, artifact.schema))
    if job.trained is not None:
        trained = replace(job.trained)
        trained.n_compared, trained.n_met = evaluated.n_compared, evaluated.n_met
        result["trained_share"] = trained.known_share()
    promise = evaluated.promise.remark(result)
    add_remarks(*([] if promise is None else [promise]), *evaluation_remarks(result))
    if not cost:
        return result
    show("measuring the cost")
    return result | asdict(
        measure_cost(model, zarr_arrays.read_rows(X, 0, min(plan.chunk_rows, plan.n_rows)))
    )


def evaluate_blocks(
    job: EvaluationJob, evaluated: Evaluated, sampled: Statistics, plan: BlockPlan, workers: Workers
) -> Evaluated:
    """Merge the results of all blocks into `evaluated` as they end, and into `sampled` in their order."""
    if not all(workers.on_each(is_compiled)):
        with show_step(COMPILING, None, ""):
            for _ in workers.on_each(ready_to_evaluate, job):
                pass
    spans = [(start, stop) for _, start, stop in plan.spans()]
    waiting: dict[int, dict[str, Any]] = {}
    n_added = 0
    with show_step("evaluating", plan.n_rows, "rows") as advance:
        try:
            for number, result in workers.each(evaluate_block, [(job, *span) for span in spans]):
                if isinstance(result, Failure):
                    raise _failed(result, *spans[number])
                evaluated.merge(result)
                waiting[number] = result.packed
                while n_added in waiting:
                    sampled.add_packed(waiting.pop(n_added))
                    n_added += 1
                advance(result.n_rows)
        except InterruptedRunError:
            raise InterruptedRunError(
                "interrupted; an evaluation stores nothing: run the same command again"
            ) from None
    return evaluated


def _failed(failure: Failure, start: int, stop: int) -> BaseException:
    if not failure.deaths:
        return failure.error
    return IncompleteError(
        f"Cannot evaluate rows {start:,} to {stop:,}: {counted(failure.deaths, 'worker', 'workers')} died"
        f" ({type(failure.error).__name__}). Start workers with more memory, or evaluate without workers."
    )


def _described(
    path: str | Path, model_hash: str, x: Address, model: Model, evaluated: Evaluated
) -> dict[str, Any]:
    if evaluated.n_unlabelled == evaluated.n_rows:
        raise DataError(
            f"Cannot evaluate {x}: none of its {evaluated.n_rows:,} rows has a target. Name labelled data."
        )
    if evaluated.compact.n == 0:
        counts = Counter[int]()
        for (status, _), n in evaluated.bad.items():
            counts[status] += n
        names = feature_names(open_array(x))
        why = why_unscored(counts, evaluated.bad, names)
        raise IncompleteError(f"Cannot evaluate {x}: {why}. Correct the data.")
    result = {
        "model": str(path),
        "model_hash": model_hash,
        "data": str(x),
        "task": model.task,
        "n_samples": evaluated.n_rows - evaluated.n_unlabelled,
        "n_bad": evaluated.n_rows - evaluated.n_unlabelled - evaluated.compact.n,
        "n_unlabelled": evaluated.n_unlabelled,
        "trained_share": None,
        "predicted_cost_ratio": None if model.leaf_models is not None else predict_cost(model).cost_ratio,
        **evaluated.compact.as_dict(),
    }
    if evaluated.local is not None:
        local = evaluated.local.as_dict()
        result |= {f"early_{name}": local[name] for name in EARLY if name in local}
    return without_infinite(result)


def without_infinite(result: dict[str, Any]) -> dict[str, Any]:
    """The result with None for figures that are not finite, which JSON does not have, and their names."""
    names = [name for name, value in result.items() if isinstance(value, float) and not np.isfinite(value)]
    return result | dict.fromkeys(names) | ({"beyond_float64": names} if names else {})


def evaluation_remarks(result: dict[str, Any]) -> list[Remark]:
    """Remarks on an evaluation besides its figures."""
    of_figures = (_trained(result), _one_class(result), _infinite(result), _few(result), _perfect(result))
    return [*filter(None, of_figures), *unscored_rows(result), *drift_remarks(result.get("drift"))]


def _trained(result: dict[str, Any]) -> Remark | None:
    """A remark on rows that the model was trained on."""
    share, data = result.get("trained_share") or 0.0, result["data"]
    if share < SHOWN_SHARE:
        return None
    part = "all" if share == 1 else f"about {100 * share:.0f} % of the"
    text = f"{part} rows of {data} are equal to rows that the model was trained on. It does worse on new ones"
    return remark("trained-rows", text, file=data, share=share)


def _one_class(result: dict[str, Any]) -> Remark | None:
    """A remark on rows that all have one class."""
    present = [line["class"] for line in result.get("classes", ()) if line["rows"]]
    if len(present) != 1:
        return None
    text = f"all rows of {result['data']} have the class {present[0]}: accuracy is the recall of that class"
    return remark("one-class", f"{text}, and there is no AUC", file=result["data"], share=1.0)


def _few(result: dict[str, Any]) -> Remark | None:
    """A remark on few rows."""
    n = result["n_samples"] - result["n_bad"]
    if n >= FEW_ROWS:
        return None
    return remark("few-rows", f"only {counted(n, 'row is', 'rows are')} evaluated", file=result["data"])


def _perfect(result: dict[str, Any]) -> Remark | None:
    """A remark on predictions that are all right, or would be with another threshold."""
    n, is_class = result["n_samples"] - result["n_bad"], "accuracy" in result
    at_best = 1.0 in (result.get("accuracy"), result.get("auc")) if is_class else result.get("r2") or 0.0
    if n < PERFECT_ROWS or at_best <= PERFECT_R2 or (result.get("trained_share") or 0.0) >= SHOWN_SHARE:
        return None
    what = "have the right label" if is_class else "have nearly their value"
    what = what if result.get("accuracy", 1.0) == 1.0 else "are on the right side of some threshold"
    return remark("perfect-fit", f"all {n:,} rows {what}, which is too good for most tasks")


def _infinite(result: dict[str, Any]) -> Remark | None:
    """A remark on figures beyond the range of float64."""
    names = result.get("beyond_float64")
    if not names:
        return None
    text = f"{' and '.join(names)} of {result['data']} is larger in size than any float64"
    return remark("infinite-figure", text, file=result["data"])


def unscored_rows(result: dict[str, Any]) -> list[Remark]:
    """A remark on labelled rows without a score."""
    n_bad, n_rows = result["n_bad"], result["n_samples"]
    if not n_bad:
        return []
    text = f"{n_bad:,} of {n_rows:,} labelled rows of {result['data']} have no score, and are skipped"
    return [remark("unscored-rows", text, "correct the data", file=result["data"], share=n_bad / n_rows)]


def check_targets(
    X: zarr.Array[Any], target: zarr.Array[Any], x: Address, y: Address, task: str
) -> list[Remark]:
    """Raise DataError without a target for each row of X; returns a remark on missing chunks."""
    if X.shape[0] == 0:
        raise DataError(f"Cannot evaluate {x}: it has no rows. Pass data with rows.")
    if target.shape != (X.shape[0],):
        raise DataError(
            f"Cannot use y at {y}: its shape is {target.shape}, but X needs one value for each row, shape"
            f" ({X.shape[0]},). Correct the one that is wrong."
        )
    stored_chunks.check_complete(x, X)
    if task == "classification":
        lack = stored_chunks.check_labels(y, target)
        return [] if lack is None else [lack]
    stored_chunks.check_complete(y, target)
    return []
