"""Parquet scored where it lies, beside pyarrow that reads the same columns alone: 54 columns of covtype in
single precision, zstd and snappy, in one process and on two workers.

    python tests/benchmarks/parquet.py [--rows 3_000_000] [--rounds 3] [--quick]

Prints one Markdown table: nanoseconds a row of processor time, that of workers included, and of wall time,
medians of rounds in turn, and their ratios to reading. Workers are started once, before the first round.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from common import Table, covtype, data_folder

from dcpred import DCPredClassifier
from dcpred.execution.pools import connect, started_once, this_process
from dcpred.execution.workers import Pool
from dcpred.scoring.score import score
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.zarr_arrays import read_rows

GROUP_ROWS = 131_072


def read_alone(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            file.read_row_group(group, use_threads=False)


def read_encoded(path: Path, model: Path) -> None:
    X = open_array(find_rows(path, "X", model))
    room = np.empty((X.chunks[0], X.shape[1]), X.dtype)
    for start in range(0, X.shape[0], X.chunks[0]):
        read_rows(X, start, min(start + X.chunks[0], X.shape[0]), room)


def score_next(model: Path, path: Path, outs: Iterator[Path], pool: Pool) -> None:
    score(model, path, next(outs), client=pool)


def processor_seconds() -> float:
    """Of this process and its workers."""
    children = (one.cpu_times() for one in psutil.Process().children(recursive=True))
    return time.process_time() + sum(times.user + times.system for times in children)


def measure(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Medians of (processor time, wall time) by step, in turn."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            processor, wall = processor_seconds(), time.perf_counter()
            step()
            found[name].append((processor_seconds() - processor, time.perf_counter() - wall))
    medians = {name: np.median(np.array(times), axis=0) for name, times in found.items()}
    return {name: (float(one[0]), float(one[1])) for name, one in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    n, rounds = (20_000, 1) if options.quick else (options.rows, options.rounds)
    data = covtype(data_folder())
    X, y = np.asarray(data[0])[:20_000], np.asarray(data[1])[:20_000]
    names = [f"x{j}" for j in range(X.shape[1])]
    sample = pa.table({name: X[:, j].astype(np.float32) for j, name in enumerate(names)})
    classifier = DCPredClassifier(n_leaves=16, landmarks=16, random_state=0).fit(sample, y)
    table = Table("compression", "step", "processor ns/row", "ratio", "wall ns/row", "ratio")
    with tempfile.TemporaryDirectory() as folder, started_once(partial(connect, 2)) as two:
        model = Path(folder) / "model"
        classifier.save(model)
        rows = np.resize(np.arange(len(sample)), n)
        many = sample.take(pa.array(rows))
        for compression in ("zstd", "snappy"):
            path = Path(folder) / f"{compression}.parquet"
            pq.write_table(many, path, compression=compression, row_group_size=GROUP_ROWS)
            steps: dict[str, Callable[[], object]] = {
                "pyarrow alone": lambda path=path: read_alone(path),
                "read and encode": lambda path=path: read_encoded(path, model),
            }
            for name, pool in (("score", this_process), ("score, two workers", two)):
                outs = iter([Path(folder) / f"{compression}-{name}-{i}" for i in range(rounds + 1)])
                steps[name] = partial(score_next, model, path, outs, pool)
                steps[name]()
            found = measure(steps, rounds)
            alone = found["pyarrow alone"]
            for name, (processor, wall) in found.items():
                table.add(
                    compression,
                    name,
                    f"{processor / n * 1e9:.0f}",
                    f"{processor / alone[0]:.2f}",
                    f"{wall / n * 1e9:.0f}",
                    f"{wall / alone[1]:.2f}",
                )
    table.show()


if __name__ == "__main__":
    main()
