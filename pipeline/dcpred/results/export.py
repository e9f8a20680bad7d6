"""`dcpred export`: the scores of a run as a table of any size, in the order of rows.

A few pieces of rows are in memory at once. The table holds the requested extra columns, then columns of
the scores, which have no value in rows without a score.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dcpred.execution.progress import SILENT, Reporter
from dcpred.results.beside import Beside, find_beside, kept_ids, parse_beside
from dcpred.results.conditions import Condition, parse_condition
from dcpred.results.fields import ROW, STATUS_NAME, Field, Rows, run_fields
from dcpred.results.stored_scores import StoredScores, open_stored
from dcpred.results.table_files import check_out, new_table
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.scoring.outputs import DECISION
from dcpred_tasks.scoring.sure_outputs import ProbabilityColumn
from dcpred_tasks.storage.addresses import is_remote, local_path
from dcpred_tasks.storage.atomic_files import resource_errors

PROBABILITY = ProbabilityColumn.name
MADE_HERE = (ROW, STATUS_NAME)  # computed columns, present only on request


@dataclass(frozen=True)
class Exported:
    """The exported table."""

    output: str
    """The run."""
    out: str
    """The table."""
    n_rows: int
    """Rows of the run."""
    n_written: int
    """Rows of the table."""
    columns: list[str]
    beside: str | None
    """The data set of the extra columns, or several with commas; None for none."""
    finished: bool
    """Whether the run is finished; else some rows have status 0."""


@dataclass(frozen=True)
class _Asked:
    """The contents of a table."""

    scores: StoredScores
    fields: dict[str, Field]
    beside: dict[str, Beside]
    """By the names of their columns."""
    columns: list[str]
    """Fields of the table, in their order."""
    conditions: list[Condition]
    largest: tuple[str, int] | None = None
    """A column and a number of rows: only those with its largest values, the largest first."""

    @property
    def needed(self) -> list[str]:
        """Columns to read."""
        return list(dict.fromkeys([*self.columns, *(c.name for c in self.conditions), *self.order]))

    @property
    def order(self) -> list[str]:
        """Columns that rows are sorted by. Decision values break ties of probabilities, if the run has them:
        all rows beyond the held-out ones have the largest probability.
        """
        if self.largest is None:
            return []
        by, field = self.largest[0], self.fields.get(self.largest[0])
        ties = []
        if field is not None and field.needs == PROBABILITY and by not in self.beside:
            ties = [name for name in [by.replace(PROBABILITY, DECISION, 1)] if name in self.fields]
        return [by, *ties]

    def schema(self) -> pa.Schema:
        run = self.scores.run
        summary = {"run": run.run, "model_hash": run.model_hash, "finished": self.scores.finished}
        kinds = _types(self.fields, self.beside.values())
        metadata = {"dcpred": json.dumps(summary)}
        return pa.schema([(name, kinds[name]) for name in self.columns], metadata=metadata)

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The number of rows read, and those of the table among them, piece by piece."""
        if self.largest is None:
            yield from self._pieces(self.schema())
            return
        (by, most), schema = self.largest, self.schema()
        wide, kinds = schema, _types(self.fields, self.beside.values())
        for name in self.order:
            wide = wide if name in wide.names else wide.append(pa.field(name, kinds[name]))
        kept, keys = wide.empty_table(), [(name, "descending") for name in self.order]
        for n, piece in self._pieces(wide):
            kept = pa.concat_tables([kept, piece.filter(pc.is_valid(_known(piece[by])))])
            kept = kept.take(pc.sort_indices(kept, keys)[:most])  # stable: equals by row
            yield n, schema.empty_table()
        yield 0, kept.select(schema.names)

    def _pieces(self, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        own = [self.fields[name] for name in self.needed if name in self.fields]
        outputs = {field.needs for field in own} - {""}
        others = list({id(one): one for one in self.beside.values()}.values())
        needed = [name for name in self.needed if name in self.beside]
        for start, stop, done in self.scores.pieces():
            values, status = self.scores.read(outputs, start, stop, done)
            rows = Rows(start, values, status)
            columns = {field.name: field.make(rows) for field in own}
            for one in others:
                columns |= one.read(needed, start, stop)
            piece = pa.table([columns[name] for name in schema.names], schema=schema)
            if self.conditions:
                held = [condition.holds(columns[condition.name]) for condition in self.conditions]
                piece = piece.filter(pa.array(np.logical_and.reduce(held)))
            yield stop - start, piece


def export(
    output: str | Path,
    out: str | Path,
    *,
    beside: Sequence[str] = (),
    only: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    largest: tuple[str, int] | None = None,
    partial: bool = False,
    say: Reporter = SILENT,
) -> Exported:
    """Write the scores of a run as a table to the new file or Zarr group `out`.

    beside   [DATA:]NAME,NAME: arrays or features of data sets, which come before the scores. Without it and
             `columns`: the ids that import stored, or else the numbers of rows
    only     comparisons that rows must meet: status==1
    columns  of the scores; None: all but row numbers and names of statuses
    largest  a column and a number n: only the n rows with its largest values, the largest first
    partial  whether the run may be unfinished: rows not yet scored have status 0

    Raises RefusedErrors before anything is written, and ResourceError.
    """
    check_out(out)
    asked = replace(_asked(output, beside, only, columns, partial, say), largest=largest)
    if largest is not None:
        _check_largest(*largest, _types(asked.fields, asked.beside.values()))
    schema, written = asked.schema(), 0
    missing = {name: asked.fields[name].missing for name in asked.columns if name in asked.fields}
    n_rows = asked.scores.run.n_rows
    with (
        _folder(out) as folder,
        new_table(out, Path(folder), schema, n_rows, missing) as writer,
        say.step("exporting", n_rows, "rows") as advance,
    ):
        for n, piece in asked.tables():
            with resource_errors(local_path(out)):
                writer.write(piece)
            written += len(piece)
            advance(n)
    others = {one.data for one in asked.beside.values()}
    return Exported(
        output=asked.scores.run.output,
        out=str(out),
        n_rows=n_rows,
        n_written=written,
        columns=asked.columns,
        beside=", ".join(sorted(others)) or None,
        finished=asked.scores.finished,
    )


def _folder(out: str | Path) -> AbstractContextManager[str | Path]:
    """The temporary folder of the table."""
    if is_remote(out):
        return tempfile.TemporaryDirectory(prefix="dcpred-export-")
    return nullcontext(Path(local_path(out)).absolute().parent)


def _asked(
    output: str | Path,
    beside: Sequence[str],
    only: Sequence[str],
    columns: Sequence[str] | None,
    partial: bool,
    say: Reporter,
) -> _Asked:
    """Raises RefusedErrors."""
    scores = open_stored(output, partial=partial)
    fields = {field.name: field for field in run_fields(scores)}
    others = _beside(scores, beside, columns is None, say)
    chosen = [name for name in fields if name not in MADE_HERE]
    if columns is not None:
        chosen = [own for name in columns for own in _of_output(fields.values(), name) or [name]]
    if columns is None and not beside and not others:
        chosen = [ROW, *chosen]
    for name in chosen:
        if name not in fields:
            raise SettingsError(
                f"Cannot export column {name!r}: {scores.run.output} has {', '.join(fields)}. Name some"
                " of these, and others by --with."
            )
    names = [*(name for one in others for name in one.names), *chosen]
    if twice := next((name for name, n in Counter(names).items() if n > 1), None):
        raise SettingsError(
            f"Cannot export two columns called {twice}: each needs its own name."
            " Omit one of them, by --with and --columns."
        )
    by_name = {name: one for one in others for name in one.names}
    kinds = _types(fields, others)
    known = {name: texts for one in others for name, texts in one.known().items()}
    known |= {field.name: field.known for field in fields.values() if field.known is not None}
    conditions = [parse_condition(text, kinds, known) for text in only]
    return _Asked(scores, fields, by_name, names, conditions)


def _check_largest(by: str, most: int, types: Mapping[str, pa.DataType]) -> None:
    """Raise SettingsError if rows cannot be selected by the values of a column."""
    if by not in types:
        raise SettingsError(f"Cannot find the largest values of {by}: the columns are {', '.join(types)}.")
    kind = types[by]
    if pa.types.is_string(kind) or pa.types.is_boolean(kind):
        raise SettingsError(
            f"Cannot find the largest values of {by}: it holds {kind}. Name a number or a date."
        )
    if most < 1:
        raise SettingsError(
            f"Cannot export the {most} largest values of {by}: it is not a count. Use 1 or more."
        )


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with null for NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _of_output(fields: Iterable[Field], name: str) -> list[str]:
    """The columns of an output column."""
    return [field.name for field in fields if field.needs == name]


def _beside(scores: StoredScores, asked: Sequence[str], ids: bool, say: Reporter) -> list[Beside]:
    """Columns of data sets in the requested order; with `ids` and without a request, those that import
    stored.
    """
    if not asked:
        kept = kept_ids(scores.run, say) if ids else None
        return [] if kept is None else [kept]
    parsed = [parse_beside(text) for text in asked]
    return [find_beside(scores.run, data, names) for data, names in parsed]


def _types(fields: Mapping[str, Field], beside: Iterable[Beside]) -> dict[str, pa.DataType]:
    """The types of all available columns. An extra column precedes one of the scores."""
    found = {field.name: field.type for field in fields.values()}
    for one in beside:
        found |= one.types()
    return found
