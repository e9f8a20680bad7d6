"""Shell completion. click serves zsh and fish. This module serves bash, which splits words
at `=` and `:`, two signs of settings and addresses."""

import os
from typing import Any, ClassVar

from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    split_arg_string,
)

VARIABLE = "_DCPRED_COMPLETE"  # click's name for it
SHELLS = ("bash", "zsh", "fish")
# Readline completes names of files where no line comes back. `nosort` came with bash 4.4.
BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    COMPREPLY=($(DCPRED_LINE="${COMP_LINE:0:COMP_POINT}" DCPRED_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2> /dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -o nosort -F %(complete_func)s %(prog_name)s 2> /dev/null ||
    complete -o default -F %(complete_func)s %(prog_name)s
"""


class Bash(ShellComplete):
    """Completion of the whole line up to the cursor, independent of bash's words."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("DCPRED_LINE", "")
        words = split_arg_string(line)
        incomplete = words.pop() if len(words) > 1 and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def complete(self) -> str:
        arguments, incomplete = self.get_completion_args()
        there = taken(incomplete, os.environ.get("DCPRED_BREAKS", ""))
        items = self.get_completions(arguments, incomplete)
        return "\n".join(
            self.format_completion(item)[there(item.value) :] for item in items if item.type == "plain"
        )

    def format_completion(self, item: "CompletionItem[Any]") -> str:
        return str(item.value)


def taken(incomplete: str, breaks: str) -> Any:
    """The length of a value before the word that bash completes: up to the last sign that it breaks
    words at.
    """
    last = max((incomplete.rfind(sign) for sign in breaks if not sign.isspace()), default=-1) + 1

    def there(value: str) -> int:
        # Of --name=value click completes the value alone.
        return last if value.startswith(incomplete) else max(last - len(incomplete.partition("=")[0]) - 1, 0)

    return there
