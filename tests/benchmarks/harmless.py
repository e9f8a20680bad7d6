"""Remarks where nothing is wrong, each of which is a false alarm or true of the table; and on disasters.

    python tests/benchmarks/harmless.py [--only tables|sets|made|large] [--tables adult,nursery] [--quick]
    python tests/benchmarks/harmless.py --disasters

Pairs are random halves of tables/*.npz and *.npz of the real data, of several sizes; and of made tables with
texts, dates, ids and times, whose second part comes later, without drift. One half is imported and trained
on, the other is imported like the model, evaluated, and scored with an id. Disasters concern a share of the
rows of the made table.
"""

import argparse
import shutil
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Table, data_folder
from engine import say
from numpy.typing import NDArray

import dcpred
from dcpred_tasks.remarks import KINDS, RANKS, Severity

LEAF_ROWS = 8_000
ROWS, TARGETS = ("X", "X_train", "X_num_train"), ("y", "y_train")  # names of arrays
MOST_CLASSES = 30
FEWEST = 10  # rows of a class in each half
SIZES = (4_000, 2_000, 500, 100)  # rows of both halves
SHARES = (0.01, 0.05, 0.2, 1.0)
CITIES = ("Berlin", "Hamburg", "Munich", "Cologne")
LEAST_OF_HOURS, LARGEST_OF_HOURS = 1_000, 10**5  # hours remember some ten earlier ones
MOST_SHOWN = 8
Pair = tuple[str, pd.DataFrame, pd.DataFrame]
Disaster = Callable[[pd.DataFrame, NDArray[np.int64]], pd.DataFrame]


