"""The root of a refresh, whatever happens in whatever order: Hypothesis appends, rewrites, truncates and
touches the input, changes the model, ends processes between any two writes, prunes, and publishes older runs.
The input is an array of Zarr, files of Parquet or Arrow, which also get other names, row groups and rows in
between, or a Delta table, which is also compacted, restored and overwritten.

After each step the latest run is whole, and holds byte for byte what a run from scratch of the same input
holds; and no finished run has changed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import dcpred
from dcpred.execution.block_plan import BlockBoundaries
from dcpred.execution.lease import acquire_lock
from dcpred.refreshing.refresh import RefreshReport, publish, refresh
from dcpred.refreshing.root import Root, open_root
from dcpred.runs.latest import latest_run
from dcpred.runs.ledger import open_ledger
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.errors import DataError, RunHeldError
from dcpred_tasks.storage.place import open_place
from support.changing_inputs import INPUTS, N_FEATURES, files_of, outputs_of, table
from support.cut_off import CutOff, at_write, end
from support.data import make_blobs, make_group
from support.runs import score_in_blocks
from support.serving import read_models_once

CHUNK_ROWS, BLOCK_ROWS = 20, 40
START_ROWS = 130  # blocks of two chunks; the last block and the last chunk are not full
SEED = st.integers(0, 2**20)
TOLD = ("status", "bad_rows", "digest", "statistics", "drift", "n_blocks")


def without_names(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the metadata of the group, which tell of what run they are."""
    return {name: data for name, data in files.items() if name != "scores.zarr/zarr.json"}


