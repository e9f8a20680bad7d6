"""Export scores as a table, with columns next to them."""

import csv
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr

from dcpred.execution.progress import show_step
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult, and_more, plain
from dcpred.results.stored_scores import StoredScores, open_stored
from dcpred.runs.input_identity import arrays_beside, same_rows
from dcpred.runs.ledger import open_ledger
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, DcpredError, SettingsError, doubled, listed
from dcpred_tasks.remarks import remark
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.storage.addresses import TableAddress, absolute, check_writable, local_path, path_on_disk
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    partial_name,
    publish_new,
    resource_errors,
    sync_directory,
)
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.tables.block_tables import StoredIds, make_table
from dcpred_tasks.tables.extra_columns import Beside, find_columns, is_scored, stored_ids
from dcpred_tasks.tables.score_columns import MADE_HERE, ROW, Field, Rows, TableWriter, new_writer, run_fields

ENDINGS = (".parquet", ".csv", ".feather", ".arrow")


def check_out(out: str | Path) -> Place | None:
    """Raise DataError unless a table can be written there. The place of an address on a store, else None."""
    check_writable(out, "scores")
    name = absolute(out).rpartition("/")[2]
    if not name.endswith(ENDINGS):
        raise DataError(
            f"Cannot export scores to {out}: its name has no known ending. End it with"
            f" {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
        )
    if (path := path_on_disk(out)) is None:
        place = open_place(absolute(out).rpartition("/")[0])
        taken = name in place.names("")
    else:
        place = None
        taken = os.path.lexists(path)
        if not taken and not path.absolute().parent.is_dir():
            raise DataError(f"Cannot export scores to {out}: its folder does not exist. Make it first.")
        if not taken:
            check_new_name(path, PARTIAL)
    if taken:
        raise DataError(
            f"Cannot export scores to {out}: it already exists. Remove it or choose another path."
        )
    return place


