"""The bitcode of refinement, in processes of its own: made anew, with sanitizers, for other machines."""

import sys
from pathlib import Path

import pytest

from dcpred_tasks.engine.native_modules import REFINEMENT
from support import processes
from support.arm import check_arm
from support.caches import with_cache
from support.native import HERE, QUICK, check_made_anew, sanitized

SHAPES = "((1, 1, 1, 1, 0), (17, 3, 2, 1, 6), (300, 9, 5, 1, 0), (300, 11, 4, 3, 5))"
REFINED = (
    HERE
    + """
from dataclasses import replace
import numpy as np
from dcpred_tasks.engine import machine_code
from dcpred_tasks.engine.native_modules import REFINEMENT
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.training import compiled_refinement as ours, compiled_start as start
from dcpred_tasks.training.compiled_calibration import CalibratingArguments, CompiledLoss
from support.objectives import LOSSES, near, problem

machine_code.own_code = lambda of: native
for loss in LOSSES:
    for kernel in KERNELS:
        for n, m, d, k, products in SHAPES:
            ours.minimise(problem(kernel, products, k, loss, n=n, m=m, d=d, own_factors=d > 2), 4, 0.0)

ours.minimise(near(2, 20), 4, 0.0)
batched = problem("rbf", 6, 3, "hinge", n=300, own_factors=True)
ours.stochastic(batched, np.full(batched.at[-1], 0.1), 2, [np.arange(300)[::-1]] * 2, 4)
for n, k in ((9, 8), (40, 3), (1000, 32)):
    pool = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    ours.neighbours(pool[:9], np.arange(9), pool, np.ones(3, np.float32), k)
for trials in (0, 3):
    for n, k in ((1, 1), (17, 17), (100, 9)):
        draws = np.linspace(0.1, 1, k * trials).reshape(k, trials) if trials else np.linspace(0.1, 1, n)
        ours.clusters(pool[:n], np.ones(n), k, draws, 5, 1e-4)
for n, k in ((1, 1), (17, 1), (40, 5)):
    classes = max(k, 2)
    for factors in (np.empty(0), np.arange(1.0, 1 + classes)):
        rows = np.linspace(-2, 2, n * k).reshape(n, k), np.arange(n) % classes, np.ones(n)
        calibrated = CompiledLoss(*rows, np.full(classes, 1 / classes), np.array([-1.0, 0.0, 0.5]), factors)
        calibrated(-1.0, np.ones(2), 0.1, np.zeros(k))
for kernel in KERNELS:
    for n, m, d, k, products in SHAPES:
        objective = problem(kernel, products, k, "hinge", n=n, m=m, d=d, own_factors=d > 2)
        X, goal = objective.X.astype(np.float32), objective.goal
        start.Start(objective, 1e-4).solve(goal.target, goal.weight)
        if n > m:
            given = goal.target, goal.target, goal.weight, goal.weight, np.linspace(0.1, 1, n), 1e-4, 0.3
            start.landmarks(replace(objective.basis, pairs=np.empty((0, 2), np.int32)), X, *given)
"""
)
IS_CAUGHT = """
def is_caught(handed, part, name):
    values = handed._asdict()[part]
    lost = 17 if name in ("x", "weight", "goals") else 1
    short = values._replace(**{name: values._asdict()[name][:-lost]})
    try:
        machine_code.prepared(REFINEMENT, handed._replace(**{part: short}))()
    except IndexError:
        return True
"""
CAUGHT = """
for name in ("points", "point_weights"):
    assert is_caught(ours.arguments(near(2, 20), 4, 0.0), "p", name)
for kernel in KERNELS:
    more = problem(kernel, 2, 2, "logistic", n=300, own_factors=True)
    less = problem(kernel, 2, 2, "hinge 0.5", n=300)
    both = [ours.arguments(objective, 30, 0.0) for objective in (less, more)]
    unused = ("coefficients", "by_row") if kernel in ("laplacian", "polynomial") else ()
    for part, values in zip(("p", "room"), both[0], strict=True):
        for name, array in values._asdict().items():
            if isinstance(array, np.ndarray) and len(array) and name not in unused:
                if not any(is_caught(handed, part, name) for handed in both):
                    print(kernel, name)
"""
CAUGHT += """
SEARCH = ("rows", "pool_row", "pool", "limit", "distance", "number", "given", "source", "root", "used")
pool = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
search = ours.SearchArguments(ours.new_search(9, pool, np.ones(3), 4))
CLUSTERED = ("rows", "first", "strips", "middle", "factors", "label", "sums", "totals", "centres")
drawn = np.full((9, 2), 0.5)
centred = ours.ClusteringArguments(ours.new_clustering(pool, np.ones(300), 9, drawn, 5, 1e-4))
CALIBRATED = ("decision", "target", "weight", "prior", "factors", "knot", "numbers", "moved", "q", "right")
CALIBRATED += ("total", "by_slope", "by_share", "by_moved")
FITTED = ("weight", "target", "weighted", "sums", "system", "factor", "right", "values")
two = problem("rbf", 2, 2, "hinge", n=300)
fitted = start.RidgeArguments(*ours.arguments(two, 0, 0.0), start.Start(two, 1e-4).ridge)
clustered = ours.new_clustering(pool, np.ones(300), 9, np.ones(300), 5, 1e-4)
begun = start.BeginningArguments(*fitted, clustered)
passes = ours.arguments(batched, 4, 0.0, np.full(batched.at[-1], 0.1), 2)
passes.room.order[:] = np.arange(300)
for handed, part, names in (
    (search, "search", SEARCH),
    (CalibratingArguments(calibrated.rows), "calibrating", CALIBRATED),
    (fitted, "ridge", FITTED),
    (begun, "ridge", ("squares",)),
    (centred, "clustering", (*CLUSTERED, "draws", "closest", "distance")),
    (passes, "p", ("rates", "x", "goals", "weight")),
    (passes, "room", ("adam", "batch_x", "batch_weight", "batch_goals", "direction", "trial")),
):
    for name in names:
        if not is_caught(handed, part, name):
            print(part, name)
"""
CHECKED = f"SHAPES = {SHAPES}{REFINED}{IS_CAUGHT}{CAUGHT}"
FEW = f"SHAPES = {SHAPES}[1::2]{REFINED}"
ONE_TOO_SHORT = """
handed = ours.arguments(near(2, 20), 4, 0.0)
print(is_caught(handed, "p", "points"))
"""


def said(done: processes.Done) -> str:
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout.strip()


def test_the_bitcode_is_of_these_sources(tmp_path: Path) -> None:
    check_made_anew(REFINEMENT, tmp_path)


@pytest.mark.long
def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    """And every array that is too short is found."""
    arguments, env = sanitized("refinement", tmp_path)
    command = [sys.executable, "-W", "error", "-c", CHECKED, *arguments]
    assert said(processes.run(command, env=with_cache(tmp_path, **env))) == ""


@pytest.mark.tools
def test_no_index_leaves_its_array_in_half_of_the_shapes(tmp_path: Path) -> None:
    """With whatever compiler there is, each time."""
    arguments, env = sanitized("refinement", tmp_path, QUICK)
    command = [sys.executable, "-W", "error", "-c", FEW + IS_CAUGHT + ONE_TOO_SHORT, *arguments]
    assert said(processes.run(command, env=with_cache(tmp_path, **env))) == "True"


def test_it_compiles_for_arm() -> None:
    check_arm(REFINEMENT.code, "generic", {"exp", "memset", "memcpy", "memmove"})
