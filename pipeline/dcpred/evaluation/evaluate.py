"""How good a model is on labelled data, and what it costs.

Rows are evaluated in blocks (dcpred_tasks.task_bodies.evaluate_block), in this process or on workers. What
blocks find is merged: the result is the same, bit for bit, for any number of workers.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.cost.measured import measure_cost
from dcpred.cost.predicted import predict_cost
from dcpred.execution.progress import COMPILING, SILENT, Reporter, counted, say_dashboard
from dcpred.execution.workers import Pool, Workers, this_process
from dcpred.plan import MIB, BlockPlan, plan_scoring
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.drift_words import describe_drift
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.errors import DataError, IncompleteError, InterruptedRunError
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.guard import Failure
from dcpred_tasks.model.compact_model import Model, check_features, check_matrix
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.label_rule import Costs, threshold_of
from dcpred_tasks.scoring.engines import chosen
from dcpred_tasks.scoring.scorer import is_compiled
from dcpred_tasks.scoring.statistics import Statistics, sample_stride
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import absolute
from dcpred_tasks.task_bodies.evaluate_block import (
    Evaluated,
    EvaluationJob,
    evaluate_block,
    nothing_evaluated,
    open_evaluated,
    ready_to_evaluate,
)

TOLD_SHARE = 0.02  # share of rows that were trained on, from which on a person is warned
EARLY = ("accuracy", "rmse", "r2")  # figures of the local models
MEASURES_BYTES = 128 * MIB  # what a task counts in, and what its rows and scores are copied to
FEW_NUMBERS = 2**27  # numbers in X that one process evaluates in less time than workers need to start


def is_small(x: str) -> bool:
    """Whether X has so few numbers that workers would not save time."""
    return int(np.prod(zarr_arrays.open_array(x).shape, dtype=np.int64)) <= FEW_NUMBERS


def evaluate(
    path: str | Path,
    x: str,
    y: str,
    pool: Pool = this_process,
    *,
    early: bool = False,
    cost: bool = True,
    drop_unlabelled: bool = False,
    costs: Costs | None = None,
    metric: str | None = None,
    say: Reporter = SILENT,
) -> dict[str, Any]:
    """Quality and cost on the rows of a Zarr data set, block by block.

    Returns n_samples, n_bad (rows without a score, left out), n_unlabelled (rows without a target, left
    out), the fields of `Measures` (accuracy or rmse, r2 and so on), with `early` the same quality of the
    local models as early_accuracy (or early_rmse, early_r2), of two classes threshold (the probability from
    which on rows got the label of the second one), trained_share (about which share of the rows the
    model was trained on; None where that is unknown), predicted_cost_ratio (None for baselines), engine (what
    scores rows in this process, and why nothing better), drift (as in the manifest of a run), and with `cost`
    the fields of `Cost`, whose measurement takes two or three seconds. Raises RefusedErrors, IncompleteError
    where workers died, InterruptedRunError.

    drop_unlabelled  whether rows without a target are left out, not refused
    costs            costs of labels (dcpred_tasks.model.label_rule); None: labels follow decision values
    metric           a score of dcpred_tasks.evaluation.named_scores; it becomes `metric` and `score`
    """
    artifact = open_artifact(path)
    model = open_evaluated(absolute(path), artifact.hash, early)
    Measures(model, costs, metric)  # It refuses what the model does not give.
    X, target = zarr_arrays.open_array(x), zarr_arrays.open_array(y)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    check_same_names(feature_names(X), artifact.feature_names, x)
    if remark := check_targets(X, target, x, y, model.task):
        say.say(remark)
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
            "write the data with smaller chunks, or start fewer or larger workers",
        )
        if workers.where or workers.n_threads() > 1:
            say.say(f"evaluating {plan}{workers.where}")
        say_dashboard(say, workers)
        sampled = Statistics(model)
        found = evaluate_blocks(job, nothing_evaluated(job, model), sampled, plan, workers, say)
    result = _described(path, artifact.hash, x, model, found)
    if (threshold := threshold_of(model, costs)) is not None:
        result["threshold"] = threshold
    result["engine"] = str(chosen(model))
    result["drift"] = describe_drift(artifact, model, sampled)
    if job.trained is not None:
        trained = replace(job.trained)
        trained.n_compared, trained.n_met = found.n_compared, found.n_met
        result["trained_share"] = trained.known_share()
    for remark in evaluation_remarks(result):
        say.say(remark)
    if not cost:
        return result
    say.say("measuring the cost")
    return result | asdict(
        measure_cost(model, zarr_arrays.read_rows(X, 0, min(plan.chunk_rows, plan.n_rows)))
    )


def evaluate_blocks(
    job: EvaluationJob,
    found: Evaluated,
    sampled: Statistics,
    plan: BlockPlan,
    workers: Workers,
    say: Reporter,
) -> Evaluated:
    """What all blocks find, merged into `found` as they end, and into `sampled` in their order."""
    if not all(workers.on_each(is_compiled)):
        with say.step(COMPILING, None, ""):
            for _ in workers.on_each(ready_to_evaluate, job):
                pass
    spans = [(start, stop) for _, start, stop in plan.spans()]
    waiting: dict[int, dict[str, Any]] = {}
    n_added = 0
    with say.step("evaluating", plan.n_rows, "rows") as advance:
        try:
            for number, result in workers.each(evaluate_block, [(job, *span) for span in spans]):
                if isinstance(result, Failure):
                    raise _failed(result, *spans[number])
                found.merge(result)
                waiting[number] = result.packed
                while n_added in waiting:
                    sampled.add_packed(waiting.pop(n_added))
                    n_added += 1
                advance(result.n_rows)
        except InterruptedRunError:
            raise InterruptedRunError(
                "interrupted in an evaluation, which keeps nothing; run the same command again"
            ) from None
    return found


def _failed(failure: Failure, start: int, stop: int) -> BaseException:
    if not failure.deaths:
        return failure.error
    return IncompleteError(
        f"{counted(failure.deaths, 'worker', 'workers')} died evaluating rows {start:,} to {stop:,}"
        f" ({type(failure.error).__name__}); start workers with more memory, or evaluate without workers"
    )


def _described(path: str | Path, model_hash: str, x: str, model: Model, found: Evaluated) -> dict[str, Any]:
    if found.n_unlabelled == found.n_rows:
        raise DataError(f"none of the {found.n_rows:,} rows of {x} has a target; name labelled data")
    if found.compact.n == 0:
        raise DataError(
            f"none of the {found.n_rows:,} rows of {x} could be scored (NaN or infinity); clean the data"
        )
    result = {
        "model": str(path),
        "model_hash": model_hash,
        "data": x,
        "task": model.task,
        "n_samples": found.n_rows - found.n_unlabelled,
        "n_bad": found.n_rows - found.n_unlabelled - found.compact.n,
        "n_unlabelled": found.n_unlabelled,
        "trained_share": None,
        "predicted_cost_ratio": None if model.leaf_models is not None else predict_cost(model).cost_ratio,
        **found.compact.as_dict(),
    }
    if found.local is not None:
        local = found.local.as_dict()
        result |= {f"early_{name}": local[name] for name in EARLY if name in local}
    return without_infinite(result)


def without_infinite(result: dict[str, Any]) -> dict[str, Any]:
    """The same with None for figures beyond float64, which JSON does not have, and their names."""
    names = [name for name, value in result.items() if isinstance(value, float) and not np.isfinite(value)]
    return result | dict.fromkeys(names) | ({"beyond_float64": names} if names else {})


def evaluation_remarks(result: dict[str, Any]) -> list[str]:
    """What a person has to know of an evaluation beside its figures."""
    return [remark for remark in (_trained(result), _one_class(result), _infinite(result)) if remark]


def _trained(result: dict[str, Any]) -> str:
    """Of rows that the model was trained on."""
    share = result.get("trained_share") or 0.0
    if share < TOLD_SHARE:
        return ""
    return (
        f"{'all' if share == 1 else f'about {100 * share:.0f} % of the'} rows of {result['data']} are equal"
        " to rows that the model was trained on; it does worse on new ones, so evaluate it on rows that"
        " `dcpred split` has set aside"
    )


def _one_class(result: dict[str, Any]) -> str:
    """Of rows that all have one class."""
    present = [one["class"] for one in result.get("classes", ()) if one["rows"]]
    if len(present) != 1:
        return ""
    return (
        f"all rows of {result['data']} have the class {present[0]}: accuracy is the recall of that class, and"
        " there is no AUC; evaluate rows of all classes"
    )


def _infinite(result: dict[str, Any]) -> str:
    """Of figures beyond the range of float64."""
    names = result.get("beyond_float64")
    return f"{' and '.join(names)} of {result['data']} is larger in size than any float64" if names else ""


def check_targets(X: zarr.Array[Any], target: zarr.Array[Any], x: str, y: str, task: str) -> str:
    """Raise DataError unless there is a target for each row of X; returns a remark on chunks of the target
    that are not stored, "" where all are.
    """
    if X.shape[0] == 0:
        raise DataError(f"X at {x} has no rows, so that there is nothing to evaluate; pass data with rows")
    if target.shape != (X.shape[0],):
        raise DataError(
            f"y must hold one value for each row of X, shape ({X.shape[0]},), but y at {y} has shape"
            f" {target.shape}; correct the one that is wrong"
        )
    stored_chunks.check_complete(x, X)
    if task == "classification":
        return stored_chunks.check_labels(y, target)
    stored_chunks.check_complete(y, target)
    return ""
