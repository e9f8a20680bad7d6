"""Generated pages: the API by `dcpred.__all__`, the commands, the keys of `--json`."""

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, chdir, nullcontext
from dataclasses import is_dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_type_hints
from unittest.mock import patch

import click
from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.execution.workers import InlineWorkers

# Methods that scikit-learn adds for the routing of metadata, described there.
ROUTING = "set_fit_request, set_predict_request, set_score_request, set_partial_fit_request"
KEY = re.compile("[a-z]+[a-z0-9]*(_[a-z0-9]+)*")
TYPES = {dict: "object", list: "list", str: "text", bool: "true or false", int: "integer", float: "number"}
TYPES[type(None)] = "null here"
SPECIAL = re.compile(r"(?<!\\)([*_<>|\[\]{}#~$])")


def pages() -> Iterator[tuple[str, str, str]]:
    """(name, a file beside which its links hold or "", text) of each page."""
    yield "reference/commands", "", commands_page()
    yield "reference/json", "", json_page()
    for name in dcpred.__all__:
        yield f"reference/api/{name}", "", api_page(name)
    yield "reference/api/index", "", api_index()


def api_index() -> str:
    """All public names, by their kind."""
    text = "# Python API\n\nAll public names of the package `dcpred`. Everything else may change.\n"
    names = sorted(dcpred.__all__, key=str.lower)
    results = {name for name in names if inspect.isclass(getattr(dcpred, name)) and returned_by(name)}
    functions = {name for name in names if inspect.isfunction(getattr(dcpred, name))}
    for title, part in (
        ("Functions", functions),
        ("Estimators, models and arguments", {*names} - functions - results),
        ("Results", results),
    ):
        listed = [name for name in names if name in part]
        rows = "".join(f"| [`{name}`]({name}.md) | {summary(name)} |\n" for name in listed)
        text += f"\n## {title}\n\n| name | |\n|---|---|\n{rows}"
        text += ":::{toctree}\n:hidden:\n\n".join(("\n", "\n".join(listed))) + "\n:::\n"
    return text


def returned(thing: Any) -> list[str]:
    """The public classes that a function returns, or that the fields of a class hold."""
    if inspect.isfunction(thing):
        left = [get_type_hints(thing).get("return")]
    elif is_dataclass(thing) or issubclass(thing, list):
        left = [*get_type_hints(thing).values(), *getattr(thing, "__orig_bases__", ())]
    else:
        return []
    found = []
    while left:
        one = left.pop(0)
        left += get_args(one)
        name = getattr(one, "__name__", "")
        if inspect.isclass(one) and name in dcpred.__all__ and getattr(dcpred, name) is one:
            found.append(name)
    return list(dict.fromkeys(found))


@cache
def returned_by(name: str) -> list[str]:
    """The public functions and classes that give a class. A model is no result."""
    things = {one: getattr(dcpred, one) for one in sorted(dcpred.__all__, key=str.lower)}
    if name == "ServedModel":
        return []
    return [one for one, thing in things.items() if hasattr(thing, "__module__") and name in returned(thing)]


def summary(name: str) -> str:
    """The first sentence of a docstring."""
    if name == "__version__":
        return "The version of this package."
    text = inspect.getdoc(getattr(dcpred, name)) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def api_page(name: str) -> str:
    """The page of one public name."""
    found = getattr(dcpred, name)
    if inspect.isclass(found):
        directive = f".. autoclass:: dcpred.{name}\n   :members:\n   :inherited-members: {bases(found)}"
        directive += f"\n   :exclude-members: {ROUTING}"
    elif callable(found):
        directive = f".. autofunction:: dcpred.{name}"
    else:
        directive = f".. py:data:: dcpred.{name}\n\n   {summary(name)}"
    text = f"# {marked(name)}\n\n```{{eval-rst}}\n{directive}\n```\n"
    if not callable(found):
        return text
    if others := returned(found):
        text += f"\n{'Fields' if inspect.isclass(found) else 'Returns'}: {links(others)}.\n"
    if inspect.isclass(found) and (others := returned_by(name)):
        text += f"\nIn results of: {links(others)}.\n"
    return text


def links(names: list[str]) -> str:
    return ", ".join(f"[{name}]({name}.md)" for name in names)


