"""The task bodies of tuning: rows of a few leaves are gathered from all blocks, settings tried on them, and
whole models tried on sampled rows.
"""

from collections.abc import Sequence

import numpy as np

from dcpred_tasks.process import one_thread
from dcpred_tasks.scratch.training_job import TrainJob, read_targets
from dcpred_tasks.scratch.trial_files import (
    losses_file,
    probe_file,
    read_trial_tree,
    read_whole,
    tried_file,
)
from dcpred_tasks.storage.atomic_files import read_arrays, write_arrays
from dcpred_tasks.task_bodies.train_model import Receipt, block_rows, columns_of, receipt
from dcpred_tasks.training.overlap import near_leaves
from dcpred_tasks.training.refinement import check_arithmetic
from dcpred_tasks.training.sampling import row_hash
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import FOLDS, TrialRows, Verdict, folds_of, try_leaf
from dcpred_tasks.training.whole_trial import model_losses


def probe_block(
    job: TrainJob, trees: Sequence[int], overlap: int, block: int, start: int, stop: int
) -> Receipt:
    """Keep the rows of a block that the trials of any of these trees need."""
    trials = {number: read_trial_tree(job, number) for number in trees}
    first = trials[trees[0]]
    rows = block_rows(job, first.classes, first.class_factors, start, stop)
    for number, trial in trials.items():
        X = columns_of(job, trial.scaling, rows)
        with one_thread():
            leaves = np.column_stack([trial.tree.descend(X), near_leaves(trial.tree, X, overlap - 1)])
        kept = np.zeros(trial.tree.n_leaves + 1)  # the last element stands for "no leaf", −1
        kept[trial.leaves] = trial.kept
        chance = row_hash(rows.number, job.settings.seed + 2).astype(np.float64) / 2.0**64
        row, rank = np.nonzero(chance[:, None] < kept[leaves])
        used = trial.scaling.factor != 0
        used[0] |= not used.any()  # solvers need a feature, even one of zeros
        columns, recoded = np.flatnonzero(used), None
        if job.coded:
            means = np.isin(trial.scaling.source[columns], read_targets(job).columns)
            columns = np.concatenate([columns[~means], columns[means]])
            kept_rows, last = rows.take(row), columns[len(columns) - means.sum() :]
            each = [columns_of(job, trial.scaling, kept_rows, held)[:, last] for held in range(FOLDS)]
            recoded = np.stack(each, axis=1)
        fold = folds_of(rows.number, job.settings.seed, trial.rare)
        found = TrialRows(
            X[row][:, columns],
            rows.target[row],
            rows.weight[row],
            rows.number[row],
            rank.astype(np.int64),
            fold[row],
            recoded,
        )
        write_arrays(probe_file(job, number, block), found.arrays() | {"leaf": leaves[row, rank]})
    return receipt(stop - start)


def try_settings(
    job: TrainJob,
    number: int,
    leaf: int,
    tries: Sequence[Settings],
    n_outputs: int,
    fold: int,
    share: float,
) -> tuple[Receipt, list[Verdict]]:
    """Judge settings on one leaf."""
    check_arithmetic(job.refined_by)
    rows = TrialRows(**read_arrays(tried_file(job, number, leaf)))
    with one_thread():
        verdicts = try_leaf(rows, tries, n_outputs, leaf, fold, share)
    return receipt(len(rows.X)), verdicts


def try_model(job: TrainJob, number: int, settings: Settings, digest: str) -> Receipt:
    """Judge a whole model with these settings and the scaling of a tree."""
    check_arithmetic(job.refined_by)
    rows, held, survey = read_whole(job)
    scaling = read_trial_tree(job, number).scaling
    given = rows.X, rows.target, rows.weight, held, survey
    write_arrays(losses_file(job, number, digest), {"loss": model_losses(*given, settings, scaling)})
    return receipt(len(rows.X))
