"""Errors of a command line, in one sentence."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import click

from dcpred.execution.terminal import columns, has_colours, is_terminal, wrapped

REMEDY = re.compile(r"[;.] |\?")  # a second sentence, or click's "Did you mean …?"
EXAMPLE = "Example: "  # what the epilog of a command begins with
# An example of each command; shown where an argument is missing, and by -h.
EXAMPLES: Mapping[str, str] = {
    "example": "dcpred example",
    "import": "dcpred import known.csv known.zarr --target label",
    "split": "dcpred split known.zarr --test 0.2",
    "train": "dcpred train known.zarr model",
    "tune": "dcpred tune known.zarr model --budget 15x",
    "score": "dcpred score model new.zarr scores",
    "deliver": "dcpred deliver scores",
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
    "inspect": "dcpred inspect known.zarr",
}


class Misused(click.UsageError):
    """A mistake in a command line, shown in one sentence."""

    def show(self, file: IO[Any] | None = None) -> None:
        print_error(self.message)


@contextmanager
def usage_in_one_sentence() -> Iterator[None]:
    """Print click's errors of usage as all others, with what to do."""
    try:
        yield
    except (Misused, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        text = " ".join(error.format_message().split())
        if not REMEDY.search(text):
            path = error.ctx.command_path if error.ctx else "dcpred"
            example = error.ctx and isinstance(error, click.MissingParameter) and error.ctx.command.epilog
            do = f"Write for example `{example.removeprefix(EXAMPLE)}`." if example else f"See `{path} -h`."
            text = f"{text.rstrip('.')}. {do}"
        raise Misused(text, error.ctx) from None


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
