"""A run that reuses the blocks of an earlier one where the rows are unchanged."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from dcpred.execution.block_plan import MAX_BLOCKS, BlockBoundaries, growing_boundaries, is_possible
from dcpred.execution.lease import Lease
from dcpred.execution.progress import show, show_step
from dcpred.refreshing.root import Root, run_number
from dcpred.runs.latest import RUNS
from dcpred.runs.ledger import Ledger
from dcpred.scoring.place_checks import check_place
from dcpred.scoring.planning import RECORD_BYTES, Planned, output_bytes, plan_run, planned_ids
from dcpred.scoring.request import Request
from dcpred.scoring.whole_run import score_all_rows
from dcpred_tasks.artifacts.block_files import ZARR
from dcpred_tasks.artifacts.commit_records import (
    CommitRecord,
    ScoreRun,
    list_records,
    parsed_record,
    record_bytes,
)
from dcpred_tasks.errors import DataError, IncompleteError
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address, TableAddress, absolute, lasting
from dcpred_tasks.storage.atomic_files import replace_bytes, resource_errors, sync_file_system
from dcpred_tasks.storage.place_types import Entry, Place
from dcpred_tasks.storage.store_requests import Retrying, each_of
from dcpred_tasks.storage.stored_chunks import InputState, open_input
from dcpred_tasks.task_bodies.block_artifacts import BlockArtifact, block_artifacts
from dcpred_tasks.task_bodies.zarr_chunks import create_scores

# Fields of two runs of which one may reuse blocks of the other.
SHARED = ("model_hash", "outputs", "alpha", "costs", "chunk_rows", "block_rows", "stride", "arithmetic")
LOOK_BLOCKS = 256  # blocks between two checks whether another driver took over


def can_reuse(old: ScoreRun, run: ScoreRun) -> bool:
    """Whether blocks of one run may be those of another, by their plans: also of another version of a Delta
    table, whose states then show which rows are unchanged.
    """
    same = all(getattr(old, name) == getattr(run, name) for name in SHARED)
    return same and lasting(old.x) == lasting(run.x) and has_tables(old, run.artifacts, run.ids)


def has_tables(run: ScoreRun, artifacts: tuple[str, ...], ids: tuple[str, ...]) -> bool:
    """Whether a run has such tables, or more."""
    return {*artifacts} <= {*run.artifacts} and (artifacts == (ZARR,) or run.ids == ids)


def unchanged_blocks(old: ScoreRun, before: InputState, run: ScoreRun, now: InputState) -> list[int]:
    """Blocks of the same rows of the same input chunks in both runs (see `can_reuse`)."""
    n_blocks = -(-min(old.n_rows, run.n_rows) // run.block_rows)
    return [
        block
        for block in range(n_blocks)
        if old.rows(block) == run.rows(block) and now.unchanged(before, *run.rows(block))
    ]


def reuse_blocks(root: Root, source: str, name: str, run: ScoreRun, blocks: list[int], lease: Lease) -> int:
    """Reuse blocks of run `source` in run `name`, unless it has a record. Returns how many were reused."""
    old = root.run(source)
    if old is None:
        return 0
    there, known, artifacts = list_records(run), list_records(old), block_artifacts(run)
    wanted = [block for block in blocks if block in known and block not in there]
    place, n = root.place, 0
    with show_step("reusing", 2 * len(wanted), "blocks") as advance:
        complete = []
        for block, linked in each_of(place, partial(_link_files, place, source, name, artifacts), wanted):
            if linked:
                complete.append(block)
            _look(block, lease)
            advance(1)
        stored: dict[str, Entry] = {}
        for artifact in artifacts if place.has_tags else ():
            stored |= run.place.listing(artifact.folder)
        renew = partial(_renew_record, old, source, run, artifacts, stored)
        for block, renewed in each_of(place, renew, complete):
            n += renewed
            _look(block, lease)
            advance(1)
        if n and place.folder is not None:
            # Records were written without waiting for the disk, one by one.
            sync_file_system(place.folder)
    return n


def _look(block: int, lease: Lease) -> None:
    if lease.lost or block % LOOK_BLOCKS == 0:
        lease.check()


def _link_files(place: Place, source: str, name: str, artifacts: list[BlockArtifact], block: int) -> bool:
    """Whether all files of a block existed."""
    retrying = Retrying()
    for file in (file for artifact in artifacts for file in artifact.files(block)):
        try:
            retrying(partial(place.duplicate, f"{RUNS}/{source}/{file}", f"{RUNS}/{name}/{file}"))
        except FileNotFoundError:
            return False
    return True


def _renew_record(
    old: ScoreRun,
    source: str,
    run: ScoreRun,
    artifacts: list[BlockArtifact],
    stored: Mapping[str, Entry],
    block: int,
) -> bool:
    """Whether a block was reused: its record is complete, and has no skipped row."""
    retrying, name, place = Retrying(), run.record_name(block), run.place
    content = retrying(partial(old.place.read, name))
    record = None if content is None else parsed_record(old, block, content.data)
    if record is None or record.quarantined or (record.start, record.stop) != run.rows(block):
        return False
    if not all(artifact.fits(record) for artifact in artifacts):
        return False
    files = {name: facts for name, facts in record.files.items() if name in run.artifacts}
    record = replace(record, files=files, input=record.input if files == record.files else "")
    for artifact in artifacts:
        record = artifact.linked(record, stored)
    data = record_bytes(_renewed(record, run.run, source, on_store=place.has_tags))
    if place.folder is not None:
        with resource_errors(place.folder):
            replace_bytes(place.folder / name, data)
        return True
    return retrying(partial(place.create, name, data))


def _renewed(record: CommitRecord, run: str, source: str, *, on_store: bool) -> CommitRecord:
    """The record of a reused block. The time of its scoring belongs to the run that did it."""
    origin = record.origin or source
    return replace(
        record,
        run=run,
        read_seconds=0.0,
        score_seconds=0.0,
        write_seconds=0.0,
        process=f"run {origin}",
        peak_memory_bytes=0,
        retries=0,
        statistics={**record.statistics, "seconds": 0.0},
        attempt=secrets.token_hex(8) if on_store else "",
        origin=origin,
    )


ASKED = ("outputs", "alpha", "costs")  # fields of a run that its request has, too
TICK_SECONDS = 0.05  # clocks of file systems have steps, mostly of some milliseconds
ROUNDS = 3  # attempts at scoring an input that changes meanwhile


@dataclass(frozen=True)
class Job:
    """The request, for any input."""

    request: Request
    """With all output columns in their order, and with alpha if one of them takes it."""
    model_hash: str
    arithmetic: Callable[[], str | None]
    """What scores rows in this process (`ScoreRun.arithmetic`)."""
    full: bool
    """Whether everything is scored, and nothing reused."""


@dataclass
class IncrementalRun:
    """Update of one input of a job.

    x       address of the array
    latest  the run that readers have now; "" for none
    reused  reused blocks
    scored  scored blocks
    """

    job: Job
    root: Root
    x: Address
    latest: str
    reused: int = 0
    scored: int = 0
    made: list[str] = field(default_factory=list)

    def run(self) -> str:
        """The name of a finished run of the current input; `latest`, if that is one. Raises
        IncompleteError if the input changes all the time.
        """
        for _ in range(ROUNDS):
            state = self._state()
            self._check_input(state)
            name = self._existing_run(state) or self._new(state)
            if not name:
                show("the input changed during scoring; scoring the changes again")
                continue
            for other in {*self.made, *self.root.settings.unfinished} - {name}:
                self.root.remove(other)
            return name
        for other in self.made[:-1]:
            self.root.remove(other)
        raise IncompleteError(
            f"Cannot score {self.x}: it changed {ROUNDS} times during scoring, or its disk has a clock that"
            " is ahead. Refresh when nothing writes to it, and where clocks agree."
        )

    def _new(self, state: InputState) -> str:
        """The name of a run that this call finished; "" if the input changed meanwhile."""
        try:
            self.made.append(self._made(state))
        except (DataError, IncompleteError):
            if self._input().same(state):
                raise
            return ""  # A worker does not read a table that is not the planned one.
        return self.made[-1] if self._input().unchanged(state, 0, state.n_rows) else ""

    def _now(self) -> float:
        """The time by the clock of the disk."""
        place = self.root.place
        on_disk = place.folder is not None and place.folder.is_dir()
        return place.clock() if on_disk else time.time()

    def _state(self) -> InputState:
        """The current input, once its youngest chunk is older than one that is written later."""
        state = self._input()
        if "" in state.marks:
            time.sleep(stored_chunks.SETTLED_SECONDS + TICK_SECONDS)
            state = self._input()
        return state

    def _input(self) -> InputState:
        return open_input(self.x, self._now(), self._ids(1))

    def _ids(self, n_rows: int) -> tuple[str, ...]:
        """The columns before the scores in tables."""
        return planned_ids(self.x, self.job.request.columns, n_rows)

    def _check_input(self, state: InputState) -> None:
        before = self.root.state(self.latest) if self.latest and not self.job.full else None
        if before is None:
            return
        if state.n_rows < before.n_rows:
            so = f"it has {state.n_rows:,} rows, fewer than the {before.n_rows:,} scored ones"
        elif state.n_features != before.n_features:
            so = f"it has {state.n_features:,} features, and the scored rows had {before.n_features:,}"
        elif state.dtype != before.dtype and not isinstance(self.x, TableAddress):
            so = f"it holds {state.dtype}, and the scored rows were {before.dtype}"
        else:
            return
        raise DataError(
            f"Cannot score new rows of {self.x}: {so}. Restore it, or score everything with --full."
        )

    def _existing_run(self, state: InputState) -> str:
        """A finished run of this input, the latest first; "" if there is none."""
        if self.job.full:
            return ""
        latest_first = sorted(self.root.finished(), key=lambda name: name != self.latest)
        runs = self.root.planned(latest_first)
        return next((name for name, run in runs if self._is_of(name, run, state)), "")

    def _is_of(self, name: str, run: ScoreRun, state: InputState) -> bool:
        """Compares the plan first: it is small, and a mismatch saves further reads."""
        job, columns = self.job, self.job.request.columns
        same = all(getattr(run, name) == getattr(columns, name) for name in ASKED)
        if (
            not same
            or run.model_hash != job.model_hash
            or not has_tables(run, columns.artifacts, self._ids(1))
            or lasting(run.x) != lasting(self.x)
            or run.n_rows != state.n_rows
        ):
            return False
        same_blocks = BlockBoundaries(run.chunk_rows, run.block_rows, run.stride) == self._boundaries(state)
        before = self.root.state(name) if same_blocks else None
        same = before is not None and before.same(state) and self.root.is_whole(run)
        return same and run.arithmetic == job.arithmetic()

    def _boundaries(self, state: InputState) -> BlockBoundaries:
        """The blocks of the first run, as long as they suit the input."""
        X = open_array(self.x)
        input_rows, row_bytes = zarr_arrays.chunk_rows(X), state.n_features * X.dtype.itemsize
        blocks = self.root.settings.cut
        if blocks is not None and not self.job.full and self.root.settings.form == state.form:
            few = -(-state.n_rows // blocks.block_rows) <= MAX_BLOCKS
            if few and is_possible(blocks, row_bytes, input_rows):
                return blocks
        return growing_boundaries(state.n_rows, row_bytes, input_rows)

    def _made(self, state: InputState) -> str:
        """A finished run of this input: an interrupted one, which is resumed, or a new one."""
        boundaries = self._boundaries(state)
        request = replace(self.job.request, x=self.x, output=self.root.place.address)
        run, plan, model = plan_run(request, blocks=boundaries)
        name, begun = self._place_for(run, state)
        planned = replace(run, output=absolute(self.root.address(name))), plan, model
        source, blocks = self._source(planned[0], state)
        if not begun:
            check_place(self.root.place, _needed(planned, len(blocks)))
            self.root.begin(name, state, full=self.job.full, cut=boundaries, form=state.form)
        n_left = self._reuse(name, planned, source, blocks)
        request = replace(request, output=planned[0].output, pool=request.pool_for(n_left))
        report = score_all_rows(request, planned)
        self.scored += report.scored_blocks
        self.root.end(name)
        return name

    def _place_for(self, run: ScoreRun, state: InputState) -> tuple[str, bool]:
        """The name of the run to make, and whether it was begun. Removes an unusable begun run."""
        begun = ""
        for name in self.root.settings.unfinished:
            if not begun and self._goes_on(name, run, state):
                begun = name
            else:
                self.root.remove(name)
        if begun:
            return begun, True
        numbers = [run_number(name) for name in self.root.names()]
        return f"{max(numbers, default=0) + 1:04d}-{run.run[:8]}", False

    def _goes_on(self, name: str, run: ScoreRun, state: InputState) -> bool:
        """Whether an unfinished run has this plan and input; if all is to be scored, also begun for that."""
        stored, before = self.root.run(name), self.root.state(name)
        if stored is None or before is None or not before.same(state):
            return False
        return replace(stored, output=run.output) == run and self.root.is_full(name) >= self.job.full

    def _source(self, run: ScoreRun, state: InputState) -> tuple[str, list[int]]:
        """The newest finished run of the same model and blocks, and its unchanged blocks."""
        for name, old in self.root.planned([] if self.job.full else self.root.finished()):
            before = self.root.state(name) if can_reuse(old, run) else None
            if before is not None and self.root.is_whole(old):
                blocks = unchanged_blocks(old, before, run, state)
                if blocks:
                    return name, blocks
        return "", []

    def _reuse(self, name: str, planned: Planned, source: str, blocks: list[int]) -> int:
        """Begin the run with reusable blocks. Returns the number of remaining blocks."""
        run, plan, model = planned
        ledger = Ledger(run, plan.n_blocks)
        with ledger.claimed() as lease:
            create_scores(run, model)
            if source and ledger.manifest() is None:
                n_reused = reuse_blocks(self.root, source, name, run, blocks, lease)
                self.reused += n_reused
                show(f"{n_reused:,} of {plan.n_blocks:,} blocks did not change since {source}")
            return len(ledger.pending())


def _needed(planned: Planned, n_kept: int) -> int:
    """The maximum bytes to write: scores of blocks that are not reused, and all records."""
    run, plan, model = planned
    scores = output_bytes(run, model, 0) * (plan.n_blocks - n_kept) // plan.n_blocks
    return scores + plan.n_blocks * RECORD_BYTES
