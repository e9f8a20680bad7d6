"""Parquet scored where it lies, beside pyarrow that reads the same columns alone: 54 columns of covtype in
single precision, zstd and snappy, one process.

    python tests/benchmarks/parquet.py [--rows 3_000_000] [--rounds 3] [--quick]

Prints one Markdown table: nanoseconds a row of processor time and of wall time, medians of rounds in turn,
and their ratios to reading.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Table, covtype, data_folder

from dcpred import DCPredClassifier
from dcpred.execution.workers import this_process
from dcpred.scoring.score import score
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.storage.zarr_arrays import open_array, read_rows

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


def measure(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Medians of (processor time, wall time) by step, in turn."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            processor, wall = time.process_time(), time.perf_counter()
            step()
            found[name].append((time.process_time() - processor, time.perf_counter() - wall))
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
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        classifier.save(model)
        rows = np.resize(np.arange(len(sample)), n)
        many = sample.take(pa.array(rows))
        for compression in ("zstd", "snappy"):
            path = Path(folder) / f"{compression}.parquet"
            pq.write_table(many, path, compression=compression, row_group_size=GROUP_ROWS)
            numbers = iter(range(rounds))
            address = find_rows(path, "X", model)
            steps: dict[str, Callable[[], object]] = {
                "pyarrow alone": lambda path=path: read_alone(path),
                "read and encode": lambda path=path: read_encoded(path, model),
                "score": lambda address=address, numbers=numbers, name=compression: score(
                    model, address, Path(folder) / f"{name}-{next(numbers)}", this_process
                ),
            }
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
