"""Intervals of 90 % whose widths follow the prediction, beside those of a constant width in each leaf.

    python tests/benchmarks/intervals.py [--sets cal_housing,...] [--seeds 1] [--leaves 1,8] [--quick]
    python tests/benchmarks/intervals.py --transforms [--search] [--sets lognormal,...] [--seeds 3]

All tables with numbers as a target, and made-up targets whose noise grows with the prediction, follows a
feature, or is constant. Six of ten rows train, at most 9,000, the others test. Both are of one model, with
learned scaling and 32 landmarks: the constant widths are those that the same rows held out give without a
scale. *By quarter* is the share of test rows inside in each quarter of the rows by prediction. The Winkler
score is the width, and twenty times what the target lies outside; its change is in percent of that with
constant widths, with the standard error over test rows.

`--transforms` compares settings of `target_transform` in their place, with 4,000 training rows and 4 leaves;
`--search` adds a model without any setting.
"""

import argparse
from typing import Any
from unittest import mock

import numpy as np
from common import Table, data_folder
from engine import say
from numpy.typing import NDArray

from dcpred import DCPredRegressor
from dcpred.estimators.settings import as_parameters
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.target_transform import TRANSFORMS
from dcpred_tasks.training import held_out

TABLES = (
    *("201_pol", "225_puma8NH", "344_mv", "503_wind", "529_pollen", "537_houses", "547_no2", "564_fried"),
    *("cal_housing", "cpusmall", "house_16H", "protein"),
)
MADE = ("lognormal", "counts", "gamma", "by feature", "constant")
SHARE_TRAINED_ON, MOST_ROWS, TEST_ROWS = 0.6, 9_000, 20_000
MADE_ROWS = 6_000
QUICK_SETS, QUICK_ROWS = ("cpusmall", "lognormal"), 500
ALPHA = 0.1
TRANSFORM_ROWS = 4_000


