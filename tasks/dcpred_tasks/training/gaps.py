"""What gaps become: the raw value that stands for them in each feature, and which features get an indicator.
With codes and logarithmic scales these are the columns that raw features become (model/coding.py).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.coding import Coding, coded_columns
from dcpred_tasks.model.scaling import column_sums, row_strips
from dcpred_tasks.training.categories import choose_codes, most_frequent
from dcpred_tasks.training.feature_list import as_text, numbers
from dcpred_tasks.training.gap_choice import worth_indicating
from dcpred_tasks.training.settings import AUTO, NONE, Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.symlog_choice import named_on_log_scale


def choose_columns(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> Coding | None:
    """The columns that settings ask for; None for the features as they are, where NaN is a bad value. Of
    logarithmic scales those that are named (learned_columns.py finds others).

    sample  (n, n_features), raw rows in the order of their numbers
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights
    survey  of all rows

    Raises SettingsError for a feature that cannot be coded, or on a logarithmic scale.
    """
    coding = _coded_or_with_gaps(sample, target, weight, survey, settings)
    return named_on_log_scale(coding, sample, settings)


def _coded_or_with_gaps(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> Coding | None:
    if not knows_gaps(survey, settings):
        codes = choose_codes(sample, target, weight, settings, means=survey.means)
        return coded_columns(sample.shape[1], codes)
    gap = middle_values(sample, weight, survey)
    codes = choose_codes(sample, target, weight, settings, gap, survey.means)
    for f in codes:
        gap[f] = most_frequent(sample[:, f])
    coding = coded_columns(sample.shape[1], codes, gap)
    assert coding is not None
    some = (survey.gaps > 0) & (survey.gaps < survey.n_used)
    if settings.missing == "auto":
        candidates = np.flatnonzero(some)
        indicated = worth_indicating(sample, target, weight, coding, candidates, settings.task, settings.seed)
    elif settings.missing in ("impute", "indicate"):
        indicated = np.flatnonzero(some & (settings.missing == "indicate")).tolist()
    else:
        indicated = [f for f in numbers(settings.missing) if some[f]]
    return coded_columns(sample.shape[1], codes, gap, indicated)


def as_chosen(settings: Settings, coding: Coding | None, n_features: int) -> Settings:
    """Settings that ask for the coded features, the indicators and the logarithmic scales of this coding, and
    for no others: what was found at a cost would cost more with them. None is of features as they are.

    n_features  of a stored row: settings name no others
    """
    codes, scale = ([], None) if coding is None else (coding.features, coding.symlog)
    if scale is not None or settings.symlog == AUTO:
        settings = replace(settings, symlog=_listed(scale.features if scale else [], n_features, NONE))
    if codes or settings.categorical == AUTO:
        settings = replace(settings, categorical=as_text(codes) if codes else NONE)
    if coding is not None and coding.gap is not None:
        missing = _listed(coding.indicated.tolist(), n_features, "impute")
        settings = replace(settings, missing=missing)
    return settings


def _listed(features: list[int], n_features: int, none: str) -> str:
    own = [f for f in features if f < n_features]
    return as_text(own) if own else none


def knows_gaps(survey: Survey, settings: Settings) -> bool:
    """Whether a model of these rows takes NaN for a value."""
    if settings.missing == "auto":
        return bool(survey.gaps.any())
    return settings.missing != "refuse"


def middle_values(sample: NDArray[np.generic], weight: FloatArray, survey: Survey) -> FloatArray:
    """The weighted mean of each feature over sampled rows without a gap in it, float64 (n_features,); the
    middle of all its values where the sample has none, and 0 where there are none at all.
    """
    rows = np.ascontiguousarray(sample)  # The order in memory decides how sums are rounded.
    low, high = survey.minimum / 2, survey.maximum / 2  # No difference of halves overflows.
    strips = row_strips(*rows.shape)

    def there(strip: slice) -> NDArray[np.bool_]:
        return ~np.isnan(rows[strip]) if rows.dtype.kind == "f" else np.ones(rows[strip].shape, bool)

    def moved(strip: slice) -> FloatArray:
        """A constant feature stays one: differences from its least value are exactly 0."""
        from_least = rows[strip].astype(ACC_DTYPE) / 2 - low
        return np.where(there(strip), weight[strip, None] * from_least, 0.0)

    total = column_sums(weight[strip, None] * there(strip) for strip in strips)
    sums = column_sums(moved(strip) for strip in strips)
    mean = np.where(total > 0, low + sums / np.where(total > 0, total, 1.0), (low + high) / 2)
    return np.where(np.isnan(mean), 0.0, np.clip(2 * mean, survey.minimum, survey.maximum))
