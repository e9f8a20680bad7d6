"""Scores of models with baselines, in single precision where that is enough.

dcpred_tasks.model.compact_model is the definition, in double precision. Here rows of raw features are scaled
in single precision, and a baseline computes in that; rows that rounding would decide are computed again in
double precision. Tiles and blocks depend only on the model: the same rows in the same order give the same
bits.
"""

from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import (
    MODEL_DTYPE,
    NO_LEAF,
    STATUS_DTYPE,
    FloatArray,
    LeafNumbers,
    RealArray,
    SingleArray,
    Status,
)
from dcpred_tasks.model.compact_model import Model, Scores, by_leaf, check_rows, leaf_values, tile_rows
from dcpred_tasks.model.scaling import Scaling

TILE_VALUES = 2**17  # numbers of scaled rows in memory at a time
FEWEST_ROWS, MOST_ROWS = 256, 8_192  # limits of a tile
ROWS_OF_A_LEAF = 64  # rows of a leaf in a tile, in the mean
SAFE = (1e-30, 1e30)  # magnitudes that are scaled in single precision
EXACT_DTYPES = ("float32", "float16", "int8", "uint8", "int16", "uint16", "bool")  # float32 holds all values


class LeafModelScorer:
    """A model with baselines, laid out for scoring."""

    def __init__(self, model: Model) -> None:
        assert model.leaf_models is not None
        self.model: Model = proxy(model)  # The caller holds it.
        columns = max(model.n_columns, 1)
        step = np.clip(2 ** ((TILE_VALUES // columns).bit_length() - 1), FEWEST_ROWS, MOST_ROWS)
        self.step = int(min(max(step, ROWS_OF_A_LEAF * model.n_leaves), tile_rows(columns)))
        self.dtypes = [model.leaf_models.dtype(leaf) for leaf in range(model.n_leaves)]
        self.scaling = SingleScaling(model.scaling)

    def score(
        self, X: NDArray[np.generic], leaves: LeafNumbers | None = None
    ) -> tuple[Scores, NDArray[np.uint8]]:
        """Do what compact_model.score_rows does."""
        model = self.model
        check_rows(X, model.n_features)
        decision = np.full((len(X), model.n_outputs), np.nan, model.score_dtype)
        status = np.full(len(X), Status.OK, STATUS_DTYPE)
        # A value too large for single precision becomes a status, not a warning.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X), self.step):
                tile = slice(start, start + self.step)
                self._score_tile(
                    X[tile], decision[tile], status[tile], None if leaves is None else leaves[tile]
                )
        return decision, status

    def _score_tile(
        self, X: NDArray[np.generic], decision: Scores, status: NDArray[np.uint8], leaves: LeafNumbers | None
    ) -> None:
        model, n = self.model, len(X)
        if model.n_leaves == 1 and self.dtypes[0] == MODEL_DTYPE:
            rows, finite = self.scaling(X)
            leaf = np.zeros(n, np.int32)
            values = self._values(0, rows, X)
        else:
            exact = model.scaling.exact(X)
            finite = _are_finite(exact.astype(MODEL_DTYPE))
            exact[~finite] = 0.0
            leaf = model.tree.descend(exact)
            values = np.empty((n, model.n_outputs))
            order, spans = by_leaf(leaf)
            for number, span in spans:
                in_leaf = order[span]
                values[in_leaf] = self._values(number, exact[in_leaf].astype(self.dtypes[number]), X[in_leaf])
        decision[:] = values
        status[~_are_finite(decision)] = Status.NON_FINITE_RESULT
        status[~finite] = Status.NON_FINITE_FEATURE
        decision[status != Status.OK] = np.nan
        if leaves is not None:
            leaves[:] = np.where(finite, leaf, NO_LEAF)

    def _values(self, leaf: int, rows: RealArray, X: NDArray[np.generic]) -> FloatArray:
        """Decision values of scaled rows of a leaf, which are X in raw features."""
        values = leaf_values(self.model, leaf, rows)
        again = np.flatnonzero(~_are_finite(values))
        if len(again) and rows.dtype == MODEL_DTYPE:
            exact = self.model.scaling.exact(X[again])
            exact[~_are_finite(exact)] = 0.0
            values = values.copy()
            values[again] = leaf_values(self.model, leaf, exact)
        return values


class SingleScaling:
    """A scaling in single precision: μ as the sum of two numbers is accurate for a feature far from zero."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        low, high = SAFE
        size = np.abs(scaling.factor)
        usable = ((size == 0) | ((size > low) & (size < high))).all() and (np.abs(scaling.shift) < high).all()
        self.usable = bool(scaling.coding is None and usable)
        if self.usable:
            self.near = scaling.shift.astype(MODEL_DTYPE)
            self.rest = (scaling.shift - self.near).astype(MODEL_DTYPE)
            self.factor = scaling.factor.astype(MODEL_DTYPE)
            self.ones = np.ones(len(self.factor), MODEL_DTYPE)

    def __call__(self, X: NDArray[np.generic]) -> tuple[SingleArray, NDArray[np.bool_]]:
        """Scaled rows, zeros for those that are not finite, and which are; (n, n_columns) and (n,)."""
        if not self.usable or X.dtype.name not in EXACT_DTYPES:
            return self._checked(X)
        rows = np.array(X, MODEL_DTYPE, order="C")
        rows -= self.near
        rows -= self.rest
        rows *= self.factor
        finite = np.isfinite(rows @ self.ones)
        if not finite.all():
            doubtful = np.flatnonzero(~finite)
            rows[doubtful], finite[doubtful] = self._checked(X[doubtful])
        return rows, finite

    def _checked(self, X: NDArray[np.generic]) -> tuple[SingleArray, NDArray[np.bool_]]:
        rows = self.scaling.exact(X).astype(MODEL_DTYPE)
        finite = _are_finite(rows)
        rows[~finite] = 0.0
        return rows, finite


def _are_finite(rows: RealArray) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(rows).all(axis=1))
