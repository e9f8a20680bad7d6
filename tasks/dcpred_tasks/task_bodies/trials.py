"""Trials of settings and of systems."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcpred_tasks.errors import DataError, RefusedError
from dcpred_tasks.process import one_thread
from dcpred_tasks.scratch import (
    TrainJob,
    cell_rows_file,
    read_cells,
    read_scaling,
    read_trial,
    write_scaling,
    write_tried,
)
from dcpred_tasks.storage.atomic_files import replace_bytes, write_arrays
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies.train_model import Receipt, block_rows, columns_of, receipt
from dcpred_tasks.training.refinement import check_arithmetic
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import (
    Trial,
    fit_trial_scaling,
    reference_decisions,
    shape_of,
    tried_decisions,
)


def gather_cells(job: TrainJob, block: int, start: int, stop: int) -> Receipt:
    """Keep the rows of a block that lie in the cells in use."""
    cells = read_cells(job)
    rows = block_rows(job, cells.classes, cells.class_factors, start, stop)
    with one_thread():
        cell = cells.tree.descend(columns_of(job, cells.scaling, rows))
    at = np.flatnonzero(np.isin(cell, cells.chosen))
    own = rows.take(at)
    kept = {"X": own.X, "target": own.target, "weight": own.weight, "number": own.number, "cell": cell[at]}
    write_arrays(cell_rows_file(job, block), kept)
    return receipt(stop - start)


def learn_trial_scaling(
    job: TrainJob, fold: int, settings: Settings, repetitions: int, digest: str
) -> Receipt | None:
    """Learn the scaling of settings; None where its features exceed single precision."""
    rows, survey = read_trial(job, fold)
    with one_thread():
        try:
            fitted = fit_trial_scaling(rows, survey, settings, repetitions)
        except DataError:
            return None
    write_scaling(job, fold, digest, fitted)
    return receipt(len(rows.X))


def try_settings(job: TrainJob, fold: int, trial: Trial, scaling: str, digest: str) -> Receipt:
    """Try settings with a scaling of that digest."""
    check_arithmetic(job.refined_by)
    rows, survey = read_trial(job, fold)
    decision, model = tried_decisions(rows, survey, trial, read_scaling(job, fold, scaling).scaling)
    write_tried(job, fold, digest, decision, shape_of(model))
    return receipt(len(rows.X))


def try_reference(job: TrainJob, fold: int, name: str, most: int) -> Receipt:
    """Try a reference model."""
    rows, survey = read_trial(job, fold)
    settings = job.settings
    with one_thread():
        decision = reference_decisions(rows, name, settings.task, len(survey.classes), most, settings.seed)
    write_tried(job, fold, reference_digest(name), decision, np.zeros(0))
    return receipt(len(rows.X))


def reference_digest(name: str) -> str:
    """The name of a reference model in its file."""
    return digest_json({"reference": name})[:20]


LAST_BYTES = 4096  # most bytes of the output of a process
LOOK_SECONDS = 0.3  # time between two checks of a process, and of the stop file
# A point is killed by the clock after this many times its processor time, plus so many seconds: it waits for
# something, or shares the machine with many.
CLOCK_FACTOR, CLOCK_SECONDS = 20.0, 600.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def try_system(
    folder: str, module: str, points: Sequence[str], limit_seconds: float, stop: str = ""
) -> list[str]:
    """Try every point without a result by `python -m MODULE FOLDER POINT SECONDS`, within the time limit.
    Points without a result get one with the reason. Returns the points with a result.

    stop  file of the folder: while it exists, all processes end, and leave no result of unfinished points
    """
    spent = 0.0
    done: list[str] = []
    for point in points:
        file = Path(folder) / "points" / f"{point}.json"
        found = _standing(file, limit_seconds)
        if found is None:
            why = _tried(folder, module, point, limit_seconds - spent, stop)
            if why is STOPPED:
                return done
            if why is not None:
                replace_bytes(file, json.dumps(why | {"limit_seconds": limit_seconds}).encode())
            found = json.loads(file.read_text(encoding="utf-8"))
        spent += limit_seconds if found["status"] == "time limit" else found.get("seconds") or 0.0
        done.append(point)
    return done


STOPPED: dict[str, Any] = {"status": "stopped"}


def _standing(file: Path, limit_seconds: float) -> dict[str, Any] | None:
    """A result that a retry would not improve."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if found.get("status") == "time limit":
        return found if found.get("limit_seconds", 0) >= limit_seconds else None
    return found if found.get("status") == "done" else None


def _tried(folder: str, module: str, point: str, seconds: float, stop: str) -> dict[str, Any] | None:
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
    own = f"{RefusedError.__module__}."  # A refusal shows only its sentence.
    return {"status": "failed", "why": (last.partition(": ")[2] if last.startswith(own) else last)[:300]}


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
