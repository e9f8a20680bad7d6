"""Rows of a data set that are not finite, counted during the write.

NaN is a missing value, which a model may accept. Training refuses rows with infinity, and scoring gives them
status 2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LISTED = 20  # maximum number of rows, and of features, to name


@dataclass(frozen=True)
class NotFiniteFeature:
    """A feature with NaN or infinity in `n_rows` rows."""

    feature: int
    name: str | None
    n_rows: int


@dataclass(frozen=True)
class NotFinite:
    """Rows of X with NaN or infinity, the features where they are, and infinite values of y, where NaN is
    refused.

    Rows and features are counted from 0. Names the first LISTED rows, and the LISTED features with the
    most of these rows, the most first.
    """

    n_rows: int
    rows: list[int]
    n_features: int
    features: list[NotFiniteFeature]
    n_targets: int
    target_rows: list[int]


class NotFiniteSurvey:
    """Counts rows that are not finite, chunk by chunk. Integers cost nothing, and finite chunks one pass."""

    def __init__(self, n_features: int, names: tuple[str, ...] | None) -> None:
        self.names = names
        self.by_feature = np.zeros(n_features, np.int64)
        self.n_rows = self.n_targets = 0
        self.rows: list[int] = []
        self.target_rows: list[int] = []

    def add(self, first_row: int, X: NDArray[Any], y: NDArray[Any] | None) -> None:
        """Count the rows of a chunk; X and y are not modified.

        X  (n_rows, n_features), its first row being row `first_row` of the data
        y  (n_rows,)
        """
        if X.dtype.kind == "f" and not (finite := np.isfinite(X)).all():
            self.by_feature += len(X) - finite.sum(axis=0)
            self.n_rows += _note(~finite.all(axis=1), first_row, self.rows)
        if y is not None and y.dtype.kind == "f":
            self.n_targets += _note(~np.isfinite(y), first_row, self.target_rows)

    def found(self) -> NotFinite:
        n_features = int(np.count_nonzero(self.by_feature))
        features = [
            NotFiniteFeature(int(j), None if self.names is None else self.names[j], int(self.by_feature[j]))
            for j in np.argsort(-self.by_feature, kind="stable")[: min(n_features, LISTED)]
        ]
        return NotFinite(self.n_rows, self.rows, n_features, features, self.n_targets, self.target_rows)


def _note(bad: NDArray[np.bool_], first_row: int, rows: list[int]) -> int:
    """The number of bad rows; the first of them are added to `rows`, up to LISTED."""
    found = np.flatnonzero(bad)
    rows += (found[: LISTED - len(rows)] + first_row).tolist()
    return len(found)
