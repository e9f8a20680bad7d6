"""Covertype, class 2 against the rest: 522,910 rows of int16 in Zarr, end to end on local workers.

    python tests/benchmarks/covtype.py [--workers 2] [--work DIR] [--quick]

Trains, evaluates the compact model and the local SVMs on the 58,102 test rows, and prints time and memory of
every step. The settings were chosen on the last 40,000 training rows.
"""

import argparse
import shutil
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from common import BRIEF, LONG, Table, covtype, data_folder, write_group

from dcpred.evaluation.evaluate import evaluate
from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers
from dcpred.serving.cost import measure_cost
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.process import peak_memory_bytes
from dcpred_tasks.storage.addressed_arrays import open_array

N_TRAIN = 522_910
# as in the paper
COMMON = {
    "scaling": "none",
    "gamma": 7e-5,
    "C": 16,
    "keep_support_vectors": True,
    "refine": False,
}
CHOICES = {
    "large leaves": {"n_leaves": 16, "compact_gamma": 7e-6, "landmarks": 32, "products": 128},
    "1,024 leaves": {"n_leaves": 1024, "compact_gamma": 2e-5, "landmarks": 16, "products": 64},
    "4,096 leaves": {"n_leaves": 4096, "compact_gamma": 2e-5, "landmarks": 16, "products": 64},
}
COST_ROWS = 20_000  # of the test rows, repeated to fill the stream
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("benchmark-covtype"))
    parser.add_argument(
        "--quick", action="store_true", help="2,000 training rows, 1,000 test rows, 16 leaves"
    )
    args = parser.parse_args()
    X, y = covtype(data_folder())
    pool = partial(nullcontext, InlineWorkers()) if args.quick else partial(connect, args.workers, None)
    limit, n_test = (2_000, 1_000) if args.quick else (N_TRAIN, len(X) - N_TRAIN)
    X_test, y_test = X[N_TRAIN:][:n_test], y[N_TRAIN:][:n_test]
    args.work.mkdir(parents=True, exist_ok=True)
    data = write_group(args.work / "train.zarr", X[:limit], y[:limit], 65_536 if not args.quick else 1_024)
    held = write_group(args.work / "test.zarr", X_test, y_test)
    del X, y, X_test, y_test
    choices = {"large leaves": CHOICES["large leaves"]} if args.quick else CHOICES
    table = Table(
        "tree",
        "leaves",
        "local SVMs (early), %",
        "compact, %",
        "cost",
        "training",
        "of which leaves",
        "peak worker, driver",
    )
    for name, choice in choices.items():
        model = args.work / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(model, ignore_errors=True)
        begin = time.perf_counter()
        report = train(data, model, settings=COMMON | choice, client=pool)
        seconds = time.perf_counter() - begin
        found = evaluate(model, held, early=True, cost=False)
        cost = measure_cost(
            read_model(model),
            open_array(f"{held}/X")[:COST_ROWS],
            **(BRIEF if args.quick else LONG),
        )
        table.add(
            name,
            f"{report.n_leaves:,} ({report.n_constant_leaves} constant), largest"
            f" {report.largest_leaf_rows:,}",
            f"{100 * found['early_accuracy']:.2f}",
            f"{100 * found['accuracy']:.2f}",
            f"{cost.cost_ratio:.0f} × {1e3 * cost.linear_us_per_row:.0f} ns",
            f"{seconds:.0f} s",
            f"{report.seconds['leaves']:.0f} s",
            f"{max(report.worker_peak_memory_bytes.values()) / MIB:,.0f},"
            f" {peak_memory_bytes() / MIB:,.0f} MiB",
        )
    table.show()


if __name__ == "__main__":
    main()
