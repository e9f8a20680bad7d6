"""Oblivious trees, a term of a model: each level of a tree asks one question, the same in all nodes.

A question is whether the bin of a feature is at least some number; the bin of a value is the number of
borders that are at most the value in single precision. A missing value has bin 0, as values below all borders
have: a border −∞ separates it from every number. The answers of a row are the bits of a leaf number. Leaf
values are integers of 16 bits, whose sum is exact: a row has the same value on every processor, in NumPy and
compiled.
"""

from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.leaf_arrays import Line, are_offsets
from dcpred_tasks.model.term import ExportedTerm, Operations, RowValues

MOST_TREES, MOST_DEPTH = 10_000, 8
MOST_BORDERS = 254  # No bin is 255, which a level without a question asks for.
NEVER = 255
AT_ONCE = 2**12  # rows whose answers are held at a time
TREES_AT_ONCE = 16  # trees whose coalitions are held at a time


@dataclass(frozen=True, eq=False)
class ObliviousTrees(ExportedTerm):
    """value = bias + scale · Σ leaf values; `leaf[t, k, n]` is that of tree t and output k in leaf n."""

    border_at: Annotated[IntArray, Line(INDEX_DTYPE, ("border_edge",))]
    """Offsets of the borders of each encoded feature."""
    border: Annotated[SingleArray, Line(MODEL_DTYPE, ("border",), offsets="border_at")]
    """Ascending in each feature; the first may be −∞."""
    feature: Annotated[NDArray[np.int32], Line(np.int32, ("tree", "tree_level"))]
    bin: Annotated[NDArray[np.uint8], Line(np.uint8, ("tree", "tree_level"))]
    leaf: Annotated[NDArray[np.int16], Line(np.int16, ("tree", "output", "tree_leaf"))]
    scale: Annotated[FloatArray, Line(ACC_DTYPE, ("output",))]
    """Powers of two."""
    bias: Annotated[FloatArray, Line(ACC_DTYPE, ("output",))]

    name = "trees"
    since = 12

    @property
    def depth(self) -> int:
        return int(self.feature.shape[1])

    @property
    def facts(self) -> dict[str, int]:
        return {"number": len(self.feature), "depth": self.depth}

    @cached_property
    def used(self) -> IntArray:
        """The features that a tree asks for, ascending."""
        return np.unique(self.feature).astype(INDEX_DTYPE)

    def borders(self, feature: int) -> SingleArray:
        return self.border[int(self.border_at[feature]) : int(self.border_at[feature + 1])]

    def leaf_numbers(self, X: NDArray[Any]) -> NDArray[np.uint8]:
        """The leaf of each encoded row in each tree, (n, n_trees)."""
        bins = np.empty((len(X), len(self.used)), np.uint8)
        for column, feature in enumerate(self.used.tolist()):
            bins[:, column] = bins_of(X[:, feature], self.borders(feature))
        yes = bins[:, np.searchsorted(self.used, self.feature)] >= self.bin
        return np.asarray(yes @ (1 << np.arange(self.depth)), np.uint8)

    def _sums(self, X: NDArray[Any], leaf: NDArray[np.int16]) -> IntArray:
        total = np.zeros((len(X), leaf.shape[1]), INDEX_DTYPE)
        for start in range(0, len(X), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            for values, number in zip(leaf, self.leaf_numbers(X[part]).T, strict=True):
                total[part] += values[:, number].T
        return total

    def values(self, X: NDArray[Any]) -> FloatArray:
        return np.asarray(self.bias + self.scale * self._sums(X, self.leaf))

    @cached_property
    def engine(self) -> RowValues:
        from dcpred_tasks.engine.tree_engine import TreeEngine  # Only scoring needs machine code.

        return TreeEngine(self.borders, self.used, self.feature, self.bin, self.leaf, self.scale, self.bias)

    def sizes(self, X: NDArray[Any]) -> FloatArray:
        summed = self.scale * self._sums(X, np.abs(self.leaf.astype(np.int32)).astype(np.int16))
        return np.asarray((np.abs(self.bias) + summed).max(axis=1))

    @property
    def cost(self) -> float:
        n_trees, n_outputs = self.leaf.shape[:2]
        levels = np.ceil(np.log2(np.diff(self.border_at)[self.used] + 1.0)).sum()
        reading = 3.0 + 0.35 * (len(self.border_at) - 1) + 0.03 * levels
        look_up = 0.02 * n_outputs * 2.0 ** max(self.depth - 6, 0)
        return float(reading + n_trees * (0.05 + 0.0125 * self.depth + look_up))

    def contributions(self, X: NDArray[Any], background: NDArray[Any], output: int) -> FloatArray:
        phi = np.zeros(X.shape)
        leaves, others = self.leaf_numbers(X), self.leaf_numbers(background)
        for start in range(0, len(self.leaf), TREES_AT_ONCE):
            trees = range(start, min(start + TREES_AT_ONCE, len(self.leaf)))
            share = np.stack([np.bincount(others[:, t], minlength=1 << self.depth) for t in trees])
            of_bits = _games(self.leaf[trees, output] * self.scale[output], share / len(background))
            for tree, game in zip(trees, of_bits, strict=True):
                features, level = np.unique(self.feature[tree], return_inverse=True)
                bits = np.array([(1 << np.flatnonzero(level == k)).sum() for k in range(len(features))])
                shapley = _shapley(len(features)) @ game[_coalitions(bits)]
                phi[:, features] += shapley.T[leaves[:, tree]]
        return phi

    def onnx_values(self, graph: Operations, X: str) -> str:
        (n_trees, depth), n_outputs = self.feature.shape, self.leaf.shape[1]
        at, least = self.feature.ravel(), self.bin.ravel().astype(INDEX_DTYPE)
        can, always = (least > 0) & (least <= np.diff(self.border_at)[at]), least == 0
        number = np.where(can, self.border_at[at] + least - 1, 0)
        limit = np.where(can, np.append(self.border, np.float32(0))[number], MODEL_DTYPE(0))
        asked = graph.cast(graph.columns(X, at), MODEL_DTYPE)
        above = graph.op("GreaterOrEqual", asked, graph.constant(limit, MODEL_DTYPE))
        known = graph.op("And", graph.op("Not", graph.op("IsNaN", asked)), graph.constant(can))
        yes = graph.op("Or", graph.op("And", above, known), graph.constant(always))
        answers = graph.reshape(graph.cast(yes, ACC_DTYPE), -1, n_trees, depth)
        leaf = graph.op("MatMul", answers, 2.0 ** np.arange(depth))
        place = graph.op("Add", graph.cast(leaf, INDEX_DTYPE), graph.constant(np.arange(n_trees) << depth))
        table = self.leaf.transpose(0, 2, 1).reshape(-1, n_outputs)
        values = graph.op("Gather", graph.cast(graph.constant(table), ACC_DTYPE), place)
        total = graph.op("ReduceSum", values, graph.constant([1], INDEX_DTYPE), keepdims=0)
        return graph.op("Add", graph.op("Mul", total, self.scale), self.bias)

    @property
    def c_source(self) -> str:
        return f"""
    const int depth = {self.depth};
    int sum[N_OUTPUTS] = {{0}};
    for (int t = 0; t < {len(self.feature)}; t++) {{
        int leaf = 0;
        for (int l = 0; l < depth; l++) {{
            const int f = trees_feature[t * depth + l], bin = trees_bin[t * depth + l];
            const int at = trees_border_at[f], can = bin <= trees_border_at[f + 1] - at;
            leaf |= (bin == 0 || (can && (float)x[f] >= trees_border[at + bin - 1])) << l;
        }}
        for (int k = 0; k < N_OUTPUTS; k++) sum[k] += trees_leaf[((t * N_OUTPUTS + k) << depth) + leaf];
    }}
    for (int k = 0; k < N_OUTPUTS; k++) out[k] += trees_bias[k] + trees_scale[k] * sum[k];"""

    def check(self, n_features: int, n_outputs: int) -> None:
        (n_trees, depth), shape = self.feature.shape, self.leaf.shape
        if not 0 < n_trees <= MOST_TREES or not 0 < depth <= MOST_DEPTH or self.bin.shape != (n_trees, depth):
            raise ValueError(f"its {n_trees} trees have {depth} levels, or other shapes")
        whole = self.leaf.dtype == np.int16 and (self.leaf > -(2**15)).all()
        if shape != (n_trees, n_outputs, 1 << depth) or not whole:
            raise ValueError(f"its trees have leaf values of shape {list(shape)}, or no integers")
        for name, dtype in (("feature", np.int32), ("bin", np.uint8), ("border_at", INDEX_DTYPE)):
            if getattr(self, name).dtype != dtype:
                raise ValueError(f"array trees_{name} does not hold integers")
        if not are_offsets(self.border_at, n_features) or self.border_at[-1] != len(self.border):
            raise ValueError("array trees_border_at does not ascend from 0 with an edge for each feature")
        counts = np.diff(self.border_at)
        if (counts > MOST_BORDERS).any() or ((self.feature < 0) | (self.feature >= n_features)).any():
            raise ValueError(f"its trees ask for other features than {n_features}, or for too many borders")
        inner = np.ones(len(self.border), bool)
        inner[self.border_at[:-1][counts > 0]] = False
        if not (self.border[1:] > self.border[:-1])[inner[1:]].all() or (self.border == np.inf).any():
            raise ValueError("array trees_border does not ascend in each feature")
        if np.isnan(self.border).any() or np.isinf(self.border[inner]).any():
            raise ValueError("array trees_border does not hold numbers")
        for name in ("scale", "bias"):
            array = getattr(self, name)
            if array.shape != (n_outputs,) or not np.isfinite(array).all() or (np.abs(array) > 1e200).any():
                raise ValueError(f"array trees_{name} does not hold a number of each of {n_outputs} outputs")
        if not ((self.scale > 0) & (np.frexp(self.scale)[0] == 0.5)).all():
            raise ValueError("array trees_scale does not hold powers of two")


def single(X: NDArray[Any]) -> SingleArray:
    """Values in single precision, as the engine reads them: integers are rounded twice."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(X if X.dtype == MODEL_DTYPE else X.astype(ACC_DTYPE).astype(MODEL_DTYPE))


def bins_of(x: NDArray[Any], borders: SingleArray) -> NDArray[np.uint8]:
    """How many borders are at most each value; 0 of NaN."""
    numbers = single(x)
    bins = np.searchsorted(borders, numbers, side="right")
    return np.where(np.isnan(numbers), 0, bins).astype(np.uint8)


def quantised(leaf: FloatArray, bias: FloatArray) -> tuple[NDArray[np.int16], FloatArray, FloatArray]:
    """Leaf values (n_trees, n_outputs, n_leaves) as integers, with the scales and the bias."""
    largest = np.abs(leaf).max(axis=(0, 2))
    scale = 2.0 ** np.clip(np.frexp(np.maximum(largest, 1e-300))[1] - 15, -600, 600)
    whole = np.rint(leaf / scale[:, None])
    return whole.clip(-(2**15) + 1, 2**15 - 1).astype(np.int16), scale, bias


def _games(leaf: FloatArray, share: FloatArray) -> FloatArray:
    """float64 (n_trees, n_sets, n_leaves): the mean value of a row in a leaf, whose levels in a set of bits
    are its own and the others those of a background row; `share` is that of background rows in each leaf.
    """
    n_trees, n_leaves = leaf.shape
    depth = n_leaves.bit_length() - 1
    shape = (n_trees, *[2] * depth)  # Axis 1 + i is bit depth − 1 − i.
    values, shares = leaf.reshape(shape), share.reshape(shape)
    games = np.empty((n_trees, n_leaves, n_leaves))
    for bits in range(n_leaves):
        mine = tuple(1 + i for i in range(depth) if bits >> (depth - 1 - i) & 1)
        rest = tuple(1 + i for i in range(depth) if 1 + i not in mine)
        means = (values * shares.sum(axis=mine, keepdims=True)).sum(axis=rest, keepdims=True)
        games[:, bits] = np.broadcast_to(means, shape).reshape(n_trees, n_leaves)
    return games


def _coalitions(bits: IntArray) -> IntArray:
    """The levels of every set of features, each with the bits of its own levels."""
    chosen = np.arange(1 << len(bits))[:, None] >> np.arange(len(bits)) & 1
    return np.asarray(chosen @ bits)


def _shapley(m: int) -> FloatArray:
    """The weights of all coalitions in the Shapley value of each of m features, (m, 2^m)."""
    sets = np.arange(1 << m)
    inside = (sets >> np.arange(m)[:, None] & 1).astype(bool)
    size = inside.sum(axis=0)
    joins, leaves = (
        np.array([factorial(s) * factorial(m - s - 1) / factorial(m) if 0 <= s < m else 0.0 for s in sizes])
        for sizes in ((size - 1).tolist(), size.tolist())
    )
    return np.where(inside, joins, -leaves)
