"""The quality of a point of a search, in words."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from dcpred_tasks.evaluation.named_scores import score_of_figure

QUALITIES = ("accuracy", "log_loss", "rmse")


def quality_name(row: Mapping[str, Any]) -> str:
    """The name of a point's quality: the field "metric", or that of an earlier version."""
    return str(row.get("metric") or next((name for name in QUALITIES if name in row), QUALITIES[0]))


def words_of(name: str) -> str:
    """The name of a quality, in words."""
    score = score_of_figure(name)
    return (score and score.words) or name.replace("_", " ")


def is_share(name: str) -> bool:
    """Whether a quality is shown in percent."""
    return "accuracy" in name


def less_is_better(name: str) -> bool:
    return (score := score_of_figure(name)) is not None and score.less_is_better


def judged(point: Mapping[str, Any]) -> float | None:
    """The quality of a point: an accuracy in percent, else a number; None without an evaluation."""
    name = quality_name(point)
    value = point[name]
    return None if value is None else float(value) * (100.0 if is_share(name) else 1.0)


def shown(point: Mapping[str, Any]) -> str:
    """The quality of a point with its name."""
    name, value = quality_name(point), judged(point)
    if value is None:
        return "not evaluated"
    return f"{words_of(name)} {value:.2f} %" if is_share(name) else f"{words_of(name)} {value:.4g}"


def reference_words(reference: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """The quality of a reference; if fewer rows were held out for it, that of the choice on these, too."""
    if "chosen" not in reference or reference["n_judged"] == chosen["n_judged"]:
        return shown(reference)
    of_choice = shown({**reference, quality_name(reference): reference["chosen"]})
    n_rows = f"{reference['n_judged']:,} of these rows"
    return f"{shown(reference)} (on {n_rows}, where this model has {of_choice})"


def compared(references: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choice with its quality on the rows of the references, which is not extrapolated."""
    rows = [line for line in references if line["n_judged"] == chosen["n_judged"] and "chosen" in line]
    if not chosen.get("extrapolated") or not rows:
        return chosen
    return {**chosen, quality_name(chosen): rows[0]["chosen"], "extrapolated": False}


def unseen_words(chosen: Mapping[str, Any]) -> str:
    """How the figure of the choice differs from others of the Pareto front; empty if it does not."""
    sentences = []
    if chosen.get("unseen"):
        sentences += [
            f"The chosen model is evaluated on {chosen['n_judged']:,} rows that no choice used.",
            "Figures of the front are of rows that choices used, and are optimistic.",
        ]
    if chosen.get("extrapolated"):
        sentences += [
            "The quality of the chosen model is extrapolated to training on all rows; figures of the front"
            " are not."
        ]
    return " ".join(sentences)


def interval_words(point: Mapping[str, Any]) -> str:
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


def number_text(value: float | None, name: str) -> str:
    """A quality, or its error, without its name."""
    return "–" if value is None else f"{100 * value:.2f} %" if is_share(name) else f"{value:.4g}"
