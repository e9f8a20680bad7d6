"""Enumerated crash points: a worker or a driver that dies at any operation of any run leaves what a second
run completes.

A process that is killed leaves its files as they are at that instant, and nothing else. So the operations
that change files are wrapped, a run is watched, and the state of its folder is kept before and after each of
them, and once more with half of what was written wherever something is about to get its name. Each state that
differs from all before it is a crash point. It is put back, the run is gone on with, and the result must be
that of a run which nothing disturbed, byte for byte.

Beside that, workers are killed within a driver that lives on, and processes by SIGKILL.
"""

import builtins
import io
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from deltalake import DeltaTable

from dcpred.execution.workers import InlineWorkers
from dcpred.runs import delta_tables
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.shards import Shard
from dcpred.runs.status import run_status
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.scoring.score_shard import ShardReport
from dcpred.training.reports import TrainReport
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS, Kind
from dcpred_tasks.artifacts.commit_records import list_records
from dcpred_tasks.errors import IncompleteError
from dcpred_tasks.task_bodies import score_block as task
from support import processes
from support.cut_off import LEASE
from support.data import make_blobs, make_group
from support.serving import read_models_once

N_ROWS, N_BLOCKS, CHUNK_ROWS = 180, 2, 50  # blocks of two chunks; the last chunk is not full
# change what their first argument names
MADE = (
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "truncate",
    "ftruncate",
    "pwrite",
)
MOVED = ("replace", "rename", "link")  # give the name that is their second argument
# of files that are being written
UNNAMED = re.compile(r"\.partial-[0-9a-f]{12}|\.[0-9a-f]{32}\.partial|\.partial\.npy")
REAL_KILLS = 3

State = dict[str, bytes | None]  # bytes of files by path, None for directories


# -- watching a run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """A change of a file: what is done, and to which path below the folder that is watched."""

    name: str
    path: str
    source: str = ""  # of what is moved

    def __str__(self) -> str:
        return f"{self.name} {UNNAMED.sub('.partial', self.path)}"


Seen = Callable[[str, Operation], None]


@contextmanager
def watched(root: Path, seen: Seen) -> Iterator[None]:
    """Call seen("before", …) and seen("after", …) around each operation that changes files below `root`."""

    def around(operation: Operation | None, call: Callable[[], Any]) -> Any:
        if operation is None:
            return call()
        seen("before", operation)
        result = None
        try:
            result = call()
            return result
        finally:
            try:
                seen("after", operation)
            except Killed:
                if isinstance(result, io.IOBase):
                    result.close()
                raise

    def operation(name: str, path: Any, source: Any = "", folder: int | None = None) -> Operation | None:
        place = _place(path, folder)
        if not place.is_relative_to(root) or place == root or threading.current_thread().name == LEASE:
            return None
        return Operation(name, str(place.relative_to(root)), str(source and _place(source, folder)))

    def made(name: str, real: Any) -> Any:
        return lambda path, *a, **k: around(
            operation(name, path, folder=k.get("dir_fd")), lambda: real(path, *a, **k)
        )

    def moved(name: str, real: Any) -> Any:
        return lambda a, b, **k: around(operation(name, b, a), lambda: real(a, b, **k))

    def opened(real: Any) -> Any:
        def call(file: Any, mode: str = "r", *a: Any, **k: Any) -> Any:
            changes = set(mode) & set("wxa+") and not isinstance(file, int)
            return around(operation("open", file) if changes else None, lambda: real(file, mode, *a, **k))

        return call

    def created(real: Any) -> Any:
        def call(path: Any, flags: int, *a: Any, **k: Any) -> Any:
            changes = flags & (os.O_CREAT | os.O_TRUNC)
            known = operation("create", path, folder=k.get("dir_fd")) if changes else None
            return around(known, lambda: real(path, flags, *a, **k))

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in MADE:
            patch.setattr(os, name, made(name, getattr(os, name)))
        for name in MOVED:
            patch.setattr(os, name, moved(name, getattr(os, name)))
        patch.setattr(os, "open", created(os.open))
        patch.setattr(builtins, "open", opened(builtins.open))
        patch.setattr(io, "open", opened(io.open))
        yield


def _place(path: Any, folder: int | None = None) -> Path:
    """The path that an argument of an operation names: a path, one relative to an open folder, or an open
    file.
    """
    if isinstance(path, int):
        return Path(os.readlink(f"/proc/self/fd/{path}"))
    return Path("" if folder is None else os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


def state_of(root: Path) -> State:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}


