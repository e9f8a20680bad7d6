"""Columns that an export puts next to the scores."""

import csv
import re
from collections.abc import Sequence
from typing import Any

import zarr

from dcpred.execution.progress import Reporter
from dcpred.runs.ledger import arrays_beside, open_ledger, same_rows
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, DcpredError, SettingsError, listed
from dcpred_tasks.storage.addresses import shown, table_address
from dcpred_tasks.tables.extra_columns import Beside, find_columns, is_scored, stored_ids

TARGET = "y"  # the array of a data set that is not an id
# DATA, which may hold colons, and names after the last one; a name in double quotes may hold any character.
FORM = re.compile(r'(?:(?P<data>.+):(?!//))?(?P<names>(?:"(?:[^"]|"")*"|[^:"])+)')


class OtherRowsError(DataError):
    """A data set holds other rows than the scored ones."""


def parse_beside(text: str) -> tuple[str | None, list[str]]:
    """[DATA:]NAME,NAME as (DATA, names). Raises SettingsError."""
    found = FORM.fullmatch(text)
    names = [] if found is None else next(csv.reader([found["names"]], skipinitialspace=True), [])
    names = [name.strip() for name in names]
    if found is None or not names or not all(names):
        raise SettingsError(
            f"Cannot add columns {text!r}: it names none. Write DATA:NAME,NAME,"
            " or NAME,NAME for those of the scored data."
        )
    return found["data"], names


def find_beside(run: ScoreRun, data: str | None, names: Sequence[str]) -> Beside:
    """Columns of a data set by their names (`find_columns`). Raises DataError, also if the scored data set
    holds other rows now.
    """
    found = find_columns(run.x, run.n_rows, data, names, elsewhere=True)
    if is_scored(run.x, data):
        _check_same_rows(run, found.data, found.arrays)
    return found


def kept_ids(run: ScoreRun, say: Reporter) -> Beside | None:
    """The ids that import stored for the scored rows; None if there are none, or they were removed, which
    `say` reports. Raises DataError if they are of other rows.
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
    if lost and table_address(run.x) is not None and (ids := [name for name in _ids(run) if name in lost]):
        raise DataError(
            f"Cannot add {listed(ids)} to the scores of {run.output}: {shown(run.x)}, where the ids of its"
            f" rows lie, was removed. Restore it, add --with DATA:{ids[0]} if it was moved, or export the"
            " scores alone by naming their --columns, for example row,label."
        )
    if lost:
        say.say(
            f"warning: the table has no ids of its rows: {listed(lost)} was next to {shown(run.x)}"
            f" during scoring, and was removed. If the data were moved, add --with DATA:{lost[0]}."
        )
    return None


def _ids(run: ScoreRun) -> Sequence[str]:
    """The ids in the schema of the model of a run; none where it cannot be opened."""
    try:
        schema = open_artifact(run.model).schema
    except DcpredError:
        return ()
    return () if schema is None else schema.ids


def _check_same_rows(run: ScoreRun, where: str, arrays: dict[str, zarr.Array[Any]]) -> None:
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
