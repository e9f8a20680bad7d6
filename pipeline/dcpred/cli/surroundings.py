"""The first lines of -v: versions, the computer, and where temporary and cached files lie."""

import os
import tempfile
from contextlib import suppress
from importlib import import_module

from dcpred_tasks.errors import RefusedError
from dcpred_tasks.process import cpu_name, memory_bytes, process_name, versions

GIB = 2**30


def surroundings() -> list[str]:
    """The lines."""
    found = versions()
    packages = ", ".join(f"{name} {number}" for name, number in found.items() if name != "dcpred")
    facts = [
        f"dcpred {found.get('dcpred', '(not installed)')} with {packages}",
        f"{process_name()}: {_cores()} of {cpu_name()}, {_memory()}",
        f"temporary files lie in {tempfile.gettempdir()}",
    ]
    with suppress(ImportError, RefusedError):  # Machine code needs LLVM and a complete installation.
        machine_code = import_module("dcpred_tasks.engine.machine_code")
        if places := machine_code.own_code(machine_code.ENGINE).places():
            facts.append(f"machine code of the engine lies in {places[0]}")
    return facts


def _cores() -> str:
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{n} core{'' if n == 1 else 's'}"


def _memory() -> str:
    try:
        total = memory_bytes()
    except (ValueError, OSError):
        return "memory unknown"
    return f"{total / GIB:.0f} GiB of memory"
