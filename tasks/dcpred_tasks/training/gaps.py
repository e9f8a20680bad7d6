"""Missing values: the raw value that replaces them in each feature, and which features get a missing
indicator. With one-hot encoding and maps these are the columns of raw features (model/coding.py).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model.coding import Coding, coded_columns
from dcpred_tasks.model.scaling import column_sums, row_strips
from dcpred_tasks.training.categories import choose_codes, most_frequent
from dcpred_tasks.training.feature_list import numbers
from dcpred_tasks.training.feature_maps import with_map
from dcpred_tasks.training.settings import AUTO, INDICATE, NONE, Settings
from dcpred_tasks.training.survey import Survey


def choose_columns(
    sample: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Coding | None:
    """The columns of the settings; None where columns are the features, and NaN is a bad value.

    sample  (n, n_features), raw rows in the order of their numbers
    weight  float64 (n,), > 0, sample weights
    survey  of all rows

    Raises SettingsError for a feature that cannot be one-hot encoded.
    """
    codes = choose_codes(sample, settings)
    coding = coded_columns(sample.shape[1], codes, *_missing_values(codes, sample, weight, survey, settings))
    if settings.feature_map == NONE:
        return coding
    return with_map(coding, sample, survey, settings.feature_map)


def _missing_values(
    codes: Iterable[int],
    sample: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
) -> tuple[FloatArray | None, list[int]]:
    """The raw value that replaces a missing one in each feature, None where NaN is a bad value, and the
    features with a missing indicator.

    codes  the one-hot encoded features
    """
    if not knows_gaps(survey, settings):
        return None, []
    value = middle_values(sample, weight, survey)
    for f in codes:
        value[f] = most_frequent(sample[:, f])
    some = (survey.gaps > 0) & (survey.gaps < survey.n_used)
    if settings.missing in (AUTO, INDICATE):
        return value, np.flatnonzero(some).tolist()
    return value, [f for f in numbers(settings.missing) if some[f]]


def knows_gaps(survey: Survey, settings: Settings) -> bool:
    """Whether a model of these rows takes NaN for a value."""
    if settings.missing == AUTO:
        return bool(survey.gaps.any())
    return settings.missing != "refuse"


def middle_values(sample: NDArray[np.generic], weight: FloatArray, survey: Survey) -> FloatArray:
    """The weighted mean of each feature over sampled rows that have it, float64 (n_features,); the middle of
    all its values where the sample has none, and 0 without any.
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