@contextmanager
def new_table(out: str | Path, folder: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """A writer of a table, which gets its name when the `with` statement ends without an error.

    folder  for the temporary file: on the disk of `out`, if that is on one
    """
    place = check_out(out)
    name = absolute(out).rpartition("/")[2]
    partial = partial_name(folder / name)
    try:
        with resource_errors(partial):
            writer = new_writer(partial, Path(name).suffix, schema)
        yield writer
        with resource_errors(partial):
            writer.close()
            if place is None:
                _publish(partial, Path(local_path(out)))
            else:
                place.send(name, partial)
    finally:
        partial.unlink(missing_ok=True)


def _publish(partial: Path, path: Path) -> None:
    """Give a complete table its name, if that is still free. Raises DataError."""
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    try:
        publish_new(partial, path)
    except FileExistsError:
        raise DataError(
            f"Cannot export to {path}: another process created it meanwhile. Choose another path."
        ) from None
    sync_directory(path.absolute().parent)


def _rows_text(r: Mapping[str, Any]) -> str:
    some = "" if r["n_written"] == r["n_rows"] else f" of {r['n_rows']:,}"
    return f"{r['n_written']:,}{some}" + ("" if r["finished"] else "; the run is not finished")


def _columns_text(r: Mapping[str, Any]) -> str:
    """The first names that fit on a line of 80 characters."""
    names = [plain(name, 24) for name in r["columns"]]
    while len(", ".join(names)) > 55 and len(names) > 1:
        names.pop()
    return and_more(names, len(r["columns"]))


@result_class
class Exported(PublicResult):
    """The exported table."""

    output: str = result_field("Path or address of the run.")
    out: str = result_field("Path of the table.", unit=Unit.TEXT, line="table")
    n_rows: int = result_field("Number of rows of the run.", line="rows", text=_rows_text)
    n_written: int = result_field("Number of rows of the table.")
    columns: list[str] = result_field(
        "Names of the columns of the table.", line="columns", text=_columns_text
    )
    beside: str | None = result_field(
        "The data set of the extra columns, or several with commas; None for none."
    )
    finished: bool = result_field("Whether the run is finished; else some rows have status 0.")


@dataclass(frozen=True)
class _Request:
    """The contents of a table."""

    scores: StoredScores
    fields: dict[str, Field]
    extra: dict[str, Beside | StoredIds]
    """Columns of data sets, by their names."""
    columns: list[str]
    """Names of the columns of the table, in their order."""
    status: list[int] | None
    """Statuses of the rows of the table; None: all."""

    def schema(self) -> pa.Schema:
        run = self.scores.run
        facts = {"run": run.run, "model_hash": run.model_hash, "finished": self.scores.finished}
        types = {field.name: field.type for field in self.fields.values()}
        for source in self.extra.values():
            types |= source.types()
        metadata = {"dcpred": json.dumps(facts)}
        return pa.schema([(name, types[name]) for name in self.columns], metadata=metadata)

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The number of rows read, and those of the table among them, piece by piece."""
        schema = self.schema()
        fields = [self.fields[name] for name in self.columns if name in self.fields]
        outputs = {field.needs for field in fields} - {""}
        sources = list({id(source): source for source in self.extra.values()}.values())
        for start, stop, done in self.scores.pieces():
            values, status = self.scores.read(outputs, start, stop, done)
            extra: dict[str, pa.Array] = {}
            for source in sources:
                extra |= source.read(self.extra, start, stop)
            table = make_table(schema, fields, Rows(start, values, status), extra)
            if self.status is not None:
                table = table.filter(pa.array(np.isin(status, self.status)))
            yield len(status), table


@typed
def export(
    scores: str | Path,
    out: str | Path,
    *,
    beside: Sequence[str] = (),
    status: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    partial: bool = False,
    verbose: bool = False,
) -> Exported:
    """Write the scores of a run as a table.

    Parameters
    ----------
    scores : str or Path
        The output of `score`.
    out : str or Path
        The new table: .parquet, .csv, .feather or .arrow.
    beside : sequence of str, optional
        Columns to write before the scores, each ``"NAME"`` or ``"DATA:NAME,NAME"``: one-dimensional arrays of
        the scored data set or of DATA, or features by name. By default the ids in the Parquet files
        of the run, else those that import stored, else row numbers.
    status : sequence of str, optional
        Statuses of the rows to keep: ok, non_finite_feature, … By default all rows.
    columns : sequence of str, optional
        Columns of the scores. By default all but row and status_name.
    partial : bool, default False
        Export an unfinished run, too: rows not yet scored have status 0.

    Returns
    -------
    Exported
        The table, its rows and columns.

    Raises
    ------
    RefusedError
        For wrong arguments, before anything is written.
    ResourceError
        For a full disk, or a missing permission.

    See Also
    --------
    open_scores : Open the scores as arrays.

    Notes
    -----
    Rows keep their order. Classes appear by name, several outputs become a column each (decision_CLASS), and
    a row without a score has a status and no values. The table is written completely or not at all.
    """
    check_out(out)
    request = _request(scores, beside, status, columns, partial)
    written, n_rows, run = 0, request.scores.run.n_rows, request.scores.run
    with (
        _folder(out) as folder,
        new_table(out, Path(folder), request.schema()) as writer,
        show_step("exporting", n_rows, "rows") as advance,
    ):
        for n, piece in request.tables():
            with resource_errors(local_path(out)):
                writer.write(piece)
            written += len(piece)
            advance(n)
    sources = {source.data for source in request.extra.values()}
    return Exported(
        output=run.output,
        out=str(out),
        n_rows=n_rows,
        n_written=written,
        columns=request.columns,
        beside=", ".join(sorted(sources)) or None,
        finished=request.scores.finished,
    )


def _folder(out: str | Path) -> AbstractContextManager[str | Path]:
    """The temporary folder of the table."""
    path = path_on_disk(out)
    if path is None:
        return tempfile.TemporaryDirectory(prefix="dcpred-export-")
    return nullcontext(path.absolute().parent)


def _request(
    output: str | Path,
    beside: Sequence[str],
    status: Sequence[str] | None,
    columns: Sequence[str] | None,
    partial: bool,
) -> _Request:
    """Raises RefusedErrors."""
    for what, given in (("columns", columns), ("status", status)):
        if given is not None and not given:
            raise SettingsError(f"Cannot export no {what}: the table would be empty. Name some, or omit it.")
    statuses = None if status is None else _statuses(status)
    scores = open_stored(output, partial=partial)
    fields = run_fields(scores.run.output, scores.columns, scores.arrays)
    sources = _beside(scores, beside, columns is None)
    chosen = [name for name in fields if name not in MADE_HERE]
    if columns is not None:
        by_output = {
            name: [field.name for field in fields.values() if field.needs == name] for name in columns
        }
        chosen = [column for name in columns for column in by_output[name] or [name]]
    if columns is None and not beside and not sources:
        chosen = [ROW, *chosen]
    for name in chosen:
        if name not in fields:
            raise SettingsError(
                f"Cannot export column {name!r}: {scores.run.output} has {', '.join(fields)}. Name some"
                " of these, and others by --with."
            )
    names = [*(name for source in sources for name in source.names), *chosen]
    if twice := doubled(names):
        raise SettingsError(
            f"Cannot export two columns called {twice}: each needs its own name."
            " Omit one of them, by --with and --columns."
        )
    extra = {name: source for source in sources for name in source.names}
    return _Request(scores, fields, extra, names, statuses)


def _statuses(names: Sequence[str]) -> list[int]:
    known = {status.name.lower(): int(status) for status in Status}
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(
            f"Cannot select rows of status {unknown[0]!r}: there is no such status. Name some of"
            f" {', '.join(known)}."
        )
    return [known[name] for name in names]


def _beside(scores: StoredScores, asked: Sequence[str], ids: bool) -> list[Beside] | list[StoredIds]:
    """Columns of data sets in the requested order; with `ids` and without a request, the ids in Parquet files
    of the run, else those that import stored.
    """
    if not asked:
        if ids and scores.finished and scores.run.ids and scores.run.delta is None:
            return [StoredIds(scores.run)]
        stored = imported_ids(scores.run) if ids else None
        return [] if stored is None else [stored]
    parsed = [parse_beside(text) for text in asked]
    return [find_beside(scores.run, data, names) for data, names in parsed]


# -- Columns next to the scores ------------------------------------------------------------------------------


TARGET = "y"  # the array of a data set that is not an id
# DATA, which may hold colons, and names after the last one; a name in double quotes may hold any character.
FORM = re.compile(r'(?:(?P<data>.+):(?!//))?(?P<names>(?:"(?:[^"]|"")*"|[^:"])+)')


class OtherRowsError(DataError):
    """A data set holds other rows than the scored ones."""


def parse_beside(text: str) -> tuple[str | None, list[str]]:
    """[DATA:]NAME,NAME as (DATA, names). Raises SettingsError."""
    match = FORM.fullmatch(text)
    names = [] if match is None else next(csv.reader([match["names"]], skipinitialspace=True), [])
    names = [name.strip() for name in names]
    if match is None or not names or not all(names):
        raise SettingsError(
            f"Cannot add columns {text!r}: it names none. Write DATA:NAME,NAME,"
            " or NAME,NAME for those of the scored data."
        )
    return match["data"], names


def find_beside(run: ScoreRun, data: str | None, names: Sequence[str]) -> Beside:
    """Columns of a data set by their names (`find_columns`). Raises DataError, also if the scored data set
    holds other rows now.
    """
    source = find_columns(run.x, run.n_rows, data, names, elsewhere=True)
    if is_scored(run.x, data):
        _check_same_rows(run, source.data, source.arrays)
    return source


def imported_ids(run: ScoreRun) -> Beside | None:
    """The ids that import stored for the scored rows; None if there are none, or they were removed, which
    a remark reports. Raises DataError if they are of other rows.
    """
    there: set[str] = set()
    try:
        there = set(arrays_beside(run.x))
        if names := stored_ids(run.x):
            return find_beside(run, None, names)
    except OtherRowsError:
        raise
    except DcpredError:
        pass
    recorded = open_ledger(run.output).recorded_input().get("arrays")
    lost = [name for name in recorded if name not in {*there, TARGET}] if isinstance(recorded, dict) else []
    if lost and isinstance(run.x, TableAddress) and (ids := [name for name in _ids(run) if name in lost]):
        raise DataError(
            f"Cannot add {listed(ids)} to the scores of {run.output}: {run.x}, where the ids of its"
            f" rows lie, was removed. Restore it, add --with DATA:{ids[0]} if it was moved, or export the"
            " scores alone by naming their --columns, for example row,label."
        )
    if lost:
        what = (
            f"the table has no ids of its rows: {listed(lost)} was next to {run.x} during scoring, and was"
            " removed"
        )
        do = f"if the data were moved, add --with DATA:{lost[0]}"
        add_remarks(remark("lost-ids", what, do, columns=lost, file=run.x))
    return None


def _ids(run: ScoreRun) -> Sequence[str]:
    """The ids in the schema of the model of a run; none where it cannot be opened."""
    try:
        schema = open_artifact(run.model).schema
    except DcpredError:
        return ()
    return () if schema is None else schema.ids


def _check_same_rows(run: ScoreRun, where: str, arrays: Mapping[str, zarr.Array[Any]]) -> None:
    """Raise OtherRowsError if X, or one of these arrays next to it, was rewritten after scoring. An array
    that was added later is not checked.
    """
    ledger = open_ledger(run.output)
    changed = [] if ledger.has_same_input() else ["X"]
    recorded = ledger.recorded_input()
    changed += [name for name, a in arrays.items() if same_rows(recorded, a, run.n_rows, name) is False]
    if changed:
        again = "Score the data again"
        if "X" not in changed:  # A run with the same rows would do nothing.
            again = "Score the data into a new directory (`dcpred refresh --full` for a run of a refresh)"
        raise OtherRowsError(
            f"Cannot add columns of {where} to the scores of {run.output}: {' and '.join(changed)}"
            f" changed since the rows were scored, and may be of other rows. {again}, or export the scores"
            " alone by naming their --columns, for example row,status"
        )
