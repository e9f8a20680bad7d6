"""Bulk scoring: many rows of covtype with small noise, int16, on two workers; the same job that only reads,
beside it.

    python tests/benchmarks/bulk.py [--rows 50_000_000] [--model MODEL] [--work DIR] [--quick]

Prints one Markdown table: rows/s, the ratio to the job that only reads and decompresses (same workers, same
blocks, measured before and after), and the memory of every process early and late in the run.
"""

import argparse
import os
import shutil
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from common import Table, covtype, data_folder, write_group

from dcpred.execution.workers import connect, run_all
from dcpred.scoring.score import plan_run, score
from dcpred.training.train import train
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.scoring.labels import encode_labels, label_coding
from dcpred_tasks.scoring.scorer import score_rows, warm_up
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.training.settings import make_settings

SETTINGS = {
    "scaling": "none",
    "gamma": 7e-5,
    "C": 16,
    "n_leaves": 1024,
    "landmarks": 16,
    "products": 0,
    "head_gamma": 2e-5,
}
SETTINGS |= {"refine": False}  # as in the paper
CHUNK_ROWS = 65_536
MIB = 2**20


def make_rows(path: Path, n_rows: int) -> None:
    """covtype over and over, every copy with other noise of −2…2 in the ten numeric columns; written chunk by
    chunk.
    """
    X = covtype(data_folder())[0]
    group = zarr_arrays.create_group(path)
    array = zarr_arrays.create_array(group, "X", (n_rows, X.shape[1]), X.dtype, CHUNK_ROWS)
    for number, start in enumerate(range(0, n_rows, CHUNK_ROWS)):
        rng = np.random.default_rng(number)
        rows = X[np.arange(start, min(start + CHUNK_ROWS, n_rows)) % len(X)].copy()
        rows[:, :10] += rng.integers(-2, 3, (len(rows), 10), dtype=np.int16)
        array[start : start + len(rows)] = rows


def read_block(run: ScoreRun, block: int) -> int:
    """What a scoring task does before it scores: read and decompress."""
    source = zarr_arrays.open_array(run.x)
    return sum(
        int(zarr_arrays.read_rows(source, start, stop)[0, 0] > -(2**15)) * (stop - start)
        for start, stop in run.chunks(block)
    )


def breakdown(model: Model, data: Path, chunks: int) -> dict[str, float]:
    """Nanoseconds per row of each step, in this process and one thread, on the first chunks.

    The engine's steps are told apart by models that lack the later ones: one leaf that is a constant; the
    whole tree with such leaves; everything.
    """
    none = np.zeros(model.n_leaves + 1, np.int64)
    constant = replace(model, landmark_at=none, pair_at=none, triangle_at=none, beta_at=none)
    one = none[:2]
    single = replace(
        constant,
        tree=Tree(np.zeros(1, np.int64), model.tree.children[:0], model.tree.centres[:0]),
        **dict.fromkeys(("landmark_at", "pair_at", "triangle_at", "beta_at"), one),
        intercept=model.intercept[:1],
        bounds=model.bounds[:1],
        leaf_rows=model.leaf_rows[:1],
    )
    source, names = (
        zarr_arrays.open_array(data / "X"),
        ("read file", "decompress", "convert", "descend", "landmarks", "label, digest"),
    )
    spent: dict[str, list[float]] = {name: [] for name in names}
    coding = label_coding(model.classes)
    for each in (single, constant, model):
        warm_up(each)
    for chunk in range(chunks):
        start, stop = chunk * CHUNK_ROWS, min((chunk + 1) * CHUNK_ROWS, source.shape[0])
        laps = [time.perf_counter()]
        (data / "X" / "c" / str(chunk) / "0").read_bytes()
        laps.append(time.perf_counter())
        X = zarr_arrays.read_rows(source, start, stop)
        laps.append(time.perf_counter())
        for each in (single, constant, model):
            decision, status = score_rows(each, X)
            laps.append(time.perf_counter())
        digest(encode_labels(coding, decision, status), decision[:, 0], status)
        laps.append(time.perf_counter())
        file, read, convert, descend, everything, rest = np.diff(laps) * 1e9 / (stop - start)
        steps = (file, read - file, convert, descend - convert, everything - descend, rest)
        for name, step in zip(names, steps, strict=True):
            spent[name].append(step)
    return {name: float(np.median(values)) for name, values in spent.items()}


