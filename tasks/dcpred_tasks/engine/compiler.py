"""Modules that need LLVM, imported where it is there and wanted."""

import os
import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any


@lru_cache
def needing_compiler(module: str, otherwise: str) -> Any:
    """The module, or None and a warning that says what happens otherwise."""
    try:
        if os.environ.get("DCPRED_NO_COMPILER", "") not in ("", "0"):
            raise ImportError("the compiler is switched off (DCPRED_NO_COMPILER)")
        return import_module(module)
    except (ImportError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{otherwise}, because {why}", RuntimeWarning, stacklevel=6)
        return None
