"""Many systems trained and timed on the same rows, as tasks of Dask.

FOLDER/
  compare.json        what is compared: data, rows, seed, and every point with its settings
  rows.npz            the rows, drawn once
  points/NAME.json    what came of a point, NAME.npz its predictions of the test rows
  table.csv, table.md, score_against_cost.png, kernel_error.png, report.html

A comparison that was cut off goes on: a point with a result is not tried again. What earlier calls found in
the same folder stays in the tables, and on the page.
"""

import json
import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.comparison.page import comparison_page, write_plots
from dcpred.comparison.rows import ROWS, Rows, draw_rows, read_rows, write_rows
from dcpred.comparison.systems import (
    OURS,
    Point,
    chosen_systems,
    every_system,
    points_of,
)
from dcpred.comparison.tables import write_tables
from dcpred.comparison.trial import KERNELS, POINTS, SHARED
from dcpred.execution.interrupts import interrupted, listening
from dcpred.execution.progress import Reporter, say_where
from dcpred.execution.workers import Pool
from dcpred.pages.page import render
from dcpred.tuning.metrics import check_label_score, label_score
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, SettingsError
from dcpred_tasks.guard import Failure
from dcpred_tasks.model.leaf_model import EXACT, leaf_model_types
from dcpred_tasks.storage.atomic_files import check_new_name, read_arrays, replace_bytes
from dcpred_tasks.storage.plain_files import is_system_file
from dcpred_tasks.task_bodies.try_system import try_system

SHARES = ("accuracy", "balanced_accuracy", "f1_macro")  # scores that are shown in percent
MODULE = "dcpred.comparison.trial"
ASKED, PAGE = "compare.json", "report.html"
SHARED_SECONDS = 900.0  # processor time of what all systems wait for
LOOK_SECONDS = 0.2  # time between two looks whether an end was asked for


@dataclass(frozen=True)
class Asked:
    """What is compared on which rows.

    train, test  addresses of (features, targets); `test` None: rows of `train` are held out
    rows         training rows, at most
    test_rows    rows to judge by, at most
    by_time      a column: later rows are held out than those that train
    by_group     a column: whole groups are held out
    """

    train: tuple[str, str]
    test: tuple[str, str] | None
    task: str
    rows: int
    test_rows: int
    seed: int
    by_time: str | None = None
    by_group: str | None = None


@dataclass(frozen=True)
class Result:
    """What came of a point; None for what is not known."""

    system: str
    what: str
    status: str
    """done, time limit, not installed, or failed."""
    why: str
    """Why there is no result, or what else is to be said of one."""
    quality: float | None
    """Share of right classes, or RMSE, on the test rows."""
    cost_ratio: float | None
    """Time of a row in linear predictions."""
    us_per_row: float | None
    seconds: float | None
    """Processor time of its training alone, without what is shared."""
    bytes: int | None
    """Of the model."""
    agreement: float | None
    """With the exact model: share of test rows of the same class, or the correlation of numbers."""
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
    """The settings that all kernel models share."""
    results: list[Result]
    kernel_errors: list[dict[str, Any]]
    shared_seconds: float
    """Processor time in which these settings were chosen and the scaling was learned."""
    notes: list[str]
    """What is to be known beside the table: sentences."""
    metric: str | None = None
    """The score that `quality` is, of dcpred.tuning.metrics.LABEL_SCORERS; greater is then better. None: the
    share of right classes, or RMSE.
    """

    @property
    def percents(self) -> bool:
        """Whether quality is a share that is shown in percent."""
        return self.task == "classification" and self.metric in (None, *SHARES)

    @property
    def more_is_better(self) -> bool:
        return self.metric is not None or self.task == "classification"

    @property
    def quality_name(self) -> str:
        return self.metric or ("accuracy" if self.task == "classification" else "RMSE")


