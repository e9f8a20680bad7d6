"""`python -m dcpred_tasks.native [FOLDER]` rebuilds the bitcode of the engine and of refinement from the C++
sources here, into FOLDER, by default where the package reads it. It needs `pip install ziglang`.
"""

import sys
from pathlib import Path

from dcpred_tasks.engine.native_modules import BITCODES
from dcpred_tasks.native.building import build

if __name__ == "__main__":
    for bitcode in BITCODES:
        build(bitcode, Path(sys.argv[1]) if len(sys.argv) > 1 else bitcode.folder)
