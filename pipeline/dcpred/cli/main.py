"""The group of commands. The module of a command is imported when it is run: none waits for another's."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

import click
from click.shell_completion import CompletionItem, add_completion_class

from dcpred.cli.shell_completion import VARIABLE, Bash
from dcpred.cli.usage import EXAMPLES, in_our_words
from dcpred.cli.verbosity_options import verbosity_options
from dcpred.execution.interrupts import leave_at_signals
from dcpred.execution.resource_tracker import end_tracker_at_exit
from dcpred.version import __version__
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import check_text


class Commands(click.Group):
    """Commands by name: command NAME is `NAME_command` of the module dcpred.cli.NAME_command. Each has -v and
    -q, and an example in its help.
    """

    summaries: ClassVar[dict[str, str]] = {
        "demo": "The whole job on real digits: Zarr, training, scoring, evaluation.",
        "example": "Write small tables to try the commands on.",
        "import": "Bring a table or a matrix into Zarr.",
        "split": "Divide a data set into one to train on and one to test on.",
        "train": "Train a model on a Zarr data set.",
        "tune": "Choose settings within a cost, and train with them.",
        "score": "Score every row of a Zarr array.",
        "refresh": "Score what is new or changed since the last time, and publish the whole.",
        "status": "Say how far the scoring of an output is, or list the runs of a refresh.",
        "verify": "Say whether an output is whole and as it was written.",
        "export": "Write scores as a table, beside the ids of their rows.",
        "errors": "List rows that have no score, and why.",
        "evaluate": "Accuracy (or RMSE and R²) and cost on labelled data.",
        "explain": "Say why rows get what they get.",
        "report": "A page with pictures of a model, an evaluation, a search, a run or a comparison.",
        "validate": "Cross-validate a training.",
        "compare": "Many systems side by side on one data set.",
        "inspect": "Say what a data set, a model or an output holds.",
        "warm": "Compile the scoring engine and refinement ahead of time.",
        "completion": "Print what has a shell complete commands, options and settings.",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.summaries:
            return None
        command = getattr(import_module(f"dcpred.cli.{cmd_name}_command"), f"{cmd_name}_command")
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
        """Without the commands themselves, which would all be imported."""
        of_group = click.Command.shell_complete(self, ctx, incomplete)
        named = {name: told for name, told in self.summaries.items() if name.startswith(incomplete)}
        return [*(CompletionItem(name, help=told) for name, told in named.items()), *of_group]

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
    """Refuse a name that is no text before a command begins: plans and metrics could not hold it."""
    try:
        check_text(arg)
    except DataError as error:
        raise click.UsageError(str(error)) from None


class CommandsOfDask(Commands):
    """The same as a part of the command `dask`, which ends otherwise than our console script."""

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
    """Run a command as the only thing that this process is for."""
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
    """End the process as Python would, but do not take the interpreter down: a request of obstore that comes
    back meanwhile ends it by SIGABRT.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
