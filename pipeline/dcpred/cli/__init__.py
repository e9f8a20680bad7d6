"""The command line. `run` is the console script `dcpred`, `main` its group of commands."""

from dcpred.cli.main import main, run

__all__ = ["main", "run"]
