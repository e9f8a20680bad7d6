"""An output directory, whatever happens to it in whatever order: Hypothesis plays drivers, workers, stale
attempts and damage.

The machine knows what the bytes of every chunk should be, from a run that nothing disturbed, and keeps
account of commit records. After each step it looks at rows, records and what verification finds; at the end
of each history `--repair` must give the bytes of the undisturbed run. Histories that hold one rule each are
written out at the end.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dcpred.execution.lease import acquire_lock
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.scoring.planning import plan_run
from dcpred.scoring.repair import repair
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts import commit_records
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.errors import IncompleteError, RunHeldError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.task_bodies import score_block as task
from dcpred_tasks.task_bodies import zarr_chunks
from support.data import make_blobs, make_group
from support.serving import read_models_once

N_ROWS, N_BLOCKS, CHUNK_ROWS, N_CHUNKS = 280, 3, 50, 6  # blocks of two chunks; the last chunk is not full
NAN_CHUNK = 3  # whose features are all missing, so that label and decision hold nothing but fill values
ARRAYS = ("label", "decision", "status")  # in the order in which they are written
WRITES = 2 * len(ARRAYS)  # of a block, before its commit
LEFTOVERS = (
    "blocks/000001.json.partial-0123456789ab",
    f"scores.zarr/label/c/1.{'0123456789abcdef' * 2}.partial",
)

BLOCK = st.integers(0, N_BLOCKS - 1)
CHUNK = st.integers(0, N_CHUNKS - 1)
HARMS = ("flip", "truncate", "empty", "delete")
ALTERATIONS = ("delete", "flip", "truncate", "count", "other run", "other block")


def chunk_file(array: str, chunk: int) -> str:
    return f"scores.zarr/{array}/c/{chunk}" + ("/0" if array == "decision" else "")


def files_of(output: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(output)): p.read_bytes()
        for p in output.rglob("*")
        if p.is_file() and p.name not in ("lock", ".lock.guard")
    }


@dataclass(frozen=True)
class World:
    """A model, rows to score with it, and what an undisturbed run makes of them."""

    folder: Path
    model: Path
    x: str
    truth: dict[str, bytes]  # files by path below the output
    values: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Blocks are small. What takes time and has no part in this is left out: waiting for the disk, reading
    the model and testing it again and again.
    """
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", N_BLOCKS)
        patch.setattr(os, "fsync", lambda handle: None)
        read_models_once(patch)
        patch.setattr("dcpred.scoring.planning.check_self_test", lambda *a, **k: None)
        blobs = make_blobs(300, n_features=3, n_classes=3, seed=0)
        data = make_group(folder / "train.zarr", blobs.X, blobs.y)
        train(data, folder / "model", settings={"landmarks": 6, "n_leaves": 2})
        X = make_blobs(N_ROWS, n_features=3, n_classes=3, seed=2).X
        X[CHUNK_ROWS * NAN_CHUNK : CHUNK_ROWS * (NAN_CHUNK + 1)] = np.nan
        x = f"{make_group(folder / 'rows.zarr', X, chunk_rows=CHUNK_ROWS)}/X"
        report = score(folder / "model", x, folder / "truth")
        assert report.n_blocks == N_BLOCKS
        assert report.status == {"1": N_ROWS - CHUNK_ROWS, "2": CHUNK_ROWS}
        yield World(folder, folder / "model", x, files_of(folder / "truth"), read(folder / "truth"))


def read(output: Path) -> dict[str, Any]:
    return {name: open_array(output / "scores.zarr" / name)[...] for name in ARRAYS}


class CutOffError(Exception):
    """An attempt ends here."""


