"""`python -m dcpred`: the command `dcpred` of this very interpreter."""

import os
import sys

if __name__ == "__main__":
    # Python searches the current directory first, and workers get the path of this process: a file signal.py
    # there must not run in place of Python's own.
    if not sys.flags.safe_path and not os.path.isdir(os.path.join(sys.path[0], "dcpred")):
        sys.path.pop(0)
    from dcpred.cli import run

    run()
