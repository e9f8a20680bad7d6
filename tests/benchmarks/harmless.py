"""Remarks on tables where nothing is wrong: each is a false alarm, or says what is true of the table.

    python tests/benchmarks/harmless.py [--rows 2000] [--splits 2] [--tables adult,nursery] [--quick]

Tables are tables/*.npz of the real data. Of each at most so many rows are drawn and split at random. One half
is imported and trained on, the other is evaluated and scored, as a Parquet file with its numbers as ids.
"""

import argparse
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from common import Table, data_folder
from engine import say

import dcpred
from dcpred_tasks.remarks import KINDS, RANKS, Severity

SETTINGS = {"n_leaves": 1, "landmarks": 16}
FEWEST = 10  # rows of a class in each half


def halves(path: Path, most: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table in two halves, without rare classes."""
    with np.load(path) as stored:
        X, y = stored["X"], stored["y"]
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:most]
    frame = pd.DataFrame(X[rows].astype(np.float64)).add_prefix("x")
    frame["target"] = y[rows]
    parts = frame[: len(rows) // 2], frame[len(rows) // 2 :]
    if y.dtype.kind in "iu":
        named = [part.assign(target="class " + part.target.astype(str)) for part in parts]
        common = set.intersection(
            *({name for name, n in part.target.value_counts().items() if n >= FEWEST} for part in named)
        )
        parts = tuple(part[part.target.isin(common)] for part in named)
    return parts[0], parts[1]


def remarks_on(known: pd.DataFrame, new: pd.DataFrame, folder: Path) -> list[tuple[str, str]]:
    """Steps, and codes of what they remark."""
    model, scored = folder / "model", folder / "new.parquet"
    features = new.drop(columns="target").assign(number=np.arange(len(new)))
    features.to_parquet(scored, index=False)
    task = "regression" if pd.api.types.is_numeric_dtype(known.target) else "classification"
    results = {
        "import": dcpred.import_data(known, folder / "known.zarr", target="target"),
        "train": dcpred.train(folder / "known.zarr", model, task=task, settings=SETTINGS),
        "import like": dcpred.import_data(new, folder / "new.zarr", like=str(model)),
        "evaluate": dcpred.evaluate(model, folder / "new.zarr", cost=False),
        "score": dcpred.score(str(model), str(scored), folder / "scores", parquet=True, id=["number"]),
    }
    for step, result in results.items():
        for each in result.remarks:
            say(f"{step}: {each}")
    return [(step, each.code) for step, result in results.items() for each in result.remarks]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--tables", default="")
    parser.add_argument("--quick", action="store_true", help="one table of 400 rows, one split")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.splits, args.tables = 400, 1, "german"
    paths = sorted((data_folder() / "tables").glob("*.npz"))
    paths = [path for path in paths if not args.tables or path.stem in args.tables.split(",")]
    met: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in paths:
        for seed in range(args.splits):
            say(f"{path.stem}, split {seed}")
            with tempfile.TemporaryDirectory(prefix="harmless-") as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore", dcpred.DataWarning)
                for step, code in remarks_on(*halves(path, args.rows, seed), Path(folder)):
                    met[code, step].append(path.stem)
    table = Table("severity", "code", "step", f"runs of {len(paths) * args.splits}", "tables")
    for (code, step), names in sorted(met.items(), key=lambda line: -RANKS[KINDS[line[0][0]].severity]):
        table.add(Severity(KINDS[code].severity), code, step, f"{len(names)}", ", ".join(sorted({*names})))
    if not met:
        table.add("none", "", "", "0", "")
    table.show()


if __name__ == "__main__":
    main()
