"""Commit records: what a scoring run is, and what each of its blocks left behind.

A record is created once and never overwritten. Two attempts at a block that agree share one record. Where
they differ, the second is written beside the first as `NNNNNN.conflict-DIGEST.json`, which shows the
difference. `commit` lists the events.
"""

from collections.abc import Iterator
from dataclasses import asdict, field, fields, replace
from typing import Annotated, Any

from dcpred_tasks.annotations import Count, Positive, from_document
from dcpred_tasks.artifacts.block_files import TABLE_FORMATS, ZARR, TableFormat
from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.label_rule import Costs
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.scoring.outputs import OutputColumn, columns
from dcpred_tasks.storage.addresses import Address, below, stored_text
from dcpred_tasks.storage.atomic_files import decoded, encoded
from dcpred_tasks.storage.digests import is_sealed, sealed
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Entry, Place

CODES = {str(int(status)) for status in Status}
FILE_FIELDS = {"size": int, "digest": str, "tag": str}
FileFacts = Annotated[
    dict[str, Any], lambda facts: {name: type(value) for name, value in facts.items()} == FILE_FIELDS
]


@result_class
class ScoreRun:
    """What every scoring task receives: addresses and small values."""

    run: str = result_field("Hash of everything that the scores depend on.")
    x: Address = result_field("Address of the scored rows.")
    model: str = result_field("Address of the model.")
    model_hash: str = result_field("Hash of the model.")
    output: str = result_field("Address of the output.")
    outputs: tuple[str, ...] = result_field("Names of the written columns.")
    n_rows: Positive = result_field("Number of rows.")
    chunk_rows: Positive = result_field("Number of rows of an output chunk.")
    block_rows: Positive = result_field("Number of rows of a block.")
    stride: Count = result_field(
        "The statistics sample one row of so many; 0: by the size of the block.", default=0
    )
    sampling: str | None = result_field(
        "Where that row lies: hashed, at a hashed place; absent in runs of earlier versions: first.",
        default=None,
    )
    alpha: float | None = result_field(
        "Fraction of rows meant to lie outside of them.", when="intervals", default=None
    )
    costs: Costs | None = result_field("The costs of labels, row by row.", when="costs", default=None)
    arithmetic: str | None = result_field(
        "Name of that arithmetic.", when="other arithmetic than that of the compiled engine", default=None
    )
    input: str | None = result_field(
        "The identity of the files of a table, which every task compares.", when="a table", default=None
    )
    artifacts: tuple[str, ...] = result_field(
        "What each block leaves: zarr, the chunks of the arrays; parquet, a file.", default=(ZARR,)
    )
    ids: tuple[str, ...] = result_field(
        "Columns before the scores in Parquet files; empty: the numbers of rows.",
        when="Parquet files",
        default=(),
    )
    delta: str | None = result_field(
        "Address of the Delta table that gets the Parquet files when the run is finished.",
        when="a Delta table",
        default=None,
    )

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        """The arrays of the output, in the order in which they are written: `outputs`, then the status."""
        return columns(self.outputs, self.alpha, self.costs)

    @property
    def reading(self) -> str:
        """What a process keeps its opened input under: a run goes on with files that were touched."""
        return f"{self.run} {self.input or ''}"

    def stated(self) -> dict[str, Any]:
        """Fields for plans and manifests, without those that are None: earlier versions lack them; and
        without ids, unless there are tables.
        """
        hidden = () if self.tables else ("ids",)
        values = asdict(self) | {"x": stored_text(self.x)}
        return {name: v for name, v in values.items() if v is not None and name not in hidden}

    @property
    def tables(self) -> dict[str, TableFormat]:
        """The formats of its tables, by the name of the artifact."""
        return {name: TABLE_FORMATS[name] for name in self.artifacts if name in TABLE_FORMATS}

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of `columns`."""
        return tuple(column.name for column in self.columns)

    @property
    def place(self) -> Place:
        """Where the output lies."""
        return open_place(self.output)

    @property
    def scores(self) -> str:
        """The address of the Zarr group of the output arrays."""
        return below(self.output, "scores.zarr")

    def array(self, name: str) -> str:
        """The address of an output array."""
        return below(self.output, "scores.zarr", name)

    def record_name(self, block: int) -> str:
        """The name of the commit record of a block in the output, which may not exist."""
        return f"blocks/{block:06d}.json"

    def rows(self, block: int) -> tuple[int, int]:
        """The first row of a block, and the row after its last."""
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def chunks(self, block: int) -> Iterator[tuple[int, int]]:
        """The first row, and the row after the last, of each output chunk of a block."""
        start, stop = self.rows(block)
        for at in range(start, stop, self.chunk_rows):
            yield at, min(at + self.chunk_rows, stop)


@result_class
class CommitRecord:
    """What a task reports of a finished block: the fields of its JSON file, which also has a checksum."""

    run: str = result_field("Hash of the run.")
    block: int = result_field("Number of the block, from 0.")
    start: Count = result_field("First row.")
    stop: Count = result_field("Row after the last.")
    digest: str = result_field("Digest of the scores.")
    status: dict[Annotated[str, CODES.__contains__], Count] = result_field("Number of rows by status code.")
    bad_rows: list[tuple[int, int, int]] = result_field(
        "The first rows without a score: row, status code, first bad feature or -1."
    )
    read_seconds: float = result_field("Time of reading, in seconds.")
    score_seconds: float = result_field("Time of scoring, in seconds.")
    write_seconds: float = result_field("Time of writing, in seconds.")
    process: str = result_field("host:pid of the worker.")
    peak_memory_bytes: Count = result_field("Peak memory of the worker, in bytes.")
    sizes: dict[str, list[Count]] = result_field("Sizes of the written chunks in bytes, by array.")
    retries: Count = result_field("Number of repeated reads and writes.", default=0)
    quarantined: str = result_field("Why the block was skipped; empty if it was scored.", default="")
    statistics: dict[str, Any] = result_field(
        "Statistics of the block, packed by name: base64 of arrays.", default_factory=dict
    )
    tags: dict[str, list[str]] = result_field(
        "Tags of the output chunks of each array, in their order.",
        when="an object store",
        default_factory=dict,
    )
    attempt: str = result_field(
        "Identifies the record of this attempt where a reply was lost.", when="an object store", default=""
    )
    origin: str = result_field(
        "The name of the run that scored the block.", when="reused blocks of a refresh", default=""
    )
    files: dict[str, FileFacts] = field(default_factory=dict)
    """Size, digest and, on object stores, tag of the file of each table, by the name of the artifact."""
    input: str = result_field(
        "Digest of the rows and ids that were read.", when="a table or Parquet files", default=""
    )
    tag: str = field(default="", compare=False)
    """On object stores: the tag of the record itself, which is not written."""


LISTINGS, LISTED_AT_ONCE = 16, 2_000  # parts that records are listed in, at most, and records of each
OPTIONAL = ("tags", "attempt", "origin", "input")  # omitted where empty
RECORD_FIELDS = {f.name for f in fields(CommitRecord)} - {"files", "tag"}  # besides those of tables


def commit(run: ScoreRun, record: CommitRecord) -> CommitRecord:
    """Make this the record of its block, and return the record that stands.

    Guards against two attempts at one block (a task that a second worker received, or two drivers while a
    lease changes hands):

    1. Attempts A and B score the block and write its output chunks. The same model gives the same bytes, so
       the order of the writes does not matter.
    2. A commits: `create` makes the record, which does not exist yet.
    3. B commits: `create` finds the record of A, and changes nothing.
    4. B reads it. If the digests agree, B returns the record of A.
    5. If they differ (another processor, damaged memory), the chunks on disk may come from either. B writes
       its own record beside that of A: verification then finds a conflict, and --repair scores the block
       again.

    An existing record that cannot be read, was altered or belongs to another run is replaced, because nothing
    relies on it.
    """
    place, name = run.place, run.record_name(record.block)
    data = record_bytes(record)
    if place.create(name, data):
        return replace(record, tag=place.written_tag(name))
    existing = read_record(run, record.block)
    if existing is None:
        place.write(name, data)
        return replace(record, tag=place.written_tag(name))
    if existing.digest != record.digest:
        place.write(f"{name.removesuffix('.json')}.conflict-{record.digest[:8]}.json", data)
    return existing


def record_bytes(record: CommitRecord) -> bytes:
    """The content of the file of a record."""
    value = {k: v for k, v in asdict(record).items() if k in RECORD_FIELDS and (v or k not in OPTIONAL)}
    value |= {TABLE_FORMATS[name].key: facts for name, facts in record.files.items()}
    return encoded(sealed(value))


def read_record(run: ScoreRun, block: int) -> CommitRecord | None:
    """The commit record of a block; None unless it exists, is of this run, and is unchanged."""
    stored = run.place.read(run.record_name(block))
    return None if stored is None else parsed_record(run, block, stored.data)


def parsed_record(run: ScoreRun, block: int, data: bytes) -> CommitRecord | None:
    """The commit record of a block from its bytes; None as `read_record`."""
    try:
        record = record_in(decoded(data, run.record_name(block)))
    except ValueError:
        return None
    return record if record.run == run.run and record.block == block else None


def record_in(value: dict[str, Any]) -> CommitRecord:
    """The commit record of a document, which loses its keys of tables. Raises ValueError with the reason."""
    if not is_sealed(value):
        raise ValueError("it does not match its own checksum")
    del value["checksum"]
    files = {name: value.pop(form.key) for name, form in TABLE_FORMATS.items() if form.key in value}
    return from_document(CommitRecord, {**value, "files": files}, exact=True)


def list_records(run: ScoreRun) -> dict[int, Entry]:
    """Blocks that have a record: its size, tag and time of commit, by one listing."""
    listing = run.place.listing("blocks", record_splits(run))
    return {block: entry for name, entry in listing.items() if (block := block_of(run, name)) is not None}


def record_splits(run: ScoreRun) -> list[str]:
    """Names that split the listing of a long run into parallel parts."""
    n_blocks = -(-run.n_rows // run.block_rows)
    parts = min(LISTINGS, n_blocks // LISTED_AT_ONCE)
    return [run.record_name(part * n_blocks // parts) for part in range(1, parts)]


def block_of(run: ScoreRun, name: str) -> int | None:
    """The block whose record has this name."""
    number = name.removeprefix("blocks/").removesuffix(".json")
    return int(number) if number.isdecimal() and name == run.record_name(int(number)) else None
