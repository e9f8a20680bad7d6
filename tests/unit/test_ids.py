"""An id that is delivered is the cell of its row: in Parquet, Delta tables and exports, of every type."""

import datetime
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
import zarr

import dcpred
from dcpred_tasks.errors import DataError, IncompleteError, RefusedError
from dcpred_tasks.tables.parquet_files import parquet_footer
from dcpred_tasks.tables.table_files import list_files

N = 60
SETTINGS = {"n_leaves": 1, "landmarks": 4, "calibrate": False}
WHEN, DAY = datetime.datetime(2026, 1, 3, 16, 24, 14, 250), datetime.timedelta(1)
Cell = Callable[[int], Any]
# Types of ids, with a cell of each row.
KINDS: dict[str, tuple[pa.DataType, Cell]] = {
    "int8": (pa.int8(), lambda i: i - 30),
    "uint64": (pa.uint64(), lambda i: 2**64 - 1 - i),
    "int64": (pa.int64(), lambda i: 2**60 + i),
    "float": (pa.float64(), lambda i: i / 7),
    "half": (pa.float16(), lambda i: i / 2),
    "boolean": (pa.bool_(), lambda i: i % 3 == 0),
    "text": (pa.string(), lambda i: f" {i} é" if i else ""),
    "large text": (pa.large_string(), lambda i: f"{i}"),
    "category": (pa.dictionary(pa.int8(), pa.string()), lambda i: "abc"[i % 3]),
    "timestamp": (pa.timestamp("us"), lambda i: WHEN + datetime.timedelta(hours=i)),
    "nanoseconds": (pa.timestamp("ns"), lambda i: WHEN + datetime.timedelta(hours=i)),
    "zoned": (
        pa.timestamp("us", "UTC"),
        lambda i: (WHEN + datetime.timedelta(i)).replace(tzinfo=datetime.UTC),
    ),
    "berlin": (
        pa.timestamp("us", "Europe/Berlin"),
        lambda i: (WHEN + datetime.timedelta(i)).replace(tzinfo=datetime.UTC),
    ),
    "date": (pa.date32(), lambda i: datetime.date(2026, 1, 1) + datetime.timedelta(i)),
    "time": (pa.time64("us"), lambda i: datetime.time(i % 24, i, 1)),
    "decimal": (pa.decimal128(20, 2), lambda i: Decimal(i) / 4),
    "bytes": (pa.binary(), lambda i: bytes([i, 255])),
    "nothing": (pa.null(), lambda i: None),
}
IN_DELTA = {"time": lambda value: f"{value}.000000", "half": float}


def cells(kind: str, gaps: random.Random | None) -> list[Any]:
    """A value of each row; missing in some rows."""
    make = KINDS[kind][1]
    return [None if gaps is not None and gaps.random() < 0.2 else make(i) for i in range(N)]


def table(columns: dict[str, pa.Array]) -> pa.Table:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N))
    known = {"a": a, "b": b, "label": np.where(a > 0, "p", "q")}
    return pa.table(known | columns)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    pq.write_table(table({}), folder / "known.parquet")
    dcpred.train(folder / "known.parquet", folder / "model", y="label", settings=SETTINGS)
    return folder / "model"


