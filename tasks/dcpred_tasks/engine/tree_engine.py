"""Oblivious trees (model/oblivious_trees.py) in machine code: the bits of the definition, 64 rows at a time.

The borders of a feature lie as a complete binary search tree: node i has the children 2 i and 2 i + 1, and
the first 16 nodes are one vector. Missing borders are NaN, which no value reaches.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.layout import LANES, Source, aligned, aligned_empty, dtype_code
from dcpred_tasks.engine.machine_code import load, prepared
from dcpred_tasks.engine.native_modules import TREES, taken_by

STRIP_ROWS = 64  # rows that go through all trees together
BLOCK_TREES = 32  # most trees whose leaf numbers are held, and whose values are summed in 16 bits
FEWEST_LEAVES = 64  # Leaves of a tree, with padding.
LARGEST_SUM = 2**15 - 1


class Forest(NamedTuple):
    """Trees, laid out for the engine."""

    n_features: int
    n_outputs: int
    depth: int
    n_leaves: int
    """Of a tree, with padding."""
    used: IntArray
    """int64, the features that trees ask for, ascending."""
    levels: IntArray
    """int64, of the search tree of each of these."""
    border_at: IntArray
    """int64, where its borders begin."""
    borders: SingleArray
    """float32, 2^levels of each feature, at least 16."""
    slots: IntArray
    """int64 (n_trees · depth,), the places of bins in a strip that a level compares."""
    bins: NDArray[np.uint8]
    """uint8 (n_trees · depth,), the least bin of an answer yes."""
    block_at: IntArray
    """int64, where each block of trees begins, and the number of trees."""
    values: NDArray[np.int16]
    """int16 (n_trees, n_outputs, n_leaves)."""
    scale: FloatArray
    """float64 (n_outputs,)."""
    bias: FloatArray
    """float64 (n_outputs,)."""


class Strip(NamedTuple):
    """The workspace of a call."""

    bins: NDArray[np.uint8]
    """uint8 (features · STRIP_ROWS,)."""
    leaves: NDArray[np.uint8]
    """uint8 (BLOCK_TREES · STRIP_ROWS,)."""
    totals: NDArray[np.int32]
    """int32 (n_outputs · STRIP_ROWS,)."""


@taken_by(TREES)
class Arguments(NamedTuple):
    """The arguments of `tree_values` of native/trees.cpp."""

    forest: Forest
    strip: Strip
    source: Source
    n: int
    out: FloatArray
    """float64 (n, n_outputs)."""


class TreeEngine:
    """The values of encoded rows: `ObliviousTrees.values`, by any number of threads."""

    def __init__(
        self,
        borders: Callable[[int], SingleArray],
        used: IntArray,
        feature: NDArray[np.int32],
        bins: NDArray[np.uint8],
        leaf: NDArray[np.int16],
        scale: FloatArray,
        bias: FloatArray,
    ) -> None:
        """Raises CompilerError without machine code for this processor."""
        check()
        n_trees, n_outputs, n_leaves = leaf.shape
        trees = [search_tree(borders(number)) for number in used.tolist()]
        padded = np.zeros((n_trees, n_outputs, max(n_leaves, FEWEST_LEAVES)), np.int16)
        padded[:, :, :n_leaves] = leaf
        self.forest = Forest(
            n_features=0,
            n_outputs=n_outputs,
            depth=feature.shape[1],
            n_leaves=padded.shape[2],
            used=np.array(used, INDEX_DTYPE),
            levels=np.array([levels for levels, _ in trees], INDEX_DTYPE),
            border_at=np.cumsum([0, *(len(nodes) for _, nodes in trees)])[:-1].astype(INDEX_DTYPE),
            borders=aligned(np.concatenate([nodes for _, nodes in trees])),
            slots=(np.searchsorted(used, feature) * STRIP_ROWS).astype(INDEX_DTYPE).ravel(),
            bins=np.ascontiguousarray(bins, np.uint8).ravel(),
            block_at=np.array(list(blocks(np.abs(leaf.astype(INDEX_DTYPE)).max(axis=(1, 2)))), INDEX_DTYPE),
            values=aligned(padded.ravel()),
            scale=np.array(scale, ACC_DTYPE),
            bias=np.array(bias, ACC_DTYPE),
        )

    def __call__(self, X: NDArray[Any]) -> FloatArray:
        if dtype_code(X.dtype) < 0 or (X.shape[1] > 1 and len(X) and X.strides[1] != X.itemsize):
            X = np.ascontiguousarray(X, X.dtype if dtype_code(X.dtype) >= 0 else ACC_DTYPE)
        out = np.empty((len(X), self.forest.n_outputs))
        if len(X):
            call(self.arguments(X, out))
        return out

    def arguments(self, X: NDArray[Any], out: FloatArray) -> Arguments:
        """Those of compiled code for rows that it reads in place."""
        forest = self.forest._replace(n_features=X.shape[1])
        source = Source(dtype_code(X.dtype), X.itemsize, X.__array_interface__["data"][0], X.strides[0])
        strip = Strip(
            bins=aligned_empty(max(len(forest.used), 1) * STRIP_ROWS, np.uint8),
            leaves=aligned_empty(BLOCK_TREES * STRIP_ROWS, np.uint8),
            totals=aligned_empty(forest.n_outputs * STRIP_ROWS, np.int32),
        )
        return Arguments(forest, strip, source, len(X), out)


def check() -> None:
    """Compile what trees need, unless that is done, and load it. Raises CompilerError."""
    load(TREES)


def call(arguments: tuple[Any, ...]) -> None:
    """Run a function of the compiled code."""
    prepared(TREES, arguments)()


def search_tree(borders: SingleArray) -> tuple[int, SingleArray]:
    """Levels, and nodes from number 1 on, padded to a vector."""
    levels = len(borders).bit_length()
    ordered = np.full((1 << levels) - 1, np.nan, MODEL_DTYPE)
    ordered[: len(borders)] = borders
    nodes = np.full(max(1 << levels, LANES), np.nan, MODEL_DTYPE)
    for level in range(levels):
        first, step = 1 << level, 1 << (levels - level)
        nodes[first : 2 * first] = ordered[step // 2 - 1 :: step]
    return levels, nodes


def blocks(largest: IntArray) -> Iterator[int]:
    """Where blocks of trees begin, of largest absolute leaf values: their sums fit 16 bits."""
    total, first = LARGEST_SUM + 1, 0
    for tree, value in enumerate(largest.tolist()):
        if total + value > LARGEST_SUM or tree - first == BLOCK_TREES:
            yield tree
            total, first = 0, tree
        total += value
    yield len(largest)
