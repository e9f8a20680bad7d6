"""The estimators without an argument and with a budget, beside what else a user of scikit-learn tries first.

    python tests/benchmarks/estimators.py [--sets digits,magic,...] [--splits 3] [--rows 12000] [--quick]

Random splits, three quarters to train on, of at most so many rows of each set (an SVC takes minutes for
more). Score is accuracy or R² on the rest, with its spread over splits; seconds are those of `fit`, the time
per row that of `predict` on the rest, both by the clock on all cores.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from common import Table, data_folder
from engine import say
from more_sets import EVERY
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from dcpred import DCPredClassifier, DCPredRegressor

OWN = {
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "iris": datasets.load_iris,
}
REGRESSIONS = {"diabetes", *(s.name for s in EVERY if s.regression)}
CLASSIFIERS: Mapping[str, Callable[[], Any]] = {
    "no argument": DCPredClassifier,
    'budget="20x"': lambda: DCPredClassifier(budget="20x"),
    "SVC": lambda: make_pipeline(StandardScaler(), SVC()),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "random forest": lambda: RandomForestClassifier(random_state=0, n_jobs=-1),
}
REGRESSORS: Mapping[str, Callable[[], Any]] = {
    "no argument": DCPredRegressor,
    'budget="20x"': lambda: DCPredRegressor(budget="20x"),
    "SVC": lambda: make_pipeline(StandardScaler(), SVR()),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=0),
    "random forest": lambda: RandomForestRegressor(random_state=0, n_jobs=-1),
}


def rows_of(name: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if name in OWN:
        return OWN[name](return_X_y=True)
    split = next(s for s in EVERY if s.name == name).load(data_folder(), seed)
    return np.ascontiguousarray(split.X), split.y


def tried(make: Callable[[], Any], X: Any, y: Any, X_test: Any, y_test: Any) -> tuple[float, float, float]:
    """(score, seconds of fit, microseconds per row of predict)."""
    begin = time.perf_counter()
    machine = make().fit(X, y)
    seconds = time.perf_counter() - begin
    machine.predict(X_test[:100])  # Machine code is made or read here.
    begin = time.perf_counter()
    machine.predict(X_test)
    each = (time.perf_counter() - begin) / len(X_test) * 1e6
    return float(machine.score(X_test, y_test)), seconds, each


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*OWN, *(s.name for s in EVERY)]
    parser.add_argument("--sets", help="names with commas; all otherwise: " + ",".join(every))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--quick", action="store_true", help="150 rows of iris and diabetes, one split")
    args = parser.parse_args()
    if args.quick:
        args.splits, args.rows, args.sets = 1, 150, args.sets or "iris,diabetes"
    table = Table("data, training rows", *CLASSIFIERS)
    for name in args.sets.split(",") if args.sets else every:
        machines = REGRESSORS if name in REGRESSIONS else CLASSIFIERS
        found: dict[str, list[tuple[float, float, float]]] = {key: [] for key in machines}
        for seed in range(args.splits):
            X, y = rows_of(name, seed)
            order = np.random.default_rng(seed).permutation(len(y))[: args.rows]
            n = 3 * len(order) // 4
            A, B = order[:n], order[n:]
            for key, make in machines.items():
                found[key].append(tried(make, X[A], y[A], X[B], y[B]))
                say(f"{name}, split {seed}, {key}: {found[key][-1]}")
        cells = []
        for results in found.values():
            score, seconds, each = np.mean(results, axis=0)
            spread = np.std([one[0] for one in results])
            cells.append(f"{score:.3f} ± {spread:.3f}; {seconds:.1f} s; {each:.1f} µs")
        table.add(f"{name}, {n:,}", *cells)
    table.show()


if __name__ == "__main__":
    main()
