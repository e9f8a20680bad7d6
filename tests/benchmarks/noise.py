"""Targets that no feature explains: what models report of them, where the truth is the rate or the noise.

    python tests/benchmarks/noise.py [--seeds 6] [--entries "additive;learned"] [--cases rare,third] [--quick]
    python tests/benchmarks/noise.py --intervals [--seeds 8] [--rows 100,400,1000,2000]
    python tests/benchmarks/noise.py --metrics [--seeds 2]

Each entry of the search's portfolio trains on pure noise: 3,000 rows of 12 features with 4 % positives, 700
of 25 with 30 %, and 400 of 30 with a normal target. *Excess* is the log-loss of 20,000 new rows over that of
the rate of the training rows, in expectation. *Top* is the mean probability of the twentieth of new rows with
the highest one, less the true rate of positives, in percent. *Inside* is the share of new targets in 90 %
intervals. All are means of seeds, with their standard errors.

`--intervals` has five kinds of noise around sin 2x, where x is one of 20 features: normal, growing with a
feature, Student's t with 3 degrees of freedom, lognormal, and a mixture that is 0 in 60 % of rows.
`--metrics` runs whole searches by each metric, whose choice knows all targets.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from common import Table
from engine import say
from numpy.typing import NDArray

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.training.choice import memory_training
from dcpred.training.policy import PORTFOLIO, STANDARD, Budget
from dcpred.training.trials import Candidate, Trials
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model import predictive_outputs
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.training.categories import NOT_CODED
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, in_effect, make_settings
from dcpred_tasks.training.survey import survey_rows

NEW_ROWS, ALPHA, TOP = 20_000, 0.1, 0.05
CASES = {"rare": (3_000, 12, 0.04), "third": (700, 25, 0.3), "numbers": (400, 30, 0.0)}
WAYS: dict[str, dict[str, Any]] = {
    "standard": {"scaling": "standard"},
    "learned": {"scaling": "learned"},
    "additive": {"scaling": "none", "feature_map": "additive", "landmarks": 64, "refine_ridge": 1e-2},
    "4 leaves": {"scaling": "standard", "n_leaves": 4},
    "4 leaves, learned": {"scaling": "learned", "n_leaves": 4},
}
CLASS_METRICS = ("accuracy", "neg_log_loss", "roc_auc", "f1_macro")
NUMBER_METRICS = ("neg_mean_squared_error", "neg_mean_absolute_error")
Noise = Callable[[FloatArray, np.random.Generator], FloatArray]
NOISES: dict[str, Noise] = {
    "normal": lambda X, rng: rng.normal(size=len(X)),
    "by feature": lambda X, rng: rng.normal(size=len(X)) * np.exp(0.7 * X[:, 1]),
    "heavy tails": lambda X, rng: rng.standard_t(3, size=len(X)),
    "skewed": lambda X, rng: np.exp(rng.normal(size=len(X))),
    "mixture": lambda X, rng: np.where(rng.random(len(X)) < 0.6, 0.0, rng.normal(3.0, 1.0, len(X))),
}


def fitted(X: FloatArray, y: NDArray[Any], settings: Settings) -> Model:
    survey = survey_rows(X, y, None, 0, settings.task)
    classes = () if settings.task == "regression" else tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes)


def realised(X: FloatArray, y: NDArray[Any], task: str, names: Sequence[str]) -> dict[str, Settings]:
    """The settings of entries of the portfolio, as a search of these rows tries them."""
    start = make_settings({"task": task})
    training = memory_training(X, y, np.ones(len(X)), start, NOT_CODED, 1)
    trials = Trials(training, training.survey(None), training.workers, STANDARD, Budget())
    trials.prepare()
    found = trials.evaluate([Candidate(name, PORTFOLIO[name]) for name in names], trials.folds[:1])
    return {name: one.settings for name, one in zip(names, found, strict=True) if one is not None}


def of_classes(model: Model, rate: float, share: float, X: FloatArray) -> tuple[float, float]:
    """Excess log-loss in expectation, and the top's probability less the true rate."""
    rows = score_with_leaves(model, X)
    p = np.clip(predictive_outputs.probabilities(model, rows.decision)[:, 1].astype(float), 1e-9, 1 - 1e-9)
    loss = -(rate * np.log(p) + (1 - rate) * np.log(1 - p)).mean()
    base = -(rate * np.log(share) + (1 - rate) * np.log(1 - share))
    top = np.sort(p)[-int(TOP * len(p)) :]
    return float(loss - base), float(100 * (top.mean() - rate))


