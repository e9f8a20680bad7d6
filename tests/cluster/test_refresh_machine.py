"""The root of a refresh, whatever happens in whatever order: Hypothesis appends, rewrites, truncates and
touches the input, changes the model, ends processes between any two writes, prunes, and publishes older runs.

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

import numpy as np
import pytest
import zarr
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

from dcpred.execution.lease import hold
from dcpred.refreshing.refresh import RefreshReport, publish, refresh
from dcpred.refreshing.root import Root, open_root
from dcpred.runs.ledger import latest_run, open_ledger
from dcpred.scoring.score import plan_run, score
from dcpred.training.train import train
from dcpred.verification import verify
from dcpred_tasks.errors import DataError, RunHeldError
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.training.settings import make_settings
from support.cut_off import CutOff, at_write, end
from support.data import make_blobs, make_group
from support.pools import inline
from support.serving import read_models_once

CHUNK_ROWS, BLOCK_ROWS, N_FEATURES = 20, 40, 3
START_ROWS = 130  # blocks of two chunks; the last block and the last chunk are not full
LONG_AGO = 10**18  # nanoseconds since 1970: chunks are never too young
SEED = st.integers(0, 2**20)
TOLD = ("status", "bad_rows", "digest", "statistics", "drift", "n_blocks")


def files_of(folder: Path) -> dict[str, bytes]:
    """What lies below a folder, but for locks, and for what an attempt left that was cut off."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.is_symlink() and p.name != "lock" and ".partial" not in p.name
    }


