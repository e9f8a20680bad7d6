"""False alarms of drift on random splits, changes that it finds, and what it costs of scoring.

    python tests/benchmarks/drift.py [--sets letter,magic,...] [--splits 200] [--quick]

A split draws half of the rows to train on; the others are scored. Each is a false alarm where any leaf,
feature or output is reported. Every change is made to the scored rows of a split, in one feature that is
drawn among those with more than 20 values (*new value*: a quarter of the rows get one above all others). The
cost is the time of statistics of rows with bins, by that of scoring them, in turns; medians, one thread.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from common import Table, data_folder
from engine import say
from more_sets import EVERY
from numpy.typing import NDArray

from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.row_sampling import one_of_each
from dcpred_tasks.scoring.drift import describe_drift
from dcpred_tasks.scoring.drift_fields import Drift
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.statistics import ScoredRows, Statistics, sample_stride
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows, with_bins

SETS = "letter,magic,cal_housing,house_16H"
MOST_ROWS, BLOCK_ROWS = 12_000, 2**17
CHANGES: dict[str, Callable[[NDArray[Any], np.random.Generator], Any]] = {
    "times 20": lambda x, rng: 20 * x,
    "moved by 1 sd": lambda x, rng: x + x.std(),
    "stands still": lambda x, rng: np.full_like(x, np.median(x)),
    "new value": lambda x, rng: np.where(rng.random(len(x)) < 0.25, x.max() + 1 + abs(x.max()), x),
}


def trained(X: NDArray[Any], y: NDArray[Any], task: str, seed: int) -> Model:
    values = {"task": task, "n_leaves": 1 + 3 * (seed % 2), "landmarks": 8, "refine_steps": 5, "seed": seed}
    settings, survey = make_settings(values), survey_rows(X, y, None, 0, task)
    classes = tuple(range(len(survey.classes)))
    target = np.searchsorted(survey.classes, y) if classes else y
    model = train_rows(X, target, np.ones(len(X)), np.empty(0), survey, settings, classes)
    return with_bins(model, X, np.arange(len(X)), survey, None, seed)


def found(model: Model, X: NDArray[Any]) -> Drift:
    """What the manifest of a run over these rows says of drift."""
    statistics = Statistics(model)
    rows = score_with_leaves(model, X)
    scored = ScoredRows(X, rows.decision, rows.status, rows.leaf, {})
    statistics.observe(scored, one_of_each(len(X), sample_stride(len(X), len(X))))
    return describe_drift(model, statistics, None, None)


def share_of_scoring(model: Model, X: NDArray[Any], repeats: int) -> float:
    """The time that bins add to that of scoring a block."""
    X = X[np.random.default_rng(0).integers(0, len(X), BLOCK_ROWS)]
    plain, times = replace(model, bins=None), []
    for _ in range(repeats):
        clock = [time.perf_counter()]
        rows = score_with_leaves(model, X)
        clock.append(time.perf_counter())
        scored = ScoredRows(X, rows.decision, rows.status, rows.leaf, {})
        for one in (plain, model):
            stride = sample_stride(8 * BLOCK_ROWS, BLOCK_ROWS)
            Statistics(one).observe(scored, one_of_each(len(X), stride))
            clock.append(time.perf_counter())
        times.append(np.diff(clock))
    scoring, without, with_them = np.median(times, axis=0)
    return float((with_them - without) / scoring)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    names, n_splits = (("magic",), 2) if asked.quick else (asked.sets.split(","), asked.splits)
    by_name = {one.name: one for one in EVERY}
    table = Table("set", "splits", "false alarms", *CHANGES, "cost of bins, share of scoring")
    for name in names:
        data = by_name[name]
        split, task = data.load(data_folder(), 0), "regression" if data.regression else "classification"
        every, targets = np.concatenate([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
        alarms, seen, cost = 0, dict.fromkeys(CHANGES, 0), 0.0
        for seed in range(n_splits):
            rng = np.random.default_rng(seed)
            own = rng.permutation(len(every))[: 1_200 if asked.quick else MOST_ROWS]
            X, y = every[own].astype(np.float32), targets[own]
            half = len(X) // 2
            model = trained(X[:half], y[:half], task, seed)
            alarms += found(model, X[half:]).large
            varied = [f for f in range(X.shape[1]) if len(np.unique(X[:half, f])) > 20] or [0]
            for change, how in CHANGES.items():
                new, feature = X[half:].copy(), int(rng.choice(varied))
                new[:, feature] = how(new[:, feature], rng)
                told = found(model, new).features.top
                seen[change] += any(one.large and one.feature == feature for one in told)
            cost = cost or share_of_scoring(model, X, 3 if asked.quick else 21)
        shares = [f"{100 * n / n_splits:.1f} %" for n in (alarms, *seen.values())]
        line = name, f"{n_splits}", *shares, f"{100 * cost:.1f} %"
        table.add(*line)
        say(*line)
    table.show()


if __name__ == "__main__":
    main()
