"""Errors of usage, in one sentence that states what to write."""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import click

from dcpred.execution.terminal import columns, has_colours, is_terminal, wrapped

EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)
NEAR = 0.7  # minimum similarity of a name to suggest
REMEDY = re.compile(r"[;.] ")  # click's own messages have no second sentence
UNKNOWN = re.compile(r"No such command '(.*)'", re.DOTALL)
# An example of each command; shown where an argument is missing, and by -h.
EXAMPLES: Mapping[str, str] = {
    "example": "dcpred example",
    "import": "dcpred import known.csv known.zarr --target label",
    "split": "dcpred split known.zarr --test 0.2",
    "train": "dcpred train known.zarr model",
    "tune": "dcpred tune known.zarr model --budget 15x",
    "score": "dcpred score model new.zarr scores",
    "refresh": "dcpred refresh model 'days/*.zarr' scored",
    "status": "dcpred status scores",
    "verify": "dcpred verify scores",
    "explain": "dcpred explain model new.zarr --rows 5,17",
    "export": "dcpred export scores scored.parquet",
    "export-model": "dcpred export-model model model.onnx",
    "errors": "dcpred errors scores",
    "evaluate": "dcpred evaluate model known-test.zarr",
    "report": "dcpred report model --data known-test.zarr",
    "validate": "dcpred validate known.zarr --by-group customer",
    "compare": "dcpred compare known.zarr --out side-by-side",
    "inspect": "dcpred inspect known.zarr",
    "completion": 'eval "$(dcpred completion bash)"',
}


class Misused(click.UsageError):
    """A mistake with a message of ours."""

    def show(self, file: IO[Any] | None = None) -> None:
        print_error(self.format_message())


@contextmanager
def in_our_words(group: click.Group) -> Iterator[None]:
    """Make click's errors about a command line state what is wrong and what to do."""
    try:
        yield
    except (Misused, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        raise Misused(sentence(error, group), error.ctx) from None


def sentence(error: click.UsageError, group: click.Group) -> str:
    """An error of click in a sentence."""
    ctx, text = error.ctx, error.format_message()
    command = "dcpred" if ctx is None else ctx.command_path
    see = f"See `{command} -h`."
    if isinstance(error, click.NoSuchOption):
        others = _commands_with(error.option_name, group)
        elsewhere = f"`dcpred {'` and `dcpred '.join(others)}` have it." if len(others) > 1 else ""
        elsewhere = f"`dcpred {others[0]}` has it." if len(others) == 1 else elsewhere
        return f"Cannot use {error.option_name}: `{command}` has no such option. " + _meant(
            error.option_name, _options(ctx), "", elsewhere or see
        )
    if (unknown := UNKNOWN.match(text)) is not None:
        return f"Cannot run `{command} {unknown[1]}`: there is no such command. " + _meant(
            unknown[1], group.list_commands(click.Context(group)), f"{command} ", see
        )
    if isinstance(error, click.MissingParameter) and ctx is not None and error.param is not None:
        return _missing(ctx, error.param)
    if isinstance(error, click.BadOptionUsage):
        return f"Cannot use {error.option_name}: it has no value. Give it one."
    if (extra := EXTRA.match(text)) is not None and ctx is not None:
        return (
            f"Cannot use {extra[1]}: `{command}` takes only {_takes(ctx)}. Omit it, or put quotes"
            " around what belongs together."
        )
    if isinstance(error, click.BadParameter) and not REMEDY.search(error.message):
        name = error.param.get_error_hint(ctx).strip("'") if error.param is not None and ctx else "a value"
        return f"Cannot use the value of {name}: {_lower(error.message)}. {see}"
    return error.message


def _meant(given: str, known: list[str], before: str, see: str) -> str:
    near = difflib.get_close_matches(given, known, 2, NEAR)
    return f"Did you mean {' or '.join(f'`{before}{name}`' for name in near)}?" if near else see


def _commands_with(option: str, group: click.Group) -> list[str]:
    """The names of up to three commands that have an option; none if more have it."""
    ctx = click.Context(group)
    each = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    found = [name for name, one in each if one and any(option in p.opts for p in one.params)]
    return found if len(found) <= 3 else []


def _options(ctx: click.Context | None) -> list[str]:
    if ctx is None:
        return []
    return [name for p in ctx.command.get_params(ctx) if isinstance(p, click.Option) for name in p.opts]


def _takes(ctx: click.Context) -> str:
    """The arguments of a command, as its usage lists them."""
    names = [p.make_metavar(ctx) for p in ctx.command.params if isinstance(p, click.Argument)]
    return " ".join(names) or "no arguments"


def _missing(ctx: click.Context, param: click.Parameter) -> str:
    """Everything from the first argument on that is missing."""
    if isinstance(param, click.Argument):
        every = [p for p in ctx.command.params if isinstance(p, click.Argument) and p.required]
        names = [p.make_metavar(ctx) for p in every[every.index(param) :]]
        needs = _takes(ctx)
    else:
        names = [max(param.opts, key=len)]
        needs = f"{names[0]} {param.make_metavar(ctx)}"
    are = "is" if len(names) == 1 else "are"
    example = EXAMPLES.get(ctx.info_name or "")
    do = f"Write for example `{example}`." if example else f"See `{ctx.command_path} -h`."
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"Cannot run `{ctx.command_path}`: it needs {needs}, but {listed} {are} missing. {do}"


def _lower(text: str) -> str:
    """A sentence as a part of another one."""
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


NAME = "dcpred: "


def print_error(sentence: str) -> None:
    """Print a sentence: wrapped on a terminal, elsewhere on one line for search and parsing."""
    sentence = sentence.encode(errors="backslashreplace").decode()  # a name may be invalid text
    if not is_terminal(sys.stderr):
        click.echo(f"{NAME}{sentence}", err=True)
        return
    text = wrapped(sentence, columns(sys.stderr), begin=len(NAME), indent=len(NAME))
    name = click.style(NAME, fg="red", bold=True) if has_colours(sys.stderr) else NAME
    click.echo(f"{name}{text}", err=True, color=has_colours(sys.stderr))
