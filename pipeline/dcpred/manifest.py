"""What is said of a finished run: the manifest that it leaves, and the report that its caller gets."""

import platform
from dataclasses import asdict, dataclass
from typing import Any

from dcpred.ledger import FORMAT, VERSION, Ledger
from dcpred.plan import BlockPlan
from dcpred.version import versions
from dcpred_tasks.dtypes import Status
from dcpred_tasks.files import digest
from dcpred_tasks.memory import peak_memory_bytes
from dcpred_tasks.records import ScoreRun
from dcpred_tasks.score_block import LISTED_ROWS


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
    bad_rows: list[tuple[int, int]]
    worker_peak_memory_bytes: dict[str, int]  # by process, host:pid
    driver_peak_memory_bytes: int
    manifest: dict[str, Any]


def make_manifest(ledger: Ledger, plan: BlockPlan, scored: int) -> dict[str, Any]:
    receipts = list(ledger.receipts())
    status: dict[str, int] = {}
    bad: list[tuple[int, int]] = []
    peaks: dict[str, int] = {}
    for receipt in receipts:
        peaks[receipt.process] = max(peaks.get(receipt.process, 0), receipt.peak_memory_bytes)
        for code, n in receipt.status.items():
            status[code] = status.get(code, 0) + n
        bad += receipt.bad_rows[: LISTED_ROWS - len(bad)]
    return {
        "format": FORMAT,
        "version": VERSION,
        **asdict(ledger.run),
        "n_blocks": plan.n_blocks,
        "status": status,
        "status_names": {str(int(s)): s.name.lower() for s in Status if str(int(s)) in status},
        "bad_rows": bad,
        "digest": digest("".join(receipt.digest for receipt in receipts).encode()),
        "scored_blocks_last_call": scored,
        "worker_seconds": {
            "read": sum(r.read_seconds for r in receipts),
            "score": sum(r.score_seconds for r in receipts),
            "write": sum(r.write_seconds for r in receipts),
        },
        "worker_peak_memory_bytes": peaks,
        "versions": versions(),
        "machine": platform.machine(),
    }


def make_report(run: ScoreRun, plan: BlockPlan, done: Done, seconds: float, manifest: dict[str, Any]) -> ScoreReport:
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
