"""Many systems trained and timed on the same rows, as tasks of Dask.

FOLDER/
  compare.json        what is compared: data, rows, seed, and every point with its settings
  rows.npz            the rows, drawn once
  points/NAME.json    what came of a point, NAME.npz its predictions of the test rows
  table.csv, table.md, score_against_cost.png, kernel_error.png, report.html

A comparison that was cut off goes on: a point with a result is not tried again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.comparison.page import comparison_page, write_plots
from dcpred.comparison.rows import ROWS, Rows, draw_rows, read_rows, write_rows
from dcpred.comparison.systems import EXACT, Point, chosen_systems, points_of
from dcpred.comparison.tables import write_tables
from dcpred.comparison.trial import KERNELS, POINTS, SHARED
from dcpred.execution.progress import Reporter
from dcpred.execution.workers import Pool
from dcpred.pages.page import render
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, SettingsError
from dcpred_tasks.guard import Failure
from dcpred_tasks.storage.atomic_files import read_arrays, replace_bytes
from dcpred_tasks.task_bodies.try_system import try_system

MODULE = "dcpred.comparison.trial"
ASKED, PAGE = "compare.json", "report.html"
SHARED_SECONDS = 600.0  # time of what all systems wait for


@dataclass(frozen=True)
class Asked:
    """What is compared on which rows.

    train, test  addresses of (features, targets); `test` None: rows of `train` are held out
    rows         training rows, at most
    test_rows    rows to judge by, at most
    """

    train: tuple[str, str]
    test: tuple[str, str] | None
    task: str
    rows: int
    test_rows: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What came of a point; None for what is not known."""

    system: str
    what: str
    status: str
    """done, time limit, not installed, or failed."""
    why: str
    quality: float | None
    """Share of right classes, or RMSE, on the test rows."""
    cost_ratio: float | None
    """Time of a row in linear predictions."""
    us_per_row: float | None
    seconds: float | None
    """Of training."""
    bytes: int | None
    """Of the model."""
    agreement: float | None
    """With the exact machine: share of test rows of the same class, or the correlation of numbers."""
    multiplications: float | None
    """Of a row, in those of a linear prediction, where the system counts them."""


@dataclass(frozen=True)
class CompareReport:
    """What came of a comparison."""

    folder: str
    task: str
    n_rows: int
    n_test_rows: int
    n_features: int
    shared: dict[str, Any]
    """The settings that all kernel machines share."""
    results: list[Result]
    kernel_errors: list[dict[str, Any]]


def compare(
    asked: Asked,
    folder: Path,
    pool: Pool,
    *,
    systems: str | None,
    budgets: Sequence[str],
    limit_seconds: float,
    say: Reporter,
) -> CompareReport:
    """Try every point of every system, and write tables and plots.

    systems        names with commas; None: all that learn the task
    budgets        of searches, as "20x"
    limit_seconds  time that a system may take in this call

    Raises SettingsError, DataError, PlanConflictError where the folder holds another comparison,
    SchedulerError, InterruptedRunError.
    """
    if limit_seconds <= 0:
        raise SettingsError(f"the time limit was set to {limit_seconds:g} s; use more than 0")
    names = chosen_systems(systems, asked.task)
    points = {name: points_of(name, budgets) for name in names}
    with pool() as workers:
        rows = _begun(asked, folder, points)
        workers.check_sees(str(folder))
        _try_all(workers, folder, {SHARED: [SHARED]}, SHARED_SECONDS, say, "choosing scaling, γ and C")
        shared = _told(folder, SHARED)
        if shared["status"] != "done":
            raise IncompleteError(
                "settings for all kernel machines were to be chosen, but that ended with"
                f" {shared['status']} ({shared.get('why', '')}); use fewer rows, or run it again"
            )
        work = {name: [point.name for point in its] for name, its in points.items()} | {KERNELS: [KERNELS]}
        _try_all(workers, folder, work, limit_seconds, say, "trying systems")
    report = _reported(folder, asked.task, rows, shared, points)
    write_tables(report, folder)
    write_plots(report, folder)
    replace_bytes(folder / PAGE, render(comparison_page(report)).html.encode())
    return report


