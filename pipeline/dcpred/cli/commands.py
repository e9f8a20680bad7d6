"""Commands made of public functions: signatures and docstrings give arguments, options, defaults and help."""

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import click

import dcpred
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
    DurationType,
    FolderType,
    NamesType,
    RowCount,
    cluster_options,
    fail_option,
    files,
    json_option,
    reports_errors,
    storage_option,
)
from dcpred.public.functions import OPTIONS
from dcpred.public.parameters import HEADING, Parameter, parameters_in
from dcpred.runs.bad_rows import BadRowLimit
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.label_rule import given_costs

F = TypeVar("F", bound=Callable[..., Any])
# `cluster_options`, `fail_option` and all commands
WITHOUT_OPTION = ("client", "workers", "verbose", "storage_options", "on_alarm")
# What a parameter has beyond its annotation, as `click.option` takes it: limits, and a word for its value.
# "note" ends its help, and "flags" are other names.
SHAPES: dict[str, dict[str, Any]] = {
    "accept": {"metavar": "CODES"},
    "alpha": {"metavar": "SHARE"},
    "budget": {"metavar": "COST"},
    "by_time": {
        "metavar": "[NAME]",
        "is_flag": False,
        "flag_value": "",
        "note": "Write it after DATA.",
    },
    "costs": {"type": click.Path(exists=True, dir_okay=False, path_type=Path), "metavar": "FILE"},
    "data": {"type": click.STRING, "shell_complete": files},
    "delta": {"metavar": "TABLE"},
    "folds": {"type": click.IntRange(2, 20), "metavar": "K"},
    "keep": {"type": click.IntRange(1)},
    "max_bad_fraction": {"type": click.FloatRange(0, 1), "metavar": "F"},
    "max_bad_rows": {"type": RowCount(0)},
    "max_drift": {"metavar": "PSI"},
    "max_failures": {"type": click.IntRange(0)},
    "max_shift": {"metavar": "SD"},
    "model": {"type": ADDRESS},
    "outputs": {"metavar": "NAMES"},
    "scratch": {"type": FolderType(), "metavar": "DIR"},
    "seconds": {"flags": ("--time",), "type": DurationType(), "metavar": "TIME", "note": "30s, 10m or 1h."},
    "seed": {"type": click.IntRange(0)},
    "threshold": {"metavar": "P"},
}
IN_PYTHON = re.compile(r" In Python .*?\.(?= |$)")  # a sentence that is not for a command line
ARGUMENTS = {"X": "data"}  # what a command calls a parameter that is given by position
# Values that are wrong use of a command, before it begins: a check, and its parameters.
CHECKS: tuple[tuple[Callable[..., object], tuple[str, str]], ...] = (
    (given_costs, ("threshold", "costs")),
    (BadRowLimit, ("max_bad_rows", "max_bad_fraction")),
)


def command(
    name: str,
    *arguments: str,
    of: str = "",
    omit: Collection[str] = (),
    observed: bool = False,
    kind: type[click.Command] = click.Command,
    **shapes: dict[str, Any],
) -> Callable[[F], click.Command]:
    """Make a function the command `name`, with the options of the public function of this name.

    arguments  parameters that are given by position
    of         the public function, if it has another name
    omit       parameters that options of the function itself give
    observed   whether it takes --metrics and --events
    shapes     in place of those in SHAPES
    """
    function = getattr(dcpred, of or name.replace("-", "_"))
    known = {k: p for k, p in inspect.signature(function).parameters.items() if k not in {*omit}}
    text = inspect.getdoc(function) or ""
    texts, words = parameters_in(text), Words(known, arguments)
    params: list[click.Parameter] = []
    for key, parameter in known.items():
        shape = SHAPES.get(key, {}) | shapes.get(key, {})
        if key in arguments:
            required = parameter.default is parameter.empty
            kind_of = _value(parameter.annotation)["type"]
            argument = ARGUMENTS.get(key, key)
            given = {"type": kind_of, "required": required, **shape}
            params.append(click.Argument([argument], **given))
        elif key not in WITHOUT_OPTION:
            entry = texts.get(key, Parameter("", ""))  # without docstrings, by -OO
            params.append(_option(key, parameter, shape, Parameter(entry.kind, words.option(entry.text))))

    def decorate(body: F) -> click.Command:
        params.extend(_options_of(body))
        run: Callable[..., Any] = storage_option(body)
        run = json_option(reports_errors(observation_options(run) if observed else run))
        last = _options_of(run)
        if "workers" in known:
            run = cluster_options(run)
            params.extend(_options_of(run))
        if "on_alarm" in known:
            run = fail_option(run)
            params.extend(_options_of(run))
        help_text = "\n\n".join(filter(None, (words.help(text), inspect.getdoc(body))))
        return kind(name, params=[*params, *last], callback=_checked(run, params), help=help_text)

    return decorate


