"""The progress of a scoring run, from its output directory alone, also while another process drives it."""

import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcpred.execution.held_places import lock_holder
from dcpred.execution.progress import counted
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.shards import known_shards, shards_at_work
from dcpred_tasks.artifacts.commit_records import list_records

RATE_SECONDS = 600.0  # time span of the rate, which thus follows changing workers


@dataclass(frozen=True)
class RunStatus:
    """The progress of the run of one output."""

    output: str
    state: str
    """finished, scoring (it has a driver), or stopped (run the same command again)."""
    driver: str
    """The driver of the whole run, or the number of shards at work; "" if there is none."""
    n_rows: int
    n_blocks: int
    done_blocks: int
    """Blocks with a commit record."""
    done_rows: int
    """Rows of those blocks."""
    rows_per_second: float
    """Rate over the last RATE_SECONDS of commits; 0 if fewer than two blocks were committed then."""
    seconds_left: float | None
    """Time left at that rate; None if it is unknown."""
    seconds_since_commit: float | None
    """Time since the last commit; None before the first."""
    failing: list[dict[str, Any]]
    """Failed blocks that are not done since: block, rows, error, deaths, time (s since 1970)."""
    shards: list[dict[str, Any]]
    """Shards that began: shard (i/n), driver ("" without one), n_blocks, done_blocks."""


def run_status(output: str | Path) -> RunStatus:
    """Raises PlanConflictError if `output` is not an output of scoring."""
    ledger = open_ledger(output)
    run = ledger.run
    times = {block: entry.time for block, entry in list_records(run).items()}
    done = sorted(times)
    n_done = sum(stop - start for start, stop in map(run.rows, done))
    finished = ledger.manifest() is not None
    shards = _shards(ledger, times, finished)
    at_work = sum(bool(shard["driver"]) for shard in shards)
    driver = "" if finished else lock_holder(ledger.place)
    if at_work and not driver:
        driver = counted(at_work, "shard", "shards")
    rate = _rate({block: (times[block], run.rows(block)) for block in done})
    latest = max(times.values(), default=None)
    left = run.n_rows - n_done
    return RunStatus(
        output=run.output,
        state="finished" if finished else "scoring" if driver else "stopped",
        driver=driver,
        n_rows=run.n_rows,
        n_blocks=ledger.n_blocks,
        done_blocks=len(done),
        done_rows=n_done,
        rows_per_second=0.0 if finished else rate,
        seconds_left=0.0 if finished else left / rate if rate else None,
        seconds_since_commit=None if latest is None else max(time.time() - latest, 0.0),
        failing=[failure for failure in ledger.failures() if failure["block"] not in times],
        shards=shards,
    )


def _shards(ledger: Ledger, done: Container[int], finished: bool) -> list[dict[str, Any]]:
    known = known_shards(ledger.place)
    drivers = {} if finished else dict(shards_at_work(ledger.place, known))
    return [
        {
            "shard": str(shard),
            "driver": drivers.get(shard, ""),
            "n_blocks": len(shard.blocks(ledger.n_blocks)),
            "done_blocks": sum(block in done for block in shard.blocks(ledger.n_blocks)),
        }
        for shard in known
    ]


def _rate(commits: dict[int, tuple[float, tuple[int, int]]]) -> float:
    """Rows per second of the commits of the last minutes before the last one: (time, rows) by block."""
    if not commits:
        return 0.0
    last = max(at for at, _ in commits.values())
    recent = sorted((at, stop - start) for at, (start, stop) in commits.values() if at >= last - RATE_SECONDS)
    span = recent[-1][0] - recent[0][0]
    return sum(n for _, n in recent[1:]) / span if span > 0 else 0.0
