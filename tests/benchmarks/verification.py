"""Seconds of a fast verification by the number of blocks, of outputs that are made up of tiny ones.

    python tests/benchmarks/verification.py [--blocks 1000,10000,100000] [--work FOLDER] [--quick]

Every block has a whole record and chunks of its size. A finished run is verified like this by every command
that ends it or finds nothing to do.
"""

import argparse
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import Table, write_group

from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.fast_check import FastCheck
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, read_record, record_bytes
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.task_bodies.zarr_chunks import create_scores

ROWS = 64  # of a block, which is one chunk


def real_block(work: Path) -> tuple[ScoreRun, CommitRecord]:
    """A run of one block, and its record."""
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    data = write_group(work / "data.zarr", X, (X[:, 0] > 0).astype(np.uint8))
    settings = {"n_leaves": 1, "landmarks": 4}
    train(data, work / "model", settings=settings)
    score(work / "model", data, work / "scores")
    run = open_ledger(work / "scores").run
    record = read_record(run, 0)
    assert record is not None
    return run, record


def multiplied(work: Path, run: ScoreRun, record: CommitRecord, n_blocks: int) -> Ledger:
    """An output of so many such blocks, without waiting for the disk."""
    rows = run.n_rows
    made = replace(
        run, output=str(work / f"{n_blocks}"), n_rows=n_blocks * rows, chunk_rows=rows, block_rows=rows
    )
    create_scores(made, read_model(run.model))
    for folder in ("blocks", *(f"scores.zarr/{name}/c" for name in made.arrays)):
        Path(made.output, folder).mkdir(parents=True, exist_ok=True)
    chunks = {}
    for name in run.arrays:
        (chunk,) = (p for p in Path(run.array(name), "c").rglob("*") if p.is_file())
        chunks[name] = str(chunk.relative_to(run.array(name)))[len("c/0") :], chunk.read_bytes()
    for block in range(n_blocks):
        start, stop = made.rows(block)
        own = replace(record, block=block, start=start, stop=stop)
        Path(made.output, made.record_name(block)).write_bytes(record_bytes(own))
        for name, (ending, data) in chunks.items():
            path = Path(made.array(name), f"c/{block}{ending}")
            if ending:
                path.parent.mkdir()
            path.write_bytes(data)
    return Ledger(made, n_blocks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", default="1000,10000,100000")
    parser.add_argument("--work", type=Path, default=Path("benchmark-verification"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    run, record = real_block(args.work)
    table = Table("blocks", "fast verification, s", "ms a block")
    for n_blocks in [int(n) for n in ("20,40" if args.quick else args.blocks).split(",")]:
        ledger = multiplied(args.work, run, record, n_blocks)
        begin = time.perf_counter()
        check = FastCheck(ledger, all_due=True)
        seconds = time.perf_counter() - begin
        assert not check.findings, check.findings[:3]
        assert len(check.records) == n_blocks
        table.add(f"{n_blocks:,}", f"{seconds:.2f}", f"{1e3 * seconds / n_blocks:.3f}")
        shutil.rmtree(ledger.address)
    table.show()
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
