"""dcpred report: which page a file or folder gets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dcpred.comparison.compare import REQUEST, CompareReport, read_comparison
from dcpred.comparison.page import comparison_page
from dcpred.cost import predict_cost
from dcpred.evaluation import evaluate, without_infinite
from dcpred.execution.progress import SILENT, Reporter, reporter
from dcpred.execution.workers import one_line
from dcpred.pages import Page, Report, Section, Table, check_packages, counted, percent, plain, render
from dcpred.refreshing.root import RootStatus, RunLine, root_status
from dcpred.reports.evaluation_page import evaluation_page, last_name
from dcpred.reports.model_page import model_page, search_page, search_sections
from dcpred.reports.run_page import Run, open_run, run_page
from dcpred.results.stored_scores import open_stored
from dcpred.runs.latest import RUNS, SETTINGS, run_meant
from dcpred.runs.ledger import PLAN, open_ledger
from dcpred.serving import ServedModel
from dcpred.tuning.cache import checked_search
from dcpred.tuning.frontier_plot import with_cost
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, Artifact, open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.evaluation.counts import known_targets
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.model.compact_model import Model, Scores, score_rows
from dcpred_tasks.scoring.outputs import DECISION
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import absolute, below, check_options, local_path, path_on_disk
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.storage.atomic_files import decoded
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.plain_files import read_plain
from dcpred_tasks.training.settings import in_effect

RUNS_SHOWN = 50


def root_page(status: RootStatus, latest: Page | None) -> Page:
    """latest  the page of the latest run, if it has its own scores"""
    lines = [_line(run, run.run == status.latest) for run in status.runs]
    heads = ["run", "state", "ended (UTC)", "rows", "without a score", "blocks reused", "drift"]
    table = Table(heads, lines, "Runs, the newest first", texts=3, wide=True)
    lead = f"{counted(status.n_runs, 'run', 'runs')} over {last_name(status.data)}"
    lead += f"; the latest is {status.latest}." if status.latest else "; none is finished yet."
    warnings = [
        f"Run {run.run} is damaged: its manifest is modified."
        for run in status.runs
        if run.state == "damaged"
    ]
    if status.driver:
        warnings.append("A refresh is at work.")
    runs = Section("Runs", parts=[table])
    if latest is None:
        return Page(f"Refresh of {last_name(status.data)}", lead, sections=[runs], warnings=warnings)
    return replace(
        latest,
        title=f"Refresh of {last_name(status.data)}",
        lead=f"{lead} What follows is of that run.",
        sections=[runs, *latest.sections],
        warnings=[*warnings, *latest.warnings],
    )


def _line(run: RunLine, is_latest: bool) -> list[str]:
    ended = "–" if run.ended is None else datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")
    known = run.state in ("latest", "finished")
    return [
        plain(run.run),
        "latest" if is_latest else run.state,
        ended,
        f"{run.n_rows:,}" if run.n_rows else "–",
        f"{run.n_bad:,} ({percent(run.n_bad / run.n_rows, 2)})" if known and run.n_rows else "–",
        f"{run.taken_blocks:,} of {run.n_blocks:,}" if run.n_blocks else "–",
        ("large" if run.drift_is_large else "not large") if known else "–",
    ]


COMPARED = 16  # first rows of each piece that are scored again to detect other rows
TOLERANCE = 0.01  # fraction of the deviation of decision values by which equal rows may differ


def evaluate_run(run: Run, x: str, y: str, say: Reporter) -> dict[str, Any]:
    """The fields of an evaluation, of the scored rows.

    x  address of the scored rows, or of the same rows elsewhere
    y  address of their targets

    Raises DataError, also if rows of x do not have the scores of the run.
    """
    if run.model is None or DECISION not in run.run.outputs:
        lacking = "its model was removed" if run.model is None else "it holds no decision values"
        raise DataError(f"Cannot evaluate the scores of {run.run.output} on {y}: {lacking}. Score again.")
    target = zarr_arrays.open_array(y)
    if target.shape != (run.run.n_rows,):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: it has shape {target.shape}"
            f" and the run {run.run.n_rows:,} rows. Name the scored data."
        )
    if run.model.task != "classification":
        stored_chunks.check_complete(y, target)
    elif remark := stored_chunks.check_labels(y, target):
        say.say(remark)
    if absolute(x) == absolute(run.run.x) and not open_ledger(run.run.output).has_same_input():
        raise DataError(
            f"Cannot compare the scores of {run.run.output} with {y}: {x} changed since its rows were scored."
            " Score it again."
        )
    scores = open_stored(run.run.output, partial=True)
    found, n = Measures(run.model, run.run.costs), 0
    with say.step("evaluating", run.run.n_rows, "rows") as advance:
        for start, stop, done in scores.pieces():
            if done:
                values, status = scores.read([DECISION], start, stop, done)
                good = status == Status.OK
                decision = values[DECISION].reshape(stop - start, -1)
                _check_rows(run, run.model, x, start, decision)
                wanted, _ = known_targets(run.model, target, start, stop)
                found.add(run.model, decision[good], wanted[good])
                n += stop - start
            advance(stop - start)
    if not found.n:
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: no row has one. Clean the data."
        )
    summary = {
        "task": run.model.task,
        "n_samples": n,
        "n_bad": n - found.n,
        "data": y,
        "model": run.run.model,
    }
    return without_infinite(summary | found.as_dict())


def _check_rows(run: Run, model: Model, x: str, start: int, stored: Scores) -> None:
    """Raise DataError if the first rows of a piece have other decision values than stored: they are other
    rows. Rows without a score, here or there, are ignored.
    """
    if absolute(x) == absolute(run.run.x):
        return
    X = zarr_arrays.open_array(x)
    found, _ = score_rows(model, zarr_arrays.read_rows(X, start, start + COMPARED))
    spread = np.nanmedian(np.abs(stored - np.nanmedian(stored, axis=0)), axis=0)
    rounding = 8 * np.finfo(stored.dtype).eps * np.abs(found)
    wrong = np.abs(found - stored[: len(found)]) > TOLERANCE * spread + rounding
    if wrong.any(axis=1).mean() > 0.5 or not len(found):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {x}: its rows from"
            f" {start:,} on are not the scored ones, which lie at {run.run.x}. Name the scored"
            " data."
        )


TUNED = ".tuned.json"  # the end of a search's file name, which begins with that of its model
MOST_BYTES = 256 * 2**20  # maximum size of a JSON file


def report(
    path: Any,
    *,
    data: str | Path | None = None,
    x: str = "X",
    y: str = "y",
    storage_options: Mapping[str, str | bool | float] | None = None,
    verbose: bool = False,
) -> Report:
    """Make one page of HTML, with plots, that needs no other file and no network.

    Parameters
    ----------
    path : str, Path, ServedModel or fitted estimator
        A model; the output of `dcpred evaluate --json`; the result of a search (`MODEL.tuned.json`); the
        output of `score` or the root of `refresh`; or the folder of a comparison.
    data : str or Path, optional
        Labelled data set to evaluate a model on, or the scores of a run on its rows.
    x : str, default "X"
        Name of the array of features in the data.
    y : str, default "y"
        Name of the array of targets in the data.
    storage_options : dict, optional
        Options of the object store, as for `load_model`.
    verbose : bool, default False
        Print progress on standard error.

    Returns
    -------
    Report
        The page, which a notebook shows and the method `save` writes.

    Raises
    ------
    DataError
        If nothing of these exists, or it is damaged.
    SettingsError
        If jinja2 or matplotlib are missing.
    """
    check_packages("a report", "report")
    with given_options(check_options(storage_options or {})), _stored(path) as place:
        say = reporter() if verbose else SILENT
        return render(_page(place, None if data is None else local_path(data), x, y, say))


@contextmanager
def _stored(given: Any) -> Iterator[str | Path]:
    """The address of the argument; a fitted estimator is saved temporarily."""
    if isinstance(given, ServedModel):
        yield given.artifact.path
    elif isinstance(given, str | Path):
        yield given
    elif hasattr(given, "save") and hasattr(given, "predict"):
        with TemporaryDirectory(prefix="dcpred-") as folder:
            path = Path(folder) / type(given).__name__
            given.save(path)
            yield path
    else:
        raise DataError(
            f"Cannot make a report of a value of type {type(given).__name__}: it is not a model. Pass a"
            " path, a fitted estimator or a served model."
        )


def _page(path: str | Path, data: str | None, x: str, y: str, say: Reporter) -> Page:
    file = path_on_disk(path)
    if file is not None and file.is_file():
        if data is not None:
            raise DataError(
                f"Cannot use data for a report of {path}: it is one file with finished numbers. Omit the"
                " data."
            )
        return _of_file(file)
    place = open_place(run_meant(path))
    if place.read(MODEL_FILE) is not None:
        return _of_model(place.address, data, x, y, say)
    if place.read(PLAN) is not None:
        return _of_run(place.address, data, x, y, say)
    if place.read(SETTINGS) is not None:
        return _of_root(place.address, data, x, y, say)
    if data is None and file is not None and place.read(REQUEST) is not None:
        return comparison_page(_comparison(Path(place.address)))
    so = "is no source of a report" if place.is_there() else "does not exist"
    raise DataError(
        f"Cannot make a report of {path}: it {so}. Name a model, an evaluation (--json), a search, a run"
        " or a comparison."
    )


def _of_file(path: Path) -> Page:
    """Of an evaluation or a search."""
    if zarr_arrays.table_ending(str(path)):
        raise DataError(
            f"Cannot make a report of {path}: it is a table. Name a model or an output of `dcpred score`"
        )
    if path.stat().st_size > MOST_BYTES:
        raise DataError(
            f"Cannot make a report of {path}: it has {path.stat().st_size:,} bytes. Check the path."
        )
    try:
        summary = decoded(read_plain(path)[0], path)
    except ValueError as error:
        raise DataError(
            f"Cannot make a report of {path}: it is not readable ({error}). Check the path."
        ) from None
    if "n_samples" in summary:
        return _of_evaluation(summary, path)
    if "found" in summary:
        found = checked_search(summary["found"])
        if found is None:
            raise _other(path, "a search")
        name = path.name.removesuffix(TUNED)
        model = path.with_name(name)
        if (model / MODEL_FILE).exists():
            found = _of_this_model(found, open_artifact(model))
        return search_page(name, found)
    raise DataError(
        f"Cannot make a report of {path}: it is neither an output of `dcpred evaluate --json` nor of"
        " a search. Name one of these."
    )


def _of_evaluation(summary: dict[str, Any], path: Path) -> Page:
    """Anybody may have changed the file."""
    try:
        return evaluation_page(summary)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"Cannot draw the evaluation in {path} ({type(error).__name__}: {one_line(str(error))}). Make it"
            " again with `dcpred evaluate --json`; if that one fails too, report a bug with the traceback"
            " (-v)."
        ) from error


def _other(path: str | Path, author: str) -> DataError:
    return DataError(f"Cannot make a report of {path}: it is not an output of {author}. Make it again.")


def _comparison(folder: Path) -> CompareReport:
    """Read a comparison, whose files anybody may have changed. The page is drawn outside of this."""
    try:
        return read_comparison(folder)
    except (AttributeError, LookupError, TypeError, ValueError, FileNotFoundError) as error:
        if isinstance(error, DcpredError):
            raise
        raise _other(folder, "dcpred compare") from error


def _of_model(address: str, data: str | None, x: str, y: str, say: Reporter) -> Page:
    evaluated = None
    if data is not None:
        X, target = (find_rows(data, name, address, with_target=True) for name in (x, y))
        evaluated = evaluate(address, X, target, say=say)
    return model_page(address, evaluated, _search_of(address))


def _search_of(address: str) -> list[Section]:
    """The search for a model, if its file is readable: another model, trained with other settings, may have
    replaced it by now.
    """
    model = path_on_disk(address)
    if model is None:
        return []
    path = model.with_name(f"{last_name(address)}{TUNED}")
    try:
        found = checked_search(decoded(read_plain(path)[0], path).get("found"))
    except (OSError, ValueError):
        return []
    artifact = open_artifact(address)
    if found is None or not _is_of_this_model(found, artifact):
        return []
    return search_sections(_of_this_model(found, artifact))


def _is_of_this_model(found: dict[str, Any], artifact: Artifact) -> bool:
    """Whether a model has the settings that a search found."""
    task = artifact.body["task"]
    return in_effect(found["settings"], task) == in_effect(artifact.body["settings"], task)


def _of_this_model(found: dict[str, Any], artifact: Artifact) -> dict[str, Any]:
    """The search with the cost of its model, if that still exists."""
    if not _is_of_this_model(found, artifact):
        return found
    cost = predict_cost(artifact.model()).cost_ratio
    points, chosen = with_cost(found["frontier"], found["chosen"], cost)
    return found | {"frontier": points, "chosen": chosen}


def _of_run(address: str, data: str | None, x: str, y: str, say: Reporter) -> Page:
    run = open_run(address)
    evaluated = None
    if data is not None:
        X, target = (find_rows(data, name, run.run.model, with_target=True) for name in (x, y))
        evaluated = evaluate_run(run, X, target, say)
    return run_page(run, evaluated)


def _of_root(address: str, data: str | None, x: str, y: str, say: Reporter) -> Page:
    status = root_status(address, RUNS_SHOWN)
    latest = None
    if status.latest:
        place = open_place(below(address, RUNS, status.latest))
        if place.read(PLAN) is not None:
            latest = _of_run(place.address, data, x, y, say)
    return root_page(status, latest)
