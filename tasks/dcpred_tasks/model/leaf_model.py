"""Leaf models: what predicts in a leaf in place of the compact model.

The core has one, the exact kernel model (dcpred_tasks.model.exact). Baselines come from packages that
register a table of `LeafModelType` under the entry point group `dcpred.leaf_models`. Only `leaf_model_types`
looks that up. It is called to compare systems, and to read a model that an earlier version trained with a
baseline.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray
from dcpred_tasks.model.exact import Exact, exact_from_arrays
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import packed, unpacked
from dcpred_tasks.row_sampling import at_most

GROUP = "dcpred.leaf_models"  # group of entry points
COMPACT, EXACT = "compact", "exact"  # the leaf models of the core
LOCAL = 10**9  # rows of a leaf model that local_rows alone limits
BOTH, CLASSES = ("classification", "regression"), ("classification",)
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


@dataclass(frozen=True)
class LeafModelType:
    """A kind of leaf model, with what a comparison has to know of it.

    name         as systems of a comparison and stored models have it
    meaning      a sentence with its source
    module       has `fit(kind, rows, kernel, settings, seed)`, and `from_arrays(arrays)`, which raises
                 ValueError. It is imported on first use
    reads_as     the module of `from_arrays`, where that is another one; "exact": the exact model
    kernel       the kernel that it approximates
    tasks        what it learns
    counted      what `size` counts; empty where it has no size
    sizes        grid of sizes, the cheapest first
    size         the size to fit
    tolerated    what `tolerance` bounds; empty where it has none
    tolerances   grid of tolerances
    tolerance    the tolerance to fit
    most_rows    largest number of rows it is fitted to, beside local_rows; LOCAL: no other limit; 0: all rows
    is_basis     whether it is a linear model on the functions of a basis, which `fit_basis` of its module
                 gives
    own_penalty  whether it needs a penalty C of its own
    wide         whether a comparison also tries it with γ = 1 / features
    caveat       where the method fails, in sentences
    fallback     what a line of a table states where the exact model is smaller and takes its place
    second_hand  whether it was written from descriptions by others, without the paper
    """

    name: str
    meaning: str
    module: str
    reads_as: str = ""
    kernel: str = "rbf"
    tasks: tuple[str, ...] = BOTH
    counted: str = ""
    sizes: tuple[int, ...] = (0,)
    size: int = 0
    tolerated: str = ""
    tolerances: tuple[float, ...] = (0.0,)
    tolerance: float = 0.0
    most_rows: int = 0
    is_basis: bool = False
    own_penalty: bool = False
    wide: bool = False
    caveat: str = ""
    fallback: str = ""
    second_hand: bool = False

    @property
    def words(self) -> str:
        """The meaning, and what its citation does not state."""
        return self.meaning + (
            " Written from descriptions by others, not from the paper." if self.second_hand else ""
        )

    def of_size(self, size: int = 0, tolerance: float = 0.0) -> "LeafModelType":
        """The same, to be fitted with a size and a tolerance."""
        return replace(self, size=size, tolerance=tolerance)

    def most_trained_on(self, n_rows: int, local_rows: int) -> int:
        """How many of the rows of a leaf it is fitted to."""
        return min(n_rows, local_rows, self.most_rows) if self.most_rows else n_rows

    def fit(self, rows: Any, kernel: Kernel, settings: Any, seed: int) -> LeafModel:
        """A model of the rows of a leaf.

        rows      dcpred_tasks.training.solvers.LeafRows
        settings  dcpred_tasks.training.settings.Settings
        """
        fitted: LeafModel = import_module(self.module).fit(self, rows, kernel, settings, seed)
        return fitted

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> LeafModel:
        """The model that gave the arrays. Raises ValueError where they do not fit together."""
        if self.reads_as == EXACT:
            return exact_from_arrays(arrays)
        read: LeafModel = import_module(self.reads_as or self.module).from_arrays(arrays)
        return read

    def fit_basis(self, X: RowArray, kernel: Kernel, size: int, rng: np.random.Generator) -> Any:
        """The functions of rows that it is linear in."""
        return import_module(self.module).fit_basis(self.name, X, kernel, size, rng)


@cache
def leaf_model_types() -> dict[str, LeafModelType]:
    """All baselines that installed packages register, by name."""
    tables: list[dict[str, LeafModelType]] = [one.load() for one in entry_points(group=GROUP)]
    return {name: kind for table in tables for name, kind in table.items()}


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
    kind = leaf_model_types().get(name)
    if kind is None:
        raise ValueError(
            f"no leaf model is named {name[:40]!r}; install the package that registers it ({GROUP})"
        )
    return kind.from_arrays


def stored(model: LeafModel, X: RowArray) -> NDArray[np.uint8]:
    """The packed arrays of a leaf model for scaled rows X, marked where single precision suffices."""
    arrays = model.arrays()
    some = X[at_most(len(X), SINGLE_ROWS)]
    true, found = model.predict(some.astype(ACC_DTYPE)), model.predict(some.astype(MODEL_DTYPE))
    again = ~np.isfinite(found).all(axis=1)
    off = np.abs(found - true)[~again]
    near = off <= SINGLE_ERROR * true.std(axis=0) + SINGLE_RELATIVE * np.abs(true[~again])
    enough = near.all() and again.mean() <= SINGLE_AGAIN
    return packed(arrays | {SINGLE: np.empty(0, np.uint8)} if enough else arrays)


def needs_double(data: NDArray[np.uint8]) -> bool:
    """Whether packed arrays lack the mark that single precision suffices."""
    return SINGLE not in unpacked(data)


def is_exact(model: LeafModel | None) -> bool:
    """Whether a leaf model is the exact kernel model."""
    return isinstance(model, Exact)
