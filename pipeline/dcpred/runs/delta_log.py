"""What the log of a Delta table states about one delivery: where its rows are now.

Files of a table never change. So each of these facts stays true, whatever is written later:

- A file of the delivery holds the rows of one block. Its name states block, values and bytes.
- A commit without a change of data (OPTIMIZE) moves rows: the files that it adds hold, together, what the
  files that it removes held.
- Any other commit that removes such a file may have kept some of its rows in the files that it adds, as they
  were (DELETE) or changed (UPDATE, MERGE). Only the rows themselves can show that.
- RESTORE adds no new file.

The facts are collected from the first transaction of the delivery on; those whose files are all active now
count. Where the log was cleaned up, the facts are incomplete, which `Trace` states.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from dcpred_tasks.storage.addresses import DELTA_LOG
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import Retrying

# Earlier versions did not name the values.
NAME = re.compile(r"([0-9a-f]{32})-(\d{6,})-(?:([0-9a-f]{8})-)?([0-9a-f]{8})\.parquet")
DELIVERY, DATA = "dcpred_delivery", "dcpred_data"  # properties of a commit


class Delivered(NamedTuple):
    """What the name of a file of a delivery states."""

    delivery: str
    block: int
    values: str
    """Start of a digest of the values of its rows; "" in names by earlier versions."""
    bytes: str
    """Start of the digest of the file."""

    @property
    def name(self) -> str:
        values = f"{self.values}-" if self.values else ""
        return f"{self.delivery}-{self.block:06d}-{values}{self.bytes}.parquet"


def delivered(name: str) -> Delivered | None:
    """None for a file that no delivery of dcpred added."""
    match = NAME.fullmatch(name)
    return None if match is None else Delivered(match[1], int(match[2]), match[3] or "", match[4])


@dataclass
class Commit:
    """A commit of the log; each file with whether its rows changed."""

    version: int
    operation: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    added: dict[str, bool] = field(default_factory=dict)
    removed: dict[str, bool] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    @property
    def moves(self) -> bool:
        """Whether it changes no data."""
        return not any((*self.added.values(), *self.removed.values()))


def _parsed(version: int, data: bytes) -> Commit:
    entry = Commit(version)
    for line in data.decode().splitlines():
        for kind, value in (json.loads(line) if line.strip() else {}).items():
            if kind == "commitInfo":
                entry.info, entry.operation = value, str(value.get("operation", ""))
            elif kind == "add":
                entry.added[unquote(value["path"])] = bool(value.get("dataChange", True))
            elif kind == "remove":
                entry.removed[unquote(value["path"])] = bool(value.get("dataChange", True))
            elif kind == "txn":
                entry.transactions[value["appId"]] = int(value["version"])
    return entry


@dataclass
class Trace:
    """Where the rows of a delivery are.

    complete  whether the log states all that happened since the first transaction of the delivery
    held      sets of files that hold, together, exactly the rows of some files of the delivery
    doubtful  files that may hold some of its rows
    altered   those of them whose rows may be changed
    reason    the last commit that removed rows of the delivery
    data      the input of the first transaction; "" if it is unknown
    """

    complete: bool
    held: dict[frozenset[str], Counter[str]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    altered: set[str] = field(default_factory=set)
    reason: str = ""
    data: str = ""


def trace(place: Place, delivery: str, version: int) -> Trace:
    """The trace of a delivery up to a version of the table in this place."""
    commits: list[Commit] = []
    complete = False
    for number in range(version, -1, -1):
        name = f"{DELTA_LOG}/{number:020d}.json"
        stored = Retrying()(lambda name=name: place.read(name))  # type: ignore[misc]
        try:
            commit = None if stored is None else _parsed(number, stored.data)
        except (ValueError, KeyError, TypeError, AttributeError):
            commit = None
        if commit is None:
            break
        commits.append(commit)
        complete = number == 0 or commit.transactions.get(delivery) == 1
        if complete:
            break
    traced, active = Trace(complete), set[str]()
    for commit in reversed(commits):
        active = _followed(traced, active, commit, delivery)
    return traced


def _followed(trace: Trace, active: set[str], commit: Commit, delivery: str) -> set[str]:
    """Add the facts of a commit. Returns the active files that may hold rows of the delivery.

    active  those before the commit
    """
    if not trace.data and commit.info.get(DELIVERY) == delivery:
        trace.data = str(commit.info.get(DATA, ""))
    known = {*trace.doubtful, *(file for files in trace.held for file in files)}
    removed = commit.removed.keys() & active
    live = [files for files in trace.held if files <= active and files & removed]
    new = [path for path in commit.added if path not in known]
    others = []
    for path in new:
        name = delivered(path)
        if name is not None and name.delivery == delivery:
            trace.held[frozenset([path])] = Counter([path])
        else:
            others.append(path)
    if live and not commit.moves and commit.info.get(DELIVERY) != delivery:
        trace.reason = f"{commit.operation or 'a commit'} removed rows of it (version {commit.version:,})"
    if removed and others and commit.operation != "RESTORE":
        if commit.moves and removed <= frozenset().union(*live):
            files = frozenset().union(*live) - removed | frozenset(others)
            trace.held[files] = sum((trace.held[file] for file in live), Counter[str]())
        else:
            trace.doubtful.update(others)
            cut = commit.operation in ("DELETE", "OPTIMIZE") and not removed & trace.altered
            trace.altered.update(() if cut else others)
    known = {*trace.doubtful, *(file for files in trace.held for file in files)}
    return (active - commit.removed.keys()) | (commit.added.keys() & known)
