"""Tables scored where they lie, beside an import of the same rows: all outputs, bit for bit.

    python tests/benchmarks/tables_in_place.py [--rows 6000] [--quick]

Five tables: adult, german and elec2 with their columns of few values as text, distinct rows of kddcup99 with
protocol, service and flag, and a made-up one. Each has categories, a column of dates (that of elec2 by its
order, of others drawn) and 3 % of its values missing. Half of the rows train, from Parquet; the others are
scored as Parquet of several row groups, as an Arrow file, as a Delta table where deltalake is installed, and
as Zarr from `dcpred import --like`. Exits with 1 where one bit differs.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
from common import Table, data_folder
from tables import connections

import dcpred
from dcpred.runs.ledger import open_ledger
from dcpred_tasks.storage.addressed_arrays import open_group

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.tables import table as made_up

FEW_VALUES, MISSING, GROUP_ROWS = 20, 0.03, 700
SETTINGS = {"n_leaves": 4, "landmarks": 16}
OUTPUTS = ["label", "decision", "probability", "novelty"]


def coded(X: Any, y: Any) -> pd.DataFrame:
    """A matrix as a table: columns of few values are text."""
    columns: dict[str, Any] = {}
    for j in range(X.shape[1]):
        values = np.ascontiguousarray(X[:, j])
        few = len(np.unique(values)) <= FEW_VALUES
        columns[f"c{j}"] = [f"value {v:g}" for v in values] if few else values.astype(np.float64)
    return pd.DataFrame(columns).assign(label=[f"class {c}" for c in y])


def with_dates_and_gaps(frame: pd.DataFrame, *, in_order: bool) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = len(frame)
    days = np.arange(n) // 48 if in_order else rng.integers(0, 2_000, n)
    found = frame.assign(day=pd.Timestamp("2019-03-01") + pd.to_timedelta(days, "D"))
    for name in found.columns.drop("label"):
        found.loc[rng.random(n) < MISSING, name] = None
    return found


def tables(folder: Path, most: int) -> dict[str, pd.DataFrame]:
    """Tables by name, each with a target called label."""
    found = {}
    for name in ("adult", "german"):
        with np.load(folder / "tables" / f"{name}.npz") as data:
            found[name] = with_dates_and_gaps(coded(data["X"][:most], data["y"][:most]), in_order=False)
    with np.load(folder / "elec2.npz") as data:
        found["elec2"] = with_dates_and_gaps(coded(data["X"][:most], data["y"][:most]), in_order=True)
    kdd = connections(folder, max(8 * most, 48_000)).rename(columns={"answer": "label"})
    kdd = kdd.sample(min(most, len(kdd)), random_state=0).reset_index(drop=True)
    found["kddcup99"] = with_dates_and_gaps(kdd, in_order=False)
    found["made up"] = made_up(most).drop(columns="id")
    return found


def scores(output: Path) -> dict[str, Any]:
    return {name: array[...] for name, array in open_group(output / "scores.zarr").arrays()}


def written(new: pd.DataFrame, folder: Path, model: Path) -> dict[str, Path]:
    """The same rows in every form, by its name; the imported ones first."""
    of = pa.Table.from_pandas(new, preserve_index=False)
    pq.write_table(of, folder / "new.parquet", row_group_size=GROUP_ROWS, compression="zstd")
    dcpred.import_data(folder / "new.parquet", folder / "new.zarr", like=model)
    pf.write_feather(of, folder / "new.arrow", chunksize=GROUP_ROWS)
    found = {"Zarr": folder / "new.zarr", "Parquet": folder / "new.parquet", "Arrow": folder / "new.arrow"}
    try:
        from deltalake import write_deltalake
    except ImportError:
        return found
    half = len(of) // 2
    write_deltalake(str(folder / "new"), of.slice(0, half))
    write_deltalake(str(folder / "new"), of.slice(half), mode="append")
    return found | {"Delta": folder / "new"}


def compared(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """The number of values in all outputs, and how many differ from those of imported rows, by form."""
    half = len(frame) // 2
    frame[:half].to_parquet(folder / "known.parquet", index=False)
    model = folder / "model"
    dcpred.train(folder / "known.parquet", model, y="label", settings=SETTINGS)
    expected: dict[str, Any] = {}
    differ: dict[str, Any] = {}
    for form, data in written(frame[half:].drop(columns="label"), folder, model).items():
        dcpred.score(model, data, folder / form, outputs=OUTPUTS)
        assert open_ledger(folder / form).run.n_rows == len(frame) - half
        found = scores(folder / form)
        expected = expected or found
        bits = {name: (found[name].tobytes(), expected[name].tobytes()) for name in expected}
        differ[form] = sum(one != other for one, other in bits.values())
    return {"values": sum(array.size for array in expected.values()), "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    shown = Table("table", "rows", "columns", "categories", "values compared", "outputs that differ")
    wrong = 0
    for name, frame in tables(data_folder(), 600 if options.quick else options.rows).items():
        with tempfile.TemporaryDirectory() as folder:
            found = compared(frame, Path(folder))
        texts = sum(1 for kind in frame.drop(columns="label").dtypes if kind.kind in "OTU")
        wrong += sum(found["differ"].values())
        differ = ", ".join(f"{form} {n}" for form, n in found["differ"].items() if form != "Zarr")
        counts = (len(frame), frame.shape[1] - 1, texts, found["values"])
        shown.add(name, *(f"{n:,}" for n in counts), differ)
    shown.show()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