def _options_of(run: Callable[..., Any]) -> list[click.Parameter]:
    """Take from a function the options that decorators of click left there."""
    return list(reversed(run.__dict__.pop("__click_params__", [])))


def _checked(run: Callable[..., Any], params: Sequence[click.Parameter]) -> Callable[..., Any]:
    """The same with wrong use refused, and with the names of options in other errors."""
    names_of = {param.name: param.opts[0] for param in params if isinstance(param, click.Option)}

    @wraps(run)
    def checked(**options: Any) -> Any:
        for check, names in CHECKS:
            try:
                check(*(options.get(name) for name in names))
            except SettingsError as error:
                raise click.UsageError(str(error)) from None
        token = OPTIONS.set({name: option for name, option in names_of.items() if name})
        try:
            return run(**options)
        finally:
            OPTIONS.reset(token)

    return checked


def _value(annotation: Any) -> dict[str, Any]:
    """The type of click for an annotation, and a word for the value."""
    parts = set(get_args(annotation)) or {annotation}
    if Path in parts:
        return {"type": ADDRESS}
    if int in parts:
        return {"type": click.INT, "metavar": "N"}
    return {"type": click.FLOAT if parts <= {float, type(None)} else click.STRING, "metavar": "NAME"}


def _option(name: str, parameter: inspect.Parameter, shape: dict[str, Any], entry: Parameter) -> click.Option:
    annotation, default = parameter.annotation, parameter.default
    given = {"help": " ".join(filter(None, (entry.lines, shape.get("note")))), **shape}
    flags = [name, *given.pop("flags", (f"--{name.replace('_', '-')}",))]
    given.pop("note", None)
    if annotation is bool:
        return _flag(flags, default, given)
    if annotation == bool | None:
        return click.Option([name, f"--{name}/--no-{name}"], default=None, **given)
    if any(get_origin(part) is Sequence for part in (annotation, *get_args(annotation))):
        return click.Option(
            flags,
            **{"type": NamesType(), "metavar": "A,B", **given},
            multiple=True,
            callback=_joined(default),
        )
    if choices := re.match(r"\{(.*?)\}", entry.kind):
        given = {"type": click.Choice(re.findall(r'"(.*?)"', choices[1])), **given}
    else:
        given = _value(annotation) | given
    if default is parameter.empty:
        return click.Option(flags, required=True, **given)
    return click.Option(flags, default=default, show_default=default is not None, **given)


def _flag(flags: Sequence[str], default: bool, given: dict[str, Any]) -> click.Option:
    if not default:
        return click.Option(flags, is_flag=True, **given)

    given["help"] = f"Do not {given['help'][:1].lower()}{given['help'][1:]}"

    def negated(ctx: click.Context, option: click.Parameter, value: bool) -> bool:
        return not value

    name, long = flags
    return click.Option([name, long.replace("--", "--no-", 1)], is_flag=True, callback=negated, **given)


def _joined(default: Any) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def joined(ctx: click.Context, option: click.Parameter, given: tuple[Any, ...]) -> Any:
        names = [name for value in given for name in ([value] if isinstance(value, str) else value)]
        return names if given else default

    return joined


class Words:
    """Texts of docstrings as a command line has them."""

    def __init__(self, parameters: Collection[str], arguments: Collection[str]) -> None:
        self.parameters, self.arguments = parameters, arguments

    def option(self, text: str) -> str:
        """The description of an option: its default stands in brackets at the end."""
        head, default, tail = IN_PYTHON.sub("", text).partition("By default ")
        meaning = self._plain(head).strip()
        if not default:
            return meaning
        begin = f"{meaning.removesuffix('.')} " if meaning else ""
        return f"{begin}[default: {self._plain(tail).strip().removesuffix('.')}]."

    def help(self, text: str) -> str:
        """What a function does, with its notes."""
        notes = re.search(
            r"^Notes\n-----\n(.*?)(?=\n\n[A-Z][A-Za-z ]+\n---|\Z)", text, re.DOTALL | re.MULTILINE
        )
        parts = [text.partition(HEADING)[0], notes[1] if notes else ""]
        return self._plain("\n\n".join(part.strip() for part in parts if part)).replace(
            "same call", "same command"
        )

    def _plain(self, text: str) -> str:
        text = re.sub(r'``""``', "no name", text)
        text = re.sub(r'``(?:"(.*?)"|(.*?))``', lambda match: match[1] or match[2], text)
        return re.sub(r"`([^` ]+)`", lambda match: self._name(match[1]), text)

    def _name(self, name: str) -> str:
        if name in self.arguments:
            return name.upper()
        if name in self.parameters:
            return f"--{name.replace('_', '-')}"
        return f"`dcpred {name.replace('_', '-')}`" if name in dcpred.__all__ else name
