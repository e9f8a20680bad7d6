"""The laws of the house: what may import what, how long things are, and what lies where."""

import ast
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.resources import files
from itertools import combinations, product
from pathlib import Path

import pytest

from support import imports, processes
from support.pairs import covering

pytestmark = pytest.mark.cases()  # what is enumerated may grow

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = (ROOT / "tasks", ROOT / "pipeline")
SOURCES = sorted(path for source_root in SOURCE_ROOTS for path in source_root.rglob("*.py"))
NAMES = {path.name for path in [*SOURCES, *(ROOT / "tests").rglob("*.py")]}
# The only ones that build or run graphs.
DASK_MODULES = {"dask_workers", "local_processes", "task_window", "out_of_core", "dask_rows"}
ROOMS = [path for path in SOURCES if path.name == "__init__.py" and path.parents[1] not in SOURCE_ROOTS]
ROOT_ROOM = "the root of dcpred_tasks"  # its single modules, which every room of it may import
MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 60
# Names that say nothing of what they hold.
VAGUE = {"found", "kept", "one", "own", "said", "standing", "summary", "told"}
VAGUE_FIELDS = {
    ("dcpred.verification.verify", "found"),
    ("dcpred.evaluation.explanation", "said"),
    ("dcpred.training.reports", "found"),
}  # JSON keys
HALF_SENTENCE = re.compile(r"#\s*(of|that|which|from|whose|and|or|as)\b")


def run(*command: str) -> processes.Done:
    return processes.run(command, cwd=ROOT)


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        pytest.param(("mypy",), marks=pytest.mark.tools),
        ("importlinter.cli",),
    ],
    ids=["ruff", "format", "mypy", "import-linter"],
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


def imported_names(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in found}


def named_by(requirements: Iterable[str]) -> set[str]:
    """The distributions that requirements name, extras of a requirement beside it: dask[distributed]."""
    return {
        name.lower()
        for one in requirements
        for name in re.findall(r"[\w.-]+", re.split("[<>=!~; (]", one)[0])
    }


