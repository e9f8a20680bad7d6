"""Target encoding: categories become means of the target, before all other steps.

**A data set stores positions.** A column with many categories is stored as the position of each row's
category among those of the schema, with one position for all others, and a last one for missing values.
Training learns the means (training/categories.py) from training rows only: no row that evaluates a model
takes part.

**A model stores the fitted means** as a table, which NumPy looks up first when rows are scored. The first
mean of a feature replaces its position: features keep their numbers. With three classes or more each has a
mean; those of the second class and so on are appended to the row. All later steps (one-hot encoding, missing
values, logarithmic scales, engines) see encoded rows, as if they had been stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.leaf_arrays import Line, held_arrays

PREFIX = "target_"  # begins the names of its arrays
FEWEST_POSITIONS = 2  # positions without a known category: all others, and a missing value
MOST_POSITIONS = 2**16 + 2


@dataclass(frozen=True)
class TargetEncoding:
    """The target-encoded features of stored rows, and their means.

    n_features  features of a stored row
    feature     int64 (n_encoded,), the target-encoded ones, ascending
    at          int64 (n_encoded + 1,), the offsets of the positions of each in `table`
    table       float64 (n_positions, n_means), the means of every position: a number, or one for each class

    Raises ValueError for inconsistent arrays.
    """

    n_features: int
    feature: Annotated[IntArray, Line(INDEX_DTYPE, ("target_feature",), since=7)]
    at: Annotated[IntArray, Line(INDEX_DTYPE, ("target_edge",), since=7)]
    table: Annotated[FloatArray, Line(ACC_DTYPE, ("position", "mean"), since=7)]

    def __post_init__(self) -> None:
        feature, at, table = self.feature, self.at, self.table
        if feature.ndim != 1 or not len(feature) or at.shape != (len(feature) + 1,) or table.ndim != 2:
            raise ValueError("arrays of the target encoding have other shapes than its features")
        if feature[0] < 0 or feature[-1] >= self.n_features or (feature[1:] <= feature[:-1]).any():
            raise ValueError("the target encoding names a feature that a row does not have, or one twice")
        size = np.diff(at)
        if at[0] != 0 or at[-1] != len(table) or not table.shape[1]:
            raise ValueError("the target encoding does not hold a mean for every position")
        if (size < FEWEST_POSITIONS).any() or (size > MOST_POSITIONS).any():
            raise ValueError(f"a feature has not {FEWEST_POSITIONS} to {MOST_POSITIONS:,} positions")
        if not np.isfinite(table).all():
            raise ValueError("the target encoding holds a mean that is not finite")

    @property
    def n_means(self) -> int:
        """Means of a position."""
        return int(self.table.shape[1])

    @property
    def n_columns(self) -> int:
        """Features of an encoded row."""
        return self.n_features + len(self.feature) * (self.n_means - 1)

    @cached_property
    def source(self) -> IntArray:
        """int64 (n_columns,), the stored feature of each encoded one."""
        return np.append(np.arange(self.n_features), np.repeat(self.feature, self.n_means - 1))

    @cached_property
    def is_single(self) -> bool:
        """Whether single precision holds every mean."""
        with np.errstate(over="ignore"):
            return bool((self.table == self.table.astype(MODEL_DTYPE)).all())

    def columns(self, number: int) -> IntArray:
        """The encoded features of the feature of this number in `feature`."""
        more = self.n_means - 1
        return np.append(self.feature[number], self.n_features + number * more + np.arange(more))

    def places(self, number: int, codes: NDArray[np.generic]) -> IntArray:
        """The rows of `table` for categories (n,) of a feature; an invalid number is an unknown category."""
        first, size = int(self.at[number]), int(self.at[number + 1] - self.at[number])
        with np.errstate(invalid="ignore"):
            place = codes.astype(INDEX_DTYPE)
        unknown = place != codes
        unknown |= place.view(np.uint64) >= size  # A negative number is a large one.
        if unknown.any():
            place[unknown] = size - FEWEST_POSITIONS
        place += first
        return place

    def __call__(self, X: NDArray[np.generic]) -> FloatArray | SingleArray:
        """Encode stored rows (n, n_features), as (n, n_columns). Non-finite categories do not change."""
        return self.encoded(X, self.table)

    def dtype_for(self, dtype: np.dtype[Any]) -> type[np.floating]:
        """The precision of encoded rows: single where that holds all values of this dtype, and all means."""
        return MODEL_DTYPE if self.is_single and np.can_cast(dtype, MODEL_DTYPE) else ACC_DTYPE

    def encoded(
        self,
        X: NDArray[np.generic],
        table: FloatArray,
        first: IntArray | int = 0,
        out: NDArray[Any] | None = None,
    ) -> FloatArray | SingleArray:
        """Encode by another table, where the positions of rows begin at `first`; into `out` if passed."""
        if out is None:
            out = np.empty((len(X), self.n_columns), self.dtype_for(X.dtype))
        with np.errstate(over="ignore"):  # A long double may overflow; its row then gets a status.
            out[:, : self.n_features] = X
        for number, feature in enumerate(self.feature):
            codes = out[:, feature].copy()
            place = self.places(number, codes)
            place += first
            lost = np.flatnonzero(~np.isfinite(codes))
            for column, means in zip(self.columns(number), table.T, strict=True):
                out[:, column] = means[place]
                if len(lost):
                    out[lost, column] = codes[lost]
        return out

    def raw(self, rows: FloatArray) -> FloatArray:
        """Stored rows from encoded ones (n, n_columns): the categories with the nearest means."""
        out = np.array(rows[:, : self.n_features], ACC_DTYPE)
        for number, feature in enumerate(self.feature):
            table = self.table[self.at[number] : self.at[number + 1]]
            for row, means in zip(out, rows[:, self.columns(number)], strict=True):
                if np.isfinite(means).all():
                    row[feature] = np.abs(table - means).sum(axis=1).argmin()
        return out

    def first_means(self) -> "TargetEncoding":
        """The encoding with only the first mean of each position: rows keep their length."""
        return replace(self, table=self.table[:, :1])

    def names(self, names: Sequence[str] | None) -> list[str] | None:
        """Names of encoded features, where stored ones have names."""
        if names is None:
            return None
        more = range(1, self.n_means)
        return [*names, *(f"{names[f]}, mean {k + 1} of {self.n_means}" for f in self.feature for k in more)]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Its arrays by name; `encoding_of` takes them."""
        return held_arrays(self, PREFIX)


def encoding_of(arrays: Mapping[str, Any], n_columns: int) -> TargetEncoding | None:
    """The encoding from `arrays`, among other things, of rows with so many encoded features; None where it is
    absent. Raises ValueError for a damaged one.
    """
    if f"{PREFIX}table" not in arrays:
        return None
    feature, at = (np.asarray(arrays[f"{PREFIX}{name}"], INDEX_DTYPE) for name in ("feature", "at"))
    table = np.asarray(arrays[f"{PREFIX}table"], ACC_DTYPE)
    more = max(table.shape[1] - 1, 0) if table.ndim == 2 else 0
    return TargetEncoding(n_columns - len(feature) * more, feature, at, table)
