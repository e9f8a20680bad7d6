"""What needs LLVM, and what happens where LLVM cannot be had."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from dcpred_tasks.errors import DcpredError

T = TypeVar("T")
_without: set[str] = set()  # modules whose machine code this process does without
_why: dict[str, str] = {}  # why each module was of no use when it was last asked for


class CompilerError(ImportError):
    """LLVM is there, but makes or loads no machine code."""


def with_compiler(module: str, otherwise: str, use: Callable[[Any], T]) -> T | None:
    """`use(module)`, or None where LLVM is not installed, switched off, or fails at whatever it is asked for.

    Then one warning states what happens `otherwise`, and this process does not try again. An error of the
    system (a full disk, too many open files) may pass: the next call tries again.
    """
    if module in _without:
        return None
    try:
        if os.environ.get("DCPRED_NO_COMPILER", "") not in ("", "0"):
            raise ImportError("the compiler is switched off (DCPRED_NO_COMPILER)")
        return use(import_module(module))
    except (ImportError, OSError) as error:
        if isinstance(error, ImportError) or error.errno is None:  # llvmlite without its library
            _without.add(module)
        why = _why[module] = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{otherwise}, because {why}", RuntimeWarning, stacklevel=6)
        return None


def why_without(module: str) -> str:
    """Why `with_compiler` does without the machine code of a module."""
    return _why.get(module, "there is no machine code")


@contextmanager
def errors_of_llvm() -> Iterator[None]:
    """Turn whatever LLVM and llvmlite raise into CompilerError: their errors have no common class."""
    try:
        yield
    except (DcpredError, ImportError, OSError):
        raise
    except Exception as error:
        raise CompilerError(f"LLVM fails ({type(error).__name__}: {error})") from error
