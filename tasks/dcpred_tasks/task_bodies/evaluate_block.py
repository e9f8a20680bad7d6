"""The task body of evaluation: score a block of rows with known targets, and measure the scores.

It writes nothing. Its result is small whatever the number of rows, and merges in any order to the same
result.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.dtypes import Status
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.evaluation.targets import known_targets
from dcpred_tasks.input_kinds import check_exact_rows
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.model.label_rule import Costs
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.decided import decide
from dcpred_tasks.scoring.scorer import score_rows, warm_up
from dcpred_tasks.scoring.statistics import ScoredRows, Statistics
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.retry import Retrying
from dcpred_tasks.task_bodies.score_block import planned_artifact


@dataclass(frozen=True)
class EvaluationJob:
    """A model and the data of its evaluation."""

    model: str
    model_hash: str
    x: str
    y: str
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
    X, target = zarr_arrays.open_array(job.x), zarr_arrays.open_array(job.y)
    found, retrying = nothing_evaluated(job, model), Retrying()
    sampled = Statistics(model)
    for first in range(start, stop, job.chunk_rows):
        last = min(first + job.chunk_rows, stop)
        rows = retrying(partial(zarr_arrays.read_rows, X, first, last))
        check_exact_rows(rows, feature_names(X))
        wanted, labelled = retrying(
            partial(known_targets, model, target, first, last, drop_unlabelled=job.drop_unlabelled)
        )
        with one_thread():
            decided = decide(model, rows, scale=True)
            good = (decided.status == Status.OK) & labelled
            taken = decided.take(good)
            found.compact.add(model, taken.decision, wanted[good], taken)
            scored = ScoredRows(rows, decided.decision, decided.status, decided.leaf, {})
            sampled.observe(scored, first, job.stride)
            if found.local is not None:
                decision, _ = score_rows(model, rows, early=True)
                found.local.add(model, decision[good], wanted[good])
        if trained is not None:
            trained.add(rows)
        found.n_rows += len(rows)
        found.n_unlabelled += int((~labelled).sum())
    if trained is not None:
        found.n_compared, found.n_met = trained.n_compared, trained.n_met
    found.packed = sampled.packed()
    return found
