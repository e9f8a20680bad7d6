"""A call lists each table once and opens each model once; what changed is noticed all the same."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dcpred
from dcpred_tasks.artifacts import model_artifact
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import IncompleteError, PlanConflictError
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables import table_files
from dcpred_tasks.task_bodies import score_block
from support.stores import StoreServer, used

SETTINGS = {"n_leaves": 1, "landmarks": 4, "calibrate": False}


def rows(seed: int, n: int = 40) -> pa.Table:
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    return pa.table({"a": a, "b": b, "n": np.arange(n) + 100 * seed, "label": np.where(a > 0, "p", "q")})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and a folder of six files, none of them young, that are scored in several blocks."""
    monkeypatch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", -3600.0)
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.BLOCKS", 6)
    (tmp_path / "t").mkdir()
    for number in range(6):
        pq.write_table(rows(number), tmp_path / f"t/{number}.parquet")
    dcpred.train(tmp_path / "t", tmp_path / "model", y="label", id=["n"], settings=SETTINGS)
    return tmp_path


@pytest.fixture
def counts(world: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()
    for module, name in (
        (table_files, "list_files"),
        (table_files, "files_of"),
        (model_artifact, "_read_artifact"),
    ):
        body = getattr(module, name)

        def counted(*args: object, body: object = body, name: str = name) -> object:
            found[name] += 1
            return body(*args)  # type: ignore[operator]

        monkeypatch.setattr(module, name, counted)
    return found


ONCE = {"list_files": 1, "files_of": 1, "_read_artifact": 1}


def test_calls_list_and_open_once(world: Path, counts: Counter[str]) -> None:
    model, data = world / "model", world / "t"
    assert dcpred.score(model, data, world / "out", parquet=True, id=["n"]).n_blocks == 6
    assert counts == ONCE
    for call in (
        lambda: dcpred.export(world / "out", world / "e.parquet", beside=["a,n"]),
        lambda: dcpred.evaluate(model, data, cost=False),
        lambda: dcpred.score(model, f"{data}/*.parquet", world / "other"),
    ):
        counts.clear()
        call()
        assert counts == ONCE
    counts.clear()
    assert dcpred.refresh(model, data, world / "root").n_blocks == 6
    # Once to plan, once before and once after the run: the input may change meanwhile.
    assert counts == {"list_files": 3, "files_of": 3, "_read_artifact": 1}


def test_a_store_is_listed_and_a_model_fetched_once(
    world: Path, counts: Counter[str], s3: StoreServer
) -> None:
    with used(s3):
        top = s3.address("once")
        for name in ("t/0.parquet", "t/1.parquet"):
            open_place(top).write(name, (world / name).read_bytes())
        dcpred.score(world / "model", f"{top}/t", world / "out", parquet=True)
    assert counts == ONCE


def test_tasks_of_a_run_share_a_listing(world: Path, counts: Counter[str]) -> None:
    x = find_rows(world / "t", "X", world / "model")
    counts.clear()
    for _ in range(5):
        assert open_array(x, of="a run").shape == (240, 2)
    assert counts["list_files"] == 1
    open_array(x, of="another run")
    assert counts["list_files"] == 2


def test_changes_are_noticed(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = world / "model", world / "t"
    assert dcpred.score(model, data, world / "one").n_rows == 240
    pq.write_table(rows(9), data / "9.parquet")
    assert dcpred.score(model, data, world / "two").n_rows == 280
    with pytest.raises(PlanConflictError):
        dcpred.score(model, data, world / "one")
    dcpred.train(f"{data}/[01].parquet", world / "new", y="label", id=["n"], settings=SETTINGS)
    open_model = score_block.open_model

    def touched(*args: object) -> object:
        pq.write_table(rows(77), data / "3.parquet")
        return open_model(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(score_block, "open_model", touched)
    with pytest.raises(IncompleteError, match=r"3\.parquet"):
        dcpred.score(model, data, world / "three", parquet=True, id=["n"])
