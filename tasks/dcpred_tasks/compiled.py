"""How the engine's functions are compiled, and where the machine code is kept."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba import njit

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,  # nothing is allocated; without this every array handed down costs an atomic count, half the time of a row
}
CHECKED = bool(numba.config.BOUNDSCHECK)  # NUMBA_BOUNDSCHECK=1: also where intrinsics, which numba cannot check, read and write
SOURCES = ("compiled", "lanes", "conversion", "exact", "passes")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that other compiled functions call."""
    return njit(**OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function into its callers: a call hands down every array in seven words, hundreds of them in all."""
    return njit(forceinline=True, **OPTIONS)(function)


def compiled_and_kept(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, once per machine: its machine code is kept on disk where that is possible."""
    folder = cache_folder()
    if folder is None:
        return compiled(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)  # read where a function is declared, and nowhere later
    try:
        return njit(cache=True, **OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before


def cache_folder() -> Path | None:
    """The first of these that can be written: $NUMBA_CACHE_DIR, the user's cache, a temporary folder; None if none can.

    Its name carries a hash of the sources that are compiled: numba looks at the file of the outermost function only. One that
    can be read but not written (baked into an image, mounted read-only) is copied to the temporary folder, for numba uses no
    cache that it cannot write to.
    """
    name = f"dcpred-{_fingerprint()}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    bases = [home, Path(tempfile.gettempdir()) / f"dcpred-{os.getuid()}"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        bases.insert(0, Path(os.environ["NUMBA_CACHE_DIR"]))
    baked = next((base / name for base in bases if (base / name).is_dir()), None)
    for base in bases:
        with suppress(OSError):
            folder = base / name
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if baked is not None and baked != folder:
                shutil.copytree(baked, folder, dirs_exist_ok=True)
            return folder
    return None


def _fingerprint() -> str:
    here = Path(__file__).parent
    parts = [numba.__version__, sys.version, str(CHECKED), *((here / f"{name}.py").read_text() for name in SOURCES)]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