class RunMachine(RuleBasedStateMachine):
    """One output and what is known of it.

    records  bytes of the whole commit records, by block; they may change only where a rule says so
    altered  blocks whose record is there, but not whole
    sealed   the records when the manifest was written; None where there is none
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.output = Path(mkdtemp(dir=world.folder))
        self.run, plan, model = plan_run(Request(world.model, world.x, self.output))
        with Ledger(self.run, plan.n_blocks).claimed():
            zarr_chunks.create_scores(self.run, model)
        self.records: dict[int, bytes] = {}
        self.altered: set[int] = set()
        self.conflicts: set[int] = set()
        self.deleted: set[str] = set()
        self.leftovers = False
        self.sealed: dict[int, bytes] | None = None

    # --- what is known ---

    def right(self, file: str, *, size_only: bool = False) -> bool:
        """Whether a chunk is as the undisturbed run wrote it."""
        try:
            data = (self.output / file).read_bytes()
        except FileNotFoundError:
            return False
        return len(data) == len(self.world.truth[file]) if size_only else data == self.world.truth[file]

    def damaged(self, block: int, level: str) -> bool:
        """Whether a block with a whole record has chunks that this level of verification can tell to be
        wrong.
        """
        files = [chunk_file(name, chunk) for name in ARRAYS for chunk in self.chunks(block)]
        return block in self.records and not all(
            self.right(file, size_only=level == "fast") for file in files
        )

    def wrong(self, level: str) -> set[int]:
        """Blocks that verification must name."""
        missing = set() if self.sealed is None else set(range(N_BLOCKS)) - set(self.records)
        return (
            self.conflicts | self.altered | missing | {b for b in range(N_BLOCKS) if self.damaged(b, level)}
        )

    def chunks(self, block: int) -> list[int]:
        return [start // CHUNK_ROWS for start, _ in self.run.chunks(block)]

    def committed(self, n: int) -> int | None:
        """One of the blocks that have a whole record."""
        return sorted(self.records)[n % len(self.records)] if self.records else None

    def adopt(self, again: set[int]) -> None:
        """Blocks that have been scored now: their chunks are right, and they have a record, a new one where
        they had none.
        """
        for block in again:
            self.altered.discard(block)
            self.records.setdefault(block, Path(self.run.output, self.run.record_name(block)).read_bytes())
            for file in (chunk_file(name, chunk) for name in ARRAYS for chunk in self.chunks(block)):
                assert self.right(file), f"{file} was written otherwise"
                self.deleted.discard(file)

    # --- drivers ---

    @rule()
    def resume(self) -> None:
        """`dcpred score` does what is missing, and what it can tell to be wrong; a finished run it only looks
        at.
        """
        if self.sealed is not None:
            before = files_of(self.output)
            if self.wrong("fast"):
                with pytest.raises(IncompleteError, match="is modified or damaged"):
                    self.score()
            elif self.sealed == self.records:
                self.score()
            else:  # the manifest is of other records
                with suppress(IncompleteError):
                    self.score()
            assert files_of(self.output) == before
            return
        again = {
            block for block in range(N_BLOCKS) if block not in self.records or self.damaged(block, "fast")
        }
        for block in again:
            self.records.pop(block, None)
        if self.conflicts:
            with pytest.raises(IncompleteError, match="two attempts at this block"):
                self.score()
        else:
            self.score()
        self.adopt(again)
        self.sealed = None if self.conflicts else dict(self.records)

    def score(self) -> None:
        score(self.world.model, self.world.x, self.output)

    @rule()
    def repair(self) -> None:
        """Everything is as the undisturbed run left it, and what was right before has not been touched."""
        again = {*self.wrong("full"), *(set(range(N_BLOCKS)) - set(self.records))}
        untouched = not again and not self.leftovers and self.sealed == self.records
        before = files_of(self.output)
        for block in again:
            self.records.pop(block, None)
        repair(self.world.model, self.world.x, self.output)
        self.conflicts.clear()
        self.leftovers = False
        self.adopt(again)
        self.sealed = dict(self.records)
        after = files_of(self.output)
        mine, right = (
            {k: v for k, v in files.items() if k.startswith("scores")} for files in (after, self.world.truth)
        )
        assert mine == right
        assert after == before or not untouched

    @rule()
    def second_driver(self) -> None:
        """Two drivers at a time: the second is refused and writes nothing."""
        with acquire_lock(open_place(self.output)):
            before = files_of(self.output)
            if self.sealed is None:
                with pytest.raises(RunHeldError, match="in use by process"):
                    self.score()
            with pytest.raises(RunHeldError, match="in use by process"):
                repair(self.world.model, self.world.x, self.output)
            assert files_of(self.output) == before

    # --- attempts ---

    @rule(block=BLOCK)
    def attempt(self, block: int) -> None:
        """A worker scores a block, the first or the hundredth time: a whole record stays, bytes are
        the same.
        """
        record = task.score_block(self.run, block)
        self.adopt({block})
        assert asdict(record)["digest"] == json.loads(self.records[block])["digest"]

    @rule(block=BLOCK, writes=st.integers(0, WRITES))
    def cut_off_attempt(self, block: int, writes: int) -> None:
        """A worker dies after so many writes, the last before the commit; on a block that is done it is a
        late attempt.
        """
        self.stop_after(block, writes)

    @precondition(lambda self: self.records)
    @rule(n=BLOCK, writes=st.integers(0, WRITES))
    def cut_off_attempt_with_other_values(self, n: int, writes: int) -> None:
        block = self.committed(n)
        assert block is not None
        with self.other_values():
            self.stop_after(block, writes)

    @precondition(lambda self: self.records)
    @rule(n=BLOCK)
    def late_commit_of_other_values(self, n: int) -> None:
        """The record that stands stays, and a conflict lies beside it."""
        block = self.committed(n)
        assert block is not None
        with self.other_values():
            record = task.score_block(self.run, block)
        assert record.digest == json.loads(self.records[block])["digest"]
        self.conflicts.add(block)
        assert len(list(Path(self.run.output, "blocks").glob(f"{block:06d}.conflict-*.json"))) == 1

    def other_values(self) -> Any:
        """What an attempt in another process may come to, if that rounds otherwise."""
        patch = pytest.MonkeyPatch()
        real = task.score_with_leaves

        def otherwise(model: Any, X: Any, **options: Any) -> Any:
            decided = real(model, X, **options)
            return replace(decided, decision=decided.decision + np.float32(1))

        patch.setattr(task, "score_with_leaves", otherwise)
        return undoing(patch)

    def stop_after(self, block: int, writes: int) -> None:
        left = [writes]
        real = zarr_arrays.write_rows

        def counted(array: Any, start: int, rows: Any) -> None:
            spend(left)
            real(array, start, rows)

        patch = pytest.MonkeyPatch()
        patch.setattr(zarr_arrays, "write_rows", counted)
        patch.setattr(task, "commit", lambda *a: spend([0]))
        with undoing(patch), pytest.raises(CutOffError):
            task.score_block(self.run, block)

    # --- damage ---

    @rule(chunk=CHUNK, array=st.sampled_from(ARRAYS), how=st.sampled_from(HARMS), at=st.floats(0, 0.999))
    def harm_a_chunk(self, chunk: int, array: str, how: str, at: float) -> None:
        file = chunk_file(array, chunk)
        if not self.right(file):
            return
        path = self.output / file
        raw = bytearray(path.read_bytes())
        if how == "delete":
            path.unlink()
            self.deleted.add(file)
        elif how == "flip":
            raw[int(at * len(raw))] ^= 1
            path.write_bytes(raw)
        else:
            path.write_bytes(raw[: 0 if how == "empty" else int(at * len(raw))])

    @precondition(lambda self: self.records)
    @rule(n=BLOCK, how=st.sampled_from(ALTERATIONS), at=st.floats(0, 0.999))
    def harm_a_record(self, n: int, how: str, at: float) -> None:
        block = self.committed(n)
        assert block is not None
        path, raw = Path(self.run.output, self.run.record_name(block)), bytearray(self.records.pop(block))
        if how == "delete":
            path.unlink()
            return
        self.altered.add(block)
        if how == "flip":
            raw[int(at * len(raw))] ^= 1
        elif how == "truncate":
            raw = raw[: int(at * len(raw))]
        else:
            raw = bytearray(self.edited(json.loads(raw), how))
        path.write_bytes(raw)

    @staticmethod
    def edited(value: dict[str, Any], how: str) -> bytes:
        """A record that somebody changed, without its checksum or with it."""
        if how == "count":
            value["status"] = {"1": 99}
        else:
            value |= {"run": "0" * 32} if how == "other run" else {"block": (value["block"] + 1) % N_BLOCKS}
            value["checksum"] = digest_json({k: v for k, v in value.items() if k != "checksum"})
        return (json.dumps(value, indent=1) + "\n").encode()

    @rule()
    def leave_partial_files(self) -> None:
        for name in LEFTOVERS:
            (self.output / name).parent.mkdir(parents=True, exist_ok=True)
            (self.output / name).write_bytes(b"{")
        self.leftovers = True

    # --- what holds after each step ---

    @invariant()
    def records_have_not_changed(self) -> None:
        for block, data in self.records.items():
            assert Path(self.run.output, self.run.record_name(block)).read_bytes() == data

    @invariant()
    def rows_are_right_or_not_scored(self) -> None:
        """Where a status is not 0 its scores are there; where nothing was written there is NaN and status 0;
        and what was committed and not damaged has the values of the undisturbed run.
        """
        values = None
        for chunk in range(N_CHUNKS):
            files = {name: chunk_file(name, chunk) for name in ARRAYS}
            there = {name: (self.output / file).exists() for name, file in files.items()}
            if any(there[name] and not self.right(file) for name, file in files.items()):
                continue
            for name in ARRAYS[:2]:
                assert there[name] or not there["status"] or files[name] in self.deleted, (
                    "status before scores"
                )
            values = values or self.read_undamaged()
            rows = slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
            for name in ARRAYS:
                expected = self.world.values[name][rows]
                if not there[name]:
                    expected = np.full_like(expected, {"label": -1, "decision": np.nan, "status": 0}[name])
                assert values[name][chunk].tobytes() == expected.tobytes()

    def read_undamaged(self) -> dict[str, dict[int, Any]]:
        """Values of chunks that are right or not there, by array and chunk."""
        found: dict[str, dict[int, Any]] = {}
        for name in ARRAYS:
            array = open_array(self.run.array(name))
            files = {chunk: chunk_file(name, chunk) for chunk in range(N_CHUNKS)}
            good = [
                chunk
                for chunk, file in files.items()
                if self.right(file) or not (self.output / file).exists()
            ]
            found[name] = {
                chunk: np.asarray(array[chunk * CHUNK_ROWS : (chunk + 1) * CHUNK_ROWS]) for chunk in good
            }
        return found

    @invariant()
    def verification_finds_what_is_wrong_and_nothing_else(self) -> None:
        for level in ("fast", "full"):
            report = verify(self.output, level)
            damage = [finding for finding in report.findings if finding.is_damage]
            assert {f.block for f in damage if f.block is not None} == self.wrong(level), level
            others = {f.kind for f in damage if f.block is None}
            assert others <= ({Kind.MANIFEST} if self.sealed not in (None, self.records) else set())
            assert report.ok == (self.sealed is not None and not damage)
            left = N_BLOCKS - len(self.records) - len(self.altered)
            assert report.left_blocks == (left if self.sealed is None else 0)
            assert (Kind.LEFTOVER in report.found) == self.leftovers

    def teardown(self) -> None:
        """Whatever happened, `--repair` gives what the undisturbed run gave."""
        self.repair()
        assert verify(self.output, "full").ok
        for name, value in read(self.output).items():
            assert value.tobytes() == self.world.values[name].tobytes()
        shutil.rmtree(self.output)


def spend(left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise CutOffError


@contextmanager
def undoing(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo patches at the end of a block."""
    try:
        yield
    finally:
        patch.undo()


