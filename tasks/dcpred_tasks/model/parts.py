"""The parts that decision values are divided into, and the background rows: names of parts, and the rows that
a model stores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dcpred_tasks.dtypes import INDEX_DTYPE, MODEL_DTYPE, IntArray, SingleArray
from dcpred_tasks.model.leaf_arrays import Line

KEPT_ROWS = 256  # most stored training rows of a leaf
MODEL_ROWS, MODEL_NUMBERS = 2_048, 2**18  # stored rows of all leaves, about, and numbers in them
FEWEST_ROWS = 8  # least stored rows of each leaf, if it has so many


@dataclass(frozen=True)
class Background:
    """Training rows of each leaf, drawn at random, in scaled columns: what contributions compare with."""

    at: IntArray
    rows: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("background_row", "feature"), offsets="at", in_leaf="own_rows")
    ]

    def of(self, leaf: int) -> SingleArray:
        """The rows of one leaf."""
        return self.rows[int(self.at[leaf]) : int(self.at[leaf + 1])]


def kept_rows(n_leaves: int, n_columns: int) -> int:
    """The number of stored rows of each leaf of a model."""
    most = min(MODEL_ROWS // n_leaves, MODEL_NUMBERS // max(n_leaves * n_columns, 1), KEPT_ROWS)
    return max(most, FEWEST_ROWS)


@dataclass(frozen=True)
class Parts:
    """Names of parts, and the part that each raw feature belongs to."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def of_feature(self) -> IntArray:
        """int64 (n_features,)."""
        return np.array(self.numbers, INDEX_DTYPE)

    @staticmethod
    def of_features(names: Sequence[str] | None, n_features: int) -> "Parts":
        """A part for each raw feature."""
        called = [f"feature {j}" for j in range(n_features)] if names is None else [str(n) for n in names]
        return Parts(tuple(called), tuple(range(n_features)))
