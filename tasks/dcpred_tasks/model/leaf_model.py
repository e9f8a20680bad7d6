"""Leaf models: what predicts in a leaf in place of the compact model.

The core has one, the exact kernel model (dcpred_tasks.model.exact). Others come from packages that register
a table of `LeafModelReader` under the entry point group `dcpred.leaf_models`. Only `registered_leaf_models`
looks that up, to read a model that version 0.1.0 trained with a baseline.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray
from dcpred_tasks.model.exact import Exact, exact_from_arrays
from dcpred_tasks.model.kernels import RowArray
from dcpred_tasks.model.packed_arrays import packed, unpacked
from dcpred_tasks.row_sampling import at_most

GROUP = "dcpred.leaf_models"  # group of entry points
COMPACT, EXACT = "compact", "exact"  # the leaf models of the core
SINGLE = "single_precision"  # an empty array that marks where single precision suffices
SINGLE_ROWS = 500  # training rows that decide this, at most
# Largest error that single precision may have: in standard deviations of decision values, relative to each of
# them, and the fraction of rows that are computed again.
SINGLE_ERROR, SINGLE_RELATIVE, SINGLE_AGAIN = 1e-3, 1e-5, 0.05


class LeafModel(Protocol):
    """A fitted model of the rows of one leaf. Tests: tests/support/leaf_models.py, `check_leaf_model`."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n_features, n_outputs)."""

    def predict(self, X: RowArray) -> FloatArray:
        """Decision values of scaled rows (n, n_features): float64 (n, n_outputs). X is not written, and a row
        does not depend on the others.

        Rows of double precision follow the definition. Rows of single precision are computed in single
        precision. A row whose value depends on rounding, at a border of the model, gets NaN: the caller
        computes it again in double precision.
        """

    def sizes(self, X: RowArray) -> FloatArray:
        """The magnitude of the summed terms of rows, (n,): single precision is relative to it."""

    @property
    def cost(self) -> float:
        """Mean multiplications per row: n_features · n_outputs if linear, 10 for e.g. an exponential."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays that rebuild the model, of the dtypes of packed_arrays.DTYPES."""


class LeafModelReader(Protocol):
    """How a model that a package registers is read."""

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]], /) -> LeafModel:
        """The model that gave the arrays. Raises ValueError where they do not fit together."""


@cache
def registered_leaf_models() -> dict[str, Any]:
    """A `LeafModelReader` by the name of each leaf model that installed packages register."""
    return {name: reader for table in entry_points(group=GROUP) for name, reader in table.load().items()}


def check_leaf_model(name: str) -> None:
    """Raise ValueError where no leaf model has this name."""
    _reader(name)


def read_leaf_model(name: str, data: NDArray[np.uint8], shape: tuple[int, int]) -> LeafModel:
    """The leaf model of packed arrays, of (n_features, n_outputs). Raises ValueError for other arrays."""
    model = _reader(name)(unpacked(data))
    if model.shape != shape:
        raise ValueError(f"a leaf model has {model.shape} features and outputs, but its model has {shape}")
    return model


def _reader(name: str) -> Callable[[Mapping[str, NDArray[Any]]], LeafModel]:
    if name == EXACT:
        return exact_from_arrays
    reader: LeafModelReader | None = registered_leaf_models().get(name)
    if reader is None:
        raise ValueError(
            f"no leaf model is named {name[:40]!r}; install the package that registers it ({GROUP})"
        )
    return reader.from_arrays


def stored(model: LeafModel, X: RowArray) -> NDArray[np.uint8]:
    """The packed arrays of a leaf model for scaled rows X, marked where single precision suffices."""
    arrays = model.arrays()
    some = X[at_most(len(X), SINGLE_ROWS)]
    true, single = model.predict(some.astype(ACC_DTYPE)), model.predict(some.astype(MODEL_DTYPE))
    again = ~np.isfinite(single).all(axis=1)
    off = np.abs(single - true)[~again]
    near = off <= SINGLE_ERROR * true.std(axis=0) + SINGLE_RELATIVE * np.abs(true[~again])
    enough = near.all() and again.mean() <= SINGLE_AGAIN
    return packed(arrays | {SINGLE: np.empty(0, np.uint8)} if enough else arrays)


def needs_double(data: NDArray[np.uint8]) -> bool:
    """Whether packed arrays lack the mark that single precision suffices."""
    return SINGLE not in unpacked(data)


def is_exact(model: LeafModel | None) -> bool:
    """Whether a leaf model is the exact kernel model."""
    return isinstance(model, Exact)
