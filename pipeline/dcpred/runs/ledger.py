"""The ledger of a run: its inputs, its blocks, and their commit records; and the latest run of a refresh, a
symbolic link on disks, else a small file. Either is replaced in one step: a reader always gets a complete
run.
"""

import errno
import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import zarr

from dcpred.execution.lease import LOCK, Lock, acquire_lock, check_unlocked
from dcpred.execution.progress import SILENT, Reporter
from dcpred.runs.shards import FOLDER, Shard, check_no_shards, check_shard_free, hold_shard
from dcpred_tasks.artifacts.commit_records import (
    CommitRecord,
    ScoreRun,
    list_records,
    parsed_record,
    record_bytes,
)
from dcpred_tasks.errors import DcpredError, PlanConflictError, ResourceError
from dcpred_tasks.model.label_rule import is_cost
from dcpred_tasks.model.uncertainty import LARGEST_ALPHA, LEAST_ALPHA
from dcpred_tasks.scoring.outputs import LABEL, OUTPUTS, QUANTILES, columns
from dcpred_tasks.scoring.statistics import HASHED_ROWS
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import (
    DELTA_VERSION,
    absolute,
    below,
    check_writable,
    path_on_disk,
    shown,
    table_address,
)
from dcpred_tasks.storage.atomic_files import (
    encoded,
    is_system_file,
    partial_name,
    resource_errors,
    sync_directory,
)
from dcpred_tasks.storage.bucket import same_tag
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import (
    Entry,
    Place,
    Stored,
    open_place,
    read_document,
    read_own_document,
    read_sealed_document,
    write_document,
)
from dcpred_tasks.storage.store_requests import Retrying, request_threads, waited_for
from dcpred_tasks.storage.stored_chunks import InputState, RowsIdentity, filled, rows_identity
from dcpred_tasks.task_bodies.score_block import input_digest

SETTINGS, LINK, LATEST, RUNS, PARTS = "refresh.json", "latest", "LATEST.json", "runs", "parts"  # in a root
RUN_NAME = re.compile(r"(\d{4,9})-[0-9a-f]{8}")
# Answers of a file system without symbolic links.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


def latest_run(place: Place) -> str:
    """The name of the latest run of a root, or "". Raises PlanConflictError for another's pointer."""
    pointed = None
    if place.links is not None:
        with suppress(FileNotFoundError):
            pointed = _target(place.links / LINK)
    if pointed is None:
        standing = read_own_document(place, LATEST)
        if standing is None:
            return ""
        pointed = str(standing.get("run"))
    folder, _, name = pointed.partition("/")
    if folder != RUNS or not RUN_NAME.fullmatch(name):
        raise PlanConflictError(
            f"Cannot find the latest run of {place.address}: its pointer names {pointed!r}. Let it"
            f" point to {RUNS}/NAME again, or remove it and name a run with --publish."
        )
    return name


def run_meant(output: str | Path) -> str | Path:
    """The address of the latest run for ROOT/latest, or ROOT/latest/parts/NAME; else the same address."""
    if path_on_disk(output) is not None:
        return output
    root, _, part = str(output).rstrip("/").rpartition(f"/{LINK}/{PARTS}/")
    if not root:
        root, _, name = str(output).rstrip("/").rpartition("/")
        if name != LINK:
            return output
    run = latest_run(open_place(root))
    if not run:
        return output
    if "/" in part or not part:
        return below(root, RUNS, run)
    parts = (read_own_document(open_place(root), f"{RUNS}/{run}/manifest.json") or {}).get("parts")
    own = parts.get(part) if isinstance(parts, dict) else None
    return below(root, PARTS, part, RUNS, str(own)) if own else output


def point_to(place: Place, name: str) -> None:
    """Make a run the latest."""
    if place.links is not None:
        link, partial = place.links / LINK, partial_name(place.links / LINK)
        with resource_errors(link):
            try:
                partial.symlink_to(f"{RUNS}/{name}")
                os.replace(partial, link)
                sync_directory(place.links)
                return
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
            finally:
                partial.unlink(missing_ok=True)
    write_document(place, LATEST, {"run": f"{RUNS}/{name}"})


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise PlanConflictError(
            f"Cannot find the latest run of {link.parent}: {link} is not a symbolic link. Remove it, and"
            " name a run with --publish."
        ) from None


READ_AT_ONCE = 32
AT_ONCE = 64  # concurrent requests to a store
T = TypeVar("T")
Item = TypeVar("Item")


