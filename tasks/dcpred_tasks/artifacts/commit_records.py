"""Commit records: what a scoring run is, and what each of its blocks left behind.

A record is created once and never overwritten. Two attempts at a block that agree share one record. Where
they differ, the second is written beside the first as `NNNNNN.conflict-DIGEST.json`, which shows the
difference. `commit` lists the events.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from dcpred_tasks.annotations import Count, Positive, from_document
from dcpred_tasks.artifacts.block_files import TABLE_FORMATS, ZARR, TableFormat
from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.label_rule import Costs
from dcpred_tasks.scoring.outputs import OutputColumn, columns
from dcpred_tasks.storage.addresses import below
from dcpred_tasks.storage.atomic_files import decoded, encoded
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import Entry, Place, open_place

CODES = {str(int(status)) for status in Status}
FILE_FIELDS = {"size": int, "digest": str, "tag": str}
FileFacts = Annotated[
    dict[str, Any], lambda facts: {name: type(value) for name, value in facts.items()} == FILE_FIELDS
]


@dataclass(frozen=True)
class ScoreRun:
    """What every scoring task receives: addresses and small values."""

    run: str
    """Hash of the plan (`dcpred.runs.input_identity.run_hash`)."""
    x: str
    """Address of the array of raw rows, as every process finds it."""
    model: str
    """Address of the model."""
    model_hash: str
    """Hash of the model that the plan was made with."""
    output: str
    """Address of the output."""
    outputs: tuple[str, ...]
    """Names of the requested output columns, without the status."""
    n_rows: Positive
    """Rows of X."""
    chunk_rows: Positive
    """Rows of an output chunk."""
    block_rows: Positive
    """Rows of a block, one or more output chunks; the last block may have fewer."""
    stride: Count = 0
    """One row in so many is sampled for statistics; 0: `sample_stride` derives it from the number of rows."""
    sampling: str | None = None
    """The rule of sampled rows (`scoring.statistics.sampled_positions`); None: that of earlier versions."""
    alpha: float | None = None
    """Fraction of rows outside of intervals; None where no output column needs it."""
    costs: Costs | None = None
    """Costs of labels (dcpred_tasks.model.label_rule); None where labels follow decision values."""
    arithmetic: str | None = None
    """What scores rows in place of the compiled engine (`scoring.scorer.arithmetic`)."""
    input: str | None = None
    """The identity of the files of a table, which every task compares; None for an array of Zarr."""
    artifacts: tuple[str, ...] = (ZARR,)
    """What each block leaves: chunks of the arrays, and tables of these formats (`block_files`)."""
    ids: tuple[str, ...] = ()
    """Columns before the scores in tables; empty: the numbers of rows."""
    delta: str | None = None
    """Address of the Delta table that gets the Parquet files when the run is finished."""

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
        return {name: v for name, v in asdict(self).items() if v is not None and name not in hidden}

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


@dataclass(frozen=True)
class CommitRecord:
    """What a task reports of a finished block: the fields of its JSON file, which also has a checksum."""

    run: str
    """Hash of the plan."""
    block: int
    """Number of the block."""
    start: Count
    """Its first row."""
    stop: Count
    """The row after its last."""
    digest: str
    """Digest of the digests of its output chunks, in their order."""
    status: dict[Annotated[str, CODES.__contains__], Count]
    """Rows by status code; codes without rows are omitted."""
    bad_rows: list[tuple[int, int, int]]
    """The first rows that were not scored: row, status code, and the first feature at fault, or -1."""
    read_seconds: float
    """Time spent on reading X."""
    score_seconds: float
    """Time spent on scores."""
    write_seconds: float
    """Time spent on writes and digests."""
    process: str
    """The worker process, host:pid."""
    peak_memory_bytes: Count
    """Peak memory of that process so far."""
    sizes: dict[str, list[Count]]
    """Bytes on disk of the output chunks of each array, in their order."""
    retries: Count = 0
    """Reads and writes that failed and were retried."""
    quarantined: str = ""
    """Why rows failed; "" where none did."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """`Statistics.packed` of its rows, the seconds that they took, and the name of the processor."""
    tags: dict[str, list[str]] = field(default_factory=dict)
    """On object stores: tags of the output chunks of each array, in their order."""
    attempt: str = ""
    """On object stores: identifies the record of this attempt where a reply was lost."""
    origin: str = ""
    """The name of the run that scored the block, where a refresh reuses it."""
    files: dict[str, FileFacts] = field(default_factory=dict)
    """Size, digest and, on object stores, tag of the file of each table, by the name of the artifact."""
    input: str = ""
    """Digest of the rows of X and of the ids that were read, in runs of a table or with tables; empty
    in others, and where some rows could not be read."""
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
    return encoded({**value, "checksum": digest_json(value)})


def read_record(run: ScoreRun, block: int) -> CommitRecord | None:
    """The commit record of a block; None unless it exists, is of this run, and is unchanged."""
    stored = run.place.read(run.record_name(block))
    return None if stored is None else parsed_record(run, block, stored.data)


def parsed_record(run: ScoreRun, block: int, data: bytes) -> CommitRecord | None:
    """The commit record of a block from its bytes; None as `read_record`."""
    try:
        value = decoded(data, run.record_name(block))
        if value.pop("checksum") != digest_json(value):
            return None
        files = {name: value.pop(form.key) for name, form in TABLE_FORMATS.items() if form.key in value}
        record = from_document(CommitRecord, {**value, "files": files}, exact=True)
    except (ValueError, KeyError):
        return None
    return record if record.run == run.run and record.block == block else None


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