def _begun(asked: Asked, folder: Path, points: dict[str, list[Point]]) -> Rows:
    """The rows, and the folder as it is to be, with what this call asks for beside what was asked before."""
    told: dict[str, Any] = json.loads(json.dumps(asdict(asked)))
    file = folder / ASKED
    before: dict[str, Any] = {}
    if file.exists():
        try:
            before = json.loads(file.read_text())
            same = {key: before[key] for key in told} == told
        except (KeyError, ValueError):
            same = False
        if not same:
            raise PlanConflictError(
                f"{folder} holds a comparison of other data, rows or seed; name another folder"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise PlanConflictError(f"{folder} was to hold a comparison, but it holds other files; name another")
    if (folder / ROWS).exists():
        rows = read_rows(folder)
    else:
        rows = draw_rows(asked.train, asked.test, asked.task, asked.rows, asked.test_rows, asked.seed)
        (folder / POINTS).mkdir(parents=True, exist_ok=True)
        write_rows(folder, rows)
    every = before.get("points", {}) | {p.name: asdict(p) for its in points.values() for p in its}
    replace_bytes(file, json.dumps(told | {"points": every}, indent=1).encode())
    return rows


def _try_all(
    workers: Any, folder: Path, work: dict[str, list[str]], limit: float, say: Reporter, title: str
) -> None:
    tasks = [(str(folder), MODULE, points, limit) for points in work.values()]
    with say.step(title, sum(map(len, work.values())), "points") as advance:
        for _, done in workers.each(try_system, tasks):
            if isinstance(done, Failure):
                raise done.error
            advance(len(done))


def read_comparison(folder: Path) -> CompareReport:
    """What a folder holds of a comparison, as far as it has come. Raises DataError where nothing was"
    " tried."""
    asked = json.loads((folder / ASKED).read_text())
    points: dict[str, list[Point]] = {}
    for told in asked["points"].values():
        point = Point(**told)
        if (folder / POINTS / f"{point.name}.json").exists():
            points.setdefault(point.system, []).append(point)
    if not points or not (folder / ROWS).exists():
        raise DataError(f"a comparison was asked for at {folder}, but nothing of it is done; run it again")
    return _reported(folder, asked["task"], read_rows(folder), _told(folder, SHARED), points)


def _told(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / POINTS / f"{name}.json").read_text())
    return found


def _reported(
    folder: Path, task: str, rows: Rows, shared: dict[str, Any], points: dict[str, list[Point]]
) -> CompareReport:
    exact = _predicted(folder, f"{EXACT}-0")
    results = []
    for system, its in points.items():
        for point in its:
            told = _told(folder, point.name)
            own = _predicted(folder, point.name) if told["status"] == "done" else None
            known = {name: told.get(name) for name in ("quality", "cost_ratio", "us_per_row", "seconds")}
            results.append(
                Result(
                    system=system,
                    what=point.what,
                    status=told["status"],
                    why=told.get("why", _limit(told)),
                    bytes=told.get("bytes"),
                    agreement=_agreement(own, exact, task),
                    multiplications=told.get("multiplications"),
                    **known,
                )
            )
    errors = _told(folder, KERNELS) if (folder / POINTS / f"{KERNELS}.json").exists() else {}
    return CompareReport(
        folder=str(folder),
        task=task,
        n_rows=len(rows.X),
        n_test_rows=len(rows.X_test),
        n_features=rows.X.shape[1],
        shared=shared["settings"],
        results=results,
        kernel_errors=errors.get("errors", []),
    )


def _limit(told: dict[str, Any]) -> str:
    return f"{told['limit_seconds']:g} s for this system" if told["status"] == "time limit" else ""


def _predicted(folder: Path, name: str) -> Any:
    file = folder / POINTS / f"{name}.npz"
    return read_arrays(file)["predicted"] if file.exists() else None


def _agreement(own: Any, exact: Any, task: str) -> float | None:
    if own is None or exact is None:
        return None
    if task == "classification":
        return float((own == exact).mean())
    return float(np.corrcoef(own, exact)[0, 1]) if own.std() > 0 and exact.std() > 0 else None
