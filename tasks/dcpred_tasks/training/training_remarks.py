"""Remarks on training rows: features that are ids, leaks or constants, rare classes, heavy rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import listed
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.schema.column import Date, Number
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
    numeric = [f for f in columns if f in dates or _is_numeric(schema, f)]
    ids = [f for f in numeric if f not in dates and (_ascends(rows[:, f]) or is_key(X[:, f], rows[:, f]))]
    rising_ids = {f for f in ids if _ascends(rows[:, f])}
    rising = [f for f in sorted(dates) if _rises(rows[:, f])]
    varied = set(columns) - set(constant) - set(ids)
    leaks = [f for f in sorted(varied) if n > 1 and _predicts(rows[:, f], y, len(survey.classes))]
    has, predicts = ("has", "have"), ("predicts", "predict")
    in_order, shuffled = ([f for f in ids if (f in rising_ids) == rises] for rises in (True, False))
    kinds = (
        ("constant-feature", constant, has, "the same value in every training row"),
        ("id-feature", in_order, has, "ascending integers, as ids have"),
        ("id-feature", shuffled, has, "another integer in each row, as ids have"),
        ("rising-dates", rising, has, "dates in the order of the rows, beyond which new rows always lie"),
        ("leak", leaks, predicts, "the target nearly perfectly alone and may be a leak"),
    )
    remarks = [
        remark(code, f"{_listed(features, names, *verbs)} {text}", columns=_names(features, names))
        for code, features, verbs, text in kinds
        if features
    ]
    varied_numbers = [f for f in numeric if f in varied]
    remarks += [apart for f in varied_numbers for apart in values_apart(X[few, f], f, names, schema)]
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


def _is_numeric(schema: Schema | None, feature: int) -> bool:
    """Whether a feature holds the numbers of its column."""
    if schema is None:
        return True
    return any(isinstance(c, Number) for c, span in schema.spans if span.start == feature)


DIFFERENT, BY_CHANCE = 50, 7.0  # rows of a key, and the exponent of their probability


def is_key(values: NDArray[np.generic], few: FloatArray) -> bool:
    """Whether integers are all different, as chance would not draw them from their range: n of a range R are
    with a probability of exp(−n² / 2R). `few` of them are checked first.
    """
    if len(few) < DIFFERENT or (few != np.rint(few)).any() or len(np.unique(few)) < len(few):
        return False
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    distinct = np.unique(known).astype(ACC_DTYPE)
    if len(distinct) < len(known) or (distinct != np.rint(distinct)).any():
        return False
    return bool(len(known) ** 2 > 2 * BY_CHANCE * (distinct[-1] - distinct[0] + 1))


COPIES, LEAST_SHARE, MOST_SHARE = 3, 5e-4, 0.25  # limits of a value that stands apart
SPIKE, FEWEST_VALUES = 20, 20
FAR, NEIGHBOURS = 5, 3  # interquartile ranges of the gap of a value that is not more frequent than these
LAST_DAY = 2_932_896  # 9999-12-31
NINES = tuple(10**n - 1 for n in range(3, 8))
CODES = (-1, *(1 - 10**n for n in range(1, 8)), *NINES, 1e20, 1e30, LAST_DAY)  # usual for a missing value


def values_apart(
    values: NDArray[np.generic], feature: int, names: Sequence[str] | None, schema: Schema | None
) -> list[Remark]:
    """Remarks on repeated values of a feature that stand apart."""
    known = values[~np.isnan(values)].astype(ACC_DTYPE)
    subject, columns, remarks = _listed([feature], names, "has", "have"), _names([feature], names), []
    for value in apart(known):
        share = float((known == value).mean())
        in_table = None if schema is None or abs(value) > LAST_DAY else schema.says(feature, round(value))
        text = f"{subject} the value {in_table or f'{value:.6g}'} in {100 * share:.3g} % of the rows"
        remarks.append(remark("value-apart", f"{text}, apart from all others", columns=columns, share=share))
    return remarks


def apart(values: FloatArray) -> list[float]:
    """Repeated values beyond a gap, at most one on each side, and usual codes that stand out. A smooth column
    has none; constant flags, few levels, capped values and amounts that are often 0 have no such gap.
    """
    if len(values) < DIFFERENT:
        return []
    distinct, rows = np.unique(values, return_counts=True)
    enough = (rows >= max(COPIES, LEAST_SHARE * len(values))) & (rows <= MOST_SHARE * len(values))
    outliers = []
    for at, step in ((0, 1), (-1, -1)):
        if len(distinct) < 5 or not enough[at]:
            continue
        ordered, copies = distinct[::step], rows[::step]
        gaps = np.abs(np.diff(ordered))
        low, high = np.quantile(values[values != ordered[0]], [0.25, 0.75])
        # The last of the round values in a tail is rarer than those before it.
        least = (high - low) * (1 if copies[0] > copies[1 : 1 + NEIGHBOURS].max() else FAR)
        if high > low and gaps[0] >= least and gaps[0] > 3 * np.median(gaps[1:]):
            outliers.append(float(ordered[0]))
    for code in CODES:
        at = int(np.searchsorted(distinct, code))
        if code in outliers or at >= len(distinct) or distinct[at] != code or not enough[at]:
            continue
        alone = code < 0 and at == 0 and len(distinct) > 5 and distinct[1] >= 0
        others = np.delete(rows, at)
        if alone or (len(others) >= FEWEST_VALUES and rows[at] >= SPIKE * np.quantile(others, 0.95)):
            outliers.append(float(code))
    return outliers


UNLIKELY, OUTSIDE = 1e-6, 0.9  # probability of a missing class; fraction of targets beyond earlier ones


def lacking_class(
    target: NDArray[np.generic], held: NDArray[np.bool_], classes: Sequence[object]
) -> Remark | None:
    """A remark where rows that are held out in their order lack classes that chance would give them, or of a
    regression lie beyond the targets of the other rows: the table is sorted by its target.

    target  (n,), class numbers or values
    held    (n,), whether a row is held out
    """
    n = int(held.sum())
    if not 0 < n < len(held):
        return None
    if not len(classes):
        rest = target[~held]
        beyond = float(((target[held] > rest.max()) | (target[held] < rest.min())).mean())
        if n < FEWEST_ROWS or beyond < OUTSIDE:
            return None
        what = f"{100 * beyond:.3g} % of the held-out rows have targets beyond those of the other rows"
        return remark("sorted-by-target", f"{what}; the table seems sorted by its target", share=beyond)
    every, there = (
        np.bincount(part.astype(np.int64), minlength=len(classes)) for part in (target, target[held])
    )
    lacking = (there == 0) & (n * np.log1p(-np.minimum(every / len(target), 1 - 1e-12)) < np.log(UNLIKELY))
    if not lacking.any():
        return None
    present = [str(classes[i]) for i in np.flatnonzero(there).tolist()]
    what = f"held-out rows are all of class {listed(present, NAMED)}; the table seems sorted by its target"
    return remark("sorted-by-target", what, share=n / len(held))


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
