"""The ledger of a run: its plan, its blocks with their commit records, and its manifest."""

import re
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dcpred.execution.lease import LEASE_FILES, Lease, acquire_lock, check_unlocked
from dcpred.execution.progress import SILENT, reporting, show_step
from dcpred.runs.input_identity import (
    arrays_beside,
    is_same_input,
    record_input,
    recorded_identity,
    same_rows,
)
from dcpred.runs.latest import INPUTS, LINK, MANIFEST, PLAN, SETTINGS, run_meant, runs_of_parts
from dcpred.runs.record_cache import CachedRecords, read_records
from dcpred.runs.shards import FOLDER, Shard, check_no_shards, check_shard_free, hold_shard
from dcpred_tasks.annotations import from_document
from dcpred_tasks.artifacts.block_files import PARQUET, ZARR
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, list_records, parsed_record
from dcpred_tasks.errors import PlanConflictError, ResourceError, listed
from dcpred_tasks.model.label_rule import is_cost
from dcpred_tasks.model.uncertainty import LARGEST_ALPHA, LEAST_ALPHA
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.scoring.outputs import LABEL, OUTPUTS, QUANTILES, columns
from dcpred_tasks.scoring.statistics import HASHED_ROWS
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import absolute, below, check_writable, lasting, read_address, stored_text
from dcpred_tasks.storage.atomic_files import encoded, is_system_file
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.digests import sealed
from dcpred_tasks.storage.place import (
    open_place,
    read_document,
    read_own_document,
    read_sealed_document,
    write_document,
)
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.stored_chunks import rows_identity
from dcpred_tasks.tables.sources import is_importable, open_source
from dcpred_tasks.task_bodies.score_block import input_digest

FORMAT = "dcpred-scores"
ARITHMETIC = re.compile(r"numpy|tiles|engine \d+(, tiles)?")  # scoring.scorer.arithmetic
VERSION = 1
# Fields of a plan by which two runs differ, and those of the tables of an output, which may come later.
RUN_FIELDS = ("model_hash", "outputs", "alpha", "costs", "n_rows", "chunk_rows", "block_rows")
TABLE_FIELDS = ("artifacts", "ids", "delta")
TABLES = "tables.json"  # written where they differ from those of the plan
WITHDRAWN = f"{FOLDER}/withdrawn.json"
RUN_FOLDERS = ("blocks", "failures")
MOST_BLOCKS = 10**7  # no plan has more blocks


@result_class
class FailedBlock:
    """A note on a failed block."""

    block: int = result_field("Number of the block, from 0.")
    rows: tuple[int, int] = result_field("Its first row, and the row after its last.")
    error: str = result_field("The error.")
    deaths: int = result_field("Number of workers that died of it.")
    time: float = result_field("When it failed, in seconds since 1970.")


@result_class
class PlanFile:
    """What the file of a plan holds besides the fields of a run."""

    format: str = result_field("Name of the format of the document.")
    version: int = result_field("Version of that format.")
    input: dict[str, Any] = result_field(
        "Digests of the input by array: of the list of its chunks, and of their sizes."
    )