def each_of(place: Place, call: Callable[[Item], T], items: Iterable[Item]) -> Iterator[tuple[Item, T]]:
    """(item, call(item)) in the order of items: one after the other on a disk, many at once on a store."""
    if not place.many_at_once:
        yield from ((item, call(item)) for item in items)
        return
    left, threads = iter(items), request_threads()
    under_way = deque((item, threads.submit(call, item)) for item in islice(left, AT_ONCE))
    while under_way:
        item, future = under_way.popleft()
        yield item, waited_for(future, place.address)
        under_way.extend((item, threads.submit(call, item)) for item in islice(left, 1))


@dataclass
class CachedRecords:
    """Records with their tags on the store, in a temporary file: the same tag is not read again."""

    file: IO[bytes] | None = None
    at: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """Tag, offset and length of each block's record."""

    def keep(self, record: CommitRecord) -> None:
        if not record.tag:
            return
        self.file = self.file or tempfile.TemporaryFile()  # noqa: SIM115
        data = record_bytes(record)
        offset = self.file.seek(0, 2)
        self.file.write(data)
        self.at[record.block] = record.tag, offset, len(data)

    def forget(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
        self.file, self.at = None, {}

    def find(self, block: int, entry: Entry) -> bytes | None:
        tag, offset, length = self.at.get(block, ("", 0, 0))
        if self.file is None or not tag or not same_tag(tag, entry.tag):
            return None
        self.file.seek(offset)
        return self.file.read(length)


def read_records(
    run: ScoreRun, listed: Mapping[int, Entry], kept: CachedRecords
) -> Iterator[tuple[int, bytes | None]]:
    """The bytes of the records of these blocks, in ascending order; None for a removed one."""
    place, blocks = run.place, iter(sorted(listed))
    if not place.many_at_once:
        for block in blocks:
            with suppress(OSError):  # an unreadable file is not a record
                standing = place.read(run.record_name(block))
                yield block, None if standing is None else standing.data
                continue
            yield block, None
        return
    while some := list(islice(blocks, READ_AT_ONCE)):
        known = {block: data for block in some if (data := kept.find(block, listed[block])) is not None}
        asked = {
            block: request_threads().submit(_get, place, run.record_name(block))
            for block in some
            if block not in known
        }
        for block in some:
            if block in known:
                yield block, known[block]
            else:
                standing = waited_for(asked[block], place.address)
                yield block, None if standing is None else standing.data


def _get(place: Place, name: str) -> Stored | None:
    return Retrying()(lambda: place.read(name))


def write_inputs(place: Place, file: str, state: InputState, *, full: bool) -> None:
    """full  whether the run was begun to reuse nothing"""
    value = {"full": full, **asdict(state)}
    write_document(place, file, {**value, "checksum": digest_json(value)})


def read_inputs(place: Place, file: str) -> tuple[InputState, bool] | None:
    """(state, full); None if it is missing or modified."""
    value: dict[str, Any] | None = read_sealed_document(place, file)
    if value is None:
        return None
    try:
        given = {f.name: value[f.name] for f in fields(InputState)}
        return InputState(**{**given, "marks": tuple(given["marks"])}), bool(value.get("full"))
    except (KeyError, TypeError):
        return None


def forget_rows(state: InputState, rows: list[tuple[int, int]]) -> InputState:
    """The state without the marks of chunks below these rows: no later run takes them for unchanged."""
    marks = list(state.marks)
    for start, stop in rows:
        for number in range(start // state.mark_rows, min(-(-stop // state.mark_rows), len(marks))):
            marks[number] = ""
    return replace(state, marks=tuple(marks))


def run_hash(X: zarr.Array[Any], run: ScoreRun) -> str:
    """The hash of a run: of its current input, its model, its outputs with their alpha and costs, its blocks,
    its arithmetic if that is not the compiled engine, and its Parquet files.
    """
    told, table = run.told(), _table_identity(run)
    identity = {
        "content": stored_chunks.fingerprint(X),
        "shape": list(X.shape),
        "dtype": str(X.dtype),
        **{name: told[name] for name in HASHED if name in told},
        **filled(),
        **({} if table is None else {"table": table}),
    }
    return digest_json(identity)


def _table_identity(run: ScoreRun) -> dict[str, Any] | None:
    """What identifies the Parquet files of a run besides its scores: the current ids, and the Delta table.
    None without such files.
    """
    if run.ids is None:
        return None
    beside = arrays_beside(run.x)
    found = {name: stored_chunks.fingerprint(beside[name]) for name in run.ids if name in beside}
    return {"ids": list(run.ids), "arrays": found, "delta": run.delta}


def record_input(run: ScoreRun) -> dict[str, Any]:
    """The record of the input in a plan: the rows of X, and of each array of one dimension beside it."""
    X = zarr_arrays.open_array(run.x)
    arrays = {
        name: asdict(rows_identity(array, run.n_rows))
        for name, array in arrays_beside(run.x).items()
        if array.shape[0] >= run.n_rows
    }
    return {"X": asdict(rows_identity(X, run.n_rows)), "arrays": arrays}


def arrays_beside(x: str) -> dict[str, zarr.Array[Any]]:
    """One-dimensional arrays in the group of X; none if it is in no group."""
    try:
        node = zarr_arrays.open_any(x.rstrip("/").rpartition("/")[0])
        if not isinstance(node, zarr.Group):
            return {}
        return {name: array for name, array in zarr_arrays.arrays_of(node) if array.ndim == 1}
    except DcpredError:  # Others than X may be damaged.
        return {}


def same_rows(
    recorded: Mapping[str, Any], array: zarr.Array[Any], n_rows: int, name: str = ""
) -> bool | None:
    """Whether the first rows of an array are those that a plan recorded as its input; None if it recorded
    nothing of it.

    name  name of an array next to X; "" for X
    """
    before = recorded_identity(recorded, name)
    if before is None:
        return None
    return array.shape[0] >= n_rows and before.same(rows_identity(array, n_rows))


def recorded_identity(recorded: Mapping[str, Any], name: str = "") -> RowsIdentity | None:
    """What `record_input` wrote of an array; None if it is missing or invalid."""
    arrays = recorded.get("arrays")
    found = (arrays.get(name) if isinstance(arrays, dict) else None) if name else recorded.get("X")
    names = [field.name for field in fields(RowsIdentity)]
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
        return None
    return RowsIdentity(**{name: found[name] for name in names})


def is_same_input(run: ScoreRun, recorded: Mapping[str, Any], accepted: frozenset[str]) -> bool:
    """Whether X still holds the scored rows. Raises DataError if it cannot be opened.

    recorded  the record of the input in the plan; earlier versions wrote none
    accepted  hashes of runs whose input --repair found to hold the same rows
    """
    X = zarr_arrays.open_array(run.x)
    if X.shape[0] == run.n_rows:
        now = run_hash(X, run)
        if now == run.run or now in accepted:
            return True
    return bool(X.ndim == 2 and same_rows(recorded, X, run.n_rows))


FORMAT = "dcpred-scores"
ARITHMETIC = re.compile(r"numpy|tiles|engine \d+(, tiles)?")  # scoring.scorer.arithmetic
VERSION = 1
# Fields of a plan by which two runs differ.
RUN_FIELDS = ("model_hash", "outputs", "alpha", "costs", "n_rows", "chunk_rows", "block_rows", "ids", "delta")
HASHED = ("model_hash", "outputs", "chunk_rows", "block_rows", "alpha", "costs", "arithmetic")
PLAN, MANIFEST, INPUTS = "plan.json", "manifest.json", "inputs.json"
WITHDRAWN = f"{FOLDER}/withdrawn.json"
RUN_FOLDERS = ("blocks", "failures")
MOST_BLOCKS = 10**7  # no plan has more blocks


@dataclass(frozen=True)
class Ledger:
    """Commit records of one run."""

    run: ScoreRun
    n_blocks: int
    shard: Shard | None = None
    """The part of the run that this driver does; None for all."""
    kept: CachedRecords = field(default_factory=CachedRecords, compare=False)

    @property
    def place(self) -> Place:
        return self.run.place

    @property
    def address(self) -> str:
        """The address of the output."""
        return self.run.output

    @property
    def own_blocks(self) -> range:
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
    def claimed(self) -> Iterator[Lock]:
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
            try:
                yield lease
            finally:
                self.kept.forget()

    def _plan(self, accepted: Iterable[str] = ()) -> bytes:
        more: dict[str, Any] = {"input": record_input(self.run)}
        if accepted := sorted(accepted):
            more["accepted"] = accepted
        return encoded({"format": FORMAT, "version": VERSION, **self.run.told(), **more})

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
        found = [*(listed if isinstance(listed, list) else []), manifest.get("input_run")]
        return frozenset(one for one in found if isinstance(one, str))

    def recorded_input(self) -> dict[str, Any]:
        """The plan's record of the input when it was made; earlier versions wrote none."""
        found = (read_own_document(self.place, PLAN) or {}).get("input")
        return found if isinstance(found, dict) else {}

    def has_same_input(self) -> bool:
        """Whether X still holds the scored rows. Raises DataError if it cannot be opened."""
        same = is_same_input(self.run, self.recorded_input(), self.accepted())
        return same or self._reads_the_same(SILENT)

    def adopted(self, say: Reporter = SILENT) -> "Ledger":
        """This ledger for the stored run, if that differs only in when files of its input were written."""
        plan = read_own_document(self.place, PLAN)
        standing = None if plan is None or plan.get("run") == self.run.run else standing_run(self.address)
        if standing is None or self._differs(plan or {}) or standing.x != self.run.x:
            return self
        stored = replace(self, run=replace(self.run, run=standing.run))
        same = self.run.run in self.accepted() or self._has_same_rows() or stored._reads_the_same(say)
        return stored if same else self

    def _reads_the_same(self, say: Reporter) -> bool:
        """Whether an input with other times, and equal names, sizes and footers, holds the rows of all blocks
        that are done, by the digests in their records: footers alone do not prove it.
        """
        if not self._only_times_differ():
            return False
        store = computed(zarr_arrays.open_array(self.run.x))
        run = self.run if store is None else replace(self.run, input=store.identity)
        with say.step(
            "comparing the input, whose files have other times", self.n_blocks, "blocks"
        ) as advance:
            for record in self.records():
                if not record.input or input_digest(run, record.block) != record.input:
                    return False
                advance(1)
        return True

    def _has_same_rows(self) -> bool:
        """Whether X, and the ids of the run, hold the rows that the plan recorded."""
        recorded, n_rows = self.recorded_input(), self.run.n_rows
        beside = arrays_beside(self.run.x) if self.run.ids else {}
        arrays = {"": zarr_arrays.open_array(self.run.x)}
        arrays |= {name: beside[name] for name in self.run.ids or () if name in beside}
        return all(same_rows(recorded, array, n_rows, name) for name, array in arrays.items())

    def _differs(self, plan: dict[str, Any]) -> list[str]:
        named = {"costs": "the threshold or costs", "ids": "the Parquet files or their ids"}
        named |= {"delta": "the Delta table"}
        own = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self.run).items()}
        return [named.get(k, k) for k in RUN_FIELDS if plan.get(k) != own[k]]

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
        times = not differs and plan.get("x") == self.run.x and self._only_times_differ()
        # Rows whose records have digests were compared, and are others.
        if times and not all(record.input for record in open_ledger(self.address).records()):
            raise PlanConflictError(
                f"Cannot write scores to {self.address}: it belongs to another plan (it differs in the times"
                f" at which files of {shown(self.run.x)} were written: they were touched, copied or written"
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
        X = zarr_arrays.open_array(self.run.x)
        return before.may_be_same(rows_identity(X, self.run.n_rows))

    def pending(self) -> list[int]:
        """This driver's blocks without a record."""
        done = list_records(self.run)
        return [block for block in self.own_blocks if block not in done]

    def missing(self) -> list[int]:
        """Blocks of the whole run without a record."""
        done = list_records(self.run)
        return [block for block in range(self.n_blocks) if block not in done]

    def records(self, among: Container[int] | None = None) -> Iterator[CommitRecord]:
        """The records of blocks, by block; reads only those among these."""
        listed = list_records(self.run)
        if among is not None:
            listed = {block: entry for block, entry in listed.items() if block in among}
        for block, data in read_records(self.run, listed, self.kept):
            record = None if data is None else parsed_record(self.run, block, data)
            if record is not None:
                yield record

    def withdrawn(self) -> set[int]:
        """Blocks that a verifying shard took over; see `note_withdrawn`."""
        try:
            note = read_document(self.place, WITHDRAWN) or {}
        except (ValueError, IsADirectoryError):
            return set()
        blocks = note.get("blocks")
        return {block for block in blocks if type(block) is int} if isinstance(blocks, list) else set()

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
            standing = self.whole_manifest()
            if standing is not None:
                return standing
            write_document(self.place, MANIFEST, manifest)
        return manifest

    def abandon(self) -> None:
        """Remove what `claimed` made, if nothing else is there by now."""
        place = self.place
        made = {PLAN, LOCK, *RUN_FOLDERS}
        if place.names("") - made or any(place.names(folder) for folder in RUN_FOLDERS):
            return
        place.remove(PLAN)
        place.remove(LOCK)
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
        if zarr_arrays.table_ending(place.address):
            other = "It is a table: pass the folder that `dcpred score MODEL DATA OUTPUT` wrote."
        if place.read(SETTINGS) is not None:
            other = f"A refresh keeps its runs there, of which {below(output, LINK)} is the latest."
        elif parts := runs_of_parts(output):
            one = next(iter(parts.values()))
            other = f"It is of several inputs, each of which has its own run: name one, for example {one}."
        raise PlanConflictError(
            f"Cannot find an output of `dcpred score` at {output}: it holds no {PLAN}. {other}"
        )
    try:
        # Plans of earlier versions lack fields that have a default, and no plan names those that are None.
        values = {f.name: plan[f.name] for f in fields(ScoreRun) if f.name in plan or f.default is MISSING}
        lists = {
            name: tuple(values[name]) for name in ("outputs", "costs", "ids") if values.get(name) is not None
        }
        run = ScoreRun(**{**values, **lists, "output": place.address})
        if not _possible(run):
            raise ValueError
        return Ledger(run, -(-run.n_rows // run.block_rows))
    except (KeyError, TypeError, ValueError):
        raise PlanConflictError(
            f"Cannot read {place.address}/{PLAN}: dcpred did not write it. Score into a new directory, or"
            " restore the plan."
        ) from None


def runs_of_parts(output: str | Path) -> dict[str, str]:
    """The addresses of the runs of each input, by its name, of a refresh of several inputs; none for any
    other output.
    """
    place = open_place(run_meant(output))
    try:
        parts = (read_sealed_document(place, MANIFEST) or {}).get("parts")
    except NotADirectoryError:
        return {}
    if not isinstance(parts, dict):
        return {}
    root = place.address.rpartition(f"/{RUNS}/")[0] or place.address.rpartition("/")[0]
    return {str(part): below(root, PARTS, part, RUNS, str(name)) for part, name in parts.items()}


def standing_run(output: str | Path) -> ScoreRun | None:
    """The run of an output; None if there is none, or its plan is damaged."""
    try:
        return open_ledger(output).run
    except (PlanConflictError, NotADirectoryError):
        return None


def planned_version(data: str | Path, output: str | Path, *, resumes: bool) -> str | Path:
    """The version of a Delta table that the run in an output scores; any other data as given.

    resumes  whether the call can only be of that run, as a repair or a shard

    Raises PlanConflictError for other calls if the run is finished and the table has a newer version.
    """
    check_writable(output, "scores")
    try:
        run = standing_run(output)
    except ResourceError:  # Scoring states what is wrong with the output.
        return data
    table = None if run is None else table_address(run.x)
    if run is None or table is None or not DELTA_VERSION.search(table.data):
        return data
    if DELTA_VERSION.sub("", table.data) != absolute(data).rstrip("/"):
        return data
    if not resumes and read_own_document(run.place, MANIFEST) is not None:
        latest = import_module("dcpred_tasks.tables.delta_tables").pinned(absolute(data))
        if latest != table.data:
            raise PlanConflictError(
                f"Cannot score {latest} into {output}: it holds the finished scores of {table.data}. Name a"
                " new directory, or use `dcpred refresh`, which scores the latest version each time."
            )
    return table.data


def _possible(run: ScoreRun) -> bool:
    """Whether a plan is possible."""
    texts = (run.run, run.x, run.model, run.model_hash)
    numbers = (run.n_rows, run.chunk_rows, run.block_rows)
    if type(run.stride) is not int or run.stride < 0 or run.sampling not in (None, HASHED_ROWS):
        return False
    if not all(type(name) is str for name in run.ids or ()):
        return False
    if run.delta is not None and (run.ids is None or type(run.delta) is not str):
        return False
    if run.arithmetic is not None and not (
        type(run.arithmetic) is str and ARITHMETIC.fullmatch(run.arithmetic)
    ):
        return False
    if not all(type(t) is str for t in texts) or not all(type(n) is int and n > 0 for n in numbers):
        return False
    if not run.outputs or not {*run.outputs} <= {*OUTPUTS, *QUANTILES}:
        return False
    if run.costs is not None and not (LABEL in run.outputs and all(map(is_cost, run.costs))):
        return False
    takes_alpha = any(column.takes_alpha for column in columns(run.outputs))
    if takes_alpha != (run.alpha is not None) or (takes_alpha and not _is_alpha(run.alpha)):
        return False
    return run.n_rows <= MOST_BLOCKS * run.block_rows


def _is_alpha(value: Any) -> bool:
    return type(value) is float and LEAST_ALPHA <= value <= LARGEST_ALPHA


def _note(place: Place, name: str) -> dict[str, Any] | None:
    try:
        note = read_document(place, name)
    except (ValueError, IsADirectoryError):
        return None
    if note is None:
        return None
    types = {"block": int, "error": str, "deaths": int}
    return note if all(type(note.get(name)) is kind for name, kind in types.items()) else None


def _ours(name: str) -> bool:
    """Whether a run that was interrupted before its plan was written may have left this."""
    return name in (*RUN_FOLDERS, LOCK, INPUTS, FOLDER) or ".partial-" in name or is_system_file(name)
