"""AdaptSVM and GroupSVM: the exact machine by groups of its support vectors.

Cossalter, Yan and Zheng, "Adaptive kernel approximation for large-scale non-linear SVM prediction" (ICML
2011). The support vectors of an output are divided into groups with one sign of α each. A group, with
α_g = Σ_{i∈g} α_i and μ_g = Σ_{i∈g} α_i x_i / α_g (algorithm 1 leaves out the division), adds to f(x)

    adapt_svm   α_g E_g[f]                where Var_g[f] < τ E_g[f]²  (dcpred_tasks.machines.group_moments),
                Σ_{i∈g} α_i K(x, x_i)     elsewhere;
    group_svm   α_g K(x, μ_g).

What is ours: groups are found by k-means, weighted by |α| (the paper has single-linkage clustering, and says
that any may be used; on one set it made many groups of one vector); r² and v = σ² r² are estimated group by
group, where the paper has one λ for a data set; and τ. The paper has τ = 1000 in most figures, and 0.5 to 500
in figure 6, for another bound of the variance; ours is the variance itself, and τ the least of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.machines import exact
from dcpred_tasks.machines.exact import OF_KERNEL, Exact
from dcpred_tasks.machines.group_moments import Moments, group_moments
from dcpred_tasks.model.kernels import Kernel, RowArray, squared_distances
from dcpred_tasks.model.machine import kernel_arrays, kernel_of, taken
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_fitting import k_means

TOLERANCE = 0.5  # τ
OF_MOMENTS = 5  # multiplications for E and Var of a group beside its distance and its exponential
LOOKED_AT = 500  # training rows that v is estimated from, and whose multiplications are counted
BLOCK_VALUES = 2**22  # values for rows and vectors that are held at a time


@dataclass(frozen=True)
class Groups:
    """Groups of the support vectors of all outputs.

    output   int64 (g,), whose f(x) a group belongs to
    members  int64 (m,), numbers of support vectors, group by group
    ends     int64 (g,), where in `members` a group ends; none is empty
    mean     float32 (g, n_features), μ
    weight   float64 (g,), the sum of its α
    """

    output: IntArray
    members: IntArray
    ends: IntArray
    mean: SingleArray
    weight: FloatArray

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.ends, prepend=0)

    def own(self, group: int) -> IntArray:
        start = int(self.ends[group - 1]) if group else 0
        return self.members[start : int(self.ends[group])]

    def dual(self, n_outputs: int) -> FloatArray:
        """The weight of each group in the column of its output, (g, n_outputs)."""
        out = np.zeros((len(self.output), n_outputs))
        out[np.arange(len(self.output)), self.output] = self.weight
        return out


@dataclass(frozen=True)
class AdaptSVM:
    """The exact machine, and what stands for it where the variance allows it.

    tolerance  float64 (1,), τ
    counted    float64 (1,), multiplications of a training row for groups that are computed exactly
    """

    whole: Exact
    groups: Groups
    moments: Moments
    tolerance: FloatArray
    counted: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.whole.shape

    def decision(self, X: RowArray) -> FloatArray:
        out = np.empty((len(X), len(self.whole.intercept)))
        for own in self._blocks(len(X)):
            out[own] = self._of_block(X[own])
        return out

    def exact_share(self, X: RowArray) -> FloatArray:
        """The share of rows for which a group is computed exactly, (g,)."""
        total = np.zeros(len(self.groups.output))
        for own in self._blocks(len(X)):
            total += self._beyond(squared_distances(X[own], self.groups.mean)).sum(axis=0)
        return total / max(len(X), 1)

    @property
    def multiplications(self) -> float:
        return float(len(self.groups.output) * self._of_vector(OF_MOMENTS) + self.counted[0])

    def count(self, X: RowArray) -> float:
        """Multiplications of a row of X, in the mean, for groups that are computed exactly."""
        return float(self.exact_share(X) @ self.groups.sizes * self._of_vector(1))

    def _of_vector(self, more: int) -> int:
        return int(self.whole.support.shape[1]) + OF_KERNEL + more

    def _blocks(self, n_rows: int) -> list[slice]:
        largest = int(self.groups.sizes.max(initial=1))
        step = max(BLOCK_VALUES // max(len(self.groups.output), largest, self.shape[0]), 1)
        return [slice(at, at + step) for at in range(0, n_rows, step)]

    def _beyond(self, d2: FloatArray) -> NDArray[np.bool_]:
        return self.moments.beyond(self.whole.kernel.gamma, d2, float(self.tolerance[0]))

    def _of_block(self, X: RowArray) -> FloatArray:
        whole, groups = self.whole, self.groups
        d2 = squared_distances(X, groups.mean)
        beyond = self._beyond(d2)
        value = self.moments.mean(whole.kernel.gamma, d2)
        value[beyond] = 0.0
        out: FloatArray = value @ groups.dual(len(whole.intercept)) + whole.intercept
        for group in np.flatnonzero(beyond.any(axis=0)):
            rows, members, output = (
                np.flatnonzero(beyond[:, group]),
                groups.own(int(group)),
                groups.output[group],
            )
            alpha = whole.dual[members, output].astype(np.float64)
            out[rows, output] += whole.kernel(X[rows], whole.support[members]) @ alpha
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = kernel_arrays(self.whole.kernel)
        own |= {"vectors": self.whole.support, "alpha": self.whole.dual, "intercept": self.whole.intercept}
        own |= {key: getattr(self.groups, key) for key in ("output", "members", "ends", "mean", "weight")}
        own |= {"radius": self.moments.radius, "along": self.moments.along}
        return own | {"tolerance": self.tolerance, "counted": self.counted}


def of_arrays(arrays: Mapping[str, NDArray[Any]]) -> AdaptSVM | Exact:
    """The machine of either name. GroupSVM is stored as an exact machine whose support vectors are μ_g."""
    if "support" in arrays:
        return exact.of_arrays(arrays)
    vectors, alpha, intercept = taken(
        arrays, vectors=("float32", 2), alpha=("float32", 2), intercept=("float64", 1)
    )
    kernel = kernel_of(arrays)
    if alpha.shape != (len(vectors), len(intercept)) or kernel.name != "rbf":
        raise ValueError("a machine of groups has other weights than vectors, or another kernel than rbf")
    groups = _groups_of(arrays, vectors.shape, len(intercept))
    radius, along, tolerance, counted = taken(
        arrays,
        radius=("float64", 1),
        along=("float64", 1),
        tolerance=("float64", 1),
        counted=("float64", 1),
    )
    if radius.shape != groups.ends.shape or along.shape != radius.shape:
        raise ValueError("a machine of groups has other moments than groups")
    if tolerance.shape != (1,) or counted.shape != (1,):
        raise ValueError("a machine of groups has no tolerance, or no count of multiplications")
    if any((value < 0).any() for value in (radius, along, tolerance, counted)):
        raise ValueError("a machine of groups has a moment, a tolerance or a count below zero")
    whole = Exact(kernel, vectors, alpha, intercept)
    return AdaptSVM(whole, groups, Moments(radius, along), tolerance, counted)


def _groups_of(arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...], n_outputs: int) -> Groups:
    output, members, ends, mean, weight = taken(
        arrays,
        output=("int64", 1),
        members=("int64", 1),
        ends=("int64", 1),
        mean=("float32", 2),
        weight=("float64", 1),
    )
    g = len(output)
    if ends.shape != (g,) or weight.shape != (g,) or mean.shape != (g, shape[1]):
        raise ValueError("groups have other means or weights than there are groups")
    # The ends are compared with each other before any difference of them is taken, which could overflow.
    rising = bool((ends[:-1] < ends[1:]).all()) and (g == 0 or ends[0] > 0)
    if not rising or (int(ends[-1]) if g else 0) != len(members):
        raise ValueError("groups do not share their members")
    for value, limit in ((output, n_outputs), (members, shape[0])):
        if ((value < 0) | (value >= limit)).any():
            raise ValueError("a group is of an output or of a vector that there is not")
    return Groups(output, members, ends, mean, weight)


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> AdaptSVM | Exact:
    """The local machine of the leaf, in machine_size groups for each output."""
    whole = exact.fit(rows, kernel, settings, seed)
    groups = grouped(whole, settings.machine_size, np.random.default_rng([settings.seed, seed]))
    if settings.other_machine == "group_svm":
        dual = groups.dual(len(whole.intercept)).astype(MODEL_DTYPE)
        return Exact(kernel, groups.mean, dual, whole.intercept)
    looked_at = rows.X[:: -(-len(rows.X) // LOOKED_AT)]
    found = np.zeros((len(groups.output), 2))
    for group, output in enumerate(groups.output):
        own = groups.own(group)
        weight = np.abs(whole.dual[own, output].astype(np.float64))
        found[group] = group_moments(whole.support[own], weight, groups.mean[group], looked_at)
    moments = Moments(found[:, 0].copy(), found[:, 1].copy())
    machine = AdaptSVM(whole, groups, moments, np.array([TOLERANCE]), np.zeros(1))
    return replace(machine, counted=np.array([machine.count(looked_at)]))


def grouped(whole: Exact, size: int, rng: np.random.Generator) -> Groups:
    """`size` / 2 groups of each sign and output, at least one, and fewer where there are fewer vectors."""
    output, parts = [], []
    for column in range(len(whole.intercept)):
        for sign in (1, -1):
            own = np.flatnonzero(sign * whole.dual[:, column] > 0)
            found = _parts(whole.support[own], np.abs(whole.dual[own, column]), max(size // 2, 1), rng)
            parts += [own[part] for part in found]
            output += [column] * len(found)
    mean = np.empty((len(parts), whole.support.shape[1]), MODEL_DTYPE)
    weight = np.empty(len(parts))
    for group, (column, part) in enumerate(zip(output, parts, strict=True)):
        alpha = whole.dual[part, column].astype(np.float64)
        weight[group] = alpha.sum()
        mean[group] = (alpha / weight[group]) @ whole.support[part].astype(np.float64)
    ends = np.cumsum([len(part) for part in parts], dtype=INDEX_DTYPE)
    members = np.concatenate([*parts, np.empty(0, INDEX_DTYPE)]).astype(INDEX_DTYPE)
    return Groups(np.array(output, INDEX_DTYPE), members, ends, mean, weight)


def _parts(X: SingleArray, weight: SingleArray, k: int, rng: np.random.Generator) -> list[IntArray]:
    """Rows of X in at most k parts, none empty, as numbers; the nearest of the weighted k-means centres."""
    if not len(X):
        return []
    if len(X) <= k:
        return [np.array([row]) for row in range(len(X))]
    centres = k_means(X, k, int(rng.integers(2**31)), weight.astype(np.float64))
    nearest = squared_distances(X, centres).argmin(axis=1)
    return [np.flatnonzero(nearest == part) for part in np.unique(nearest)]
