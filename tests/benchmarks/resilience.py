"""What surviving costs: resuming, the ledger and its verification, and workers that die.

    python tests/benchmarks/resilience.py [--rows 4000000] [--blocks 1000,10000,100000] [--every 30]
    [--seconds 180]
                                          [--block-rows 65536] [--quick]

resume    seconds until what is left is known (one listing), and of fast verification, by the number of blocks
overhead  seconds of a scoring job by what they go into: commit records, statistics and verification beside
the rest; with
          blocks as they are planned, and with smaller ones, which pay as much for a block
deaths    a worker is killed every so many seconds: work that was lost, seconds from a death to a commit
"""

import argparse
import json
import shutil
import signal
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import Table, covtype, data_folder, write_group

from dcpred.execution import block_plan
from dcpred.execution.pools import connect
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.status import run_status
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.fast_check import FastCheck
from dcpred_tasks.artifacts.commit_records import CommitRecord, commit, list_records, read_record
from dcpred_tasks.task_bodies import score_block

TRAIN_ROWS, CHUNK_ROWS = 20_000, 16_384


def prepare(work: Path, n_rows: int) -> tuple[Path, Path]:
    """A model of covtype and its rows, repeated."""
    X, y = covtype(data_folder())
    n_train = min(TRAIN_ROWS, n_rows // 10)
    group = write_group(work / "train.zarr", X[:n_train], y[:n_train])
    settings = {"scaling": "standard", "n_leaves": 256, "landmarks": 16, "refine_steps": 10}
    train(group, work / "model", settings=settings)
    rows = np.arange(n_rows) % len(X)
    write_group(work / "data.zarr", X[rows], y[rows], CHUNK_ROWS)
    return work / "model", work / "data.zarr"


def resuming(work: Path, output: Path, counts: list[int]) -> Table:
    """Records of one block, multiplied."""
    table = Table(
        "blocks",
        "to know what is left, s",
        "status, s",
        "to read every record and compare, s",
        "of records, MB",
    )
    real = open_ledger(output)
    record = read_record(real.run, 0)
    assert record is not None
    for n_blocks in counts:
        folder = work / f"records-{n_blocks}"
        (folder / "blocks").mkdir(parents=True)
        block_rows = real.run.block_rows
        run = replace(real.run, output=str(folder), n_rows=n_blocks * block_rows)
        shutil.copy(output / "plan.json", folder / "plan.json")
        stored = json.loads((folder / "plan.json").read_text())
        (folder / "plan.json").write_text(json.dumps({**stored, "n_rows": run.n_rows, "output": str(folder)}))
        shutil.copytree(output / "scores.zarr", folder / "scores.zarr")
        _write_records(run, record, n_blocks)
        ledger = Ledger(run, n_blocks)
        begin = time.perf_counter()
        left = ledger.pending()
        listed = time.perf_counter()
        state = run_status(folder)
        asked = time.perf_counter()
        FastCheck(ledger)
        checked = time.perf_counter()
        assert len(left) == n_blocks - len(list_records(run))
        assert state.done_blocks == n_blocks - len(left)
        size = sum(p.stat().st_size for p in (folder / "blocks").iterdir())
        table.add(
            f"{n_blocks:,}",
            f"{listed - begin:.2f}",
            f"{asked - listed:.2f}",
            f"{checked - asked:.1f}",
            f"{size / 1e6:,.0f}",
        )
        shutil.rmtree(folder)
    return table


def _write_records(run: Any, record: CommitRecord, n_blocks: int) -> None:
    """All but one in ten blocks, without waiting for the disk."""
    real = score_block.commit
    assert real is commit
    for block in range(n_blocks):
        if block % 10:
            start, stop = run.rows(block)
            path = Path(run.output, run.record_name(block))
            path.write_text(
                json.dumps({**vars(record), "block": block, "start": start, "stop": stop, "checksum": ""})
            )


def overhead(work: Path, model: Path, data: Path, name: str) -> tuple[Path, Table]:
    """Shares of one scoring job by one worker."""
    output = work / name
    begin = time.perf_counter()
    report = score(model, data, output)
    total = time.perf_counter() - begin
    ledger = open_ledger(output)
    records = list(ledger.records())
    spent = dict(report.manifest["worker_seconds"])
    begin = time.perf_counter()
    FastCheck(ledger)
    verified = time.perf_counter() - begin
    begin = time.perf_counter()
    for record in records:
        run = replace(ledger.run, output=str(work / "again"))
        Path(run.output, "blocks").mkdir(parents=True, exist_ok=True)
        commit(run, record)
    committed = time.perf_counter() - begin
    shutil.rmtree(work / "again")
    table = Table(f"of a scoring job, blocks of {ledger.run.block_rows:,} rows", "s", "%")
    for part, seconds in (*spent.items(), ("commit records", committed), ("verification, fast", verified)):
        table.add(part, f"{seconds:.2f}", f"{100 * seconds / total:.1f}")
    table.add("all", f"{total:.2f}", "100")
    return output, table


def deaths(work: Path, model: Path, data: Path, every: float, seconds: float) -> Table:
    """Jobs one after another, while a worker is killed from time to time: not before a block was committed
    since the last death, as on busy cores workers may take longer to start than `every`.
    """
    killed: list[float] = []
    stopped = threading.Event()

    def commits_after(when: float) -> bool:
        with suppress(FileNotFoundError):  # A job that ended is removed.
            return any(p.stat().st_mtime > when for p in work.glob("death-*/blocks/*.json"))
        return False

    def kill() -> None:
        while not stopped.wait(every):
            if killed and not commits_after(killed[-1]):
                continue
            victims = [
                p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())
            ]
            if victims:
                victims[len(killed) % len(victims)].send_signal(signal.SIGKILL)
                killed.append(time.time())

    commits: list[float] = []
    useful = wall = 0.0
    with connect(2) as workers:
        score(model, data, work / "warm", client=lambda: nullcontext(workers))
        threading.Thread(target=kill, daemon=True).start()
        number, begin = 0, time.monotonic()
        while time.monotonic() - begin < seconds:
            output = work / f"death-{number}"
            once = time.monotonic()
            report = score(model, data, output, client=lambda: nullcontext(workers))
            wall += time.monotonic() - once
            assert report.status == {"1": report.n_rows}
            useful += sum(report.manifest["worker_seconds"].values())
            commits += [p.stat().st_mtime for p in (output / "blocks").glob("*.json")]
            shutil.rmtree(output)
            number += 1
        stopped.set()
        peace = _peace(work, model, data, workers)
    gaps = [min((c for c in commits if c > k), default=k) - k for k in killed]
    columns = (
        "deaths",
        "jobs",
        "useful time of workers, %",
        "in peace, %",
        "from a death to the next commit, s: median",
        "most",
    )
    table = Table(*columns)
    share = 100 * useful / (2 * wall)
    shown = (f"{len(killed)}", f"{number}", f"{share:.0f}", f"{peace:.0f}")
    table.add(*shown, f"{np.median(gaps or [0]):.1f}", f"{max(gaps or [0]):.1f}")
    return table


def _peace(work: Path, model: Path, data: Path, workers: Any) -> float:
    begin = time.monotonic()
    report = score(model, data, work / "peace", client=lambda: nullcontext(workers))
    return 100 * float(sum(report.manifest["worker_seconds"].values())) / (2 * (time.monotonic() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--blocks", default="1000,10000,100000")
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--block-rows", type=int, default=2**16, help="of the smaller blocks")
    parser.add_argument("--work", type=Path, default=Path("benchmark-resilience"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.blocks, args.every, args.seconds = 50_000, "100", 1.5, 2.0
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    model, data = prepare(args.work, args.rows)
    overhead(args.work, model, data, "planned")[1].show()
    print()
    block_plan.BLOCK_ROWS = args.block_rows
    output, shares = overhead(args.work, model, data, "scored")
    shares.show()
    print()
    resuming(args.work, output, [int(n) for n in args.blocks.split(",")]).show()
    print()
    deaths(args.work, model, data, args.every, args.seconds).show()
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
