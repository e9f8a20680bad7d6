"""The verification of level fast: names, sizes, counts and digests of records."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dcpred.execution.progress import counted
from dcpred.public.remarks import add_remarks
from dcpred.runs.latest import MANIFEST
from dcpred.runs.ledger import RUN_FIELDS, Ledger
from dcpred.runs.manifest import metadata_digests, plan_digest, totals
from dcpred.runs.record_cache import read_records
from dcpred.verification.metadata import explain_metadata
from dcpred_tasks.artifacts.block_files import Finding, Kind
from dcpred_tasks.artifacts.commit_records import (
    LISTED_AT_ONCE,
    LISTINGS,
    CommitRecord,
    ScoreRun,
    block_of,
    record_in,
    record_splits,
)
from dcpred_tasks.errors import IncompleteError, listed
from dcpred_tasks.remarks import remark
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.storage.addresses import as_arguments
from dcpred_tasks.storage.atomic_files import exactly_decoded, is_system_file
from dcpred_tasks.storage.bucket import same_tag
from dcpred_tasks.storage.digests import is_sealed
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.storage.store_requests import StoreError
from dcpred_tasks.task_bodies.block_artifacts import BlockArtifact, block_artifacts
from dcpred_tasks.task_bodies.verify_block import verify_block
from dcpred_tasks.task_bodies.zarr_chunks import metadata_name

PARTIAL = ".partial"  # part of the names that dcpred and Zarr write under before they rename
CONFLICT = re.compile(r"(\d{6,})\.conflict-[0-9a-f]{8}\.json")
PLAN = ("run", *RUN_FIELDS)  # fields of a plan that its manifest repeats

LEFT = "an interrupted attempt left it; it does no harm"
Listing = dict[str, Entry]  # files by their path below the output


class FastCheck:
    """A verification of level fast.

    findings    what is wrong
    unwritten   findings of tables that an output is to get, and that are not written yet
    records     complete commit records, by block
    left        number of blocks without a record, if the run is not finished
    finished    whether there is a manifest
    unreadable  names of the arrays with wrong metadata
    """

    def __init__(self, ledger: Ledger, *, all_due: bool = False) -> None:
        """all_due  whether a block without a record is a finding even without a manifest"""
        self.ledger, self.run = ledger, ledger.run
        self.findings: list[Finding] = []
        self.unwritten: list[Finding] = []
        self.records: dict[int, CommitRecord] = {}
        self.left = 0
        self.suspects: set[int] = set()
        place = ledger.place
        files = place.listing("blocks", record_splits(self.run))
        self.finished = MANIFEST in place.names("")
        self._records(files, all_due or self.finished)
        self.unreadable = self._metadata()
        for artifact in block_artifacts(self.run, self.unreadable):
            files |= self._files(artifact)
        self._look_closer()
        if self.finished:
            self._manifest()
        for name in sorted({*files, *place.listing("failures"), *place.names("")}):
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

    def _records(self, names: Listing, due: bool) -> None:
        there: dict[int, Entry] = {}
        for name, entry in names.items():
            block = block_of(self.run, name)
            if block is not None and block < self.ledger.n_blocks:
                there[block] = entry
        artifacts, reading = block_artifacts(self.run), read_records(self.run, there, self.ledger.cache)
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
            record = _record_of(self.run, artifacts, block, data or b"")
            if isinstance(record, tuple):
                self._add(record[0], block, name, record[1])
                continue
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
        manifest = self.ledger.whole_manifest() if self.finished else None
        sealed: Mapping[str, str] = (manifest or {}).get("metadata", {})
        digests = metadata_digests(self.run)
        for name in names:
            file = metadata_name(name)
            if name not in digests and not self.finished and not self.records:
                wrong.add(name)  # the run was interrupted before it was created
                continue
            why = explain_metadata(self.run, name)
            if why is None and name in sealed and sealed[name] != digests[name]:
                why = "it was modified after the run was finished"
            if why is not None:
                wrong.add(name)
                self._add(Kind.METADATA, None, file, f"{why}; its chunks were not checked" if name else why)
        return wrong

    def _files(self, artifact: BlockArtifact) -> Listing:
        """Compare the files of an artifact with the plan and the records. Returns those that are there."""
        known = {name for block in range(self.ledger.n_blocks) for name in artifact.files(block)}
        many = self.ledger.place.many_at_once and len(known) >= LISTED_AT_ONCE
        splits = sorted(known)[:: -(-len(known) // LISTINGS)][1:] if many else []
        files = self.ledger.place.listing(artifact.folder, splits)
        for block, record in self.records.items():
            for name, size, tag in artifact.recorded(record):
                entry = files.get(name)
                if size is None:
                    command = f"`dcpred deliver {as_arguments(self.run.output)}`"
                    self._add(artifact.missing, block, name, f"it is not written yet; {command} writes it")
                    self.unwritten.append(self.findings[-1])
                elif entry is None:
                    self._add(artifact.missing, block, name, artifact.absence)
                elif entry.size != size:
                    state = "is empty" if not entry.size else f"has {entry.size:,} bytes"
                    self._add(artifact.resized, block, name, f"it {state}, but {size:,} were written")
                elif tag and not same_tag(entry.tag, tag):
                    self.suspects.add(block)
        for name in sorted(files.keys() - known):
            if PARTIAL not in Path(name).name and not artifact.belongs(name):
                self._add(Kind.FOREIGN_FILE, None, name, f"the plan has no such {artifact.noun}; remove it")
        return files

    def _look_closer(self) -> None:
        """Decode the blocks with a rewritten chunk. Another tag is only a suspicion: overlapping
        attempts write the same bytes, which some stores give another tag. With damaged metadata nothing
        can be decoded, which is reported.
        """
        if self.unreadable - {""}:
            return
        reported = {finding.file for finding in self.findings}
        for block in sorted(self.suspects):
            self.findings += [f for f in verify_block(self.run, block) if f.file not in reported]

    def _manifest(self) -> None:
        """Compare the manifest with plan and records; with records only if all of them are complete."""
        try:
            stored = self.ledger.place.read(MANIFEST)
            manifest = exactly_decoded(stored.data if stored else b"", MANIFEST)
            wrong = [] if is_sealed(manifest) else ["its checksum"]
        except StoreError:
            raise  # A store that does not answer has modified nothing.
        except (ValueError, OSError):
            manifest, wrong = {}, ["its bytes"]
        if manifest:
            plan = {key: getattr(self.run, key) for key in PLAN} | {"n_blocks": self.ledger.n_blocks}
            plan["plan"] = plan_digest(self.ledger)
            if len(self.records) == self.ledger.n_blocks:
                plan |= document_of(totals(self.records[block] for block in sorted(self.records)))
            wrong += [
                key for key, value in json.loads(json.dumps(plan)).items() if manifest.get(key) != value
            ]
        if wrong:
            sentence = f"it is modified, or not of these blocks (checked: {', '.join(wrong)})"
            self._add(Kind.MANIFEST, None, "manifest.json", sentence)


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


def record_system_files(findings: list[Finding]) -> None:
    """Report files of the operating system, which do no harm."""
    files = [finding.file for finding in findings if finding.kind == Kind.SYSTEM_FILE]
    if files:
        there = counted(len(files), "file of the operating system is", "files of the operating system are")
        add_remarks(remark("system-files", f"{there} left alone: {listed(files, 3)}"))


def _record_of(
    run: ScoreRun, artifacts: list[BlockArtifact], block: int, data: bytes
) -> CommitRecord | tuple[Kind, str]:
    """The record of a block, or what is wrong with it."""
    try:
        value = exactly_decoded(data, run.record_name(block))
    except ValueError:
        return Kind.ALTERED_RECORD, "it cannot be read"
    try:
        record = record_in(value)
    except ValueError as error:
        return Kind.ALTERED_RECORD, str(error)
    if record.run != run.run:
        return Kind.FOREIGN_RECORD, "it is the record of another run"
    if record.block != block:
        return Kind.FOREIGN_RECORD, f"it is the record of block {record.block}, not of block {block}"
    return _impossible_record(run, artifacts, record) or record


def _impossible_record(
    run: ScoreRun, artifacts: list[BlockArtifact], record: CommitRecord
) -> tuple[Kind, str] | None:
    """Impossible contents of a complete record."""
    rows = run.rows(record.block)
    if (record.start, record.stop) != rows or sum(record.status.values()) != rows[1] - rows[0]:
        return (
            Kind.ALTERED_RECORD,
            f"it is not of {_rows(run, record.block)}, which are this block's by the plan",
        )
    foreign = not record.files.keys() <= set(run.artifacts)
    if foreign or not artifacts[0].fits(record):
        return (
            Kind.ALTERED_RECORD,
            f"it does not name each {artifacts[0].noun} that this block has by the plan",
        )
    if record.status.get("0"):
        return (
            Kind.STATUS,
            f"it counts {record.status['0']:,} rows of status 0, though the block is committed",
        )
    return None


def _rows(run: ScoreRun, block: int) -> str:
    start, stop = run.rows(block)
    return f"rows {start:,} to {stop:,}"


def leftovers(findings: list[Finding]) -> Iterator[str]:
    """Files of interrupted attempts, by the names that dcpred and Zarr give them."""
    ours = re.compile(r".*\.partial-[0-9a-f]{12}|.*\.[0-9a-f]{32}\.partial")
    yield from (f.file for f in findings if f.kind == Kind.LEFTOVER and ours.fullmatch(f.file))
