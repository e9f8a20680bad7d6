"""Errors on standard error: a sentence after the name of the command, wrapped and coloured for a terminal."""

import sys

import click

from dcpred.execution.terminal import columns, has_colours, is_terminal, wrapped

NAME = "dcpred: "


def tell_error(sentence: str) -> None:
    """Print a sentence: on a terminal in lines that fit, elsewhere on one, which is searched and parsed."""
    sentence = sentence.encode(errors="backslashreplace").decode()  # a name may be no text
    if not is_terminal(sys.stderr):
        click.echo(f"{NAME}{sentence}", err=True)
        return
    told = wrapped(sentence, columns(sys.stderr), begin=len(NAME), indent=len(NAME))
    name = click.style(NAME, fg="red", bold=True) if has_colours(sys.stderr) else NAME
    click.echo(f"{name}{told}", err=True, color=has_colours(sys.stderr))
