"""Which module of the product imports which, at its top or within its functions."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("tasks/dcpred_tasks", "pipeline/dcpred", "pipeline/dcpred_compare")


class Import(NamedTuple):
    """An import of one module."""

    target: str
    """A module of the product, or a library: "sklearn"."""
    lazy: bool
    """Whether it happens within a function."""
    line: int


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """The modules of the product by name."""
    return {module_name(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


@cache
def imports(module: str) -> list[Import]:
    """The imports of a module, without those for type checkers."""
    return list(_imports(ast.parse(modules()[module].read_text(encoding="utf-8")), False))


def _imports(node: ast.AST, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(_target(alias.name), lazy, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield Import(_target(inner if inner in modules() else child.module or ""), lazy, child.lineno)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _imports(child, lazy or isinstance(child, ast.FunctionDef))


def _target(name: str) -> str:
    return name if name in modules() else name.partition(".")[0]


@cache
def loaded(module: str) -> frozenset[str]:
    """The modules and libraries that come with a module or a library, itself included."""
    seen, waiting = set[str](), [module]
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            waiting += [name.rpartition(".")[0]] if "." in name else []
            if name in modules():
                waiting += [each.target for each in imports(name) if not each.lazy]
    return frozenset(seen)


def circles() -> list[list[str]]:
    """Groups of modules that import each other, also within functions."""
    reached: dict[str, set[str]] = {}
    for module in modules():
        seen, waiting = set[str](), [module]
        while waiting:
            for each in imports(waiting.pop()):
                if each.target in modules() and each.target not in seen:
                    seen.add(each.target)
                    waiting.append(each.target)
        reached[module] = seen
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in reached if a in reached[a]}
    return [list(group) for group in sorted(groups)]