def put_back(root: Path, state: State) -> None:
    shutil.rmtree(root)
    root.mkdir()
    for name, data in sorted(state.items()):
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)


def half_written(state: State, operation: Operation, root: Path) -> State:
    """The state with half of each file that is about to get its name, alone or with the directory that it is
    in.
    """
    source = str(Path(operation.source).relative_to(root))
    mine = [name for name in state if name == source or name.startswith(f"{source}/")]
    return {**state, **{name: data[: len(data) // 2] for name in mine if (data := state[name]) is not None}}


@dataclass
class CrashPoints:
    """The states of a folder during a run, each that differs from all before it once."""

    root: Path
    coarse: bool = False  # of what is written in a directory that has no name yet, tell only how much it is
    states: dict[str, State] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    operations: list[str] = field(default_factory=list)

    def __call__(self, moment: str, operation: Operation) -> None:
        state, instant = state_of(self.root), f"{len(self.operations)}: {moment} {operation}"
        if moment == "before":
            self.operations.append(str(operation))
            if operation.name in MOVED:
                self._keep(f"{instant}, half written", half_written(state, operation, self.root))
        self._keep(instant, state)

    def _keep(self, instant: str, state: State) -> None:
        same = hash(
            tuple(sorted((UNNAMED.sub(".partial", name), data or b"") for name, data in state.items()))
        )
        if self.coarse and any(".partial/" in UNNAMED.sub(".partial", name) for name in state):
            inside = [
                UNNAMED.sub(".partial", name)
                for name in state
                if ".partial/" in UNNAMED.sub(".partial", name)
            ]
            same = hash(
                (
                    inside[0].partition("/")[0],
                    len(inside) // 10,
                    "half written" in instant,
                    len(state) - len(inside),
                )
            )
        if same not in self.known:
            self.known.add(same)
            self.states[instant] = state


class Killed(BaseException):
    """The process is gone: nothing that it would do after this changes a file."""


@dataclass
class Kill:
    """Dies at operation number `at`, before or after it, by an exception or by what `die` does."""

    at: int
    moment: str
    die: Callable[[], None] = lambda: None
    count: int = -1
    dead: bool = False

    def __call__(self, moment: str, operation: Operation) -> None:
        self.count += moment == "before"
        if self.dead or (self.count == self.at and moment == self.moment):
            self.dead = True
            self.die()
            raise Killed


# -- scoring -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Blocks of two chunks. What takes time and has no part in this is left out: waiting for the disk, which
    a kill of a process does not need; reading the model and testing it again and again.
    """
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        patch.setattr(os, "fsync", lambda handle: None)
        read_models_once(patch)
        patch.setattr("dcpred.scoring.planning.check_self_test", lambda *a, **k: None)
        yield


def cut_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
    patch.setattr("dcpred.execution.block_plan.BLOCKS", N_BLOCKS)


@dataclass(frozen=True)
class Job:
    """A model, the rows to score with it, and the output of a run that nothing disturbed."""

    model: Path
    data: Path
    truth: Path
    tables: dict[str, Any] = field(default_factory=dict)
    delta: Path | None = None

    def score(self, output: Path, pool: Any = None) -> ScoreReport:
        return score(self.model, self.data, output, client=pool, **self.tables, delta=self.delta)

    def shard(self, output: Path, index: int) -> ScoreReport | ShardReport:
        return score(self.model, self.data, output, shard=Shard(index, N_BLOCKS))

    def repair(self, output: Path) -> ScoreReport:
        return repair(self.model, self.data, output, **self.tables, delta=self.delta)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, small: None) -> Job:
    folder = tmp_path_factory.mktemp("job")
    blobs = make_blobs(300, n_features=3, n_classes=3, seed=0)
    data = make_group(folder / "train.zarr", blobs.X, blobs.y)
    train(data, folder / "model", settings={"landmarks": 6, "n_leaves": 2})
    rows = make_group(
        folder / "rows.zarr", make_blobs(N_ROWS, n_features=3, n_classes=3, seed=2).X, chunk_rows=CHUNK_ROWS
    )
    made = Job(folder / "model", rows, folder / "truth")
    assert made.score(made.truth).n_blocks == N_BLOCKS
    return made


@pytest.fixture(scope="module")
def parquet_job(job: Job) -> Job:
    """The same with Parquet files and ids."""
    zarr.open_group(job.data, mode="r+").create_array("id", data=np.arange(N_ROWS) + 1_000, chunks=(70,))
    made = replace(job, truth=job.truth.with_name("parquet"), tables={"parquet": True, "id": ("id",)})
    made.score(made.truth)
    assert len(pq.read_table(made.truth / TABLE_FORMATS[PARQUET].folder)) == N_ROWS
    return made


def stored(job: Job, output: Path) -> State:
    """What lies in scores.zarr and scores.parquet under a name that it keeps. The metadata of the group name
    the run, whose hash knows its Delta table.
    """
    own = () if job.delta is None else ("zarr.json",)
    return {
        f"{folder}/{name}": data
        for folder in ("scores.zarr", TABLE_FORMATS[PARQUET].folder)
        for name, data in state_of(output / folder).items()
        if not UNNAMED.search(name) and name not in own
    }


def check_whole(job: Job, output: Path, report: ScoreReport) -> None:
    """All rows are scored, all blocks committed, all bytes those of the undisturbed run, and verification
    finds no damage.
    """
    assert stored(job, output) == stored(job, job.truth)
    assert report.status == {"1": N_ROWS}
    ledger, right = open_ledger(output), open_ledger(job.truth)
    records = {Path(ledger.run.record_name(block)).name for block in range(N_BLOCKS)}
    assert set(list_records(ledger.run)) == set(range(N_BLOCKS))
    assert all(UNNAMED.search(name) for name in ledger.place.names("blocks") - records)
    assert run_status(output).failing == []
    for mine, its in zip(ledger.records(), right.records(), strict=True):
        assert (mine.block, mine.digest, mine.sizes, mine.status, mine.files) == (
            its.block,
            its.digest,
            its.sizes,
            its.status,
            its.files,
        )
    found = verify(output, "full")
    assert found.ok
    assert {finding.kind for finding in found.findings} <= {Kind.LEFTOVER}


@pytest.fixture(params=[15, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def every(request: pytest.FixtureRequest) -> int:
    """Of so many crash points in a row an ordinary run goes on from one."""
    return int(request.param)


def resume_each(points: CrashPoints, resume: Callable[[], None], every: int) -> None:
    """Go on from the crash points; report all from which that fails."""
    failed = []
    for instant, state in islice(points.states.items(), 0, None, every):
        put_back(points.root, state)
        try:
            resume()
        except Exception as error:
            failed.append(f"{instant}: {type(error).__name__}: {str(error)[:300]}")
    if failed:
        pytest.fail(
            f"{len(failed)} of {len(points.states)} crash points\n" + "\n".join(failed), pytrace=False
        )


@pytest.fixture
def points(tmp_path: Path) -> CrashPoints:
    (tmp_path / "work").mkdir()
    return CrashPoints(tmp_path / "work")


def test_scoring_is_resumed_from_every_crash_point(job: Job, points: CrashPoints, every: int) -> None:
    output = points.root / "out"
    with watched(points.root, points):
        job.score(output)
    assert len(points.states) > 90
    resume_each(points, lambda: check_whole(job, output, job.score(output)), every)


def test_scoring_with_parquet_is_resumed_from_every_crash_point(
    parquet_job: Job, points: CrashPoints, every: int
) -> None:
    output = points.root / "out"
    with watched(points.root, points):
        parquet_job.score(output)
    assert f"replace out/{TABLE_FORMATS[PARQUET].folder}/000001.parquet" in points.operations
    resume_each(points, lambda: check_whole(parquet_job, output, parquet_job.score(output)), every)


def test_a_repair_of_parquet_is_resumed_from_every_crash_point(
    parquet_job: Job, points: CrashPoints, every: int
) -> None:
    output = points.root / "out"
    parquet_job.score(output)
    (output / TABLE_FORMATS[PARQUET].folder / "000000.parquet").write_bytes(b"PAR1")
    with watched(points.root, points):
        check_whole(parquet_job, output, parquet_job.repair(output))
    resume_each(points, lambda: check_whole(parquet_job, output, parquet_job.repair(output)), every)


def test_a_delta_commit_is_resumed_from_every_crash_point(
    parquet_job: Job, points: CrashPoints, every: int
) -> None:
    """What Delta does by itself is one operation each: Python does not see its parts."""
    output, table = points.root / "out", points.root / "table"
    job = replace(parquet_job, delta=table, truth=parquet_job.truth.with_name("delta"))
    replace(job, delta=job.truth.with_name("delta-table")).score(job.truth)
    with pytest.MonkeyPatch.context() as patch, watched(points.root, points):
        for name in ("_created", "_added"):
            patch.setattr(delta_tables, name, seen_by(points, getattr(delta_tables, name)))
        job.score(output)
    told = points.operations
    manifest = told.index("link out/manifest.json")
    assert manifest < told.index("delta table/_created") < told.index("delta table/_added")
    late = {at: state for at, state in points.states.items() if int(at.partition(":")[0]) > manifest}
    assert len(late) > 2 * N_BLOCKS
    points.states = late

    def resume() -> None:
        for _ in range(2):
            check_whole(job, output, job.score(output))
            found = DeltaTable(table)
            assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == list(range(1_000, 1_000 + N_ROWS))
            assert found.version() == 1

    resume_each(points, resume, every)


def seen_by(points: CrashPoints, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        operation = Operation("delta", f"table/{real.__name__}")
        points("before", operation)
        result = real(*args)
        points("after", operation)
        return result

    return call


def test_the_first_shard_is_resumed_from_every_crash_point(job: Job, points: CrashPoints, every: int) -> None:
    output = points.root / "out"
    with watched(points.root, points):
        assert isinstance(job.shard(output, 0), ShardReport)
    assert len(points.states) > 50

    def resume() -> None:
        assert isinstance(job.shard(output, 0), ShardReport)
        last = job.shard(output, 1)
        assert isinstance(last, ScoreReport)
        check_whole(job, output, last)

    resume_each(points, resume, every)


def test_the_last_shard_is_resumed_from_every_crash_point(job: Job, points: CrashPoints, every: int) -> None:
    """A chunk of the other shard, which has ended well and is not run again, is damaged: its block is
    withdrawn and scored by the last one.
    """
    output = points.root / "out"
    job.shard(output, 0)
    damaged = output / "scores.zarr" / "decision" / "c" / "0" / "0"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with watched(points.root, points):
        assert isinstance(job.shard(output, 1), ScoreReport)
    told = "\n".join(points.operations)
    assert told.index("replace out/shards/withdrawn.json") < told.index("unlink out/blocks/000000.json")
    assert "unlink out/shards/withdrawn.json" in told

    def resume() -> None:
        last = job.shard(output, 1)
        assert isinstance(last, ScoreReport)
        check_whole(job, output, last)

    resume_each(points, resume, every)


def test_failures_and_withdrawn_blocks_are_resumed_from_every_crash_point(
    job: Job, points: CrashPoints, every: int
) -> None:
    """Two calls: of the first a block fails; during the second a chunk that was written before is lost, so
    that its block is withdrawn and scored again.
    """
    output = points.root / "out"
    lost = output / "scores.zarr" / "decision" / "c" / "0" / "0"

    def failing(run: Any, block: int, quarantine: bool) -> Any:
        if block == 1:
            raise RuntimeError("a bug")
        return task.score_block(run, block, quarantine)

    def losing(run: Any, block: int, quarantine: bool) -> Any:
        record = task.score_block(run, block, quarantine)
        if block == 1:
            lost.unlink()
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", failing)
        with pytest.raises(IncompleteError, match="a bug"):
            job.score(output)
        patch.setattr("dcpred.scoring.blocks.score_block", losing)
        with watched(points.root, points):
            assert job.score(output).scored_blocks == 2
    told = "\n".join(points.operations)
    assert "unlink out/failures/000001.json\n" in told
    assert "unlink out/blocks/000000.json\n" in told
    resume_each(points, lambda: check_whole(job, output, job.score(output)), every)


def test_noting_a_failure_is_resumed_from_every_crash_point(
    job: Job, points: CrashPoints, every: int
) -> None:
    output = points.root / "out"
    job.score(output)
    (output / "manifest.json").unlink()
    (output / "blocks" / "000001.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", lambda *task: 1 / 0)
        with watched(points.root, points), pytest.raises(IncompleteError, match="ZeroDivisionError"):
            job.score(output)
    assert "replace out/failures/000001.json" in points.operations
    resume_each(points, lambda: check_whole(job, output, job.score(output)), every)


def injure(output: Path) -> None:
    """Every kind of damage: a flipped bit, a lost chunk, an altered record, a conflict, altered metadata, a
    leftover.
    """
    flipped = output / "scores.zarr" / "decision" / "c" / "0" / "0"
    raw = bytearray(flipped.read_bytes())
    raw[len(raw) // 2] ^= 1
    flipped.write_bytes(raw)
    (output / "scores.zarr" / "status" / "c" / "3").unlink()
    record = output / "blocks" / "000001.json"
    (output / "blocks" / "000000.conflict-01234567.json").write_bytes(record.read_bytes())
    record.write_bytes(record.read_bytes().replace(b'"1": ', b'"2": '))
    metadata = output / "scores.zarr" / "label" / "zarr.json"
    metadata.write_bytes(metadata.read_bytes().replace(b"-1", b"-2"))
    (output / "blocks" / "000001.json.partial-0123456789ab").write_bytes(b"{")


def test_a_repair_is_resumed_from_every_crash_point(job: Job, points: CrashPoints, every: int) -> None:
    output = points.root / "out"
    job.score(output)
    injure(output)
    assert not verify(output, "full").ok
    with watched(points.root, points):
        report = job.repair(output)
    check_whole(job, output, report)
    assert report.scored_blocks == N_BLOCKS
    for done in ("blocks/000000.json", "blocks/000000.conflict-01234567.json", "manifest.json"):
        assert f"unlink out/{done}" in points.operations

    def resume() -> None:
        check_whole(job, output, job.repair(output))
        assert not any("blocks/" in f.file or "c/" in f.file for f in verify(output, "fast").findings)

    resume_each(points, resume, every)


class Mortal(InlineWorkers):
    """A worker that dies in each block at operation number `at`; the driver goes on and gives the block to
    another.
    """

    def __init__(self, root: Path, at: int, moment: str) -> None:
        self.root, self.at, self.moment, self.deaths = root, at, moment, 0

    def each(self, body: Any, tasks: Any) -> Any:
        return super().each(partial(self.attempt, body), tasks)

    def attempt(self, body: Any, *task: Any) -> Any:
        try:
            with watched(self.root, Kill(self.at, self.moment)):
                return body(*task)
        except Killed:
            self.deaths += 1
        return body(*task)


class EverDying(Mortal):
    """A worker whose attempts at a block die one operation later each time, until one is through."""

    def attempt(self, body: Any, *task: Any) -> Any:
        for at in range(1_000):
            try:
                with watched(self.root, Kill(at, self.moment)):
                    return body(*task)
            except Killed:
                self.deaths += 1
        raise AssertionError("no attempt was through")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_may_die_at_every_operation_of_a_block(
    job: Job, tmp_path: Path, moment: str, every: int
) -> None:
    for at in range(0, 1_000, every):
        worker = Mortal(tmp_path, at, moment)
        report = job.score(tmp_path / f"{at}", lambda worker=worker: nullcontext(worker))
        if not worker.deaths:
            break
        check_whole(job, tmp_path / f"{at}", report)
    assert at > 20


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_may_die_again_and_again(job: Job, tmp_path: Path, moment: str) -> None:
    worker = EverDying(tmp_path, 0, moment)
    report = job.score(tmp_path / "out", lambda: nullcontext(worker))
    assert worker.deaths > 20 * N_BLOCKS
    check_whole(job, tmp_path / "out", report)


def test_a_driver_may_die_again_and_again(job: Job, tmp_path: Path) -> None:
    """Call number n dies at its operation n, so that each has what all before it left."""
    for at in range(1_000):
        try:
            with watched(tmp_path, Kill(at, "before")):
                report = job.score(tmp_path / "out")
            break
        except Killed:
            assert not (tmp_path / "out" / "manifest.json").exists()
    assert at > 10
    check_whole(job, tmp_path / "out", report)


def test_processes_are_killed_for_real(job: Job, tmp_path: Path) -> None:
    """SIGKILL at a few operations, without an exception that anything could catch."""
    counted = Kill(-1, "before")
    with watched(tmp_path, counted):
        job.score(tmp_path / "counted")
    numbers = [str(n) for n in np.linspace(5, counted.count - 3, REAL_KILLS).astype(int)]
    command = [sys.executable, __file__, str(job.model), str(job.data), str(tmp_path), *numbers]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    result = processes.run(command, env=env)
    assert result.stdout.split() == [str(int(signal.SIGKILL))] * REAL_KILLS, result.stderr
    for number in numbers:
        output = tmp_path / number
        assert not (output / "manifest.json").exists()
        check_whole(job, output, job.score(output))


def die_for_real(job: Job, output: Path, at: int) -> int:
    """Score in a process of its own, which is killed at an operation; the signal that it ended by."""
    child = os.fork()
    if child:
        return os.WTERMSIG(os.waitpid(child, 0)[1])
    with watched(
        output.parent, Kill(at, ("before", "after")[at % 2], lambda: os.kill(os.getpid(), signal.SIGKILL))
    ):
        job.score(output)
    os._exit(1)


# -- the order of what is written ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(job: Job, tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    """What a run does to its output, in its order."""
    folder = tmp_path_factory.mktemp("named")
    done: list[Operation] = []
    with watched(folder, lambda moment, operation: done.append(operation) if moment == "after" else None):
        job.score(folder / "out")
    return done


def test_rule_nothing_has_its_name_before_it_is_whole(named: list[Operation]) -> None:
    """What is opened for writing has another name, but for the guard of the lock; names are given by
    moves, and each once.
    """
    opened = [o.path for o in named if o.name in ("open", "create") and not UNNAMED.search(o.path)]
    assert set(opened) == {"out/.lock.guard"}
    # a link never takes the place of a file
    given = [o.path for o in named if o.name in ("replace", "rename")]
    assert len(given) == len(set(given)), "something was overwritten"


def test_rule_scores_then_status_then_record(named: list[Operation]) -> None:
    at = {o.path: i for i, o in enumerate(named) if o.name in MOVED}
    for block in range(N_BLOCKS):
        record = at[f"out/blocks/{block:06d}.json"]
        for chunk in (2 * block, 2 * block + 1):
            decision, label, status = (at[f"out/scores.zarr/{key}"] for key in _keys(chunk))
            assert max(decision, label) < status < record


def test_rule_the_plan_is_first_and_the_manifest_last(named: list[Operation]) -> None:
    given = [o.path for o in named if o.name in MOVED and o.path != "out/lock"]
    assert (given[0], given[-1]) == ("out/plan.json", "out/manifest.json")


def _keys(chunk: int) -> tuple[str, str, str]:
    return f"decision/c/{chunk}/0", f"label/c/{chunk}", f"status/c/{chunk}"


# -- training ------------------------------------------------------------------------------------------------

# the larger leaf is divided again
TRAINING = {
    "landmarks": 4,
    "n_leaves": 2,
    "max_leaf_rows": 140,
    "overlap": 2,
    "refine_steps": 2,
}


@dataclass(frozen=True)
class Trained:
    """A training that was watched, and what it gave."""

    points: CrashPoints
    report: TrainReport
    train: Callable[[], TrainReport]

    @property
    def model(self) -> Path:
        return self.points.root / "model"

    @property
    def scratch(self) -> Path:
        return self.points.root / "model.scratch"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small: None) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    blobs = make_blobs(160, n_features=2, n_classes=2, seed=1)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=80)
    (folder / "work").mkdir()
    points = CrashPoints(folder / "work", coarse=True)

    def run() -> TrainReport:
        return train(data, points.root / "model", settings=TRAINING)

    with watched(points.root, points):
        report = run()
    return Trained(points, report, run)


def test_training_is_watched_through_all_of_its_steps(trained: Trained) -> None:
    told = "\n".join(trained.points.operations)
    files = (
        "job.json",
        "survey/000001-",
        "division.npz",
        "rows-0/000001.zarr",
        "rows-0/edges-0.npy",
        "rows-1/split.npz",
    )
    for done in (*files, "tree.npz", "rows-2/edges-0.npy", "leaves/000002.npz"):
        assert f" model.scratch/{done}" in told
    assert "rename model\n" in told
    assert "rmdir model.scratch" in told


def test_training_is_resumed_from_every_crash_point(trained: Trained, every: int) -> None:
    arrays = state_of_arrays(trained.model)

    def resume() -> None:
        had_model = trained.model.exists()
        assert trained.train().hash == trained.report.hash
        assert state_of_arrays(trained.model) == arrays
        assert had_model or not trained.scratch.exists()

    resume_each(trained.points, resume, every)


def test_a_call_that_finds_the_model_removes_what_was_left_of_the_work(trained: Trained) -> None:
    instant = next(name for name in trained.points.states if name.endswith("after rename model"))
    put_back(trained.points.root, trained.points.states[instant])
    assert trained.train().already_trained
    assert not trained.scratch.exists()


def state_of_arrays(model: Path) -> State:
    return state_of(model / "arrays.zarr")


if __name__ == "__main__":
    cut_small(pytest.MonkeyPatch())
    model_path, data_path, folder_path, *at_operations = sys.argv[1:]
    for number in at_operations:
        made_job = Job(Path(model_path), Path(data_path), Path())
        print(int(die_for_real(made_job, Path(folder_path) / number, int(number))), flush=True)
