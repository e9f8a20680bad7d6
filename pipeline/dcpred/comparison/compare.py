"""Train and time many systems on the same rows, as tasks of Dask.

FOLDER/
  compare.json        what is compared: data, rows, seed, and every point with its settings
  rows.npz            the rows, drawn once
  points/NAME.json    the result of a point, NAME.npz its predictions of the test rows
  table.csv, table.md, score_against_cost.png, kernel_error.png, report.html

A call resumes an interrupted comparison: it skips every point with a result. Tables and page also show what
earlier calls in the same folder found.
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

from dcpred.comparison.page import comparison_page, write_plots, write_tables
from dcpred.comparison.rows import ROWS, Rows, draw_rows, read_rows, write_rows
from dcpred.comparison.systems import OURS, Point, chosen_systems, every_system, points_of
from dcpred.comparison.trial import KERNELS, POINTS, SHARED
from dcpred.execution.interrupts import interrupted, listening
from dcpred.execution.progress import Reporter, say_where
from dcpred.execution.workers import Pool
from dcpred.pages import render
from dcpred.summary import Summary
from dcpred.tuning.metrics import check_label_score, label_score
from dcpred_tasks.errors import DataError, Failure, IncompleteError, PlanConflictError, SettingsError
from dcpred_tasks.model.leaf_model import EXACT, leaf_model_types
from dcpred_tasks.storage.atomic_files import check_new_name, is_system_file, read_arrays, replace_bytes
from dcpred_tasks.task_bodies.train_model import try_system

SHARES = ("accuracy", "balanced_accuracy", "f1_macro")  # scores shown in percent
MODULE = "dcpred.comparison.trial"
REQUEST, PAGE = "compare.json", "report.html"
SHARED_SECONDS = 900.0  # processor time of the step that all systems wait for
LOOK_SECONDS = 0.2  # time between two checks for a request to stop


@dataclass(frozen=True)
class CompareRequest:
    """What to compare, on which rows.

    train, test  addresses of (features, targets); `test` None: rows of `train` are held out
    rows         maximum number of training rows
    test_rows    maximum number of test rows
    by_time      a column: held-out rows are later than those that train
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
class CompareResult:
    """The result of one setting of one system; None stands for an unknown value.

    Attributes
    ----------
    system : str
        Name of the system, as `systems` names it.
    what : str
        The setting, in words.
    status : str
        done, time limit, not installed, or failed.
    why : str
        Why there is no result, or another remark.
    quality : float or None
        Accuracy, or RMSE, on the test rows.
    cost_ratio : float or None
        Time per row in linear predictions.
    us_per_row : float or None
        Time per row, in microseconds.
    seconds : float or None
        Processor time of its own training in seconds, without the shared step.
    bytes : int or None
        Size of the model in bytes.
    agreement : float or None
        Agreement with the exact SVM: fraction of equal test labels, or correlation of predictions.
    multiplications : float or None
        Multiplications per row, in those of a linear prediction, where the system counts them.
    """

    system: str
    what: str
    status: str
    why: str
    quality: float | None
    cost_ratio: float | None
    us_per_row: float | None
    seconds: float | None
    bytes: int | None
    agreement: float | None
    multiplications: float | None


@dataclass(frozen=True, repr=False)
class CompareReport(Summary):
    """The result of a comparison.

    Attributes
    ----------
    folder : str
        Path of the folder of tables, plots and report.html.
    task : str
        classification or regression.
    n_rows : int
        Number of training rows.
    n_test_rows : int
        Number of test rows.
    n_features : int
        Number of features.
    shared : dict
        The settings that all kernel models share, by name.
    results : list of CompareResult
        The result of each system and setting.
    kernel_errors : list of dict
        The error of kernel values by each basis: basis, kernel, number of functions, error.
    shared_seconds : float
        Processor time of the choice of these settings and of the ARD scaling, in seconds.
    notes : list of str
        Remarks on the table: sentences.
    metric : str or None
        The score in `quality`; greater is then better. None: accuracy, or RMSE.
    """

    folder: str
    task: str
    n_rows: int
    n_test_rows: int
    n_features: int
    shared: dict[str, Any]
    results: list[CompareResult]
    kernel_errors: list[dict[str, Any]]
    shared_seconds: float
    notes: list[str]
    metric: str | None = None

    @property
    def percents(self) -> bool:
        """Whether quality is shown in percent."""
        return self.task == "classification" and self.metric in (None, *SHARES)

    @property
    def more_is_better(self) -> bool:
        """Whether a greater quality is better."""
        return self.metric is not None or self.task == "classification"

    @property
    def quality_name(self) -> str:
        """Name of the quality in tables."""
        return self.metric or ("accuracy" if self.task == "classification" else "RMSE")


