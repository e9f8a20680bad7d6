"""What the scores of a run are worth, where the answers are known: from what is stored, without the model's
scoring anything again.
"""

from typing import Any

from dcpred.evaluation.known_targets import known_targets
from dcpred.evaluation.measures import Measures
from dcpred.execution.progress import Reporter
from dcpred.reports.run_page import Run
from dcpred.results.stored_scores import open_stored
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.scoring.outputs import DECISION
from dcpred_tasks.storage import stored_chunks, zarr_arrays


def evaluate_run(run: Run, y: str, say: Reporter) -> dict[str, Any]:
    """The fields of an evaluation, of the rows that are scored.

    y  address of the targets, as many as the run has rows

    Raises DataError.
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
    stored_chunks.check_complete(y, target)
    scores = open_stored(run.run.output, partial=True)
    found, n = Measures(run.model), 0
    with say.step("evaluating", run.run.n_rows, "rows") as advance:
        for start, stop, done in scores.pieces():
            if done:
                values, status = scores.read([DECISION], start, stop, done)
                good = status == Status.OK
                decision = values[DECISION].reshape(stop - start, -1)
                found.add(decision[good], known_targets(run.model, target, start, stop)[good])
                n += stop - start
            advance(stop - start)
    if not found.n:
        raise DataError(f"the scores of {run.run.output} were to be held against {y}, but no row has one")
    told = {"task": run.model.task, "n_samples": n, "n_bad": n - found.n, "data": y, "model": run.run.model}
    return told | found.as_dict()
