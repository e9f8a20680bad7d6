"""Drift in terms of the training table: names of features, categories and dates."""

from collections.abc import Sequence
from itertools import pairwise

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.bins import TINY, TOLERANCE
from dcpred_tasks.schema.column import NEVER_SEEN, OTHERS, Boolean, Category, Column
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.drift_fields import Bin

LISTED_BINS = 24  # bins of a feature that a report shows: those with most rows
MISSING, RARE = "missing", "other categories"
ALIKE = 2.0**-17  # width of a bin that holds one value, relative to it


def bins_in_words(
    edges: FloatArray, rows: IntArray, training: IntArray, schema: Schema | None, feature: int
) -> list[Bin]:
    """Shares of rows and of training rows in the bins with most of them, by their content."""
    shares: dict[str, list[float]] = {}
    both = ((each / max(each.sum(), 1)).tolist() for each in (rows, training))
    for label, share, before in zip(bin_labels(edges.tolist(), schema, feature), *both, strict=True):
        if share or before:
            so_far = shares.get(label, (0.0, 0.0))
            shares[label] = [so_far[0] + share, so_far[1] + before]
    most = sorted(shares, key=lambda label: -max(shares[label]))[:LISTED_BINS]
    return [Bin(label, *both) for label, both in shares.items() if label in most]


def bin_labels(edges: Sequence[float], schema: Schema | None, feature: int) -> list[str]:
    """The content of each bin, as text."""
    if not edges:
        return ["values", MISSING]
    column = _column(schema, feature)
    if isinstance(column, Category) and column.says(0, 0) is not None:
        inner = [_category(a, b, column) for a, b in pairwise(edges)]
        return [NEVER_SEEN, *inner, NEVER_SEEN, MISSING]
    words = [value_in_words(edge, schema, feature) for edge in edges]
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


def value_in_words(value: float, schema: Schema | None, feature: int) -> str:
    """A value as the table has it: edges lie a little beside it (dcpred_tasks.model.bins)."""
    value = _without_margin(value)
    if isinstance(_column(schema, feature), Boolean) and value in (0, 1):
        return "true" if value else "false"
    described = None if schema is None else schema.says(feature, round(value))
    return f"{value:.6g}" if described is None or described == OTHERS else described


def _without_margin(edge: float) -> float:
    """The short number next to an edge, or the edge itself."""
    short = 0.0 if abs(edge) <= 2 * TINY else float(f"{edge:.5g}")
    return short if abs(edge - short) <= 1.5 * TOLERANCE * abs(short) + 2 * TINY else edge


def _column(schema: Schema | None, feature: int) -> Column | None:
    spans = () if schema is None else schema.spans
    return next((c for c, s in spans if s.start <= feature < s.stop), None)