@pytest.mark.parametrize("histories", [2, pytest.param(25, marks=pytest.mark.long)])
def test_whatever_happens_to_an_output(world: World, histories: int) -> None:
    quick = settings(
        max_examples=histories,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: RunMachine(world), settings=quick)


# -- one rule at a time --------------------------------------------------------------------------------------


@pytest.fixture
def machine(world: World) -> Iterator[RunMachine]:
    made = RunMachine(world)
    yield made
    shutil.rmtree(made.output)


def check(machine: RunMachine) -> None:
    machine.records_have_not_changed()
    machine.rows_are_right_or_not_scored()
    machine.verification_finds_what_is_wrong_and_nothing_else()


def test_rule_rows_that_were_not_scored_are_nan_with_status_0(machine: RunMachine) -> None:
    check(machine)
    values = read(machine.output)
    assert np.isnan(values["decision"]).all()
    assert not values["status"].any()
    assert (values["label"] == -1).all()


@pytest.mark.parametrize("writes", range(WRITES + 1))
def test_rule_scores_before_status_before_record(machine: RunMachine, writes: int) -> None:
    machine.cut_off_attempt(0, writes)
    check(machine)
    assert not Path(machine.run.output, machine.run.record_name(0)).exists()
    machine.resume()
    check(machine)