class MemoryWatch:
    """Resident bytes of this process and its children, once a second."""

    def __init__(self) -> None:
        self.samples: list[dict[int, int]] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        me = psutil.Process()
        while not self.stop.wait(1.0 if self.samples else 0.0):
            found = {}
            for process in [me, *me.children(recursive=True)]:
                try:
                    found[process.pid] = process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.samples.append(found)

    def __enter__(self) -> "MemoryWatch":
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        self.thread.join()

    def early_and_late(self) -> list[tuple[str, float, float]]:
        """(process, MiB at most in the second quarter of the run, in the last quarter), for those that lived
        through both.
        """
        n = len(self.samples)
        early, late = self.samples[n // 4 : max(n // 2, 1)], self.samples[3 * n // 4 :]
        lasting = sorted(set.intersection(*(set(s) for s in early + late)))
        return [
            (
                "driver" if pid == os.getpid() else f"process {i}",
                max(s[pid] for s in early) / MIB,
                max(s[pid] for s in late) / MIB,
            )
            for i, pid in enumerate(lasting)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=lambda s: int(s.replace("_", "")), default=50_000_000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--work", type=Path, default=Path("benchmark-bulk"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="70,000 rows, a model of 4,000, one worker")
    args = parser.parse_args()
    rows, limit = (70_000, 4_000) if args.quick else (args.rows, 522_910)
    args.workers = 1 if args.quick else args.workers
    args.work.mkdir(parents=True, exist_ok=True)
    pool = partial(connect, args.workers, None)
    model, data = args.model or args.work / "model", args.work / f"rows-{rows}.zarr"
    if not model.exists():
        X, y = covtype(data_folder())
        group = write_group(args.work / "train.zarr", X[:limit], y[:limit])
        train(f"{group}/X", f"{group}/y", model, make_settings(SETTINGS), pool)
    if not data.exists():
        partial_data = data.with_suffix(".partial")
        shutil.rmtree(partial_data, ignore_errors=True)
        make_rows(partial_data, rows)
        partial_data.rename(data)
    output = args.work / "scores"
    shutil.rmtree(output, ignore_errors=True)
    run, plan, _ = plan_run(model, f"{data}/X", output)
    tasks = [(run, block) for block in range(plan.n_blocks)]

    def read_only(workers: object) -> float:
        begin = time.perf_counter()
        run_all(workers, read_block, tasks, lambda number, n: None)  # type: ignore[arg-type]
        return time.perf_counter() - begin

    with pool() as workers:
        read_only(workers)  # warms the file cache for both
        reading = [read_only(workers)]
    with MemoryWatch() as memory:
        report = score(model, f"{data}/X", output, pool)
    with pool() as workers:
        reading.append(read_only(workers))
    read_seconds = float(np.median(reading))
    score_seconds = rows / report.rows_per_second
    spent = report.manifest["worker_seconds"]
    table = Table("job", "value")
    table.add("rows × features, int16", f"{rows:,} × {run_features(data)}")
    table.add("blocks", f"{plan.n_blocks:,} of {plan.block_rows:,} rows")
    table.add("scoring", f"{score_seconds:.1f} s, {report.rows_per_second:,.0f} rows/s")
    table.add("only reading", f"{read_seconds:.1f} s, {rows / read_seconds:,.0f} rows/s")
    table.add("scoring / only reading", f"{score_seconds / read_seconds:.2f}")
    table.add("whole call, with start of workers and verification", f"{report.seconds:.1f} s")
    table.add(
        "worker seconds: read, score, write", ", ".join(f"{spent[k]:.1f}" for k in ("read", "score", "write"))
    )
    for name, ns in breakdown(read_model(model), data, min(32, -(-rows // CHUNK_ROWS))).items():
        table.add(f"one thread, {name}", f"{ns:.0f} ns/row")
    table.add("write, of the job", f"{1e9 * spent['write'] / rows:.0f} ns/row")
    for name, early, late in memory.early_and_late():
        table.add(f"memory of {name}, second quarter → last quarter", f"{early:,.0f} → {late:,.0f} MiB")
    table.add(
        "peak of any worker, of the driver",
        f"{max(report.worker_peak_memory_bytes.values()) / MIB:,.0f},"
        f" {report.driver_peak_memory_bytes / MIB:,.0f} MiB",
    )
    table.add("planned memory per task", f"{plan.task_bytes / MIB:,.0f} MiB")
    table.show()


def run_features(data: Path) -> int:
    return int(zarr_arrays.open_array(data / "X").shape[1])


if __name__ == "__main__":
    main()
