"""Verify an output: its metadata, and the digests of its blocks."""

import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.execution.progress import SILENT, Reporter, counted, say_where
from dcpred.execution.workers import Pool, Workers, run_all
from dcpred.runs import delta_tables
from dcpred.runs.delta_rows import has_table
from dcpred.runs.ledger import MANIFEST, RUN_FIELDS, Ledger, open_ledger, read_records, runs_of_parts
from dcpred.runs.manifest import metadata_digests, plan_digest, totals
from dcpred.summary import Summary
from dcpred_tasks.artifacts.commit_records import (
    LISTED_AT_ONCE,
    LISTINGS,
    OPTIONAL,
    TABLES,
    CommitRecord,
    ScoreRun,
    block_of,
    parsed_record,
    record_splits,
)
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, IncompleteError, ModelFormatError, SettingsError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.outputs import OutputColumn
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import as_arguments
from dcpred_tasks.storage.atomic_files import decoded, exactly_decoded, is_system_file
from dcpred_tasks.storage.bucket import same_tag
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import Entry, read_document
from dcpred_tasks.storage.store_requests import StoreError
from dcpred_tasks.task_bodies.score_block import metadata_name, planned_scores
from dcpred_tasks.task_bodies.verify_block import Finding, Kind, verify_block, verify_rows


def explain_metadata(run: ScoreRun, name: str) -> str | None:
    """What is wrong with the metadata of an output array, or of the group (name ""), by the plan; or None."""
    standing = run.place.read(metadata_name(name))
    if standing is None:
        return "it is missing"
    try:
        decoded(standing.data, metadata_name(name))
    except ValueError:  # Zarr accepts numbers that JSON does not have.
        return "it cannot be read"
    try:
        if not name:
            return _wrong_group(
                run, zarr_arrays.open_group(run.scores), zarr_arrays.open_consolidated(run.scores)
            )
        return _wrong_array(run, _column(run, name), zarr_arrays.open_array(run.array(name)))
    except DataError:
        return "it cannot be read"


def _wrong_group(run: ScoreRun, group: zarr.Group, copy: zarr.Group | None) -> str | None:
    if dict(group.attrs) != {"run": run.run, "model": run.model_hash}:
        return "it names another run or model"
    if copy is None:
        return None
    copies = dict(zarr_arrays.arrays_of(copy))
    if copies.keys() != {*run.arrays}:
        return "its copy of the metadata of arrays is not of those that the plan has"
    wrong = ((name, _wrong_array(run, _column(run, name), array)) for name, array in copies.items())
    return next(
        (f"its copy of the metadata of {name} is wrong: {why}" for name, why in wrong if why is not None),
        None,
    )


def _column(run: ScoreRun, name: str) -> OutputColumn:
    return next(column for column in run.columns if column.name == name)


def _wrong_array(run: ScoreRun, column: OutputColumn, array: zarr.Array[Any]) -> str | None:
    if array.shape[:1] != (run.n_rows,) or array.ndim > len(column.dimensions):
        return f"it has shape {array.shape}, but the plan has {run.n_rows:,} rows"
    if array.dtype not in [np.dtype(dtype) for dtype in column.dtypes]:
        return f"{column.name} cannot have dtype {array.dtype}"
    fill = np.asarray(array.fill_value)
    if not column.absent(fill, fill):
        return f"its fill value is {fill}, which does not mark an unscored row"
    same = _agree(column, array, _as_planned(run, column, array))
    return None if same else "chunks or codecs differ from the plan"


