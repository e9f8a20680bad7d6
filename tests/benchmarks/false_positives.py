"""How often a search believes in what is not there: made-up tables of a linear structure and noise.

    python tests/benchmarks/false_positives.py [--tables 100] [--rows 500] [--features 5] [--quick]

Half of the tables have two classes, half have numbers. The first table lists for every candidate, a
configuration of the portfolio or a mutation, how often it was tried, how often it was accepted, and how often
it was accepted and is worse than the incumbent on fresh rows, by more than a standard error: some changes,
such as wider kernels, do help on linear tables. The second table says how far the choice is from the default
settings on fresh rows.
"""

import argparse
from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
from common import Table
from engine import say
from numpy.typing import NDArray

from dcpred.training.choice import memory_training
from dcpred.training.metrics import compare
from dcpred.training.policy import DEFAULT, STANDARD, SearchPolicy
from dcpred.training.search import Search
from dcpred.training.trials import Candidate, TrialResult, Trials
from dcpred_tasks.model.compact_model import score_rows
from dcpred_tasks.process import one_thread
from dcpred_tasks.training.categories import NOT_CODED
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.partition import learn_scaling
from dcpred_tasks.training.settings import Settings

FRESH_ROWS = 20_000
ACCEPTED = ("replaces", "helps")


@dataclass
class Count:
    """How it went with a candidate."""

    tried: int = 0
    accepted: int = 0
    worse: int = 0


@dataclass
class Findings:
    """What all tables come to; gains of the choice over the default settings by task, in points
    (of numbers 100 times the share of their variance).
    """

    counts: dict[tuple[str, str], Count] = field(default_factory=lambda: defaultdict(Count))
    gains: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    worse: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def linear_table(n: int, d: int, seed: int, task: str) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows whose target is a linear function of features and as much noise; the first n are for a search."""
    rng = np.random.default_rng([n, d, seed])
    X = rng.normal(size=(n + FRESH_ROWS, d)).astype(np.float32)
    w = rng.normal(size=d)
    y = X @ (w / np.linalg.norm(w)) + rng.normal(size=len(X))
    return X, y if task == "regression" else (y > 0).astype(np.float64)


class Truth:
    """Losses on fresh rows of models that are trained with all rows of a table."""

    def __init__(self, trials: Trials, X: NDArray[np.float32], y: NDArray[np.float64], n: int) -> None:
        self.trials, self.X, self.y, self.n = trials, X, y, n
        self.known: dict[Settings, NDArray[np.float64]] = {}

    def losses(self, one: TrialResult) -> NDArray[np.float64]:
        if one.settings not in self.known:
            X, y, weight = self.X[: self.n], self.y[: self.n], np.ones(self.n)
            survey, n_classes = self.trials.survey, self.trials.n_classes
            target = y if one.settings.task == "regression" else y.astype(np.int64)
            settings = replace(one.settings, calibrate=False)
            scaling = learn_scaling(X, target, weight, survey, settings)
            classes = tuple(range(n_classes))
            given = X, target, weight, np.empty(0), survey, settings, classes
            decision = score_rows(train_rows(*given, n_jobs=1, scaling=scaling), self.X[self.n :])[0]
            fresh, ones = self.y[self.n :], np.ones(FRESH_ROWS)
            self.known[one.settings] = self.trials.metric.losses(
                decision.astype(np.float64), fresh, ones, n_classes
            )
        return self.known[one.settings]

    def gain(self, incumbent: TrialResult, one: TrialResult) -> tuple[float, bool]:
        """How much better a candidate is, and whether it is worse by more than a standard error."""
        both = self.losses(incumbent), self.losses(one)
        found = compare(*both, np.ones(FRESH_ROWS), counted=self.trials.metric.counted)
        return found.gain, found.gain < -found.standard_error


def study(seed: int, task: str, rows: int, features: int, policy: SearchPolicy, found: Findings) -> None:
    """One search, counted."""
    X, y = linear_table(rows, features, seed, task)
    given = X[:rows], y[:rows], np.ones(rows), Settings(task=task), NOT_CODED, 1
    training = memory_training(*given)
    trials = Trials(training, training.survey(None), training.workers, policy, None)
    trials.prepare()
    result = Search(trials).run()
    assert result is not None
    truth = Truth(trials, X, y, rows)
    by_name = {one.candidate.name: one for one in result.judged}
    for line in result.trace:
        count = found.counts[line["step"].split(",")[0], line["candidate"].split(" + ")[-1]]
        count.tried += 1
        if line["verdict"] in ACCEPTED:
            count.accepted += 1
            count.worse += truth.gain(by_name[line["incumbent"]], by_name[line["candidate"]])[1]
    [default] = trials.evaluate([Candidate(DEFAULT, {})], trials.folds)
    if default is not None:
        gain, worse = truth.gain(default, result.chosen)
        unit = 100.0 / (float(np.var(y)) if task == "regression" else 1.0)
        found.gains[task].append(unit * gain)
        found.worse[task] += worse
    say(f"{task} {seed}: {result.chosen.candidate.name}, {found.gains[task][-1]:.2f} points better")


def show(found: Findings, level: float) -> None:
    table = Table(
        "step",
        "candidate",
        "tried",
        f"accepted (level {100 * level:g} %)",
        "accepted and worse on fresh rows",
    )
    for (step, name), count in sorted(found.counts.items(), key=lambda item: (item[0][0], -item[1].accepted)):
        share = 100 * count.accepted / count.tried
        table.add(step, name, f"{count.tried}", f"{share:.0f} %", f"{100 * count.worse / count.tried:.0f} %")
    table.show()
    print()
    table = Table("task", "tables", "gain of the choice over the default settings", "least", "surely worse")
    for task, gains in found.gains.items():
        mean = f"{np.mean(gains):.2f} ± {np.std(gains) / np.sqrt(len(gains)):.2f} points"
        table.add(task, f"{len(gains)}", mean, f"{min(gains):.2f}", f"{found.worse[task]}")
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--features", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two tables of 120 rows, one round")
    args = parser.parse_args()
    policy = STANDARD
    if args.quick:
        args.tables, args.rows = 2, 120
        policy = replace(STANDARD, rounds=1, repeats=1)
    found = Findings()
    with one_thread():
        for seed in range(args.tables):
            task = ("classification", "regression")[seed % 2]
            study(seed, task, args.rows, args.features, policy, found)
    show(found, policy.level)


if __name__ == "__main__":
    main()
