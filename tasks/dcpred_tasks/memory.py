"""How much memory this process has used."""

import os
import resource
import socket
import sys
from pathlib import Path


def process_name() -> str:
    """This process among those of a job: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far.

    Linux's ru_maxrss starts a child at the size of the process that forked it; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
