"""The same training and scoring on 1 and 2 workers, and with different chunks of the input: every bit of
model and scores.

    python tests/benchmarks/sameness.py [--work DIR] [--quick]

Trains covtype (522,910 rows) and scores its rows four times, and compares the hashes, which cover every array
of the model, and every value of label, decision and status.
"""

import argparse
import hashlib
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from common import Table, covtype, data_folder
from numpy.typing import NDArray

from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array

N_TRAIN = 522_910
SETTINGS = {
    "scaling": "none",
    "gamma": 7e-5,
    "C": 16,
    "n_leaves": 256,
    "compact_gamma": 2e-5,
    "keep_support_vectors": True,
}
# workers, rows of a chunk, rows of a shard
VARIANTS = ((1, 65_536, None), (2, 65_536, None), (2, 20_000, None), (2, 4_096, 131_072))


def write(
    path: Path, X: NDArray[np.int16], y: NDArray[np.int8], chunk_rows: int, shard_rows: int | None
) -> None:
    shutil.rmtree(path, ignore_errors=True)
    group = zarr_arrays.create_group(path)
    zarr_arrays.create_array(group, "X", X.shape, X.dtype, chunk_rows, shard_rows=shard_rows)[...] = X
    zarr_arrays.create_array(group, "y", y.shape, y.dtype, chunk_rows)[...] = y


def hash_of(group: Path) -> str:
    digest = hashlib.sha256()
    for name in ("label", "decision", "status"):
        values = open_array(f"{group}/{name}")
        digest.update(zarr_arrays.read_rows(values, 0, values.shape[0]).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("benchmark-sameness"))
    parser.add_argument("--quick", action="store_true", help="2,000 rows, 8 leaves, two variants")
    args = parser.parse_args()
    X, y = covtype(data_folder())
    n, variants = (2_000, VARIANTS[:3:2]) if args.quick else (N_TRAIN, VARIANTS)
    settings = SETTINGS | ({"n_leaves": 8} if args.quick else {})
    args.work.mkdir(parents=True, exist_ok=True)
    table = Table(
        "workers",
        "rows of a chunk",
        "rows of a shard",
        "leaves",
        "hash of the model",
        "blocks",
        "hash of the scores",
    )
    hashes = set()
    for workers, chunk_rows, shard_rows in variants:
        data, model = args.work / "data.zarr", args.work / "model"
        write(data, X[:n], y[:n], chunk_rows // (40 if args.quick else 1), shard_rows)
        shutil.rmtree(model, ignore_errors=True)
        output = args.work / "scores"
        shutil.rmtree(output, ignore_errors=True)
        with nullcontext(InlineWorkers()) if args.quick and workers == 1 else connect(workers) as pool:
            same = partial(nullcontext, pool)
            report = train(data, model, settings=settings, client=same)
            scored = score(model, data, output, client=same)
        values = hash_of(output / "scores.zarr")
        hashes.add((report.hash, values))
        shards = f"{shard_rows:,}" if shard_rows else "–"
        table.add(
            str(workers),
            f"{chunk_rows:,}",
            shards,
            f"{report.n_leaves:,}",
            report.hash,
            f"{scored.n_blocks:,}",
            values,
        )
    table.show()
    if len(hashes) > 1:
        raise SystemExit("models or scores differ")


if __name__ == "__main__":
    main()
