"""Evaluate the rows of a block."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.dtypes import IntArray, Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.evaluation.counts import known_targets
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.evaluation.promise import Promise
from dcpred_tasks.input_kinds import check_exact_rows, is_missing
from dcpred_tasks.model.class_codes import class_values
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.model.label_rule import Costs
from dcpred_tasks.process import one_thread
from dcpred_tasks.row_sampling import one_of_each
from dcpred_tasks.schema.frames import frame_cells
from dcpred_tasks.schema.inference import ColumnSurvey
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.scorer import score_rows, warm_up
from dcpred_tasks.scoring.statistics import ScoredRows, Statistics, unscored
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.task_bodies.score_block import planned_artifact


@dataclass(frozen=True)
class EvaluationJob:
    """A model and the data of its evaluation."""

    model: str
    model_hash: str
    x: Address
    y: Address
    chunk_rows: int
    """Rows read at once."""
    early: bool = False
    """Whether local SVMs are evaluated, too."""
    drop_unlabelled: bool = False
    """Whether rows without a target are omitted, not refused."""
    trained: TrainedRows | None = None
    """Hashes of training rows."""
    costs: Costs | None = None
    """Costs of labels; None: labels follow decision values."""
    metric: str | None = None
    """An extra score of dcpred_tasks.evaluation.named_scores."""
    stride: int = 1
    """One row in so many is compared with training rows."""


@dataclass
class Evaluated:
    """The results of some rows, or of all."""

    compact: Measures
    local: Measures | None = None
    n_rows: int = 0
    n_unlabelled: int = 0
    n_compared: int = 0
    n_met: int = 0
    """Rows whose hash could be among those of training rows, and those whose hash is."""
    bad: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Labelled rows without a score, by status and first feature that is not finite, or −1."""

    promise: Promise = field(default_factory=Promise)
    packed: dict[str, Any] = field(default_factory=dict)
    """Statistics of the rows of one block, from `Statistics.packed`. They are not merged here, because their
    sum depends on the order of blocks.
    """

    def merge(self, other: "Evaluated") -> None:
        self.compact.merge(other.compact)
        if self.local is not None and other.local is not None:
            self.local.merge(other.local)
        self.n_rows += other.n_rows
        self.n_unlabelled += other.n_unlabelled
        self.n_compared += other.n_compared
        self.n_met += other.n_met
        self.bad += other.bad
        self.promise.merge(other.promise)


def nothing_evaluated(job: EvaluationJob, model: Model) -> Evaluated:
    """An empty result, which others are merged into."""
    return Evaluated(Measures(model, job.costs, job.metric), Measures(model) if job.early else None)


@lru_cache(maxsize=1)
def open_evaluated(path: str, model_hash: str, support: bool) -> Model:
    """The model of a job, once per process."""
    return planned_artifact(path, model_hash).model(support=support)


def ready_to_evaluate(job: EvaluationJob) -> None:
    """Make this process ready: compile the engine if necessary, and open the model."""
    warm_up(open_evaluated(job.model, job.model_hash, job.early))


def evaluate_block(job: EvaluationJob, start: int, stop: int) -> Evaluated:
    """Evaluate rows start to stop. Raises DataError for a target that cannot be compared with a score."""
    model = open_evaluated(job.model, job.model_hash, job.early)
    trained = None if job.trained is None else replace(job.trained)  # with counts of its own
    X, target = open_array(job.x), open_array(job.y)
    measured, retrying = nothing_evaluated(job, model), Retrying()
    sampled = Statistics(model)
    for first in range(start, stop, job.chunk_rows):
        last = min(first + job.chunk_rows, stop)
        rows = retrying(partial(zarr_arrays.read_rows, X, first, last))
        check_exact_rows(rows, feature_names(X))
        wanted, labelled = retrying(
            partial(known_targets, model, target, first, last, drop_unlabelled=job.drop_unlabelled)
        )
        with one_thread():
            decided = score_with_leaves(model, rows, scale=True)
            good = (decided.status == Status.OK) & labelled
            measured.bad += unscored(model.scaling, rows[labelled], decided.status[labelled])
            taken = decided.take(good)
            measured.compact.add(model, taken.decision, wanted[good], taken)
            measured.promise.add(model, taken, wanted[good])
            scored = ScoredRows(rows, decided.decision, decided.status, decided.leaf, {})
            sampled.observe(scored, one_of_each(len(rows), job.stride, first))
            if measured.local is not None:
                decision, _ = score_rows(model, rows, early=True)
                measured.local.add(model, decision[good], wanted[good])
        if trained is not None:
            trained.add(rows)
        measured.n_rows += len(rows)
        measured.n_unlabelled += int((~labelled).sum())
    if trained is not None:
        measured.n_compared, measured.n_met = trained.n_compared, trained.n_met
    measured.packed = sampled.packed()
    return measured


def survey_frame(frame: Any, names: Sequence[str], coded: Collection[str]) -> dict[str, ColumnSurvey]:
    """A survey of these columns; `coded` are categories, also as numbers or booleans. Raises DataError."""
    surveys = {name: ColumnSurvey(name, counts_numbers=name in coded) for name in names}
    for name, survey in surveys.items():
        survey.add(frame_cells(frame, name))
    return surveys


def labels_of(values: Any) -> tuple[NDArray[Any], int]:
    """The different classes of some rows, and how many rows. Raises DataError for what is no class."""
    rows = _labels(values)
    return np.unique(rows), len(rows)


def label_numbers(values: Any, classes: NDArray[Any]) -> IntArray:
    """The number of each row's class, int64 (n,)."""
    return np.searchsorted(classes, _labels(values)).astype(np.int64)


def _labels(values: Any) -> NDArray[Any]:
    rows: NDArray[Any] = np.asarray(values)
    rows = rows.astype(object) if rows.dtype.kind == "T" else rows
    if any(map(is_missing, rows.flat)) if rows.dtype.kind == "O" else (rows != rows).any():
        raise DataError("Cannot use y: it has missing values. Remove such rows, or fill them in.")
    classes = class_values(rows, numbered=False)
    return classes.astype(str) if classes.dtype.kind == "O" else classes


def part_values(part: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a frame or Series of pandas of numbers, NaN where one is missing."""
    return np.asarray(
        part.to_numpy(dtype=dtype, na_value=np.nan) if dtype.kind == "f" else part.to_numpy(dtype=dtype)
    )
