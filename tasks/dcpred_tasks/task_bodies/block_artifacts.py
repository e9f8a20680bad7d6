"""What each block of a run leaves in its output: the artifacts that `ScoreRun.artifacts` names."""

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from dcpred_tasks.artifacts.block_files import Finding, Ids, Kind, TableFormat
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.scoring.outputs import Values
from dcpred_tasks.storage.place import stored_digest
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.task_bodies.zarr_chunks import ZarrChunks


class BlockWriter(Protocol):
    """Writes an artifact of one block, chunk by chunk in their order."""

    def add(self, start: int, values: Values) -> None:
        """Add the rows of a chunk, whose ids were read. Raises the error of an earlier chunk."""

    def finish(self, facts: dict[str, Any]) -> None:
        """Complete the files, and add what the commit record states of them to its fields."""

    def discard(self) -> None:
        """Remove what is not complete; does nothing after `finish`."""


class BlockArtifact(Protocol):
    """One thing that each block leaves: files, and what its commit record states of them.

    folder  of its files, in the output
    noun    its files, in messages
    absence what is wrong where one of them is missing
    missing, resized  kinds of findings
    """

    folder: str
    noun: str
    absence: str
    missing: Kind
    resized: Kind

    def files(self, block: int) -> Iterator[str]:
        """The names of the files of a block, in the output."""

    def belongs(self, name: str) -> bool:
        """Whether a file in the folder belongs to the artifact, though to no block."""

    def writer(self, block: int, ids: Ids | None, retrying: Retrying) -> BlockWriter:
        """A writer of the files of a block."""

    def recorded(self, record: CommitRecord) -> Iterator[tuple[str, int | None, str]]:
        """Name, size and, on object stores, tag of each file of a block, by its record. A file that is not
        written yet has no size.
        """

    def fits(self, record: CommitRecord) -> bool:
        """Whether a record states all files of its block, and no others."""

    def linked(self, record: CommitRecord, stored: Mapping[str, Entry]) -> CommitRecord:
        """The record of a block whose files were linked or copied from another output.

        stored  on object stores, the files there; else none
        """

    def check(self, record: CommitRecord) -> Iterator[Finding]:
        """What is wrong with the content of the files of a block, by its record."""


class TableFiles:
    """One file of a table for each block: an artifact."""

    absence = "it is missing"

    def __init__(self, run: ScoreRun, name: str, form: TableFormat) -> None:
        self.run, self.name, self.form = run, name, form
        self.folder, self.noun = form.folder, f"{form.label} file"
        self.missing, self.resized = form.missing, form.resized

    def files(self, block: int) -> Iterator[str]:
        yield self.form.file(block)

    def belongs(self, name: str) -> bool:
        return False

    def writer(self, block: int, ids: Ids | None, retrying: Retrying) -> BlockWriter:
        from dcpred_tasks.tables.block_tables import BlockTable

        assert ids is not None
        return BlockTable(self.run, self.name, block, ids, retrying)

    def recorded(self, record: CommitRecord) -> Iterator[tuple[str, int | None, str]]:
        facts = record.files.get(self.name, {"size": None, "tag": ""})
        yield self.form.file(record.block), facts["size"], facts["tag"]

    def fits(self, record: CommitRecord) -> bool:
        return self.name in record.files

    def linked(self, record: CommitRecord, stored: Mapping[str, Entry]) -> CommitRecord:
        tag = stored[self.form.file(record.block)].tag if stored else ""
        return replace(record, files={**record.files, self.name: {**record.files[self.name], "tag": tag}})

    def check(self, record: CommitRecord) -> Iterator[Finding]:
        """Level fast reports a missing file."""
        name = self.form.file(record.block)
        stored = Retrying()(partial(stored_digest, self.run.place, name))
        if stored is not None and self.fits(record) and stored != record.files[self.name]["digest"]:
            rows = f"rows {record.start:,} to {record.stop:,}"
            yield Finding(
                self.form.damaged, record.block, name, f"its bytes of {rows} are not what was written"
            )


def block_artifacts(run: ScoreRun, skipped: Set[str] = frozenset()) -> list[BlockArtifact]:
    """The artifacts of a run.

    skipped  output arrays whose metadata are wrong
    """
    return [ZarrChunks(run, skipped), *(TableFiles(run, name, form) for name, form in run.tables.items())]


def row_ids(run: ScoreRun) -> Ids | None:
    """The reader of the ids of a run with tables; None for a run without."""
    if not run.tables:
        return None
    from dcpred_tasks.tables.block_tables import RowIds

    return RowIds(run)


@contextmanager
def block_writers(
    artifacts: Iterable[BlockArtifact], block: int, ids: Ids | None, retrying: Retrying
) -> Iterator[list[BlockWriter]]:
    """Writers of artifacts of a block. An attempt that fails leaves no temporary files."""
    with ExitStack() as stack:
        writers: list[BlockWriter] = []
        for artifact in artifacts:
            writers.append(artifact.writer(block, ids, retrying))
            stack.callback(writers[-1].discard)
        yield writers
