"""The invariants of scoring (deploy/README.md, "What a score can be trusted for"), each with a test that
breaks something.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dcpred.execution.workers import InlineWorkers, Pool
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.scoring.blocks import FIRST_FAILURES
from dcpred.scoring.planning import plan_run
from dcpred.scoring.repair import repair
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.dtypes import STATUS_DTYPE
from dcpred_tasks.errors import (
    DataError,
    IncompleteError,
    InterruptedRunError,
    ModelFormatError,
    PlanConflictError,
    ResourceError,
    RunHeldError,
    SchedulerError,
    SettingsError,
)
from dcpred_tasks.model.compact_model import score_rows
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.place import read_own_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.task_bodies import score_block as task
from support import processes
from support.data import make_blobs, make_group
from support.held_driver import held_driver
from support.pools import inline
from support.serving import read_models_once

score_module = importlib.import_module("dcpred.scoring.whole_run")


@pytest.fixture(autouse=True)
def one_model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.name != test_model_and_input_are_opened_once.__name__:
        read_models_once(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    blobs = make_blobs(900, n_features=5, n_classes=3, seed=0)
    data = make_group(folder / "train.zarr", blobs.X, blobs.y, labels=["a", "b", "c"])
    train(data, folder / "model", settings={"landmarks": 6, "products": 8, "n_leaves": 4})
    return folder / "model"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few hundred rows, of two output chunks each."""
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
    monkeypatch.setattr("dcpred.execution.block_plan.BLOCKS", 10)


@pytest.fixture
def data(tmp_path: Path, small_blocks: None) -> Path:
    blobs = make_blobs(1_950, n_features=5, n_classes=3, seed=2)
    return make_group(tmp_path / "data.zarr", blobs.X, chunk_rows=50)


def run(model: Path, data: Path, output: Path, pool: Any = None, **more: Any) -> ScoreReport:
    return score(model, data, output, client=pool, **more)


def read(output: Path) -> dict[str, np.ndarray]:
    group = zarr.open_group(output / "scores.zarr", mode="r")
    return {name: array[...] for name, array in group.arrays()}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file() and p.name not in ("lock", ".lock.guard")
    }


def test_scores_are_those_of_the_model(tmp_path: Path, model: Path, data: Path, two_workers: Pool) -> None:
    report = run(model, data, tmp_path / "out", two_workers)
    X = zarr.open_group(data, mode="r")["X"][...]
    decision, status = score_rows(read_model(model), X)
    found = read(tmp_path / "out")
    np.testing.assert_allclose(found["decision"], decision, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["status"], status)
    np.testing.assert_array_equal(found["label"], found["decision"].argmax(axis=1))
    assert report.n_blocks > 5
    assert report.status == {"1": 1_950}
    attributes = zarr.open_group(tmp_path / "out" / "scores.zarr", mode="r")
    assert attributes["label"].attrs["labels"] == ["a", "b", "c"]
    assert attributes["decision"].attrs["classes"] == ["a", "b", "c"]


