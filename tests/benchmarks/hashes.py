"""Hashes of models and scores of ten configurations: a change of the code that changes no result keeps them.

    python tests/benchmarks/hashes.py [--work DIR] [--quick]

Each configuration trains a model and scores rows through the Python API, in place from Parquet and from an
import into Zarr, once with tables of blocks. Equal lines before and after a change mean equal bits.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from common import Table

import dcpred

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "leaves": {"n_leaves": 4, "gamma": 0.1},
    "one leaf, logistic": {"n_leaves": 1, "loss": "logistic", "class_weight": "balanced"},
    "paper": {"n_leaves": 4, "refine": False, "triangle": 4},
    "learned scaling": {"n_leaves": 2, "scaling": "learned", "leaf_scaling": True},
    "additive": {"n_leaves": 2, "feature_map": "additive", "scaling": "none"},
    "laplacian": {"n_leaves": 4, "kernel": "laplacian", "keep_support_vectors": True},
    "polynomial, all rows": {"n_leaves": 2, "kernel": "polynomial", "missing": "impute"},
    "regression": {"task": "regression", "n_leaves": 4, "ridge": 0.1},
    "regression, quantile": {"task": "regression", "n_leaves": 2, "loss": "quantile", "quantile": 0.8},
    "regression, log targets": {
        "task": "regression",
        "n_leaves": 2,
        "target_transform": "log1p",
        "loss": "huber",
    },
}


def rows(n: int, seed: int) -> pa.Table:
    """Numbers with missing values, categories of few and many values, and a time."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    shop = rng.integers(0, 60, n)
    value = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(shop) + 0.3 * rng.normal(size=n)
    X[rng.random((n, 5)) < 0.02] = np.nan
    columns = {f"f{number}": column for number, column in enumerate(X.T)} | {
        "kind": np.array(["new", "old", "used"])[rng.integers(0, 3, n)],
        "shop": np.array([f"shop {number}" for number in range(60)])[shop],
        "at": np.datetime64("2026-01-01", "s") + rng.integers(0, 10**7, n).astype("m8[s]"),
        "order": np.arange(n),
        "class": np.digitize(value, [-0.5, 0.8]),
        "amount": np.exp(value),
        "weight": rng.integers(1, 4, n).astype(float),
    }
    return pa.table(columns)


def digest_of(*values: Any) -> str:
    digest = hashlib.sha256()
    for array in values:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def scores_of(output: Path) -> str:
    """Every value of the arrays of an output, and of its tables."""
    group = zarr.open_group(output / "scores.zarr", mode="r")
    arrays = [np.asarray(array[...]) for _, array in sorted(group.arrays())]
    tables = sorted((output / "scores.parquet").glob("*.parquet"))
    if tables:
        read = pa.concat_tables([pq.read_table(path) for path in tables])
        arrays += [np.asarray(json.dumps(read.to_pydict(), default=str))]
    return digest_of(*arrays)


def hashes(name: str, work: Path, n: int) -> tuple[str, ...]:
    settings = CONFIGURATIONS[name]
    target, other = ("amount", "class") if "task" in settings else ("class", "amount")
    folder = work / name.replace(",", "").replace(" ", "-")
    folder.mkdir(parents=True)
    known, new = folder / "known.parquet", folder / "new.parquet"
    pq.write_table(rows(n, 0).drop_columns([other]), known)
    pq.write_table(rows(n, 1).drop_columns(["class", "amount", "weight"]), new, row_group_size=n // 7)
    columns: dict[str, Any] = {"y": target, "id": ["order"], "sample_weight": "weight"}
    dcpred.train(str(known), folder / "model", settings=settings, **columns)
    dcpred.import_data(str(new), folder / "new.zarr", like=folder / "model")
    dcpred.score(folder / "model", str(new), folder / "in-place", parquet=True)
    dcpred.score(folder / "model", folder / "new.zarr", folder / "imported")
    model = dcpred.load_model(folder / "model")
    of_frame = model.predict(rows(n, 1).select([*rows(1, 1).column_names[:8]]).to_pandas())
    stored = json.loads((folder / "model" / "model.json").read_text(encoding="utf-8"))
    return stored["hash"], scores_of(folder / "in-place"), scores_of(folder / "imported"), digest_of(of_frame)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("benchmark-hashes"))
    parser.add_argument("--quick", action="store_true", help="three configurations of 600 rows")
    args = parser.parse_args()
    names = [*CONFIGURATIONS][:: 4 if args.quick else 1]
    table = Table("configuration", "model", "scores in place", "scores of the import", "predictions")
    for name in names:
        table.add(name, *hashes(name, args.work, 600 if args.quick else 4_000))
    table.show()


if __name__ == "__main__":
    main()
