"""How good a model is on labelled data, and what it costs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.cost.measured import measure_cost
from dcpred.evaluation.known_targets import known_targets
from dcpred.evaluation.measures import Measures
from dcpred.execution.progress import COMPILING, SILENT, Reporter
from dcpred.plan import plan_scoring
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.dtypes import LEAF_DTYPE, Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import check_features, check_matrix
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import is_compiled, score_rows, warm_up
from dcpred_tasks.storage import stored_chunks, zarr_arrays

TOLD_SHARE = 0.02  # share of rows that were trained on, from which on a person is told
EARLY = ("accuracy", "rmse", "r2")  # what is said of the local models


def evaluate(
    path: str | Path, x: str, y: str, *, early: bool = False, cost: bool = True, say: Reporter = SILENT
) -> dict[str, Any]:
    """Quality and cost on the rows of a Zarr data set, in this process, piece by piece.

    Returns n_samples, n_bad (rows without a score, left out), what `Measures` tells (accuracy or rmse,
    r2 and so on), with `early` the same quality of the local models as early_accuracy (or early_rmse,
    early_r2), trained_share (about which share of the rows the model was trained on; None where that cannot
    be told), and with `cost` the fields of `Cost`, which takes two or three seconds. Raises RefusedErrors.
    """
    artifact = open_artifact(path)
    model = artifact.model(support=early)
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
    if not is_compiled():
        with say.step(COMPILING, None, ""):
            warm_up(model)
    compact, local = Measures(model), Measures(model) if early else None
    trained = TrainedRows.of(artifact.provenance)
    with say.step("evaluating", plan.n_rows, "rows") as advance, one_thread():
        for start in range(0, plan.n_rows, plan.chunk_rows):
            rows = zarr_arrays.read_rows(X, start, min(start + plan.chunk_rows, plan.n_rows))
            wanted = known_targets(model, target, start, start + len(rows))
            leaves = np.empty(len(rows), LEAF_DTYPE)
            decision, status = score_rows(model, rows, leaves=leaves)
            good = status == Status.OK
            compact.add(decision[good], wanted[good], leaves[good])
            if trained is not None:
                trained.add(rows)
            if local is not None:
                decision, _ = score_rows(model, rows, early=True)
                local.add(decision[good], wanted[good])
            advance(len(rows))
    if compact.n == 0:
        raise DataError(
            f"none of the {plan.n_rows:,} rows of {x} could be scored (NaN or infinity); clean the data"
        )
    result = {
        "model": str(path),
        "model_hash": artifact.hash,
        "data": x,
        "task": model.task,
        "n_samples": plan.n_rows,
        "n_bad": plan.n_rows - compact.n,
        "trained_share": None if trained is None else trained.known_share(),
        **compact.as_dict(),
    }
    if remark := trained_remark(result):
        say.say(remark)
    if local is not None:
        told = local.as_dict()
        result |= {f"early_{name}": told[name] for name in EARLY if name in told}
    if not cost:
        return result
    say.say("measuring the cost")
    return result | asdict(
        measure_cost(model, zarr_arrays.read_rows(X, 0, min(plan.chunk_rows, plan.n_rows)))
    )


def trained_remark(result: dict[str, Any]) -> str:
    """What is to be told where an evaluation is of rows that the model was trained on, else nothing."""
    share = result.get("trained_share") or 0.0
    if share < TOLD_SHARE:
        return ""
    return (
        f"{'all' if share == 1 else f'about {100 * share:.0f} % of the'} rows of {result['data']} are equal"
        " to rows that the model was trained on; it does worse on new ones, so evaluate it on rows that"
        " `dcpred split` has set aside"
    )


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
