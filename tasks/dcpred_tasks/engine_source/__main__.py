"""`python -m dcpred_tasks.engine_source [FOLDER]`: the engine's bitcode, made anew of its sources.

Into FOLDER, else where the engine reads it. It takes half a minute. With NUMBA_BOUNDSCHECK=1 the code looks
at every index before it uses it, for tests.
"""

import os
import subprocess
import sys

from dcpred_tasks.engine.machine_code import FOLDER

# Optimisation comes later, once for the whole, and on the machine where it will run. Code for a processor
# without any extension is code for all of them.
NUMBA = {"NUMBA_OPT": "0", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_JIT": "0"}
# The order of sets of names comes into the code.
HASHES = {"PYTHONHASHSEED": "0"}

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else str(FOLDER)
    command = [sys.executable, "-m", "dcpred_tasks.engine_source.bitcode", folder]
    sys.exit(subprocess.run(command, env={**os.environ, **NUMBA, **HASHES}, check=False).returncode)
