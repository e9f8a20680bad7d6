"""The bitcode of refinement, in processes of its own: made anew, with bounds checks, for other machines."""

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dcpred_tasks.engine import machine_code
from dcpred_tasks.training.compiled_refinement import FOLDER, REFINEMENT
from support import processes
from support.arm import check_arm
from support.caches import with_cache

BITCODE, MADE_OF = "refinement.bc", "refinement.json"
MAKE = [sys.executable, "-m", "dcpred_tasks.refinement_source"]
CHECKED = """
import sys
from pathlib import Path
import numpy as np
from dcpred_tasks.training import compiled_refinement as ours
from support.objectives import LOSSES, problem

ours.REFINEMENT = ours.REFINEMENT._replace(folder=Path(sys.argv[1]))
for loss in LOSSES:
    for n, m, d, k, products in ((1, 1, 1, 1, 0), (17, 3, 2, 1, 6), (300, 9, 5, 1, 0), (700, 11, 4, 3, 5)):
        ours.minimise(problem("rbf", products, k, loss, n=n, m=m, d=d), 30, 0.0)

handed = ours.arguments(problem("rbf", 2, 2, 0.5, n=300), 30, 0.0)
for part, values in zip(("p", "room"), handed, strict=True):
    for name, array in values._asdict().items():
        if isinstance(array, np.ndarray):
            lost = 17 if name in ("x", "weight", "goals") else 1
            short = values._replace(**{name: array[:-lost]})
            try:
                ours.call(handed._replace(**{part: short}))
            except IndexError:
                continue
            print(name)
"""


def said(done: processes.Done) -> str:
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout.strip()


def test_the_bitcode_is_of_these_sources(tmp_path: Path) -> None:
    """Made anew, it is the same to the byte."""
    known = json.loads((FOLDER / MADE_OF).read_text())
    assert known["sources"] == machine_code.fingerprint_of_sources(REFINEMENT)
    made_with = {name: version(name) for name in ("numba", "llvmlite")}
    made_with["python"] = ".".join(platform.python_version_tuple()[:2])
    if known["made_with"] != made_with:
        pytest.skip(f"made with {known['made_with']}, and here is {made_with}")
    said(processes.run([*MAKE, str(tmp_path)]))
    assert json.loads((tmp_path / MADE_OF).read_text()) == known
    assert (tmp_path / BITCODE).read_bytes() == (FOLDER / BITCODE).read_bytes()


def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    """And every array that is too short is told."""
    env = with_cache(tmp_path, NUMBA_BOUNDSCHECK="1")
    said(processes.run([*MAKE, str(tmp_path)], env=env))
    command = [sys.executable, "-W", "error", "-c", CHECKED, str(tmp_path)]
    assert said(processes.run(command, env=with_cache(tmp_path))) == ""


def test_it_compiles_for_arm() -> None:
    check_arm((FOLDER / BITCODE).read_bytes(), "generic", {"exp", "memset", "memcpy", "memmove"})
