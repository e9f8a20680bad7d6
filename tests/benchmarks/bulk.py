"""Bulk scoring: many rows of covtype with small noise, int16, on two workers; the same job that only reads,
beside it.

    python tests/benchmarks/bulk.py [--rows 50_000_000] [--model MODEL] [--work DIR] [--quick]

Prints one Markdown table: rows/s, processor time, the ratio to two jobs that only read and decompress (by
Zarr alone, and as scoring reads; same workers, same blocks, in turn), each step of a task, and the memory of
every process early and late in the run.
"""

import argparse
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr
from common import Table, covtype, data_folder, write_group
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from dcpred.execution.pools import connect
from dcpred.execution.workers import Pool, Workers, run_all
from dcpred.runs.ledger import Ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts.commit_records import ScoreRun, commit
from dcpred_tasks.dtypes import LEAF_DTYPE
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.scoring.labels import RawScores
from dcpred_tasks.scoring.outputs import encode_outputs
from dcpred_tasks.scoring.scorer import score_rows, warm_up
from dcpred_tasks.scoring.statistics import ScoredRows
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.storage.zarr_arrays import chunk_files
from dcpred_tasks.task_bodies.score_block import RecordDraft, open_model, rows_room, score_block
from dcpred_tasks.task_bodies.zarr_chunks import ChunkWriter, create_scores, digest_values

SETTINGS = {
    "scaling": "none",
    "gamma": 7e-5,
    "C": 16,
    "n_leaves": 1024,
    "landmarks": 16,
    "products": 0,
    "compact_gamma": 2e-5,
}
SETTINGS |= {"refine": False}  # as in the paper
CHUNK_ROWS = 65_536
MIB = 2**20
STEP_ROWS = 3_000_000  # rows whose steps are timed one by one
BY_ZARR, READING, SCORING = "only reading, by Zarr alone", "only reading, as scoring does", "scoring"
RATIOS = ("seconds", "worker_seconds")


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


def prepare(model: Path, work: Path, rows: int, limit: int, pool: Pool, **more: object) -> Path:
    """Train the model and make the rows, where they are not there yet; the address of the rows.

    more  settings of the model
    """
    data = work / f"rows-{rows}.zarr"
    if not model.exists():
        X, y = covtype(data_folder())
        group = write_group(work / "train.zarr", X[:limit], y[:limit])
        train(group, model, settings={**SETTINGS, **more}, client=pool)
    if not data.exists():
        partial_data = data.with_suffix(".partial")
        shutil.rmtree(partial_data, ignore_errors=True)
        make_rows(partial_data, rows)
        partial_data.rename(data)
    return data


def read_block(run: ScoreRun, block: int) -> int:
    """What a scoring task does before it scores: read and decompress."""
    source = open_array(run.x)
    room = rows_room(run, source)
    return sum(len(zarr_arrays.read_rows(source, *span, room)) for span in run.chunks(block))


def read_block_by_zarr(run: ScoreRun, block: int) -> int:
    """The same as anybody would do it."""
    source = zarr.open_array(run.x, mode="r")
    return sum(len(np.asarray(source[start:stop])) for start, stop in run.chunks(block))


@dataclass(frozen=True)
class Job:
    """What a job on all rows took."""

    seconds: float
    worker_seconds: float
    """Processor time of all workers, with every thread that they run."""
    driver_seconds: float
    """The same of the driver, in which the scheduler runs."""


def timed(workers: Workers, work: Callable[[], object]) -> Job:
    def now() -> tuple[float, float, float]:
        return time.perf_counter(), sum(workers.on_each(time.process_time)), time.process_time()

    begin = now()
    work()
    return Job(*(after - before for before, after in zip(begin, now(), strict=True)))


def median(jobs: list[Job], what: str) -> float:
    return float(np.median([getattr(job, what) for job in jobs]))


