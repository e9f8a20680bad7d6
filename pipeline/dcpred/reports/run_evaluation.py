"""The quality of a run's stored scores on labelled data, without scoring again."""

from typing import Any

import numpy as np

from dcpred.evaluation.evaluate import without_infinite
from dcpred.execution.progress import Reporter
from dcpred.reports.run_page import Run
from dcpred.results.stored_scores import open_stored
from dcpred.runs.ledger import open_ledger
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.evaluation.targets import known_targets
from dcpred_tasks.model.compact_model import Model, Scores, score_rows
from dcpred_tasks.scoring.outputs import DECISION
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import absolute

COMPARED = 16  # first rows of each piece that are scored again to detect other rows
TOLERANCE = 0.01  # fraction of the deviation of decision values by which equal rows may differ


def evaluate_run(run: Run, x: str, y: str, say: Reporter) -> dict[str, Any]:
    """The fields of an evaluation, of the scored rows.

    x  address of the scored rows, or of the same rows elsewhere
    y  address of their targets

    Raises DataError, also if rows of x do not have the scores of the run.
    """
    if run.model is None or DECISION not in run.run.outputs:
        lacking = "its model was removed" if run.model is None else "it holds no decision values"
        raise DataError(f"Cannot evaluate the scores of {run.run.output} on {y}: {lacking}. Score again.")
    target = zarr_arrays.open_array(y)
    if target.shape != (run.run.n_rows,):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: it has shape {target.shape}"
            f" and the run {run.run.n_rows:,} rows. Name the scored data."
        )
    if run.model.task != "classification":
        stored_chunks.check_complete(y, target)
    elif remark := stored_chunks.check_labels(y, target):
        say.say(remark)
    if absolute(x) == absolute(run.run.x) and not open_ledger(run.run.output).has_same_input():
        raise DataError(
            f"Cannot compare the scores of {run.run.output} with {y}: {x} changed since its rows were scored."
            " Score it again."
        )
    scores = open_stored(run.run.output, partial=True)
    found, n = Measures(run.model, run.run.costs), 0
    with say.step("evaluating", run.run.n_rows, "rows") as advance:
        for start, stop, done in scores.pieces():
            if done:
                values, status = scores.read([DECISION], start, stop, done)
                good = status == Status.OK
                decision = values[DECISION].reshape(stop - start, -1)
                _check_rows(run, run.model, x, start, decision)
                wanted, _ = known_targets(run.model, target, start, stop)
                found.add(run.model, decision[good], wanted[good])
                n += stop - start
            advance(stop - start)
    if not found.n:
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: no row has one. Clean the data."
        )
    summary = {
        "task": run.model.task,
        "n_samples": n,
        "n_bad": n - found.n,
        "data": y,
        "model": run.run.model,
    }
    return without_infinite(summary | found.as_dict())


def _check_rows(run: Run, model: Model, x: str, start: int, stored: Scores) -> None:
    """Raise DataError if the first rows of a piece have other decision values than stored: they are other
    rows. Rows without a score, here or there, are ignored.
    """
    if absolute(x) == absolute(run.run.x):
        return
    X = zarr_arrays.open_array(x)
    found, _ = score_rows(model, zarr_arrays.read_rows(X, start, start + COMPARED))
    spread = np.nanmedian(np.abs(stored - np.nanmedian(stored, axis=0)), axis=0)
    rounding = 8 * np.finfo(stored.dtype).eps * np.abs(found)
    wrong = np.abs(found - stored[: len(found)]) > TOLERANCE * spread + rounding
    if wrong.any(axis=1).mean() > 0.5 or not len(found):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {x}: its rows from"
            f" {start:,} on are not the scored ones, which lie at {run.run.x}. Name the scored"
            " data."
        )