def test_what_is_imported_is_installed_with_the_package_or_an_extra() -> None:
    """Declared, or required by what is declared: where Zarr or scikit-learn drop one, this shows it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 10
    installed = named_by(project["dependencies"])
    for name in list(installed):
        always = (one for one in metadata.requires(name) or () if "extra ==" not in one)
        installed |= named_by(always)
    for extra in set(project["optional-dependencies"]) - {"test"}:
        installed |= named_by(project["optional-dependencies"][extra])
    imported = {name for path in SOURCES for name in imported_names(path)} - set(sys.stdlib_module_names)
    # No test installs these.
    elsewhere = {key: ["scikit-learn-intelex"] for key in ("daal4py", "sklearnex")} | {
        "mlflow": ["mlflow-skinny"]
    }
    homes = elsewhere | dict(metadata.packages_distributions())
    missing = {name for name in imported if not {h.lower() for h in homes.get(name, [name])} & installed}
    site = {"reference", "json_keys"}
    assert missing <= {"dcpred", "dcpred_tasks", "dcpred_compare", "ziglang"} | site, (
        "ziglang compiles before the package is installed, and others are modules of the site"
    )


def test_an_import_within_a_function_spares_a_library() -> None:
    """It is of what takes time or is optional: it brings a library that its module does not bring itself."""
    own = {*imports.modules(), *sys.stdlib_module_names} - {"multiprocessing"}
    broken = [
        f"{module}:{each.line}: {each.target}"
        for module in imports.modules()
        for each in imports.imports(module)
        if each.lazy and not imports.loaded(each.target) - imports.loaded(module) - own
    ]
    assert not broken, "\n".join(broken)


def test_no_import_by_text() -> None:
    """But of what is chosen by its name: public names of dcpred, and commands."""
    named = {
        name
        for name, path in imports.modules().items()
        if re.search(r"\bimport_module\b|__import__\(", path.read_text(encoding="utf-8"))
    }
    assert named == {"dcpred", "dcpred.cli.main"}


def test_no_modules_import_each_other() -> None:
    """Neither at their tops nor within functions: what both need lies below both."""
    assert imports.circles() == []


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of all that a module assigns, takes as a parameter, or defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def test_a_result_is_named_after_what_it_holds() -> None:
    broken = [
        f"{module}:{line}: {name}"
        for module, path in imports.modules().items()
        for line, name in named(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_").lower() in VAGUE and (module, name) not in VAGUE_FIELDS
    ]
    assert not broken, "\n".join(broken)


def test_nothing_is_declared_that_nothing_names() -> None:
    """Functions and classes occur elsewhere in the product or on a page, but for commands, which click finds,
    and for what MLflow calls. Modules are imported, or named as the home of a public name or a command.
    """
    files = [path for root in ("pipeline", "tasks", "deploy") for path in (ROOT / root).rglob("*.*")]
    texts = [path.read_text("utf-8") for path in files if path.suffix in (".py", ".md", ".html", ".toml")]
    texts.append((ROOT / "pyproject.toml").read_text("utf-8"))
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    named = {each.target for module in imports.modules() for each in imports.imports(module)}
    dead = []
    for module, path in imports.modules().items():
        quoted = re.compile(rf"\"({re.escape(module.partition('.')[2])}\"|{re.escape(module)}[\":])")
        if not (module in named or path.stem in ("__init__", "__main__", "mlflow") or "_command" in module):
            dead += [] if any(quoted.search(text) for text in texts) else [module]
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and words[node.name] == 1:
                dead += [] if node.name.endswith("_command") or path.stem == "mlflow" else [node.name]
    assert not dead


def test_pages_have_titles_of_their_own() -> None:
    pages = [
        *(ROOT / "pipeline/docs").glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *ROOT.glob("tasks/*.md"),
    ]
    titles = [page.read_text("utf-8").splitlines()[0] for page in pages]
    assert all(title.startswith("# ") for title in titles)
    assert len(set(titles)) == len(titles)


def broken_laws(path: Path) -> Iterator[str]:
    """What is wrong with one module."""
    text = path.read_text()
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "a module says what it is for"
    if len(text.splitlines()) > MAX_MODULE_LINES:
        yield f"it has more than {MAX_MODULE_LINES} lines"
    named = set(re.findall(r"\((?:[a-z]+/)*([a-z_]+\.py)\)", text))
    if named - NAMES:
        yield f"{named - NAMES}: a module that is referred to is there"
    imports_dask = imported_names(path) & {"dask", "distributed"} and path.parent.name != "gallery"
    if imports_dask and path.stem not in DASK_MODULES:
        yield f"only {DASK_MODULES} import Dask"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "read_text":
            read = ast.get_source_segment(text, node)
            if f'{read}(encoding="utf-8"' not in text:
                yield "text is UTF-8, whatever the locale"
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} has {lines} lines"


def test_sources() -> None:
    broken = [f"{path.relative_to(ROOT)}: {law}" for path in SOURCES for law in broken_laws(path)]
    assert not broken, "\n".join(broken)


def test_each_broken_law_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "# See (absent.py).\nimport dask\nthis.read_text()\ndef long():\n" + "    x = 1\n" * 61 + "\n" * 800
    )
    assert [law.split()[0] for law in broken_laws(path)] == [
        "a",
        "it",
        "{'absent.py'}:",
        "only",
        "long",
        "text",
    ]
    path.write_text('"""A module."""\n')
    assert not list(broken_laws(path))


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the beginning of each comment. A comment right below another, on lines of their own in
    the same column, continues it.
    """
    above = (0, 0)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                own_line = not token.line[:column].strip()
                if not (own_line and above == (line - 1, column)):
                    yield line, token.string
                above = (line, column) if own_line else (0, 0)


