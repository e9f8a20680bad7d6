"""Where processes of tests keep machine code."""

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]


def with_cache(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a process that keeps machine code in `folder` and nowhere else, unless `more` says
    so.

    It finds modules in places of `more["PYTHONPATH"]`, then in tests/, then where this process does.
    """
    ours = ("DCPRED_CACHE", "DCPRED_NO_", "NUMBA_")
    known = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    places = dict.fromkeys(("DCPRED_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(folder))
    paths = [more.pop("PYTHONPATH", ""), str(TESTS), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**known, **places, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}
