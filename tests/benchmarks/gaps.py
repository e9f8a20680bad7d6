"""Accuracy where values are missing: dcpred without a setting, beside HistGradientBoosting, which knows gaps.

    python tests/benchmarks/gaps.py [--sets kdd,magic] [--patterns "none;30 % at random"] [--rows 8000]
        [--seeds 3] [--quick]

Gaps are put into whole data sets, into training and test rows alike: none, 10 % and 30 % of all cells at
random, and 30 % not at random, more of them where a value is large, or in rows of the second class (of large
targets). A gap is imputed, or imputed with an indicator of every feature that has some, or with indicators
where held-out rows do better (missing = impute, indicate, auto). Accuracy in percent, R² × 100 for
cal_housing, on rows never seen; means over the seeds, each with rows and gaps of its own.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from common import Table, data_folder
from engine import say
from numpy.typing import NDArray
from sets import Split
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_tasks.dtypes import FloatArray

MODES = ("impute", "indicate", "auto")
QUICK_ROWS = 120
LARGER = 1.9  # How many times as often as in the mean a value is missing where it is large, or in one class.


def _whole(name: str) -> Callable[[Path], tuple[NDArray[np.generic], NDArray[np.generic]]]:
    def load(folder: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        with np.load(folder / f"{name}.npz") as data:
            return data["X"], data["y"]

    return load


def _kdd(folder: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Normal traffic against attacks, once each row of which there are copies: numbers, then three features
    of codes.
    """
    with np.load(folder / "kddcup99_10pct.npz") as data:
        X = np.hstack([data["X_num_train"], data["X_cat_train"].astype(np.float32)])
        y = data["label_names"][data["y_train"]] == "normal."
    X, index = np.unique(X, axis=0, return_index=True)
    return X, y[index].astype(np.int8)


SETS: dict[str, Callable[[Path], tuple[NDArray[np.generic], NDArray[np.generic]]]] = {
    "kdd": _kdd,
    "cal_housing": _whole("cal_housing"),
    "magic": _whole("magic"),
    "letter": _whole("letter"),
}


def at_random(X: FloatArray, y: FloatArray, share: float) -> FloatArray:
    return np.full(X.shape, share)


def where_large(X: FloatArray, y: FloatArray, share: float) -> FloatArray:
    """By the place of a value among those of its feature: never the least, most often the largest."""
    place = np.argsort(np.argsort(X, axis=0, kind="stable"), axis=0, kind="stable") / len(X)
    return 2 * share * place


def by_class(X: FloatArray, y: FloatArray, share: float) -> FloatArray:
    """In a third of the features, seldom in one half of the rows and often in the other."""
    often = y > np.median(y) if len(np.unique(y)) > 2 else y == y.max()
    chance = np.where(often, LARGER * share, (2 - LARGER) * share)[:, None]
    return np.where(np.arange(X.shape[1]) % 3 == 0, chance, share)


PATTERNS = {
    "none": (at_random, 0.0),
    "10 % at random": (at_random, 0.1),
    "30 % at random": (at_random, 0.3),
    "30 %, where large": (where_large, 0.3),
    "30 %, by class": (by_class, 0.3),
}


def split_with_gaps(name: str, pattern: str, rows: int, seed: int) -> Split:
    X, y = SETS[name](data_folder())
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))[: 2 * rows]
    X, y = X[order].astype(np.float64), y[order]
    chance, share = PATTERNS[pattern]
    numbers = np.unique(y, return_inverse=True)[1].astype(np.float64)
    X[rng.random(X.shape) < chance(X, numbers, share)] = np.nan
    half = len(y) // 2
    return Split(X[:half], y[:half], X[half:], y[half:])


def judged(name: str, split: Split, seed: int) -> Iterator[tuple[str, float]]:
    """(system, accuracy or R² in percent)."""
    regression = name == "cal_housing"
    boosted = (HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier)(
        random_state=seed
    )
    ours = DCPredRegressor if regression else DCPredClassifier
    systems = {"HistGradientBoosting": boosted} | {
        mode: ours(missing=mode, random_state=seed)
        for mode in MODES
        if np.isnan(split.X).any() or mode == "auto"
    }
    for system, model in systems.items():
        begin = time.perf_counter()
        value = 100 * model.fit(split.X, split.y).score(split.X_test, split.y_test)
        told = (
            ""
            if system not in MODES
            else f", {len(model.model_.scaling.source) - split.X.shape[1]} more columns"
        )
        say(f"{name}, {system}: {value:.2f}, {time.perf_counter() - begin:.1f} s{told}")
        yield system, value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--patterns", default=";".join(PATTERNS), help="separated by semicolons")
    parser.add_argument("--rows", type=int, default=8_000, help="rows to train on, and as many to test on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one set, few rows, one pattern, one seed")
    args = parser.parse_args()
    names, patterns, rows, seeds = args.sets.split(","), args.patterns.split(";"), args.rows, args.seeds
    if args.quick:
        names, patterns, rows, seeds = ["magic"], ["30 %, by class"], QUICK_ROWS, 1
    table = Table("data", "gaps", "HistGradientBoosting", *MODES)
    for name in names:
        for pattern in patterns:
            found: dict[str, list[float]] = {}
            for seed in range(seeds):
                say(f"{name}, {pattern}, seed {seed}")
                for system, value in judged(name, split_with_gaps(name, pattern, rows, seed), seed):
                    found.setdefault(system, []).append(value)
            means = {system: f"{np.mean(values):.2f}" for system, values in found.items()}
            table.add(name, pattern, *(means.get(system, "–") for system in ("HistGradientBoosting", *MODES)))
    table.show()


if __name__ == "__main__":
    main()