def test_a_comment_is_a_noun_phrase_or_a_sentence() -> None:
    """And never the second half of one."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in comments(path)
        if HALF_SENTENCE.match(text)
    ]
    assert not found, "\n".join(found)


def test_every_pair_of_values_meets() -> None:
    values = [range(n) for n in (5, 2, 3, 4)]
    chosen = covering(list(product(*values)))
    for one, other in combinations(range(4), 2):
        assert {(at[one], at[other]) for at in chosen} == set(product(values[one], values[other]))
    assert 20 <= len(chosen) < 30, "as many as the two longest axes have pairs, and few more"


def test_where_a_comment_begins(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'x = 1  # of one\n# of two,\n# which goes on\ny = "# none"\nif x:\n    # of three\n    # and on\n'
        "    y = 2  # of four\n    # that is five\n"
    )
    assert list(comments(path)) == [
        (1, "# of one"),
        (2, "# of two,"),
        (6, "# of three"),
        (8, "# of four"),
        (9, "# that is five"),
    ]
    assert all(HALF_SENTENCE.match(text) for _, text in comments(path))
    assert not any(HALF_SENTENCE.match(text) for text in ("# often", "# Of a block", "# the order of rows"))


def test_a_room_says_what_it_is_for_and_imports_nothing_else() -> None:
    """Its docstring names what it may import: rooms and modules of dcpred, rooms of dcpred_tasks, or a whole
    package.
    """
    broken = [f"{path.parent.relative_to(ROOT)}: {what}" for path in ROOMS for what in not_allowed(path)]
    assert not broken, "\n".join(broken)


def not_allowed(path: Path) -> Iterator[str]:
    """The imports of a room that its docstring does not name."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    if "May import: " not in said:
        yield "its docstring does not say what it may import"
    allowed = {
        name.rstrip(".")
        for name in re.findall(r"dcpred[\w.]*", said.partition("May import: ")[2].replace(ROOT_ROOM, ""))
    }
    package, own = path.parts[-3], ".".join(path.parts[-3:-1])
    for module in path.parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in (
                "dcpred",
                "dcpred_tasks",
            ):
                continue
            parts = (node.module or "").split(".")
            target = ".".join(parts[:2] if len(parts) > 1 else [*parts, node.names[0].name])
            of_root = (
                target.startswith("dcpred_tasks.")
                and (SOURCE_ROOTS[0] / f"{target.replace('.', '/')}.py").exists()
            )
            fine = (
                target == own
                or parts[0] in allowed
                or target in allowed
                or (package == "dcpred_tasks" and of_root)
            )
            if not fine:
                yield f"{module.name} imports {target}"


def test_the_installation_has_the_entry_points_of_this_checkout() -> None:
    """Where it has not, repeat `pip install -e .`: dcpred finds its extensions by what is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"] | {"console_scripts": project["scripts"]}
    installed: dict[str, dict[str, str]] = {group: {} for group in declared}
    for entry in metadata.distribution("dcpred").entry_points:
        installed[entry.group][entry.name] = entry.value
    assert installed == declared


@pytest.mark.parametrize("package", ["dcpred", "dcpred_tasks", "dcpred_compare"])
def test_types_are_shipped(package: str) -> None:
    """A package without this file is untyped to whoever imports it."""
    assert (files(package) / "py.typed").is_file()


def test_serving_imports_neither_scikit_learn_nor_dask() -> None:
    code = (
        "import sys, dcpred, dcpred_tasks.task_bodies.score_block; dcpred.load_model; found = {'sklearn',"
        " 'dask', 'distributed', 'scipy', 'pandas', 'pyarrow', 'xarray'} & set(sys.modules);"
        " sys.exit(f'imported {found}' if found else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert result.returncode == 0, result.stderr


def test_a_users_own_tasks_module_shadows_nothing(tmp_path: Path) -> None:
    for name in ("tasks.py", "pipeline.py", "store.py"):
        (tmp_path / name).write_text("raise RuntimeError('shadowed')")
    result = subprocess.run(
        [sys.executable, "-c", "import dcpred.training.fit, dcpred_tasks.task_bodies.train_model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
