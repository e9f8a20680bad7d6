"""What the steps of a search are likely to take, in seconds; built on the forecast of a training."""

from dataclasses import replace

from dcpred.execution.course import Shares
from dcpred.training.forecast import START_SECONDS, forecast_training, row_seconds
from dcpred.tuning.search import expected_tries
from dcpred.tuning.tree_search import START_OVERLAP, WHOLE_LANDMARKS, Extent
from dcpred.tuning.trial_plan import (
    FLOOR_ROWS,
    HELD_ROWS,
    LOCAL_ROWS,
    MANY_ROWS,
    MOST_TREES,
    WHOLE,
    WHOLE_NUMBERS,
    WHOLE_ROWS,
    tries_whole,
)
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import HELD_OUT_SHARE

# What a search starts from.
START = Settings(scaling="learned", overlap=START_OVERLAP, landmarks=16, products=0, local_rows=LOCAL_ROWS)
LEAF_ROWS = 200  # mean rows of a leaf in trees that are tried


def relative_effort(settings: Settings, start: Settings) -> float:
    """The work of a try, as a multiple of a try of the settings that a search starts from."""
    if start.refine_epochs:
        return settings.landmarks / WHOLE_LANDMARKS
    return settings.refine_steps / start.refine_steps * (12 + settings.landmarks) / (12 + start.landmarks)


def forecast_tuning(n_rows: int, n_features: int, n_threads: int, extent: Extent) -> Shares:
    """Seconds by the steps of `dcpred.tuning.tune`."""
    numbers, sample = n_rows * n_features, min(n_rows, START.sample_rows) * n_features
    trees = (2 if extent.few_trees and n_rows > MANY_ROWS else MOST_TREES) + 1
    looked_at = min(HELD_ROWS / HELD_OUT_SHARE, n_rows)
    search = (
        expected_tries(trees, extent) * looked_at * START.overlap * row_seconds(n_features, LEAF_ROWS, START)
    )
    if tries_whole(n_rows, n_features, START):
        looked_at = min(WHOLE_ROWS, WHOLE_NUMBERS // n_features, n_rows)
        whole = replace(START, **WHOLE, landmarks=WHOLE_LANDMARKS)
        search += expected_tries(1, extent) * looked_at * row_seconds(n_features, looked_at, whole)
    rows = min(n_rows, FLOOR_ROWS, WHOLE_NUMBERS // n_features)
    whole_models = rows * 3 * row_seconds(n_features, LEAF_ROWS, START)
    # Settings in the middle of what is often chosen.
    chosen = replace(START, n_leaves=max(n_rows // LEAF_ROWS, 1), landmarks=24, refine_steps=150)
    return Shares(
        {
            "survey": START_SECONDS + 1e-7 * numbers / n_threads,
            "scaling": 0.1 + 4e-6 * sample,
            "trees": 1.0 + 5e-7 * sample * trees,
            "rows": 0.1 + 4e-7 * numbers * trees / n_threads,
            "search": 1.0 + search / n_threads,
            "floor": 0.2 + whole_models / n_threads,
            "train": forecast_training(
                n_rows, n_features, chosen, n_threads, surveyed=True, learns=False
            ).total,
        }
    )


class Headway:
    """The share of a search that is done. Nobody knows its rounds beforehand: each takes its part of what is
    left, and never more than half of it.
    """

    def __init__(self, expected: float) -> None:
        """expected  effort of all rounds"""
        self.expected, self.left = expected, 1.0

    def take(self, effort: float) -> float:
        """The share of the whole that a round is."""
        share = self.left * min(effort / max(self.expected, 1e-9), 0.5)
        self.expected -= effort
        self.left -= share
        return share
