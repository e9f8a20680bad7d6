"""The command line. `run` is the console script `dcpred`, `main` its group of commands.

May import: every package of dcpred, and dcpred_tasks.
"""

from dcpred.cli.main import main, run

__all__ = ["main", "run"]