def halves(path: Path, most: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table in two halves, without rare classes."""
    with np.load(path) as stored:
        X, y = (next(stored[key] for key in keys if key in stored) for keys in (ROWS, TARGETS))
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:most]
    frame = pd.DataFrame(X[rows].astype(np.float64)).add_prefix("x")
    frame["target"] = y[rows]
    parts = frame[: len(rows) // 2], frame[len(rows) // 2 :]
    if y.dtype.kind in "iu" or len(np.unique(y)) <= MOST_CLASSES:
        named = [part.assign(target="class " + part.target.astype(str)) for part in parts]
        common = set.intersection(
            *({name for name, n in part.target.value_counts().items() if n >= FEWEST} for part in named)
        )
        parts = tuple(part[part.target.isin(common)] for part in named)
    return parts[0], parts[1]


def remarks_on(
    known: pd.DataFrame | None, new: pd.DataFrame, folder: Path, name: str
) -> list[tuple[str, str]]:
    """Steps, and codes of what they remark; without known rows, the model in the folder is used again."""
    model, scored = folder / "model", folder / "new.parquet"
    for each in ("new.zarr", "scores"):
        shutil.rmtree(folder / each, ignore_errors=True)
    features = new.drop(columns="target").assign(number=np.arange(len(new)))
    features.to_parquet(scored, index=False)
    results: dict[str, Any] = {}
    if known is not None:
        task = "regression" if pd.api.types.is_numeric_dtype(known.target) else "classification"
        settings = {"n_leaves": -(-len(known) // LEAF_ROWS), "landmarks": 16, "max_leaf_rows": 2 * LEAF_ROWS}
        results["import"] = dcpred.import_data(known, folder / "known.zarr", target="target")
        results["train"] = dcpred.train(folder / "known.zarr", model, task=task, settings=settings)
    results["import like"] = dcpred.import_data(new, folder / "new.zarr", like=str(model))
    results["evaluate"] = dcpred.evaluate(model, folder / "new.zarr", cost=False)
    results["score"] = dcpred.score(str(model), str(scored), folder / "scores", parquet=True, id=["number"])
    for step, result in results.items():
        for each in result.remarks:
            say(f"{name}: {step}: {each}")
    return [(step, each.code) for step, result in results.items() for each in result.remarks]


def tables(names: Collection[str]) -> Iterator[Pair]:
    """Halves of the thirty tables, in four sizes."""
    for path in sorted((data_folder() / "tables").glob("*.npz")):
        for seed, most in enumerate(SIZES):
            if not names or path.stem in names:
                yield f"{path.stem}, {most:,}", *halves(path, most, seed)


def sets() -> Iterator[Pair]:
    """Halves of the seventeen sets, in two sizes."""
    for path in sorted(data_folder().glob("*.npz")):
        for seed, most in enumerate((2_000, 400)):
            yield f"{path.stem}, {most:,}", *halves(path, most, seed)


def people(n: int, seed: int) -> pd.DataFrame:
    """Numbers, a rare flag, amounts that are mostly 0, texts, dates, missing values; sizes go together. Small
    tables have fewer categories: those of few rows are unknown to a model.
    """
    r = np.random.default_rng(seed)
    size, cities = r.normal(size=n), CITIES[: max(n // 50, 1)]
    rows = pd.DataFrame(
        {
            "age": r.integers(18, 90, n),
            "weight_kg": (75 + 12 * size).round(1),
            "waist_cm": (90 + 11 * size + 2 * r.normal(size=n)).round(1),
            "height_cm": (172 + 6 * size + 7 * r.normal(size=n)).round(1),
            "income": np.exp(r.normal(10, 0.6, n)).round(2),
            "spent": np.where(r.random(n) < 0.7, 0, np.exp(r.normal(3, 1, n)).round(2)),
            "city": r.choice(cities, n),
            "shop": [f"shop {k}" for k in r.integers(0, min(max(n // 50, 1), 40), n)],
            "smoker": r.random(n) < 0.1,
            "day": (pd.Timestamp("2024-01-01") + pd.to_timedelta(r.integers(0, 366, n), unit="D")).strftime(
                "%F"
            ),
        }
    )
    if n >= 200:
        rows.loc[r.random(n) < 0.05, "income"] = np.nan
    z = 0.05 * (rows.age - 50) + size + 1.2 * rows.smoker + 0.8 * (rows.city == CITIES[0])
    rows["target"] = np.where(r.random(n) < 1 / (1 + np.exp(-1.5 * z)), "yes", "no")
    return rows


def hours(n: int, seed: int) -> pd.DataFrame:
    """Hours in their order: periods, features that remember, and a number that follows them."""
    r = np.random.default_rng(seed)
    hour = np.arange(n) % 24
    noise = r.normal(size=(n, 3))
    for i in range(1, n):
        noise[i] += 0.8 * noise[i - 1]
    heat = 10 * np.sin(hour * np.pi / 12) + noise[:, 0]
    rows = pd.DataFrame({"hour": hour, "heat": heat, "wind": noise[:, 1], "cloud": noise[:, 2]})
    return rows.assign(target=0.7 * heat + 2 * np.abs(noise[:, 1]) + r.normal(size=n))


def made(sizes: Sequence[int], seeds: int) -> Iterator[Pair]:
    """Made tables: another draw, or the time that follows."""
    for size in sizes:
        for seed in range(seeds):
            yield f"people, {size:,}", people(size, 2 * seed), people(size, 2 * seed + 1)
            if LEAST_OF_HOURS <= size <= LARGEST_OF_HOURS:
                rows = hours(2 * size, seed)
                yield f"hours, {size:,}", rows[:size], rows[size:].reset_index(drop=True)


def pairs(kind: str, names: Collection[str]) -> Iterator[Pair]:
    kinds: dict[str, Callable[[], Iterator[Pair]]] = {
        "tables": partial(tables, names),
        "sets": sets,
        "made": partial(made, (50, 200, 1_000, 5_000), 6),
        "large": partial(made, (100_000, 1_000_000), 1),
    }
    return chain.from_iterable(each() for name, each in kinds.items() if kind in ("", name))


def harmless(given: Iterator[Pair]) -> None:
    met: dict[tuple[str, str], list[str]] = defaultdict(list)
    n = 0
    for name, known, new in given:
        if known.target.nunique() < 2 or new.target.nunique() < 2:
            continue
        n += 1
        with tempfile.TemporaryDirectory(prefix="harmless-") as folder:
            for step, code in remarks_on(known, new, Path(folder), name):
                met[code, step].append(name)
    table = Table("severity", "code", "step", f"runs of {n}", "tables")
    for (code, step), each in sorted(met.items(), key=lambda line: -RANKS[KINDS[line[0][0]].severity]):
        shown = ", ".join(sorted({*each})[:MOST_SHOWN])
        table.add(Severity(KINDS[code].severity), code, step, f"{len(each)}", shown)
    if not met:
        table.add("none", "", "", "0", "")
    table.show()


def _changed(column: str, value: Callable[[pd.DataFrame], Any]) -> Disaster:
    """A disaster that gives one column of the rows that it concerns other values."""

    def change(rows: pd.DataFrame, at: NDArray[np.int64]) -> pd.DataFrame:
        part = rows.iloc[at]
        values = rows[column].astype(object if rows[column].dtype.kind != "f" else float)
        values.iloc[at] = value(part)
        return rows.assign(**{column: values.infer_objects()})

    return change


def _shuffled(column: str) -> Disaster:
    return _changed(column, lambda part: np.random.default_rng(0).permutation(part[column]))


def _swapped(rows: pd.DataFrame, at: NDArray[np.int64]) -> pd.DataFrame:
    """Ranks of weight and height change places, and both keep their distributions."""
    part = rows.iloc[at]
    for a, b in (("weight_kg", "height_cm"), ("height_cm", "weight_kg")):
        order = np.argsort(np.argsort(part[b].to_numpy()))
        rows = _changed(a, lambda p, a=a, order=order: np.sort(p[a].to_numpy())[order])(rows, at)
    return rows


DISASTERS: dict[str, Disaster] = {
    "another unit (× 1,000)": _changed("weight_kg", lambda part: 1_000 * part.weight_kg),
    "another unit (kg to lb)": _changed("weight_kg", lambda part: 2.2 * part.weight_kg),
    "−999 for missing": _changed("weight_kg", lambda part: -999.0),
    "missing values": _changed("age", lambda part: np.nan),
    "another spelling": _changed("city", lambda part: part.city.str.upper()),
    "shuffled, correlation 0.98": _shuffled("waist_cm"),
    "shuffled, correlation 0.65": _shuffled("height_cm"),
    "sign about the mean": _changed("waist_cm", lambda part: 180 - part.waist_cm),
    "columns that changed places": _swapped,
    "targets of other rows": _shuffled("target"),
    "targets with the other name": _changed(
        "target", lambda part: part.target.map({"yes": "no", "no": "yes"})
    ),
    "rows twice": lambda rows, at: pd.concat([rows, rows.iloc[at]], ignore_index=True),
}


def disasters(n: int) -> None:
    """What is remarked on disasters that concern a share of n new rows, beyond a control."""
    known, new = people(n, 0), people(n, 1)
    order = np.random.default_rng(3).permutation(n)
    table = Table("disaster", *(f"{100 * share:g} % of the rows" for share in SHARES))
    with tempfile.TemporaryDirectory(prefix="disasters-") as folder:
        control = {*remarks_on(known, new, Path(folder), "control")}
        for name, change in DISASTERS.items():
            shown = []
            for share in SHARES:
                rows = change(new, np.sort(order[: max(int(share * n), 1)]))
                met = {*remarks_on(None, rows, Path(folder), name)} - control
                codes = {code for _, code in met if RANKS[KINDS[code].severity] > RANKS[Severity.NOTE]}
                shown.append(", ".join(sorted(codes)) or "–")
            table.add(name, *shown)
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", choices=["", "tables", "sets", "made", "large"])
    parser.add_argument("--tables", default="")
    parser.add_argument("--disasters", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one table and one made pair, two disasters")
    args = parser.parse_args()
    warnings.simplefilter("ignore", dcpred.DataWarning)
    names = [name for name in args.tables.split(",") if name]
    if args.quick:
        for name in [*DISASTERS][2:]:
            del DISASTERS[name]
        harmless(chain(islice(tables(["german"]), 1, 2), made([300], 1)))
    if args.disasters or args.quick:
        disasters(300 if args.quick else 3_000)
    elif not args.quick:
        harmless(pairs("tables" if names else args.only, names))


if __name__ == "__main__":
    main()
