"""What a Delta table holds of a finished run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any
from urllib.parse import unquote

from dcpred.runs.delta_log import Delivered, delivered, trace
from dcpred.runs.ledger import Ledger
from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.errors import DataError, IncompleteError
from dcpred_tasks.storage.addresses import as_arguments
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.storage.place import local_file, open_place, read_sealed
from dcpred_tasks.storage.place_types import Place

RECORD = "delivery.json"  # in the output
TAG = 8  # characters of a digest in the name of a file
EXPIRY = "delta.setTransactionRetentionDuration"  # the property of a table that forgets transactions
FILES = TABLE_FORMATS[PARQUET]  # a table gets copies of these
SETTINGS = ("model_hash", "outputs", "alpha", "costs", "ids", "n_rows")


class State(Enum):
    """Where the rows of a block are."""

    THERE = auto()
    """In the table, each once."""
    GONE = auto()
    """Not in the table."""
    OLD = auto()
    """In files of this block alone, as they were before a repair, or twice: a commit replaces these files."""
    DOUBTFUL = auto()
    """Some of them, changed ones, or others that cannot be distinguished from them."""


@dataclass(frozen=True)
class Holding:
    """What a table holds of a delivery.

    states    by block
    files     active files of each block that hold its rows alone
    reason    the last commit of another writer that removed such rows
    begun     whether the delivery was ever committed
    """

    states: Mapping[int, State]
    files: Mapping[int, list[Delivered]] = field(default_factory=dict)
    reason: str = ""
    begun: bool = True

    def blocks(self, state: State) -> list[int]:
        return [block for block, held in self.states.items() if held is state]


@dataclass(frozen=True)
class Delivery:
    """A finished run and the table that gets it."""

    ledger: Ledger
    records: Mapping[int, CommitRecord]
    table: str
    id: str
    recorded: bool
    """Whether this output began to deliver before."""

    @property
    def run(self) -> ScoreRun:
        return self.ledger.run

    @property
    def place(self) -> Place:
        return open_place(self.table)

    def values(self, block: int) -> str:
        """The digest of the values of a block, as names of files have it."""
        record = self.records[block]
        return digest(record.digest.encode(), record.input.encode())[:TAG]

    def values_in(self, file: Delivered) -> str:
        """The same of a file of the table, whose name may state its bytes alone."""
        facts = self.records[file.block].files.get(PARQUET, {})
        as_recorded = not file.values and facts.get("digest", "")[:TAG] == file.bytes
        return self.values(file.block) if as_recorded else file.values or file.bytes

    def command(self, more: str = "") -> str:
        return f"`dcpred deliver {as_arguments(self.run.output)}{more}`"


@dataclass(frozen=True)
class _Begun:
    """Fields of `delivery.json`."""

    delivery: str
    table: str


def delivery_of(ledger: Ledger, records: Mapping[int, CommitRecord], table: str | None = None) -> Delivery:
    """The delivery of a finished run.

    table  its address; None: that of the last delivery, else that of the plan
    """
    begun = read_sealed(_Begun, ledger.place, RECORD)
    address = table or delta_table(ledger)
    assert address is not None
    identity = content_of(ledger.run, records) if begun is None else begun.delivery
    return Delivery(ledger, records, address, identity, begun is not None)


def delta_table(ledger: Ledger) -> str | None:
    """The address of the Delta table that should hold the rows of a run; None if none should."""
    begun = read_sealed(_Begun, ledger.place, RECORD)
    return ledger.run.delta if begun is None else begun.table


def content_of(run: ScoreRun, records: Mapping[int, CommitRecord]) -> str:
    """What identifies the rows of a run and their model."""
    inputs = [records[block].input for block in sorted(records)]
    if not all(inputs):
        return run.run
    settings = {name: value for name, value in run.stated().items() if name in SETTINGS}
    return digest_json({**settings, "input": digest("".join(inputs).encode())})


def held_rows(delivery: Delivery, table: Any) -> Holding:
    """What a table holds of a delivery: by its active files; else by its log; else by rows."""
    blocks = sorted(delivery.records)
    active, cut = _active_files(table), _cut_files(table)
    mine = {name for name in active if (file := delivered(name)) and file.delivery == delivery.id}
    files: dict[int, list[Delivered]] = {}
    for file in filter(None, map(delivered, sorted(mine - cut))):
        files.setdefault(file.block, []).append(file)
    values = {block: delivery.values(block) for block in blocks}
    if all(
        [delivery.values_in(file) for file in files.get(block, [])] == [values[block]] for block in blocks
    ):
        return Holding(dict.fromkeys(blocks, State.THERE), files)
    forgets = EXPIRY in table.metadata().configuration and delivery.recorded
    if not mine and table.transaction_version(delivery.id) is None and not forgets:
        return Holding(dict.fromkeys(blocks, State.GONE), begun=False)
    log = trace(delivery.place, delivery.id, table.version())
    held = log.held | {frozenset([name]): Counter([name]) for name in mine}
    live = {files for files in held if files <= active - cut}
    counts: dict[int, Counter[str]] = {block: Counter() for block in blocks}
    for group in live:
        for name, n in held[group].items():
            if (known := delivered(name)) and known.block in counts:
                counts[known.block][delivery.values_in(known)] += n
    states = {block: _state(counts[block], values[block], len(files.get(block, []))) for block in blocks}
    doubtful = mine & cut
    if log.complete:
        doubtful |= active & (log.doubtful | frozenset().union(*held)) - frozenset().union(*live)
    elif State.GONE in states.values():
        doubtful |= {name for name in active if delivered(name) is None}
    if doubtful:
        altered = not log.complete or bool(doubtful & log.altered)
        states |= _compared(delivery, states, doubtful, cut, altered=altered)
    return Holding(states, files, log.reason)


def _state(counts: Counter[str], values: str, n_files: int) -> State:
    """The state of a block by how often the table holds it, with which values, and in how many files of its
    own.
    """
    if not counts.total():
        return State.GONE
    if counts == Counter([values]):
        return State.THERE
    return State.OLD if counts.total() == n_files else State.DOUBTFUL


def _compared(
    delivery: Delivery, states: Mapping[int, State], doubtful: set[str], cut: set[str], *, altered: bool
) -> dict[int, State]:
    """States of blocks after a comparison of their rows with those of doubtful files."""
    if doubtful & cut:
        return dict.fromkeys(states, State.DOUBTFUL)
    import pyarrow as pa

    from dcpred_tasks.tables.row_counts import compare_rows

    schema = table_schema(delivery.ledger)
    others = partial(_rows_of, delivery.place, sorted(doubtful), schema)
    try:
        occurrences = compare_rows(_wanted_rows(delivery, states, schema), others)
        nowhere = [
            block for block, state in states.items() if state is State.GONE and occurrences[block].nowhere
        ]
        if nowhere and altered and delivery.run.ids:
            wanted = _wanted_rows(delivery, dict.fromkeys(nowhere, State.GONE), schema)
            like = compare_rows(wanted, others, delivery.run.ids)
            nowhere = [block for block in nowhere if like[block].nowhere]
    except (DataError, OSError, ValueError, pa.ArrowException):
        return dict.fromkeys(states, State.DOUBTFUL)
    compared = dict(states)
    for block, state in states.items():
        if state is not State.GONE and not occurrences[block].nowhere:
            compared[block] = State.DOUBTFUL
        elif state is State.GONE and block not in nowhere:
            compared[block] = State.THERE if occurrences[block].as_wanted else State.DOUBTFUL
    return compared


def _wanted_rows(
    delivery: Delivery, states: Mapping[int, State], schema: Any
) -> Iterator[tuple[int, Any, bool]]:
    """The rows of blocks, and whether files that do not hold them alone should have them."""
    import pyarrow as pa

    for block, state in states.items():
        rows = list(_rows_of(delivery.run.place, [FILES.file(block)], schema))
        yield block, pa.concat_tables(rows), state is State.GONE


def _rows_of(place: Place, names: Iterable[str], schema: Any) -> Iterator[Any]:
    """The rows of Parquet files. Raises DataError for one that is missing."""
    from dcpred_tasks.tables.row_counts import read_rows

    for name in names:
        with local_file(place, name) as path:
            if path is None:
                raise DataError(f"Cannot read {name} of {place.address}: it is missing. Restore it.")
            yield from read_rows(path, schema)


def _active_files(table: Any) -> set[str]:
    """Files that the table reads."""
    return {unquote(path) for path in table.get_add_actions().column("path").to_pylist()}


def _cut_files(table: Any) -> set[str]:
    """Those of which it reads some rows only, by deletion vectors."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return set()
    paths = table.deletion_vectors().read_all().column("filepath").to_pylist()
    return {unquote(str(path)).rpartition("/")[2] for path in paths}


# -- Files of the output -------------------------------------------------------------------------------------


def table_schema(ledger: Ledger) -> Any:
    """The columns of the files of a run as the table has them, by the file of the first block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dcpred_tasks.tables.block_tables import delta_schema

    name = FILES.file(0)
    with local_file(ledger.place, name) as path:
        if path is None:
            raise damaged(ledger, name)
        try:
            return delta_schema(pq.read_schema(path))
        except (ValueError, pa.ArrowException):
            raise damaged(ledger, name) from None


def damaged(ledger: Ledger, name: str) -> IncompleteError:
    return IncompleteError(
        f"Cannot copy {name} of {ledger.address} to a Delta table: it is missing or damaged. Score again"
        " with --repair."
    )