def inside(model: Model, X: FloatArray, y: FloatArray) -> float:
    rows = score_with_leaves(model, X, scale=True)
    bounds = predictive_outputs.intervals(model, rows.decision[:, 0], rows.leaf, rows.log_scale, ALPHA)
    return float(100 * ((bounds[:, 0] <= y) & (y <= bounds[:, 1])).mean())


def shown(values: Sequence[float], digits: int) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def cell(values: Sequence[tuple[float, ...]]) -> str:
    columns = list(zip(*values, strict=True))
    digits = (4, 1) if len(columns) > 1 else (1,)
    return "; ".join(shown(one, places) for one, places in zip(columns, digits, strict=True))


def entries(names: Sequence[str], chosen: Sequence[str], seeds: int, quick: bool) -> Table:
    table = Table(
        "entry", *(f"{case}: {'excess; top, %' if CASES[case][2] else 'inside, %'}" for case in chosen)
    )
    found: dict[str, list[list[tuple[float, ...]]]] = {name: [[] for _ in chosen] for name in names}
    for at, case in enumerate(chosen):
        n, d, rate = CASES[case]
        n = n // 8 if quick else n
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            X, new = rng.normal(size=(n, d)), rng.normal(size=(NEW_ROWS, d))
            y = (rng.random(n) < rate).astype(int) if rate else rng.normal(size=n)
            truth = rng.normal(size=NEW_ROWS)
            task = "classification" if rate else "regression"
            for name, settings in realised(X, y, task, names).items():
                if quick:
                    settings = replace(settings, refine_steps=3)
                model = fitted(X, y, settings)
                own = of_classes(model, rate, y.mean(), new) if rate else (inside(model, new, truth),)
                found[name][at].append(own)
                say(case, str(seed), name, *(f"{one:.4f}" for one in own))
    for name, cases in found.items():
        table.add(name, *(cell(values) for values in cases))
    return table


def intervals(sizes: Sequence[int], seeds: int, d: int = 20) -> Table:
    table = Table("noise", "rows", *WAYS)
    for name, noise in NOISES.items():
        for n in sizes:
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                X, new = rng.normal(size=(n, d)), rng.normal(size=(NEW_ROWS, d))
                y, truth = (np.sin(2 * rows[:, 0]) + noise(rows, rng) for rows in (X, new))
                for way, more in WAYS.items():
                    given = {"task": "regression", "n_leaves": 1, "landmarks": 16, "products": 0, **more}
                    settings = make_settings(in_effect(given, "regression"))
                    found[way].append(inside(fitted(X, y, settings), new, truth))
            cells = [shown(values, 1) for values in found.values()]
            table.add(name, f"{n:,}", *cells)
            say(name, str(n), *cells)
    return table


def metrics(seeds: int, quick: bool) -> Table:
    table = Table("metric", "third: excess; top, %", "numbers: inside, %")
    for metric in ("accuracy", "neg_mean_squared_error") if quick else (*CLASS_METRICS, *NUMBER_METRICS):
        found = []
        n, d, rate = CASES["third" if metric in CLASS_METRICS else "numbers"]
        n = n // 8 if quick else n
        for seed in range(1 if quick else seeds):
            rng = np.random.default_rng(seed)
            X, new = rng.normal(size=(n, d)), rng.normal(size=(NEW_ROWS, d))
            if rate:
                y = (rng.random(n) < rate).astype(int)
                model = DCPredClassifier(random_state=0, metric=metric).fit(X, y).model_
                found.append(of_classes(model, rate, y.mean(), new))
            else:
                model = DCPredRegressor(random_state=0, metric=metric).fit(X, rng.normal(size=n)).model_
                found.append((inside(model, new, rng.normal(size=NEW_ROWS)),))
            say(metric, str(seed), *(f"{one:.4f}" for one in found[-1]))
        cells = [cell(found), ""]
        table.add(metric, *(cells if rate else cells[::-1]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--entries", default=";".join(PORTFOLIO), help="separated by semicolons")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rows", default="100,400,1000,2000", help="of --intervals")
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument(
        "--quick", action="store_true", help="one seed, two entries or metrics, an eighth of the rows"
    )
    args = parser.parse_args()
    begin = time.process_time()
    if args.intervals:
        table = intervals([int(n) for n in args.rows.split(",")], args.seeds)
    elif args.metrics:
        table = metrics(args.seeds, args.quick)
    else:
        names = ("default", "additive") if args.quick else tuple(args.entries.split(";"))
        table = entries(names, args.cases.split(","), 1 if args.quick else args.seeds, args.quick)
    table.show()
    say(f"{time.process_time() - begin:.0f} s of processor time")


if __name__ == "__main__":
    main()
