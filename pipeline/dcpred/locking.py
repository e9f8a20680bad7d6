"""One driver per directory: an advisory lock that the system releases when its holder dies."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.files import resource_errors


def check_free(folder: Path) -> None:
    """Raise RunHeldError at once where another driver holds `folder`."""
    if (folder / "lock").exists():
        with hold(folder):
            pass


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold `folder` while the block runs. Raises RunHeldError where another driver holds it."""
    path = folder / "lock"
    with resource_errors(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
            raise RunHeldError(f"{folder} is in use by {holder}; wait for it to end, or stop it, and run again") from None
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(file)
