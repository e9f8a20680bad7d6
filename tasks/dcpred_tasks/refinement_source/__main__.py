"""`python -m dcpred_tasks.refinement_source [FOLDER]`: the bitcode of refinement, made anew of its sources.

Into FOLDER, else where training reads it. It takes five seconds. With NUMBA_BOUNDSCHECK=1 the code looks at
every index before it uses it, for tests.
"""

import os
import subprocess
import sys

from dcpred_tasks.engine_source.__main__ import HASHES, NUMBA
from dcpred_tasks.training.compiled_refinement import FOLDER

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else str(FOLDER)
    command = [sys.executable, "-m", "dcpred_tasks.refinement_source.bitcode", folder]
    sys.exit(subprocess.run(command, env={**os.environ, **NUMBA, **HASHES}, check=False).returncode)
