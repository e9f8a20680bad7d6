"""What becomes of a run when blocks, workers, inputs or disks fail. Each test names the rule that it
holds.
"""

import errno
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import zarr
from click.testing import CliRunner
from distributed import Future
from distributed.scheduler import KilledWorker

from dcpred.cli import main
from dcpred.execution import task_window
from dcpred.execution.lease import acquire_lock, check_unlocked, expiry_seconds, lock_holder
from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.status import run_status
from dcpred.scoring import blocks as block_runs
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import (
    DataError,
    Failure,
    IncompleteError,
    ResourceError,
    RunHeldError,
    SchedulerError,
    SettingsError,
)
from dcpred_tasks.storage import store_requests, zarr_arrays
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.probes import can_write
from dcpred_tasks.task_bodies import score_block as task
from support import processes
from support.data import make_blobs, make_group
from support.held_driver import HeldDriver, held_driver
from support.processes import Process
from support.runs import report_of_incomplete
from support.serving import read_models_once

N_ROWS = 1_950
BUG = RuntimeError("a bug")


@pytest.fixture(scope="module", autouse=True)
def one_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_models_once(patch)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    blobs = make_blobs(900, n_features=5, n_classes=3, seed=0)
    data = make_group(folder / "train.zarr", blobs.X, blobs.y)
    train(data, folder / "model", settings={"landmarks": 6, "n_leaves": 4})
    return folder / "model"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """1,950 rows that are scored in ten blocks of 200 rows."""
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
    monkeypatch.setattr("dcpred.execution.block_plan.BLOCKS", 10)
    return make_group(
        tmp_path / "data.zarr", make_blobs(N_ROWS, n_features=5, n_classes=3, seed=2).X, chunk_rows=50
    )


def run(model: Path, data: Path, output: Path, pool: Any = None, **more: Any) -> ScoreReport:
    return score(model, data, output, client=pool, **more)


def status_of(output: Path) -> Any:
    return zarr.open_group(output / "scores.zarr", mode="r")["status"][...]


def breaking(blocks: set[int], error: Exception = BUG) -> Any:
    def body(run: Any, block: int, quarantine: bool) -> Any:
        if block in blocks:
            raise error
        return task.score_block(run, block, quarantine)

    return body


# -- failing blocks ------------------------------------------------------------------------------------------


def test_a_bug_in_one_block_does_not_stop_the_others(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_runs, "score_block", breaking({4}))
    with pytest.raises(
        IncompleteError,
        match=r"Cannot score 1 of .* \(the others are done\): the first is block 4 .*: RuntimeError: a bug;"
        " run again to try once more$",
    ):
        run(model, data, tmp_path / "out")
    state = run_status(tmp_path / "out")
    assert (state.state, state.done_blocks, [f["block"] for f in state.failing]) == ("stopped", 9, [4])
    monkeypatch.setattr(block_runs, "score_block", task.score_block)
    assert run(model, data, tmp_path / "out").scored_blocks == 1
    assert run_status(tmp_path / "out").failing == []


def test_the_first_blocks_all_failing_stops_the_run(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_runs, "score_block", breaking(set(range(6))))
    with pytest.raises(IncompleteError, match="the first ones all failed"):
        run(model, data, tmp_path / "out")
    assert not status_of(tmp_path / "out").any()


def test_more_failures_than_allowed_stop_the_run(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_runs, "score_block", breaking({1, 3, 5}))
    with pytest.raises(IncompleteError, match="max_failures is 1"):
        run(model, data, tmp_path / "out", max_failures=1)
    assert run_status(tmp_path / "out").done_blocks == 2


def test_tolerance_is_checked() -> None:
    with pytest.raises(SettingsError, match="Use 0 or more"):
        FailurePolicy(max_failures=-1)
    for rows in (-1, 0.5):  # a fraction is another option
        with pytest.raises(SettingsError, match=r"max_bad_rows.*max_bad_fraction"):
            BadRowLimit(rows)  # type: ignore[arg-type]
    for fraction in (-0.1, 1.5, float("nan")):
        with pytest.raises(SettingsError, match="Use 0 to 1"):
            BadRowLimit(fraction=fraction)


