"""Where processes of tests keep machine code, and whether they found any."""

import os
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]


def with_cache(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a process that keeps machine code in `folder` and nowhere else, unless `more` says
    so.

    It finds modules in places of `more["PYTHONPATH"]`, then in tests/, then where this process does.
    """
    known = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    places = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(folder))
    paths = [more.pop("PYTHONPATH", ""), str(TESTS), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**known, **places, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def hits_and_misses(kept: Any) -> tuple[int, int]:
    """How often a function of `compiled_and_kept` was loaded from disk, and how often compiled, in this
    process.
    """
    stats = kept.dispatcher.stats
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
