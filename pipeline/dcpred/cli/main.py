"""The group of commands. The module of a command is imported lazily, when it runs."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

import click
from click.shell_completion import CompletionItem

from dcpred.cli.errors import EXAMPLE, EXAMPLES, usage_in_one_sentence
from dcpred.execution.interrupts import end_tracker_at_exit, leave_at_signals
from dcpred.execution.terminal import Verbosity, at_verbosity
from dcpred.extensions import COMMANDS, registered
from dcpred.version import __version__
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import check_text

CHOSEN = f"{__name__}.chosen"  # in ctx.meta: the given option


def verbosity_options() -> list[click.Parameter]:
    """The options; they set `dcpred.execution.events`."""
    return [
        _option(
            "-v", "--verbose", Verbosity.MORE, "Print more: times, versions, places, tracebacks of errors."
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
    `homes`, or an extension. Each has -v and -q, and an example in its help.
    """

    summaries: ClassVar[dict[str, str]] = {
        "demo": "Run the whole job on real digits: Zarr, training, scoring, evaluation.",
        "example": "Write small tables to try the commands on.",
        "import": "Import a table or a matrix into Zarr.",
        "split": "Split a data set into training and test rows.",
        "train": "Train a model on a table or a Zarr data set.",
        "tune": "Choose settings within a cost, and train with them.",
        "score": "Score every row of a table or a Zarr data set.",
        "deliver": "Commit a finished output to a Delta table or a folder.",
        "refresh": "Score what is new or changed since the last run, and publish the result.",
        "status": "Show the progress of a scoring run, or list the runs of a refresh.",
        "verify": "Check that an output is complete and unmodified.",
        "export": "Write scores as a table, with the ids of their rows.",
        "export-model": "Write a model as ONNX or C, which predict without dcpred.",
        "errors": "List rows that have no score, and why.",
        "evaluate": "Measure accuracy (or RMSE and R²) and cost on labelled data.",
        "explain": "Explain the predictions of rows.",
        "report": "Write a page with plots of a model, an evaluation, a search, a run or a comparison.",
        "validate": "Cross-validate a training.",
        "inspect": "Show what a data set, a model or an output holds.",
        "warm": "Compile the scoring engine and refinement ahead of time.",
    }
    homes: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("errors", "verify", "inspect"), "status"),
        **dict.fromkeys(("tune", "validate"), "train"),
        **dict.fromkeys(("demo", "example", "split"), "import"),
        **{"export-model": "export", "deliver": "score", "refresh": "score", "report": "evaluate"},
    }

    def every_summary(self) -> dict[str, str]:
        """The line of each command, those of extensions last."""
        added = {name: str(entry.load().__doc__) for name, entry in registered(COMMANDS).items()}
        return self.summaries | added

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.every_summary())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.summaries:
            name = cmd_name.replace("-", "_")
            module = self.homes.get(cmd_name, name)
            command = getattr(import_module(f"dcpred.cli.{module}_command"), f"{name}_command")
        elif cmd_name in registered(COMMANDS):
            command = registered(COMMANDS)[cmd_name].load()()
        else:
            self.commands = dict.fromkeys(self.list_commands(ctx), click.Command(None))  # to be suggested
            return None
        assert isinstance(command, click.Command)
        if not any(parameter.name == "quiet" for parameter in command.params):
            command.params += verbosity_options()
            if cmd_name in EXAMPLES:
                command.epilog = f"{EXAMPLE}{EXAMPLES[cmd_name]}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.every_summary().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[Any]]":
        """Complete without importing the commands themselves."""
        of_group = click.Command.shell_complete(self, ctx, incomplete)
        named = {name: text for name, text in self.every_summary().items() if name.startswith(incomplete)}
        return [*(CompletionItem(name, help=text) for name, text in named.items()), *of_group]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **more: Any
    ) -> click.Context:
        with usage_in_one_sentence():
            for arg in args:
                _check_text(arg)
            return super().make_context(info_name, args, parent, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with usage_in_one_sentence():
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
    """End the process without tearing the interpreter down, which a request of obstore would abort."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
