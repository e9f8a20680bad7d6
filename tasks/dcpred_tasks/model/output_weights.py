"""Output weights of all leaves, without those of outputs that a leaf lacks: classes that it has no row of."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE, IntArray, SingleArray


@dataclass(frozen=True, eq=False)
class OutputWeights:
    """Weights (basis, output) of each leaf; NumPy sees one array (n_basis, n_outputs) of all of them."""

    n_outputs: int
    at: IntArray
    """int64 (n_leaves + 1,), offsets of basis functions."""
    output_at: IntArray
    """int64 (n_leaves + 1,), offsets into `outputs`."""
    outputs: NDArray[np.int32]
    """int32, the outputs that a leaf has weights for, ascending."""
    weights: SingleArray
    """float32, for each leaf the weights of its basis functions for its outputs, row by row."""

    @classmethod
    def from_dense(cls, beta: SingleArray, at: IntArray) -> "OutputWeights":
        """Weights (n_basis, n_outputs), of which those are left out that are 0 in a whole leaf. An outline of
        a model has rows in `at` and none in `beta`: each of its leaves then counts all outputs.
        """
        n_outputs = beta.shape[1]
        outputs, weights = [np.empty(0, LEAF_DTYPE)], [np.empty(0, MODEL_DTYPE)]
        if len(beta) < at[-1]:
            return cls(
                n_outputs, at, np.arange(len(at), dtype=INDEX_DTYPE) * n_outputs, outputs[0], weights[0]
            )
        for first, last in pairwise(at.tolist()):
            rows = np.ascontiguousarray(beta[first:last], MODEL_DTYPE)
            own = np.flatnonzero(rows.view(np.uint32).any(axis=0))  # keeps −0
            outputs.append(own.astype(LEAF_DTYPE))
            weights.append(rows[:, own].ravel())
        output_at = np.cumsum([0, *map(len, outputs[1:])]).astype(INDEX_DTYPE)
        return cls(n_outputs, at, output_at, np.concatenate(outputs), np.concatenate(weights))

    @cached_property
    def weight_at(self) -> IntArray:
        """int64 (n_leaves + 1,), offsets into `weights`."""
        return np.cumsum([0, *(np.diff(self.at) * self.n_present)]).astype(INDEX_DTYPE)

    @property
    def n_present(self) -> IntArray:
        """The number of outputs with weights of each leaf."""
        return np.diff(self.output_at)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.at[-1]), self.n_outputs

    @property
    def nbytes(self) -> int:
        return self.output_at.nbytes + self.outputs.nbytes + self.weights.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def of(self, leaf: int) -> SingleArray:
        """The weights (basis, n_outputs) of a leaf, with those that are 0."""
        beta = np.zeros((int(self.at[leaf + 1] - self.at[leaf]), self.n_outputs), MODEL_DTYPE)
        own = self.outputs[self.output_at[leaf] : self.output_at[leaf + 1]]
        beta[:, own] = self.weights[self.weight_at[leaf] : self.weight_at[leaf + 1]].reshape(
            len(beta), len(own)
        )
        return beta

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        parts = [np.empty((0, self.n_outputs), MODEL_DTYPE), *map(self.of, range(len(self.at) - 1))]
        return np.concatenate(parts).astype(dtype or MODEL_DTYPE, copy=False)

    def check(self, n_leaves: int) -> None:
        """Raise ValueError where the arrays do not fit together."""
        for name, at in (("beta_at", self.at), ("output_at", self.output_at)):
            if len(at) != n_leaves + 1 or at[0] != 0 or (np.diff(at) < 0).any():
                raise ValueError(f"array {name} does not ascend from 0 with an edge for each leaf")
        outputs = self.outputs
        same_leaf = np.diff(np.searchsorted(self.output_at, np.arange(len(outputs)), side="right")) == 0
        if ((outputs < 0) | (outputs >= self.n_outputs)).any() or (np.diff(outputs)[same_leaf] <= 0).any():
            raise ValueError(
                f"array outputs does not name ascending outputs of {self.n_outputs} in each leaf"
            )
        # As floats: integers of damaged offsets may overflow.
        if float((np.diff(self.at).astype(float) * self.n_present).sum()) != len(self.weights):
            raise ValueError("array weights does not have one for each basis function and output of a leaf")
