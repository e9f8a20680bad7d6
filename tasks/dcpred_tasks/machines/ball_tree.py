"""The exact machine by a ball tree, as far as the class of a row is not sure.

After Liu, Moore and Gray (NIPS 2003, "Efficient exact k-NN and nonparametric classification in high
dimensions") and Gray and Moore (NIPS 2000), whose idea is used here for f(x) = Σ_i α_i K(x, x_i) + b; their
papers were not at hand. Of a ball with centre c and radius R, at r = ‖x − c‖ from the row,

    K_min = K(r + R) ≤ K(x, x_i) ≤ K(max(r − R, 0)) = K_max,
    P K_min + N K_max ≤ Σ_ball α_i K(x, x_i) ≤ P K_max + N K_min,

with P and N the sums of its positive and its negative α. Bounds of f(x) are sums of these over balls that
hold each support vector once. A ball is replaced with its two halves, or with its own exact sum, where its
gap (P − N)(K_max − K_min) is at least a SHARE of the largest gap of that row, until the sign of f(x) is sure,
or with several outputs the largest of them. The value is the middle of the bounds. So the class is that of
the exact machine, and with one output |f(x) − value| ≤ |value|: far from the border the value tells little
but the class. A row whose class is not sure to the end gets the exact value. There is no other tolerance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.machines import exact
from dcpred_tasks.machines.exact import OF_KERNEL
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings

SHARE = 0.5  # share of a row's largest gap, from which on balls are replaced
ROUNDS = 60  # after which every ball of a row that is not sure is replaced
ROUNDING = 1e-12  # share of Σ|α|: how far from 0 a bound must be for the class to be sure
DEEPEST = 64  # levels; a tree of `grown` has fewer than 49 up to a million rows
LEAF = -1  # in the place of children
MEASURED_ROWS = 500  # training rows whose multiplications are counted
BLOCK_VALUES = 2**21  # values for rows and nodes, or rows and features, that are held at a time


@dataclass(frozen=True)
class Nodes:
    """A binary tree over ordered rows. Node 0 has all, and the children of a node share its rows.

    children  int64 (m, 2), larger than the number of the node, or LEAF twice
    ranges    int64 (m, 2), first row of a node, and the first after it
    centre    float64 (m, n_features)
    radius    float64 (m,), the largest distance of its rows from the centre
    """

    children: IntArray
    ranges: IntArray
    centre: FloatArray
    radius: FloatArray

    def rows(self, node: int) -> slice:
        return slice(int(self.ranges[node, 0]), int(self.ranges[node, 1]))

    def distances(self, X: RealArray, node: int) -> FloatArray:
        """Of rows from the centre of a node; those of a row do not depend on the others, to the last bit."""
        off = X - self.centre[node]
        return np.asarray(np.sqrt(_squares(off)))

    def sums(self, weights: RealArray) -> FloatArray:
        """Sums of the rows of (n, k) for each node, float64 (m, k)."""
        own = [weights[self.rows(node)].sum(axis=0, dtype=np.float64) for node in range(len(self.ranges))]
        return np.array(own).reshape(len(own), weights.shape[1])


def grown(X: RealArray, most: int) -> tuple[IntArray, IntArray, IntArray]:
    """An order of the rows, and children and ranges of a tree over them with at most `most` in a leaf."""
    order = np.arange(len(X))
    ranges, children, at = [(0, len(X))] if len(X) else [], [(LEAF, LEAF)] if len(X) else [], 0
    while at < len(ranges):
        start, stop = ranges[at]
        if stop - start > most:
            inside, cut = _halves(X[order[start:stop]].astype(np.float64))
            order[start:stop] = order[start:stop][inside]
            children[at] = (len(ranges), len(ranges) + 1)
            ranges += [(start, start + cut), (start + cut, stop)]
            children += [(LEAF, LEAF)] * 2
        at += 1
    shape = (len(ranges), 2)
    return order, np.array(children, np.int64).reshape(shape), np.array(ranges, np.int64).reshape(shape)


def _halves(X: FloatArray) -> tuple[IntArray, int]:
    """An order of at least two rows along the line between two that are far apart, and where to cut: at the
    widest gap that leaves a quarter on each side.
    """
    a = X[_squares(X - X.mean(axis=0)).argmax()]
    b = X[_squares(X - a).argmax()]
    along = (X - a) @ (b - a)
    order = np.argsort(along, kind="stable")
    least = max(len(X) // 4, 1)
    gaps = np.diff(along[order])[least - 1 : len(X) - least]
    cut = least + int(gaps.argmax()) if gaps.any() else len(X) // 2
    return order, cut


def _squares(X: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", X, X))


def nodes_of(X: SingleArray, children: IntArray, ranges: IntArray, weight: FloatArray | None = None) -> Nodes:
    """The tree with its balls, about weighted means. Raises ValueError for what is no tree of rows."""
    _check_tree(children, ranges, len(X))
    centre, radius = np.empty((len(ranges), X.shape[1])), np.empty(len(ranges))
    for node, (start, stop) in enumerate(ranges):
        own = X[start:stop].astype(np.float64)
        share = np.ones(len(own)) if weight is None or not weight[start:stop].any() else weight[start:stop]
        centre[node] = share @ own / share.sum()
        radius[node] = np.sqrt(_squares(own - centre[node]).max()) * (1 + 1e-12)
    return Nodes(children, ranges, centre, radius)


def _check_tree(children: IntArray, ranges: IntArray, n_rows: int) -> None:
    m = len(children)
    if children.shape != (m, 2) or ranges.shape != (m, 2) or (m == 0) != (n_rows == 0):
        raise ValueError("a tree has other ranges than nodes")
    if m == 0:
        return
    inner = np.flatnonzero((children != LEAF).any(axis=1))
    left, right = children[inner].T
    # Each node but the first is the child of one before it, so that there is no way round.
    if not np.array_equal(np.sort(children[inner], axis=None), np.arange(1, m)):
        raise ValueError("the children of a tree are not its nodes")
    if (np.minimum(left, right) <= inner).any():
        raise ValueError("a node of a tree comes before its parent")
    same = (
        (ranges[left, 0] == ranges[inner, 0])
        & (ranges[left, 1] == ranges[right, 0])
        & (ranges[right, 1] == ranges[inner, 1])
    )
    whole = ranges[0, 0] == 0 and ranges[0, 1] == n_rows
    if not (same.all() and whole and (ranges[:, 0] < ranges[:, 1]).all()):
        raise ValueError("the nodes of a tree do not share the rows of their parents")
    level, depth = np.zeros(1, np.int64), 0
    while len(level):
        below = children[level]
        level, depth = below[below != LEAF], depth + 1
        if depth > DEEPEST:
            raise ValueError(f"a tree has more than {DEEPEST} levels")


@dataclass(frozen=True)
class BallTree:
    """f(x) = Σ_i α_i K(x, x_i) + b, by bounds.

    support    float32 (s, n_features), scaled, in the order of the tree
    dual       float32 (s, n_outputs), α
    intercept  float64 (n_outputs,)
    counted    float64 (1,), multiplications of a training row
    """

    kernel: Kernel
    support: SingleArray
    dual: SingleArray
    intercept: FloatArray
    nodes: Nodes
    counted: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.support.shape[1], len(self.intercept)

    def decision(self, X: RowArray) -> FloatArray:
        lower, upper, _ = self.bounds(X)
        return (lower + upper) / 2

    def bounds(self, X: RowArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Where the search ended: lower and upper bounds of f(x), each (n, n_outputs), and the
        multiplications of each row.
        """
        lower, upper = np.empty((len(X), len(self.intercept))), np.empty((len(X), len(self.intercept)))
        spent = np.zeros(len(X))
        positive = self.nodes.sums(np.maximum(self.dual, 0))
        negative = self.nodes.sums(np.minimum(self.dual, 0))
        step = max(BLOCK_VALUES // max(len(self.nodes.ranges), self.support.shape[1], 1), 1)
        for at in range(0, len(X), step):
            own = slice(at, at + step)
            search = _Search(self, X[own].astype(np.float64), positive, negative)
            search.run()
            lower[own], upper[own], spent[own] = search.lower, search.upper, search.spent
        return lower, upper, spent

    @property
    def multiplications(self) -> float:
        return float(self.counted[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = kernel_arrays(self.kernel)
        own |= {"support": self.support, "dual": self.dual, "intercept": self.intercept}
        own |= {"children": self.nodes.children, "ranges": self.nodes.ranges}
        return own | {"counted": self.counted}


class _Search:
    """The bounds of a block of rows, float64 (n, n_features)."""

    def __init__(self, machine: BallTree, X: FloatArray, positive: FloatArray, negative: FloatArray) -> None:
        self.machine, self.X, self.positive, self.negative = machine, X, positive, negative
        n, m = len(X), len(machine.nodes.ranges)
        self.lower = np.tile(machine.intercept, (n, 1))
        self.upper = self.lower.copy()
        self.summed = self.lower.copy()  # b and the exact sums of leaves
        self.slack = ROUNDING * float(np.abs(machine.dual).sum(axis=0, dtype=np.float64).max(initial=0.0))
        self.spent = np.zeros(n)
        self.least = np.zeros((n, m))  # K_min of the balls that a row has
        self.spread = np.zeros((n, m))  # K_max − K_min of these, and 0 for the others
        self.held = np.zeros((n, m), bool)

    def run(self) -> None:
        if not self.held.size:
            return
        self._add(0, np.arange(len(self.X)))
        rows = self._unsure(np.arange(len(self.X)))
        done = 0
        while len(rows):
            gaps = self._gaps(rows)
            replaced = self.held[rows]
            if done < ROUNDS:
                replaced &= gaps >= SHARE * gaps.max(axis=1, keepdims=True)
            for node in np.flatnonzero(replaced.any(axis=0)):
                self._replace(int(node), rows[replaced[:, node]])
            done += 1
            rows = self._unsure(rows)
        # Bounds that were added and taken away leave rounding; sums of all leaves do not have it.
        whole = ~self.held.any(axis=1)
        self.lower[whole] = self.upper[whole] = self.summed[whole]

    def _unsure(self, rows: IntArray) -> IntArray:
        """Those whose class is not sure, and that have a ball that can be replaced."""
        rows = rows[self.held[rows].any(axis=1)]
        lower, upper = self.lower[rows], self.upper[rows]
        if lower.shape[1] == 1:
            sure = (lower[:, 0] > self.slack) | (upper[:, 0] < -self.slack)
        else:
            others = upper.copy()
            first = lower.argmax(axis=1)
            at = np.arange(len(rows))
            others[at, first] = -np.inf
            sure = lower[at, first] > others.max(axis=1) + 2 * self.slack
        return rows[~sure]

    def _gaps(self, rows: IntArray) -> FloatArray:
        """Gaps of the balls of rows, of the outputs that may be the largest, (len(rows), m)."""
        size = self.positive - self.negative
        if size.shape[1] == 1:
            return self.spread[rows] * size[:, 0]
        may = self.upper[rows] >= self.lower[rows].max(axis=1, keepdims=True)
        return np.asarray(self.spread[rows] * (may @ size.T))

    def _add(self, node: int, rows: IntArray) -> None:
        """The bounds of a ball, for rows that have it from now on."""
        nodes, kernel, n_features = self.machine.nodes, self.machine.kernel, self.X.shape[1]
        r, R = nodes.distances(self.X[rows], node), nodes.radius[node]
        least = kernel.of_distance(r + R)
        spread = np.maximum(kernel.of_distance(np.maximum(r - R, 0.0)) - least, 0.0)
        self.least[rows, node], self.spread[rows, node], self.held[rows, node] = least, spread, True
        self._move(node, rows, 1.0)
        self.spent[rows] += n_features + 2 * OF_KERNEL + 4 * self.lower.shape[1]

    def _move(self, node: int, rows: IntArray, sign: float) -> None:
        """Adds the bounds of a ball to those of rows, or takes them away."""
        P, N = sign * self.positive[node], sign * self.negative[node]
        least = self.least[rows, node][:, None]
        most = least + self.spread[rows, node][:, None]
        self.lower[rows] += P * least + N * most
        self.upper[rows] += P * most + N * least

    def _replace(self, node: int, rows: IntArray) -> None:
        machine = self.machine
        self._move(node, rows, -1.0)
        self.spread[rows, node], self.held[rows, node] = 0.0, False
        if machine.nodes.children[node, 0] != LEAF:
            for child in machine.nodes.children[node]:
                self._add(int(child), rows)
            return
        own = machine.nodes.rows(node)
        part, dual = machine.support[own], machine.dual[own].astype(np.float64)
        value = machine.kernel(self.X[rows], part) @ dual
        self.lower[rows] += value
        self.upper[rows] += value
        self.summed[rows] += value
        self.spent[rows] += part.size + dual.size + OF_KERNEL * len(part)


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> BallTree:
    machine = exact.of_arrays(arrays)
    children, ranges, counted = taken(
        arrays, children=("int64", 2), ranges=("int64", 2), counted=("float64", 1)
    )
    if kernel_of(arrays).name != "rbf" or counted.shape != (1,) or counted[0] < 0:
        raise ValueError("a ball tree has another kernel than rbf, or no count of multiplications")
    nodes = nodes_of(machine.support, children, ranges)
    return BallTree(machine.kernel, machine.support, machine.dual, machine.intercept, nodes, counted)


def measured_rows(X: SingleArray) -> SingleArray:
    """Training rows whose multiplications are counted, spread over all."""
    return X[:: -(-len(X) // MEASURED_ROWS)]


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> BallTree:
    """A tree over the support vectors of the local machine, with at most machine_size in a leaf."""
    whole = exact.fit(rows, kernel, settings, seed)
    order, children, ranges = grown(whole.support, settings.machine_size)
    support, dual = whole.support[order], whole.dual[order]
    nodes = nodes_of(support, children, ranges)
    tree = BallTree(kernel, support, dual, whole.intercept, nodes, np.zeros(1))
    spent = tree.bounds(measured_rows(rows.X))[2]
    return BallTree(kernel, support, dual, whole.intercept, nodes, np.array([spent.mean()]))
