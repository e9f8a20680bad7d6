"""This process: its name, its processor, the versions that it runs, its threads, how much memory it has used,
and how much it may use.
"""

import os
import platform
import resource
import socket
import sys
import threading
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

MOST_KEPT_BYTES = 64 * 2**20  # largest KeptRoom of a thread
PACKAGES = ("dcpred", "dask", "distributed", "numpy", "scipy", "scikit-learn", "zarr", "llvmlite")


def process_name() -> str:
    """This process among those of a job: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor as its maker calls it, or its architecture where the system does not tell."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far.

    Linux's ru_maxrss starts a child at the size of the process that forked it; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def memory_bytes() -> int:
    """Memory that this process may use: that of the machine, or less where a control group has less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def group_limits(groups: Path, mounted: Path) -> list[int]:
    """Limits of memory of the control groups of a process, of both versions, and of all groups above them:
    what Slurm, Kubernetes, systemd and containers set.

    groups   the file that lists the groups of a process
    mounted  where their file system lies
    """
    limits = []
    lines = groups.read_text(encoding="utf-8").splitlines() if groups.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (mounted / "memory", "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        own = top / path.strip("/")
        # Within a container the path may be that outside, which is not there; the top is there.
        for folder in (own, *own.parents):
            with suppress(OSError, ValueError):  # "max" is no limit
                limits.append(int((folder / name).read_text(encoding="utf-8")))
            if folder == top:
                break
    return [limit for limit in limits if limit > 0]


class KeptRoom(threading.local):
    """Memory that a thread uses again and again. What is given back to the system is cleared before it comes
    again, which takes as long as a fifth of the decompression that fills it (2026-11).
    """

    def __init__(self) -> None:
        self._room = np.empty(0, np.uint8)

    def __call__(self, n_bytes: int) -> NDArray[np.uint8]:
        """uint8 (n_bytes,) with whatever was left in it: the caller's, until this thread calls again. What is
        larger than MOST_KEPT_BYTES is not kept.
        """
        if n_bytes > MOST_KEPT_BYTES:
            return np.empty(n_bytes, np.uint8)
        if len(self._room) < n_bytes:
            self._room = np.empty(0, np.uint8)  # never both at once
            self._room = np.empty(n_bytes, np.uint8)
        return self._room[:n_bytes]


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results depend on; only of those that are installed."""
    return dict(_versions())


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    """Read once: the files that tell take 16 ms (2026-11), and what is imported stays what it is."""
    found = [("python", platform.python_version())]
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def one_thread(user_api: str | None = None) -> Any:
    """A context in which BLAS and OpenMP, or the one that is named (blas, openmp), use a single thread.

    To find their libraries takes 5 ms (2026-11), longer than many a task. They come with modules, so that
    they are looked for again only where modules have been imported since.
    """
    return _thread_pools(len(sys.modules)).limit(limits=1, user_api=user_api)


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()
