"""Processes that end with the test that started them, and waits that end with what they wait for."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

LIMIT_SECONDS = 600.0  # no test passes or fails by it unless something hangs: a busy machine takes its time
LOOK_SECONDS = 0.02

Process: TypeAlias = subprocess.Popen[str]
Done: TypeAlias = subprocess.CompletedProcess[str]


@contextmanager
def started(command: Sequence[str | Path], **more: Any) -> Iterator[Process]:
    """A process with all that it starts: a group that is killed at the end, however that is reached.

    command  program and arguments
    more     further arguments of Popen
    """
    with subprocess.Popen(command, text=True, start_new_session=True, **more) as process:
        try:
            yield process
        finally:
            end(process)


def end(process: Process) -> None:
    """Kill a process of `started` and all that it started."""
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)


def finish(process: Process) -> Done:
    """Wait for the end of a process. Raises subprocess.TimeoutExpired where it hangs."""
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(command: Sequence[str | Path], **more: Any) -> Done:
    """Run a process to its end and keep what it says, unless `more` says where that goes."""
    with started(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}) as process:
        return finish(process)


def wait_until(reached: Callable[[], object], process: Process | None = None) -> None:
    """Look until a condition holds. Fails where the process that is to bring it about has ended before."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        if process is not None and process.poll() is not None and not reached():
            raise AssertionError(f"a process ended too early: {finish(process)}")
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(LOOK_SECONDS)
