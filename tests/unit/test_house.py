"""The laws of the house: what may import what, how long things are, and what lies where."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("pipeline/dcpred/**/*.py"), *ROOT.glob("tasks/dcpred_tasks/**/*.py")])
DASK_MODULES = {"workers", "task_window", "out_of_core"}  # the only ones that build or run graphs
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("mypy",), ("importlinter.cli",)],
    ids=["ruff", "mypy", "import-linter"],
)
def test_tool_is_clean(command: tuple[str, ...]) -> None:
    if command[0] == "importlinter.cli":
        result = run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    else:
        result = run(sys.executable, "-m", *command)
    assert result.returncode == 0, result.stdout + result.stderr


def test_top_level_holds_nothing_else() -> None:
    tracked = run("git", "ls-files").stdout.split()
    if not tracked:
        pytest.skip("not in a git checkout")
    top = {name.split("/")[0] for name in tracked}
    allowed = {"pyproject.toml", "README.md", "LICENSE", "pipeline", "tasks", "tests", "deploy"}
    assert {name for name in top if not name.startswith(".")} == allowed


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_sources(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is for"
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    if imported & {"dask", "distributed"}:
        assert path.stem in DASK_MODULES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines <= MAX_FUNCTION_LINES, node.name


def test_serving_imports_neither_scikit_learn_nor_dask() -> None:
    code = (
        "import sys, dcpred, dcpred_tasks.task_bodies.score_block; dcpred.load_model; "
        "found = {'sklearn', 'dask', 'distributed', 'scipy', 'pandas', 'pyarrow', 'xarray'} & set(sys.modules); "
        "sys.exit(f'imported {found}' if found else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert result.returncode == 0, result.stderr


def test_a_users_own_tasks_module_shadows_nothing(tmp_path: Path) -> None:
    for name in ("tasks.py", "pipeline.py", "store.py"):
        (tmp_path / name).write_text("raise RuntimeError('shadowed')")
    result = subprocess.run(
        [sys.executable, "-c", "import dcpred.training.train, dcpred_tasks.task_bodies.train_model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
