"""How raw features become columns: one-hot encoding, missing values, and heavy-tailed features.

**One-hot encoding.** A feature whose values are names, not amounts, becomes a column for each of its values.
A column is 1 where the raw value is its category, and 0 elsewhere. The most frequent value has no column: its
rows are 0 in all columns of the feature. The same holds for rare values, and for those that no training row
has. A kernel with learned factors gains nothing from a column for every value (DECISIONS.md).

**Missing values.** In a model with missing values one raw value of each feature replaces NaN, and a feature
may have a missing indicator, a column that is 1 where it is missing. Indicators come after all other columns:
features without one-hot encoding stay in the order of a raw row.

**Heavy-tailed features** may be mapped (model/feature_map.py): their column holds the result. This comes
first: all else concerns the results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.model.feature_map import FeatureMap
from dcpred_tasks.model.leaf_arrays import Line

LARGEST_CODE = 2**24  # Single precision holds every integer up to it.
# From the least category of a feature to the largest: the engine has a lookup table. And entries of the
# tables of all features: two codes in a file may be the ends of a range. A search chooses fewer than that.
WIDEST_RANGE, LARGEST_TABLE = 2**16, 2**24


@dataclass(frozen=True)
class Coding:
    """The columns of raw features: in the order of features, each has one column or more; then the missing
    indicators, in the order of their features.

    source  int64 (n_columns,), the raw feature of each column, ascending in either part
    code    float64 (n_columns,), the value at which a column is 1, ascending within a feature; NaN for a
            column that is the feature itself, infinity for a missing indicator
    gap     float64 (n_features,), the raw value that replaces a missing one, not a category with a column;
            None where NaN is a bad value, and without missing indicators
    map     the map of features that are not one-hot encoded; None without mapped features

    Raises ValueError for inconsistent arrays.
    """

    source: Annotated[IntArray, Line(INDEX_DTYPE, ("column",), since=3)]
    code: Annotated[FloatArray, Line(ACC_DTYPE, ("column",), since=3)]
    gap: Annotated[FloatArray | None, Line(ACC_DTYPE, ("feature",), since=5)] = None
    map: FeatureMap | None = None

    def __post_init__(self) -> None:
        if not self._sound():
            raise ValueError("columns are not those of features in their order, with ascending codes")
        if not self._sound_gaps():
            raise ValueError("indicators or values of gaps are not those of its features")
        rate = np.zeros(self.n_features) if self.map is None else self.map.rate
        if len(rate) != self.n_features or rate[self.is_coded].any():
            raise ValueError("features with a map are not its own, or are coded")

    def _sound(self) -> bool:
        if self.source.ndim != 1 or self.source.shape != self.code.shape or not len(self.source):
            return False
        source, code = self.source[: self.n_own], self.code[: self.n_own]
        steps, codes = np.diff(source), code[~np.isnan(code)]
        if not len(source) or source[0] != 0 or not np.isin(steps, (0, 1)).all():
            return False
        if not (np.abs(codes) <= LARGEST_CODE).all() or (codes != np.rint(codes)).any():
            return False
        if not (np.diff(code)[steps == 0] > 0).all():
            return False
        reach = (self.highest - self.lowest)[self.is_coded]
        return bool((reach < WIDEST_RANGE).all()) and reach.sum() <= LARGEST_TABLE

    def _sound_gaps(self) -> bool:
        tail = self.indicated
        if (self.code[self.n_own :] != np.inf).any() or not (np.diff(tail, prepend=-1) > 0).all():
            return False
        if self.gap is None:
            return not len(tail)
        if (tail >= self.n_features).any() or self.gap.shape != (self.n_features,):
            return False
        return bool(np.isfinite(self.gap).all()) and not (self.gap[self.source] == self.code).any()

    @cached_property
    def n_own(self) -> int:
        """Columns before the missing indicators."""
        return int((self.code != np.inf).argmin()) if (self.code == np.inf).any() else len(self.code)

    @property
    def indicated(self) -> IntArray:
        """int64 (n_indicators,), the features with a missing indicator."""
        return self.source[self.n_own :]

    @cached_property
    def first(self) -> IntArray:
        """int64 (n_features,), the first column of each feature."""
        return np.flatnonzero(np.diff(self.source[: self.n_own], prepend=-1))

    @cached_property
    def lowest(self) -> FloatArray:
        """float64 (n_features,), the least category of each feature; NaN for one that is not encoded."""
        return self.code[self.first]

    @cached_property
    def highest(self) -> FloatArray:
        """float64 (n_features,), the largest category."""
        largest: FloatArray = self.code[np.append(self.first[1:], self.n_own) - 1]
        return largest

    @cached_property
    def is_coded(self) -> NDArray[np.bool_]:
        """bool (n_features,)."""
        return ~np.isnan(self.lowest)

    @property
    def n_features(self) -> int:
        return len(self.first)

    @property
    def features(self) -> list[int]:
        """The numbers of the one-hot encoded features."""
        return [int(feature) for feature in np.flatnonzero(self.is_coded)]

    def columns(self, feature: int) -> IntArray:
        """The numbers of the columns of a feature, without its missing indicator."""
        last = self.first[feature + 1] if feature + 1 < self.n_features else self.n_own
        return np.arange(self.first[feature], last)

    def codes(self, feature: int) -> list[int]:
        """The values of a one-hot encoded feature that have a column."""
        return [int(code) for code in self.code[self.columns(feature)]]

    def rest(self, feature: int) -> float:
        """A value of a one-hot encoded feature without a column: that of gaps, or the number that codes leave
        out, between them, below or above.
        """
        if self.gap is not None:
            return float(self.gap[feature])
        codes = self.codes(feature)
        between = (np.flatnonzero(np.diff(codes) > 1)).tolist()
        if between:
            return codes[between[0]] + 1.0
        return codes[0] - 1.0 if codes[0] > 0 else codes[-1] + 1.0

    def __call__(self, X: NDArray[np.generic]) -> FloatArray:
        """Raw rows (n, n_features) as columns, float64 (n, n_columns), C order. A value that is infinite, or
        NaN where NaN is a bad value, is NaN in every column of its feature.
        """
        rows = np.array(X, ACC_DTYPE, order="C")
        of_gaps = np.isnan(rows[:, self.indicated])
        if self.gap is not None:
            np.copyto(rows, self.gap, where=np.isnan(rows))
        if self.map is not None:
            rows = self.map(rows)
        if len(self.source) == self.n_features and not self.is_coded.any():
            return rows
        out = np.ascontiguousarray(rows[:, self.source])
        coded = np.flatnonzero(np.isfinite(self.code))
        raw, tail = out[:, coded], out[:, self.n_own :]
        out[:, coded] = np.where(np.isfinite(raw), raw == self.code[coded], np.nan)
        tail[...] = np.where(np.isfinite(tail), of_gaps, np.nan)
        return out

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by name, without `gap` and those of `map` if absent."""
        arrays: dict[str, NDArray[np.generic]] = {"source": self.source, "code": self.code}
        arrays |= {} if self.gap is None else {"gap": self.gap}
        return arrays if self.map is None else arrays | self.map.arrays()

    def raw(self, columns: FloatArray) -> FloatArray:
        """Raw rows of columns (n, n_columns), float64 (n, n_features): of a one-hot encoded feature the
        category whose column is largest, or one without a column (`rest`) where all are nearer to 0 than to
        1, and a missing value where a missing indicator is nearer to 1.
        """
        rows = columns[:, self.first]
        if self.map is not None:
            rows = self.map.raw(rows)
        for feature in self.features:
            span = self.columns(feature)
            largest = self.code[span][columns[:, span].argmax(axis=1)]
            rows[:, feature] = np.where(columns[:, span].max(axis=1) > 0.5, largest, self.rest(feature))
        of, tail = self.indicated, columns[:, self.n_own :]
        rows[:, of] = np.where(tail > 0.5, np.nan, rows[:, of])
        return rows

    def limits(self, minimum: FloatArray, maximum: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Limits of columns from those of raw features, which are NaN for a feature without values."""
        number, absent = np.isnan(self.code), np.zeros(self.n_features) if self.gap is None else self.gap
        low, high = (np.where(np.isnan(limit), absent, limit) for limit in (minimum, maximum))
        if self.map is not None:
            low, high = self.map.limits(low, high)
        return np.where(number, low[self.source], 0.0), np.where(number, high[self.source], 1.0)


def coded_columns(
    n_features: int,
    codes: Mapping[int, NDArray[np.generic]],
    gap: FloatArray | None = None,
    indicated: Sequence[int] = (),
    feature_map: FeatureMap | None = None,
) -> Coding | None:
    """The one-hot encoding with a column for each of these values of each of these features, in which `gap`
    replaces missing values, and these features have missing indicators; None where columns are the features.
    """
    if not codes and gap is None and feature_map is None:
        return None
    number = np.array([np.nan])
    columns = [np.sort(codes[f]).astype(ACC_DTYPE) if f in codes else number for f in range(n_features)]
    source = np.repeat(np.arange(n_features, dtype=INDEX_DTYPE), list(map(len, columns)))
    tail = np.sort(np.array(indicated, INDEX_DTYPE))
    code = np.concatenate([*columns, np.full(len(tail), np.inf)])
    return Coding(np.append(source, tail), code, gap, map=feature_map)