def compare(
    asked: CompareRequest,
    folder: Path,
    pool: Pool,
    *,
    systems: str | None,
    budgets: Sequence[str],
    limit_seconds: float,
    metric: str | None = None,
    say: Reporter,
) -> CompareReport:
    """Evaluate every point of every system, and write tables and plots.

    systems        names with commas; None: all that learn the task
    budgets        of searches, for example "20x"
    limit_seconds  processor time that all fits of a system share
    metric         a score of dcpred_tasks.evaluation.named_scores, which our searches optimise and the table
                   shows

    Raises SettingsError, DataError, PlanConflictError if the folder holds another comparison,
    SchedulerError, InterruptedRunError, IncompleteError if no point has a result.
    """
    if not 1 <= limit_seconds < math.inf:
        raise SettingsError(
            f"Cannot compare within {limit_seconds:g} s: it is not a number of seconds from 1 on. Use"
            " another."
        )
    if metric is not None:
        check_label_score(metric, asked.task)
    names = chosen_systems(systems, asked.task)
    if budgets and OURS not in names:
        raise SettingsError(
            f"Cannot use a budget: it is for searches of {OURS}, but the systems are {', '.join(names)}."
            f" Add {OURS}, or omit the budget."
        )
    points = {name: points_of(name, budgets, asked.task, metric) for name in names}
    with pool() as workers:
        say_where(say, "comparing", workers)
        _begun(asked, folder, points, metric)
        workers.check_sees(str(folder))
        _try_all(workers, folder, {SHARED: [SHARED]}, SHARED_SECONDS, say, "choosing scaling, γ and C")
        shared = _result_of(folder, SHARED)
        if shared["status"] != "done":
            raise IncompleteError(
                "Cannot choose settings for all kernel machines: the step ended with"
                f" {shared['status']} ({shared.get('why', '')}). Use fewer rows, or run the command again."
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
            f"No point of {len(report.results):,} has a result (the first one: {why}). Use a"
            " larger --time-limit or fewer --rows."
        )
    return report


