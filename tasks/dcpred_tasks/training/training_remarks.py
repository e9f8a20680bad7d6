"""Remarks on training rows: features that are ids, leaks or constants, rare classes, heavy rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import listed
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.schema.column import Date
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.training.survey import Survey, heavy_row, thinned

REMARK_ROWS = 2**12  # rows that remarks are found in
FEWEST_ROWS, LEAST_OF_CLASS, NAMED = 20, 10, 5
LEAK, LEAK_OF_NUMBERS = 0.06, 0.005  # shares that a feature leaves unexplained


def training_remarks(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    number: IntArray,
    survey: Survey,
    names: Sequence[str] | None,
    schema: Schema | None,
    classes: Sequence[object],
) -> list[Remark]:
    """Remarks on training rows, one for each kind of finding.

    X, target, number  sampled raw rows in their order, their targets, and their numbers
    names, classes     of the features and of the classes; classes are empty for a regression
    """
    n = X.shape[1]
    columns = range(n) if schema is None else [span.start for _, span in schema.spans]  # no part of a date
    dates = set() if schema is None else {span.start for c, span in schema.spans if isinstance(c, Date)}
    few = thinned(number, REMARK_ROWS, 0)
    rows, y = _distinct(X[few].astype(ACC_DTYPE), target[few])
    constant = [f for f in columns if survey.minimum[f] == survey.maximum[f] and not survey.gaps[f]]
    ids = [f for f in columns if f not in dates and _ascends(rows[:, f])]
    rising = [f for f in sorted(dates) if _rises(rows[:, f])]
    varied = set(columns) - set(constant) - set(ids)
    leaks = [f for f in sorted(varied) if n > 1 and _predicts(rows[:, f], y, len(survey.classes))]
    has, predicts = ("has", "have"), ("predicts", "predict")
    kinds = (
        ("constant-feature", constant, has, "the same value in every training row"),
        ("id-feature", ids, has, "ascending integers, as ids have"),
        ("rising-dates", rising, has, "dates in the order of the rows, beyond which new rows always lie"),
        ("leak", leaks, predicts, "the target nearly perfectly alone and may be a leak"),
    )
    remarks = [
        remark(code, f"{_listed(features, names, *verbs)} {text}", columns=_names(features, names))
        for code, features, verbs, text in kinds
        if features
    ]
    rare = rare_class(survey, classes)
    return [*remarks, *filter(None, (heavy_row(survey.weights, survey.n_used, 1.0), rare))]


def rare_class(survey: Survey, classes: Sequence[object]) -> Remark | None:
    """A remark on classes of few rows, which all have the weight 1."""
    weights = survey.class_weights
    if not len(weights) or weights.sum() != survey.n_used or (weights >= LEAST_OF_CLASS).all():
        return None
    rare = [f"{classes[i]!s} ({int(weights[i])})" for i in np.flatnonzero(weights < LEAST_OF_CLASS).tolist()]
    share = float(weights[weights < LEAST_OF_CLASS].sum() / survey.n_used)
    text = f"classes with fewer than {LEAST_OF_CLASS} training rows: {listed(rare, NAMED)}"
    return remark("rare-class", text, share=share)


def _names(features: Sequence[int], names: Sequence[str] | None) -> list[str]:
    return [names[f] if names is not None and f < len(names) else str(f) for f in features]


def _distinct(X: FloatArray, y: NDArray[np.generic]) -> tuple[FloatArray, NDArray[np.generic]]:
    """Rows and targets without repeats: a copy of a row next to it predicts its target by any feature."""
    number = np.unique(y, return_inverse=True)[1].astype(ACC_DTYPE)
    first = np.unique(np.column_stack([np.nan_to_num(X, nan=np.inf), number]), axis=0, return_index=True)[1]
    first.sort()
    return X[first], y[first]


def _listed(
    features: Sequence[int], names: Sequence[str] | None, has: str = "has", have: str = "have"
) -> str:
    """Features as the subject of a sentence, with its verb."""
    shown = [repr(names[f]) if names is not None and f < len(names) else str(f) for f in features]
    subject = listed(shown, NAMED)
    return f"features {subject} {have}" if len(features) > 1 else f"feature {subject} {has}"


def _ascends(values: FloatArray) -> bool:
    """Whether integers ascend from row to row."""
    whole = len(values) >= FEWEST_ROWS and bool((values == np.rint(values)).all())
    return whole and bool((np.diff(values) > 0).all())


def _rises(values: FloatArray) -> bool:
    """Whether values rise over the rows, and never fall."""
    steps = np.diff(values)
    return len(values) >= FEWEST_ROWS and bool((steps >= 0).all() and (steps > 0).any())


def _predicts(values: FloatArray, y: NDArray[np.generic], n_classes: int) -> bool:
    """Whether rows with neighbouring values have nearly equal targets: half the mean square of differences
    between neighbours, by the variance of the target, is the share that the feature leaves unexplained. Of
    classes it counts neighbours of different classes, by those of random ones. Rows of one value are in
    random order; missing values come last.
    """
    shuffled = np.random.default_rng(0).permutation(len(values))
    order = shuffled[np.argsort(values[shuffled], kind="stable")]
    if n_classes:
        counts = np.unique(y, return_counts=True)[1]
        by_chance = (1 - ((counts / len(y)) ** 2).sum()) * (len(y) - 1)
        return bool(by_chance >= FEWEST_ROWS and (y[order][1:] != y[order][:-1]).sum() < LEAK * by_chance)
    ranks = np.argsort(np.argsort(y, kind="stable")).astype(ACC_DTYPE)
    variance = ranks.var()
    enough = len(y) >= FEWEST_ROWS and len(np.unique(y)) > 1
    return bool(enough and (np.diff(ranks[order]) ** 2).mean() / 2 < LEAK_OF_NUMBERS * variance)
