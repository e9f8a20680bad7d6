"""The wheels: what they hold, and that the one for serving needs NumPy, Zarr and llvmlite alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from support import processes, sbom

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests/data/formats/model-08.tar.xz"
# Modules of Windows' standard library are fewer, and `os` has less.
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
POSIX_NAMES = (
    *("getuid", "geteuid", "register_at_fork", "sysconf", "sched_getaffinity", "O_NONBLOCK", "O_CLOEXEC"),
    *("O_NOFOLLOW", "fchmod", "fork"),
)
SCORING = """
import importlib.metadata, os, sys
allowed, blocked, names, model = {allowed!r}, {blocked!r}, {names!r}, {model!r}
class Allowed:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in blocked and top in allowed | sys.stdlib_module_names:
            return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Allowed, sys.meta_path)
for name in blocked:
    sys.modules.pop(name, None)
for name in names:
    if hasattr(os, name):
        delattr(os, name)
import dcpred, dcpred_tasks.task_bodies.score_block
import numpy as np
assert dcpred.__file__.startswith({folder!r}), dcpred.__file__
rows = np.load(model + "/rows.npy")
served = dcpred.load_model(model + "/model")
assert (served.decision_function(rows) == np.load(model + "/decision.npy")).all()
assert set(served.predict(rows)) == {{0, 1}}
assert served.predict_proba(rows).shape == (len(rows), 2)
try:
    dcpred.DCPredClassifier
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheels")
    folder = tmp_path_factory.mktemp("wheels")
    for project in sbom.PROJECTS.values():
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=project.parent, check=True, capture_output=True)
    return {path.name.partition("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def tracked(*folders: str) -> set[str]:
    listed = processes.run(("git", "ls-files", *folders), cwd=ROOT).stdout.split()
    if not listed:
        pytest.skip("not in a git checkout")
    return {name.partition("/")[2] for name in listed}


def test_the_wheel_of_the_client_holds_what_git_holds(wheels: dict[str, Path]) -> None:
    assert contents(wheels["dcpred"]) == tracked(
        "pipeline/dcpred", "pipeline/dcpred_compare", "tasks/dcpred_tasks"
    )


def test_the_wheel_for_serving_holds_what_git_holds(wheels: dict[str, Path]) -> None:
    own = {
        "dcpred/__init__.py",
        "dcpred/LICENSE",
        "dcpred/py.typed",
        "dcpred/serving/__init__.py",
        "dcpred/serving/served_model.py",
        "dcpred/version.py",
    }
    assert contents(wheels["dcpred-serving"]) == tracked("tasks/dcpred_tasks") | own


def test_wheels_hold_their_bill_of_materials(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as file:
            found = [one for one in file.namelist() if "/sboms/" in one]
            assert found == [f"{name.replace('-', '_')}-{sbom.version()}.dist-info/sboms/{name}.cdx.json"]
            assert json.loads(file.read(found[0])) == sbom.sbom(name), "run tests/support/sbom.py"


def test_serving_declares_three_requirements_with_the_floors_of_the_client() -> None:
    client, serving = (tomllib.loads(path.read_text())["project"] for path in sbom.PROJECTS.values())
    assert [re.split("[<>=]", one)[0] for one in serving["dependencies"]] == ["llvmlite", "numpy", "zarr"]
    assert set(serving["dependencies"]) < set(client["dependencies"])
    assert serving["requires-python"] == client["requires-python"]


def modules_of(requirements: list[str]) -> set[str]:
    """The top-level modules of distributions, and of all that they require."""
    homes, found, left = metadata.packages_distributions(), set[str](), list(requirements)
    while left:
        name = re.split(r"[\[<>=!~; (]", left.pop())[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            left += [one for one in metadata.requires(name) or () if "extra ==" not in one]
    return {module for module, its in homes.items() if {d.lower().replace("_", "-") for d in its} & found}


@pytest.mark.cases(1)
@pytest.mark.parametrize("posix", [False, True], ids=["no posix", "posix"])
def test_serving_scores_where_nothing_else_can_be_imported(
    wheels: dict[str, Path], tmp_path: Path, posix: bool
) -> None:
    """To the same bits, with the modules of the three requirements; also without what Windows lacks."""
    site, model = tmp_path / "site", tmp_path / "model"
    with zipfile.ZipFile(wheels["dcpred-serving"]) as file:
        file.extractall(site)
    shutil.unpack_archive(MODEL, model, filter="data")
    serving = tomllib.loads(sbom.PROJECTS["dcpred-serving"].read_text())["project"]
    code = SCORING.format(
        allowed=modules_of(serving["dependencies"]) | {"dcpred", "dcpred_tasks"},
        blocked=() if posix else POSIX_MODULES,
        names=() if posix else POSIX_NAMES,
        model=str(model),
        folder=str(site),
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (
        "Cannot import dcpred.DCPredClassifier: the distribution dcpred-serving only serves" in result.stdout
    )


def test_what_needs_posix_says_so_in_one_sentence(tmp_path: Path) -> None:
    """`dcpred.load_model` has no such need."""
    code = (
        "import importlib.util, sys; found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'fcntl' else found(name, *more)\n"
        "sys.modules['fcntl'] = None\n"
        "import dcpred; dcpred.load_model\n"
        "import dcpred.cli.main"
    )
    result = processes.run((sys.executable, "-c", code), cwd=tmp_path)
    assert result.returncode == 1
    assert (
        "ImportError: Cannot import this part of dcpred: training, scoring" in result.stderr.splitlines()[-1]
    )
