"""The result of a search: the file that a later search goes on from, and the plot of its Pareto front."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any

from dcpred.pages import PAPER, drawing, frontier
from dcpred.training.reports import SHAPE, Chosen, Decision, Finite, Reference, TuneReport
from dcpred_tasks.annotations import from_document, is_allowed
from dcpred_tasks.errors import PlanConflictError, SettingsError, optional_package
from dcpred_tasks.evaluation.named_scores import score_of_figure
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.training.settings import in_effect, make_settings, settings_dict

QUALITIES = ("accuracy", "log_loss", "rmse")


def found_before(earlier: Mapping[str, Any], kept: Path) -> dict[str, Any]:
    """The report that an earlier search wrote to `kept`. Raises PlanConflictError for another file."""
    report = checked_search(earlier.get("found"))
    if report is None:
        raise PlanConflictError(
            f"Cannot read settings from {kept}: it is not the result of a search. Remove it to search again."
        )
    return report


def checked_search(found: Any) -> dict[str, Any] | None:
    """The fields of a report that a search wrote; None if some are missing."""
    try:
        return _found(found)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _found(found: Any) -> dict[str, Any]:
    """Raises ValueError and others for an invalid result."""
    report = from_document(TuneReport, found)
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


def quality_name(row: Mapping[str, Any]) -> str:
    """The name of a point's quality: the field "metric", or that of an earlier version."""
    return str(row.get("metric") or next((name for name in QUALITIES if name in row), QUALITIES[0]))


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


def with_cost(
    points: list[dict[str, Any]], chosen: dict[str, Any], cost_ratio: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The same points with the cost of the finished model, which may have fewer landmarks than chosen. It is
    shown once, with the quality of the choice.
    """
    made = {**chosen, "cost_ratio": cost_ratio}
    same = ("cost_ratio", "ns_per_row", "scaling", *SHAPE)
    return [made if all(p[name] == chosen[name] for name in same) else p for p in points], made


def words_of(name: str) -> str:
    """The name of a quality, in words."""
    score = score_of_figure(name)
    return (score and score.words) or name.replace("_", " ")


def is_share(name: str) -> bool:
    """Whether a quality is shown in percent."""
    return "accuracy" in name


def less_is_better(name: str) -> bool:
    return (score := score_of_figure(name)) is not None and score.less_is_better


def judged(point: dict[str, Any]) -> float | None:
    """The quality of a point: an accuracy in percent, else a number; None without an evaluation."""
    name = quality_name(point)
    value = point[name]
    return None if value is None else float(value) * (100.0 if is_share(name) else 1.0)


def shown(point: dict[str, Any]) -> str:
    """The quality of a point with its name."""
    name, value = quality_name(point), judged(point)
    if value is None:
        return "not evaluated"
    return f"{words_of(name)} {value:.2f} %" if is_share(name) else f"{words_of(name)} {value:.4g}"


def reference_words(one: dict[str, Any], chosen: dict[str, Any]) -> str:
    """The quality of a reference; if fewer rows were held out for it, that of the choice on these, too."""
    if "chosen" not in one or one["n_judged"] == chosen["n_judged"]:
        return shown(one)
    own = shown({**one, quality_name(one): one["chosen"]})
    return f"{shown(one)} (on {one['n_judged']:,} of these rows, where this model has {own})"


def compared(references: Sequence[dict[str, Any]], chosen: dict[str, Any]) -> dict[str, Any]:
    """The choice with its quality on the rows of the references, which is not extrapolated."""
    rows = [one for one in references if one["n_judged"] == chosen["n_judged"] and "chosen" in one]
    if not chosen.get("extrapolated") or not rows:
        return chosen
    return {**chosen, quality_name(chosen): rows[0]["chosen"], "extrapolated": False}


def unseen_words(chosen: dict[str, Any]) -> str:
    """How the figure of the choice differs from others of the Pareto front; empty if it does not."""
    sentences = []
    if chosen.get("unseen"):
        sentences += [
            f"The chosen model is evaluated on {chosen['n_judged']:,} rows that no choice used.",
            "All other figures are of rows that choices used, and are optimistic.",
        ]
    if chosen.get("extrapolated"):
        sentences += ["The figure of the chosen model is extrapolated to training on all rows."]
    return " ".join(sentences)


def interval_words(point: dict[str, Any]) -> str:
    """The range of two standard errors about the quality of a point, within its possible values."""
    name, two = quality_name(point), 2.0 * (point["standard_error"] or 0.0)
    if point[name] is None:
        return "nothing evaluated"
    is_bounded = (score := score_of_figure(name)) is not None and score.is_share
    least = 0.0 if is_bounded or less_is_better(name) else -inf
    most = 1.0 if is_bounded else inf
    low, high = max(point[name] - two, least), min(point[name] + two, most)
    if is_share(name):
        return f"{words_of(name)} between {100 * low:.2f} and {100 * high:.2f} %"
    return f"{words_of(name)} between {low:.4g} and {high:.4g}"


def paint_frontier(points: Sequence[dict[str, Any]], chosen: dict[str, Any], axes: Any) -> None:
    """Draw on axes of matplotlib."""
    unit = 100.0 if is_share(quality_name(chosen)) else 1.0
    drawn = [
        (float(p["cost_ratio"]), value, unit * (p.get("standard_error") or 0.0))
        for p in points
        if (value := judged(p)) is not None
    ]
    frontier(axes, drawn, (float(chosen["cost_ratio"]), judged(chosen)))
    axes.set_xlabel("predicted cost, linear predictions a row")
    name = quality_name(chosen)
    axes.set_ylabel(f"{words_of(name)} on held-out rows" + (", %" if is_share(name) else ""))