def test_one_row_and_all_rows_are_different_limits() -> None:
    """A number of 1 used to be one row, and 0.99 a fraction of 99 %."""
    assert "at most 1 of 50" in BadRowLimit(rows=1).exceeded(2, 50)
    assert not BadRowLimit(fraction=1.0).exceeded(50, 50)
    assert "at most 0.5 of 50" in BadRowLimit(rows=40, fraction=0.5).exceeded(26, 50)


# -- input ---------------------------------------------------------------------------------------------------


def damage(data: Path) -> None:
    """Rows 150 to 200 cannot be decoded, rows 400 to 450 are not there."""
    chunk = data / "X" / "c" / "3" / "0"
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 8
    chunk.write_bytes(raw)
    (data / "X" / "c" / "8" / "0").unlink()


def test_damaged_input_is_refused_unless_it_may_be_given_up(tmp_path: Path, model: Path, data: Path) -> None:
    damage(data)
    with pytest.raises(DataError, match=r"X: chunk c/8/0 is missing"):
        run(model, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_of_damaged_and_missing_chunks_are_given_up_alone(
    tmp_path: Path, model: Path, data: Path
) -> None:
    whole = run(model, data, tmp_path / "whole")
    assert whole.status == {"1": N_ROWS}
    damage(data)
    with pytest.raises(IncompleteError, match="100 rows were skipped") as raised:
        run(model, data, tmp_path / "out", quarantine=True)
    report = raised.value.report
    assert report.status == {"1": N_ROWS - 100, "5": 50, "6": 50}
    status = status_of(tmp_path / "out")
    assert (status[150:200] == 6).all()
    assert (status[400:450] == 5).all()
    one, two = (
        zarr.open_group(tmp_path / name / "scores.zarr", mode="r")["decision"][...]
        for name in ("whole", "out")
    )
    assert (one[status == 1] == two[status == 1]).all()


def test_rows_that_were_given_up_are_told_in_one_object(tmp_path: Path, model: Path, data: Path) -> None:
    damage(data)
    report_of_incomplete(run, model, data, tmp_path / "out", quarantine=True)
    result = CliRunner().invoke(
        main, ["score", str(model), str(data), str(tmp_path / "out"), "--quarantine", "--json"]
    )
    assert result.exit_code == 4
    told = json.loads(result.stdout)
    assert (told["exit_code"], told["status"]["5"], told["status"]["6"]) == (4, 50, 50)
    assert "100 rows were skipped" in result.stderr


@pytest.mark.parametrize("limit", [{"max_bad_rows": 40}, {"max_bad_fraction": 0.02}])
def test_too_many_bad_rows_stop_the_run(
    tmp_path: Path, model: Path, data: Path, limit: dict[str, Any]
) -> None:
    damage(data)
    with pytest.raises(IncompleteError, match=r"50 rows have no score.*dcpred errors"):
        run(model, data, tmp_path / "out", quarantine=True, **limit)
    done = run_status(tmp_path / "out").done_blocks
    assert 0 < done < 10
    options = {"quarantine": True, "max_bad_rows": 100}
    report = report_of_incomplete(run, model, data, tmp_path / "out", **options)
    assert report.scored_blocks == 10 - done


def test_reads_that_fail_for_a_while_are_tried_again(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_requests, "FIRST_WAIT_SECONDS", 0.001)
    real, calls = zarr_arrays.read_rows, []

    def flaky(array: Any, start: int, stop: int, room: Any = None) -> Any:
        if room is None:  # a read of the driver, which plans
            return real(array, start, stop)
        calls.append(start)
        if len(calls) % 3:
            raise TimeoutError("the store is slow")
        return real(array, start, stop, room)

    monkeypatch.setattr(task.zarr_arrays, "read_rows", flaky)
    report = run(model, data, tmp_path / "out")
    assert report.status == {"1": N_ROWS}
    records = [json.loads(p.read_bytes()) for p in (tmp_path / "out" / "blocks").glob("*.json")]
    assert sum(r["retries"] for r in records) == 2 * 20


def test_what_lasts_is_not_tried_again() -> None:
    calls = []

    def fail(error: Exception) -> None:
        calls.append(error)
        raise error

    for error in (FileNotFoundError(2, "gone"), OSError(28, "No space left on device"), ValueError("a bug")):
        with pytest.raises(type(error)):
            store_requests.Retrying()(partial(fail, error))
    assert len(calls) == 3


def test_a_full_disk_stops_at_once_and_all_can_be_resumed(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_runs, "score_block", breaking({3}, ResourceError("No space left on device")))
    with pytest.raises(ResourceError):
        run(model, data, tmp_path / "out")
    assert run_status(tmp_path / "out").done_blocks == 3
    monkeypatch.setattr(block_runs, "score_block", task.score_block)
    assert run(model, data, tmp_path / "out").scored_blocks == 7


def test_too_little_space_is_refused_before_anything_is_written(
    tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.scoring.planning.RECORD_BYTES", 2**60)
    with pytest.raises(ResourceError, match=r"MiB free\. Free some space"):
        run(model, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_inside_the_input_is_refused(model: Path, data: Path) -> None:
    with pytest.raises(DataError, match="inside the input"):
        run(model, data, data / "X" / "out")


# -- workers that die ----------------------------------------------------------------------------------------


def deadly(run: Any, block: int, quarantine: bool, bad: int, folder: str, deaths: int) -> Any:
    """Kills its worker for one block, at most so many times."""
    marks = Path(folder)
    if block == bad and len(list(marks.iterdir())) < deaths:
        (marks / f"{os.getpid()}-{time.time_ns()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task.score_block(run, block, quarantine)


class Deadly:
    """Workers of which one block kills its worker."""

    def __init__(self, workers: Any, folder: Path, deaths: int) -> None:
        self.workers, self.folder, self.deaths = workers, folder, deaths
        folder.mkdir()

    def each(self, body: Any, tasks: Any) -> Iterator[Any]:
        if body is task.score_block:
            return self.workers.each(deadly, [(*t, 3, str(self.folder), self.deaths) for t in tasks])
        return self.workers.each(body, tasks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers get functions of this module by value."""
    monkeypatch.setattr(deadly, "__module__", "__main__")


def test_a_death_is_survived_and_the_block_is_done(
    tmp_path: Path, model: Path, data: Path, importable: None
) -> None:
    with connect(2) as workers:
        report = run(model, data, tmp_path / "out", lambda: _same(Deadly(workers, tmp_path / "marks", 1)))
    assert report.status == {"1": N_ROWS}
    assert len(list((tmp_path / "marks").iterdir())) == 1


def test_a_block_that_kills_its_workers_is_given_up_and_the_others_are_done(
    tmp_path: Path, model: Path, data: Path, importable: None
) -> None:
    with connect(2) as workers:
        deadly_workers = Deadly(workers, tmp_path / "marks", 99)
        pool = partial(_same, deadly_workers)
        report = report_of_incomplete(run, model, data, tmp_path / "out", pool, quarantine=True)
    assert report.status == {"1": N_ROWS - 200, "7": 200}
    assert (status_of(tmp_path / "out")[600:800] == 7).all()
    assert len(list((tmp_path / "marks").iterdir())) <= task_window.SUSPECT_DEATHS + task_window.LONE_DEATHS


class Cluster:
    """A scheduler that we did not start: what is submitted kills every worker that gets it, and Dask gives it
    to `allowed` more before it reports that. A task that one worker alone may run waits for that one.
    """

    status = "running"

    def __init__(self, allowed: int) -> None:
        self.allowed, self.n_deaths, self.asked = allowed, 0, list[Any]()

    def nthreads(self) -> dict[str, int]:
        return {f"tcp://{self.n_deaths}": 1}

    def processing(self) -> dict[str, Any]:
        return {}

    def submit(self, *_: Any, workers: list[str] | None, **__: Any) -> Any:
        self.asked.append(workers)
        died = 1 if workers else self.allowed + 1
        self.n_deaths += died
        future = Mock(key=f"in_turn-{len(self.asked)}", status="pending" if workers else "error")
        future.exception.return_value = KilledWorker(future.key, None, self.allowed)
        future.done.return_value = not workers
        future.add_done_callback = lambda put: None if workers else put(future)
        return future

    def cancel(self, futures: Any, force: bool) -> None:
        pass


@pytest.mark.parametrize(("allowed", "first"), [(0, 2), (1, 2), (3, 4)])
def test_a_deadly_task_costs_a_known_number_of_workers_of_any_scheduler(
    monkeypatch: pytest.MonkeyPatch, allowed: int, first: int
) -> None:
    """Deaths that Dask does not report one by one are counted, and alone it has one worker at a time."""
    monkeypatch.setattr(task_window, "TICK_SECONDS", 0.01)
    cluster: Any = Cluster(allowed)
    ((number, result),) = task_window.Window(cluster, len, [()]).results()
    assert number == 0
    assert isinstance(result, Failure)
    assert isinstance(result.error, KilledWorker)
    assert result.deaths == cluster.n_deaths == first + task_window.LONE_DEATHS
    alone = [workers for workers in cluster.asked if workers is not None]
    assert [len(workers) for workers in alone] == [1] * task_window.LONE_DEATHS


def test_a_block_that_kills_its_workers_is_left_undone_unless_it_may_be_given_up(
    tmp_path: Path, model: Path, data: Path
) -> None:
    class Dying(InlineWorkers):
        def each(self, body: Any, tasks: Any) -> Iterator[Any]:
            for number, result in super().each(body, tasks):
                yield number, Failure(RuntimeError("killed"), deaths=5) if tasks[number][1] == 3 else result

    with pytest.raises(
        IncompleteError, match=r"Cannot score 1 of .*block 3.*5 workers died with it.*try once more$"
    ):
        run(model, data, tmp_path / "out", lambda: _same(Dying()))
    assert [f["deaths"] for f in open_ledger(tmp_path / "out").failures()] == [5]


def _same(workers: Any) -> Any:
    class Context:
        def __enter__(self) -> Any:
            return workers

        def __exit__(self, *_: object) -> None:
            pass

    return Context()


def _nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_workers_that_are_told_to_end_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker is retired, which Dask does not answer by a new one, and all tasks are done."""
    monkeypatch.setattr(_nap, "__module__", "__main__")
    with connect(2) as workers:
        client = workers.client  # type: ignore[attr-defined]
        retired: set[str] = set()
        for _, pid in workers.each(_nap, [(0.2,)] * 30):
            assert isinstance(pid, int), pid
            for address, there in client.run(os.getpid).items():
                if there == pid and len(retired) < 2:
                    client.retire_workers([address])
                    retired.add(address)
        assert len(retired) == 2


def test_a_worker_that_dies_while_it_is_asked_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_nap, "__module__", "__main__")
    with connect(2) as workers:
        killed = set()
        for _ in range(3):
            results = [pid for _, pid in workers.each(_nap, [(0.0,)] * 4)]
            assert not killed & set(results)
            killed.add(results[0])
            os.kill(results[0], signal.SIGKILL)
            for _ in range(20):
                workers.check_sees(str(tmp_path))
        assert len(killed) == 3
        assert list(tmp_path.iterdir()) == []


class LostResult(Future):
    """A finished task whose result went with its worker."""

    def result(self, timeout: float | None = None) -> Any:
        raise KilledWorker(self.key, None, 0)


def test_a_result_that_died_with_its_worker_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nap, "__module__", "__main__")
    real, lost = task_window.Window._outcome, []

    def outcome(self: Any, future: Any, bundle: tuple[int, ...]) -> Any:
        if 3 in bundle and len(lost) < 2:
            lost.append(bundle)
            future.__class__ = LostResult
        return real(self, future, bundle)

    monkeypatch.setattr(task_window.Window, "_outcome", outcome)
    with connect(1) as workers:
        results = dict(workers.each(_nap, [(0.0,)] * 6))
    assert len(lost) == 2
    assert all(isinstance(results[number], int) for number in range(6))


def test_a_result_whose_worker_dies_before_it_is_fetched_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask would have the task done again by the worker that is no more, and wait for that."""
    monkeypatch.setattr(_nap, "__module__", "__main__")
    monkeypatch.setattr(task_window, "FETCH_SECONDS", 0.5)
    real = Future.result
    with connect(1) as workers:

        def late(future: Future, timeout: float | None = None) -> Any:
            monkeypatch.setattr(Future, "result", real)
            before = set(workers.client.nthreads())  # type: ignore[attr-defined]
            (pid,) = workers.client.run(os.getpid).values()  # type: ignore[attr-defined]
            os.kill(pid, signal.SIGKILL)
            processes.wait_until(lambda: not before & set(workers.client.nthreads()))  # type: ignore[attr-defined]
            return real(future, timeout)

        monkeypatch.setattr(Future, "result", late)
        assert list(workers.on_each(_nap, 0.0)) == []
        monkeypatch.setattr(Future, "result", late)
        assert [number for number, _ in workers.each(_nap, [(0.0,)] * 3)] != []


def _marked(number: int, folder: str, how: str) -> int:
    """Leaves a file for each call; fails in some way at number 30."""
    (Path(folder) / f"{number}-{os.getpid()}-{time.time_ns()}").touch()
    if number == 30 and how == "raises":
        raise RuntimeError("a bug")
    if number == 30 and how == "refuses":
        raise DataError("bad input")
    if number == 30 and how == "dies" and len(list(Path(folder).glob("30-*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@dataclass
class Bundled:
    """Short tasks that were run on one worker."""

    results: dict[int, Any]
    bundles: list[tuple[int, ...]]  # of each attempt
    calls: Counter[int]  # by task


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Bundled]:
    monkeypatch.setattr(_marked, "__module__", "__main__")
    bundles: list[tuple[int, ...]] = []
    real = task_window.Window._submit

    def submit(self: Any, bundle: tuple[int, ...], workers: Any = None) -> None:
        bundles.append(bundle)
        real(self, bundle, workers)

    monkeypatch.setattr(task_window.Window, "_submit", submit)

    def run_short_tasks(how: str) -> Bundled:
        with connect(1) as workers:
            results = list(workers.each(_marked, [(n, str(tmp_path), how) for n in range(60)]))
        assert len(results) == 60
        calls = Counter(int(path.name.partition("-")[0]) for path in tmp_path.iterdir())
        return Bundled(dict(results), bundles, calls)

    return run_short_tasks


def test_short_tasks_share_attempts(bundled: Callable[[str], Bundled]) -> None:
    done = bundled("")
    assert done.results == {n: n for n in range(60)}
    assert done.calls == dict.fromkeys(range(60), 1)
    assert [n for bundle in done.bundles for n in bundle] == list(range(60))
    assert [len(bundle) for bundle in (done.bundles[0], done.bundles[-1])] == [1, 1]
    assert max(map(len, done.bundles)) > 5
    assert len(done.bundles) < 30


def test_long_tasks_share_none(bundled: Callable[[str], Bundled], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_window, "BUNDLE_SECONDS", 1e-9)
    assert bundled("").bundles == [(n,) for n in range(60)]


@pytest.mark.parametrize("how", ["raises", "refuses"])
def test_a_task_that_fails_in_a_bundle_fails_alone(bundled: Callable[[str], Bundled], how: str) -> None:
    done = bundled(how)
    failure = done.results.pop(30)
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, RuntimeError if how == "raises" else DataError)
    assert done.results == {n: n for n in range(60) if n != 30}
    # The attempt of the bundle, unless it began with this task, and those that Dask makes of it alone.
    attempts = done.calls.pop(30)
    assert attempts in ((1 + task_window.RETRIES, 2 + task_window.RETRIES) if how == "raises" else (1,))
    assert set(done.calls.values()) == {1}


def test_a_worker_that_dies_with_a_bundle_blames_nobody_for_good(bundled: Callable[[str], Bundled]) -> None:
    done = bundled("dies")
    assert done.results == {n: n for n in range(60)}
    assert max(done.calls.values()) == 2
    lost = next(bundle for bundle in done.bundles if 30 in bundle)
    assert len(lost) > 1
    assert all((n,) in done.bundles for n in lost)


def _hang(once: str) -> bool:
    """For ever on the first call with a path."""
    if once and not Path(once).exists():
        Path(once).touch()
        while True:
            time.sleep(1)
    return True


def test_a_hung_task_is_given_to_another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_window, "SLOW_SECONDS", 1.0)
    monkeypatch.setattr(_hang, "__module__", "__main__")
    with connect(2) as workers:
        tasks = [("",)] * 5 + [(str(tmp_path / "once"),)]
        results = dict(workers.each(_hang, tasks))
    assert (tmp_path / "once").exists()
    assert results == dict.fromkeys(range(6), True)


# -- one driver ----------------------------------------------------------------------------------------------


def test_a_lease_is_free_after_its_holder_ends(tmp_path: Path) -> None:
    with acquire_lock(open_place(tmp_path)):
        assert f"process {os.getpid()}" in lock_holder(open_place(tmp_path))
        with pytest.raises(RunHeldError, match="is in use by process"):
            check_unlocked(open_place(tmp_path))
    assert lock_holder(open_place(tmp_path)) == ""
    check_unlocked(open_place(tmp_path))


def test_a_lease_of_another_machine_ends_when_its_signs_do(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("process 1 on elsewhere · 0123456789abcdef\n")
    with pytest.raises(RunHeldError, match="in use by process 1 on elsewhere, heard of"):
        check_unlocked(open_place(tmp_path))
    old = time.time() - expiry_seconds() - 1
    os.utime(lock, (old, old))
    with acquire_lock(open_place(tmp_path)) as lease:
        lease.check()


def test_a_full_disk_leaves_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a name would keep everybody out: found by chaos."""
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", full_disk)
        with (
            pytest.raises(ResourceError, match=r"No space left on device\. Free space"),
            acquire_lock(open_place(tmp_path)),
        ):
            pytest.fail("a lease that nobody can read is none")
    assert os.listdir(tmp_path) == [".lock.guard"]
    check_unlocked(open_place(tmp_path))


def full_disk(file: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_driver_that_was_taken_over_does_not_finish(tmp_path: Path) -> None:
    with acquire_lock(open_place(tmp_path)) as lease:
        (tmp_path / "lock").write_text("process 2 on elsewhere · fedcba9876543210\n")
        with pytest.raises(RunHeldError, match="taken over by process 2 on elsewhere"):
            lease.check()
    assert "elsewhere" in (tmp_path / "lock").read_text()


def test_what_a_worker_says_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_write(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []
    assert can_write(str(tmp_path / "none")) == "does not see"

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert can_write(str(tmp_path)) == "cannot write (Permission denied) to"


def test_a_worker_that_cannot_write_is_refused(tmp_path: Path, model: Path, data: Path) -> None:
    class Blind(InlineWorkers):
        def check_sees(self, address: str) -> None:
            raise SchedulerError("worker w cannot write to it")

    with pytest.raises(SchedulerError):
        run(model, data, tmp_path / "out", lambda: _same(Blind()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["notes.txt", "blocks/000000.json", "failures/000000.json"])
def test_what_came_into_a_folder_meanwhile_stays(tmp_path: Path, model: Path, data: Path, name: str) -> None:
    """A run whose workers do not see its folder leaves nothing; but that may be another's by then."""
    theirs = tmp_path / "out" / name

    class Blind(InlineWorkers):
        def check_sees(self, address: str) -> None:
            theirs.write_text("theirs")
            raise SchedulerError("worker w cannot write to it")

    with pytest.raises(SchedulerError):
        run(model, data, tmp_path / "out", lambda: _same(Blind()))
    assert theirs.read_text() == "theirs"


# -- interrupts ----------------------------------------------------------------------------------------------


def held(
    tmp_path: Path, model: Path, data: Path, free: int, **more: float
) -> AbstractContextManager[HeldDriver]:
    return held_driver(tmp_path, [model, data, tmp_path / "out", "--workers", "1"], free=free, **more)


Send = Callable[[Process, int], None]


def to_driver(process: Process, number: int) -> None:
    process.send_signal(number)


def to_everybody(process: Process, number: int) -> None:
    """To the driver and all that it started, as a service manager, a batch system or a container does."""
    os.killpg(process.pid, number)


def interrupt(driver: HeldDriver, number: int, send: Send = to_driver) -> None:
    """Send the first signal, and wait until the driver says that it has heard of it."""
    send(driver.process, number)
    assert driver.process.stderr is not None
    for line in driver.process.stderr:
        if "finishing tasks in flight; interrupt again to end at once" in line:
            return
    pytest.fail("the driver ended without a word")


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGTERM, to_driver),
        (signal.SIGINT, to_everybody),
        pytest.param(signal.SIGTERM, to_everybody, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, to_driver, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_in_order_and_says_how_to_go_on(
    tmp_path: Path, model: Path, data: Path, number: int, send: Send
) -> None:
    with held(tmp_path, model, data, free=2) as driver:
        driver.wait_until_held()
        interrupt(driver, number, send)
        driver.release()
        done = processes.finish(driver.process)
    assert done.returncode == 75, done.stderr
    assert "run the same command again to resume" in done.stderr
    state = run_status(tmp_path / "out")
    assert state.state == "stopped"
    # What was in flight was finished: block 2, and what was waiting behind it, at most two bundles of a
    # quarter of ten blocks each.
    assert 3 <= state.done_blocks <= 2 + 2 * task_window.IN_FLIGHT_PER_THREAD
    assert run(model, data, tmp_path / "out").scored_blocks == 10 - state.done_blocks


def test_a_second_signal_ends_at_once(tmp_path: Path, model: Path, data: Path) -> None:
    with held(tmp_path, model, data, free=0) as driver:
        driver.wait_until_held()
        interrupt(driver, signal.SIGTERM)
        assert driver.process.poll() is None, "one signal waits for the block in flight"
        driver.process.send_signal(signal.SIGTERM)
        done = processes.finish(driver.process)
    assert done.returncode == 75, done.stderr
    assert not list((tmp_path / "out").glob("blocks/*.json")), "the block in flight was not waited for"


@pytest.mark.cases(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_by_two_ways_is_one(tmp_path: Path, model: Path, data: Path, number: int) -> None:
    """A wrapper forwards what the whole group gets."""
    with held(tmp_path, model, data, free=0, same_seconds=36_000.0) as driver:
        driver.wait_until_held()
        interrupt(driver, signal.SIGTERM, to_everybody)
        driver.process.send_signal(number)
        driver.release()
        done = processes.finish(driver.process)
    assert done.returncode == 75, done.stderr
    assert len(list((tmp_path / "out").glob("blocks/*.json"))) >= 1, "the block in flight was finished"


def test_workers_of_a_driver_that_is_killed_end(tmp_path: Path, model: Path, data: Path) -> None:
    """They hear of no SIGTERM, and the kill leaves them nobody who would end them."""
    with held(tmp_path, model, data, free=0) as driver:
        driver.wait_until_held()
        children = psutil.Process(driver.process.pid).children(recursive=True)
        assert len(children) >= 2, "a worker, and multiprocessing's resource tracker"
        driver.process.kill()
        processes.wait_until(lambda: not any(map(runs, children)))


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_status_while_another_process_scores(tmp_path: Path, model: Path, data: Path) -> None:
    with held(tmp_path, model, data, free=3) as driver:
        driver.wait_until_held()
        state = run_status(tmp_path / "out")
        assert (state.state, state.done_blocks) == ("scoring", 3)
        assert str(driver.process.pid) in state.driver
        assert state.rows_per_second > 0
        assert state.seconds_left is not None
        with pytest.raises(RunHeldError):
            run(model, data, tmp_path / "out")


@contextmanager
def other_server(says: bytes) -> Iterator[int]:
    """The port of a server on loopback that says this to whoever comes, and then nothing."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    stack.enter_context(connection)
                    connection.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("says", "so"),
    [
        (b"", r"it does not answer within 1 s \(TimeoutError\)"),
        (b"\xff\x00garbage" * 500, "Dask reports "),
        ((2**60).to_bytes(8, "little") * 3, "Dask reports "),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Dask reports "),
    ],
)
def test_a_server_that_is_no_scheduler_is_told(
    says: bytes, so: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Dask waited for the silent one without end, and ended in tracebacks at the others."""
    monkeypatch.setattr("dcpred.execution.dask_workers.CONNECT_SECONDS", 1)
    with other_server(says) as port, ExitStack() as stack, pytest.raises(SchedulerError, match=so):
        stack.enter_context(connect(scheduler=f"tcp://127.0.0.1:{port}"))
    assert capfd.readouterr().err == ""