@dataclass
class World:
    """Two models for each kind of input, and what runs from scratch have given so far."""

    folder: Path
    models: dict[str, tuple[Path, Path]]
    truths: dict[tuple[str, ...], tuple[dict[str, bytes], dict[str, Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Blocks are small. What takes time and has no part in this is left out."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred_tasks.tables.encoded_rows.MOST_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 4)
        patch.setattr("dcpred.execution.block_plan.BLOCK_ROWS", BLOCK_ROWS)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(os, "sync", lambda: None)
        patch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", 0.0)
        read_models_once(patch)
        patch.setattr("dcpred.scoring.planning.check_self_test", lambda *a, **k: None)
        of_arrays, of_tables = [], []
        for seed in (0, 1):
            blobs, few = make_blobs(300, N_FEATURES, 3, seed), {"landmarks": 6, "n_leaves": 2}
            data = make_group(folder / f"train-{seed}.zarr", blobs.X, blobs.y)
            of_arrays.append(folder / f"model-{seed}")
            train(data, of_arrays[-1], settings=few)
            pq.write_table(table(300, seed), folder / f"train-{seed}.parquet")
            of_tables.append(folder / f"model-of-tables-{seed}")
            known = str(folder / f"train-{seed}.parquet")
            dcpred.train(known, of_tables[-1], y="y", id=["order", "code"], settings=few)
        both = {name: of_tables if name != "zarr" else of_arrays for name in INPUTS}
        yield World(folder, {name: (one, other) for name, (one, other) in both.items()})


class RefreshMachine(RuleBasedStateMachine):
    """One input and one root.

    known     what each finished run held when it was first seen, by its name
    expected  the latest run, as far as it is known
    """

    def __init__(self, world: World, kind: str) -> None:
        super().__init__()
        self.world, self.kind, self.model = world, kind, world.models[kind][0]
        self.folder = Path(mkdtemp(dir=world.folder))
        self.root = self.folder / "root"
        self.known: dict[str, dict[str, bytes]] = {}
        self.expected = ""
        self.input = INPUTS[kind](self.folder, START_ROWS, CHUNK_ROWS)

    @initialize()
    def begin(self) -> None:
        self.refresh()

    # --- the input ---

    @rule(n=st.integers(1, 90), seed=SEED)
    def append(self, n: int, seed: int) -> None:
        self.input.append(n, seed)

    @rule(at=st.floats(0, 0.999), seed=SEED)
    def rewrite(self, at: float, seed: int) -> None:
        self.input.rewrite(at, seed)

    @rule(at=st.floats(0, 0.999))
    def touch(self, at: float) -> None:
        self.input.touch(at)

    @precondition(lambda self: self.input.n_rows > 30)
    @rule(n=st.integers(1, 25))
    def truncate(self, n: int) -> None:
        """Rows are taken away: refused, until everything is scored."""
        self.input.truncate(n)

    @precondition(lambda self: self.kind != "zarr")
    @rule(number=st.integers(0, 19), at=st.floats(0, 0.999), n=st.integers(1, 60), seed=SEED)
    def change_table(self, number: int, at: float, n: int, seed: int) -> None:
        self.input.change(number, at, n, seed)

    @rule(number=st.integers(0, 1))
    def another_model(self, number: int) -> None:
        self.model = self.world.models[self.kind][number]

    # --- drivers ---

    def call(self, **more: Any) -> RefreshReport:
        return refresh(self.model, self.input.data, self.root, **self.input.columns | more)

    def shrank(self) -> bool:
        """Whether the input has fewer rows than the latest run."""
        return bool(self.expected) and self.input.n_rows < self.ledger(self.expected).run.n_rows

    def ledger(self, name: str) -> Any:
        return open_ledger(self.root / "runs" / name)

    @rule(keep=st.sampled_from([None, None, 1, 2, 3]))
    def refresh(self, keep: int | None = None) -> None:
        """The latest run is that of the input as it is, and a second call writes nothing."""
        before = files_of(self.root) if self.root.exists() else {}
        if self.shrank():
            with pytest.raises(DataError, match=r"fewer than the .* Restore it, or score everything with"):
                self.call()
            assert files_of(self.root) == before
            return
        report = self.call(keep=keep)
        self.settle(report)
        if keep is not None and report.state != "left":
            assert len(self.finished()) <= keep
        after = files_of(self.root)
        again = self.call()
        assert again.state in ("unchanged", "left")
        assert (again.taken_blocks, again.scored_blocks) == (0, 0)
        assert files_of(self.root) == after

    @rule()
    def refresh_everything(self) -> None:
        report = self.call(full=True)
        assert report.taken_blocks == 0
        assert report.state == "published"
        self.settle(report)

    def settle(self, report: RefreshReport) -> None:
        """What a refresh that ended has to leave behind."""
        assert report.taken_blocks + report.scored_blocks <= report.n_blocks  # fewer where it goes on
        if report.state == "left":
            assert report.latest == self.expected
        else:
            assert report.latest == report.run
        self.expected = report.latest
        assert self.current() == report.latest
        assert report.n_rows == self.input.n_rows
        self.hold_against_scratch(report.run)

    @rule(writes=st.integers(1, 120), full=st.sampled_from([False, False, True]))
    def cut_off(self, writes: int, full: bool) -> None:
        """A process ends at a write; readers have a whole run, that of before or that of the input."""
        if self.shrank() and not full:
            return
        with at_write(writes, end, once=False), suppress(CutOff):
            self.call(full=full)
        current = self.current()
        if current != self.expected:
            self.hold_against_scratch(current)
            self.expected = current

    @rule(writes=st.integers(1, 130), seed=SEED)
    def written_to_meanwhile(self, writes: int, seed: int) -> None:
        """The first chunk and the last are rewritten while they are scored: what becomes the latest is of
        the input as it was before or as it is now, and of no mixture.
        """
        if self.shrank():
            return
        before = Path(shutil.copytree(self.input.data, Path(mkdtemp(dir=self.world.folder)) / "before"))
        with at_write(writes, lambda: (self.rewrite(0.0, seed), self.rewrite(0.999, seed + 1)), once=True):
            report = self.call()
        if report.state != "left":
            self.expected = report.run
            cut = self.cut_of(report.run)
            then, _ = self.scored(str(before), cut)
            assert without_names(self.held(report.run)) in map(without_names, (then, self.scratch(cut)[0]))
        shutil.rmtree(before.parent)
        self.refresh()

    @rule()
    def second_driver(self) -> None:
        before = files_of(self.root)
        with acquire_lock(open_place(self.root)), pytest.raises(RunHeldError, match="in use by process"):
            self.call()
        with acquire_lock(open_place(self.root)), pytest.raises(RunHeldError, match="in use by process"):
            publish(self.root, self.expected)
        assert files_of(self.root) == before

    @precondition(lambda self: self.expected)
    @rule(at=st.floats(0, 0.999))
    def publish_another(self, at: float) -> None:
        finished = self.finished()
        name = finished[int(at * len(finished))]
        assert publish(self.root, name).before == self.expected
        self.expected = name

    # --- what is known ---

    def current(self) -> str:
        return latest_run(open_place(self.root)) if self.root.exists() else ""

    def finished(self) -> list[str]:
        return open_root(open_place(self.root)).finished()

    def held(self, name: str) -> dict[str, bytes]:
        return outputs_of(self.root / "runs" / name)

    def cut_of(self, name: str) -> BlockBoundaries:
        run = self.ledger(name).run
        return BlockBoundaries(run.chunk_rows, run.block_rows, run.stride)

    def scratch(self, cut: BlockBoundaries) -> tuple[dict[str, bytes], dict[str, Any]]:
        """What a run from scratch of the input as it is now holds, and what its manifest tells."""
        key = str(self.folder), self.model.name, self.input.state(), str(cut)
        if key not in self.world.truths:
            self.world.truths[key] = self.scored(self.input.data, cut)
        return self.world.truths[key]

    def scored(self, data: str, cut: BlockBoundaries) -> tuple[dict[str, bytes], dict[str, Any]]:
        output = Path(mkdtemp(dir=self.world.folder)) / "scratch"
        score_in_blocks(self.model, data, output, cut, **self.input.columns)
        manifest = open_ledger(output).whole_manifest()
        assert manifest is not None
        result = outputs_of(output), manifest
        shutil.rmtree(output.parent)
        return result

    def hold_against_scratch(self, name: str) -> None:
        """A run equals one from scratch of the input as it is now: every byte, and what is told of them."""
        files, told = self.scratch(self.cut_of(name))
        assert self.held(name) == files
        manifest = self.ledger(name).whole_manifest()
        assert manifest is not None
        assert {k: manifest[k] for k in TOLD} == {k: told[k] for k in TOLD}

    @invariant()
    def the_latest_run_is_whole(self) -> None:
        assert self.current() == self.expected
        if self.expected:
            assert verify(self.root / "latest", "full").ok

    @invariant()
    def finished_runs_do_not_change(self) -> None:
        for name in self.finished() if self.expected else []:
            held = self.held(name)
            assert self.known.setdefault(name, held) == held
            assert verify(self.root / "runs" / name, "fast").ok

    def teardown(self) -> None:
        """Whatever happened, a last refresh gives what a run from scratch gives, and removes what was cut
        off.
        """
        if self.shrank():
            self.refresh_everything()
        else:
            self.refresh()
        assert sorted(os.listdir(self.root / "runs")) == sorted(self.finished())
        shutil.rmtree(self.folder)


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("histories", [1, pytest.param(25, marks=pytest.mark.long)])
def test_whatever_happens_to_a_root(world: World, kind: str, histories: int) -> None:
    quick = settings(
        max_examples=histories,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: RefreshMachine(world, kind), settings=quick)


# -- one rule at a time --------------------------------------------------------------------------------------


@pytest.fixture
def machine(world: World, request: pytest.FixtureRequest) -> Iterator[RefreshMachine]:
    made = RefreshMachine(world, getattr(request, "param", "zarr"))
    made.begin()
    yield made
    made.the_latest_run_is_whole()
    made.finished_runs_do_not_change()
    made.teardown()


@pytest.mark.parametrize("every", [18, pytest.param(3, marks=pytest.mark.long)])
def test_rule_a_process_may_end_at_any_write(machine: RefreshMachine, every: int) -> None:
    """One after the other, each going on with what the one before has left."""
    machine.append(50, 1)
    with at_write(10**9, end, once=False) as count:
        machine.refresh()
    assert count[0] > 40
    machine.append(50, 2)
    for number in range(1, count[0] // 2, every):
        machine.cut_off(number, full=False)
        machine.the_latest_run_is_whole()
        machine.finished_runs_do_not_change()


@pytest.mark.parametrize("every", [20, pytest.param(4, marks=pytest.mark.long)])
def test_rule_a_process_may_end_at_any_write_of_a_removal(machine: RefreshMachine, every: int) -> None:
    for number in range(0, 60, every):
        machine.rewrite(0.3, number)
        with at_write(30 + number, end, once=False), suppress(CutOff):
            machine.call(keep=1)
        machine.expected = machine.current()
        machine.the_latest_run_is_whole()
        machine.finished_runs_do_not_change()


def test_rule_what_came_in_is_scored_and_nothing_else(machine: RefreshMachine) -> None:
    machine.append(100, 3)
    report = machine.call()
    machine.settle(report)
    # 130 rows are three whole blocks of 40, and a part of the fourth, which is another one now.
    assert (report.n_blocks, report.taken_blocks, report.scored_blocks) == (6, 3, 3)


@pytest.mark.parametrize("machine", ["parquet", "arrow"], indirect=True)
def test_rule_rows_that_moved_are_scored_again(machine: RefreshMachine) -> None:
    """The last block lies within one row group, before a file grew by a row and after it."""
    machine.change_table(1, 0.0, 0, 5)
    machine.refresh()
    machine.change_table(0, 0.0, 1, 5)
    machine.refresh()


@pytest.mark.parametrize("machine", ["delta"], indirect=True)
def test_rule_a_new_version_of_the_same_rows_is_no_new_run(machine: RefreshMachine) -> None:
    machine.append(20, 3)
    report = machine.call()
    machine.settle(report)
    assert (report.taken_blocks, report.scored_blocks) == (3, 1)
    machine.change_table(3, 0.0, 1, 5)
    assert machine.call().state == "unchanged"


def test_rule_a_block_of_a_touched_chunk_is_scored_again(machine: RefreshMachine) -> None:
    machine.touch(0.5)
    report = machine.call()
    machine.settle(report)
    assert (report.taken_blocks, report.scored_blocks) == (3, 1)


def test_rule_an_older_run_stays_the_latest_until_something_is_new(machine: RefreshMachine) -> None:
    first = machine.expected
    machine.append(10, 4)
    machine.refresh()
    machine.publish_another(0.999)
    assert machine.expected == first
    machine.refresh()
    assert machine.expected == first
    machine.append(10, 5)
    machine.refresh()
    assert machine.expected != first


def test_rule_another_model_scores_everything(machine: RefreshMachine) -> None:
    machine.another_model(1)
    report = machine.call()
    machine.settle(report)
    assert (report.taken_blocks, report.scored_blocks) == (0, report.n_blocks)
    machine.another_model(0)
    back = machine.call()
    assert (back.state, back.scored_blocks) == ("published", 0)
    machine.settle(back)


def test_rule_what_was_cut_off_and_is_of_no_use_is_removed(machine: RefreshMachine) -> None:
    """Also where nothing is new."""
    with at_write(20, end, once=False), pytest.raises(CutOff):
        machine.call(full=True)
    assert sorted(os.listdir(machine.root / "runs")) != sorted(machine.finished())
    machine.refresh()
    assert sorted(os.listdir(machine.root / "runs")) == sorted(machine.finished())


def test_rule_a_process_may_end_before_the_folder_of_a_run_is_made(machine: RefreshMachine) -> None:
    with pytest.MonkeyPatch.context() as patch, suppress(CutOff):
        patch.setattr("dcpred.refreshing.root.Root.begin", lambda self, name, *a, **k: end_named(self, name))
        machine.call(full=True)
    assert open_root(open_place(machine.root)).settings.unfinished
    machine.refresh()
    assert open_root(open_place(machine.root)).settings.unfinished == ()


def end_named(root: Root, name: str) -> None:
    root.write(unfinished=(name,))
    raise CutOff


def test_rule_one_driver_at_a_time(machine: RefreshMachine) -> None:
    machine.second_driver()


@pytest.mark.parametrize(
    "writes", [pytest.param(n, marks=[pytest.mark.long] * (n % 32 != 2)) for n in range(2, 130, 8)]
)
def test_rule_an_input_that_changes_meanwhile(machine: RefreshMachine, writes: int) -> None:
    machine.rewrite(0.0, 6)
    machine.rewrite(0.999, 7)
    machine.written_to_meanwhile(writes, 8)
