"""Tables of categories: what codes and mean targets are worth, and what importing takes.

    python tests/benchmarks/tables.py [--seeds 5] [--rows 12000] [--quick]

Distinct rows of kddcup99 (38 numbers, 3 categories of which one has some 65 services), normal against attack:
so many train, as many test, drawn anew by each seed. All of it goes by files as it would for a user: CSV,
import, training, import of the test rows like the model's. Settings are those of an estimator beside others:
4 leaves, 32 landmarks, learned scaling. Importing is timed on one thread, in processor time.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from common import Table, data_folder
from sklearn.ensemble import HistGradientBoostingClassifier

from dcpred import DCPredClassifier, import_data
from dcpred.cost.predicted import predict_cost

CATEGORIES = ("protocol_type", "service", "flag")
ENCODINGS: dict[str, dict[str, Any]] = {
    "codes of all three": {},
    "mean target of the service": {"service": "means"},
    "mean targets of all three": dict.fromkeys(CATEGORIES, "means"),
    "without the three": dict.fromkeys(CATEGORIES, "dropped"),
}


def connections(folder: Path, most: int | None) -> pd.DataFrame:
    """Distinct rows among the first so many."""
    with np.load(folder / "kddcup99_10pct.npz") as data:
        numbers, codes, y = (data[name][:most] for name in ("X_num_train", "X_cat_train", "y_train"))
        _, distinct = np.unique(np.column_stack([numbers, codes]), axis=0, return_index=True)
        frame = pd.DataFrame(numbers[distinct], columns=[f"n{i}" for i in range(numbers.shape[1])])
        for j, name in enumerate(CATEGORIES):
            frame[name] = data[f"cat_{name}"][codes[distinct, j]]
        frame["answer"] = np.where(data["label_names"][y[distinct]] == "normal.", "normal", "attack")
    return frame


def schema(encodings: dict[str, str]) -> dict[str, Any]:
    told = {
        name: {"kind": "dropped"} if kind == "dropped" else {"kind": "category", "encoding": kind}
        for name, kind in encodings.items()
    }
    return {"version": 1, "columns": [{"name": name} | kind for name, kind in told.items()]}


def tried(folder: Path, encodings: dict[str, str], seed: int) -> tuple[float, float, int]:
    """Accuracy on test rows, cost, and columns of the model."""
    known, test = folder / f"known-{len(list(folder.iterdir()))}.zarr", folder / "test.zarr"
    import_data(folder / "known.csv", known, target="answer", schema=schema(encodings))
    group = zarr.open_group(known, mode="r")
    fitted = DCPredClassifier(random_state=seed, scaling="learned", n_leaves=4, landmarks=32)
    fitted.fit(group["X"], group["y"])
    new = folder / f"{known.stem}-test.zarr"
    import_data(folder / "test.csv", new, like=known)
    assert not test.exists()
    rows = zarr.open_group(new, mode="r")
    return fitted.score(rows["X"], rows["y"]), predict_cost(fitted.model_).cost_ratio, fitted.model_.n_columns


def boosted(known: pd.DataFrame, test: pd.DataFrame) -> float:
    kinds = dict.fromkeys(CATEGORIES, "category")
    rival = HistGradientBoostingClassifier(categorical_features="from_dtype", max_bins=255, random_state=0)
    both = pd.concat([known, test]).astype(kinds)
    rival.fit(both[: len(known)].drop(columns="answer"), known["answer"])
    return float(rival.score(both[len(known) :].drop(columns="answer"), test["answer"]))


def seconds(source: Any, dest: Path, **options: Any) -> float:
    begin = time.process_time()
    import_data(source, dest, **options)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=12_000, help="to train on, and as many to test on")
    parser.add_argument("--quick", action="store_true", help="one seed, 400 rows")
    args = parser.parse_args()
    seeds, n = (1, 400) if args.quick else (args.seeds, args.rows)
    frame = connections(data_folder(), 12_000 if args.quick else None)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ENCODINGS}
    trees: list[float] = []
    with tempfile.TemporaryDirectory(prefix="tables-") as work:
        for seed in range(seeds):
            folder = Path(work) / str(seed)
            folder.mkdir()
            drawn = frame.sample(2 * n, random_state=seed)
            for name, part in (("known", drawn[:n]), ("test", drawn[n:])):
                part.to_csv(folder / f"{name}.csv", index=False)
            for name, encodings in ENCODINGS.items():
                found[name].append(tried(folder, encodings, seed))
            trees.append(boosted(drawn[:n], drawn[n:]))
        table = Table("kddcup99, normal / attack", "right", "cost", "columns of the model")
        for name, runs in found.items():
            right, cost, columns = map(np.array, zip(*runs, strict=True))
            table.add(
                name,
                f"{100 * right.mean():.2f} ± {100 * right.std():.2f} %",
                f"{cost.mean():.1f}",
                f"{columns.mean():.0f}",
            )
        table.add("HistGradientBoosting, categories as such", f"{100 * np.mean(trees):.2f} %", "–", "–")
        table.show()
        print()
        table = Table("import of 41 columns, 3 of them text", "rows/s", "µs a row")
        large = pd.concat([frame] * (1 if args.quick else 3))[: 1_000 if args.quick else None]
        folder = Path(work)
        large.to_csv(folder / "a.csv", index=False)
        large.to_parquet(folder / "a.parquet")
        sources = {"CSV": folder / "a.csv", "Parquet": folder / "a.parquet", "pandas": large}
        for name, source in sources.items():
            took = seconds(source, folder / f"{name}.zarr", target="answer")
            table.add(name, f"{len(large) / took:,.0f}", f"{1e6 * took / len(large):.1f}")
        took = seconds(folder / "a.csv", folder / "like.zarr", like=folder / "CSV.zarr")
        table.add("CSV, like another", f"{len(large) / took:,.0f}", f"{1e6 * took / len(large):.1f}")
        table.show()


if __name__ == "__main__":
    main()
