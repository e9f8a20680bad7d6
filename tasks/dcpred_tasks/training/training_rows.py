"""Statistics of training rows for comparisons with scored rows, and remarks on training rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.bins import SAMPLE, fit_bins
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.process import one_thread
from dcpred_tasks.schema.column import Codes, Date, TargetCodes
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.training.sampling import thinned
from dcpred_tasks.training.survey import Survey

SCORED = 2**11  # rows whose scores are binned
REMARK_ROWS = 2**12  # rows that remarks are found in
FEWEST_ROWS, LEAST_OF_CLASS, NAMED = 20, 10, 5
LEAK, LEAK_OF_NUMBERS = 0.06, 0.005  # shares that a feature leaves unexplained


def with_bins(
    model: Model, X: NDArray[np.generic], number: IntArray, survey: Survey, schema: Schema | None, seed: int
) -> Model:
    """The model with the bins of its features and scores.

    X, number  sampled raw rows, and the numbers of these rows
    """
    columns = () if schema is None else schema.spans
    codes = {span.start: c.gap + 1 for c, span in columns if isinstance(c, Codes | TargetCodes)}
    with one_thread():
        decision, _ = score_rows(model, X[thinned(number, SCORED, seed)])
    n = model.n_features
    rows = X[thinned(number, SAMPLE, seed)]
    return replace(model, bins=fit_bins(rows, survey.minimum[:n], survey.maximum[:n], decision, codes))


def remarks(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    number: IntArray,
    survey: Survey,
    names: Sequence[str] | None,
    schema: Schema | None,
    classes: Sequence[object],
) -> list[str]:
    """Remarks on training rows, a sentence for each kind of finding.

    X, target, number  sampled raw rows in their order, their targets, and their numbers
    names, classes     of the features and of the classes; classes are empty for a regression
    """
    n = X.shape[1]
    columns = range(n) if schema is None else [span.start for _, span in schema.spans]  # no part of a date
    dates = set() if schema is None else {span.start for c, span in schema.spans if isinstance(c, Date)}
    few = thinned(number, REMARK_ROWS, 0)
    rows, y = X[few].astype(ACC_DTYPE), target[few]
    constant = [f for f in columns if survey.minimum[f] == survey.maximum[f] and not survey.gaps[f]]
    ids = [f for f in columns if f not in dates and _ascends(rows[:, f])]
    varied = set(columns) - set(constant) - set(ids)
    leaks = [f for f in sorted(varied) if n > 1 and _predicts(rows[:, f], y, len(survey.classes))]
    sentences = [
        f"{_listed(found, names)} {words}"
        for found, words in (
            (constant, "the same value in every training row; leave it out"),
            (ids, "ascending whole numbers, as ids have; leave it out, or keep it with --id"),
        )
        if found
    ]
    if leaks:
        sentences.append(
            f"{_listed(leaks, names, 'predicts', 'predict')} the target nearly perfectly alone and may be a"
            " leak; leave it out unless it is known when rows are scored"
        )
    weights = survey.class_weights
    if len(weights) and weights.sum() == survey.n_used and (weights < LEAST_OF_CLASS).any():
        rare = [
            f"{classes[i]!s} ({int(weights[i])})" for i in np.flatnonzero(weights < LEAST_OF_CLASS).tolist()
        ]
        more = f" and {len(rare) - NAMED:,} more" if len(rare) > NAMED else ""
        sentences.append(
            f"classes with fewer than {LEAST_OF_CLASS} training rows: {', '.join(rare[:NAMED])}{more};"
            " collect more, or join classes"
        )
    return sentences


def _listed(found: Sequence[int], names: Sequence[str] | None, one: str = "has", many: str = "have") -> str:
    """Features as the subject of a sentence, with its verb."""
    shown = [repr(names[f]) if names is not None and f < len(names) else str(f) for f in found[:NAMED]]
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return (
        f"feature{'s' if len(found) > 1 else ''} {', '.join(shown)}{more} {many if len(found) > 1 else one}"
    )


def _ascends(values: FloatArray) -> bool:
    """Whether integers ascend from row to row."""
    whole = len(values) >= FEWEST_ROWS and bool((values == np.rint(values)).all())
    return whole and bool((np.diff(values) > 0).all())


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
