"""The group of commands. The module of a command is imported when it is run: none waits for another's."""

import atexit
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import ClassVar

import click

from dcpred.execution.interrupts import leave_at_signals
from dcpred.execution.resource_tracker import end_tracker_at_exit
from dcpred.version import __version__


class _Commands(click.Group):
    """Commands by name: command NAME is `NAME_command` of the module dcpred.cli.NAME_command."""

    summaries: ClassVar[dict[str, str]] = {
        "demo": "The whole job on real digits: Zarr, training, scoring, evaluation.",
        "import": "Bring a table or a matrix into Zarr.",
        "train": "Train a model on a Zarr data set.",
        "tune": "Choose settings within a cost, and train with them.",
        "score": "Score every row of a Zarr array.",
        "refresh": "Score what is new or changed since the last time, and publish the whole.",
        "status": "Say how far the scoring of an output is, or list the runs of a refresh.",
        "verify": "Say whether an output is whole and as it was written.",
        "export": "Write scores as a table, beside the ids of their rows.",
        "errors": "List rows that have no score, and why.",
        "evaluate": "Accuracy (or RMSE and R²) and cost on labelled data.",
        "report": "A page with pictures of a model, an evaluation, a search, a run or a comparison.",
        "compare": "Many systems side by side on one data set.",
        "inspect": "Say what a data set, a model or an output holds.",
        "warm": "Compile the scoring engine and refinement ahead of time.",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.summaries:
            return None
        command = getattr(import_module(f"dcpred.cli.{cmd_name}_command"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="dcpred")
def main() -> None:
    """Kernel machines that predict almost as fast as a linear model, trained and applied at scale on Dask and
    Zarr.

    The main job: import (a data file into Zarr), train (a model), score (a Zarr array), evaluate.
    """


def run() -> None:
    """The console script."""
    leave_at_signals()
    end_tracker_at_exit()
    try:
        main()
    except SystemExit as end:
        if "obstore" in sys.modules:
            _leave(end.code)
        raise


def _leave(code: object) -> None:
    """End the process as Python would, but do not take the interpreter down: a request of obstore that comes
    back meanwhile ends it by SIGABRT.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