class Laps:
    """Processor time of this process, step by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.begin()

    def begin(self) -> None:
        self.since = time.process_time()

    def end(self, name: str) -> None:
        self.seconds.setdefault(name, []).append(time.process_time() - self.since)
        self.begin()


def breakdown(model_path: Path, data: Path, output: Path, rows: int) -> dict[str, float]:
    """Nanoseconds of processor time per row of each step, in this process and one thread, on the first
    blocks; then of whole tasks on the same blocks, and what of it no step names.

    The engine's steps are told apart by models that lack the later ones: one leaf that is a constant; the
    whole tree with such leaves; everything.
    """
    shutil.rmtree(output, ignore_errors=True)
    run, plan, _ = plan_run(Request(model_path, f"{data}/X", output))
    laps = Laps()
    with Ledger(run, plan.n_blocks).claimed():
        model = open_model(run.model, run.model_hash)
        create_scores(run, model)
        models = {"convert": single_constant(model), "descend": constant_leaves(model), "landmarks": model}
        for each in models.values():
            warm_up(each)
        score_block(run, 0)  # what is done once in a process
        Path(run.output, run.record_name(0)).unlink()
        for block in range(max(1, min(plan.n_blocks - 1, rows // plan.block_rows))):
            laps.begin()
            record = score_block(run, block)
            laps.end("whole task")
            Path(run.output, run.record_name(block)).unlink()
            laps.begin()
            source, draft = open_array(run.x), RecordDraft(run, model, block)
            writer, facts = ChunkWriter(run, Retrying()), dict[str, Any]()
            room = rows_room(run, source)
            laps.end("open")
            for start, stop in run.chunks(block):
                _steps_of_chunk(laps, run, source, draft, writer, models, room[: stop - start], start)
            laps.begin()
            writer.finish(facts)
            commit(run, draft.record(facts))
            laps.end("commit record")
            assert record.digest == facts["digest"]
    chunks = {"open": plan.block_rows, "commit record": plan.block_rows, "whole task": plan.block_rows}
    found = {
        name: 1e9 * float(np.median(seconds)) / min(chunks.get(name, plan.chunk_rows), plan.n_rows)
        for name, seconds in laps.seconds.items()
    }
    for name, before in (
        ("decompress", "read file"),
        ("landmarks", "descend"),
        ("descend", "convert"),
        ("write files", "compress"),
    ):
        found[name] -= found[before]
    whole = found.pop("whole task")
    named = sum(found.values())
    return {**found, "sum of these": named, "whole task": whole, "not named": whole - named}


def _steps_of_chunk(
    laps: Laps,
    run: ScoreRun,
    source: Any,
    draft: RecordDraft,
    writer: ChunkWriter,
    models: dict[str, Model],
    room: NDArray[Any],
    start: int,
) -> None:
    """Each step of a task on one output chunk; `room` has as many rows."""
    files, stop = chunk_files(source), start + len(room)
    assert files is not None
    laps.begin()
    for number in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
        files.file(number).read_bytes()
    laps.end("read file")
    X = zarr_arrays.read_rows(source, start, stop, room)
    laps.end("decompress")
    leaf = np.empty(len(X), LEAF_DTYPE)
    for name, each in models.items():
        decision, status = score_rows(each, X, leaves=leaf)
        laps.end(name)
    rows = RawScores(decision, status, leaf, np.empty(0, np.float32))
    values = encode_outputs(draft.model, run.columns, rows)
    laps.end("labels")
    draft.observe(start, status, ScoredRows(X, decision, status, leaf, values))
    laps.end("statistics")
    zstd = Zstd(level=zarr_arrays.ZSTD_LEVEL)
    for value in values.values():
        zstd.encode(np.ascontiguousarray(value))
    laps.end("compress")
    for name, array in writer.arrays.items():
        zarr_arrays.write_rows(array, start, values[name])
    laps.end("write files")
    digest_values(run, values)
    laps.end("digest")
    writer.add(start, values)


def constant_leaves(model: Model) -> Model:
    none = np.zeros(model.n_leaves + 1, np.int64)
    return replace(model, landmark_at=none, pair_at=none, triangle_at=none, beta_at=none)


def single_constant(model: Model) -> Model:
    none = np.zeros(2, np.int64)
    return replace(
        model,
        landmark_at=none,
        pair_at=none,
        triangle_at=none,
        beta_at=none,
        tree=Tree(np.zeros(1, np.int64), model.tree.children[:0], model.tree.centres[:0]),
        intercept=model.intercept[:1],
        bounds=model.bounds[:1],
        leaf_factor=model.leaf_factor[:1],
        leaf_rows=model.leaf_rows[:1],
    )


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
    parser.add_argument("--repeat", type=int, default=3, help="times that each job is done, in turn")
    parser.add_argument("--quick", action="store_true", help="70,000 rows, a model of 1,000, one worker")
    args = parser.parse_args()
    rows, limit = (70_000, 1_000) if args.quick else (args.rows, 522_910)
    fewer: dict[str, object] = {"n_leaves": 16} if args.quick else {}
    args.workers = 1 if args.quick else args.workers
    args.work.mkdir(parents=True, exist_ok=True)
    pool = partial(connect, args.workers, None)
    model = args.model or args.work / "model"
    data = prepare(model, args.work, rows, limit, pool, **fewer)
    output = args.work / "scores"
    run, plan, _ = plan_run(Request(model, f"{data}/X", output))
    tasks = [(run, block) for block in range(plan.n_blocks)]
    reports: list[ScoreReport] = []
    jobs: dict[str, list[Job]] = {name: [] for name in (BY_ZARR, READING, SCORING)}
    begin = time.perf_counter()
    with pool() as workers:
        start_seconds = time.perf_counter() - begin

        def read(body: Callable[[ScoreRun, int], int]) -> None:
            run_all(workers, body, tasks, lambda number, n: None)

        def write_scores() -> None:
            reports.append(score(model, data, output, client=lambda: nullcontext(workers)))

        read(read_block)  # warms the file cache for all
        with MemoryWatch() as memory:
            for _ in range(1 if args.quick else args.repeat):
                jobs[BY_ZARR].append(timed(workers, partial(read, read_block_by_zarr)))
                jobs[READING].append(timed(workers, partial(read, read_block)))
                shutil.rmtree(output, ignore_errors=True)
                job = timed(workers, write_scores)
                jobs[SCORING].append(replace(job, seconds=rows / reports[-1].rows_per_second))
    table = Table("job", "value")
    table.add("rows × features, int16", f"{rows:,} × {run_features(data)}")
    table.add("blocks", f"{plan.n_blocks:,} of {plan.block_rows:,} rows, in chunks of {plan.chunk_rows:,}")
    for name, done in jobs.items():
        seconds = median(done, "seconds")
        spent = [1e9 * median(done, f"{who}_seconds") / rows for who in ("worker", "driver")]
        table.add(name, f"{seconds:.1f} s, {rows / seconds:,.0f} rows/s")
        table.add(
            f"{name}: processor time of workers, of the driver", f"{spent[0]:.0f}, {spent[1]:.1f} ns/row"
        )
    for name in (BY_ZARR, READING):
        ratios = [median(jobs[SCORING], what) / median(jobs[name], what) for what in RATIOS]
        table.add(f"scoring / {name}: time, processor time", f"{ratios[0]:.2f}, {ratios[1]:.2f}")
    table.add(
        "start of workers; first call with verification", f"{start_seconds:.1f}; {reports[0].seconds:.1f} s"
    )
    for name, seconds in reports[-1].manifest["worker_seconds"].items():
        table.add(f"workers of the job, {name}", f"{1e9 * seconds / rows:.0f} ns/row")
    for name, ns in breakdown(model, data, args.work / "steps", min(rows, STEP_ROWS)).items():
        table.add(f"one thread, {name}", f"{ns:.1f} ns/row")
    for name, early, late in memory.early_and_late():
        table.add(f"memory of {name}, second quarter → last quarter", f"{early:,.0f} → {late:,.0f} MiB")
    peaks = (max(reports[-1].worker_peak_memory_bytes.values()), reports[-1].driver_peak_memory_bytes)
    table.add("peak of any worker, of the driver", ", ".join(f"{peak / MIB:,.0f}" for peak in peaks) + " MiB")
    table.add("planned memory per task", f"{plan.task_bytes / MIB:,.0f} MiB")
    table.show()


def run_features(data: Path) -> int:
    return int(open_array(data / "X").shape[1])


if __name__ == "__main__":
    main()
