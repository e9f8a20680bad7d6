"""Drift in terms of the training table: names of features, categories and dates."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from dcpred_tasks.artifacts.model_artifact import Artifact
from dcpred_tasks.model.bins import TINY, TOLERANCE
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.moments import raw_moments
from dcpred_tasks.schema.column import NEVER_SEEN, OTHERS, Boolean, Category, Column
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.drift import drift
from dcpred_tasks.scoring.statistics import Statistics

LISTED_BINS = 24  # bins of a feature that a report shows: those with most rows
MISSING, RARE = "missing", "other categories"
ALIKE = 2.0**-17  # width of a bin that holds one value, relative to it


def describe_drift(
    artifact: Artifact, model: Model, gathered: Statistics, ignored: Collection[int] = ()
) -> dict[str, Any]:
    """The result of `scoring.drift.drift`, with names of features and bins."""
    trained = None if model.reference is None else model.reference.first(model.n_features)
    scored = raw_moments(model.scaling, gathered.moments)
    leaves = model.leaf_rows, gathered.leaf_rows
    found = drift(trained, scored, *leaves, model.bins, gathered.bin_rows, ignored)
    names, schema = model.scaling.labels(artifact.feature_names), artifact.schema
    plain = artifact.feature_names
    for one in found["features"]["top"] if found["features"] else []:
        if names is not None:
            one["name"] = names[one["feature"]]
        _put_words(one, schema, one["feature"])
    names_of_outputs = [f"score of {name}" for name in model.classes[-model.n_outputs :]] or ["prediction"]
    for name, one in zip(names_of_outputs, found.get("scores", ()), strict=False):
        one["name"] = name
        _put_words(one, None, 0)
    for one in found.get("beyond", ()):
        if plain is not None:
            one["name"] = plain[one["feature"]]
        for limit in ("low", "high"):
            one[f"{limit}_in_words"] = _value(one[limit], schema, one["feature"])
    return found


def _put_words(one: dict[str, Any], schema: Schema | None, feature: int) -> None:
    """Replace the edges of the bins of a feature by their content."""
    if "edges" not in one:
        return
    edges, shares, before = one.pop("edges"), one.pop("shares"), one.pop("training_shares")
    found: dict[str, list[float]] = {}
    for label, *both in zip(_labels(edges, schema, feature), shares, before, strict=True):
        if any(both):
            held = found.setdefault(label, [0.0, 0.0])
            held[:] = [held[0] + both[0], held[1] + both[1]]
    most = sorted(found, key=lambda label: -max(found[label]))[:LISTED_BINS]
    one["bins"] = [
        {"bin": label, "share": both[0], "training_share": both[1]}
        for label, both in found.items()
        if label in most
    ]


def _labels(edges: Sequence[float], schema: Schema | None, feature: int) -> list[str]:
    """The content of each bin, as text."""
    if not edges:
        return ["values", MISSING]
    column = None if schema is None else _column(schema, feature)
    if isinstance(column, Category) and column.says(0, 0) is not None:
        inner = [_category(a, b, column) for a, b in pairwise(edges)]
        return [NEVER_SEEN, *inner, NEVER_SEEN, MISSING]
    words = [_value(edge, schema, feature) for edge in edges]
    inner = [
        (a if edges[i + 1] - edges[i] <= ALIKE * abs(edges[i]) + 1e-20 else f"{a} to {b}")
        for i, (a, b) in enumerate(pairwise(words))
    ]
    return [f"below {words[0]}", *inner, f"above {words[-1]}", MISSING]


def _category(low: float, high: float, column: Category) -> str:
    """The category whose number lies between edges."""
    code = int(low + 0.5)
    if code == column.other:
        return NEVER_SEEN
    if code == column.gap:
        return MISSING
    return repr(column.categories[code]) if high - low == 1 else RARE


def _value(value: float, schema: Schema | None, feature: int) -> str:
    """A value as the table has it: edges lie a little beside it (dcpred_tasks.model.bins)."""
    value = _without_margin(value)
    if schema is not None and isinstance(_column(schema, feature), Boolean) and value in (0, 1):
        return "true" if value else "false"
    described = None if schema is None else schema.says(feature, round(value))
    return f"{value:.6g}" if described is None or described == OTHERS else described


def _without_margin(edge: float) -> float:
    """The short number next to an edge, or the edge itself."""
    short = 0.0 if abs(edge) <= 2 * TINY else float(f"{edge:.5g}")
    return short if abs(edge - short) <= 1.5 * TOLERANCE * abs(short) + 2 * TINY else edge


def _column(schema: Schema, feature: int) -> Column:
    return next(c for c, s in schema.spans if s.start <= feature < s.stop)
