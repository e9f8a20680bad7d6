"""Use of LLVM, and the fallback where LLVM is not available."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakSet

from dcpred_tasks.errors import DcpredError, ResourceError
from dcpred_tasks.process import at_fork

T = TypeVar("T")
Load = Callable[[], Any]  # imports a module with machine code
SWITCH = "DCPRED_NO_COMPILER"


class Failure(NamedTuple):
    """Why machine code failed at the last attempt."""

    why: str
    passes: bool
    """Whether the next call tries again."""


_failures: dict[Load, Failure] = {}


class Turn:
    """A reentrant lock for one thread at a time, free in a child process."""

    _all: ClassVar["WeakSet[Turn]"] = WeakSet()

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @classmethod
    def free_all(cls) -> None:
        for turn in cls._all:
            turn._lock = threading.RLock()


# No fork while LLVM works: the child would inherit its locks and half of its output.
_in_llvm = threading.RLock()
at_fork(before=_in_llvm.acquire, after_in_parent=_in_llvm.release, after_in_child=_in_llvm.release)
at_fork(after_in_child=Turn.free_all)


class CompilerError(ImportError):
    """LLVM is installed, but cannot make or load machine code."""


def with_compiler(load: Load, otherwise: str, use: Callable[[Any], T]) -> T | None:
    """`use(load())`, or None where LLVM is not installed, is switched off, or fails.

    One warning then states what happens `otherwise`, and calls do not try again before `forget_failures`. An
    error of the system (a full disk, too many open files) may pass: the next call tries again.
    """
    known = _failures.get(load)
    if known is not None and not known.passes:
        return None
    try:
        check_switch()
        value = use(load())
    except (ImportError, OSError) as error:
        why = _first_line(error)
        # OSError without a number: llvmlite without its library
        _failures[load] = Failure(why, isinstance(error, OSError) and error.errno is not None)
        if known is None or known.why != why:
            remedy = "" if SWITCH in why else f". Set {SWITCH}=1 to use NumPy from the start"
            warnings.warn(f"{otherwise}, because {why}{remedy}", RuntimeWarning, stacklevel=6)
        return None
    _failures.pop(load, None)
    return value


def compiled(load: Load, purpose: str, otherwise: str) -> Any:
    """The loaded module after its `check`, which compiles it unless that is done. Raises ResourceError where
    LLVM is not installed, is switched off, or fails.
    """
    try:
        check_switch()
        module = load()
        module.check()
    except (ImportError, OSError) as error:
        raise ResourceError(
            f"Cannot {purpose}: machine code is not available ({_first_line(error)}). Install llvmlite and"
            f" unset {SWITCH}, {otherwise}."
        ) from error
    return module


def check_switch() -> None:
    """Raise ImportError where the compiler is switched off."""
    if os.environ.get(SWITCH, "") not in ("", "0"):
        raise ImportError(f"the compiler is switched off ({SWITCH})")


def forget_failures() -> None:
    """Let each module be tried again: a process scores in one way between these calls."""
    for load, failure in list(_failures.items()):
        _failures[load] = failure._replace(passes=True)


def planned_or_here(arithmetic: Callable[[], str | None], planned: str | None) -> str | None:
    """What `arithmetic` returns here; retries failed modules where that differs from a plan.

    A module that fails again is not retried before `forget_failures`: a block that is planned with NumPy does
    not end in machine code.
    """
    if arithmetic() != planned:
        forget_failures()
    here = arithmetic()
    for load, failure in list(_failures.items()):
        _failures[load] = failure._replace(passes=False)
    return here


def why_without(load: Load) -> str:
    """Why `with_compiler` does not use the machine code of a module."""
    known = _failures.get(load)
    return known.why if known else "there is no machine code"


@contextmanager
def errors_of_llvm() -> Iterator[None]:
    """Turn every exception of LLVM into CompilerError. A fork of the process waits meanwhile."""
    try:
        with _in_llvm:
            yield
    except (DcpredError, ImportError, OSError):
        raise
    except Exception as error:
        raise CompilerError(f"LLVM fails ({type(error).__name__}: {_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
