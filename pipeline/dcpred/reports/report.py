"""`dcpred report`: one page of HTML of what lies at a path."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dcpred.comparison.compare import ASKED, CompareReport, read_comparison
from dcpred.comparison.page import comparison_page
from dcpred.cost.predicted import predict_cost
from dcpred.evaluation.evaluate import evaluate
from dcpred.execution.progress import SILENT, Reporter
from dcpred.pages.page import Page, Report, Section, check_packages, render
from dcpred.refresh.overview import root_status
from dcpred.reports.evaluation_form import is_evaluation
from dcpred.reports.evaluation_page import evaluation_page
from dcpred.reports.model_page import model_page
from dcpred.reports.names import last_name
from dcpred.reports.root_page import RUNS_SHOWN, root_page
from dcpred.reports.run_evaluation import evaluate_run
from dcpred.reports.run_page import open_run, run_page
from dcpred.reports.search_page import search_page, search_sections
from dcpred.runs.latest import RUNS, SETTINGS, run_meant
from dcpred.runs.ledger import PLAN
from dcpred.serving import ServedModel
from dcpred.tuning.frontier_plot import with_cost
from dcpred.tuning.kept import checked_search
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, Artifact, open_artifact
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import below, check_options, is_remote, local_path
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.storage.atomic_files import decoded
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.plain_files import read_plain
from dcpred_tasks.training.task_settings import in_effect

TUNED = ".tuned.json"  # the end of a search's file name, which begins with that of its model
MOST_BYTES = 256 * 2**20  # maximum size of a JSON file


def report(
    path: Any,
    *,
    data: str | Path | None = None,
    x: str = "X",
    y: str = "y",
    storage_options: Mapping[str, str | bool | float] | None = None,
    say: Reporter = SILENT,
) -> Report:
    """One page that needs no other file, of what lies at a path; a notebook shows it, and `save` writes it.

    path  of a model, or a fitted estimator or served model itself; of an output of `dcpred evaluate --json`
          or of a search (MODEL.tuned.json); of an output of scoring, or the root of a refresh; of the folder
          of a comparison
    data  a labelled data set, to evaluate a model or the scores of a run on its rows
    x, y  names of its arrays

    Raises DataError if nothing of these exists, or it is damaged; SettingsError if jinja2 or matplotlib are
    missing; and the errors of opening it.
    """
    check_packages("a report", "report")
    with given_options(check_options(storage_options or {})), _stored(path) as place:
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
            f"Cannot make a report of a {type(given).__name__}: it is not a model. Pass a path, a fitted"
            " estimator or a served model."
        )


def _page(path: str | Path, data: str | None, x: str, y: str, say: Reporter) -> Page:
    if not is_remote(path) and Path(local_path(path)).is_file():
        if data is not None:
            raise DataError(
                f"Cannot use data for a report of {path}: it is one file with finished numbers. Omit the"
                " data."
            )
        return _of_file(Path(local_path(path)))
    place = open_place(run_meant(path))
    if place.read(MODEL_FILE) is not None:
        return _of_model(place.address, data, x, y, say)
    if place.read(PLAN) is not None:
        return _of_run(place.address, data, x, y, say)
    if place.read(SETTINGS) is not None:
        return _of_root(place.address, data, x, y, say)
    if data is None and place.read(ASKED) is not None and not is_remote(path):
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
        if not is_evaluation(summary):
            raise _other(path, "dcpred evaluate --json")
        return evaluation_page(summary)
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
    if is_remote(address):
        return []
    path = Path(address).with_name(f"{last_name(address)}{TUNED}")
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
