"""Totals of a run's commit records: over its rows in a few groups of blocks, and by worker. Records are read
once and not stored.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcpred_tasks.artifacts.commit_records import CommitRecord
from dcpred_tasks.dtypes import IntArray, Status
from dcpred_tasks.scoring.statistics import HISTOGRAM, unpack

GROUPS = 40
PHASES = ("read", "score", "statistics", "write")
OK = str(int(Status.OK))


@dataclass
class Group:
    """Successive blocks."""

    first: int
    """Their first row."""
    stop: int = 0
    """The row after their last."""
    rows: int = 0
    good: int = 0
    """Rows with a score."""
    sums: dict[str, IntArray] = field(default_factory=dict)
    """Counts of their statistics: labels, leaf_rows (of sampled rows), decision (flat)."""

    @property
    def middle(self) -> float:
        return (self.first + self.stop) / 2


@dataclass
class Worker:
    """The work of one worker process."""

    blocks: int = 0
    rows: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    peak_bytes: int = 0

    @property
    def rate(self) -> float:
        """Rows per second of work."""
        spent = sum(self.seconds.values())
        return self.rows / spent if spent > 0 else 0.0


@dataclass
class Gathered:
    """The totals of all records."""

    groups: list[Group] = field(default_factory=list)
    workers: dict[str, Worker] = field(default_factory=dict)
    """By the name of their process."""
    status: dict[str, int] = field(default_factory=dict)
    """Rows by status code."""
    bad_rows: list[tuple[int, int, int]] = field(default_factory=list)
    """The first rows without a score: row, status code, first bad feature or −1."""
    quarantined: list[str] = field(default_factory=list)
    """A few of the reasons for skipped rows."""
    n_blocks: int = 0
    taken_over: int = 0
    """Blocks that a refresh reused from earlier runs."""
    retries: int = 0

    def total(self, name: str) -> IntArray | None:
        """A count over all groups; None if no record has it."""
        found = [group.sums[name] for group in self.groups if name in group.sums]
        return np.sum(found, axis=0) if found else None


LISTED_ROWS, LISTED_REASONS = 20, 5


def gather(records: Iterable[CommitRecord], n_blocks: int) -> Gathered:
    """n_blocks  of the whole run, finished or not"""
    found = Gathered()
    groups: dict[int, Group] = {}
    for record in records:
        number = record.block * GROUPS // max(n_blocks, GROUPS)
        group = groups.setdefault(number, Group(record.start))
        n, good = record.stop - record.start, record.status.get(OK, 0)
        group.stop, group.rows, group.good = record.stop, group.rows + n, group.good + good
        _add_statistics(group, record.statistics)
        found.n_blocks += 1
        found.retries += record.retries
        for code, rows in record.status.items():
            found.status[code] = found.status.get(code, 0) + rows
        found.bad_rows += record.bad_rows[: LISTED_ROWS - len(found.bad_rows)]
        if record.quarantined and len(found.quarantined) < LISTED_REASONS:
            found.quarantined.append(record.quarantined)
        if record.origin:
            found.taken_over += 1
        else:
            _add_work(found.workers.setdefault(record.process, Worker()), record, n)
    found.groups = [groups[number] for number in sorted(groups)]
    return found


def _add_work(worker: Worker, record: CommitRecord, n_rows: int) -> None:
    spent = record.statistics.get("seconds", 0.0)
    spent = float(spent) if isinstance(spent, int | float) else 0.0
    for phase, seconds in zip(
        PHASES, (record.read_seconds, record.score_seconds, spent, record.write_seconds), strict=True
    ):
        worker.seconds[phase] += seconds
    worker.blocks += 1
    worker.rows += n_rows
    worker.peak_bytes = max(worker.peak_bytes, record.peak_memory_bytes)


def _add_statistics(group: Group, statistics: dict[str, Any]) -> None:
    """Readable counts of the same length as those of other blocks."""
    for name in ("labels", "leaf_rows", HISTOGRAM):
        try:
            summary = statistics[name]
            counts = np.array(summary, np.int64) if isinstance(summary, list) else unpack(summary)
        except (KeyError, TypeError, ValueError, OverflowError, zlib.error):
            continue
        if counts.ndim != 1 or not len(counts):
            continue
        before = group.sums.get(name)
        if before is None or len(before) == len(counts):
            group.sums[name] = counts if before is None else before + counts
