"""The group of commands. The module of a command is imported lazily, when it runs."""

import atexit
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, Any, ClassVar

import click
from click.shell_completion import CompletionItem, add_completion_class

from dcpred.cli.completion_command import VARIABLE, Bash
from dcpred.cli.options import print_error
from dcpred.execution.events import Verbosity, at_verbosity
from dcpred.execution.interrupts import end_tracker_at_exit, leave_at_signals
from dcpred.version import __version__
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import check_text

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


CHOSEN = f"{__name__}.chosen"  # in ctx.meta: the given option


def verbosity_options() -> list[click.Parameter]:
    """The options; they set `dcpred.execution.events`."""
    return [
        _option(
            "-v",
            "--verbose",
            Verbosity.MORE,
            "Print more: times, versions, places, tracebacks of errors.",
        ),
        _option("-q", "--quiet", Verbosity.QUIET, "Print nothing on standard error but errors."),
    ]


def _option(short: str, long: str, level: Verbosity, meaning: str) -> click.Option:
    def choose(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if not value:
            return
        if ctx.meta.setdefault(CHOSEN, long) != long:
            raise click.UsageError(
                "Cannot combine --verbose with --quiet: one excludes the other. Give one of them.", ctx
            )
        ctx.with_resource(at_verbosity(level))

    return click.Option([short, long], is_flag=True, expose_value=False, callback=choose, help=meaning)


class Commands(click.Group):
    """Commands by name: command NAME is `NAME_command` of the module dcpred.cli.NAME_command, or of that of
    `homes`. Each has -v and -q, and an example in its help.
    """

    summaries: ClassVar[dict[str, str]] = {
        "demo": "Run the whole job on real digits: Zarr, training, scoring, evaluation.",
        "example": "Write small tables to try the commands on.",
        "import": "Import a table or a matrix into Zarr.",
        "split": "Split a data set into training and test rows.",
        "train": "Train a model on a Zarr data set.",
        "tune": "Choose settings within a cost, and train with them.",
        "score": "Score every row of a Zarr array.",
        "refresh": "Score what is new or changed since the last run, and publish the result.",
        "status": "Show the progress of a scoring run, or list the runs of a refresh.",
        "verify": "Check that an output is complete and unmodified.",
        "export": "Write scores as a table, with the ids of their rows.",
        "errors": "List rows that have no score, and why.",
        "evaluate": "Measure accuracy (or RMSE and R²) and cost on labelled data.",
        "explain": "Explain the predictions of rows.",
        "report": "Write a page with plots of a model, an evaluation, a search, a run or a comparison.",
        "validate": "Cross-validate a training.",
        "compare": "Compare dcpred with baselines on one data set.",
        "inspect": "Show what a data set, a model or an output holds.",
        "warm": "Compile the scoring engine and refinement ahead of time.",
        "completion": "Print a completion script for a shell.",
    }
    homes: ClassVar[dict[str, str]] = {"errors": "status", "example": "demo"}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.summaries:
            return None
        module = self.homes.get(cmd_name, cmd_name)
        command = getattr(import_module(f"dcpred.cli.{module}_command"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        if not any(parameter.name == "quiet" for parameter in command.params):
            command.params += verbosity_options()
            if cmd_name in EXAMPLES:
                command.epilog = f"Example: {EXAMPLES[cmd_name]}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete without importing the commands themselves."""
        of_group = click.Command.shell_complete(self, ctx, incomplete)
        named = {name: summary for name, summary in self.summaries.items() if name.startswith(incomplete)}
        return [*(CompletionItem(name, help=summary) for name, summary in named.items()), *of_group]

    def main(self, *args: Any, **more: Any) -> Any:
        if VARIABLE in os.environ:
            add_completion_class(Bash)
        return super().main(*args, **more)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **more: Any
    ) -> click.Context:
        with in_our_words(self):
            for arg in args:
                _check_text(arg)
            return super().make_context(info_name, args, parent, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with in_our_words(self):
            return super().invoke(ctx)


def _check_text(arg: str) -> None:
    """Refuse a name that is not valid text before a command begins: plans and metrics cannot hold it."""
    try:
        check_text(arg)
    except DataError as error:
        raise click.UsageError(str(error)) from None


class CommandsOfDask(Commands):
    """The same as a part of the command `dask`, which exits in another way than our console script."""

    def invoke(self, ctx: click.Context) -> None:
        as_console_script(lambda: super(CommandsOfDask, self).invoke(ctx))


HELP = """Kernel machines that predict almost as fast as a linear model, trained and applied at scale on Dask
and Zarr.

The main job: import (a data file into Zarr), train (a model), score (a Zarr array), evaluate.
"""
OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _group(kind: type[Commands]) -> Commands:
    group = kind(
        "dcpred", help=HELP, context_settings=OPTIONS, no_args_is_help=True, params=verbosity_options()
    )
    return click.version_option(__version__, prog_name="dcpred")(group)


main = _group(Commands)
of_dask = _group(CommandsOfDask)


def run() -> None:
    """The console script."""
    as_console_script(main)


def as_console_script(command: Callable[[], object]) -> None:
    """Run a command as the only work of this process."""
    leave_at_signals()
    end_tracker_at_exit()
    code: object = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
        if "obstore" not in sys.modules:
            raise
    if "obstore" in sys.modules:
        _leave(code)


def _leave(code: object) -> None:
    """End the process without tearing the interpreter down: a request of obstore that returns during that
    ends the process by SIGABRT.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
