"""Pairs of raw features that relate to each other otherwise than in training, and what explains it.

A pair differs where Fisher's z of its rank correlation differs in a test at LEVEL divided by the number of
pairs, by LEAST_CHANGE, and by more than WITHIN times what quarters of the training rows differ by, and the
correlation itself by LEAST_DIFFERENCE. Features that drift are left out, because their drift is reported.

A cause is given where it explains all pairs that differ: two features that changed places, a feature whose
sign changed, or one that relates to no other any more. One pair does not show which of its features it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.relations import LEAST_ROWS, RankMap, Relations
from dcpred_tasks.scoring.drift_fields import PairDrift, RelationDrift

LEVEL = 0.005  # error level of all pairs together
LEAST_CHANGE, LEAST_DIFFERENCE = 0.25, 0.04
WITHIN = 1.5
UNRELATED, RELATED = 0.1, 0.3  # largest correlation of a feature of other rows, and least one in training
BLAMED, LISTED = 6, 10  # features that may be the cause, and pairs in a result


@dataclass(frozen=True)
class _Pairs:
    """Compared pairs of features: which are left out, and how many rows the new ones have."""

    relations: Relations
    rows: IntArray
    usable: NDArray[np.bool_]

    def differ(self, r: FloatArray) -> NDArray[np.bool_]:
        """The pairs that differ, if these are the new correlations."""
        known, n = self.relations, len(self.relations.feature)
        limit = NormalDist().inv_cdf(1 - LEVEL / (n * (n - 1)))
        with np.errstate(divide="ignore", invalid="ignore"):
            error = known.error * np.sqrt(1 / known.rows + 1 / self.rows)
            change = np.abs(np.arctanh(r) - np.arctanh(known.correlation))
            least = np.maximum(LEAST_CHANGE, WITHIN * known.span)
            large = (change > limit * error) & (change > least)
        large &= np.abs(r - known.correlation) > LEAST_DIFFERENCE
        return np.asarray(large & np.isfinite(r) & self.usable)


def changed_relations(
    bins: Bins,
    relations: Relations,
    bin_rows: IntArray,
    sums: IntArray,
    names: Sequence[str],
    without: Collection[int],
) -> RelationDrift | None:
    """How new rows with these counts and rank sums differ; None where they do not, or are too few.

    without  features that are left out
    """
    r = RankMap(bins, relations.feature).correlations(sums, bins, bin_rows)
    compared = ~np.isin(relations.feature, [*without])
    pairs = _Pairs(relations, sums[1], np.outer(compared, compared) & (sums[1] >= LEAST_ROWS))
    differ = pairs.differ(r)
    if not differ.any():
        return None
    labels = [names[j] for j in relations.feature.tolist()]
    a, b = np.nonzero(np.triu(differ))
    order = np.argsort(-np.abs(r - relations.correlation)[a, b], kind="stable")
    top = [
        PairDrift([labels[i], labels[j]], float(r[i, j]), float(relations.correlation[i, j]))
        for i, j in zip(a[order[:LISTED]].tolist(), b[order[:LISTED]].tolist(), strict=True)
    ]
    columns, cause = _cause(pairs, r, differ, labels)
    return RelationDrift(len(a), columns or top[0].features, cause, top)


def _cause(
    pairs: _Pairs, r: FloatArray, differ: NDArray[np.bool_], labels: Sequence[str]
) -> tuple[list[str], str]:
    """Features to blame, none for those of the first pair, and what explains all pairs that differ."""
    known, n = np.abs(pairs.relations.correlation), len(r)
    most = np.argsort(-differ.sum(axis=0), kind="stable")[:BLAMED]
    blamed = [i for i in most.tolist() if differ[i].any() and known[i].max() > RELATED]
    left: dict[tuple[int, ...], int] = {}
    is_one_pair = differ.sum() == 2
    for i in blamed:
        sign = np.where(np.arange(n) == i, -1, 1)
        left[(i,)] = int(pairs.differ(r * np.outer(sign, sign)).sum())
        for j in () if is_one_pair else range(n):
            swapped = np.arange(n)
            swapped[[i, j]] = j, i
            if i != j:
                left[min(i, j), max(i, j)] = int(pairs.differ(r[np.ix_(swapped, swapped)]).sum())
    best = min(left, key=lambda each: left[each], default=())
    cause, features = "", [labels[i] for i in best]
    if best and left[best] == 0:
        cause = "sign" if len(best) == 1 else "places"
    elif blamed and np.nanmax(np.abs(r[blamed[0]])) < UNRELATED:
        cause, features = "other rows", [labels[blamed[0]]]
    return [] if is_one_pair or not cause else features, cause