def test_bytes_are_those_that_zarr_writes(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole chunks in local files need nothing of Zarr's machinery, and come out as if they had."""
    run(model, data, tmp_path / "by-zarr", through_zarr)
    real = zarr.Array.__getitem__

    def of_the_model(array: Any, key: Any) -> Any:
        assert "arrays.zarr" in str(array.store_path)
        return real(array, key)

    monkeypatch.setattr(zarr.Array, "__getitem__", of_the_model)
    monkeypatch.delattr(zarr.Array, "__setitem__")
    run(model, data, tmp_path / "out", inline)
    one, two = (state_of_files(tmp_path / name / "scores.zarr") for name in ("by-zarr", "out"))
    assert one == two
    assert len(one) > 3 * 10


def test_the_next_rows_of_a_block_are_announced(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(zarr_arrays, "announce_rows", lambda array, *span: told.append(span))
    run(model, data, tmp_path / "out")
    assert told == [(start, start + 100) for start in range(100, 1_950, 200)]


@contextmanager
def through_zarr() -> Iterator[InlineWorkers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr_arrays, "chunk_files", lambda array: None)
        yield InlineWorkers()


def state_of_files(folder: Path) -> dict[str, bytes]:
    return {name: data for name, (data, _) in contents(folder).items()}


ONE_BLOCK = """
import sys
from pathlib import Path
from dcpred.scoring.score import score
model, x, out = sys.argv[1:]
score(Path(model), x, Path(out), workers=-1)
assert not {"dask", "distributed", "sklearn"} & set(sys.modules)
"""


def test_a_single_block_takes_no_workers(
    tmp_path: Path, model: Path, data: Path, two_workers: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is scored in this process, to the same bytes; with quarantine a worker does it, which may die."""
    X = zarr.open_group(data, mode="r")["X"][:100]
    few = make_group(tmp_path / "few.zarr", X, chunk_rows=50)
    command = [sys.executable, "-W", "error", "-W", "ignore::UserWarning", "-c", ONE_BLOCK]
    done = processes.run([*command, str(model), f"{few}/X", str(tmp_path / "here")])
    assert done.returncode == 0, done.stderr
    run(model, few, tmp_path / "there", two_workers)
    assert np.array_equal(read(tmp_path / "here")["decision"], read(tmp_path / "there")["decision"])
    asked: list[str] = []

    def connect() -> Any:
        asked.append("workers")
        return inline()

    monkeypatch.setattr("dcpred.execution.pools.connect", connect)
    run(model, few, tmp_path / "quarantine", workers=-1, quarantine=True)
    run(model, data, tmp_path / "many", workers=-1)
    assert asked == ["workers"] * 2


def test_any_attempt_writes_the_same_bytes(
    tmp_path: Path, model: Path, data: Path, two_workers: Pool
) -> None:
    run(model, data, tmp_path / "one", two_workers)
    run(model, data, tmp_path / "two", inline)
    one, two = contents(tmp_path / "one" / "scores.zarr"), contents(tmp_path / "two" / "scores.zarr")
    assert {k: v[0] for k, v in one.items() if k != "zarr.json"} == {
        k: v[0] for k, v in two.items() if k != "zarr.json"
    }


def test_the_chunks_of_the_input_change_no_value(
    tmp_path: Path, model: Path, data: Path, small_blocks: None
) -> None:
    """Nor do the blocks that follow from them."""
    run(model, data, tmp_path / "out")
    expected, blocks = read(tmp_path / "out"), set()
    X = zarr.open_group(data, mode="r")["X"][...]
    for chunk_rows in (7, 64, 333, 1_950):
        other = tmp_path / f"{chunk_rows}.zarr"
        zarr_arrays.create_array(zarr_arrays.create_group(other), "X", X.shape, X.dtype, chunk_rows)[...] = X
        blocks.add(run(model, other, tmp_path / f"out-{chunk_rows}").n_blocks)
        for name, values in read(tmp_path / f"out-{chunk_rows}").items():
            assert values.tobytes() == expected[name].tobytes(), (chunk_rows, name)
    assert len(blocks) > 2


def test_a_finished_run_writes_nothing(tmp_path: Path, model: Path, data: Path) -> None:
    first = run(model, data, tmp_path / "out")
    before = contents(tmp_path / "out")
    again = run(model, data, tmp_path / "out", workers=-1)
    assert contents(tmp_path / "out") == before
    assert (again.scored_blocks, again.status) == (0, first.status)


def test_resume_does_only_what_is_missing(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, data, tmp_path / "whole")
    done: list[int] = []

    def stop_at_fourth(run: Any, block: int, quarantine: bool) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(block)
        return task.score_block(run, block)

    monkeypatch.setattr("dcpred.scoring.blocks.score_block", stop_at_fourth)
    with pytest.raises(KeyboardInterrupt):
        run(model, data, tmp_path / "out")
    scored = read(tmp_path / "out")
    rows = np.flatnonzero(scored["status"])
    assert 0 < len(rows) < 1_950
    assert np.isnan(scored["decision"][scored["status"] == 0]).all()
    assert (scored["label"][scored["status"] == 0] == -1).all()
    monkeypatch.setattr(
        "dcpred.scoring.blocks.score_block", lambda r, b, q: (done.append(b), task.score_block(r, b))[1]
    )
    report = run(model, data, tmp_path / "out")
    assert sorted(done) == list(range(report.n_blocks))  # each exactly once
    for name, value in read(tmp_path / "whole").items():
        np.testing.assert_array_equal(read(tmp_path / "out")[name], value)


@pytest.mark.parametrize("instant", ["scores", "status", "record"])
def test_cut_off_at_any_instant(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """Events of a block: 1 scores, 2 status, 3 commit record. Stop before 2, before 3, or after 3."""
    real_commit, real_write = task.commit, task.zarr_arrays.write_rows

    class CutError(Exception):
        pass

    def write_rows(array: Any, start: int, rows: Any) -> None:
        if instant == "scores" and rows.dtype == STATUS_DTYPE:
            raise CutError
        real_write(array, start, rows)

    def commit(run: Any, record: Any) -> Any:
        if instant != "status":
            real_commit(run, record)
        raise CutError

    monkeypatch.setattr(task.zarr_arrays, "write_rows", write_rows)
    monkeypatch.setattr(task, "commit", commit)
    with pytest.raises(IncompleteError):
        run(model, data, tmp_path / "out")
    found = read(tmp_path / "out")
    assert np.isfinite(found["decision"][found["status"] != 0]).all()
    if instant == "scores":
        assert not found["status"].any()
    monkeypatch.undo()
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
    monkeypatch.setattr("dcpred.execution.block_plan.BLOCKS", 10)
    report = run(model, data, tmp_path / "out")
    assert report.scored_blocks == report.n_blocks - (FIRST_FAILURES if instant == "record" else 0)
    assert report.status == {"1": 1_950}


def _flip(path: Path, at: int = 20) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [_truncate, Path.unlink], ids=["truncated chunk", "lost chunk"])
def test_damage_before_the_end_is_found_and_mended(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    def damaging(run: Any, block: int, quarantine: bool) -> Any:
        record = task.score_block(run, block)
        chunk = Path(run.scores) / "decision" / "c" / "2" / "0"
        if chunk.exists() and not spoilt:
            spoilt.append(block)
            damage(chunk)
        return record

    spoilt: list[int] = []
    monkeypatch.setattr("dcpred.scoring.blocks.score_block", damaging)
    report = run(model, data, tmp_path / "out")
    assert len(spoilt) == 1
    assert report.scored_blocks == report.n_blocks + 1
    assert np.isfinite(read(tmp_path / "out")["decision"]).all()


def test_bad_rows_get_a_status_and_harm_no_other(tmp_path: Path, model: Path, small_blocks: None) -> None:
    blobs = make_blobs(500, n_features=5, n_classes=3, seed=3)
    X = blobs.X.copy()
    bad = [0, 17, 250, 499]
    X[bad[0], 0], X[bad[1], 4], X[bad[2], 2], X[bad[3]] = np.nan, np.inf, -np.inf, np.nan
    clean = make_group(tmp_path / "clean.zarr", blobs.X, chunk_rows=50)
    dirty = make_group(tmp_path / "dirty.zarr", X, chunk_rows=50)
    run(model, clean, tmp_path / "a")
    report = run(model, dirty, tmp_path / "b")
    assert report.status == {"1": 496, "2": 4}
    assert report.bad_rows == [(0, 2, 0), (17, 2, 4), (250, 2, 2), (499, 2, 0)]
    a, b = read(tmp_path / "a"), read(tmp_path / "b")
    good = np.setdiff1d(np.arange(500), bad)
    np.testing.assert_allclose(a["decision"][good], b["decision"][good], rtol=1e-6)
    assert np.isnan(b["decision"][bad]).all()
    assert (b["label"][bad] == -1).all()


def test_another_plan_is_refused(tmp_path: Path, model: Path, data: Path) -> None:
    run(model, data, tmp_path / "out")
    other = make_group(tmp_path / "other.zarr", np.zeros((10, 5), np.float32))
    before = contents(tmp_path / "out")
    with pytest.raises(PlanConflictError, match="belongs to another plan"):
        run(model, other, tmp_path / "out")
    with pytest.raises(PlanConflictError, match="differs in outputs"):
        run(model, data, tmp_path / "out", outputs=("label",))
    assert contents(tmp_path / "out") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    with pytest.raises(PlanConflictError, match="other files"):
        run(model, data, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["precious"]


def test_a_run_that_begins_between_two_looks_is_no_stranger(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan was not yet there when it was looked for, and other files were when they were."""
    run(model, data, tmp_path / "out")
    reads: list[str] = []

    def late(place: Place, name: str) -> dict[str, Any] | None:
        reads.append(name)
        return None if len(reads) == 1 else read_own_document(place, name)

    monkeypatch.setattr("dcpred.runs.ledger.read_own_document", late)
    assert run(model, data, tmp_path / "out").n_rows == 1_950
    assert reads[:2] == ["plan.json", "plan.json"]


def test_what_a_killed_probe_leaves_is_no_stranger_and_the_place_is_probed_again(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("probe.partial-0123456789ab", "clock.partial-0123456789ab"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_bytes(b"dcpred")
    probed: list[Place] = []
    monkeypatch.setattr(score_module, "check_place", lambda place, needed: probed.append(place))
    assert run(model, data, tmp_path / "out").n_rows == 1_950
    assert len(probed) == 1
    run(model, data, tmp_path / "out")
    assert len(probed) == 1, "a run that was begun"


def test_refusals_write_nothing(tmp_path: Path, model: Path, data: Path) -> None:
    def refused(kind: type[Exception], message: str, X: np.ndarray | None = None, **more: Any) -> None:
        source = data if X is None else make_group(tmp_path / f"{len(list(tmp_path.iterdir()))}.zarr", X)
        with pytest.raises(kind, match=message):
            run(model, source, tmp_path / "out", workers=-1, **more)
        assert not (tmp_path / "out").exists()

    refused(DataError, "7 features, but the model was trained with 5", np.zeros((9, 7)))
    refused(DataError, "1 dimension,", np.zeros(9))
    refused(DataError, "complex numbers", np.zeros((9, 5), complex))
    refused(DataError, "no rows", np.zeros((0, 5)))
    refused(SettingsError, "Cannot write output 'labels'", outputs=("labels",))
    (data / "X" / "c" / "3" / "0").unlink()
    refused(DataError, "chunk c/3/0 is missing")


def test_a_chunk_that_goes_missing_later_stops_its_block_only(
    tmp_path: Path, model: Path, data: Path
) -> None:
    class Losing(InlineWorkers):
        def check_sees(self, address: str) -> None:
            (data / "X" / "c" / "3" / "0").unlink()

    with pytest.raises(IncompleteError, match=r"Cannot score 1 of 10 blocks.*c/3/0") as caught:
        run(model, data, tmp_path / "out", pool=lambda: nullcontext(Losing()))
    assert caught.value.exit_code == 4
    assert str(caught.value).count("run again") == 1, "it says once what to do"
    status = read(tmp_path / "out")["status"]
    assert not status[150:200].any()
    assert (status[200:] == 1).all()


def test_a_model_that_changed_is_refused(tmp_path: Path, model: Path, data: Path) -> None:
    with pytest.raises(ModelFormatError, match="does not exist"):
        run(tmp_path / "none", data, tmp_path / "out", workers=-1)


def test_one_driver_at_a_time(tmp_path: Path, model: Path, data: Path) -> None:
    class Second(InlineWorkers):
        def check_sees(self, address: str) -> None:
            run(model, data, tmp_path / "out")

    with pytest.raises(RunHeldError, match="in use by process"):
        run(model, data, tmp_path / "out", pool=lambda: nullcontext(Second()))


def test_a_full_disk_is_told_apart(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: Any, record: Any) -> None:
        raise ResourceError(f"writing to {run.output} failed: No space left on device")

    monkeypatch.setattr(task, "commit", full)
    with pytest.raises(ResourceError, match="No space left"):
        run(model, data, tmp_path / "out")


def test_regression_gives_decision_alone(tmp_path: Path, small_blocks: None) -> None:
    blobs = make_blobs(300, n_features=3, n_classes=2, seed=0)
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.X[:, 0])
    train(data, tmp_path / "m", settings={"task": "regression", "n_leaves": 1})
    run(tmp_path / "m", data, tmp_path / "out")
    assert set(read(tmp_path / "out")) == {"decision", "status"}
    assert read(tmp_path / "out")["decision"].shape == (300,)


def test_driver_killed_and_run_again(tmp_path: Path, model: Path) -> None:
    """A driver with two workers dies by SIGKILL in the middle; the same command completes the run."""
    X = make_blobs(2_000, n_features=5, n_classes=3, seed=4).X
    data = make_group(tmp_path / "data.zarr", X, chunk_rows=100)
    arguments = [model, data, tmp_path / "out", "--workers", "2"]
    blocks = tmp_path / "out" / "blocks"
    with held_driver(tmp_path, arguments, free=4) as driver:
        processes.wait_until(lambda: len(list(blocks.glob("*.json"))) == 4, driver.process)
        driver.wait_until_held()
        os.kill(driver.process.pid, signal.SIGKILL)
        assert driver.process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert len(list(blocks.glob("*.json"))) == 4
    with held_driver(tmp_path, [*arguments[:-1], "1", "--json"], free=10) as driver:
        ended = processes.finish(driver.process)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["status"] == {"1": 2_000}
    assert report["scored_blocks"] == 6


def test_input_written_again_is_another_plan(tmp_path: Path, model: Path, data: Path) -> None:
    """The same address, shape and dtype with other values must not count as done."""
    run(model, data, tmp_path / "out")
    array = zarr.open_array(data / "X", mode="r+")
    array[...] = array[...][::-1].copy()
    with pytest.raises(PlanConflictError, match="belongs to another plan"):
        run(model, data, tmp_path / "out")


def touched(folder: Path) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (1e9, 1e9))


def test_an_input_that_was_only_touched_is_the_same(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was cut off goes on, and a finished one is left alone."""
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.whole_run.make_manifest", interrupted)
        with pytest.raises(InterruptedRunError):
            run(model, data, tmp_path / "out")
    (tmp_path / "out" / "blocks" / "000001.json").unlink()
    touched(data)
    assert run(model, data, tmp_path / "out").scored_blocks == 1
    touched(data / "X")
    before = contents(tmp_path / "out")
    assert run(model, data, tmp_path / "out").scored_blocks == 0
    assert contents(tmp_path / "out") == before


def interrupted(*_: object) -> None:
    raise InterruptedRunError("interrupted")


def test_a_large_input_that_was_only_touched_is_accepted_by_repair(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are not compared as a whole, but a sample of rows is scored again."""
    monkeypatch.setattr(stored_chunks, "CONTENT_BYTES", 0)
    run(model, data, tmp_path / "out")
    touched(data)
    with pytest.raises(PlanConflictError, match=r"differs in the times .*add --repair"):
        run(model, data, tmp_path / "out")
    mended = repair(model, data, tmp_path / "out")
    assert mended.scored_blocks == 0
    assert run(model, data, tmp_path / "out").scored_blocks == 0
    assert open_ledger(tmp_path / "out").has_same_input()
    array = zarr.open_array(data / "X", mode="r+")
    array[...] = array[...][::-1].copy()
    with pytest.raises(PlanConflictError, match="holds other rows than the scored ones"):
        repair(model, data, tmp_path / "out")


def test_the_same_places_by_other_names_are_the_same_run(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, data, tmp_path / "out")
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    again = run(
        model.parent / ".." / model.parent.name / "model", Path("../link"), Path("../out"), workers=-1
    )
    assert again.scored_blocks == 0


def test_one_chunk_written_again_in_the_same_size(tmp_path: Path, model: Path, small_blocks: None) -> None:
    X = make_blobs(4_000, n_features=5, n_classes=3, seed=6).X
    array = zarr.create_group(tmp_path / "raw.zarr").create_array(
        "X", data=X, chunks=(50, 5), compressors=None
    )
    run(model, tmp_path / "raw.zarr", tmp_path / "out")
    array[100:150] = -X[100:150]
    with pytest.raises(PlanConflictError, match="differs in the data"):
        run(model, tmp_path / "raw.zarr", tmp_path / "out")


def test_a_damaged_input_chunk_stops_its_block_only(tmp_path: Path, model: Path, data: Path) -> None:
    _flip(data / "X" / "c" / "3" / "0")
    with pytest.raises(
        IncompleteError,
        match=r"Cannot score 1 of 10 blocks \(the others are done\).*Cannot read rows 150 to 200 of .*X",
    ):
        run(model, data, tmp_path / "out")


def test_workers_elsewhere_leave_nothing_behind(tmp_path: Path, model: Path, data: Path) -> None:
    class Blind(InlineWorkers):
        def check_sees(self, address: str) -> None:
            raise SchedulerError(f"no worker sees {address}")

    with pytest.raises(SchedulerError):
        run(model, data, tmp_path / "out", pool=lambda: nullcontext(Blind()))
    assert not (tmp_path / "out").exists()


def test_a_plan_that_is_not_ours(tmp_path: Path, model: Path, data: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text("[1, 2]")
    with pytest.raises(PlanConflictError, match="dcpred did not write it"):
        run(model, data, tmp_path / "out", workers=-1)


def test_model_and_input_are_opened_once(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written: model.json is read and checked once, each array of the model once, and X is
    opened once.
    """
    read: list[str] = []

    def noting(module: str, name: str, shown: Callable[..., str]) -> None:
        real = getattr(importlib.import_module(module), name)

        def noted(*args: Any) -> Any:
            read.append(shown(*args))
            return real(*args)

        monkeypatch.setattr(f"{module}.{name}", noted)

    noting("dcpred_tasks.artifacts.model_artifact", "read_document", lambda _place, name: name)
    noting("dcpred_tasks.artifacts.model_artifact", "_read_array", lambda _path, _group, name, *_: name)
    noting("dcpred_tasks.storage.addressed_arrays", "open_stored_array", lambda path, *_: path)
    plan_run(Request(model, f"{data}/X", tmp_path / "out"))
    assert read.count("model.json") == read.count(f"{data}/X") == 1
    assert len(read) == len(set(read)) > 10
