"""What the steps of a training and of a search are likely to take: rough arithmetic for people who wait, in seconds.

Fitted by eye to runs on letter and cal_housing, and to the seconds that the README tells of covtype, usps and mnist, with two
workers, within a factor of two or so. Only shares of a whole are shown, and the time that a job has taken corrects them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dcpred.execution.course import Shares
from dcpred.execution.progress import Step, reporter
from dcpred.tuning.search import START_OVERLAP, WHOLE_LANDMARKS, expected_tries
from dcpred.tuning.trial_plan import HELD_ROWS, MANY_ROWS, MOST_TREES, WHOLE, WHOLE_NUMBERS, WHOLE_ROWS, tries_whole
from dcpred_tasks.training.division import ROWS_PER_LEAF
from dcpred_tasks.training.in_memory import Watch
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import HELD_OUT

START = Settings(scaling="learned", overlap=START_OVERLAP, landmarks=16, products=0)  # of a search
LEAF_ROWS = 200  # of trees that are tried, as a rule


def row_seconds(n_features: int, leaf_rows: float, settings: Settings) -> float:
    """Of one core, for a row in one leaf that it trains: the local machine, and the way downhill."""
    local = 1e-7 * min(leaf_rows * settings.overlap, settings.local_rows)
    if not settings.refine:
        return local + 1e-4
    if settings.refine_epochs:
        return local + 1e-9 * settings.refine_epochs * settings.landmarks * n_features
    return local + (4e-5 + 2e-6 * n_features) * settings.refine_steps / 100 * (12 + settings.landmarks) / 28


def relative_effort(settings: Settings, start: Settings) -> float:
    """Of a try, in tries of the settings that a search starts from."""
    if settings.refine_epochs:
        return settings.landmarks / WHOLE_LANDMARKS
    return settings.refine_steps / start.refine_steps * (12 + settings.landmarks) / (12 + start.landmarks)


def forecast_training(n_rows: int, n_features: int, settings: Settings, n_threads: int, *, learns: bool) -> Shares:
    """Seconds by the steps of `dcpred.training.train`.

    learns  whether the scaling that settings ask for is still to be learned
    """
    numbers, sample = n_rows * n_features, min(n_rows, settings.sample_rows) * n_features
    leaf_rows = n_rows / settings.n_leaves if settings.n_leaves else ROWS_PER_LEAF
    leaves = n_rows * settings.overlap * row_seconds(n_features, leaf_rows, settings)
    return Shares(
        {
            "survey": 1.0 + 1e-7 * numbers / n_threads,
            "division": 0.1 + 5e-7 * sample + (4e-6 * sample if learns and settings.scaling == "learned" else 0.0),
            "route": 1.0 + 2e-7 * numbers / n_threads,
            "balance": 0.1,
            "overlap": 0.1 + 4e-7 * numbers / n_threads if settings.overlap > 1 else 0.0,
            "leaves": 1.0 + leaves / n_threads,
        }
    )


def forecast_tuning(n_rows: int, n_features: int, n_threads: int, *, short: bool) -> Shares:
    """Seconds by the steps of `dcpred.tuning.tune`."""
    numbers, sample = n_rows * n_features, min(n_rows, START.sample_rows) * n_features
    trees = (2 if short and n_rows > MANY_ROWS else MOST_TREES) + 1
    looked_at = min(HELD_ROWS / HELD_OUT, n_rows)
    search = expected_tries(trees, short) * looked_at * START.overlap * row_seconds(n_features, LEAF_ROWS, START)
    if tries_whole(n_rows, n_features, START):
        looked_at = min(WHOLE_ROWS, WHOLE_NUMBERS // n_features, n_rows)
        whole = replace(START, **WHOLE, landmarks=WHOLE_LANDMARKS)
        search += expected_tries(1, short) * looked_at * row_seconds(n_features, looked_at, whole)
    chosen = replace(START, n_leaves=max(n_rows // LEAF_ROWS, 1), landmarks=24, refine_steps=150)  # between what is often chosen
    return Shares(
        {
            "survey": 1.0 + 1e-7 * numbers / n_threads,
            "scaling": 0.1 + 4e-6 * sample,
            "trees": 0.1 + 5e-7 * sample * trees,
            "rows": 0.1 + 4e-7 * numbers * trees / n_threads,
            "search": 0.5 + search / n_threads,
            "train": forecast_training(n_rows, n_features, chosen, n_threads, learns=False).total,
        }
    )


@contextmanager
def watched_training(settings: Settings, n_rows: int, n_features: int, verbose: int) -> Iterator[Watch]:
    """What shows a training on rows in memory, for `dcpred_tasks.training.in_memory.train_rows`."""
    say = reporter(verbose)
    work = forecast_training(n_rows, n_features, settings, 1, learns=True).work
    shares = Shares({name: work[name] for name in ("division", "leaves")})
    parts = iter([shares.of_rest(name) for name in shares.work])

    @contextmanager
    def watch(title: str, total: int | None, unit: str) -> Iterator[Step]:
        with say.part(next(parts)), say.step(title, total, unit) as advance:
            yield advance

    with say.job("training"):
        yield watch


class Headway:
    """Of a search, whose rounds are not known beforehand: each takes its part of what is left, and never more than half of it."""

    def __init__(self, expected: float) -> None:
        """expected  effort of all rounds"""
        self.expected, self.left = expected, 1.0

    def take(self, effort: float) -> float:
        """The share of the whole that a round is."""
        share = self.left * min(effort / max(self.expected, 1e-9), 0.5)
        self.expected -= effort
        self.left -= share
        return share
