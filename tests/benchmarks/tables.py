"""Tables of categories: what codes and mean targets are worth, and what importing takes.

    python tests/benchmarks/tables.py [--seeds 5] [--rows 12000] [--quick]

Distinct rows of kddcup99 (38 numbers; protocol, 65 services, flag; normal against attack), and covtype (10
numbers; 4 wilderness areas, 40 soil types; class 2 against the rest): so many train, as many test, drawn anew
by each seed. All of it goes by files as it would for a user: CSV, import, training, import of the test rows
like the others. Settings are those of an estimator beside others: 8 leaves, 16 landmarks, learned scaling.
Importing is timed on one thread, in processor time.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from common import Table, data_folder
from sklearn.ensemble import HistGradientBoostingClassifier

from dcpred import DCPredClassifier, import_data
from dcpred.estimators.settings import as_parameters
from dcpred.serving.cost import predict_cost

SETTINGS: dict[str, Any] = {"scaling": "learned", "n_leaves": 8, "landmarks": 16, "overlap": 2}


def connections(folder: Path, most: int | None) -> pd.DataFrame:
    """Distinct rows of kddcup99 among the first so many."""
    names = ("protocol_type", "service", "flag")
    with np.load(folder / "kddcup99_10pct.npz") as data:
        numbers, codes, y = (data[name][:most] for name in ("X_num_train", "X_cat_train", "y_train"))
        _, distinct = np.unique(np.column_stack([numbers, codes]), axis=0, return_index=True)
        frame = pd.DataFrame(numbers[distinct], columns=[f"n{i}" for i in range(numbers.shape[1])])
        for j, name in enumerate(names):
            frame[name] = data[f"cat_{name}"][codes[distinct, j]]
        frame["answer"] = np.where(data["label_names"][y[distinct]] == "normal.", "normal", "attack")
    return frame


def forests(folder: Path, most: int | None) -> pd.DataFrame:
    """The first so many rows of covtype, its columns of 0 and 1 as two of text."""
    with np.load(folder / "covtype.npz") as data:
        X, y = np.ascontiguousarray(data["X"][:most]), data["y"][:most]
    frame = pd.DataFrame(X[:, :10], columns=[f"n{i}" for i in range(10)])
    frame["area"] = [f"area {i}" for i in X[:, 10:14].argmax(axis=1)]
    frame["soil"] = [f"soil {i}" for i in X[:, 14:].argmax(axis=1)]
    return frame.assign(answer=np.where(y == 2, "two", "rest"))


# name → rows, their categories, the one with the most
SETS: dict[str, tuple[Callable[[Path, int | None], pd.DataFrame], tuple[str, ...], str]] = {
    "kddcup99": (connections, ("protocol_type", "service", "flag"), "service"),
    "covtype": (forests, ("area", "soil"), "soil"),
}


def encodings(categories: tuple[str, ...], largest: str) -> dict[str, dict[str, str]]:
    return {
        "codes": {},
        f"mean target of {largest}": {largest: "means"},
        "mean targets": dict.fromkeys(categories, "means"),
        "without categories": dict.fromkeys(categories, "dropped"),
    }


def schema(encodings: dict[str, str]) -> dict[str, Any]:
    told = {
        name: {"kind": "dropped"} if kind == "dropped" else {"kind": "category", "encoding": kind}
        for name, kind in encodings.items()
    }
    return {"version": 1, "columns": [{"name": name} | kind for name, kind in told.items()]}


def tried(folder: Path, encoded: dict[str, str], seed: int) -> tuple[float, float, int]:
    """Accuracy on test rows, cost, and columns of the model."""
    known = folder / f"known-{len(list(folder.iterdir()))}.zarr"
    import_data(folder / "known.csv", known, target="answer", schema=schema(encoded))
    group = zarr.open_group(known, mode="r")
    fitted = DCPredClassifier(random_state=seed, **as_parameters(SETTINGS)).fit(group["X"], group["y"])
    new = folder / f"{known.stem}-test.zarr"
    import_data(folder / "test.csv", new, like=known)
    rows = zarr.open_group(new, mode="r")
    return fitted.score(rows["X"], rows["y"]), predict_cost(fitted.model_).cost_ratio, fitted.model_.n_columns


def boosted(known: pd.DataFrame, test: pd.DataFrame, categories: tuple[str, ...]) -> float:
    rival = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    both = pd.concat([known, test]).astype(dict.fromkeys(categories, "category"))
    rival.fit(both[: len(known)].drop(columns="answer"), known["answer"])
    return float(rival.score(both[len(known) :].drop(columns="answer"), test["answer"]))


def compare(table: Table, name: str, folder: Path, n: int, seeds: int, most: int | None) -> pd.DataFrame:
    """Add the lines of one set; returns its rows."""
    rows, categories, largest = SETS[name]
    frame = rows(data_folder(), most)
    ways = encodings(categories, largest)
    found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    trees = []
    for seed in range(seeds):
        work = folder / f"{name}-{seed}"
        work.mkdir()
        drawn = frame.sample(2 * n, random_state=seed)
        for part, of in (("known", drawn[:n]), ("test", drawn[n:])):
            of.to_csv(work / f"{part}.csv", index=False)
        for way, encoded in ways.items():
            found[way].append(tried(work, encoded, seed))
        trees.append(boosted(drawn[:n], drawn[n:], categories))
    for way, runs in found.items():
        right, cost, columns = map(np.array, zip(*runs, strict=True))
        told = f"{100 * right.mean():.2f} ± {100 * right.std():.2f} %"
        table.add(f"{name}, {way}", told, f"{cost.mean():.1f}", f"{columns.mean():.0f}")
    table.add(f"{name}, HistGradientBoosting", f"{100 * np.mean(trees):.2f} %", "–", "–")
    return frame


def seconds(source: Any, dest: Path, **options: Any) -> float:
    begin = time.process_time()
    import_data(source, dest, **options)
    return time.process_time() - begin


def speeds(large: pd.DataFrame, folder: Path) -> Table:
    table = Table("import of 41 columns, 3 of them text", "rows/s", "µs a row")
    large.to_csv(folder / "a.csv", index=False)
    large.to_parquet(folder / "a.parquet")
    sources = {"CSV": folder / "a.csv", "Parquet": folder / "a.parquet", "pandas": large}
    took = {n: seconds(source, folder / f"{n}.zarr", target="answer") for n, source in sources.items()}
    took["CSV, like another"] = seconds(folder / "a.csv", folder / "like.zarr", like=folder / "CSV.zarr")
    for name, spent in took.items():
        table.add(name, f"{len(large) / spent:,.0f}", f"{1e6 * spent / len(large):.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=12_000, help="to train on, and as many to test on")
    parser.add_argument("--quick", action="store_true", help="one seed, 400 rows of one set")
    args = parser.parse_args()
    seeds, n, most = (1, 400, 12_000) if args.quick else (args.seeds, args.rows, None)
    table = Table("rows", "right", "cost", "columns of the model")
    with tempfile.TemporaryDirectory(prefix="tables-") as work:
        frames = [
            compare(table, name, Path(work), n, seeds, most) for name in [*SETS][: 1 if args.quick else None]
        ]
        table.show()
        print()
        speeds(frames[0][:1_000] if args.quick else pd.concat([frames[0]] * 3), Path(work)).show()


if __name__ == "__main__":
    main()
