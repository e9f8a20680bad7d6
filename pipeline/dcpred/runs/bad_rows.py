"""Rows of an output without a score, and the reasons."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.execution.progress import counted
from dcpred.public.functions import typed
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.result_fields import Listing, Unit, result_class, result_field
from dcpred_tasks.scoring.statistics import why_unscored
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import read_address


@dataclass(frozen=True)
class BadRowLimit:
    """The limit of rows without a score in a run. Raises SettingsError."""

    rows: int | None = None
    """The largest number of them; None: no limit."""
    fraction: float | None = None
    """The largest fraction of all rows, 0 to 1; None: no limit."""

    def __post_init__(self) -> None:
        if self.rows is not None and (self.rows != int(self.rows) or self.rows < 0):
            raise SettingsError(
                f"Cannot set max_bad_rows to {self.rows}: it counts rows. Use an integer of 0 or more, or"
                " max_bad_fraction for a fraction of all rows."
            )
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise SettingsError(
                f"Cannot set max_bad_fraction to {self.fraction}: it is a fraction of all rows. Use 0 to 1,"
                " or max_bad_rows for a number of rows."
            )

    def exceeded(self, n_bad: int, n_rows: int) -> str:
        """The start of a sentence on the limit that n_bad rows exceed; "" if they exceed none."""
        have = f"{counted(n_bad, 'row has', 'rows have')} no score"
        if self.rows is not None and n_bad > self.rows:
            return f"{have}, but at most {self.rows:,} of {n_rows:,} may have none (max_bad_rows)"
        if self.fraction is not None and n_bad > self.fraction * n_rows:
            return f"{have}, but at most {self.fraction:g} of {n_rows:,} may have none (max_bad_fraction)"
        return ""


NO_LIMIT = BadRowLimit()


def without_score(status: Mapping[str, int]) -> int:
    """Rows with a status other than 1, from counts by status code."""
    return sum(n for code, n in status.items() if code != str(int(Status.OK)))


def has_scores(manifest: Mapping[str, Any]) -> bool:
    """Whether a row of a finished run has a score."""
    return bool(manifest["status"].get(str(int(Status.OK))))


def no_row_scored(manifest: Mapping[str, Any]) -> str:
    """Why no row of a finished run has a score, as the start of a sentence; "" if one has."""
    if has_scores(manifest):
        return ""
    counts = {int(code): n for code, n in manifest["status"].items()}
    listed = Counter((code, feature) for _, code, feature in manifest["bad_rows"])
    return why_unscored(counts, listed, feature_names(open_array(read_address(manifest["x"]))))


def names_of_features(run: ScoreRun, features: Iterable[int | None]) -> dict[int, str]:
    """Names of those of these features that the input of a run names."""
    wanted = {feature for feature in features if feature is not None and feature >= 0}
    if not wanted:
        return {}
    try:
        names = feature_names(open_array(run.x)) or ()
    except (DataError, OSError):  # The input may be gone; its rows are still listed by number.
        names = ()
    return {feature: names[feature] for feature in wanted if feature < len(names)}


def unscored_text(status: str, feature: int | None, name: str | None) -> str:
    """Why a row has no score."""
    blame = "" if feature is None or feature < 0 else f" {feature}" if name is None else f" {name!r}"
    return status.replace("_", " ") + blame


@result_class
class BadRow:
    """A row without a score."""

    block: int = result_field("Number of the block, from 0.", unit=Unit.COUNT, column="block")
    row: int = result_field("Number of the row in X, from 0.", unit=Unit.COUNT, column="row")
    code: int = result_field("Status code.", unit=Unit.COUNT, column="code")
    status: str = result_field(
        "Name of that status.",
        column="status",
        text=lambda r: unscored_text(r["status"], r["feature"], r["feature_name"]),
        unit=Unit.TEXT,
    )
    feature: int | None = result_field(
        "Number of the first feature that is not finite; None if there is none or it was not recorded."
    )
    feature_name: str | None = result_field(
        "Name of that feature; None without one, or if the input cannot be read.", default=None
    )


def _bad_text(r: Mapping[str, Any]) -> str:
    left = r["n_blocks"] - r["done_blocks"]
    undone = f"; {left:,} of {r['n_blocks']:,} blocks are not done yet" if left else ""
    if not r["n_bad"]:
        return f"every row of the finished blocks has a score{undone}"
    kinds = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in r["status"].items())
    return f"{r['n_bad']:,} of {r['n_rows']:,} rows have no score: {kinds}{undone}"


def _bad_listing(r: Mapping[str, Any]) -> Listing:
    more = f"and {r['n_more']:,} more; use a larger --limit, and --all where a block has many"
    return Listing(r["rows"], more=more if r["n_more"] else "")


@result_class
class BadRows:
    """Rows without a score in finished blocks, the first of them by block and row."""

    output: str = result_field("Path or address of the output.")
    n_rows: int = result_field("Number of rows of X.")
    n_blocks: int = result_field("Number of blocks of the run.")
    done_blocks: int = result_field("Number of blocks with a commit record.")
    n_bad: int = result_field("Number of rows without a score in those blocks.", line="rows", text=_bad_text)
    status: dict[str, int] = result_field("Number of these rows by the name of their status.")
    rows: list[BadRow] = result_field("The listed rows.", table=_bad_listing)
    n_more: int = result_field("Number of rows without a score beyond the listed ones.")


@typed
def errors(output: str | Path, limit: int = 100, *, every: bool = False) -> BadRows:
    """List the rows of an output that have no score: block, row, status, and the feature to blame.

    Parameters
    ----------
    output : str or Path
        The output of `score`.
    limit : int, default 100
        Maximum number of rows to list.
    every : bool, default False
        Also search the status array. By default only the first rows that each block records are listed.

    Returns
    -------
    BadRows
        The rows, and their number by status.

    Raises
    ------
    PlanConflictError
        If it is not an output of `score`.

    Notes
    -----
    It works during scoring, and needs neither the model nor the data.
    """
    ledger = open_ledger(output)
    names = {str(int(s)): s.name.lower() for s in Status}
    total, done = Counter[str](), 0
    for record in ledger.records():
        done += 1
        total.update(record.status)
    counts = {names[code]: n for code, n in total.items() if code != str(int(Status.OK))}
    listed_rows = list(islice(_rows(ledger, every), limit)) if counts else []
    columns = names_of_features(ledger.run, [feature for *_, feature in listed_rows])
    rows = [
        BadRow(block, row, code, names[str(code)], None if feature < 0 else feature, columns.get(feature))
        for block, row, code, feature in listed_rows
    ]
    n_bad = sum(counts.values())
    return BadRows(
        str(output), ledger.run.n_rows, ledger.n_blocks, done, n_bad, counts, rows, n_bad - len(rows)
    )


def _rows(ledger: Ledger, every: bool) -> Iterator[tuple[int, int, int, int]]:
    """Block, row, status code, feature or −1."""
    for record in ledger.records():
        listed = {row: (code, feature) for row, code, feature in record.bad_rows}
        if every and without_score(record.status) > len(listed):
            for row, code in _stored(ledger.run, record.block):
                yield record.block, row, code, listed.get(row, (code, -1))[1]
        else:
            yield from ((record.block, row, code, feature) for row, (code, feature) in listed.items())


def _stored(run: ScoreRun, block: int) -> Iterator[tuple[int, int]]:
    """Rows of a block without a score, and their status, from the status array."""
    array = open_array(run.array("status"))
    for start, stop in run.chunks(block):
        status = zarr_arrays.read_rows(array, start, stop)
        for i in np.flatnonzero(status != Status.OK):
            yield start + int(i), int(status[i])