@dataclass(frozen=True)
class Ledger:
    """Commit records of one run."""

    run: ScoreRun
    n_blocks: int
    shard: Shard | None = None
    """The part of the run that this driver does; None for all."""
    cache: CachedRecords = field(default_factory=CachedRecords, compare=False)

    @property
    def place(self) -> Place:
        return self.run.place

    @property
    def address(self) -> str:
        """The address of the output."""
        return self.run.output

    @property
    def shard_blocks(self) -> range:
        """The blocks that this driver does."""
        return range(self.n_blocks) if self.shard is None else self.shard.blocks(self.n_blocks)

    def check_free(self) -> None:
        """Raise RunHeldError at once if another driver has the work of this one."""
        if self.shard is not None:
            check_shard_free(self.place, self.shard)
            return
        check_unlocked(self.place)
        check_no_shards(self.place)

    @contextmanager
    def claimed(self) -> Iterator[Lease]:
        """Make the directory this run's, or resume the run in it, and hold it, or a shard of it, within a
        `with` statement.

        Raises PlanConflictError, RunHeldError, ResourceError.
        """
        place = self.place
        place.make_folder("")
        with acquire_lock(place) if self.shard is None else hold_shard(place, self.shard) as lease:
            if self.shard is None:
                check_no_shards(place)
            self.check()
            for folder in RUN_FOLDERS:
                place.make_folder(folder)
            if place.read(PLAN) is None and not place.create(PLAN, self._plan()):
                self.check()  # another shard was first
            self._state_tables()
            try:
                yield lease
            finally:
                self.cache.forget()

    def _state_tables(self) -> None:
        """State the tables that an output gets after its plan was made."""
        tables = {name: getattr(self.run, name) for name in TABLE_FIELDS}
        stored = stored_run(self.address)
        if stored is not None and any(getattr(stored, name) != value for name, value in tables.items()):
            write_document(self.place, TABLES, sealed(tables))

    def with_stored_tables(self) -> "Ledger":
        """This ledger with the tables that the output has now."""
        stored = stored_run(self.address) or self.run
        tables = {name: getattr(stored, name) for name in TABLE_FIELDS}
        return replace(self, run=replace(self.run, **tables))

    def _plan(self, accepted: Iterable[str] = ()) -> bytes:
        more: dict[str, Any] = {"input": record_input(self.run)}
        if accepted := sorted(accepted):
            more["accepted"] = accepted
        return encoded({"format": FORMAT, "version": VERSION, **self.run.stated(), **more})

    def write_plan(self, accepted: str = "") -> None:
        """Rewrite the plan.

        accepted  the hash of the run that the current input would make, if it was found to hold the
                  same rows
        """
        before: frozenset[str] = frozenset()
        with suppress(PlanConflictError):
            before = self.accepted()
        self.place.write(PLAN, self._plan({*before, *([accepted] if accepted else [])}))

    def accepted(self) -> frozenset[str]:
        """Hashes of the runs that later states of the input with the same rows would have made."""
        plan, manifest = read_own_document(self.place, PLAN) or {}, self.whole_manifest() or {}
        listed = plan.get("accepted")
        hashes = [*(listed if isinstance(listed, list) else []), manifest.get("input_run")]
        return frozenset(name for name in hashes if isinstance(name, str))

    def recorded_input(self) -> dict[str, Any]:
        """The plan's record of the input when it was made; earlier versions wrote none."""
        record = (read_own_document(self.place, PLAN) or {}).get("input")
        return record if isinstance(record, dict) else {}

    def has_same_input(self) -> bool:
        """Whether X still holds the scored rows. Raises DataError if it cannot be opened."""
        same = is_same_input(self.run, self.recorded_input(), self.accepted())
        with reporting(SILENT):
            return same or self._reads_the_same()

    def adopted(self) -> "Ledger":
        """This ledger for the stored run, if that differs only in when files of its input were written."""
        plan = read_own_document(self.place, PLAN)
        stored_plan = None if plan is None or plan.get("run") == self.run.run else stored_run(self.address)
        if stored_plan is None or self._differs(plan or {}) or stored_plan.x != self.run.x:
            return self
        stored = replace(self, run=replace(self.run, run=stored_plan.run))
        same = self.run.run in self.accepted() or self._has_same_rows() or stored._reads_the_same()
        return stored if same else self

    def _reads_the_same(self) -> bool:
        """Whether an input with other times, and equal names, sizes and footers, holds the rows of all blocks
        that are done, by the digests in their records: footers alone do not prove it.
        """
        if not self._only_times_differ():
            return False
        store = computed(open_array(self.run.x))
        run = self.run if store is None else replace(self.run, input=store.identity)
        with show_step(
            "comparing the input, whose files have other times", self.n_blocks, "blocks"
        ) as advance:
            for record in self.records():
                if not record.input or input_digest(run, record) != record.input:
                    return False
                advance(1)
        return True

    def _has_same_rows(self) -> bool:
        """Whether X, and the ids of the run, hold the rows that the plan recorded."""
        X = open_array(self.run.x)
        return bool(same_rows(self.recorded_input(), X, self.run.n_rows)) and not self.changed_ids()

    def changed_ids(self) -> list[str]:
        """Ids of the run that are not those that were there when the plan was made."""
        recorded, n_rows = self.recorded_input(), self.run.n_rows
        arrays = arrays_beside(self.run.x) if self.run.ids else {}
        there = [name for name in self.run.ids if name in arrays]
        return [name for name in there if same_rows(recorded, arrays[name], n_rows, name) is False]

    def check_ids(self) -> None:
        """Raise PlanConflictError if tables would hold the ids of other rows."""
        if changed := self.changed_ids():
            raise PlanConflictError(
                f"Cannot write scores to {self.address}: {listed(changed)} of {self.run.x} changed"
                " since the rows were scored. Restore it, or choose a new directory."
            )

    def _differs(self, plan: dict[str, Any]) -> list[str]:
        named = {"costs": "the threshold or costs"}
        planned = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self.run).items()}
        return [named.get(k, k) for k in RUN_FIELDS if plan.get(k) != planned[k]]

    def check(self) -> bool:
        """Whether this run was begun there. Raises PlanConflictError for something else; writes nothing."""
        plan = read_own_document(self.place, PLAN)
        if plan is None and self._is_taken():
            # Another driver may have begun between the two checks. Its plan is older than its other files.
            plan = read_own_document(self.place, PLAN)
            if plan is None:
                raise PlanConflictError(
                    f"Cannot write scores to {self.address}: it holds {self._other_files()} name a new"
                    " directory."
                )
        if plan is not None:
            self._check(plan)
        return plan is not None

    def _other_files(self) -> str:
        folder = self.place.folder
        is_file = folder is not None and not folder.is_dir()
        lost = set() if is_file else {MANIFEST, "scores.zarr"} & self.place.names("")
        return f"scores without {PLAN}. Restore that file, or" if lost else "other files. Remove them, or"

    def _is_taken(self) -> bool:
        folder = self.place.folder
        if folder is not None and not folder.is_dir():
            return folder.exists()
        return any(not _ours(name) for name in self.place.names(""))

    def _check(self, plan: dict[str, Any]) -> None:
        if plan.get("run") == self.run.run:
            return
        differs = self._differs(plan)
        times = not differs and plan.get("x") == stored_text(self.run.x) and self._only_times_differ()
        # Rows whose records have digests were compared, and are others.
        if times and not all(record.input for record in open_ledger(self.address).records()):
            raise PlanConflictError(
                f"Cannot write scores to {self.address}: it belongs to another plan (it differs in the times"
                f" at which files of {self.run.x} were written: they were touched, copied or written"
                " again in the same sizes). If they hold the same rows, add --repair: it compares a sample,"
                " and later calls resume. Else choose a new directory."
            )
        raise PlanConflictError(
            f"Cannot write scores to {self.address}: it belongs to another plan (it differs in"
            f" {', '.join(differs) or 'the data'}). Name a new directory, or use the model, data and outputs"
            " of that plan."
        )

    def _only_times_differ(self) -> bool:
        before = recorded_identity(self.recorded_input())
        if before is None:
            return False
        X = open_array(self.run.x)
        return before.may_be_same(rows_identity(X, self.run.n_rows))

    def pending(self) -> list[int]:
        """This driver's blocks without a record."""
        done = list_records(self.run)
        return [block for block in self.shard_blocks if block not in done]

    def missing(self) -> list[int]:
        """Blocks of the whole run without a record."""
        done = list_records(self.run)
        return [block for block in range(self.n_blocks) if block not in done]

    def records(self, among: Container[int] | None = None) -> Iterator[CommitRecord]:
        """The records of blocks, by block; reads only those among these."""
        listed = list_records(self.run)
        if among is not None:
            listed = {block: entry for block, entry in listed.items() if block in among}
        for block, data in read_records(self.run, listed, self.cache):
            record = None if data is None else parsed_record(self.run, block, data)
            if record is not None:
                yield record

    def withdrawn(self) -> set[int]:
        """Blocks that a verifying shard took over; see `note_withdrawn`."""
        try:
            note = read_document(self.place, WITHDRAWN) or {}
            return set(from_document(tuple[int, ...], note.get("blocks", ())))
        except (ValueError, IsADirectoryError):
            return set()

    def note_withdrawn(self, blocks: Sequence[int]) -> None:
        """Store the damaged blocks before their records are withdrawn: the shard that does this scores them
        again. If it dies, its next attempt must not wait for the shards that owned these blocks, because they
        have ended.
        """
        write_document(self.place, WITHDRAWN, {"blocks": list(blocks)})

    def forget_withdrawn(self) -> None:
        self.place.remove(WITHDRAWN)

    def retract(self, block: int) -> None:
        """Withdraw a commit record whose block does not verify."""
        self.place.remove(self.run.record_name(block))

    def note_failure(self, block: int, sentence: str, deaths: int) -> None:
        """Store why a block failed, for the status of the run."""
        start, stop = self.run.rows(block)
        write_document(
            self.place,
            self._failure(block),
            {"block": block, "rows": [start, stop], "error": sentence, "deaths": deaths, "time": time.time()},
        )

    def forget_failure(self, block: int) -> None:
        self.place.remove(self._failure(block))

    def failures(self) -> list[dict[str, Any]]:
        """Notes on failed blocks, by block. Unreadable ones are ignored."""
        place = self.place
        names = sorted(name for name in place.names("failures") if name.endswith(".json"))
        return [note for name in names if (note := _note(place, f"failures/{name}")) is not None]

    def _failure(self, block: int) -> str:
        return self.run.record_name(block).replace("blocks/", "failures/")

    def manifest(self) -> dict[str, Any] | None:
        return read_own_document(self.place, MANIFEST)

    def whole_manifest(self) -> dict[str, Any] | None:
        """The manifest if it is unmodified."""
        return read_sealed_document(self.place, MANIFEST)

    def finish(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Make this the manifest unless a complete one exists, and return the existing one."""
        if not self.place.create(MANIFEST, encoded(manifest)):
            existing = self.whole_manifest()
            if existing is not None:
                return existing
            write_document(self.place, MANIFEST, manifest)
        return manifest

    def abandon(self) -> None:
        """Remove what `claimed` made, if nothing else is there by now."""
        place = self.place
        names = place.names("")
        lease = set(filter(LEASE_FILES.fullmatch, names))
        if names - {PLAN, *lease, *RUN_FOLDERS} or any(place.names(folder) for folder in RUN_FOLDERS):
            return
        for name in (PLAN, *lease):
            place.remove(name)
        if place.folder is not None:
            with suppress(OSError):  # Something came there meanwhile, and stays.
                for folder in (*RUN_FOLDERS, ""):
                    (place.folder / folder).rmdir()

    def withdraw_manifest(self) -> None:
        self.place.remove(MANIFEST)


def open_ledger(output: str | Path) -> Ledger:
    """The ledger of an existing output. Raises PlanConflictError if there is none."""
    place = open_place(run_meant(output))
    plan = read_own_document(place, PLAN)
    if plan is None:
        other = "Name another."
        if is_importable(place.address):
            other = "It is a table: pass the folder that `dcpred score MODEL DATA OUTPUT` wrote."
        if place.read(SETTINGS) is not None:
            other = f"A refresh keeps its runs there, of which {below(output, LINK)} is the latest."
        elif parts := runs_of_parts(output):
            example = next(iter(parts.values()))
            other = (
                f"It is of several inputs, each of which has its own run: name one, for example {example}."
            )
        raise PlanConflictError(
            f"Cannot find an output of `dcpred score` at {output}: it holds no {PLAN}. {other}"
        )
    return _planned_ledger(place, plan)


def _planned_ledger(place: Place, plan: dict[str, Any]) -> Ledger:
    """The ledger of a stored plan. Raises PlanConflictError for one that is not of dcpred."""
    try:
        # A plan records more of the input than a task compares.
        tables = read_sealed_document(place, TABLES) or {}
        document = {**completed(plan), **tables, "output": place.address, "input": None}
        document["x"] = read_address(plan.get("x"))
        run = from_document(ScoreRun, document)
        if not _possible(run):
            raise ValueError
        return Ledger(run, -(-run.n_rows // run.block_rows))
    except ValueError:
        raise PlanConflictError(
            f"Cannot read {place.address}/{PLAN}: dcpred did not write it. Score into a new directory, or"
            " restore the plan."
        ) from None


def same_settings(run: ScoreRun, other: ScoreRun) -> bool:
    """Whether two runs differ at most in their input and their tables."""
    return all(getattr(run, name) == getattr(other, name) for name in RUN_FIELDS)


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """A plan, a manifest or settings with the artifacts: earlier versions stated ids (or null) alone."""
    tables = [] if document.get("ids") is None else [PARQUET]
    return {"artifacts": [ZARR, *tables], **document, "ids": document.get("ids") or []}


def stored_run(output: str | Path) -> ScoreRun | None:
    """The run of an output; None if there is none, or its plan is damaged."""
    place = open_place(run_meant(output))
    try:
        plan = read_own_document(place, PLAN)
        return None if plan is None else _planned_ledger(place, plan).run
    except (PlanConflictError, NotADirectoryError):
        return None


def planned_version(data: str | Path, output: str | Path, *, resumes: bool) -> str | Path:
    """The version of a Delta table that the run in an output scores; any other data as given.

    resumes  whether the call can only be of that run, as a repair or a shard

    Raises PlanConflictError for other calls if the run is finished and the table has a newer version.
    """
    check_writable(output, "scores")
    try:
        run = stored_run(output)
    except ResourceError:  # Scoring states what is wrong with the output.
        return data
    if run is None:
        return data
    scored, table = str(run.x), lasting(run.x)
    if scored == table or table != absolute(data).rstrip("/"):  # not a version, or of another table
        return data
    if not resumes and read_own_document(run.place, MANIFEST) is not None:
        latest = open_source(absolute(data)).address
        if latest != scored:
            raise PlanConflictError(
                f"Cannot score {latest} into {output}: it holds the finished scores of {scored}. Name a"
                " new directory, or use `dcpred refresh`, which scores the latest version each time."
            )
    return scored


def _possible(run: ScoreRun) -> bool:
    """Whether the fields of a plan fit each other."""
    takes_alpha = any(column.takes_alpha for column in columns(run.outputs))
    return (
        run.sampling in (None, HASHED_ROWS)
        and (run.arithmetic is None or ARITHMETIC.fullmatch(run.arithmetic) is not None)
        and run.artifacts == (ZARR, *run.tables)
        and (run.delta is None or PARQUET in run.tables)
        and set() < {*run.outputs} <= {*OUTPUTS, *QUANTILES}
        and (run.costs is None or (LABEL in run.outputs and all(map(is_cost, run.costs))))
        and takes_alpha == (run.alpha is not None)
        and (run.alpha is None or LEAST_ALPHA <= run.alpha <= LARGEST_ALPHA)
        and run.n_rows <= MOST_BLOCKS * run.block_rows
    )


def _note(place: Place, name: str) -> dict[str, Any] | None:
    try:
        note = read_document(place, name)
        from_document(FailedBlock, note)
    except (ValueError, IsADirectoryError):
        return None
    return note


def _ours(name: str) -> bool:
    """Whether a run that was interrupted before its plan was written may have left this."""
    ours = name in (*RUN_FOLDERS, INPUTS, FOLDER) or LEASE_FILES.fullmatch(name) or ".partial-" in name
    return bool(ours) or is_system_file(name)
