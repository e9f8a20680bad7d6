"""The task body of a comparison: the points of a system, one by one, each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dcpred_tasks.storage.atomic_files import replace_bytes

LAST_BYTES = 4096  # most that is kept of what a process said


def try_system(folder: str, module: str, points: Sequence[str], limit_seconds: float) -> list[str]:
    """Have every point tried by `python -m MODULE FOLDER POINT` that has no result yet, as long as the time
    lasts. Those without a result get one that says why. Returns the points that have one by now.
    """
    spent = 0.0
    for point in points:
        file = Path(folder) / "points" / f"{point}.json"
        if _standing(file, limit_seconds):
            continue
        begin = time.monotonic()
        why = _tried(folder, module, point, limit_seconds - spent)
        spent += time.monotonic() - begin
        if why is not None:
            replace_bytes(file, json.dumps(why | {"limit_seconds": limit_seconds}).encode())
    return list(points)


def _standing(file: Path, limit_seconds: float) -> bool:
    """Whether there is a result that another try would not better."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return False
    if found.get("status") == "time limit":
        return bool(found.get("limit_seconds", 0) >= limit_seconds)
    return found.get("status") == "done"


def _tried(folder: str, module: str, point: str, seconds: float) -> dict[str, Any] | None:
    """None where the process left a result, else why there is none."""
    if seconds <= 0:
        return {"status": "time limit"}
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(
            [sys.executable, "-m", module, folder, point],
            stdin=subprocess.PIPE,  # It ends with this process.
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        ) as child:
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                return {"status": "time limit"}
            finally:
                child.kill()
        if child.returncode == 0:
            return None
        said.seek(max(said.tell() - LAST_BYTES, 0))
        lines = said.read().decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"it ended with {child.returncode}"
    missing = "ModuleNotFoundError: No module named "
    if last.startswith(missing):
        package = last.removeprefix(missing).strip("'").partition(".")[0]
        return {"status": "not installed", "why": f"pip install {package}"}
    return {"status": "failed", "why": last[:300]}
