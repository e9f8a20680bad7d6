"""Parquet files and Delta tables on an object store, of which some requests are spoiled."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from deltalake import DeltaTable

import dcpred
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from support.data import make_blobs, make_group
from support.stores import Proxy, used

N_ROWS = 330


@pytest.fixture(scope="module")
def store(s3_proxy: Proxy) -> Iterator[Proxy]:
    with used(s3_proxy), pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 50)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        yield s3_proxy


@pytest.fixture(autouse=True)
def quiet(store: Proxy) -> Iterator[None]:
    store.set_faults()
    yield
    store.set_faults()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, store: Proxy) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    blobs = make_blobs(N_ROWS, n_features=3, n_classes=3, seed=0)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    zarr.open_group(data, mode="r+").create_array("id", data=np.arange(N_ROWS), chunks=(100,))
    dcpred.train(data, folder / "model", settings={"n_leaves": 2, "landmarks": 4})
    dcpred.score(folder / "model", data, folder / "out", parquet=True, id=["id"])
    return folder


def tables(place: Place) -> dict[str, bytes]:
    found = {name: place.read(name) for name in place.listing("scores.parquet")}
    return {name: one.data for name, one in found.items() if one is not None}


def test_files_are_those_of_a_disk(world: Path, store: Proxy) -> None:
    output = store.address("parquet", "out")
    args = world / "model", world / "data.zarr", output
    dcpred.score(*args, parquet=True, id=["id"])
    place = open_place(output)
    right = tables(open_place(world / "out"))
    assert len(right) == 3
    assert tables(place) == right
    assert dcpred.verify(output, "fast").ok
    name = "scores.parquet/000001.parquet"
    for injure, kind in (
        (lambda: place.remove(name), Kind.MISSING_TABLE),
        (lambda: place.write(name, right[name][:-9]), Kind.TABLE_SIZE),
        (lambda: place.write(name, right[name][:-9] + bytes(9)), Kind.DAMAGED_TABLE),  # another tag
    ):
        injure()
        report = dcpred.verify(output, "fast")
        assert [(one.kind, one.block) for one in report.findings] == [(kind, 1)]
        assert dcpred.repair(*args, parquet=True, id=["id"]).scored_blocks == 1
        assert tables(place) == right


def test_a_refresh_copies_files_of_unchanged_blocks(world: Path, store: Proxy) -> None:
    root = store.address("parquet", "root")
    dcpred.refresh(world / "model", world / "data.zarr", root, parquet=True, id=["id"])
    zarr.open_group(world / "data.zarr", mode="r+")["id"][320] = 7
    report = dcpred.refresh(world / "model", world / "data.zarr", root)
    assert (report.taken_blocks, report.scored_blocks) == (2, 1)
    output = f"{root}/runs/{report.run}"
    assert dcpred.verify(output).ok
    last = tables(open_place(output))["scores.parquet/000002.parquet"]
    assert pq.read_table(io.BytesIO(last))["id"].to_pylist()[20] == 7


@pytest.mark.parametrize("spoilt", [False, True], ids=["in peace", "spoiled"])
def test_an_output_without_tables_is_delivered(world: Path, store: Proxy, spoilt: bool) -> None:
    """The reply to the new record of a block is lost."""
    output, table = (store.address("parquet", f"{name}-later-{spoilt}") for name in ("out", "table"))
    dcpred.score(world / "model", world / "data.zarr", output)
    if spoilt:
        store.set_faults({"match": "^PUT .*blocks/", "fault": "drop after", "times": 2})
    assert dcpred.deliver(output, table, id=["id"]).added_blocks == 3
    store.set_faults()
    assert dcpred.verify(output, "full").in_delta
    assert len(DeltaTable(table).to_pyarrow_table()) == N_ROWS
    assert dcpred.deliver(output).added_blocks == 0


@pytest.mark.parametrize("spoilt", [False, True], ids=["in peace", "spoiled"])
def test_a_run_is_committed_once(world: Path, store: Proxy, spoilt: bool) -> None:
    """The reply to the transaction is lost, so that nobody knows whether it was written."""
    table = store.address("parquet", f"table-{spoilt}")
    for name in ("one", "two"):
        output = store.address("parquet", f"{name}-{spoilt}")
        if spoilt:
            store.set_faults({"match": "^PUT .*_delta_log", "fault": "drop after", "times": 1})
        dcpred.score(world / "model", world / "data.zarr", output, delta=table, id=["id"])
        store.set_faults()
        assert dcpred.verify(output).in_delta
    found = DeltaTable(table)
    operations = [one["operation"] for one in found.history()]
    assert operations.count("WRITE") == 1, [
        (one["operation"], one.get("dcpred_run")) for one in found.history()
    ]
    assert len(found.to_pyarrow_table()) == N_ROWS
