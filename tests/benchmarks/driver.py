"""Memory of the driver of a training: measured on made-up rows, and planned for more of them.

    python tests/benchmarks/driver.py [--rows 10_000_000] [--workers 2] [--work DIR] [--quick]

Prints one Markdown table, for few and many leaves, without overlap and with it. Leaves are fitted as cheaply
as settings allow: the driver does not see how. The first line is an index alone, of pieces with rows of 300
leaves each.
"""

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
from common import Table

from dcpred.execution.block_plan import plan_routing
from dcpred.training.steps import driver_bytes
from dcpred.training.train import train
from dcpred_tasks.process import peak_memory_bytes
from dcpred_tasks.scratch import TrainJob, write_index
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.training.settings import make_settings

N_FEATURES, CHUNK_ROWS = 8, 65_536
CHEAP = {
    "landmarks": 2,
    "products": 0,
    "refine": False,
    "local_rows": 64,
    "calibrate": False,
    "max_leaf_rows": 100_000,
}
CASES = ({"n_leaves": 16}, {"n_leaves": 256, "overlap": 3}, {"n_leaves": 4096, "overlap": 2})
PLANNED = (10**7, 10**9, 10**10)
MIB = 2**20


def make_rows(path: Path, n_rows: int) -> None:
    """Rows about 64 centres, each of one of two classes, written chunk by chunk."""
    group = zarr_arrays.create_group(path)
    X = zarr_arrays.create_array(group, "X", (n_rows, N_FEATURES), np.float32, CHUNK_ROWS)
    y = zarr_arrays.create_array(group, "y", (n_rows,), np.int8, CHUNK_ROWS)
    centres = np.random.default_rng(0).normal(size=(64, N_FEATURES))
    for start in range(0, n_rows, CHUNK_ROWS):
        rng, n = np.random.default_rng(1 + start), min(CHUNK_ROWS, n_rows - start)
        of = rng.integers(0, 64, n)
        X[start : start + n] = (centres[of] + rng.normal(0, 0.3, (n, N_FEATURES))).astype(np.float32)
        y[start : start + n] = of % 2


def index_growth(work: Path, n_pieces: int, n_leaves: int) -> tuple[int, int]:
    """How much the memory of this process grows while it writes an index, and the bytes on disk."""
    job = TrainJob("", "", None, str(work / "index"), make_settings({}), 0, 0)
    for piece in range(n_pieces):
        leaves = np.sort((np.arange(300) + 100 * piece) % n_leaves)
        job.piece(0, piece).mkdir(parents=True)
        np.save(job.piece(0, piece) / "counts.npy", np.stack([leaves, np.full(300, 9)]))
    before = peak_memory_bytes()
    write_index(job, 0, range(n_pieces), n_leaves)
    files = [file for file in job.root.rglob("*") if file.is_file()]
    return peak_memory_bytes() - before, sum(file.stat().st_size for file in files)


def in_mib(n_bytes: float) -> str:
    return f"{n_bytes / MIB:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("driver.work"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    n_rows, cases = (5_000, CASES[:1]) if asked.quick else (asked.rows, CASES)
    shutil.rmtree(asked.work, ignore_errors=True)
    data = asked.work / "data.zarr"
    make_rows(data, n_rows)
    planned = [f"planned, {n:.0e} rows" for n in PLANNED]
    table = Table("settings", "leaves", "seconds", "driver before", "driver, MiB", *planned)
    n_pieces, n_leaves = (60, 6_000) if asked.quick else (600, 60_000)
    grown, on_disk = index_growth(asked.work, n_pieces, n_leaves)
    what = f"index of {n_pieces} pieces, {in_mib(on_disk)} MiB on disk"
    table.add(what, f"{n_leaves:,}", "", "", f"+{in_mib(grown)}", *("" for _ in PLANNED))
    for number, case in enumerate(cases):
        settings, before = make_settings(CHEAP | case), peak_memory_bytes()
        begin = time.perf_counter()
        model, workers = asked.work / f"model-{number}", 1 if asked.quick else asked.workers
        report = train(data, model, settings=CHEAP | case, workers=workers)
        bytes_planned = [
            driver_bytes(plan_routing(n, N_FEATURES, 4, CHUNK_ROWS), N_FEATURES, 4, settings) for n in PLANNED
        ]
        table.add(
            ", ".join(f"{name}={value}" for name, value in case.items()),
            f"{report.n_leaves:,}",
            f"{time.perf_counter() - begin:.0f}",
            in_mib(before),
            in_mib(report.driver_peak_memory_bytes),
            *map(in_mib, bytes_planned),
        )
    table.show()
    shutil.rmtree(asked.work)


if __name__ == "__main__":
    main()