def bases(found: type) -> str:
    """Ancestors from elsewhere, whose members their own pages describe."""
    return ", ".join(base.__name__ for base in found.__mro__ if not base.__module__.startswith("dcpred"))


def commands_page() -> str:
    """Usage, help and options of every command, as `-h` prints them."""
    text = "# Commands\n\n`dcpred COMMAND -h` prints the same. [Overview of commands](guide.md#commands).\n"
    group = click.Context(main, info_name="dcpred")
    for name in main.list_commands(group):
        command = main.get_command(group, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=group)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        text += f"\n## dcpred {name}\n\n```text\n{usage}\n```\n\n"
        help_text = inspect.cleandoc(command.help or "").replace("\b\n", "")
        text += "\n\n".join(marked(" ".join(part.split())) for part in help_text.split("\n\n")) + "\n"
        if command.epilog:
            text += f"\n`{command.epilog.removeprefix('Example: ')}`\n"
        records = (parameter.get_help_record(context) for parameter in command.params)
        rows = [f"| `{cell(found[0])}` | {marked(found[1])} |\n" for found in records if found and found[1]]
        text += "\n| option | meaning |\n|---|---|\n" + "".join(rows)
    return text


def cell(text: str) -> str:
    """Code within a table."""
    return text.replace("|", "\\|")


def marked(text: str) -> str:
    """A text of the command line in Markdown: what is between backticks stays as it is."""
    spans = text.replace("\n", " ").split("`")
    return "`".join(span if i % 2 else SPECIAL.sub(r"\\\1", span) for i, span in enumerate(spans))


# What the keys are taken from, in this order, with workers in this process.
EXAMPLES = (
    "example",
    "import known.csv known.zarr --target label --id id",
    "split known.zarr",
    "train known-train.zarr model --set n_leaves=1",
    "evaluate model known-test.zarr --no-cost",
    "validate known.zarr --folds 2 --set n_leaves=1",
    "import new.csv new.zarr --like model",
    "score model new.zarr scores",
    "status scores",
    "errors scores",
    "verify scores",
    "export scores scored.csv",
    "explain model new.zarr --rows 5",
    "refresh model new.zarr nightly",
    "inspect model",
    "report scores --out page.html",
)


def json_page() -> str:
    """The keys that `--json` prints, taken from what it prints."""
    text = (
        "# JSON keys\n\n`--json` prints one object on standard output. An error has the keys `error` and"
        " `exit_code`. These tables come from the commands above them, on the tables of `dcpred example`."
        " A key within another follows a dot; `[]` stands for each element of a list.\n"
    )
    with TemporaryDirectory() as folder, chdir(folder), ExitStack() as stack:
        stack.enter_context(
            patch("dcpred.execution.dask_workers.connected", lambda *_: nullcontext(InlineWorkers()))
        )
        seen = set()
        for line in EXAMPLES:
            done = CliRunner().invoke(main, [*line.split(), "--json", "--quiet"])
            if done.exit_code:
                raise RuntimeError(f"dcpred {line}: {done.output}")
            if line.split()[0] not in seen:
                rows = "".join(f"| `{key}` | {kind} |\n" for key, kind in keys(json.loads(done.stdout)))
                text += f"\n## dcpred {line.split()[0]}\n\n`dcpred {line}`\n\n"
                if line.split()[0] in dcpred.__all__:
                    name = line.split()[0]
                    text += f"The result of [dcpred.{name}](api/{name}.md) has the same, by `as_dict()`.\n\n"
                text += f"| key | type |\n|---|---|\n{rows}"
            seen.add(line.split()[0])
    return text


def keys(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name, type) of each value of JSON. An object whose keys come from the data is one value."""
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        yield name, "list"
        merged = {}
        for element in value:
            merged |= element if isinstance(element, dict) else {}
        yield from keys(merged, f"{name}[]") if merged else ()
    elif isinstance(value, dict) and value and all(KEY.fullmatch(key) for key in value):
        if name and not name.endswith("[]"):
            yield name, "object"
        for key, inner in value.items():
            yield from keys(inner, f"{name}.{key}" if name else key)
    else:
        yield name, TYPES[type(value)]
