"""Which features are coded (model/coding.py): those that the setting `categorical` names, or with "auto"
those whose values look like codes, where factors learned with coded columns do better on held-out rows.

Loss on held-out rows without and with all candidates coded (learned factors, 80 % of the rows, 2026-11):
connect_4 0.531 and 0.450, kddcup99 0.0074 and 0.0050, elec2 (the day) 0.257 and 0.242, letter (16 amounts)
0.097 and 0.396. Data whose candidates are amounts do much worse with them coded even before anything is
learned, which takes a neighbour search and no more.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.coding import LARGEST_CODE, WIDEST_RANGE, Coding, coded_columns
from dcpred_tasks.model.scaling import LEARNED, fit_scaling
from dcpred_tasks.training.labelled_rows import distinct_rows
from dcpred_tasks.training.learned_scaling import (
    FEWEST_ROWS,
    PACES,
    Judged,
    held_out_rows,
    judge,
    learn,
)
from dcpred_tasks.training.settings import Settings

MOST_VALUES = 256  # different values of a feature that the setting names
LARGEST_FEATURE = 10**6  # number that a span may reach, so that naming features takes little memory
# With "auto": different values of a candidate, columns of rows with all of them coded, and rows to decide by.
FEWEST_AUTO, MOST_AUTO, MOST_COLUMNS, ROWS = 3, 64, 512, 20_000
RAREST = 10  # sampled rows of a value that has a column
# Candidates are coded where that leaves so much of the loss, surely by so many standard errors. Nothing is
# learned where it leaves more than the second before that.
WORTH_CODING, BEYOND_HOPE, SURE = 0.97, 1.5, 2.0


def numbered(settings: Settings, names: Sequence[str] | None) -> Settings:
    """Settings whose `categorical` names features by numbers. Raises SettingsError for a name that the data
    do not have.
    """
    if settings.categorical in ("auto", "none"):
        return settings
    places = {name: number for number, name in enumerate(() if names is None else names)}
    wanted: set[int] = set()
    for part in (part.strip() for part in settings.categorical.split(",")):
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if part in places:
            wanted.add(places[part])
        elif span:
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first or last > LARGEST_FEATURE:
                raise SettingsError(
                    f"categorical names the features {part}, but a span goes from a smaller number to a"
                    f" larger one, up to {LARGEST_FEATURE:,}; write it as 1-3, with numbers of features"
                )
            wanted.update(range(first, last + 1))
        else:
            raise SettingsError(
                f"categorical names the feature {part!r}, but the data"
                f" {'have no feature of that name' if places else 'do not name their features'}; write auto,"
                " none, or numbers of features such as 3,7 or 0-41"
            )
    return replace(settings, categorical=as_text(sorted(wanted)))


def as_text(features: Sequence[int]) -> str:
    """Ascending numbers of features as the setting takes them: 0-41 stands for all from 0 to 41."""
    breaks = np.flatnonzero(np.diff(features) != 1) + 1
    spans = np.split(np.array(features), breaks)
    return ",".join(f"{s[0]}" if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def choose_coding(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
    settings: Settings,
) -> Coding | None:
    """The coding that settings ask for, None where no feature is coded. The arguments are those of
    `learn_metric`. With "auto" and a scaling that does not look at targets no feature is.

    Raises SettingsError for a feature that cannot be coded.
    """
    if settings.categorical == "none":
        return None
    if settings.categorical != "auto":
        return _named(sample, settings)
    if settings.scaling not in LEARNED:
        return None
    codes = {f: own for f in range(sample.shape[1]) if len(own := _candidate(sample[:, f])) > 1}
    coding = coded_columns(sample.shape[1], codes)
    if coding is None or len(coding.source) > MOST_COLUMNS:
        return None
    rows = np.random.default_rng(settings.seed).permutation(len(sample))[:ROWS]
    some = sample[rows], target[rows], weight[rows], minimum, maximum
    return coding if _pays(coding, *some, settings.task, settings.seed) else None


def _named(sample: NDArray[np.generic], settings: Settings) -> Coding | None:
    features = [
        f
        for part in numbered(settings, None).categorical.split(",")
        for f in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    ]
    n_features = sample.shape[1]
    if features[-1] >= n_features:
        raise SettingsError(
            f"categorical names the feature {features[-1]}, but the data have features 0 to {n_features - 1};"
            " name some of these"
        )
    codes = {}
    for feature in features:
        values = np.unique(sample[:, feature])
        wrong = _not_codes(values)
        if wrong:
            raise SettingsError(
                f"categorical names the feature {feature}, but {wrong}; number its categories from 0 on, or"
                " leave it out"
            )
        if len(own := _with_columns(sample[:, feature])):
            codes[feature] = own
    return coded_columns(n_features, codes)


def _not_codes(values: NDArray[np.generic]) -> str:
    """Why these different values, ascending, are no codes; empty where they are."""
    fraction = values[values != np.rint(values)]
    if len(fraction):
        return f"it holds {fraction[0]:g}, which is no whole number"
    if len(values) > MOST_VALUES:
        return f"it has more than {MOST_VALUES} different values"
    low, high = float(values[0]), float(values[-1])
    if high - low >= WIDEST_RANGE or max(-low, high) > LARGEST_CODE:
        return f"its values reach from {low:.0f} to {high:.0f}, more than {WIDEST_RANGE - 1} apart"
    return ""


def _candidate(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """The values that would have a column, where a feature looks like codes; else none."""
    few = np.unique(column[: 64 * MOST_AUTO])
    if len(few) > MOST_AUTO or _not_codes(few):
        return few[:0]
    values = np.unique(column)
    wanted = FEWEST_AUTO <= len(values) <= MOST_AUTO and not _not_codes(values)
    return _with_columns(column) if wanted else values[:0]


def _with_columns(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """The values of a feature that have a column: all but the most frequent one and the rare ones."""
    values, counts = np.unique(column, return_counts=True)
    often = counts >= min(RAREST, counts.max())
    often[counts.argmax()] = False
    kept: NDArray[np.generic] = values[often]
    return kept


def _pays(
    coding: Coding,
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    minimum: FloatArray,
    maximum: FloatArray,
    task: str,
    seed: int,
) -> bool:
    """Whether held-out rows lose less with coded columns than without, both with learned factors."""
    starts: list[Judged] = []
    found: list[Judged] = []
    for kind in (None, coding):
        bases = [fit_scaling(name, sample, weight, minimum, maximum, kind) for name in ("standard", "minmax")]
        unit = bases[0](sample)
        if kind is None:
            rows, index = distinct_rows(unit, target, weight, task)
            if len(rows.y) < FEWEST_ROWS or np.ptp(rows.y) == 0:
                return False
            # The same rows are held out of both, as many as a search among the columns of codes allows.
            held, pool = held_out_rows(len(rows.y), len(coding.source) * len(rows.y), seed)
        rows = replace(rows, U=unit[index])
        some, others = rows.take(held), rows.take(pool)
        with np.errstate(over="ignore", invalid="ignore"):
            w = [(base.factor / bases[0].factor) ** 2 for base in bases]
        judged = [judge(v, some, others, task) for v in w if np.isfinite(v).all()]
        starts.append(min(judged, key=lambda one: one.loss))
        if starts[-1].loss > BEYOND_HOPE * starts[0].loss:
            return False
        found.append(judge(learn(others, starts[-1].w, task, *PACES[0], seed), some, others, task))
    plain, coded = found
    gain = plain.losses - coded.losses
    sure = gain.mean() > SURE * gain.std() / np.sqrt(len(gain))
    return bool(sure and coded.loss <= WORTH_CODING * plain.loss)
