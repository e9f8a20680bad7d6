"""The command line. `main` is the console script `dcpred`."""

from dcpred.cli.main import main

__all__ = ["main"]
