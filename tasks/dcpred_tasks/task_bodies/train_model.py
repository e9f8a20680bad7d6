"""The task bodies of training and of trials of settings. Each takes addresses and small values,
writes one result, may run twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import check_exact_rows
from dcpred_tasks.model.class_codes import class_codes, names_of_classes
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import TargetTransform
from dcpred_tasks.model.term import Term
from dcpred_tasks.process import one_thread, peak_memory_bytes, process_name
from dcpred_tasks.scratch import (
    HELD,
    SUMS,
    LeafWork,
    Rows,
    Source,
    TrainJob,
    cell_rows_file,
    join_rows,
    read_cells,
    read_division,
    read_fitted,
    read_fitted_terms,
    read_folds,
    read_leaves,
    read_scaling,
    read_targets,
    read_tree,
    read_trial,
    survey_arrays,
    write_index,
    write_piece,
    write_scaling,
    write_terms,
    write_tried,
)
from dcpred_tasks.storage.atomic_files import write_arrays
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.categories import target_sums
from dcpred_tasks.training.fitted_to_targets import WithoutGroups, encoded
from dcpred_tasks.training.held_out import HeldOut, LeafRowsToFit, fit_and_judge
from dcpred_tasks.training.in_memory import (
    Trial,
    fit_trial_scaling,
    fit_trial_terms,
    reference_decisions,
    shape_of,
    tried_decisions,
)
from dcpred_tasks.training.leaf import FittedLeaf
from dcpred_tasks.training.partition import n_outputs, row_weights
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import drawn, fold_rows, survey_rows, thinned
from dcpred_tasks.training.tree_fitting import SPLIT_SAMPLE_ROWS, split_centres, split_rows


@dataclass(frozen=True)
class Receipt:
    """The report of a task to the driver; its result is on disk."""

    n_rows: int
    """Rows that it processed."""
    process: str
    """The worker process that ran it, host:pid."""
    peak_memory_bytes: int
    """Peak memory of that process so far."""


def receipt(n_rows: int) -> Receipt:
    return Receipt(n_rows, process_name(), peak_memory_bytes())


def survey_block(job: TrainJob, block: int, start: int, stop: int, sample_rows: int) -> Receipt:
    """Survey every stored value of a block; write its part of a sample of about `sample_rows` of all rows,
    and sums of its targets by category for target encoding.
    """
    X, y, weight = _read_block(job, start, stop)
    check_exact_rows(X, feature_names(job.array("x")))
    settings, numbers = job.settings, np.arange(start, stop, dtype=np.int64)
    of_settings = settings.task, settings.missing, settings.target_transform
    survey = survey_rows(X, y, weight, start, *of_settings)
    names = names_of_classes(getattr(job.array("y"), "attrs", {}), y.dtype)
    if names is not None and settings.task == "classification":
        class_codes(y if weight is None else np.where(weight > 0, y, 0), len(names), "y", start)
    of_rows = X, y, weight, numbers, job.coded, settings.task
    sums = target_sums(*of_rows, read_folds(job)) if job.coded else None
    mine = drawn(numbers, job.n_rows, sample_rows, settings.seed)
    if weight is not None:
        mine &= weight > 0
    sample_weight = np.ones(int(mine.sum())) if weight is None else weight[mine]
    write_arrays(
        job.survey_file(block, sample_rows),
        {"sample_X": X[mine], "sample_target": y[mine], "sample_weight": sample_weight}
        | {"sample_number": start + np.flatnonzero(mine)}
        | survey_arrays(survey)
        | {f"{SUMS}{k}": v for k, v in (asdict(sums) if sums else {}).items()},
    )
    return receipt(stop - start)


def columns_of(job: TrainJob, scaling: Scaling, rows: Rows) -> SingleArray:
    """Stored rows as scaled columns; encoded means do not know the row."""
    return scaling(encoded(read_targets(job) if job.coded else None, rows.X, rows.number))


def route_block(job: TrainJob, block: int, start: int, stop: int) -> Receipt:
    """Send the rows of a block down the tree and write them sorted by leaf."""
    division = read_division(job)
    rows = block_rows(job, division.classes, division.class_factors, start, stop)
    rows = replace(rows, target=TargetTransform(job.settings.target_transform).forward(rows.target))
    with one_thread():
        leaf = division.tree.descend(columns_of(job, division.known.scaling, rows))
    write_piece(job.piece(0, block), rows, leaf)
    return receipt(len(rows.X))


def block_rows(
    job: TrainJob, classes: NDArray[Any], class_factors: FloatArray, start: int, stop: int
) -> Rows:
    """The rows of a block that count, with their targets as numbers."""
    X, y, weight = _read_block(job, start, stop)
    target = y if job.settings.task == "regression" else np.searchsorted(classes, y)
    weights = row_weights(target, weight, class_factors)
    rows = Rows(X, target.astype(np.float64), weights, np.arange(start, stop, dtype=np.int64))
    return rows if weight is None else rows.take(np.flatnonzero(weight > 0))


def split_leaf(job: TrainJob, source: Source, n_rows: int, generation: int) -> Receipt:
    """Divide a leaf with too many rows: its rows go to a generation of their own, sorted by child."""
    division, settings = read_division(job), job.settings
    sampled = []
    for _, part in read_leaves(job, [source]):
        mine = drawn(part.number, n_rows, SPLIT_SAMPLE_ROWS, settings.seed)
        sampled.append(part.take(np.flatnonzero(mine)))
    with one_thread():
        sample = columns_of(job, division.known.scaling, join_rows(sampled))
        centres = split_centres(sample, n_rows, settings.own_leaf_rows, settings.seed)
        pieces = 0
        for part in _grouped(job, [source]):
            child = split_rows(columns_of(job, division.known.scaling, part), centres)
            write_piece(job.piece(generation, pieces), part, child)
            pieces += 1
    counts = write_index(job, generation, range(pieces), max(len(centres), 1))
    write_arrays(job.split_file(generation), {"centres": centres, "counts": counts})
    return receipt(n_rows)


def halo_leaves(job: TrainJob, first: int, group: Sequence[LeafWork], generations: Sequence[int]) -> Receipt:
    """Send the rows of neighbouring leaves to the leaves nearest to them after their own: a generation for
    each, in pieces from number `first` on. Such rows go to few leaves; those of a block would go to all.
    """
    division, tree = read_division(job), read_tree(job)
    number = first
    for rows in _grouped(job, [source for work in group for source in work.sources]):
        with one_thread():
            near = tree.near_leaves(columns_of(job, division.known.scaling, rows), len(generations))
        for generation, leaf in zip(generations, near.T, strict=True):
            some = np.flatnonzero(leaf >= 0)
            write_piece(job.piece(generation, number), rows.take(some), leaf[some])
        number += 1
    write_arrays(job.halo_file(generations[0], first), {"pieces": np.array(number - first)})
    return receipt(sum(work.n_rows for work in group))


def fit_leaves(job: TrainJob, group: Sequence[LeafWork]) -> Receipt:
    """Gather the rows of one final leaf, or of several small ones, and fit each."""
    gathered, folded = _gather(job, {source: work.leaf for work in group for source in work.sources})
    halos = {Source(of, work.leaf): work.leaf for work in group for of in work.borrowed}
    borrowed, _ = _gather(job, halos)
    for work in group:
        fitted, held = _fit_leaf(job, gathered.pop(work.leaf), borrowed.pop(work.leaf, None), work)
        write_arrays(
            job.leaf_file(work.leaf),
            {f"{HELD}{name}": value for name, value in asdict(held).items()}
            | asdict(fitted)
            | {"rows": np.array(folded[work.leaf], np.uint64)},
        )
    return receipt(sum(work.n_rows for work in group))


def _gather(job: TrainJob, of: dict[Source, int]) -> tuple[dict[int, Rows], dict[int, int]]:
    """The rows of each leaf, thinned to max_leaf_rows, and `fold_rows` of all rows that were there."""
    parts: dict[int, list[Rows]] = {}
    held: dict[int, int] = {}
    folded: dict[int, int] = {}
    most = job.settings.max_leaf_rows
    for source, part in read_leaves(job, list(of)):
        leaf = of[source]
        parts.setdefault(leaf, []).append(part)
        folded[leaf] = (folded.get(leaf, 0) + fold_rows(part.number)) % 2**64
        held[leaf] = held.get(leaf, 0) + len(part.number)
        if held[leaf] > 2 * most:  # memory stays bounded while many pieces go by
            parts[leaf] = [_thin(join_rows(parts[leaf]), most, job)]
            held[leaf] = len(parts[leaf][0].number)
    return {leaf: _thin(join_rows(part), most, job) for leaf, part in parts.items()}, folded


def _fit_leaf(job: TrainJob, rows: Rows, borrowed: Rows | None, work: LeafWork) -> tuple[FittedLeaf, HeldOut]:
    division, settings, n_own = read_division(job), job.settings, len(rows.number)
    if borrowed is not None:
        borrowed = _thin(borrowed, settings.max_leaf_rows - n_own, job)
        rows = Rows(
            *(np.concatenate([getattr(rows, f.name), getattr(borrowed, f.name)]) for f in fields(Rows))
        )
    target = rows.target if settings.task == "regression" else rows.target.astype(np.int64)
    is_halo = np.arange(len(rows.number)) >= n_own
    outputs = n_outputs(len(division.classes))
    with one_thread():
        stored = LeafRowsToFit(rows.X, rows.number, target, rows.weight, is_halo)
        return fit_and_judge(stored, outputs, read_fitted(job, work.folds), settings, work.leaf, work.folds)


def _thin(rows: Rows, most: int, job: TrainJob) -> Rows:
    return rows.take(thinned(rows.number, most, job.settings.seed))


def _read_block(job: TrainJob, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], FloatArray | None]:
    weight = None if job.weight is None else job.rows_of("weight", start, stop).astype(float)
    return job.rows_of("x", start, stop), job.rows_of("y", start, stop), weight


def _grouped(job: TrainJob, sources: Sequence[Source]) -> Iterator[Rows]:
    """The rows of leaves, as many at once as a task may hold."""
    pending: list[Rows] = []
    held = 0
    for _, part in read_leaves(job, sources):
        if pending and held + len(part.number) > job.piece_rows:
            yield join_rows(pending)
            pending, held = [], 0
        pending.append(part)
        held += len(part.number)
    if pending:
        yield join_rows(pending)


def gather_cells(job: TrainJob, block: int, start: int, stop: int) -> Receipt:
    """Keep the rows of a block that lie in the cells in use."""
    cells = read_cells(job)
    rows = block_rows(job, cells.classes, cells.class_factors, start, stop)
    with one_thread():
        cell = cells.tree.descend(columns_of(job, cells.scaling, rows))
    at = np.flatnonzero(np.isin(cell, cells.chosen))
    chosen = rows.take(at)
    arrays = {
        "X": chosen.X,
        "target": chosen.target,
        "weight": chosen.weight,
        "number": chosen.number,
        "cell": cell[at],
    }
    write_arrays(cell_rows_file(job, block), arrays)
    return receipt(stop - start)


def learn_trial_scaling(
    job: TrainJob, fold: int, settings: Settings, repetitions: int, share: float, digest: str
) -> Receipt | None:
    """Learn the scaling of settings from a share of rows; None where its features exceed single precision."""
    rows, survey = read_trial(job, fold)
    with one_thread():
        try:
            fitted = fit_trial_scaling(rows, survey, settings, repetitions, share)
        except DataError:
            return None
    write_scaling(job, fold, digest, fitted)
    return receipt(len(rows.X))


def learn_trial_terms(
    job: TrainJob, fold: int, trial: Trial, groups: tuple[int, ...], digests: Mapping[tuple[int, ...], str]
) -> Receipt:
    """Fit the terms of a trial without some groups of its rows, as large as those of all of them.

    digests  of all terms of the trial, by groups
    """
    rows, survey = read_trial(job, fold)
    first = {key: digests[key] for key in digests if groups and not key}
    with one_thread():
        terms = fit_trial_terms(rows, survey, trial, groups, _read_terms(job, fold, first))
    write_terms(job, fold, digests[groups], terms)
    return receipt(len(rows.X))


def try_settings(
    job: TrainJob, fold: int, trial: Trial, scaling: str, digest: str, terms: Mapping[tuple[int, ...], str]
) -> Receipt:
    """Try settings with a scaling of that digest, and with terms of theirs, by the groups that these lack."""
    rows, survey = read_trial(job, fold)
    fitted = _read_terms(job, fold, terms)
    scaling_of_fold = read_scaling(job, fold, scaling).scaling
    decision, model = tried_decisions(rows, survey, trial, scaling_of_fold, fitted)
    write_tried(job, fold, digest, decision, shape_of(model))
    return receipt(len(rows.X))


def _read_terms(
    job: TrainJob, fold: int, digests: Mapping[tuple[int, ...], str]
) -> dict[WithoutGroups, tuple[Term, ...]]:
    return {(frozenset(groups), None): read_fitted_terms(job, fold, key) for groups, key in digests.items()}


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