def compare(
    asked: Asked,
    folder: Path,
    pool: Pool,
    *,
    systems: str | None,
    budgets: Sequence[str],
    limit_seconds: float,
    metric: str | None = None,
    say: Reporter,
) -> CompareReport:
    """Try every point of every system, and write tables and plots.

    systems        names with commas; None: all that learn the task
    budgets        of searches, as "20x"
    limit_seconds  processor time that the fits of a system may take together
    metric         a score of dcpred_tasks.evaluation.named_scores: what searches of ours compare settings by,
                   and what the table shows

    Raises SettingsError, DataError, PlanConflictError where the folder holds another comparison,
    SchedulerError, InterruptedRunError, IncompleteError where no point has a result.
    """
    if not 1 <= limit_seconds < math.inf:
        raise SettingsError(
            f"the time limit was set to {limit_seconds:g} s, but it is a number of seconds; use 1 or more"
        )
    if metric is not None:
        check_label_score(metric, asked.task)
    names = chosen_systems(systems, asked.task)
    if budgets and OURS not in names:
        raise SettingsError(
            f"a budget was given for searches of {OURS}, but the systems are {', '.join(names)}; add {OURS},"
            " or leave out the budget"
        )
    points = {name: points_of(name, budgets, asked.task, metric) for name in names}
    with pool() as workers:
        say_where(say, "comparing", workers)
        _begun(asked, folder, points, metric)
        workers.check_sees(str(folder))
        _try_all(workers, folder, {SHARED: [SHARED]}, SHARED_SECONDS, say, "choosing scaling, γ and C")
        shared = told_of(folder, SHARED)
        if shared["status"] != "done":
            raise IncompleteError(
                "settings for all kernel models were to be chosen, but that ended with"
                f" {shared['status']} ({shared.get('why', '')}); use fewer rows, or run it again"
            )
        work = {name: [point.name for point in its] for name, its in points.items()} | {KERNELS: [KERNELS]}
        _try_all(workers, folder, work, limit_seconds, say, "trying systems")
    report = read_comparison(folder)
    write_tables(report, folder)
    write_plots(report, folder)
    replace_bytes(folder / PAGE, render(comparison_page(report)).html.encode())
    if not any(one.status == "done" for one in report.results):
        first = report.results[0]
        why = f"{first.status}: {first.why}" if first.why else first.status
        raise IncompleteError(
            f"{len(report.results):,} points were tried, but none has a result (the first one: {why}); use a"
            " larger --time-limit or fewer --rows"
        )
    return report


def _begun(asked: Asked, folder: Path, points: dict[str, list[Point]], metric: str | None) -> None:
    """The folder as it is to be, with rows, and what this call asks for beside what was asked before."""
    told: dict[str, Any] = json.loads(json.dumps(asdict(asked)))
    file = folder / ASKED
    before: dict[str, Any] = {}
    if file.exists():
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            same = {key: before.get(key) for key in told} == told
        except (AttributeError, ValueError, RecursionError):
            same = False
        if not same:
            raise PlanConflictError(
                f"{folder} holds a comparison of other data, rows or seed; name another folder"
            )
    elif folder.exists() and not all(is_system_file(entry.name) for entry in folder.iterdir()):
        raise PlanConflictError(f"{folder} was to hold a comparison, but it holds other files; name another")
    check_new_name(folder)
    if not (folder / ROWS).exists():
        by = asked.by_time, asked.by_group
        rows = draw_rows(asked.train, asked.test, asked.task, asked.rows, asked.test_rows, asked.seed, by)
        (folder / POINTS).mkdir(parents=True, exist_ok=True)
        write_rows(folder, rows)
    every = before.get("points", {}) | {p.name: asdict(p) for its in points.values() for p in its}
    replace_bytes(file, json.dumps(told | {"points": every, "metric": metric}, indent=1).encode())


def _try_all(
    workers: Any, folder: Path, work: dict[str, list[str]], limit: float, say: Reporter, title: str
) -> None:
    with say.step(title, sum(map(len, work.values())), "points") as advance, _stopping(folder) as stop:
        tried, tasks = 0, [(str(folder), MODULE, points, limit, stop) for points in work.values()]
        for _, done in workers.each(try_system, tasks):
            if isinstance(done, Failure):
                raise done.error
            tried += len(done)
            advance(len(done))
    total = sum(map(len, work.values()))
    if tried < total:
        raise interrupted(tried, total)


@contextmanager
def _stopping(folder: Path) -> Iterator[str]:
    """The name of a file in the folder that is made when an end is asked for: processes end at once, which
    else would go on for minutes.
    """
    name, over = f"stop-{os.getpid()}-{os.urandom(4).hex()}", threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if asked.is_set():
                (folder / name).touch()
                return

    with listening() as asked:
        watcher = threading.Thread(target=watch, daemon=True, name="dcpred-compare")
        watcher.start()
        try:
            yield name
        finally:
            over.set()
            watcher.join()
            (folder / name).unlink(missing_ok=True)


