"""How numba compiles the engine's functions."""

from collections.abc import Callable
from typing import Any

import numba
from numba import njit

OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    # Nothing is allocated. With reference counts every array that is handed down would cost an atomic count:
    # half the time of a row.
    "_nrt": False,
    # Python calls none of these functions: the engine calls `score` (bitcode.py).
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# With NUMBA_BOUNDSCHECK=1 the reads and writes of intrinsics are checked, too, which numba cannot do.
CHECKED = bool(numba.config.BOUNDSCHECK)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that other compiled functions call."""
    return njit(**OPTIONS)(function)


def called(function: Callable[..., Any]) -> Any:
    """Compile a function that stays one (bitcode.CALLED), and is not inlined where its caller is."""
    return njit(forceinline=False, **OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function into its callers: a call hands down every array in seven words, hundreds of
    them in all.
    """
    return njit(forceinline=True, **OPTIONS)(function)
