"""This process: its name, processor, package versions, threads, memory use and memory limit.

Windows lacks the modules `fcntl` and `resource`, and some functions of `os`; serving works without them. An
installation for serving also lacks `threadpoolctl`.
"""

import errno
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

MOST_KEPT_BYTES = 64 * 2**20  # largest kept buffer of a thread
UNKNOWN_MEMORY_BYTES = 4 * 2**30  # assumed where the system does not state it
PACKAGES = ("dcpred", "dask", "distributed", "numpy", "scipy", "scikit-learn", "zarr", "llvmlite")


def process_name() -> str:
    """This process among those of a job: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The name of the processor, or its architecture where the system lacks the name."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system does not state it.

    Linux's ru_maxrss starts a child at the size of the process that forked it; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if resource is None:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def memory_bytes() -> int:
    """Memory that this process may use: that of the machine, or less by a control group."""
    if not hasattr(os, "sysconf"):
        return UNKNOWN_MEMORY_BYTES
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def group_limits(groups: Path, mounted: Path) -> list[int]:
    """Memory limits of the control groups of a process, of both versions, and of all parent groups: the
    limits of Slurm, Kubernetes, systemd and containers.

    groups   the file that lists the groups of a process
    mounted  the path of their file system
    """
    limits = []
    lines = groups.read_text(encoding="utf-8").splitlines() if groups.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (mounted / "memory", "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        cgroup = top / path.strip("/")
        # Within a container the path may be that of the host, which does not exist; the top does.
        for folder in (cgroup, *cgroup.parents):
            with suppress(OSError, ValueError):  # "max" is no limit
                limits.append(int((folder / name).read_text(encoding="utf-8")))
            if folder == top:
                break
    return [limit for limit in limits if limit > 0]


class ReusedBuffer(threading.local):
    """A buffer that a thread reuses: the system clears fresh memory, which costs up to a fifth of the
    decompression that fills it (DECISIONS.md).
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)

    def __call__(self, n_bytes: int) -> NDArray[np.uint8]:
        """uint8 (n_bytes,) with arbitrary content, valid until the next call of this thread. A buffer larger
        than MOST_KEPT_BYTES is not kept.
        """
        if n_bytes > MOST_KEPT_BYTES:
            return np.empty(n_bytes, np.uint8)
        if len(self._buffer) < n_bytes:
            self._buffer = np.empty(0, np.uint8)  # frees the old buffer first
            self._buffer = np.empty(n_bytes, np.uint8)
        return self._buffer[:n_bytes]


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that results depend on."""
    return dict(_versions())


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    """Read once, because it is slow and imported packages do not change (DECISIONS.md)."""
    numbers = [("python", platform.python_version())]
    for package in PACKAGES:
        try:
            numbers.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return tuple(numbers)


def one_thread(user_api: str | None = None) -> Any:
    """A context in which BLAS and OpenMP, or the named one (blas, openmp), use a single thread.

    Without threadpoolctl their threads are those of the environment: OMP_NUM_THREADS. The search for their
    libraries is slow (DECISIONS.md). Modules load them, and a new search starts only
    after an import.
    """
    pools = _thread_pools(len(sys.modules))
    return nullcontext() if pools is None else pools.limit(limits=1, user_api=user_api)


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:
        return None
    return ThreadpoolController()


def lock_file(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Acquire the lock of an open file at once; False if another process holds it. Raises OSError."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no locks of files (fcntl)")
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def user_number() -> int:
    """The number of the user of this process; 0 where users have none."""
    return os.getuid() if hasattr(os, "getuid") else 0


def at_fork(**hooks: Callable[[], object]) -> None:
    """Register functions that run when this process forks, where it can."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0)
CLOSED_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
