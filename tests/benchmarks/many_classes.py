"""Bytes of a model with many classes, of which a leaf has few, on disk and in memory, and its time a row.

    python tests/benchmarks/many_classes.py [--classes 150] [--rows 60000] [--quick]

Made-up data: a cloud for each class in ten features. The checksum is that of all decision values: a layout
without the classes that a leaf lacks changes no bit of them.
"""

import argparse
import tempfile
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Table
from numpy.typing import NDArray

import dcpred
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.engine.engine import exact_arrays
from dcpred_tasks.engine.packing import pack
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage.digests import digest

FEATURES, SPREAD, NOISE = 10, 1.5, 0.7


def clouds(n_rows: int, n_classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows and their classes."""
    rng = np.random.default_rng(0)
    centres = SPREAD * rng.normal(size=(n_classes, FEATURES))
    y = rng.integers(n_classes, size=n_rows)
    return (centres[y] + NOISE * rng.normal(size=(n_rows, FEATURES))).astype(np.float32), y


def size(value: Any) -> int:
    """Bytes of the arrays of a dataclass, and of those in it."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts = [getattr(value, f.name) for f in fields(value)] if is_dataclass(value) else value
    return sum(map(size, parts)) if isinstance(parts, list | tuple) else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, default=150)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--quick", action="store_true", help="30 classes, 3,000 rows")
    args = parser.parse_args()
    if args.quick:
        args.classes, args.rows = 30, 3_000
    X, y = clouds(args.rows, args.classes)
    settings = dcpred.Settings(calibrate=False, refine_steps=5)
    fitted = dcpred.DCPredClassifier(n_leaves=64, landmarks=32, settings=settings, random_state=0)
    fitted.fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        on_disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        model = open_artifact(Path(folder) / "model").model()
    values, _ = score_rows(model, X)
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        score_rows(model, X)
        taken.append(time.perf_counter() - begin)
    lacking = np.mean([(rows == 0).all(axis=0).mean() for rows in _weights(model)])
    table = Table("model", "on disk", "in memory", "engine", "double precision", "µs a row", "checksum")
    table.add(
        f"{args.classes} classes, {model.n_leaves} leaves, which lack {lacking:.0%} of them",
        *(
            f"{n / 2**20:.2f} MiB"
            for n in (on_disk, size(model), size(pack(model)), size(exact_arrays(model)))
        ),
        f"{1e6 * min(taken) / len(X):.2f}",
        digest(values.tobytes())[:8],
    )
    table.show()


def _weights(model: Any) -> list[NDArray[Any]]:
    beta = np.asarray(model.beta)
    return [beta[a:b] for a, b in zip(model.beta_at[:-1], model.beta_at[1:], strict=True) if a < b]


if __name__ == "__main__":
    main()
