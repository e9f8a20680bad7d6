"""How often the rows of blocks occur in other files, where the log of a Delta table cannot show it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

AT_ONCE = 16  # blocks that are compared in one pass over the other files
BATCH_ROWS = 2**17
BLOCK, WANTED, PRESENT = "dcpred block", "dcpred wanted", "dcpred found"


class Occurrence(NamedTuple):
    """How the rows of a block occur in other files."""

    as_wanted: bool
    """Each as often as it should."""
    nowhere: bool
    """None of them."""


def compare_rows(
    blocks: Iterable[tuple[int, pa.Table, bool]],
    others: Callable[[], Iterator[pa.Table]],
    columns: Sequence[str] = (),
) -> dict[int, Occurrence]:
    """Compare rows of blocks with those of other files, in any order, and by how often they occur.

    blocks   number, rows, and whether other files should have them
    others   the rows of the other files, in pieces
    columns  those that are compared; empty: all
    """
    left, occurrences = iter(blocks), dict[int, Occurrence]()
    while some := list(islice(left, AT_ONCE)):
        occurrences |= _compared(some, others(), list(columns) or some[0][1].column_names)
    return occurrences


def _compared(
    blocks: Sequence[tuple[int, pa.Table, bool]], others: Iterator[pa.Table], columns: list[str]
) -> dict[int, Occurrence]:
    mine = pa.concat_tables(
        _counted(rows.select(columns), number, int(wanted), 0) for number, rows, wanted in blocks
    )
    keys = pa.schema([mine.schema.field(name) for name in columns])
    sums = _summed(mine, columns)
    for piece in others:
        rows = _counted(piece.select(columns).cast(keys), None, 0, 1)
        sums = _summed(pa.concat_tables([sums, rows]), columns)
        sums = sums.filter(pc.is_valid(sums[BLOCK]))  # only rows of these blocks
    # Each row of a block with the sums of all rows like it.
    both = pa.concat_tables(
        [
            sums.set_column(sums.schema.get_field_index(BLOCK), BLOCK, _none(len(sums))),
            _counted(mine.select(columns), mine[BLOCK], 0, 0),
        ]
    )
    groups = both.group_by(columns).aggregate([(WANTED, "sum"), (PRESENT, "sum"), (BLOCK, "distinct")])
    lists = groups[f"{BLOCK}_distinct"].combine_chunks()
    at, number = pc.list_parent_indices(lists), pc.list_flatten(lists)
    wanted, there = (groups[f"{name}_sum"].take(at) for name in (WANTED, PRESENT))
    facts = pa.table({"block": number, "same": pc.equal(wanted, there), "none": pc.equal(there, 0)})
    facts = facts.group_by("block").aggregate([("same", "all"), ("none", "all")])
    return {
        line["block"]: Occurrence(line["same_all"], line["none_all"])
        for line in facts.to_pylist()
        if line["block"] is not None
    }


def _none(n: int) -> pa.Array:
    return pa.nulls(n, pa.int64())


def _counted(rows: pa.Table, block: Any, wanted: int, present: int) -> pa.Table:
    """Rows with three columns more."""
    n = len(rows)
    if block is None or isinstance(block, int):
        block = _none(n) if block is None else pa.repeat(pa.scalar(block, pa.int64()), n)
    rows = rows.append_column(BLOCK, block)
    for name, value in ((WANTED, wanted), (PRESENT, present)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), n))
    return rows


def _summed(rows: pa.Table, columns: list[str]) -> pa.Table:
    """Equal rows as one, with one of their blocks."""
    sums = rows.group_by(columns).aggregate([(BLOCK, "max"), (WANTED, "sum"), (PRESENT, "sum")])
    return sums.rename_columns([*columns, BLOCK, WANTED, PRESENT]).cast(rows.schema)


def read_rows(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The columns of a schema of a Parquet file, in pieces; those that the file lacks are missing values."""
    with pq.ParquetFile(path) as file:
        names = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, columns=names):
            columns = [
                pa.array(batch[name]).cast(field.type) if name in names else pa.nulls(len(batch), field.type)
                for name, field in zip(schema.names, schema, strict=True)
            ]
            yield pa.table(columns, schema=schema)
