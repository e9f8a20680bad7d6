"""Print errors on standard error: the command's name and a sentence, wrapped and coloured on a terminal."""

import sys

import click

from dcpred.execution.terminal import columns, has_colours, is_terminal, wrapped

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
