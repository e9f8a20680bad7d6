"""The cache of trials that a search keeps, to go on where it was interrupted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.training.settings import (
    in_effect,
    make_settings,
    settings_dict,
)

# The stored fields of a report.
FOUND = {"settings": dict, "chosen": dict, "frontier": list, "seconds": dict}
ADDED_FIELDS = {"trace": list, "references": list, "words": str}  # Earlier versions do not have them.
QUALITIES = ("accuracy", "log_loss", "rmse")
COUNTS = ("n_judged", "n_leaves", "landmarks", "products", "overlap")
COSTS = ("cost_ratio", "ns_per_row")
LARGEST = 1e100  # far beyond all results; sums and products with it are finite


def found_before(earlier: Mapping[str, Any], kept: Path) -> dict[str, Any]:
    """The fields of a report that an earlier search wrote to `kept`. Raises PlanConflictError if some are
    missing.
    """
    try:
        return _found(earlier.get("found"))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise PlanConflictError(
            f"Cannot read settings from {kept}: it is not the result of a search. Remove it to search again."
        ) from None


def checked_search(found: Any) -> dict[str, Any] | None:
    """The fields of a report that a search wrote; None if some are missing."""
    try:
        return _found(found)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _found(found: Any) -> dict[str, Any]:
    """Raises ValueError and others for an invalid result."""
    if not isinstance(found, dict) or not all(isinstance(found.get(name), FOUND[name]) for name in FOUND):
        raise ValueError
    settings = make_settings(in_effect(found["settings"], found["settings"]["task"]))
    if not all(_is_row(row) for row in (found["chosen"], *found["frontier"])):
        raise ValueError
    if not all(_is_number(seconds) for seconds in found["seconds"].values()):
        raise ValueError
    later = {name: found.get(name, kind()) for name, kind in ADDED_FIELDS.items()}
    if not all(isinstance(later[name], kind) for name, kind in ADDED_FIELDS.items()):
        raise ValueError
    if not all(_is_decision(line) for line in later["trace"]):
        raise ValueError
    if not all(_is_reference(line) for line in later["references"]):
        raise ValueError
    return {name: found[name] for name in FOUND} | later | {"settings": settings_dict(settings)}


def _is_decision(line: Any) -> bool:
    words = all(type(line[name]) is str for name in ("step", "candidate", "incumbent", "verdict"))
    numbers = ("loss", "incumbent_loss", "gain", "standard_error", "cost_ratio", "rows")
    return words and all(_is_number(line[name]) for name in numbers)


def _is_reference(line: Any) -> bool:
    later = (line["n_judged"], line.get("chosen", 0.0))  # an earlier version has no such quality
    numbers = (line[quality_name(line)], line["standard_error"], line["gain"], line["gain_error"], *later)
    words = type(line["name"]) is str and type(line["better"]) is bool
    return words and all(_is_number(one) for one in numbers)


def quality_name(row: Mapping[str, Any]) -> str:
    """The name of a point's quality: the field "metric", or that of an earlier version."""
    return str(row.get("metric") or next((name for name in QUALITIES if name in row), QUALITIES[0]))


def _is_row(row: Any) -> bool:
    quality = (row[quality_name(row)], row["standard_error"])
    return (
        all(type(row[name]) is int and row[name] >= 0 for name in COUNTS)
        and all(_is_number(row[name]) and row[name] >= 0 for name in COSTS)
        and all(_is_number(one) if row["n_judged"] else one is None for one in quality)
        and type(row["within_budget"]) is bool
        and type(row["scaling"]) is str
        and type(row.get("held_out", "")) is str
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST  # type: ignore[arg-type]
