"""A tree of support vectors, gone down by each row as far as a bound on the error asks.

f(x) = Σ_i α_i K(x, x_i) + b is summed over the nodes at which the row stops. A node with the centroid c, its
support vectors within the radius R of it, stands for them as a·K(x, c) with a = Σ_node α_i. At r = ‖x − c‖,

    | Σ_node α_i K(x, x_i) − a K(x, c) | ≤ Σ_node |α_i| · max( K(max(r − R, 0)) − K(r), K(r) − K(r + R) ),

and the row stops where that maximum is at most ε, or at a leaf, which is summed exactly. So the error of an
output is at most ε · Σ_i |α_i|, for every row.

Ukkonen ("The support vector tree", Algorithms and Applications, LNCS 6060, 2010) has the idea that a tree
gives each row basis vectors of its own. His tree is learned of training rows by a greedy algorithm, and gives
no bound; his paper was not at hand. This tree is one of clusters of the support vectors, and is not his.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray, SingleArray
from dcpred_tasks.machines import exact
from dcpred_tasks.machines.ball_tree import LEAF, Nodes, grown, measured_rows, nodes_of
from dcpred_tasks.machines.exact import OF_KERNEL
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.machine import kernel_arrays, taken
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings

EPSILON = 0.02  # error of a kernel value
BLOCK_VALUES = 2**22  # values for rows and nodes, or rows and features, that are held at a time


@dataclass(frozen=True)
class SupportTree:
    """f(x) = Σ_stopped a K(x, c) + Σ_leaves α_i K(x, x_i) + b.

    support    float32 (s, n_features), scaled, in the order of the tree
    dual       float32 (s, n_outputs), α
    intercept  float64 (n_outputs,)
    epsilon    float64 (1,), ε
    counted    float64 (1,), multiplications of a training row
    """

    kernel: Kernel
    support: SingleArray
    dual: SingleArray
    intercept: FloatArray
    nodes: Nodes
    epsilon: FloatArray
    counted: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.support.shape[1], len(self.intercept)

    def decision(self, X: RowArray) -> FloatArray:
        return self.walked(X)[0]

    def walked(self, X: RowArray) -> tuple[FloatArray, FloatArray]:
        """Decision values (n, n_outputs), and the multiplications of each row."""
        out, spent = np.tile(self.intercept, (len(X), 1)), np.zeros(len(X))
        together = self.nodes.sums(self.dual)
        step = max(BLOCK_VALUES // max(len(self.nodes.ranges), self.support.shape[1], 1), 1)
        for at in range(0, len(X), step):
            own = slice(at, at + step)
            self._walk(X[own].astype(np.float64), together, out[own], spent[own])
        return out, spent

    def _walk(self, X: FloatArray, together: FloatArray, out: FloatArray, spent: FloatArray) -> None:
        """Adds to `out` and `spent` of a block of rows. A node comes after its parent, so that all rows that
        come to it are known.
        """
        here = np.zeros((len(self.nodes.ranges), len(X)), bool)
        here[:1] = True
        n_features, n_outputs = self.shape
        for node, children in enumerate(self.nodes.children):
            rows = np.flatnonzero(here[node])
            if not len(rows):
                continue
            value, error = self.of_node(X[rows], node)
            spent[rows] += n_features + 3 * OF_KERNEL
            stops = error <= self.epsilon[0]
            out[rows[stops]] += value[stops, None] * together[node]
            spent[rows[stops]] += n_outputs
            further = rows[~stops]
            if children[0] != LEAF:
                here[np.ix_(children, further)] = True
            elif len(further):
                part = self.support[self.nodes.rows(node)]
                dual = self.dual[self.nodes.rows(node)].astype(np.float64)
                out[further] += self.kernel(X[further], part) @ dual
                spent[further] += part.size + dual.size + OF_KERNEL * len(part)

    def of_node(self, X: FloatArray, node: int) -> tuple[FloatArray, FloatArray]:
        """K(x, c) of rows, and how far the kernel value of a support vector of the node may be from it."""
        r, R = self.nodes.distances(X, node), self.nodes.radius[node]
        value = self.kernel.of_distance(r)
        above = self.kernel.of_distance(np.maximum(r - R, 0.0)) - value
        return value, np.maximum(above, value - self.kernel.of_distance(r + R))

    @property
    def multiplications(self) -> float:
        return float(self.counted[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = kernel_arrays(self.kernel)
        own |= {"support": self.support, "dual": self.dual, "intercept": self.intercept}
        own |= {"children": self.nodes.children, "ranges": self.nodes.ranges}
        return own | {"epsilon": self.epsilon, "counted": self.counted}


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> SupportTree:
    machine = exact.of_arrays(arrays)
    children, ranges = taken(arrays, children=("int64", 2), ranges=("int64", 2))
    epsilon, counted = taken(arrays, epsilon=("float64", 1), counted=("float64", 1))
    if machine.kernel.name != "rbf":
        raise ValueError("a support tree has another kernel than rbf")
    if epsilon.shape != (1,) or epsilon[0] < 0 or counted.shape != (1,) or counted[0] < 0:
        raise ValueError("a support tree has no tolerance, or no count of multiplications")
    return _tree(machine.kernel, machine, (children, ranges), epsilon, counted)


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> SupportTree:
    """A tree over the support vectors of the local machine, with at most machine_size in a leaf."""
    whole = exact.fit(rows, kernel, settings, seed)
    order, children, ranges = grown(whole.support, settings.machine_size)
    whole = replace(whole, support=whole.support[order], dual=whole.dual[order])
    tree = _tree(kernel, whole, (children, ranges), np.array([EPSILON]), np.zeros(1))
    return replace(tree, counted=np.array([tree.walked(measured_rows(rows.X))[1].mean()]))


def _tree(
    kernel: Kernel,
    whole: exact.Exact,
    tree: tuple[NDArray[np.int64], NDArray[np.int64]],
    epsilon: FloatArray,
    counted: FloatArray,
) -> SupportTree:
    """The centroids are weighted with |α|, summed over the outputs."""
    nodes = nodes_of(whole.support, *tree, np.abs(whole.dual).sum(axis=1, dtype=np.float64))
    return SupportTree(kernel, whole.support, whole.dual, whole.intercept, nodes, epsilon, counted)
