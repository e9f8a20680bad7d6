"""What installed packages add to dcpred, which finds it by entry points alone and imports none of it.

dcpred.commands  a function without arguments whose name is that of a command: it returns the command, and its
                 docstring is the line in the list of commands
dcpred.api       a public name of dcpred
dcpred.reports   a function whose name is that of a file: it makes the page of a folder with this file
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

COMMANDS, API, REPORTS = "dcpred.commands", "dcpred.api", "dcpred.reports"


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def __getattr__(name: str) -> Any:
    if (entry := registered(API).get(name)) is None:
        raise AttributeError(f"no installed package registers dcpred.{name}; install dcpred again")
    return entry.load()