def _begun(asked: CompareRequest, folder: Path, points: dict[str, list[Point]], metric: str | None) -> None:
    """Prepare the folder with its rows, and add the points of this call to earlier ones."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(asked)))
    file = folder / REQUEST
    before: dict[str, Any] = {}
    if file.exists():
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            same = {key: before.get(key) for key in document} == document
        except (AttributeError, ValueError, RecursionError):
            same = False
        if not same:
            raise PlanConflictError(
                f"Cannot compare in {folder}: it holds a comparison of other data, rows or seed. Choose"
                " another folder."
            )
    elif folder.exists() and not all(is_system_file(entry.name) for entry in folder.iterdir()):
        raise PlanConflictError(f"Cannot compare in {folder}: it holds other files. Choose another folder.")
    check_new_name(folder)
    if not (folder / ROWS).exists():
        by = asked.by_time, asked.by_group
        rows = draw_rows(asked.train, asked.test, asked.task, asked.rows, asked.test_rows, asked.seed, by)
        (folder / POINTS).mkdir(parents=True, exist_ok=True)
        write_rows(folder, rows)
    every = before.get("points", {}) | {p.name: asdict(p) for its in points.values() for p in its}
    replace_bytes(file, json.dumps(document | {"points": every, "metric": metric}, indent=1).encode())


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
    """The name of a file that requests a stop of processes, which would otherwise run for minutes."""
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
    """The comparison in a folder, finished or not, by system. Raises DataError without a point."""
    asked = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    points = [Point(**result) for result in asked["points"].values()]
    points = [point for point in points if (folder / POINTS / f"{point.name}.json").exists()]
    if not points or not (folder / ROWS).exists():
        raise DataError(f"Cannot read a comparison at {folder}: it has no result yet. Run it again.")
    order = {name: number for number, name in enumerate(every_system())}
    points.sort(key=lambda point: order.get(point.system, len(order)))
    return _reported(folder, asked, read_rows(folder), _result_of(folder, SHARED), points)


def _result_of(folder: Path, name: str) -> dict[str, Any]:
    """The stored result of a point."""
    found: dict[str, Any] = json.loads((folder / POINTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _reported(
    folder: Path, asked: dict[str, Any], rows: Rows, shared: dict[str, Any], points: list[Point]
) -> CompareReport:
    task, metric = asked["task"], asked.get("metric")
    exact = _predicted(folder, f"{EXACT}-0")
    results, every = [], {point.name: _result_of(folder, point.name) for point in points}
    linear = _linear_us(every.values())
    for point in points:
        result = every[point.name]
        own = _predicted(folder, point.name) if result["status"] == "done" else None
        known = {name: result.get(name) for name in ("quality", "us_per_row", "seconds")}
        if metric is not None and own is not None:
            known["quality"] = label_score(metric, rows.target_test, own)
        results.append(
            CompareResult(
                system=point.system,
                what=point.what,
                status=result["status"],
                why=result.get("why") or _limit(result),
                bytes=result.get("bytes"),
                cost_ratio=_cost(result, linear),
                agreement=_agreement(own, exact, task),
                multiplications=result.get("multiplications"),
                **known,
            )
        )
    there = (folder / POINTS / f"{KERNELS}.json").exists()
    errors: dict[str, Any] = _result_of(folder, KERNELS) if there else {"status": "done"}
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


def _caveats(results: Sequence[CompareResult]) -> list[str]:
    """Where baselines of the table fail, each sentence once."""
    kinds = (leaf_model_types().get(one.system) for one in results)
    return list(dict.fromkeys(kind.caveat for kind in kinds if kind and kind.caveat))


def _linear_us(results: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Microseconds of a linear prediction by computer: the median of all points, which vary by half."""
    beside: dict[str, list[float]] = {}
    for one in results:
        if "linear_us" in one:
            beside.setdefault(one["host"], []).append(one["linear_us"])
    return {host: float(np.median(times)) for host, times in beside.items()}


def _cost(result: dict[str, Any], linear: dict[str, float]) -> float | None:
    """The cost of a row in linear predictions; older files without a common unit keep theirs."""
    if "linear_us" not in result:
        return result.get("cost_ratio")
    return float(result["us_per_row"] / linear[result["host"]])


def _cut(results: list[CompareResult]) -> list[str]:
    """A sentence on the systems whose grids the time limit cut."""
    cut = dict.fromkeys(one.system for one in results if one.status == "time limit")
    words = []
    for system in cut:
        its = [one for one in results if one.system == system]
        words.append(f"{system} ({sum(one.status == 'done' for one in its)} of {len(its)} points)")
    return [f"The time limit ended {', '.join(words)} early."] if words else []


def _units(linear: dict[str, float]) -> list[str]:
    """A sentence on the unit of costs on each computer."""
    units = [f"{1e3 * us:.3g} ns{f' on {host}' if len(linear) > 1 else ''}" for host, us in linear.items()]
    return [f"A linear prediction takes {', '.join(units)}, the median of all points."] if units else []


def _without_errors(result: dict[str, Any]) -> list[str]:
    if result["status"] == "done":
        return []
    why = result.get("why") or _limit(result)
    return [f"Errors of kernel functions are missing: {result['status']}{f', {why}' if why else ''}."]


def _left_out(rows: Rows) -> list[str]:
    sentences = []
    if rows.n_bad:
        sentences.append(f"{rows.n_bad:,} rows are skipped: some of their values are not finite.")
    if rows.n_unseen:
        sentences.append(f"{rows.n_unseen:,} test rows are skipped: no training row has their class.")
    return sentences


def _limit(result: dict[str, Any]) -> str:
    return f"{result['limit_seconds']:g} s for this system" if result["status"] == "time limit" else ""


def _predicted(folder: Path, name: str) -> Any:
    file = folder / POINTS / f"{name}.npz"
    return read_arrays(file)["predicted"] if file.exists() else None


def _agreement(own: Any, exact: Any, task: str) -> float | None:
    if own is None or exact is None:
        return None
    if task == "classification":
        return float((own == exact).mean())
    return float(np.corrcoef(own, exact)[0, 1]) if own.std() > 0 and exact.std() > 0 else None
