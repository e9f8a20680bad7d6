"""Refinement of leaves by NumPy, the definition, and in machine code: processor time of a value and gradient,
and of a step of L-BFGS with all that belongs to it, interleaved; by shape, and by kernel and loss.

    python tests/benchmarks/refinement.py [--quick]
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Table
from threadpoolctl import threadpool_limits

from dcpred_tasks.engine.machine_code import own_code
from dcpred_tasks.engine.native_modules import REFINEMENT, words
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training import compiled_refinement, lbfgs
from dcpred_tasks.training.compiled_refinement import arguments
from dcpred_tasks.training.losses import Distance, Hinge, Huber, Logistic, Loss, Quantile, Squares
from dcpred_tasks.training.objective import Goal

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.refinement_definition import Definition

# rows, features, landmarks, outputs, products
SHAPES = (
    (200, 8, 8, 1, 0),
    (550, 16, 16, 1, 0),
    (550, 16, 16, 1, 16),
    (550, 16, 16, 8, 0),
    (550, 16, 64, 1, 0),
    (3_000, 8, 48, 1, 0),
    (800, 119, 16, 1, 0),
    (700, 256, 32, 1, 0),
    (3_000, 54, 64, 1, 0),
    (3_000, 54, 64, 7, 0),
    (2_000, 784, 64, 1, 0),
)
STEPS = 40


KERNELS = ("rbf", "laplacian", "matern32", "matern52", "polynomial")
LOSSES = (Hinge(), Logistic(), Squares(), Distance(), Huber(), Quantile(tilt=0.8))
COLUMNS = (
    "value and gradient: NumPy, µs",
    "machine code, µs",
    "times",
    "step: NumPy, µs",
    "machine code, µs",
    "times",
)


def leaf(
    n: int, d: int, m: int, k: int, products: int, name: str = "rbf", loss: Loss | None = None
) -> Definition:
    """Classes that a smooth function and noise divide."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    pairs = np.column_stack([i[:products] for i in np.triu_indices(m)]).astype(np.int32)
    kernel = Kernel(name, 0.5 / d)
    gamma = np.full(m, kernel.gamma, np.float32)
    basis = LeafBasis(kernel, "lower", X[:m] + np.float32(0.1), gamma, pairs, np.empty((0, m), np.float32))
    y = np.sin(2 * X[:, :1]) * X[:, 1:2] + 0.3 * rng.normal(size=(n, k))
    target = np.where(y > 0, 1.0, -1.0).astype(np.float32)
    goal = Goal(target, target, 0.0, np.full(n, 1 / n, np.float32), loss or Hinge())
    beta, intercept = 0.3 * rng.normal(size=(m + products, k)), 0.1 * rng.normal(size=k)
    return Definition(X, basis, beta, intercept, goal, 1e-3)


def microseconds(ways: list[Callable[[], object]], repeats: int) -> list[float]:
    """The median processor time of each, taken in turns."""
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats + 1):
        for times, way in zip(took, ways, strict=True):
            begin = time.thread_time()
            way()
            times.append(time.thread_time() - begin)
    return [1e6 * float(np.median(times[1:])) for times in took]


def measured(objective: Definition, repeats: int) -> list[str]:
    """The cells of COLUMNS."""
    call = own_code(REFINEMENT).entry()
    handed = arguments(objective, 0, 0.0)
    block = np.array(list(words(handed)), np.int64)
    address = block.__array_interface__["data"][0]
    with threadpool_limits(1), np.errstate(all="ignore"):
        one, other = microseconds([lambda: objective(objective.origin), lambda: call(address)], repeats)
        search, other_search = microseconds(
            [
                lambda: lbfgs.minimise(objective, objective.origin, STEPS, 0.0),
                lambda: compiled_refinement.minimise(objective, STEPS, 0.0),
            ],
            max(repeats // 9, 1),
        )
    steps = search / STEPS, other_search / STEPS
    return [
        *(f"{one:,.0f}", f"{other:,.1f}", f"{one / other:.1f}"),
        *(f"{steps[0]:,.0f}", f"{steps[1]:,.1f}", f"{search / other_search:.1f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two shapes, few repeats")
    args = parser.parse_args()
    repeats = 3 if args.quick else 45
    table = Table("rows × features × landmarks, outputs, products", *COLUMNS)
    for n, d, m, k, products in SHAPES[:2] if args.quick else SHAPES:
        found = measured(leaf(n, d, m, k, products), repeats)
        table.add(f"{n:,} × {d} × {m}, {k}, {products}", *found)
    table.show()
    table = Table("kernel, loss: 550 × 16 × 16", *COLUMNS)
    for name in KERNELS[:2] if args.quick else KERNELS:
        for loss in LOSSES[:2] if args.quick else LOSSES:
            found = measured(leaf(550, 16, 16, 1, 0, name, loss), repeats)
            table.add(f"{name}, {type(loss).__name__.lower()}", *found)
    table.show()


if __name__ == "__main__":
    main()