def made(name: str, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    X, noise = rng.normal(size=(n, 6)), rng.normal(size=n)
    level = 1 + 0.8 * X[:, 0] + 0.4 * np.sin(2 * X[:, 1]) + 0.3 * X[:, 2] * X[:, 3]
    if name == "counts":
        return X, rng.poisson(np.exp(0.5 + 0.8 * X[:, 0] + 0.5 * X[:, 1])).astype(float)
    if name == "gamma":
        return X, rng.gamma(2.0, np.exp(level) / 2)
    if name == "lognormal":
        return X, np.exp(level + np.log(1.6) * noise)
    return X, level + 0.3 * noise * (np.exp(0.8 * X[:, 4]) if name == "by feature" else 1.0)


def loaded(name: str, seed: int, most: int) -> tuple[NDArray[Any], ...]:
    """Rows and targets to train on, and to test on."""
    rng = np.random.default_rng(seed)
    if name in MADE:
        n = min(MADE_ROWS, most)
        X, y = made(name, n + TEST_ROWS, rng)
    else:
        folder = data_folder()
        path = folder / f"{name}.npz"
        with np.load(path if path.exists() else folder / "tables" / f"{name}.npz") as data:
            X, y = data["X"].astype(np.float64), data["y"].astype(np.float64)
        order = rng.permutation(len(y))
        X, y, n = X[order], y[order], min(int(SHARE_TRAINED_ON * len(y)), most)
    return X[:n], y[:n], X[n : n + TEST_ROWS], y[n : n + TEST_ROWS]


def winkler(bounds: FloatArray, y: FloatArray) -> FloatArray:
    low, high = bounds.T
    return np.asarray(high - low + 2 / ALPHA * np.maximum(np.maximum(low - y, y - high), 0.0))


def fitted(rows: tuple[NDArray[Any], ...], settings: dict[str, Any], constant: bool) -> DCPredRegressor:
    with mock.patch.object(held_out, "POWERS", () if constant else held_out.POWERS):
        return DCPredRegressor(**as_parameters(settings)).fit(*rows[:2])


def quarters(inside: NDArray[np.bool_], value: FloatArray) -> str:
    parts = np.array_split(np.argsort(value, kind="stable"), 4)
    return " ".join(f"{100 * inside[part].mean():.1f}" for part in parts)


def line(name: str, seed: int, leaves: int, most: int, more: dict[str, Any]) -> list[str]:
    """The line of a set, in its cells."""
    rows = loaded(name, seed, most)
    settings = {"n_leaves": leaves, "landmarks": 32, "scaling": "learned", "random_state": seed, **more}
    X, y = rows[2:]
    own, other = (fitted(rows, settings, constant) for constant in (False, True))
    found, plain = (model.predict_interval(X, ALPHA) for model in (own, other))
    value = own.predict(X)
    inside, before = (((low <= y) & (y <= high)) for low, high in (found.T, plain.T))
    gain = winkler(found, y) - winkler(plain, y)
    base = winkler(plain, y).mean()
    error = gain.std() / np.sqrt(len(gain))
    return [
        f"{name}, {len(rows[1]):,}",
        str(leaves),
        f"{100 * inside.mean():.1f}",
        quarters(inside, value),
        f"{100 * before.mean():.1f}",
        quarters(before, value),
        f"{100 * gain.mean() / base:+.1f} ± {100 * error / base:.1f}",
    ]


def transformed(name: str, seeds: int, most: int, more: dict[str, Any], search: bool) -> list[list[str]]:
    """Lines of a set by transforms of the target, means of seeds."""
    by_hand = {"n_leaves": 4, "landmarks": 32, "scaling": "learned"} | more
    ways: dict[str, dict[str, Any]] = {one: by_hand | {"target_transform": one} for one in TRANSFORMS}
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(seeds):
        X, y, new, true = loaded(name, seed, most)
        for way, settings in (ways | {"search": {}} if search else ways).items():
            say(name, way)
            model = DCPredRegressor(**as_parameters(settings), random_state=seed).fit(X, y)
            bounds, off = model.predict_interval(new, ALPHA), model.predict(new) - true
            inside = (bounds[:, 0] <= true) & (true <= bounds[:, 1])
            figures = float(np.sqrt((off**2).mean())), float(winkler(bounds, true).mean()), inside.mean()
            found.setdefault(way, []).append(figures)
            chosen = model.settings_.get("target_transform", TRANSFORMS[0])
            found.setdefault(f"{way} chose", []).append((TRANSFORMS.index(chosen),))
    lines = []
    for way in (way for way in found if not way.endswith(" chose")):
        (rmse, score, inside), off = np.mean(found[way], axis=0), np.std(found[way], axis=0)
        chose = ", ".join(TRANSFORMS[int(one)] for (one,) in found[f"{way} chose"])
        cells = f"{rmse:.4g} ± {off[0]:.2g}", f"{score:.4g} ± {off[1]:.2g}", f"{100 * inside:.1f}"
        lines.append([name, f"search: {chose}" if way == "search" else way, *cells])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join((*TABLES, *MADE)))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--leaves", default="1,8")
    parser.add_argument("--transforms", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two sets of 500 rows, 2 leaves")
    args = parser.parse_args()
    asked = QUICK_SETS if args.quick else args.sets.split(",")
    leaves = [2] if args.quick else [int(n) for n in args.leaves.split(",")]
    most, more = (QUICK_ROWS, {"refine_steps": 5, "landmarks": 4}) if args.quick else (MOST_ROWS, {})
    if args.transforms:
        by_transform = Table("set", "target_transform", "RMSE", "Winkler score", "inside, %")
        for name in asked:
            for one in transformed(name, args.seeds, min(most, TRANSFORM_ROWS), more, args.search):
                by_transform.add(*one)
                say(*one)
        by_transform.show()
        return
    table = Table(
        *("set, training rows", "leaves", "inside, %", "by quarter, %", "constant: inside, %"),
        *("by quarter, %", "Winkler score, %"),
    )
    for name in asked:
        for seed in range(1 if args.quick else args.seeds):
            for n in leaves:
                table.add(*(one := line(name, seed, n, most, more)))
                say(*one)
    table.show()


if __name__ == "__main__":
    main()
