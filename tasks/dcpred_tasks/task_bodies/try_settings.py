"""The task bodies of a search for settings: rows of some cells are gathered from all blocks, scalings are
learned, and candidates are tried.
"""

import numpy as np

from dcpred_tasks.errors import DataError
from dcpred_tasks.process import one_thread
from dcpred_tasks.scratch.training_job import TrainJob
from dcpred_tasks.scratch.trial_files import (
    cell_rows_file,
    read_cells,
    read_scaling,
    read_trial,
    write_scaling,
    write_tried,
)
from dcpred_tasks.storage.atomic_files import write_arrays
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies.train_model import Receipt, block_rows, columns_of, receipt
from dcpred_tasks.training.reference_models import reference_decisions
from dcpred_tasks.training.refinement import check_arithmetic
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import (
    Trial,
    fit_trial_scaling,
    shape_of,
    tried_decisions,
)


def gather_cells(job: TrainJob, block: int, start: int, stop: int) -> Receipt:
    """Keep the rows of a block that lie in the cells in use."""
    cells = read_cells(job)
    rows = block_rows(job, cells.classes, cells.class_factors, start, stop)
    with one_thread():
        cell = cells.tree.descend(columns_of(job, cells.scaling, rows))
    at = np.flatnonzero(np.isin(cell, cells.chosen))
    own = rows.take(at)
    kept = {"X": own.X, "target": own.target, "weight": own.weight, "number": own.number, "cell": cell[at]}
    write_arrays(cell_rows_file(job, block), kept)
    return receipt(stop - start)


def learn_trial_scaling(
    job: TrainJob, fold: int, settings: Settings, repetitions: int, digest: str
) -> Receipt | None:
    """Learn the scaling of settings; None where its features exceed single precision."""
    rows, survey = read_trial(job, fold)
    with one_thread():
        try:
            fitted = fit_trial_scaling(rows, survey, settings, repetitions)
        except DataError:
            return None
    write_scaling(job, fold, digest, fitted)
    return receipt(len(rows.X))


def try_settings(job: TrainJob, fold: int, trial: Trial, scaling: str, digest: str) -> Receipt:
    """Try settings with a scaling of that digest."""
    check_arithmetic(job.refined_by)
    rows, survey = read_trial(job, fold)
    decision, model = tried_decisions(rows, survey, trial, read_scaling(job, fold, scaling).scaling)
    write_tried(job, fold, digest, decision, shape_of(model))
    return receipt(len(rows.X))


def try_reference(job: TrainJob, fold: int, name: str, most: int) -> Receipt:
    """Try a reference model."""
    rows, survey = read_trial(job, fold)
    settings = job.settings
    with one_thread():
        decision = reference_decisions(rows, name, settings.task, len(survey.classes), most, settings.seed)
    write_tried(job, fold, reference_digest(name), decision, np.zeros(0))
    return receipt(len(rows.X))


def reference_digest(name: str) -> str:
    """The name of a reference model in its file."""
    return digest_json({"reference": name})[:20]
