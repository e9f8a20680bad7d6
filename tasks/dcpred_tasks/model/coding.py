"""Coded features: a feature whose values are names, not amounts, becomes a column for each of its values.

A column is 1 where the raw value is its code, and 0 elsewhere. The most frequent value has no column: rows
that have it are 0 in all columns of the feature. The same holds for rare values, and for those that no
training row has. A column for every value would tell nothing more to a kernel of learned factors: connect_4
(42 features of 3 values) loses 0.449 on held-out rows with 126 columns and 0.450 with 84, of which half as
many are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray, IntArray

LARGEST_CODE = 2**24  # Single precision holds every whole number up to it.
# From the least code of a feature to the largest: the engine looks codes up in a table.
WIDEST_RANGE = 2**16


@dataclass(frozen=True)
class Coding:
    """Which columns raw features become: in the order of features, each has one column or more.

    source  int64 (n_columns,), the raw feature of each column, ascending
    code    float64 (n_columns,), the value at which a column is 1, ascending within a feature; NaN for a
            column that is the feature itself

    Raises ValueError where they are not so.
    """

    source: IntArray
    code: FloatArray

    def __post_init__(self) -> None:
        if not self._sound():
            raise ValueError("columns are not those of features in their order, with ascending codes")

    def _sound(self) -> bool:
        if self.source.ndim != 1 or self.source.shape != self.code.shape or not len(self.source):
            return False
        steps, codes = np.diff(self.source), self.code[~np.isnan(self.code)]
        if self.source[0] != 0 or not np.isin(steps, (0, 1)).all():
            return False
        if not (np.abs(codes) <= LARGEST_CODE).all() or (codes != np.rint(codes)).any():
            return False
        if not (np.diff(self.code)[steps == 0] > 0).all():
            return False
        return bool((self.highest - self.lowest < WIDEST_RANGE)[self.is_coded].all())

    @cached_property
    def first(self) -> IntArray:
        """int64 (n_features,), the first column of each feature."""
        return np.flatnonzero(np.diff(self.source, prepend=-1))

    @cached_property
    def lowest(self) -> FloatArray:
        """float64 (n_features,), the least code of each feature; NaN for one that is not coded."""
        return self.code[self.first]

    @cached_property
    def highest(self) -> FloatArray:
        """float64 (n_features,), the largest code."""
        largest: FloatArray = self.code[np.append(self.first[1:], len(self.code)) - 1]
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
        """The numbers of the coded features."""
        return [int(feature) for feature in np.flatnonzero(self.is_coded)]

    def columns(self, feature: int) -> IntArray:
        """The numbers of the columns of a feature."""
        return np.flatnonzero(self.source == feature)

    def codes(self, feature: int) -> list[int]:
        """The values of a coded feature that have a column."""
        return [int(code) for code in self.code[self.columns(feature)]]

    def __call__(self, X: NDArray[np.generic]) -> FloatArray:
        """Raw rows (n, n_features) as columns, float64 (n, n_columns), C order. A value that is not finite
        is NaN in every column of its feature.
        """
        out = np.ascontiguousarray(np.asarray(X, ACC_DTYPE)[:, self.source])
        own = np.flatnonzero(~np.isnan(self.code))
        raw = out[:, own]
        out[:, own] = np.where(np.isfinite(raw), raw == self.code[own], np.nan)
        return out

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {"source": self.source, "code": self.code}

    def limits(self, minimum: FloatArray, maximum: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Limits of columns from those of raw features."""
        number = np.isnan(self.code)
        return np.where(number, minimum[self.source], 0.0), np.where(number, maximum[self.source], 1.0)


def coded_columns(n_features: int, codes: Mapping[int, NDArray[np.generic]]) -> Coding | None:
    """The coding with a column for each of these values of each of these features; None for no feature."""
    if not codes:
        return None
    number = np.array([np.nan])
    columns = [np.sort(codes[f]).astype(ACC_DTYPE) if f in codes else number for f in range(n_features)]
    source = np.repeat(np.arange(n_features, dtype=INDEX_DTYPE), [len(own) for own in columns])
    return Coding(source, np.concatenate(columns))
