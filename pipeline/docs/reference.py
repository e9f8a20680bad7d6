"""Generated pages: the API by `dcpred.__all__`, and the commands."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

import click
import json_keys

import dcpred
from dcpred.cli import main

# Methods that scikit-learn adds for the routing of metadata, described there.
ROUTING = "set_fit_request, set_predict_request, set_score_request, set_partial_fit_request"
SPECIAL = re.compile(r"(?<!\\)([*_<>|\[\]{}#~$])")


def pages() -> Iterator[tuple[str, str, str]]:
    """(name, a file beside which its links hold or "", text) of each page."""
    yield "reference/commands", "", commands_page()
    yield "reference/json", "", json_keys.page()
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
