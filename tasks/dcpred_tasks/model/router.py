"""What divides space into leaves, as training, scoring, files and reports know it.

The core has one router, the tree of nearest centres (dcpred_tasks.model.tree). A further one is a class with
these members and a place in ROUTERS; artifacts/model_layout.py declares its arrays. The compiled engine walks
trees of nearest centres alone: the definition scores rows of other routers.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.model.kernels import RowArray
from dcpred_tasks.model.tree import Tree


class Router(Protocol):
    """Every scaled row belongs to one of `n_leaves` leaves."""

    @property
    def n_leaves(self) -> int:
        """The number of leaves, at least 1."""

    @property
    def n_nodes(self) -> int:
        """The number of inner nodes; 0 for a single leaf."""

    @property
    def depth(self) -> int:
        """Levels that the longest walk takes."""

    @property
    def points(self) -> SingleArray:
        """Scaled rows that lie in different leaves, (n, n_columns): rows of the self-test."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""

    def descend(self, X: RowArray) -> NDArray[np.int32]:
        """The leaf of each scaled row, int32 (n_samples,), the same in every batch."""

    def near_leaves(self, X: SingleArray, n_near: int) -> NDArray[np.int32]:
        """The leaves nearest to each scaled row after its own, int32 (n_samples, n_near), −1 for none."""

    def leaf_levels(self, n_leaves: int) -> FloatArray:
        """Levels down to each leaf, (n_leaves,)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its arrays by their names in a model."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`, among other arrays."""

    def check(self, n_leaves: int, n_columns: int) -> None:
        """Raise ValueError unless every walk ends in one of the leaves of a model."""


ROUTERS: tuple[type[Router], ...] = (Tree,)


def read_router(arrays: Mapping[str, NDArray[Any]]) -> Router:
    """The router whose arrays are among these. Raises ValueError where there is none."""
    for router in ROUTERS:
        try:
            return router.from_arrays(arrays)
        except KeyError:
            continue
    raise ValueError("the arrays of a tree are missing")
