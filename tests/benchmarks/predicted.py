"""The cost that dcpred.serving.cost predicts, beside the one that is measured, for models of many shapes.

    python tests/benchmarks/predicted.py [--quick]

Processor time of one thread: float32 rows of synthetic.py, streamed over 128 MiB, interleaved with linear
predictions on the same rows, medians. The ratio is predicted over measured; it takes five minutes.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from common import Table
from synthetic import Cloud, Shape, make_model
from threadpoolctl import threadpool_limits

from dcpred.serving.cost import padded_rows, predict_cost
from dcpred_tasks.dtypes import SingleArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import KERNELS, Kernel
from dcpred_tasks.scoring.scorer import score_rows

MIB = 2**20
COPIES = 4  # of rows that are all different
LIMIT_NUMBERS = 2**24  # of all landmarks of a model
# γ of a kernel, from that of an rbf and the number of features: values are neither all 1 nor all 0.
GAMMAS: dict[str, Callable[[float, int], float]] = {
    "laplacian": lambda gamma, d: 0.5 * float(np.sqrt(gamma / d)),
    "polynomial": lambda gamma, d: 1.0 / d,
    "matern32": lambda gamma, d: gamma / 2,
    "matern52": lambda gamma, d: gamma / 2,
}


def shapes(quick: bool) -> dict[str, list[tuple[Shape, str]]]:
    """Shapes and kernels, by what is varied."""
    if quick:
        return {"features and leaves": [(Shape(8, 1), "rbf"), (Shape(40, 64), "rbf")]}
    widths = (8, 16, 24, 32, 40, 54, 100, 128, 256, 784)
    leaves = (1, 64, 256, 1024, 4096)
    found = {
        "features and leaves": [Shape(d, n) for d in widths for n in leaves],
        "landmarks": [
            Shape(d, n, m)
            for d, n in ((16, 1), (16, 256), (16, 1024), (54, 1), (54, 256), (54, 1024), (256, 64), (784, 1))
            for m in (4, 8, 24, 32, 48, 64, 128, 256)
        ],
        "outputs": [
            Shape(d, n, m, outputs=k)
            for d in (16, 54, 256)
            for n in (1, 256)
            for m in (16, 64)
            for k in (3, 10, 26)
        ],
        "products": [Shape(d, 256, 24, p, k) for d in (16, 54) for k in (1, 10) for p in (16, 64, 150, 300)],
        "features of factor 0": [
            Shape(d, n, used=used)
            for d, used in ((54, 16), (54, 34), (100, 60), (256, 100), (784, 24), (784, 300))
            for n in (1, 256)
        ],
    }
    every = {
        name: [(shape, "rbf") for shape in some if shape.nbytes <= 4 * LIMIT_NUMBERS]
        for name, some in found.items()
    }
    others = [name for name in KERNELS if name != "rbf"]
    return every | {
        "kernels": [(Shape(d, 64, m), k) for k in others for d in (16, 54, 256) for m in (16, 64)]
    }


@lru_cache(maxsize=1)
def stream(n_features: int, n_bytes: int) -> tuple[Cloud, SingleArray, SingleArray]:
    """(cloud, rows, the same filled up to 16 bytes)."""
    cloud = Cloud(n_features)
    rows = np.tile(cloud.rows(n_bytes // COPIES // (4 * n_features), seed=2), (COPIES, 1))
    return cloud, rows, padded_rows(rows)


def with_kernel(model: Model, name: str) -> Model:
    if name == "rbf":
        return model
    gamma = GAMMAS[name](model.kernel.gamma, model.n_features)
    kernel = Kernel(name, gamma)
    return replace(model, kernel=kernel, local_kernel=kernel, gamma=np.full_like(model.gamma, gamma))


def measured(model: Model, rows: SingleArray, padded: SingleArray, repeats: int, seconds: float) -> float:
    """The cost in linear predictions."""
    w = np.linspace(-1, 1, padded.shape[1], dtype=np.float32)
    score_rows(model, rows[:2_000])  # the first call lays the model out
    some = min(20_000, len(rows))
    per_row = _seconds(partial(score_rows, model, rows[:some])) / some
    part = int(np.clip(seconds / per_row, some, len(rows)))
    own, linear = [], []
    for repeat in range(repeats):
        start = (repeat * part) % (len(rows) - part + 1)
        linear.append(_seconds(partial(np.matmul, padded, w)) / len(padded))
        own.append(_seconds(partial(score_rows, model, rows[start : start + part])) / part)
    return float(np.median(own) / np.median(linear))


def _seconds(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def ratios(some: list[tuple[Shape, str]], quick: bool) -> Iterator[float]:
    """Predicted over measured costs."""
    for shape, kernel in sorted(some, key=lambda one: one[0].n_features):
        cloud, rows, padded = stream(shape.n_features, (4 if quick else 128) * MIB)
        model = with_kernel(make_model(shape, cloud), kernel)
        cost = measured(model, rows, padded, 3 if quick else 7, 0.01 if quick else 0.12)
        yield predict_cost(model).cost_ratio / cost


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two small models, short streams")
    args = parser.parse_args()
    table, every = Table("varied", "models", "median", "half within", "nine of ten", "all"), []
    with threadpool_limits(1):
        for name, some in shapes(args.quick).items():
            found = list(ratios(some, args.quick))
            every += found
            add(table, name, found)
    add(table, "all", every)
    table.show()


def add(table: Table, name: str, found: list[float]) -> None:
    off = np.exp(np.abs(np.log(found))) - 1
    within = (f"{100 * np.quantile(off, q):.0f} %" for q in (0.5, 0.9, 1.0))
    table.add(name, str(len(found)), f"{np.median(found):.2f}", *within)


if __name__ == "__main__":
    main()
