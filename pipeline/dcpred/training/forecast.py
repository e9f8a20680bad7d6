"""Estimated times of the steps of a training, in seconds: rough arithmetic for progress.

Fitted by eye to runs on five data sets; see DECISIONS.md, "Forecast of times". Only shares of a whole are
shown, and the elapsed time of a job corrects them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dcpred.execution.progress import Shares, Step, reporter
from dcpred_tasks.model.scaling import LEARNED
from dcpred_tasks.training.in_memory import Watch
from dcpred_tasks.training.partition import ROWS_PER_LEAF
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import sampled_rows

START_SECONDS = 2.5  # until processes run and have imported what the first step needs


def row_seconds(n_features: int, leaf_rows: float, settings: Settings) -> float:
    """Seconds of one core for a row in one leaf that it trains: local model and refinement."""
    rows = leaf_rows * settings.overlap
    local = 2e-8 * min(rows, settings.local_rows) ** 2 / rows
    if not settings.refine:
        return local + 1e-4
    if settings.refine_epochs:
        return local + 2.5e-10 * settings.refine_epochs * settings.landmarks * n_features
    return local + (8e-6 + 4e-7 * n_features) * settings.refine_steps / 100 * (12 + settings.landmarks) / 28


def forecast_training(
    n_rows: int,
    n_features: int,
    settings: Settings,
    n_threads: int,
    *,
    surveyed: bool = False,
) -> Shares:
    """Seconds by the steps of `dcpred.training.train`.

    surveyed  whether a search has read all rows before
    """
    numbers, sample = (
        n_rows * n_features,
        min(n_rows, sampled_rows(settings.sample_rows, n_features)) * n_features,
    )
    leaf_rows = n_rows / settings.n_leaves if settings.n_leaves else ROWS_PER_LEAF
    leaves = n_rows * settings.overlap * row_seconds(n_features, leaf_rows, settings)
    return Shares(
        {
            "survey": 0.0 if surveyed else START_SECONDS + 1e-7 * numbers / n_threads,
            "division": 0.1 + (4.5e-6 if settings.scaling in LEARNED else 5e-7) * sample,
            "route": 0.3 + 2e-7 * numbers / n_threads,
            "balance": 0.1,
            "overlap": 0.1 + 4e-7 * numbers / n_threads if settings.overlap > 1 else 0.0,
            "leaves": 0.5 + leaves / n_threads,
        }
    )


@contextmanager
def watched_training(settings: Settings, n_rows: int, n_features: int, verbose: int) -> Iterator[Watch]:
    """Progress of a training on rows in memory, for `dcpred_tasks.training.in_memory.train_rows`."""
    say = reporter(verbose)
    work = forecast_training(n_rows, n_features, settings, 1).work
    shares = Shares({name: work[name] for name in ("division", "leaves")})
    parts = iter([shares.of_rest(name) for name in shares.work])

    @contextmanager
    def watch(title: str, total: int | None, unit: str) -> Iterator[Step]:
        with say.part(next(parts)), say.step(title, total, unit) as advance:
            yield advance

    with say.job("training"):
        yield watch
