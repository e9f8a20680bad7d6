"""What the scores of a run are worth, where the answers are known: from what is stored, without the model's
scoring anything again.
"""

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

COMPARED = 16  # first rows of each piece that are scored again where they may be others
TOLERANCE = 0.01  # share of the deviation of decision values by which the same rows may differ


def evaluate_run(run: Run, x: str, y: str, say: Reporter) -> dict[str, Any]:
    """The fields of an evaluation, of the rows that are scored.

    x  address of the rows that were scored, or of the same rows elsewhere
    y  address of their targets

    Raises DataError, also where rows of x do not have the scores of the run.
    """
    if run.model is None or DECISION not in run.run.outputs:
        lacking = "its model is not there any more" if run.model is None else "it holds no decision values"
        raise DataError(f"the scores of {run.run.output} were to be held against {y}, but {lacking}")
    target = zarr_arrays.open_array(y)
    if target.shape != (run.run.n_rows,):
        raise DataError(
            f"the scores of {run.run.output} were to be held against {y}, but that has shape {target.shape}"
            f" and the run {run.run.n_rows:,} rows; name the data that were scored"
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
        raise DataError(f"the scores of {run.run.output} were to be held against {y}, but no row has one")
    told = {"task": run.model.task, "n_samples": n, "n_bad": n - found.n, "data": y, "model": run.run.model}
    return without_infinite(told | found.as_dict())


def _check_rows(run: Run, model: Model, x: str, start: int, stored: Scores) -> None:
    """Raise DataError where the first rows of a piece have other decision values than were stored, which are
    those of other rows. A row that has no score, here or there, tells nothing.
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
            f"the scores of {run.run.output} were to be held against the answers of {x}, but its rows from"
            f" {start:,} on are not those that were scored, which lie at {run.run.x}; name the data that were"
            " scored"
        )