def read_comparison(folder: Path) -> CompareReport:
    """What a folder holds of a comparison, as far as it has come, in the order of systems. Raises DataError
    where nothing was tried.
    """
    asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    points = [Point(**told) for told in asked["points"].values()]
    points = [point for point in points if (folder / POINTS / f"{point.name}.json").exists()]
    if not points or not (folder / ROWS).exists():
        raise DataError(f"a comparison was asked for at {folder}, but nothing of it is done; run it again")
    order = {name: number for number, name in enumerate(every_system())}
    points.sort(key=lambda point: order.get(point.system, len(order)))
    return _reported(folder, asked, read_rows(folder), told_of(folder, SHARED), points)


def told_of(folder: Path, name: str) -> dict[str, Any]:
    """What came of a point, as it was written."""
    found: dict[str, Any] = json.loads((folder / POINTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _reported(
    folder: Path, asked: dict[str, Any], rows: Rows, shared: dict[str, Any], points: list[Point]
) -> CompareReport:
    task, metric = asked["task"], asked.get("metric")
    exact = _predicted(folder, f"{EXACT}-0")
    results, every = [], {point.name: told_of(folder, point.name) for point in points}
    linear = _linear_us(every.values())
    for point in points:
        told = every[point.name]
        own = _predicted(folder, point.name) if told["status"] == "done" else None
        known = {name: told.get(name) for name in ("quality", "us_per_row", "seconds")}
        if metric is not None and own is not None:
            known["quality"] = label_score(metric, rows.target_test, own)
        results.append(
            Result(
                system=point.system,
                what=point.what,
                status=told["status"],
                why=told.get("why") or _limit(told),
                bytes=told.get("bytes"),
                cost_ratio=_cost(told, linear),
                agreement=_agreement(own, exact, task),
                multiplications=told.get("multiplications"),
                **known,
            )
        )
    there = (folder / POINTS / f"{KERNELS}.json").exists()
    errors: dict[str, Any] = told_of(folder, KERNELS) if there else {"status": "done"}
    return CompareReport(
        folder=str(folder),
        task=task,
        n_rows=len(rows.X),
        n_test_rows=len(rows.X_test),
        n_features=rows.X.shape[1],
        shared=shared["settings"],
        results=results,
        kernel_errors=errors.get("errors", []),
        shared_seconds=shared.get("seconds", 0.0),
        notes=[
            *_units(linear),
            *_cut(results),
            *_without_errors(errors),
            *_left_out(rows),
            *_caveats(results),
        ],
        metric=metric,
    )


def _caveats(results: Sequence[Result]) -> list[str]:
    """Where baselines of the table fail, each sentence once."""
    kinds = (leaf_model_types().get(one.system) for one in results)
    return list(dict.fromkeys(kind.caveat for kind in kinds if kind and kind.caveat))


def _linear_us(told: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Microseconds of a linear prediction on each machine: the median beside all points that were timed
    there. What else runs moves the time beside a single point by half and more.
    """
    beside: dict[str, list[float]] = {}
    for one in told:
        if "linear_us" in one:
            beside.setdefault(one["host"], []).append(one["linear_us"])
    return {host: float(np.median(times)) for host, times in beside.items()}


def _cost(told: dict[str, Any], linear: dict[str, float]) -> float | None:
    """Of a row, in linear predictions; as it was written by versions that timed no common one."""
    if "linear_us" not in told:
        return told.get("cost_ratio")
    return float(told["us_per_row"] / linear[told["host"]])


def _cut(results: list[Result]) -> list[str]:
    """A sentence on the systems whose grids the time limit cut."""
    cut = dict.fromkeys(one.system for one in results if one.status == "time limit")
    words = []
    for system in cut:
        its = [one for one in results if one.system == system]
        words.append(f"{system} ({sum(one.status == 'done' for one in its)} of {len(its)} points)")
    return [f"The time limit cut short {', '.join(words)}."] if words else []


def _units(linear: dict[str, float]) -> list[str]:
    """A sentence on the unit of costs on each machine."""
    told = [f"{1e3 * us:.3g} ns{f' on {host}' if len(linear) > 1 else ''}" for host, us in linear.items()]
    return [f"A linear prediction takes {', '.join(told)}, the median beside all points."] if told else []


def _without_errors(told: dict[str, Any]) -> list[str]:
    if told["status"] == "done":
        return []
    why = told.get("why") or _limit(told)
    return [f"Errors of kernel functions are missing: {told['status']}{f', {why}' if why else ''}."]


def _left_out(rows: Rows) -> list[str]:
    told = []
    if rows.n_bad:
        told.append(f"{rows.n_bad:,} rows are left out, for not all of their values are finite.")
    if rows.n_unseen:
        told.append(f"{rows.n_unseen:,} test rows are left out, of classes that no training row has.")
    return told


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
