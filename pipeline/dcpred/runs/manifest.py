"""What is said of a finished run: the manifest that it leaves, and the report that its caller gets."""

import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dcpred.plan import BlockPlan
from dcpred.runs.ledger import FORMAT, VERSION, Ledger
from dcpred.runs.statistics import describe_run
from dcpred_tasks.artifacts.commit_records import BlockReceipt, ScoreRun
from dcpred_tasks.dtypes import Status
from dcpred_tasks.process import peak_memory_bytes, versions
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.task_bodies.score_block import LISTED_ROWS


@dataclass(frozen=True)
class Done:
    """Blocks that were scored, and the seconds that took."""

    blocks: int
    seconds: float


@dataclass(frozen=True)
class ScoreReport:
    """What came of a scoring run. `status` counts rows by status code."""

    output: str
    n_rows: int
    n_blocks: int
    scored_blocks: int  # by this call; the others were there
    seconds: float  # of the whole call
    rows_per_second: float  # while scoring, without the start of the workers; 0 where there was nothing to do
    status: dict[str, int]
    bad_rows: list[tuple[int, int, int]]  # row, status code, feature or -1
    worker_peak_memory_bytes: dict[str, int]  # by process, host:pid
    driver_peak_memory_bytes: int
    manifest: dict[str, Any]


def make_manifest(
    ledger: Ledger, plan: BlockPlan, scored: int, input_run: str | None = None
) -> dict[str, Any]:
    """The manifest, sealed. `input_run` is the hash that a plan of the input would have now, where that has
    changed since.
    """
    value = {
        "format": FORMAT,
        "version": VERSION,
        **asdict(ledger.run),
        "n_blocks": plan.n_blocks,
        **totals(ledger.receipts()),
        **describe_run(ledger.run, ledger.receipts()),
        "plan": plan_digest(ledger),
        "metadata": metadata_digests(ledger.run),
        "input_changed": input_run not in (None, ledger.run.run),
        "input_run": input_run or ledger.run.run,
        "scored_blocks_last_call": scored,
        "versions": versions(),
        "machine": platform.machine(),
    }
    return {**value, "checksum": digest_json(value)}


def totals(receipts: Iterable[BlockReceipt]) -> dict[str, Any]:
    """What a manifest says of the commit records together. They are gone through once and not kept."""
    status: dict[str, int] = {}
    bad: list[tuple[int, int, int]] = []
    peaks: dict[str, int] = {}
    seconds = {"read": 0.0, "score": 0.0, "statistics": 0.0, "write": 0.0}
    digests: list[str] = []
    for receipt in receipts:
        digests.append(receipt.digest)
        spent = (
            receipt.read_seconds,
            receipt.score_seconds,
            receipt.statistics.get("seconds", 0.0),
            receipt.write_seconds,
        )
        seconds = {phase: before + more for (phase, before), more in zip(seconds.items(), spent, strict=True)}
        peaks[receipt.process] = max(peaks.get(receipt.process, 0), receipt.peak_memory_bytes)
        for code, n in receipt.status.items():
            status[code] = status.get(code, 0) + n
        bad += receipt.bad_rows[: LISTED_ROWS - len(bad)]
    return {
        "status": status,
        "status_names": {str(int(s)): s.name.lower() for s in Status if str(int(s)) in status},
        "bad_rows": bad,
        "digest": digest("".join(digests).encode()),
        "worker_seconds": seconds,
        "worker_peak_memory_bytes": peaks,
    }


def plan_digest(ledger: Ledger) -> str:
    return digest((ledger.root / "plan.json").read_bytes())


def metadata_digests(run: ScoreRun) -> dict[str, str]:
    """Digests of the metadata of the output group ("") and its arrays, where they are there."""
    files = {name: run.scores / name / "zarr.json" for name in ("", *run.arrays)}
    return {name: digest(file.read_bytes()) for name, file in files.items() if file.is_file()}


def make_report(
    run: ScoreRun, plan: BlockPlan, done: Done, seconds: float, manifest: dict[str, Any]
) -> ScoreReport:
    rows = min(done.blocks * plan.block_rows, plan.n_rows)
    return ScoreReport(
        output=run.output,
        n_rows=plan.n_rows,
        n_blocks=plan.n_blocks,
        scored_blocks=done.blocks,
        seconds=seconds,
        rows_per_second=rows / done.seconds if done.blocks else 0.0,
        status=manifest["status"],
        bad_rows=manifest["bad_rows"],
        worker_peak_memory_bytes=manifest["worker_peak_memory_bytes"],
        driver_peak_memory_bytes=peak_memory_bytes(),
        manifest=manifest,
    )
