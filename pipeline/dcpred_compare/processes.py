"""Points of a comparison, each in a process of its own, within a time limit: as a task on a worker."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dcpred_compare.files import store_result, stored_result
from dcpred_tasks.errors import RefusedError

LAST_BYTES = 4096  # most bytes of the output of a process
LOOK_SECONDS = 0.3  # time between two checks of a process, and of the stop file
# A point is killed by the clock after this many times its processor time, plus so many seconds: it waits for
# something, or shares the machine with many.
CLOCK_FACTOR, CLOCK_SECONDS = 20.0, 600.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run_points(
    folder: str, module: str, points: Sequence[str], limit_seconds: float, stop: str = ""
) -> list[str]:
    """Try every point without a result by `python -m MODULE FOLDER POINT SECONDS`, within the time limit.
    Points without a result get one with the reason. Returns the points with a result.

    stop  file of the folder: while it exists, all processes end, and leave no result of unfinished points
    """
    spent = 0.0
    done: list[str] = []
    for point in points:
        result = _final_result(Path(folder), point, limit_seconds)
        if result is None:
            failure = _run(folder, module, point, limit_seconds - spent, stop)
            if failure is STOPPED:
                return done
            if failure is not None:
                store_result(Path(folder), point, failure | {"limit_seconds": limit_seconds})
            result = stored_result(Path(folder), point)
        spent += limit_seconds if result["status"] == "time limit" else result.get("seconds") or 0.0
        done.append(point)
    return done


STOPPED: dict[str, Any] = {"status": "stopped"}


def _final_result(folder: Path, point: str, limit_seconds: float) -> dict[str, Any] | None:
    """The stored result of a point, if a retry would not improve it."""
    try:
        result = stored_result(folder, point)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if result.get("status") == "time limit":
        return result if result.get("limit_seconds", 0) >= limit_seconds else None
    return result if result.get("status") == "done" else None


def _run(folder: str, module: str, point: str, seconds: float, stop: str) -> dict[str, Any] | None:
    """None where the process left a result, STOPPED where it was stopped, else the reason."""
    if seconds <= 0:
        return {"status": "time limit"}
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen(
            [sys.executable, "-P", "-m", module, folder, point, str(seconds)],
            stdin=subprocess.PIPE,  # It ends with this process.
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | ONE_THREAD,
        ) as child:
            try:
                ended = _ended(
                    child, CLOCK_FACTOR * seconds + CLOCK_SECONDS, Path(folder) / stop if stop else None
                )
            finally:
                child.kill()
        if ended is not None:
            return ended
        if child.returncode == -signal.SIGXCPU:
            return {"status": "time limit"}
        if child.returncode == 0:
            return None
        log.seek(max(log.tell() - LAST_BYTES, 0))
        lines = log.read().decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"it ended with {child.returncode}"
    missing = "ModuleNotFoundError: No module named "
    if last.startswith(missing):
        package = last.removeprefix(missing).strip("'").partition(".")[0]
        return {"status": "not installed", "why": f"pip install {package}"}
    is_refusal = last.startswith(f"{RefusedError.__module__}.")  # It shows only its sentence.
    return {"status": "failed", "why": (last.partition(": ")[2] if is_refusal else last)[:300]}


def _ended(
    child: "subprocess.Popen[bytes]", clock_seconds: float, stop: Path | None
) -> dict[str, Any] | None:
    """Waits for a process: None where it ended by itself."""
    deadline = time.monotonic() + clock_seconds
    while True:
        try:
            child.wait(LOOK_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            if stop is not None and stop.exists():
                return STOPPED
            if time.monotonic() > deadline:
                return {"status": "time limit", "why": f"{clock_seconds:,.0f} s by the clock"}