def stored(kind: pa.DataType) -> pa.DataType:
    """The type of ids: that of the column, without the form of its storage."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_null(kind) else kind


@pytest.mark.parametrize("seed", range(6))
def test_an_id_is_the_cell_of_its_row(seed: int, model: Path, tmp_path: Path) -> None:
    """Random tables: any types and names, missing values or none, with statistics or without, in row groups
    and files of any size, after columns of structs.
    """
    draw = random.Random(seed)
    names = ["y", "row number", "a.b", "s.x", "status_of", "_hidden", "__dunder", "d/e", "X"]
    kinds = dict(zip(names, draw.sample(list(KINDS), len(names)), strict=True))
    expected = {name: cells(kind, draw if draw.random() < 0.6 else None) for name, kind in kinds.items()}
    before = {"s": pa.array([None if i % 4 == 0 else {"x": i, "y": [i]} for i in range(N)])}
    held = table(before | {name: pa.array(expected[name], KINDS[kind][0]) for name, kind in kinds.items()})
    held = held.select(draw.sample(held.column_names, len(held.column_names)))
    for number, start in enumerate(range(0, N, cut := draw.choice((17, 30, N)))):
        (tmp_path / "t").mkdir(exist_ok=True)
        options = {"row_group_size": draw.choice((7, 100)), "write_statistics": draw.random() < 0.5}
        pq.write_table(held.slice(start, cut), tmp_path / f"t/{number}.parquet", **options)
    asked = [*kinds, "a"]
    expected["a"] = held["a"].to_pylist()
    dcpred.score(model, tmp_path / "t", tmp_path / "out", parquet=True, id=asked)
    quoted = ",".join(f'"{name}"' for name in asked)
    for out in ("e.parquet", "e.feather"):
        dcpred.export(tmp_path / "out", tmp_path / out, beside=[quoted])
    dcpred.export(tmp_path / "out", tmp_path / "f.parquet", beside=[f"{tmp_path}/t:{quoted}"])
    for found in (
        pq.read_table(tmp_path / "out/scores.parquet"),
        pq.read_table(tmp_path / "e.parquet"),
        pq.read_table(tmp_path / "f.parquet"),
        pf.read_table(tmp_path / "e.feather"),
    ):
        for name in asked:
            assert found[name].to_pylist() == expected[name], name
            if name in kinds:
                assert found.schema.field(name).type == stored(KINDS[kinds[name]][0])


@pytest.mark.parametrize("gaps", [False, True])
def test_ids_in_a_delta_table_and_a_text(gaps: bool, model: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    expected = {kind: cells(kind, random.Random(1) if gaps else None) for kind in KINDS}
    held = table({kind: pa.array(expected[kind], KINDS[kind][0]) for kind in KINDS})
    pq.write_table(held, tmp_path / "t.parquet")
    dcpred.score(model, tmp_path / "t.parquet", tmp_path / "out", delta=tmp_path / "d", id=[*KINDS])
    found = pa.table(deltalake.DeltaTable(str(tmp_path / "d")).to_pyarrow_table())
    for kind, values in expected.items():
        right = [None if v is None else IN_DELTA[kind](v) for v in values] if kind in IN_DELTA else values
        assert found[kind].to_pylist() == right, kind
        assert found.schema.field(kind).nullable
    dcpred.export(tmp_path / "out", tmp_path / "e.csv", beside=[",".join(k for k in KINDS if k != "bytes")])
    text = pa_csv.read_csv(
        tmp_path / "e.csv",
        convert_options=pa_csv.ConvertOptions(column_types={"int64": pa.int64(), "text": pa.string()}),
    )
    assert text["int64"].to_pylist() == expected["int64"]


def test_types_do_not_depend_on_missing_values_or_statistics(model: Path, tmp_path: Path) -> None:
    """A night with a missing id is appended to the table of nights without."""
    number = pa.array([None if i == 3 else i for i in range(N)], pa.int64())
    kinds = set()
    for name, column, statistics in (
        ("a", number, True),
        ("b", number.fill_null(3), True),
        ("c", number, False),
    ):
        pq.write_table(table({"n": column}), tmp_path / f"{name}.parquet", write_statistics=statistics)
        out = tmp_path / f"out-{name}"
        dcpred.score(model, tmp_path / f"{name}.parquet", out, delta=tmp_path / "nights", id=["n"])
        kinds.add(pq.read_table(out / "scores.parquet").schema.field("n").type)
        pf.write_feather(table({"n": column}), tmp_path / f"{name}.feather")
        dcpred.score(model, tmp_path / f"{name}.feather", tmp_path / f"f-{name}", parquet=True, id=["n"])
        kinds.add(pq.read_table(tmp_path / f"f-{name}/scores.parquet").schema.field("n").type)
    assert kinds == {pa.int64()}


def test_the_footer_counts_a_column_behind_nested_ones(tmp_path: Path) -> None:
    held = pa.table(
        {
            "s": [{"n": None, "l": [1, 2]}] * 4,
            "m": pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
            "s.n": pa.array([1.0, 2.0, 3.0, 4.0]),
            "n": pa.array([None, 1, 2, None], pa.int64()),
        }
    )
    pq.write_table(held, tmp_path / "t.parquet")
    footer = parquet_footer(list_files(str(tmp_path / "t.parquet"))[0], ())
    assert [footer.nulls(name) for name in ("s.n", "n", "s")] == [0, 2, None]
    assert footer.group_bytes(0, {"s.n"}) >= 32
    assert footer.group_bytes(0, {"n", "s.n"}) >= 64


def test_uuids_are_text_and_nested_values_are_refused(model: Path, tmp_path: Path) -> None:
    ids = [uuid.uuid5(uuid.NAMESPACE_DNS, str(i)) for i in range(N)]
    columns = {"s": pa.array([{"x": i} for i in range(N)]), "l": pa.array([[i] for i in range(N)])}
    if hasattr(pa, "uuid"):
        columns["u"] = pa.array([one.bytes for one in ids], pa.uuid())
    pf.write_feather(table(columns), tmp_path / "t.arrow")
    if "u" in columns:
        dcpred.score(model, tmp_path / "t.arrow", tmp_path / "out", parquet=True, id=["u"])
        found = pq.read_table(tmp_path / "out/scores.parquet")
        assert found["u"].to_pylist() == [str(one) for one in ids]
    for name in ("s", "l"):
        with pytest.raises(DataError, match=f"column '{name}' of .* not one of single values"):
            dcpred.score(model, tmp_path / "t.arrow", tmp_path / "o", parquet=True, id=[name])
    assert not (tmp_path / "o").exists()


# -- Features and targets of a model -------------------------------------------------------------------------


def people(cities: list[Any], n: int = 240) -> pa.Table:
    """A table whose text, timestamp, boolean and column y are features."""
    rng = np.random.default_rng(1)
    city = [cities[i % len(cities)] for i in range(n)]
    when = [WHEN + datetime.timedelta(hours=7 * i) for i in range(n)]
    is_old = rng.random(n) < 0.5
    y = rng.integers(0, 9, n)
    label = np.where(np.array([c == "rome" for c in city]) ^ is_old, "p", "q")
    return pa.table({"city": city, "when": when, "old": is_old, "y": y, "label": label})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    pq.write_table(people(["rome", "oslo", "bonn"]), folder / "known.parquet")
    dcpred.train(folder / "known.parquet", folder / "model", y="label", settings=SETTINGS)
    pq.write_table(people(["rome", "madrid", "", "lisbon", None, "oslo"], 90), folder / "new.parquet")
    return folder


ROLES = ["city", "when", "old", "y", "label"]


def test_features_and_the_target_of_a_table_are_their_cells(world: Path, tmp_path: Path) -> None:
    dcpred.score(world / "model", world / "new.parquet", tmp_path / "out", parquet=True, id=ROLES[:4])
    dcpred.export(tmp_path / "out", tmp_path / "e.parquet", beside=["city,when,old,y"])
    right = pq.read_table(world / "new.parquet").select(ROLES[:4])
    for found in (tmp_path / "out/scores.parquet", tmp_path / "e.parquet"):
        assert pq.read_table(found).select(ROLES[:4]).equals(right)
    dcpred.export(tmp_path / "out", tmp_path / "t.parquet", beside=["label"], columns=["decision"])
    found = pq.read_table(tmp_path / "t.parquet")["label"].to_pylist()
    assert found == pq.read_table(world / "new.parquet")["label"].to_pylist()


def test_an_import_delivers_what_it_holds_exactly(world: Path, tmp_path: Path) -> None:
    """A known category, a number, a boolean and the target; not a category that the model does not know, nor
    a time of day.
    """
    rows = people(["rome", "oslo", None], 60)
    pq.write_table(rows, tmp_path / "t.parquet")
    dcpred.import_data(tmp_path / "t.parquet", tmp_path / "t.zarr", like=world / "model")
    dcpred.score(
        world / "model", tmp_path / "t.zarr", tmp_path / "out", parquet=True, id=["city", "old", "y"]
    )
    found = pq.read_table(tmp_path / "out/scores.parquet")
    for name in ("city", "old", "y"):
        assert found[name].to_pylist() == rows[name].to_pylist()
    dcpred.export(tmp_path / "out", tmp_path / "e.parquet", beside=["label"], columns=["decision"])
    assert pq.read_table(tmp_path / "e.parquet")["label"].to_pylist() == rows["label"].to_pylist()
    with pytest.raises(DataError, match=r"the import did not store times of day with their dates") as error:
        dcpred.score(world / "model", tmp_path / "t.zarr", tmp_path / "o", parquet=True, id=["when"])
    assert not (tmp_path / "o").exists()
    assert "--with TABLE:when" in str(error.value)
    dcpred.export(tmp_path / "out", tmp_path / "w.parquet", beside=[f"{tmp_path}/t.parquet:when"])
    assert pq.read_table(tmp_path / "w.parquet")["when"].to_pylist() == rows["when"].to_pylist()


def test_an_import_does_not_deliver_others(world: Path, tmp_path: Path) -> None:
    dcpred.import_data(world / "new.parquet", tmp_path / "t.zarr", like=world / "model")
    with pytest.raises((DataError, IncompleteError), match=r"did not store the category in row 1\b"):
        dcpred.score(world / "model", tmp_path / "t.zarr", tmp_path / "out", parquet=True, id=["city"])
    dcpred.score(world / "model", tmp_path / "t.zarr", tmp_path / "plain")
    with pytest.raises(RefusedError, match=r"did not store the category in row 1\b"):
        dcpred.export(tmp_path / "plain", tmp_path / "e.csv", beside=["city"])
    assert not (tmp_path / "e.csv").exists()


def test_the_array_of_targets_is_not_a_feature_of_its_name(world: Path, tmp_path: Path) -> None:
    dcpred.import_data(world / "known.parquet", tmp_path / "t.zarr", like=world / "model", target="label")
    assert "labels" in zarr.open_array(tmp_path / "t.zarr/y").attrs
    dcpred.score(world / "model", tmp_path / "t.zarr", tmp_path / "out", parquet=True, id=["y"])
    right = pq.read_table(world / "known.parquet")["y"].to_pylist()
    assert pq.read_table(tmp_path / "out/scores.parquet")["y"].to_pylist() == right