def without_names(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the metadata of the group, which tell of what run they are."""
    return {name: data for name, data in files.items() if name != "zarr.json"}


@dataclass
class World:
    """Two models, and what runs from scratch have given so far."""

    folder: Path
    models: tuple[Path, Path]
    truths: dict[tuple[str, str], tuple[dict[str, bytes], dict[str, Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Blocks are small. What takes time and has no part in this is left out."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.plan.BLOCKS", 4)
        patch.setattr("dcpred.plan.BLOCK_ROWS", BLOCK_ROWS)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(os, "sync", lambda: None)
        patch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", 0.0)
        read_models_once(patch)
        patch.setattr("dcpred.scoring.score.check_self_test", lambda *a, **k: None)
        models = []
        for seed in (0, 1):
            blobs = make_blobs(300, n_features=N_FEATURES, n_classes=3, seed=seed)
            data, model = (
                make_group(folder / f"train-{seed}.zarr", blobs.X, blobs.y),
                folder / f"model-{seed}",
            )
            train(f"{data}/X", f"{data}/y", model, make_settings({"landmarks": 6, "n_leaves": 2}), inline)
            models.append(model)
        yield World(folder, (models[0], models[1]))


class RefreshMachine(RuleBasedStateMachine):
    """One input and one root.

    known     what each finished run held when it was first seen, by its name
    time      of the next write to the input; no two have the same
    expected  the latest run, as far as it is known
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.model = world, world.models[0]
        self.folder = Path(mkdtemp(dir=world.folder))
        self.root = self.folder / "root"
        self.known: dict[str, dict[str, bytes]] = {}
        self.expected = ""
        self.time = LONG_AGO
        make_group(self.folder / "data.zarr", self.rows(START_ROWS, 0), chunk_rows=CHUNK_ROWS)
        self.x = f"{self.folder}/data.zarr/X"
        self.stamp()

    @initialize()
    def begin(self) -> None:
        self.refresh()

    # --- the input ---

    @staticmethod
    def rows(n: int, seed: int) -> Any:
        X = make_blobs(n, n_features=N_FEATURES, n_classes=3, seed=seed).X
        X[seed % 7 :: 31] = np.nan  # rows without a score
        return X

    def chunks(self) -> list[Path]:
        return sorted(p for p in Path(self.x, "c").rglob("*") if p.is_file())

    def stamp(self, *, after: int = LONG_AGO) -> None:
        """Give files that were written now times of their own, which nobody takes for now."""
        for path in self.chunks():
            if path.stat().st_mtime_ns > self.time or path.stat().st_mtime_ns == after:
                self.time += 1_000_000
                os.utime(path, ns=(self.time, self.time))

    def array(self) -> Any:
        return zarr.open_array(self.x, mode="r+")

    @rule(n=st.integers(1, 90), seed=SEED)
    def append(self, n: int, seed: int) -> None:
        self.array().append(self.rows(n, seed))
        self.stamp()

    @rule(at=st.floats(0, 0.999), seed=SEED)
    def rewrite(self, at: float, seed: int) -> None:
        """A chunk gets other rows."""
        array = self.array()
        number = int(at * -(-array.shape[0] // CHUNK_ROWS))
        rows = slice(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, array.shape[0]))
        array[rows] = self.rows(rows.stop - rows.start, seed)
        self.stamp()

    @rule(at=st.floats(0, 0.999))
    def touch(self, at: float) -> None:
        """A chunk is written again with the same bytes."""
        chunks = self.chunks()
        self.time += 1_000_000
        os.utime(chunks[int(at * len(chunks))], ns=(self.time, self.time))

    @precondition(lambda self: self.array().shape[0] > 30)
    @rule(n=st.integers(1, 25))
    def truncate(self, n: int) -> None:
        """Rows are taken away: refused, until everything is scored."""
        array = self.array()
        array.resize((array.shape[0] - n, N_FEATURES))
        self.stamp()

    @rule(number=st.integers(0, 1))
    def another_model(self, number: int) -> None:
        self.model = self.world.models[number]

    # --- drivers ---

    def call(self, **more: Any) -> RefreshReport:
        return refresh(self.model, self.x, self.root, inline, **more)

    def shrank(self) -> bool:
        """Whether the input has fewer rows than the latest run."""
        return bool(self.expected) and self.array().shape[0] < self.ledger(self.expected).run.n_rows

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
        assert report.n_rows == self.array().shape[0]
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
        before, _ = self.scratch()
        with at_write(writes, lambda: (self.rewrite(0.0, seed), self.rewrite(0.999, seed + 1)), once=True):
            report = self.call()
        if report.state != "left":
            self.expected = report.run
            assert without_names(self.held(report.run)) in map(without_names, (before, self.scratch()[0]))
        self.refresh()

    @rule()
    def second_driver(self) -> None:
        before = files_of(self.root)
        with hold(self.root), pytest.raises(RunHeldError, match="in use by process"):
            self.call()
        with hold(self.root), pytest.raises(RunHeldError, match="in use by process"):
            publish(self.root, self.expected)
        assert files_of(self.root) == before

    @precondition(lambda self: self.expected)
    @rule(at=st.floats(0, 0.999))
    def publish_another(self, at: float) -> None:
        finished = self.finished()
        name = finished[int(at * len(finished))]
        assert publish(self.root, name) == self.expected
        self.expected = name

    # --- what is known ---

    def current(self) -> str:
        return latest_run(open_place(self.root)) if self.root.exists() else ""

    def finished(self) -> list[str]:
        return open_root(open_place(self.root)).finished()

    def held(self, name: str) -> dict[str, bytes]:
        return files_of(self.root / "runs" / name / "scores.zarr")

    def scratch(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """What a run from scratch of the input as it is now holds, and what its manifest tells."""
        # Rows that are cut off within a chunk leave all files as they were.
        chunks = [(p, p.stat().st_mtime_ns) for p in self.chunks()]
        key = self.model.name, str((self.array().shape, chunks))
        if key not in self.world.truths:
            cut = open_root(open_place(self.root)).settings.cut
            output = Path(mkdtemp(dir=self.world.folder)) / "scratch"
            planned = plan_run(self.model, self.x, output, cut=cut)
            score(self.model, self.x, output, inline, planned=planned)
            manifest = open_ledger(output).whole_manifest()
            assert manifest is not None
            self.world.truths[key] = files_of(output / "scores.zarr"), manifest
            shutil.rmtree(output.parent)
        return self.world.truths[key]

    def hold_against_scratch(self, name: str) -> None:
        """A run equals one from scratch of the input as it is now: every byte, and what is told of them."""
        files, told = self.scratch()
        assert self.held(name) == files
        manifest = self.ledger(name).whole_manifest()
        assert manifest is not None
        assert {k: manifest[k] for k in TOLD} == {k: told[k] for k in TOLD}

    @invariant()
    def the_latest_run_is_whole(self) -> None:
        assert self.current() == self.expected
        if self.expected:
            assert verify(self.root / "latest", "full", inline).ok

    @invariant()
    def finished_runs_do_not_change(self) -> None:
        for name in self.finished() if self.expected else []:
            held = self.held(name)
            assert self.known.setdefault(name, held) == held
            assert verify(self.root / "runs" / name, "fast", inline).ok

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


@pytest.mark.parametrize("histories", [4, pytest.param(25, marks=pytest.mark.long)])
def test_whatever_happens_to_a_root(world: World, histories: int) -> None:
    quick = settings(
        max_examples=histories,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: RefreshMachine(world), settings=quick)


# -- one rule at a time --------------------------------------------------------------------------------------


@pytest.fixture
def machine(world: World) -> Iterator[RefreshMachine]:
    made = RefreshMachine(world)
    made.begin()
    yield made
    made.the_latest_run_is_whole()
    made.finished_runs_do_not_change()
    made.teardown()


@pytest.mark.parametrize("every", [9, pytest.param(3, marks=pytest.mark.long)])
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


@pytest.mark.parametrize("every", [12, pytest.param(4, marks=pytest.mark.long)])
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
