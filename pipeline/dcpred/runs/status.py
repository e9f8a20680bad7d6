"""How far a run is."""

import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from dcpred.execution.lease import lock_holder
from dcpred.execution.progress import counted, duration
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult, and_more
from dcpred.runs.bad_rows import without_score
from dcpred.runs.delta_rows import delta_table
from dcpred.runs.ledger import FailedBlock, Ledger, open_ledger
from dcpred.runs.manifest import run_remarks
from dcpred.runs.shards import Shard, known_shards, shards_at_work
from dcpred_tasks.artifacts.commit_records import list_records
from dcpred_tasks.result_fields import Unit, result_class, result_field

RATE_SECONDS = 600.0  # time span of the rate, which thus follows changing workers


@result_class
class ShardStatus:
    """A shard that began."""

    shard: str = result_field("The shard, as i/n.")
    driver: str = result_field('Host and process of its driver; "" without one.')
    n_blocks: int = result_field("Number of its blocks.")
    done_blocks: int = result_field("Number of its blocks with a commit record.")


LIMITED = ", with a higher limit if it ended at --max-bad-rows or --max-bad-fraction"
SHARDS_SHOWN, FAILING_SHOWN = 8, 5


def _state_text(r: Mapping[str, Any]) -> str:
    return {
        "finished": "finished",
        "scoring": f"scoring, driven by {r['driver']}",
        "stopped": f"stopped; {how_to_resume(r['shards'])}{LIMITED}",
    }[str(r["state"])]


def how_to_resume(shards: Sequence[Mapping[str, Any]]) -> str:
    """What scores the blocks that are left, where these shards began (ShardStatus)."""
    done = {shard["shard"] for shard in shards if shard["done_blocks"] == shard["n_blocks"]}
    counts = {int(shard["shard"].partition("/")[2]) for shard in shards}
    if len(counts) != 1:
        return "run the same `dcpred score` again to resume"
    names = (str(Shard(index, count)) for count in counts for index in range(count))
    left = [name for name in names if name not in done]
    shown = and_more(left[:SHARDS_SHOWN], len(left))
    return f"run the same `dcpred score` again for each shard that has blocks left: --shard {shown}"


def _speed_text(r: Mapping[str, Any]) -> str | None:
    rate, left = r["rows_per_second"], r["seconds_left"]
    return f"{rate:,.0f} rows/s lately; {duration(left)} left at that speed" if rate else None


def _commit_text(r: Mapping[str, Any]) -> str | None:
    silent = r["seconds_since_commit"]
    return None if silent is None or r["state"] == "finished" else f"{duration(silent)} ago"


def _shards_text(r: Mapping[str, Any]) -> list[str]:
    """Shards that are at work or have blocks left, the first few by name."""
    if r["state"] == "finished" or not r["shards"]:
        return []
    busy = [s for s in r["shards"] if s["driver"] or s["done_blocks"] < s["n_blocks"]]
    texts = [f"{len(r['shards']):,} have begun, {sum(bool(s['driver']) for s in busy):,} at work"]
    texts += [
        f"{s['shard']}: {s['done_blocks']:,} of {s['n_blocks']:,} blocks, "
        + (s["driver"] or "stopped; run it again to resume")
        for s in busy[:SHARDS_SHOWN]
    ]
    return texts + ([f"and {len(busy) - SHARDS_SHOWN:,} more"] if len(busy) > SHARDS_SHOWN else [])


def _blocks_text(r: Mapping[str, Any]) -> str:
    done, n_blocks = r["done_blocks"], r["n_blocks"]
    return f"{done:,} of {n_blocks:,} done, {n_blocks - done:,} left"


def _unscored_text(r: Mapping[str, Any]) -> str | None:
    rows = r["without_score"]
    return f"{counted(rows, 'row', 'rows')}: `dcpred errors {r['output']}` lists them" if rows else None


def _rows_text(r: Mapping[str, Any]) -> str:
    return f"{r['done_rows']:,} of {r['n_rows']:,} ({100 * r['done_rows'] / r['n_rows']:.1f} %)"


@result_class
class RunStatus(PublicResult):
    """The progress of the run of one output."""

    output: str = result_field("Path or address of the output.", unit=Unit.TEXT, line="output")
    state: str = result_field(
        "finished, scoring (it has a driver), or stopped (run the same command again).",
        line="state",
        text=_state_text,
    )
    driver: str = result_field(
        'The driver of the whole run, or the number of shards at work; "" if there is none.'
    )
    n_rows: int = result_field("Number of rows.")
    n_blocks: int = result_field("Number of blocks.", line="blocks", text=_blocks_text)
    done_blocks: int = result_field("Number of blocks with a commit record.")
    done_rows: int = result_field("Number of rows of those blocks.", line="rows", text=_rows_text)
    rows_per_second: float = result_field(
        "Rate over the last ten minutes of commits, in rows per second; 0 if fewer than two blocks"
        " were committed then.",
        line="speed",
        text=_speed_text,
    )
    seconds_left: float | None = result_field("Time left at that rate, in seconds; None if it is unknown.")
    seconds_since_commit: float | None = result_field(
        "Time since the last commit, in seconds; None before the first.",
        line="last commit",
        text=_commit_text,
    )
    failing: list[dict[str, Any]] = result_field(
        "Failed blocks that are not done since.",
        of=FailedBlock,
        line="failing",
        text=lambda r: [f"block {f['block']}: {f['error']}" for f in r["failing"][:FAILING_SHOWN]],
    )
    without_score: int | None = result_field(
        "Number of rows without a score; None before the run is finished.",
        line="without a score",
        text=_unscored_text,
    )
    shards: list[dict[str, Any]] = result_field(
        "Shards that began.", of=ShardStatus, line="shards", text=_shards_text
    )
    delta: str | None = result_field(
        "Path or address of the Delta table that gets its rows, also those of a copy; None without one.",
        unit=Unit.TEXT,
        line="Delta table",
    )


def run_status(output: str | Path) -> RunStatus:
    """Raises PlanConflictError if `output` is not an output of scoring."""
    ledger = open_ledger(output)
    run = ledger.run
    times = {block: entry.time for block, entry in list_records(run).items()}
    done = sorted(times)
    n_done = sum(stop - start for start, stop in map(run.rows, done))
    manifest = ledger.manifest()
    finished = manifest is not None
    shards = _shards(ledger, times, finished)
    at_work = sum(bool(shard["driver"]) for shard in shards)
    driver = "" if finished else lock_holder(ledger.place)
    if at_work and not driver:
        driver = counted(at_work, "shard", "shards")
    rate = _rate({block: (times[block], run.rows(block)) for block in done})
    add_remarks(*([] if manifest is None else run_remarks(manifest, run.output)), fails=False)
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
        without_score=without_score(manifest["status"]) if manifest and "status" in manifest else None,
        shards=shards,
        delta=delta_table(ledger),
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
