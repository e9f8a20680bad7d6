"""The portfolio of the search for settings: which configurations complement each other.

    python tests/benchmarks/portfolio.py [--draws 60] [--size 12] [--rows 5000] [--sets vehicle,...] [--quick]

Candidates are the configurations of dcpred/training/policy.py, and random combinations of what its
mutations change (--draws). Each is judged on held-out rows of every data set of the development half
(halves.py), as a search judges it, within the usual budget. The regret of a set of configurations
on a data set is the error of its best one minus that of the best of all candidates, in points (of numbers 100
times the share of the variance). The table lists configurations in the order in which they lower the mean
regret most, with the default configuration first. WORK/portfolio.json keeps what was judged.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from engine import number, say
from halves import ALL, DEVELOPMENT

from dcpred.training.choice import memory_training
from dcpred.training.policy import DEFAULT, MUTATIONS, PORTFOLIO, STANDARD
from dcpred.training.trials import Candidate, Trials
from dcpred_tasks.process import one_thread
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.categories import NOT_CODED
from dcpred_tasks.training.settings import Settings

QUICK_ROWS, QUICK_SETS = 200, ("vehicle", "547_no2")
Losses = dict[str, float]  # by candidate


def drawn(n: int, seed: int) -> list[Candidate]:
    """Random combinations: a configuration of the portfolio with up to four mutations."""
    draw = random.Random(seed)
    found = []
    for i in range(n):
        values: dict[str, Any] = dict(draw.choice(list(PORTFOLIO.values())))
        for mutation in draw.sample(MUTATIONS, draw.randint(1, 4)):
            values |= mutation.changes
            usual = {
                "width": 1.0,
                "leaf_rows": 1_000,
                "landmarks": 16,
                "refine_ridge": 1e-2,
                "ridge": 1e-2,
                "C": 10.0,
            }
            for name, factor in mutation.times.items():
                values[name] = type(usual[name])(values.get(name, usual[name]) * factor)
        found.append(Candidate(f"draw {i}", values))
    return found


def judged(name: str, candidates: list[Candidate], rows: int, known: Losses) -> Losses:
    """The loss of every candidate on a data set, in points; infinite where the budget does not allow it."""
    dataset = ALL[name]
    split = dataset.load(data_folder(), 0)
    kept = np.random.default_rng(0).permutation(len(split.X))[:rows]
    X, y = split.X[kept], split.y[kept].astype(np.float64 if dataset.regression else split.y.dtype)
    task = "regression" if dataset.regression else "classification"
    todo = [one for one in candidates if key(one) not in known]
    if not todo:
        return known
    with one_thread():
        training = memory_training(X, y, np.ones(len(X)), Settings(task=task), NOT_CODED, 1)
        trials = Trials(training, training.survey(None), training.workers, STANDARD, None)
        trials.prepare()
        unit = 100.0 / (float(np.var(trials.target)) if dataset.regression else 1.0)
        for one in todo:
            [found] = trials.evaluate([one], trials.first_folds)
            known[key(one)] = float("inf") if found is None else unit * found.loss
    return known


def key(one: Candidate) -> str:
    return digest_json(dict(one.values))[:20]


def regrets(chosen: list[Candidate], every: dict[str, Losses], candidates: list[Candidate]) -> list[float]:
    """The regret of a set of configurations on each data set."""
    found = []
    for losses in every.values():
        least = min(losses[key(one)] for one in candidates)
        found.append(min(losses[key(one)] for one in chosen) - least)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--sets", default="")
    parser.add_argument("--work", type=Path, default=Path("benchmark-portfolio"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    names = args.sets.split(",") if args.sets else QUICK_SETS if args.quick else DEVELOPMENT
    draws, rows, size = (2, QUICK_ROWS, 3) if args.quick else (args.draws, args.rows, args.size)
    candidates = [Candidate(name, values) for name, values in PORTFOLIO.items()]
    candidates = (candidates[:3] if args.quick else candidates) + drawn(draws, 0)
    args.work.mkdir(parents=True, exist_ok=True)
    kept = args.work / "portfolio.json"
    every: dict[str, Losses] = (
        json.loads(kept.read_text(encoding="utf-8")) if kept.exists() and not args.quick else {}
    )
    for name in names:
        every[name] = judged(name, candidates, rows, every.get(name, {}))
        if not args.quick:
            kept.write_text(json.dumps(every), encoding="utf-8")
        say(f"{name}: {len(every[name])} candidates")
    every = {name: every[name] for name in names}
    chosen = [one for one in candidates if one.name == DEFAULT]
    table = Table("configuration", "mean regret", "worst regret", "values")
    while True:
        found = regrets(chosen, every, candidates)
        table.add(
            chosen[-1].name,
            number(float(np.mean(found))),
            number(max(found)),
            json.dumps(dict(chosen[-1].values)),
        )
        if len(chosen) == size:
            break
        rest = [one for one in candidates if one not in chosen]
        chosen.append(min(rest, key=lambda one: float(np.mean(regrets([*chosen, one], every, candidates)))))
    table.show()


if __name__ == "__main__":
    main()