def test_rule_a_chunk_of_nothing_but_fill_values_is_kept(machine: RunMachine) -> None:
    machine.attempt(NAN_CHUNK // 2)
    for name in ARRAYS:
        assert (machine.output / chunk_file(name, NAN_CHUNK)).is_file()
    check(machine)


def test_rule_a_record_is_never_written_over(machine: RunMachine) -> None:
    machine.attempt(1)
    machine.attempt(1)
    machine.late_commit_of_other_values(1)
    check(machine)
    machine.resume()  # which does not finish
    machine.repair()
    check(machine)


def test_rule_another_record_does_not_take_the_place_of_one(machine: RunMachine) -> None:
    """The commit itself: what is there stays, and the second is kept beside it under another name."""
    machine.attempt(0)
    first = commit_records.read_record(machine.run, 0)
    assert first is not None
    other = replace(first, digest="f" * 32)
    assert commit_records.commit(machine.run, other) == first
    assert commit_records.commit(machine.run, replace(first, read_seconds=1e9)) == first
    assert Path(machine.run.output, machine.run.record_name(0)).read_bytes() == machine.records[0]
    beside = Path(machine.run.output, machine.run.record_name(0)).with_name("000000.conflict-ffffffff.json")
    assert json.loads(beside.read_bytes())["digest"] == other.digest
    assert len(list(beside.parent.iterdir())) == 2


@pytest.mark.parametrize("how", ALTERATIONS[1:])
def test_rule_a_record_counts_only_with_its_checksum_run_and_block(machine: RunMachine, how: str) -> None:
    machine.attempt(0)
    machine.harm_a_record(0, how, 0.5)
    assert commit_records.read_record(machine.run, 0) is None
    assert list(open_ledger(machine.output).records()) == []
    check(machine)
    machine.attempt(0)
    assert commit_records.read_record(machine.run, 0) is not None
    check(machine)


@pytest.mark.parametrize("how", HARMS[1:])
def test_rule_what_does_not_match_its_record_is_withdrawn_and_scored_again(
    machine: RunMachine, how: str
) -> None:
    machine.attempt(0)
    machine.harm_a_chunk(1, "decision", how, 0.5)
    check(machine)
    machine.resume()
    check(machine)


def test_rule_a_flipped_bit_is_found(machine: RunMachine) -> None:
    machine.resume()
    for name in ARRAYS:
        machine.harm_a_chunk(4, name, "flip", 0.9)
        check(machine)
        machine.repair()


def test_rule_other_values_of_the_same_size_are_found(machine: RunMachine) -> None:
    """Only the digest of a record can tell: chunks are whole, and scores agree with status."""
    machine.attempt(0)
    array, file = zarr_arrays.open_output(machine.run.array("decision")), chunk_file("decision", 0)
    for by in range(1, CHUNK_ROWS):
        array[:CHUNK_ROWS] = np.roll(machine.world.values["decision"][:CHUNK_ROWS], by, axis=0)
        if machine.right(file, size_only=True):
            break
    assert machine.right(file, size_only=True)
    assert machine.wrong("full") == {0}
    check(machine)


def test_rule_one_driver_at_a_time(machine: RunMachine) -> None:
    machine.second_driver()
    machine.attempt(0)
    machine.resume()
    machine.second_driver()
    check(machine)


def test_rule_a_finished_run_is_not_written_to(machine: RunMachine) -> None:
    machine.resume()
    machine.resume()
    machine.harm_a_chunk(0, "status", "delete", 0.0)
    machine.resume()
    check(machine)


def test_rule_a_repair_touches_only_what_is_wrong(machine: RunMachine) -> None:
    machine.resume()
    machine.harm_a_chunk(0, "label", "flip", 0.5)
    machine.harm_a_record(1, "delete", 0.0)
    machine.leave_partial_files()
    check(machine)
    machine.repair()
    check(machine)
    machine.repair()
    check(machine)