def _as_planned(run: ScoreRun, column: OutputColumn, array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array that is created for this column, shape and dtype."""
    return zarr_arrays.create_array(
        zarr_arrays.memory_group(),
        column.name,
        array.shape,
        array.dtype,
        run.chunk_rows,
        fill_value=array.fill_value,
        attributes=dict(array.attrs),
        dimensions=column.dimensions[: array.ndim],
    )


def _agree(column: OutputColumn, found: zarr.Array[Any], planned: zarr.Array[Any]) -> bool:
    """Whether metadata are the same to Zarr, in any version, with or without names of dimensions."""
    a, b = (
        array.metadata.to_dict() | {"attributes": column.said(dict(array.attrs))}
        for array in (found, planned)
    )
    if a.get("dimension_names") is None:
        a, b = (
            {key: value for key, value in summary.items() if key != "dimension_names"} for summary in (a, b)
        )
    return json.dumps(a, sort_keys=True, default=str) == json.dumps(b, sort_keys=True, default=str)


def restore_metadata(run: ScoreRun, model: Model, named: set[str]) -> list[str]:
    """Rewrite metadata that are in `named`, missing, or differ; chunks stay. Returns the written files."""
    written = []
    group, place = planned_scores(run, model), run.place
    for name in ("", *run.arrays):
        planned = group[name] if name else group
        file = metadata_name(name)
        if file in named or not _is_as_planned(run, name, planned):
            place.make_folder(file.removesuffix("/zarr.json"))
            place.write(file, zarr_arrays.metadata_file(planned))
            written.append(file)
    return written


def _is_as_planned(run: ScoreRun, name: str, planned: zarr.Group | zarr.Array[Any]) -> bool:
    try:
        if isinstance(planned, zarr.Array):
            return _agree(_column(run, name), zarr_arrays.open_array(run.array(name)), planned)
        copy = zarr_arrays.open_consolidated(run.scores)
        copies = [] if copy is None else zarr_arrays.arrays_of(copy)
        wanted = dict(zarr_arrays.arrays_of(planned))
        same = all(
            name in wanted and _agree(_column(run, name), array, wanted[name]) for name, array in copies
        )
        return same and dict(zarr_arrays.open_group(run.scores).attrs) == dict(planned.attrs)
    except DataError:
        return False


PARTIAL = ".partial"  # part of the names that dcpred and Zarr write under before they rename
CONFLICT = re.compile(r"(\d{6,})\.conflict-[0-9a-f]{8}\.json")
PLAN = ("run", *RUN_FIELDS)  # fields of a plan that its manifest repeats

LEFT = "an interrupted attempt left it; it does no harm"
Listing = dict[str, Entry]  # files by their path below the output


class FastCheck:
    """A verification of level fast.

    findings    what is wrong
    records     complete commit records, by block
    left        number of blocks without a record, if the run is not finished
    finished    whether there is a manifest
    unreadable  names of the arrays with wrong metadata
    """

    def __init__(self, ledger: Ledger, *, all_due: bool = False) -> None:
        """all_due  whether a block without a record is a finding even without a manifest"""
        self.ledger, self.run = ledger, ledger.run
        self.findings: list[Finding] = []
        self.records: dict[int, CommitRecord] = {}
        self.left = 0
        self.suspects: set[int] = set()
        place = ledger.place
        records = place.listing("blocks", record_splits(self.run))
        files = place.listing("scores.zarr", self._chunk_splits()) | place.listing("failures")
        files |= dict.fromkeys(place.names(""), Entry(0, "", 0.0, 0.0))
        self.finished = MANIFEST in files
        self._records(records, all_due or self.finished)
        self.unreadable = self._metadata()
        self._chunks(
            {
                name.removeprefix("scores.zarr/"): entry
                for name, entry in files.items()
                if name.startswith("scores.zarr/")
            }
        )
        if self.run.ids is not None:
            self._tables(place.listing(TABLES))
        self._look_closer()
        if self.finished:
            self._manifest()
        for name in sorted(records | files):
            if PARTIAL in Path(name).name:
                self._add(Kind.LEFTOVER, None, name, LEFT)

    @property
    def given_up(self) -> list[int]:
        """Blocks with skipped rows."""
        return [block for block, record in self.records.items() if record.quarantined]

    def _add(self, kind: Kind, block: int | None, file: str, sentence: str) -> None:
        if kind == Kind.FOREIGN_FILE and is_system_file(file):
            kind, sentence = (Kind.SYSTEM_FILE, "the operating system or an editor made it; it is left alone")
        self.findings.append(Finding(kind, block, file, sentence))

    def _chunk_splits(self) -> list[str]:
        """Names between which the chunks of a long run are listed concurrently on a store."""
        n_chunks = -(-self.run.n_rows // self.run.chunk_rows)
        if not self.ledger.place.many_at_once or n_chunks < LISTED_AT_ONCE:
            return []
        names = sorted(f"scores.zarr/{name}/c/{i}" for name in self.run.arrays for i in range(n_chunks))
        return names[:: -(-len(names) // LISTINGS)][1:]

    def _records(self, names: Listing, due: bool) -> None:
        there: dict[int, Entry] = {}
        for name, entry in names.items():
            block = block_of(self.run, name)
            if block is not None and block < self.ledger.n_blocks:
                there[block] = entry
        reading = read_records(self.run, there, self.ledger.kept)
        for block in range(self.ledger.n_blocks):
            name = self.run.record_name(block)
            if block not in there:
                if due:
                    self._add(
                        Kind.MISSING_RECORD, block, name, f"{_rows(self.run, block)} have no commit record"
                    )
                else:
                    self.left += 1
                continue
            _, data = next(reading)
            wrong = _wrong_record(self.run, block, data or b"")
            record = parsed_record(self.run, block, data) if wrong is None and data is not None else None
            if wrong is None and record is not None:
                wrong = _impossible_record(self.run, record)
            if wrong is not None:
                self._add(wrong[0], block, name, wrong[1])
            elif record is not None:
                # Statistics are large, and only this part of them is needed.
                seconds = record.statistics.get("seconds", 0.0)
                self.records[block] = replace(record, statistics={"seconds": seconds})
                if record.quarantined:
                    self._add(Kind.ROWS_GIVEN_UP, block, name, f"rows were skipped: {record.quarantined}")
        for name in sorted(names):
            self._other_record(name)

    def _other_record(self, name: str) -> None:
        """A file next to the records of blocks."""
        base = Path(name).name
        conflict = CONFLICT.fullmatch(base)
        if PARTIAL in base:
            return
        if conflict and int(conflict[1]) < self.ledger.n_blocks:
            self._add(
                Kind.CONFLICT, int(conflict[1]), name, "two attempts at this block wrote different values"
            )
            return
        number = base.removesuffix(".json")
        numbered = number.isdecimal() and name == self.run.record_name(int(number))
        if not numbered:
            self._add(Kind.FOREIGN_FILE, None, name, "dcpred did not write it; remove it")
        elif int(number) >= self.ledger.n_blocks:
            blocks = counted(self.ledger.n_blocks, "block", "blocks")
            self._add(
                Kind.RECORD_OF_NO_BLOCK,
                None,
                name,
                f"the run has {blocks}, and this is a record of none of them; remove it",
            )

    def _metadata(self) -> set[str]:
        """Names of unreadable arrays."""
        names = ("", *self.run.arrays)
        wrong: set[str] = set()
        sealed = _sealed_metadata(self.ledger) if self.finished else {}
        found = metadata_digests(self.run)
        for name in names:
            file = metadata_name(name)
            if name not in found and not self.finished and not self.records:
                wrong.add(name)  # the run was interrupted before it was created
                continue
            why = explain_metadata(self.run, name)
            if why is None and name in sealed and sealed[name] != found[name]:
                why = "it was modified after the run was finished"
            if why is not None:
                wrong.add(name)
                self._add(Kind.METADATA, None, file, f"{why}; its chunks were not checked" if name else why)
        return wrong

    def _chunks(self, files: Listing) -> None:
        """Compare the files of scores.zarr with the plan and the records."""
        n_chunks = -(-self.run.n_rows // self.run.chunk_rows)
        known = {"zarr.json"}
        for name in self.run.arrays:
            known.add(f"{name}/zarr.json")
            if name in self.unreadable:
                known.update(key for key in files if key.startswith(f"{name}/c/"))
                continue
            keys = _chunk_keys(self.run, name, n_chunks)
            known.update(keys)
            for block, record in self.records.items():
                first = block * self.run.block_rows // self.run.chunk_rows
                tags = record.tags.get(name) or [""] * len(record.sizes[name])
                sizes = record.sizes[name]
                for key, size, tag in zip(keys[first : first + len(sizes)], sizes, tags, strict=True):
                    self._chunk(block, key, files.get(key), size, tag)
        for key in sorted(files):
            if key not in known and PARTIAL not in Path(key).name:
                self._add(
                    Kind.FOREIGN_FILE, None, f"scores.zarr/{key}", "the plan has no such chunk; remove it"
                )

    def _chunk(self, block: int, key: str, found: Entry | None, size: int, tag: str) -> None:
        if found is None:
            self._add(
                Kind.MISSING_CHUNK,
                block,
                f"scores.zarr/{key}",
                "it is missing, and would read as fill values",
            )
        elif found.size != size:
            state = "is empty" if not found.size else f"has {found.size:,} bytes"
            self._add(Kind.CHUNK_SIZE, block, f"scores.zarr/{key}", f"it {state}, but {size:,} were written")
        elif tag and not same_tag(found.tag, tag):
            self.suspects.add(block)

    def _tables(self, files: Listing) -> None:
        """Compare the Parquet files with the records."""
        known = {self.run.table_name(block): block for block in range(self.ledger.n_blocks)}
        for name, block in known.items():
            record, found = self.records.get(block), files.get(name)
            if record is None:
                continue
            if found is None:
                why = f"the Parquet file of {_rows(self.run, block)} is missing"
                self._add(Kind.MISSING_TABLE, block, name, why)
            elif found.size != record.table["size"]:
                state = "is empty" if not found.size else f"has {found.size:,} bytes"
                why = f"it {state}, but {record.table['size']:,} were written"
                self._add(Kind.TABLE_SIZE, block, name, why)
            elif (tag := record.table["tag"]) and not same_tag(found.tag, tag):
                self.suspects.add(block)
        for name in sorted(files):
            if PARTIAL in Path(name).name:
                self._add(Kind.LEFTOVER, None, name, LEFT)
            elif name not in known:
                self._add(Kind.FOREIGN_FILE, None, name, "the plan has no such Parquet file; remove it")

    def _look_closer(self) -> None:
        """Decode the blocks with a rewritten chunk. Another tag is only a suspicion: overlapping
        attempts write the same bytes, which some stores give another tag. With damaged metadata nothing
        can be decoded, which is reported.
        """
        if self.unreadable - {""}:
            return
        summary = {finding.file for finding in self.findings}
        for block in sorted(self.suspects):
            self.findings += [f for f in verify_block(self.run, block) if f.file not in summary]

    def _manifest(self) -> None:
        """Compare the manifest with plan and records; with records only if all of them are complete."""
        try:
            standing = self.ledger.place.read(MANIFEST)
            manifest = exactly_decoded(standing.data if standing else b"", MANIFEST)
            seal = manifest.pop("checksum", None)
            wrong = [] if seal == digest_json(manifest) else ["its checksum"]
        except StoreError:
            raise  # A store that does not answer has modified nothing.
        except (ValueError, OSError):
            manifest, wrong = {}, ["its bytes"]
        if manifest:
            plan: dict[str, Any] = {key: getattr(self.run, key) for key in PLAN} | {
                "n_blocks": self.ledger.n_blocks
            }
            plan["plan"] = plan_digest(self.ledger)
            if len(self.records) == self.ledger.n_blocks:
                plan |= totals(self.records[block] for block in sorted(self.records))
            wrong += [
                key for key, value in json.loads(json.dumps(plan)).items() if manifest.get(key) != value
            ]
        if wrong:
            sentence = f"it is modified, or not of these blocks (checked: {', '.join(wrong)})"
            self._add(Kind.MANIFEST, None, "manifest.json", sentence)


def check_full(fast: FastCheck, workers: Workers, say: Reporter) -> list[Finding]:
    """Findings of level full beyond level fast: every block with a complete record is decoded."""
    if any(finding.kind == Kind.METADATA for finding in fast.findings):
        return []  # wrong metadata would put the blame on every chunk
    found: list[Finding] = []
    blocks = sorted(fast.records)
    rows = [stop - start for start, stop in map(fast.run.rows, blocks)]
    summary = {finding.file for finding in fast.findings}
    with say.step("verifying", sum(rows), "rows") as advance:

        def verified(number: int, findings: list[Finding]) -> None:
            advance(rows[number])
            found.extend(f for f in findings if f.file not in summary)

        run_all(workers, verify_block, [(fast.run, block) for block in blocks], verified)
    return sorted(found, key=lambda f: (f.block or 0, f.file))


def damaged_blocks(findings: list[Finding]) -> list[int]:
    """Blocks that another scoring repairs. A conflict is not among them: its record stays until --repair."""
    return sorted(
        {f.block for f in findings if f.is_damage and f.block is not None and f.kind != Kind.CONFLICT}
    )


def check_as_written(findings: list[Finding], output: str) -> None:
    """Raise IncompleteError for damage."""
    damage = [finding for finding in findings if finding.is_damage]
    if damage:
        first = damage[0]
        others = (
            f", and {counted(len(damage) - 1, 'other finding', 'other findings')}" if len(damage) > 1 else ""
        )
        # --repair removes nothing that dcpred did not write.
        by_hand = all(finding.kind in (Kind.FOREIGN_FILE, Kind.RECORD_OF_NO_BLOCK) for finding in damage)
        then = "run the same command again" if by_hand else "score again with --repair (dcpred.repair)"
        raise IncompleteError(
            f"{output} is modified or damaged: {first.file}: {first.sentence} ({first.kind}){others}. See"
            f" `dcpred verify {as_arguments(output)}`, and {then}."
        )


def say_system_files(findings: list[Finding], say: Reporter) -> None:
    """Report files of the operating system, which do no harm."""
    files = [finding.file for finding in findings if finding.kind == Kind.SYSTEM_FILE]
    if files:
        found = counted(len(files), "file of the operating system is", "files of the operating system are")
        say.say(f"{found} left alone: {', '.join(files[:3])}{', …' if len(files) > 3 else ''}")


def _chunk_keys(run: ScoreRun, name: str, n_chunks: int) -> list[str]:
    shape = (read_document(run.place, metadata_name(name)) or {})["shape"]
    return [f"{name}/c/{chunk}{'/0' * (len(shape) - 1)}" for chunk in range(n_chunks)]


def _wrong_record(run: ScoreRun, block: int, data: bytes) -> tuple[Kind, str] | None:
    """Why a record is not of this block."""
    try:
        value = exactly_decoded(data, run.record_name(block))
        if value.pop("checksum") != digest_json(value):
            return Kind.ALTERED_RECORD, "it does not match its own checksum"
    except (ValueError, KeyError, OSError):
        return Kind.ALTERED_RECORD, "it cannot be read"
    if value.get("run") != run.run:
        return Kind.FOREIGN_RECORD, "it is the record of another run"
    if value.get("block") != block:
        return Kind.FOREIGN_RECORD, f"it is the record of block {value.get('block')}, not of block {block}"
    if set(value) | {*OPTIONAL, "tag"} != {f.name for f in fields(CommitRecord)}:
        return Kind.ALTERED_RECORD, "it holds other fields than this version of dcpred writes"
    return None


def _impossible_record(run: ScoreRun, record: CommitRecord) -> tuple[Kind, str] | None:
    """Impossible contents of a complete record."""
    rows, n_chunks = run.rows(record.block), len(list(run.chunks(record.block)))
    if (record.start, record.stop) != rows or sum(record.status.values()) != rows[1] - rows[0]:
        return (
            Kind.ALTERED_RECORD,
            f"it is not of {_rows(run, record.block)}, which are this block's by the plan",
        )
    if set(record.sizes) != {*run.arrays} or any(len(sizes) != n_chunks for sizes in record.sizes.values()):
        return Kind.ALTERED_RECORD, "it does not name the chunks that this block has by the plan"
    if bool(record.table) != (run.ids is not None):
        return Kind.ALTERED_RECORD, "it does not name the Parquet file that this block has by the plan"
    if record.status.get("0"):
        return (
            Kind.STATUS,
            f"it counts {record.status['0']:,} rows of status 0, though the block is committed",
        )
    return None


def _rows(run: ScoreRun, block: int) -> str:
    start, stop = run.rows(block)
    return f"rows {start:,} to {stop:,}"


def _sealed_metadata(ledger: Ledger) -> Mapping[str, str]:
    """The manifest's digests of metadata; empty if the manifest is modified."""
    sealed: Mapping[str, str] = (ledger.whole_manifest() or {}).get("metadata", {})
    return sealed


def leftovers(findings: list[Finding]) -> Iterator[str]:
    """Files of interrupted attempts, by the names that dcpred and Zarr give them."""
    ours = re.compile(r".*\.partial-[0-9a-f]{12}|.*\.[0-9a-f]{32}\.partial")
    yield from (f.file for f in findings if f.kind == Kind.LEFTOVER and ours.fullmatch(f.file))


LEVELS = ("fast", "sample", "full")
SAMPLE_ROWS = 1_000
# Minimum number of output chunks in a sample. Each is read completely, with its input.
SAMPLED_CHUNKS = 32

# An output chunk as block, first row and row after the last; and sampled rows in it.
Span = tuple[int, int, int, tuple[int, ...]]


@dataclass(frozen=True, repr=False)
class VerifyReport(Summary):
    """The result of a verification.

    Attributes
    ----------
    output : str
        Path or address of the output.
    level : str
        The level: fast, sample or full.
    n_rows : int
        Number of rows.
    n_blocks : int
        Number of blocks.
    verified_blocks : int
        Number of blocks with a complete record.
    left_blocks : int
        Number of blocks without a record, of a run that is not finished.
    finished : bool
        Whether there is a manifest.
    sampled_rows : int
        Number of rows that were scored again (level sample).
    seed : int or None
        Seed that those rows were drawn with; None without them.
    found : dict of str to int
        Number of findings by kind.
    findings : list of Finding
        The findings.
    seconds : float
        Duration in seconds.
    in_delta : bool or None
        Whether the Delta table of the run holds exactly its rows, each once, in files that are complete; None
        for a run without one.
    ok : bool
        Whether everything is complete and unmodified. Leftovers of interrupted attempts are allowed; skipped
        rows are not.
    """

    output: str
    level: str
    n_rows: int
    n_blocks: int
    verified_blocks: int
    left_blocks: int
    finished: bool
    sampled_rows: int
    seed: int | None
    found: dict[str, int]
    findings: list[Finding]
    seconds: float
    in_delta: bool | None
    ok: bool


def verify(
    output: str | Path,
    level: str,
    pool: Pool,
    *,
    rows: int = SAMPLE_ROWS,
    seed: int | None = None,
    say: Reporter = SILENT,
) -> VerifyReport:
    """Verify an output of scoring, finished or not, and write nothing.

    output  of one run, or of all runs of a refresh of several inputs
    level  fast: names, sizes, counts and digests of records
           full: also decodes everything
           sample: fast, and scores `rows` rows of random chunks again by the plain definition, which
           needs the unchanged model and input; not if metadata or manifest are modified, because the
           comparison would be meaningless
    seed   seed of the sample; by default random

    Raises PlanConflictError if `output` is not an output of dcpred, DataError or ModelFormatError if a sample
    cannot be scored.
    """
    if level not in LEVELS:
        raise SettingsError(
            f"Cannot verify at level {level!r}: the levels are {', '.join(LEVELS)}. Use one of them."
        )
    begin = time.perf_counter()
    if parts := runs_of_parts(output):
        each = {name: verify(run, level, pool, rows=rows, seed=seed, say=say) for name, run in parts.items()}
        return _verified_together(str(output), each, time.perf_counter() - begin)
    ledger = open_ledger(output)
    fast = FastCheck(ledger)
    findings = list(fast.findings)
    spans: list[Span] = []
    if level == "full":
        with pool() as workers:
            say_where(say, "verifying", workers)
            findings += check_full(fast, workers, say)
    elif level == "sample" and not any(f.kind in (Kind.METADATA, Kind.MANIFEST) for f in fast.findings):
        check_source(ledger)
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        spans = choose_rows(ledger.run, sorted(fast.records), rows, seed)
        with pool() as workers:
            say_where(say, "verifying", workers)
            findings += check_sample(ledger.run, workers, spans, say)
    in_delta = None
    if has_table(ledger):
        complete = fast.finished and len(fast.records) == ledger.n_blocks
        wrong = delta_tables.find_wrong(ledger, fast.records, full=level == "full") if complete else []
        in_delta = complete and not wrong
        findings += wrong
    return VerifyReport(
        output=ledger.address,
        level=level,
        n_rows=ledger.run.n_rows,
        n_blocks=ledger.n_blocks,
        verified_blocks=len(fast.records),
        left_blocks=fast.left,
        finished=fast.finished,
        sampled_rows=sum(len(span[3]) for span in spans),
        seed=seed if spans else None,
        found=dict(Counter(str(finding.kind) for finding in findings)),
        findings=findings,
        seconds=time.perf_counter() - begin,
        in_delta=in_delta,
        ok=in_delta is not False
        and fast.finished
        and not fast.left
        and not fast.given_up
        and not any(f.is_damage for f in findings),
    )


def _verified_together(output: str, parts: Mapping[str, VerifyReport], seconds: float) -> VerifyReport:
    """The verification of the runs of several inputs, as one."""
    each = list(parts.values())
    found: Counter[str] = Counter()
    for one in each:
        found.update(one.found)
    return replace(
        each[0],
        output=output,
        n_rows=sum(one.n_rows for one in each),
        n_blocks=sum(one.n_blocks for one in each),
        verified_blocks=sum(one.verified_blocks for one in each),
        left_blocks=sum(one.left_blocks for one in each),
        finished=all(one.finished for one in each),
        sampled_rows=sum(one.sampled_rows for one in each),
        found=dict(found),
        findings=[
            replace(finding, file=f"{name}/{finding.file}")
            for name, one in parts.items()
            for finding in one.findings
        ],
        seconds=seconds,
        ok=all(one.ok for one in each),
    )


def check_source(ledger: Ledger) -> None:
    """Raise DataError, ModelFormatError unless model and input of a run are unchanged."""
    run = ledger.run
    asked = "Cannot score a sample again (level sample)"
    instead = "Use --level full, which needs neither model nor input."
    try:
        model_hash = open_artifact(run.model).hash
    except ModelFormatError as error:
        raise ModelFormatError(f"{asked}: the model cannot be opened ({error}). {instead}") from None
    if model_hash != run.model_hash:
        raise ModelFormatError(
            f"{asked}: {run.model} now holds another model than that of the run. {instead}"
        )
    try:
        same = ledger.has_same_input()
    except DataError:
        raise DataError(f"{asked}: the input {run.x} cannot be opened. {instead}") from None
    if not same:
        raise DataError(f"{asked}: the input {run.x} has changed since it was scored. {instead}")


def choose_rows(run: ScoreRun, blocks: Collection[int], n: int, seed: int) -> list[Span]:
    """n random rows of random output chunks of these blocks; all rows if there are no more."""
    rng = np.random.default_rng(seed)
    chunks = [(block, start, stop) for block in blocks for start, stop in run.chunks(block)]
    n_chunks = min(max(SAMPLED_CHUNKS, -(-n // run.chunk_rows) + 1), len(chunks))
    chosen = [chunks[i] for i in sorted(rng.choice(len(chunks), n_chunks, replace=False))] if chunks else []
    at = np.cumsum([0, *(stop - start for _, start, stop in chosen)])
    picked = np.sort(rng.choice(at[-1], min(n, at[-1]), replace=False)) if chosen else np.zeros(0, np.int64)
    spans = []
    for (block, start, stop), first, last in zip(chosen, at[:-1], at[1:], strict=True):
        rows = picked[(picked >= first) & (picked < last)] - first + start
        if len(rows):
            spans.append((block, start, stop, tuple(int(row) for row in rows)))
    return spans


def check_sample(run: ScoreRun, workers: Workers, spans: list[Span], say: Reporter) -> list[Finding]:
    """Findings from scoring these rows again."""
    found: list[Finding] = []
    with say.step("scoring a sample", sum(len(span[3]) for span in spans), "rows") as advance:

        def scored(number: int, findings: list[Finding]) -> None:
            advance(len(spans[number][3]))
            found.extend(findings)

        run_all(workers, verify_rows, [(run, *span) for span in spans], scored)
    return sorted(found, key=lambda finding: finding.block or 0)
