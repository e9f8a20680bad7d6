"""dcpred completion"""

import click
from click.shell_completion import (
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from dcpred.cli.options import reports_errors
from dcpred.cli.shell_completion import SHELLS, VARIABLE, Bash


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
@click.pass_context
@reports_errors
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a script that makes a shell complete commands, options, settings and files.

    \b
    bash  eval "$(dcpred completion bash)"    in ~/.bashrc
    zsh   eval "$(dcpred completion zsh)"     in ~/.zshrc, after compinit
    fish  dcpred completion fish | source     in ~/.config/fish/config.fish
    """
    add_completion_class(Bash)
    script = get_completion_class(shell)
    assert script is not None
    command: ShellComplete = script(ctx.find_root().command, {}, "dcpred", VARIABLE)
    click.echo(command.source())
