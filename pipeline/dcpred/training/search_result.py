"""The result of a search: the file that a later search goes on from, and the plot of its Pareto front."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from dcpred.pages.charts import PAPER, drawing, frontier
from dcpred.training.quality import is_share, judged, quality_name, words_of
from dcpred.training.reports import Chosen, Decision, Finite, Reference, TuneReport, is_chosen
from dcpred_tasks.annotations import from_document, is_allowed
from dcpred_tasks.errors import PlanConflictError, SettingsError, optional_package
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.training.settings import in_effect, make_settings, settings_dict


def found_before(earlier: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The report that an earlier search wrote to `kept`. Raises PlanConflictError for another file."""
    report = checked_search(earlier.get("found"))
    if report is None:
        raise PlanConflictError(
            f"Cannot read settings from {path}: it is not the result of a search. Remove it to search again."
        )
    return report


def checked_search(fields: Any) -> dict[str, Any] | None:
    """The fields of a report that a search wrote; None if some are missing."""
    try:
        return _checked(fields)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _checked(fields: Any) -> dict[str, Any]:
    """Raises ValueError and others for an invalid result."""
    report = from_document(TuneReport, fields)
    settings = make_settings(in_effect(report.settings, report.settings["task"]))
    for point in (report.chosen, *report.frontier):
        evaluated = from_document(Chosen, point).n_judged > 0
        _check_quality(point, Finite if evaluated else NoneType)
    for line in report.trace:
        from_document(Decision, line)
    for line in report.references:
        from_document(Reference, line)
        _check_quality(line, Finite)
    return report.found() | {"settings": settings_dict(settings)}


def _check_quality(row: Mapping[str, Any], kind: Any) -> None:
    """Raise ValueError unless a quality, whose key is the name of its metric, and its error are of a kind."""
    if not all(is_allowed(row[name], kind) for name in (quality_name(row), "standard_error")):
        raise ValueError


KINDS = (".png", ".svg", ".pdf")
PIXELS = (560, 360)  # CSS pixels


def check_plot(path: Path | None) -> None:
    """Raise SettingsError unless a plot can be written there. Before any work."""
    if path is None:
        return
    if path.is_dir() or path.suffix.lower() not in KINDS:
        raise SettingsError(
            f"Cannot write a plot to {path}: its name does not end with {', '.join(KINDS)}. Rename it."
        )
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"Cannot write a plot to {path}: its directory does not exist. Make it first.")
    with optional_package("draw a plot", "report"):
        import matplotlib  # noqa: F401


def draw_frontier(report: dict[str, Any], path: Path) -> None:
    """The Pareto front of a TuneReport: accuracy (or RMSE) on held-out rows against predicted cost."""
    with drawing(*PIXELS) as figure, resource_errors(path):
        paint_frontier(report["frontier"], report["chosen"], figure.add_subplot())
        figure.savefig(path, dpi=160, facecolor=PAPER)


def paint_frontier(points: Sequence[dict[str, Any]], chosen: dict[str, Any], axes: Any) -> None:
    """Draw on axes of matplotlib."""
    unit = 100.0 if is_share(quality_name(chosen)) else 1.0
    drawn = [
        (float(p["cost_ratio"]), value, unit * (p.get("standard_error") or 0.0))
        for p in points
        if (value := judged(p)) is not None
    ]
    at = next((point for point in points if is_chosen(point, chosen)), chosen)
    frontier(axes, drawn, (float(at["cost_ratio"]), judged(at)))
    axes.set_xlabel("predicted cost, linear predictions a row")
    name = quality_name(chosen)
    axes.set_ylabel(f"{words_of(name)} on held-out rows" + (", %" if is_share(name) else ""))
