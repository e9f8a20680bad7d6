"""What a search foretells beside what is found, where rows are ordered in time or belong to groups.

    python tests/benchmarks/by_time.py [--tables elec2,wind,...] [--rows 20000] [--quick]

The latest fifth of the rows, or a fifth of the groups, is kept aside. Each table is trained twice without any
setting: with folds of rows at random, and with folds like the rows that are kept aside, which are `groups=`,
or three spans of the later half, each held out from all rows before it (as `--by-time` does). *Errors apart*
is the distance of the foretold from the found quality, in standard errors of both. That of the found quality
is by 16 spans of time, or by groups. *Inside* is the share of rows within 90 % intervals.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Table, data_folder
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred import DCPredClassifier, DCPredRegressor
from support.searches import few_candidates

TEST, SPANS = 0.2, 16


@dataclass(frozen=True)
class Rows:
    """Rows in the order of time, or with the group of each."""

    X: NDArray[Any]
    y: NDArray[Any]
    groups: NDArray[Any] | None = None

    @property
    def is_regression(self) -> bool:
        return self.y.dtype.kind == "f"

    def test(self) -> NDArray[np.bool_]:
        if self.groups is None:
            return np.arange(len(self.y)) >= (1 - TEST) * len(self.y)
        names = np.random.default_rng(0).permutation(np.unique(self.groups))
        return np.isin(self.groups, names[: max(round(TEST * len(names)), 1)])

    def clusters(self, at: NDArray[np.bool_]) -> NDArray[Any]:
        n = int(at.sum())
        return np.arange(n) * SPANS // n if self.groups is None else self.groups[at]


def elec2(n: int) -> Rows:
    data = np.load(data_folder() / "elec2.npz")
    return Rows(data["X"].astype(np.float32)[-n:], data["y"].astype(np.int64)[-n:])


def wind(n: int) -> Rows:
    """One station's wind from that of others, day by day."""
    data = np.load(data_folder() / "tables" / "503_wind.npz")
    order = np.lexsort(data["X"].T[[2, 1, 0]])
    return Rows(data["X"].astype(np.float32)[order][-n:], data["y"].astype(np.float64)[order][-n:])


def houses(n: int) -> Rows:
    """House values by cells of one degree."""
    data = np.load(data_folder() / "cal_housing.npz")
    some = np.random.default_rng(0).permutation(len(data["X"]))[:n]
    X = data["X"][some].astype(np.float32)
    cell = np.floor(X[:, 0]) * 1_000 + np.floor(X[:, 1])
    return Rows(X, data["y"][some] / 1e5, cell)


def sales(n: int) -> Rows:
    """Made up: trend, season, week days, price and promotions of eight shops in 900 days."""
    rng = np.random.default_rng(0)
    day, shop = np.sort(rng.integers(0, 900, n)), rng.integers(0, 8, n)
    price, promotion = rng.uniform(5, 15, n), rng.integers(0, 2, n)
    season = 0.04 * day + 15 * np.sin(2 * np.pi * day / 365) + 8 * (day % 7 >= 5)
    y = 60 + season + rng.normal(0, 10, 8)[shop] - 2 * price + 10 * promotion + rng.normal(0, 6, n)
    columns = day, day % 7, day % 365, shop, price, promotion
    return Rows(np.stack(columns, axis=1).astype(np.float32), y)


def customers(n: int) -> Rows:
    """Made up: customers who come ten times, each with a taste that their four traits tell from others'."""
    rng = np.random.default_rng(0)
    customer = rng.integers(0, max(n // 10, 10), n)
    traits = rng.normal(size=(customer.max() + 1, 4))
    taste = 1.5 * rng.normal(size=len(traits)) + 0.5 * traits[:, 0]
    X = np.concatenate([traits[customer], rng.normal(size=(n, 3))], axis=1).astype(np.float32)
    return Rows(X, (taste[customer] + X[:, 4] + rng.normal(size=n) > 0).astype(np.int64), customer)


TABLES: dict[str, Callable[[int], Rows]] = {
    "elec2": elec2,
    "wind": wind,
    "houses": houses,
    "sales": sales,
    "customers": customers,
}


def fitted(rows: Rows, train: NDArray[np.bool_], *, split: bool) -> Any:
    made = DCPredRegressor if rows.is_regression else DCPredClassifier
    cv = TimeSeriesSplit(3, test_size=int(train.sum()) // 6)
    by_time = split and rows.groups is None
    model = made(random_state=0, cv=cv if by_time else None)
    groups = rows.groups[train] if split and rows.groups is not None else None
    return model.fit(rows.X[train], rows.y[train], groups=groups)


def found(model: Any, rows: Rows, test: NDArray[np.bool_]) -> tuple[float, float, float | None]:
    """Quality, its standard error, and the share of rows within 90 % intervals."""
    losses = model.predict(rows.X[test]) - rows.y[test]
    losses = losses**2 if rows.is_regression else (losses != 0).astype(float)
    mean, cluster = losses.mean(), np.unique(rows.clusters(test), return_inverse=True)[1]
    sums = np.bincount(cluster, losses - mean) / len(losses)
    error = float(np.sqrt((sums**2).sum() * len(sums) / max(len(sums) - 1, 1)))
    if not rows.is_regression:
        return 1 - mean, error, None
    low, high = model.predict_interval(rows.X[test], 0.1).T
    inside = float(((low <= rows.y[test]) & (rows.y[test] <= high)).mean())
    return float(np.sqrt(mean)), error / (2 * float(np.sqrt(mean))), inside


def line(name: str, rows: Rows, *, split: bool) -> list[str]:
    test = rows.test()
    model = fitted(rows, ~test, split=split)
    told = model.tuned_["chosen"]
    quality, error = told[told["metric"]], told["standard_error"]
    is_found, own, inside = found(model, rows, test)
    apart = abs(quality - is_found) / np.hypot(error, own)
    by = "rows" if not split else "time" if rows.groups is None else "groups"
    figures = [f"{quality:.4g} ± {error:.2g}", f"{is_found:.4g} ± {own:.2g}", f"{apart:.1f}"]
    return [name, told["metric"], by, *figures, "–" if inside is None else f"{100 * inside:.0f} %"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    names = ["sales", "customers"] if args.quick else args.tables.split(",")
    table = Table("table", "metric", "folds of", "foretold", "found", "errors apart", "inside")
    with few_candidates() if args.quick else nullcontext():
        for name in names:
            rows = TABLES[name](200 if args.quick else args.rows)
            for split in (False, True):
                table.add(*line(name, rows, split=split))
    table.show()


if __name__ == "__main__":
    main()
