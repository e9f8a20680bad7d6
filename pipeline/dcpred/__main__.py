"""`python -m dcpred`: the command `dcpred` of this very interpreter."""

import sys
from pathlib import Path

from dcpred.cli import run

if __name__ == "__main__":
    # Python puts the current directory first, and workers get the path of this process.
    if not sys.flags.safe_path and not Path(sys.path[0], "dcpred").is_dir():
        sys.path.pop(0)
    run()
