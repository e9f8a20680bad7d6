"""Oblivious trees: nanoseconds of a row, seconds of training, and quality beside HistGradientBoosting.

    python tests/benchmarks/trees.py engine|training|quality [--sets magic,...] [--splits 3] [--rows 15000]
                                     [--trees 300] [--rate 0.1] [--depth 6] [--turns 5] [--quick]

engine    trees × depths × features, one thread, single precision: the least of five runs of 200,000 rows, and
          what the model of costs says. Borders are as many as boosting would choose.
training  20,000 rows of 20 features, 100 trees: processor seconds, medians of turns, beside as many
          iterations of HistGradientBoosting, and of LightGBM and CatBoost where they are installed. Ours are
          fitted twice: the first fit holds rows out to choose the number.
quality   accuracy in percent or 100 R² of test rows, mean of the splits: HistGradientBoosting, LightGBM of
          baselines.py and trees alone with their processor seconds, and with one leaf of 32 landmarks: the
          kernel, both as trained, and the mean of kernel and trees.

Run it with OMP_NUM_THREADS=1.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from baselines import Problem, lightgbm, optional
from common import Table, data_folder
from halves import ALL
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dcpred import DCPredClassifier, DCPredRegressor, Settings
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from dcpred_tasks.training.tree_boosting import BORDERS, fit_trees

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.trees import random_trees

SETS = "547_no2,phoneme,wine_quality_white,vehicle,magic,elec2,201_pol,segmentation,adult,529_pollen"
SCORED_ROWS = 200_000


def seconds_of(work: Callable[[], Any], times: int = 1) -> tuple[float, Any]:
    """The least processor time, and the result."""
    least, result = np.inf, None
    for _ in range(times):
        begin = time.process_time()
        result = work()
        least = min(least, time.process_time() - begin)
    return least, result


def engine(args: argparse.Namespace) -> None:
    table = Table("features", "depth", "trees", "ns a row", "foretold")
    for d in (10, 54, 200):
        X = np.random.default_rng(0).normal(size=(SCORED_ROWS // (10 if args.quick else 1), d))
        X = X.astype(np.float32)
        for depth in (4, 6, 8):
            for n_trees in (20, 50, 100, 300):
                trees = random_trees(1, d, 1, n_trees, depth, min(BORDERS, max(4, n_trees * depth // d)))
                trees.engine(X[:100])
                seconds, _ = seconds_of(lambda fast=trees.engine, rows=X: fast(rows), 5)
                cells = d, depth, n_trees, f"{1e9 * seconds / len(X):.1f}", f"{trees.cost:.1f}"
                table.add(*map(str, cells))
    table.show()


def training(args: argparse.Namespace) -> None:
    table = Table("target", "trees", "seconds", *(others := _others()))
    rng = np.random.default_rng(0)
    n = 2_000 if args.quick else 20_000
    X = rng.normal(size=(n, 20)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    targets = {"numbers": y, "2 classes": (y > 0).astype(int), "4 classes": np.digitize(y, [-1, 0, 1])}
    for name, target in targets.items():
        fits = [
            lambda t=target: _trees(X, t, args, trees=100),
            *(lambda k=kinds[name == "numbers"], t=target: k().fit(X, t) for kinds in others.values()),
        ]
        turns = [[seconds_of(fit) for fit in fits] for _ in range(1 if args.quick else args.turns)]
        seconds = np.median([[spent for spent, _ in turn] for turn in turns], axis=0)
        table.add(name, str(len(turns[0][0][1].leaf)), *(f"{spent:.2f}" for spent in seconds))
    table.show()


def _others() -> dict[str, list[Callable[[], Any]]]:
    """Boosting of classes and of numbers by others."""
    kinds = HistGradientBoostingClassifier, HistGradientBoostingRegressor
    others = {"HistGradientBoosting": [partial(kind, early_stopping=False) for kind in kinds]}
    if library := optional("lightgbm"):
        kinds = library.LGBMClassifier, library.LGBMRegressor
        others["LightGBM"] = [partial(kind, n_estimators=100, n_jobs=1, verbose=-1) for kind in kinds]
    if library := optional("catboost"):
        kinds = library.CatBoostClassifier, library.CatBoostRegressor
        given = {
            "iterations": 100,
            "depth": 6,
            "thread_count": 1,
            "verbose": False,
            "allow_writing_files": False,
        }
        others["CatBoost"] = [partial(kind, **given) for kind in kinds]
    return others


def _trees(X: np.ndarray, y: np.ndarray, args: argparse.Namespace, **more: Any) -> Any:
    task = "regression" if y.dtype.kind == "f" else "classification"
    survey = survey_rows(X, y, None, 0, task)
    values = {"task": task, "trees": args.trees, "tree_rate": args.rate, "tree_depth": args.depth, **more}
    target = y if task == "regression" else np.searchsorted(survey.classes, y)
    return fit_trees(X, target, np.ones(len(y)), survey, make_settings(values))


def quality(args: argparse.Namespace) -> None:
    boosted = "HistGradientBoosting", "LightGBM", "its seconds", "trees", "their seconds"
    table = Table("set", "rows", *boosted, "kernel", "both", "mean of kernel and trees", "landmarks")
    for name in args.sets.split(","):
        found = [_of_split(name, seed, args) for seed in range(args.splits)]
        means = np.mean([row[1:] for row in found], axis=0)
        table.add(name, str(found[0][0]), *(f"{one:.2f}" for one in means[:-1]), f"{means[-1]:.0f}")
        print(table.lines[-1], flush=True)
    table.show()


def _of_split(name: str, seed: int, args: argparse.Namespace) -> tuple[float, ...]:
    split, regression = ALL[name].load(data_folder(), seed), ALL[name].regression
    n = min(len(split.y), 500 if args.quick else args.rows)
    X, X_test = (np.asarray(rows, np.float32) for rows in (split.X[:n], split.X_test))
    y, truth = (np.asarray(one, float) if regression else one for one in (split.y[:n], split.y_test))

    def rated(predicted: np.ndarray) -> float:
        if regression:
            return 100.0 * float(1.0 - np.mean((predicted - truth) ** 2) / np.var(truth))
        return 100.0 * float(np.mean(predicted == truth))

    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    boosted = rated(kind(random_state=seed).fit(X, y).predict(X_test))
    spent, light = seconds_of(lambda: lightgbm(Problem(X, y, regression, seed, threads=1)))
    seconds, trees = seconds_of(lambda: _trees(X, y, args, seed=seed))
    f, classes = trees.values(X_test), np.unique(y)
    values = f[:, 0] if regression else classes[(f[:, 0] > 0) * 1 if f.shape[1] == 1 else f.argmax(axis=1)]
    ours = DCPredRegressor if regression else DCPredClassifier
    given: dict[str, Any] = {"n_leaves": 1, "landmarks": 32, "random_state": seed}
    own = Settings(trees=args.trees, tree_rate=args.rate, tree_depth=args.depth)
    kernel, both = ours(**given).fit(X, y), ours(**given, settings=own).fit(X, y)
    if regression:
        mean = rated((kernel.predict(X_test) + f[:, 0]) / 2)
    else:
        powers = np.exp(4.0 * np.hstack([-f, f]) / 2 if f.shape[1] == 1 else 2.0 * f)
        shares = powers / powers.sum(axis=1, keepdims=True)
        mean = rated(classes[(shares + kernel.predict_proba(X_test)).argmax(axis=1)])
    alone = rated(kernel.predict(X_test)), rated(both.predict(X_test))
    others = boosted, rated(light.predict(X_test)), spent
    return n, *others, rated(values), seconds, *alone, mean, len(both.model_.landmarks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("engine", "training", "quality"), default="engine")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given_args = parser.parse_args()
    {"engine": engine, "training": training, "quality": quality}[given_args.what](given_args)
