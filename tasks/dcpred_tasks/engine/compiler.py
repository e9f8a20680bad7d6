"""What needs LLVM, and what happens where LLVM cannot be had."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from dcpred_tasks.errors import DcpredError

T = TypeVar("T")


class Failure(NamedTuple):
    """Why machine code was of no use when it was last asked for."""

    why: str
    passes: bool
    """Whether the next call tries again."""


_failures: dict[str, Failure] = {}  # by module


class CompilerError(ImportError):
    """LLVM is there, but makes or loads no machine code."""


def with_compiler(module: str, otherwise: str, use: Callable[[Any], T]) -> T | None:
    """`use(module)`, or None where LLVM is not installed, switched off, or fails at whatever it is asked for.

    Then one warning states what happens `otherwise`, and calls do not try again before `forget_failures`. An
    error of the system (a full disk, too many open files) may pass: the next call tries again.
    """
    known = _failures.get(module)
    if known is not None and not known.passes:
        return None
    try:
        if os.environ.get("DCPRED_NO_COMPILER", "") not in ("", "0"):
            raise ImportError("the compiler is switched off (DCPRED_NO_COMPILER)")
        found = use(import_module(module))
    except (ImportError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        # OSError without a number: llvmlite without its library
        _failures[module] = Failure(why, isinstance(error, OSError) and error.errno is not None)
        if known is None or known.why != why:
            warnings.warn(f"{otherwise}, because {why}", RuntimeWarning, stacklevel=6)
        return None
    _failures.pop(module, None)
    return found


def forget_failures() -> None:
    """Let each module be tried again: where a run or a model begins, or a plan expects machine code. Between
    these a process scores and refines in one way.
    """
    for module, failure in list(_failures.items()):
        _failures[module] = failure._replace(passes=True)


def why_without(module: str) -> str:
    """Why `with_compiler` does without the machine code of a module."""
    known = _failures.get(module)
    return known.why if known else "there is no machine code"


@contextmanager
def errors_of_llvm() -> Iterator[None]:
    """Turn whatever LLVM and llvmlite raise into CompilerError: their errors have no common class."""
    try:
        yield
    except (DcpredError, ImportError, OSError):
        raise
    except Exception as error:
        raise CompilerError(f"LLVM fails ({type(error).__name__}: {error})") from error
