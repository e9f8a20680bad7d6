"""Train and time many systems on the same rows, as tasks of Dask.

A call resumes an interrupted comparison: it skips every point with a result. Tables and page also show what
earlier calls in the same folder found.
"""

import json
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcpred.execution.interrupts import interrupted, listening
from dcpred.execution.pools import chosen_pool
from dcpred.execution.progress import show_step, show_where
from dcpred.execution.workers import Pool
from dcpred.pages.page import check_packages, render
from dcpred.public.functions import typed
from dcpred.training.policy import parse_budget
from dcpred.training.train import training_data
from dcpred_compare.files import KERNELS, PAGE, POINTS, REQUEST, ROWS, SHARED, stored_result
from dcpred_compare.page import comparison_page, write_plots, write_tables
from dcpred_compare.processes import run_points
from dcpred_compare.reading import read_comparison
from dcpred_compare.result import CompareReport
from dcpred_compare.rows import draw_rows, write_rows
from dcpred_compare.systems import OURS, Point, chosen_systems, points_of
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import Failure, IncompleteError, PlanConflictError, SettingsError
from dcpred_tasks.evaluation.named_scores import check_label_score
from dcpred_tasks.storage.addresses import Address, stored_text
from dcpred_tasks.storage.atomic_files import check_new_name, is_system_file, replace_bytes

MODULE = "dcpred_compare.trial"
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
    test: tuple[Address, Address] | None
    task: str
    rows: int
    test_rows: int
    seed: int
    by_time: str | None = None
    by_group: str | None = None


@typed
def compare(
    data: Any,
    out: str | Path,
    *,
    systems: str | None = None,
    budgets: Sequence[str] = (),
    metric: str | None = None,
    test: str | None = None,
    rows: int = 10_000,
    test_rows: int = 5_000,
    time_limit: float = 300.0,
    seed: int = 0,
    by_time: str | None = None,
    by_group: str | None = None,
    task: str = "classification",
    x: str = "X",
    y: Any = "y",
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> CompareReport:
    """Compare dcpred with baselines on the same rows: quality, cost, training time and size.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set or a table, or rows, as for `train`. Rows in memory are written to
        `OUT.data.zarr` first.
    out : str or Path
        Folder of tables, plots and report.html.
    systems : str, optional
        Names, separated by commas. By default all that learn the task.
    budgets : sequence of str, optional
        Also tune a dcpred model within each of these costs: ``"20x"``, ``"200ns"``.
    metric : str, optional
        Score in the table, which our tuning optimises, too. It needs predictions only: for example
        balanced_accuracy, f1_macro, neg_mean_cost=50 or neg_mean_absolute_error.
    test : str, optional
        Path or address of a test data set. By default a held-out fifth of the rows.
    rows : int, default 10000
        Maximum number of training rows.
    test_rows : int, default 5000
        Maximum number of test rows.
    time_limit : float, default 300.0
        Processor time of all fits of a system, in seconds. The table marks a system that exceeds it.
    seed : int, default 0
        Seed of the row sample.
    task : {"classification", "regression"}, default "classification"
        What is learnt.

    Returns
    -------
    CompareReport
        The result of each system and setting.

    Raises
    ------
    RefusedError
        For wrong arguments or data, or if the folder holds another comparison.
    IncompleteError
        If no system has a result.

    Notes
    -----
    The same call resumes an interrupted comparison, and adds further systems to a finished one.
    """
    check_packages("a comparison", "compare")
    for budget in budgets:
        parse_budget(budget)
    pool = chosen_pool(workers, client)
    with training_data(data, x, y, None, client, out, id=id, drop=drop) as at:
        held = None
        if test is not None:
            followed = at.x.rpartition("/")[0]
            held = (
                find_rows(test, x, followed, with_target=True),
                find_rows(test, y, followed, with_target=True),
            )
        request = CompareRequest((at.x, at.y), held, task, rows, test_rows, seed, by_time, by_group)
        return run_comparison(
            request,
            Path(out),
            pool,
            systems=systems,
            budgets=tuple(budgets),
            limit_seconds=time_limit,
            metric=metric,
        )


def run_comparison(
    request: CompareRequest,
    folder: Path,
    pool: Pool,
    *,
    systems: str | None,
    budgets: Sequence[str],
    limit_seconds: float,
    metric: str | None = None,
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
        check_label_score(metric, request.task)
    names = chosen_systems(systems, request.task)
    if budgets and OURS not in names:
        raise SettingsError(
            f"Cannot use a budget: it is for searches of {OURS}, but the systems are {', '.join(names)}."
            f" Add {OURS}, or omit the budget."
        )
    points = {name: points_of(name, budgets, request.task, metric) for name in names}
    with pool() as workers:
        show_where("comparing", workers)
        _prepare(request, folder, points, metric)
        workers.check_sees(str(folder))
        _try_all(workers, folder, {SHARED: [SHARED]}, SHARED_SECONDS, "choosing scaling, γ and C")
        shared = stored_result(folder, SHARED)
        if shared["status"] != "done":
            raise IncompleteError(
                "Cannot choose settings for all kernel machines: the step ended with"
                f" {shared['status']} ({shared.get('why', '')}). Use fewer rows, or run the command again."
            )
        work = {name: [point.name for point in its] for name, its in points.items()} | {KERNELS: [KERNELS]}
        _try_all(workers, folder, work, limit_seconds, "trying systems")
    report = read_comparison(folder)
    write_tables(report, folder)
    write_plots(report, folder)
    replace_bytes(folder / PAGE, render(comparison_page(report)).html.encode())
    if not report.done:
        first = report.results[0]
        why = f"{first.status}: {first.why}" if first.why else first.status
        raise IncompleteError(
            f"No point of {len(report.results):,} has a result (the first one: {why}). Use a"
            " larger --time-limit or fewer --rows."
        )
    return report


def _prepare(
    request: CompareRequest, folder: Path, points: dict[str, list[Point]], metric: str | None
) -> None:
    """Prepare the folder with its rows, and add the points of this call to earlier ones."""
    test = request.test and tuple(map(stored_text, request.test))
    document: dict[str, Any] = json.loads(json.dumps(asdict(request) | {"test": test}))
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
        rows = draw_rows(**vars(request))
        (folder / POINTS).mkdir(parents=True, exist_ok=True)
        write_rows(folder, rows)
    every = before.get("points", {}) | {p.name: asdict(p) for its in points.values() for p in its}
    replace_bytes(file, json.dumps(document | {"points": every, "metric": metric}, indent=1).encode())


def _try_all(workers: Any, folder: Path, work: dict[str, list[str]], limit: float, title: str) -> None:
    with show_step(title, sum(map(len, work.values())), "points") as advance, _stopping(folder) as stop:
        tried, tasks = 0, [(str(folder), MODULE, points, limit, stop) for points in work.values()]
        for _, done in workers.each(run_points, tasks):
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
