"""Estimated times of the steps of a search, in seconds; built on the forecast of a training."""

from dataclasses import replace

from dcpred.execution.course import Shares
from dcpred.training.forecast import START_SECONDS, forecast_training, row_seconds
from dcpred.tuning.policy import SearchPolicy
from dcpred.tuning.portfolio import MUTATIONS, PORTFOLIO
from dcpred_tasks.training.settings import Settings

START = Settings(scaling="learned")


def forecast_tuning(n_rows: int, n_features: int, n_threads: int, policy: SearchPolicy) -> Shares:
    """Seconds by the steps of `dcpred.tuning.tune`."""
    rows = min(n_rows, policy.trial_rows, policy.trial_numbers // n_features)
    tries = len(PORTFOLIO) + 3 * policy.survivors + policy.rounds * (len(MUTATIONS) + 3 * policy.survivors)
    search = rows * tries * row_seconds(n_features, 1_000, START)
    chosen = replace(START, n_leaves=max(n_rows // 1_000, 1))
    numbers = n_rows * n_features
    return Shares(
        {
            "survey": START_SECONDS + 1e-7 * numbers / n_threads,
            "rows": 0.1 + 1e-7 * numbers / n_threads,
            "search": 1.0 + search / n_threads,
            "train": forecast_training(n_rows, n_features, chosen, n_threads, surveyed=True).total,
        }
    )
