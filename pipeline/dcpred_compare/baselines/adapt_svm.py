"""AdaptSVM and GroupSVM: the exact model by groups of its support vectors.

Cossalter, Yan and Zheng, "Adaptive kernel approximation for large-scale non-linear SVM prediction" (ICML
2011). The support vectors of an output are divided into groups with one sign of α each. A group, with
α_g = Σ_{i∈g} α_i and μ_g = Σ_{i∈g} α_i x_i / α_g (algorithm 1 leaves out the division), adds to f(x)

    adapt_svm   α_g E_g[f]                where Var_g[f] < τ E_g[f]²  (moments are below),
                Σ_{i∈g} α_i K(x, x_i)     elsewhere;
    group_svm   α_g K(x, μ_g).

A row falls back to the exact sum of a group where Var_g[f] ≥ τ E_g[f]², which is at squared distances d² of
log(1 + τ) / (4 γ² v) and more: where the group is wide along the way to the row, or the kernel is narrow, or
τ is small. With τ = 0 it always does. τ is the tolerance.

The paper has τ = 1000 in most figures, and 0.5 to 500 in figure 6, where 0.5 leaves no group approximated.
That τ is of another unit: theorem 1 bounds the variance by a sum over N points without the factor 1/N, and N
is not given. Here τ bounds the variance itself; a comparison tries 0.001 and 1000.

Where the method fails: f(x) is the difference of the sums of both signs, and the condition bounds the error
of a group relative to its own sum, not to that difference. On magic (10 features, 7,500 rows, γ = 1/10,
C = 10) the sum of each sign is 4,593, and |f(x)| is 1.3 (medians): an error of 0.03 % of a sum changes a
decision. The sums are off by 0.6 to 7 % (256 to 2 groups), since assumption 1 does not hold: the largest
‖x − μ‖ of a group is 2 to 16 times the smallest one. Right are 37 to 75 % of 2,500 rows with τ = 1000, 42 to
75 % with τ = 0.5, 81 to 88 % with τ = 0.01, and 87.5 % with τ = 0.001, as by the exact model; there 99.5 %
of the vectors or more are computed exactly. GroupSVM, which has no such fallback, has 43 to 62 %. The actual
spread of ‖x − μ‖ in both moments, in place of assumption 1, needs a τ of 0.003 to 0.1 (2026-11-26).

What is ours: groups are found by k-means, weighted by |α| (the paper has single-linkage clustering, and says
that any may be used; on one set it made many groups of one vector); r² and v = σ² r² are estimated group by
group, where the paper has one λ for a data set.

Mean and variance of a kernel value over a group are those of section 2.1. A group has the mean μ; d = ‖μ − z‖
is the distance of a row z from it. Of its vectors x, drawn with their weights, ‖x − μ‖ is always r
(assumption 1), and cos θ between μ − z and x − μ is normal with mean 0 and variance σ² = λ/K (assumption 2):

    ‖x − z‖² = d² + r² + 2 d y,   y = r cos θ normal with variance v = σ² r².

The Gaussian integral E exp(−2γ d y) = exp(2 γ² d² v) gives, with u = 2 γ² d² v and nothing left out,

    E[f]        = exp(−γ (d² + r²) + u)
    Var[f]/E²   = exp(2u) − 1.

Theorem 1 has instead a sum of N terms for an integral over β, of the third order in σ² d²; its limit for many
terms and orders is E[f] here. What is printed differs from the derivation at these places:

    γ_n        has r, where the integral gives r²  (the appendix has r²)
    A_n1..A_n3 lack the factors ρ, ρ², ρ³          (the appendix has them, but lacks d², d⁴, d⁶)
    A_n3       has −4/3 ρ⁴ r_n⁸, where the integral gives −8/3 ρ⁴ r_n⁸
    V          lacks the factor r²/N; with it, d² e^(−2ρd²) V is not below the first order of Var[f] in σ²
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    INDEX_DTYPE,
    MODEL_DTYPE,
    FloatArray,
    IntArray,
    RealArray,
    SingleArray,
)
from dcpred_tasks.model.exact import OF_KERNEL, Centring, Exact, blocks, is_single
from dcpred_tasks.model.kernels import Kernel, RowArray, squared_distances
from dcpred_tasks.model.packed_arrays import kernel_arrays, kernel_of, taken
from dcpred_tasks.row_sampling import at_most
from dcpred_tasks.training.clusters import k_means

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

OF_MOMENTS = 5  # multiplications for E and Var of a group beside its distance and its exponential
UNSURE = 4e-6  # share of what a squared distance is summed of that it may be off, in single precision
FAR = 1e30  # a squared distance beyond all others
LOOKED_AT = 500  # training rows that v is estimated from, and whose multiplications are counted


@dataclass(frozen=True)
class Moments:
    """What a group has beside its mean, for each of g groups.

    radius  float64 (g,), r²
    along   float64 (g,), v
    """

    radius: FloatArray
    along: FloatArray

    def exponents(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        """log E[f] as a function of the squared distance: factors of d², and what is added, (g,) each."""
        return np.asarray(2.0 * gamma * gamma * self.along - gamma), np.asarray(-gamma * self.radius)

    def mean(self, gamma: float, d2: FloatArray) -> FloatArray:
        """E[f] at squared distances d², (n, g), at most 1 as each value of f, also at a large variance."""
        factors, offset = self.exponents(gamma)
        return np.asarray(np.exp(np.minimum(d2 * factors + offset, 0.0)))

    def farthest(self, gamma: float, tolerance: float) -> FloatArray:
        """d² from which on Var[f] ≥ tolerance · E[f]², (g,); at most 1e30."""
        rate = 4.0 * gamma * gamma * self.along  # log(1 + Var[f]/E[f]²), for each d²
        limit = np.full(len(rate), FAR if tolerance > 0 else 0.0)
        with np.errstate(over="ignore"):
            np.divide(np.log1p(tolerance), rate, out=limit, where=rate > 0)
        return np.asarray(np.minimum(limit, FAR))


def group_moments(
    vectors: RealArray, weight: FloatArray, mean: RealArray, looked_at: RealArray
) -> tuple[float, float]:
    """r² and v of a group: weighted means of ‖x − μ‖², and of y² in the directions of the given rows."""
    share = weight / weight.sum()
    middle = mean.astype(np.float64)
    off, to = vectors - middle, middle - looked_at
    radius = float(share @ np.einsum("ij,ij->i", off, off))
    d2 = np.einsum("ij,ij->i", to, to)
    away = d2 > 0
    if not away.any() or radius == 0:
        return radius, 0.0
    projected = off @ (to[away] / np.sqrt(d2[away])[:, None]).T
    return radius, float((share @ projected**2).mean())


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

    def vectors_of(self, group: int) -> IntArray:
        start = int(self.ends[group - 1]) if group else 0
        return self.members[start : int(self.ends[group])]

    def dual(self, n_outputs: int) -> FloatArray:
        """The weight of each group in the column of its output, (g, n_outputs)."""
        out = np.zeros((len(self.output), n_outputs))
        out[np.arange(len(self.output)), self.output] = self.weight
        return out


@dataclass(frozen=True)
class AdaptSVM:
    """The exact model, and what stands for it where the variance allows it.

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

    def predict(self, X: RowArray) -> FloatArray:
        out = np.empty((len(X), len(self.whole.intercept)))
        for block in self._blocks(len(X)):
            out[block] = self._of_block(X[block])
        return out

    def sizes(self, X: RowArray) -> FloatArray:
        """Sums of the same with magnitudes of weights, times 1 + the size of an exponent / 4."""
        groups = replace(self.groups, weight=np.abs(self.groups.weight))
        whole = replace(self.whole, dual=np.abs(self.whole.dual), intercept=np.zeros(self.shape[1]))
        sums = replace(self, whole=whole, groups=groups).predict(X.astype(ACC_DTYPE)).max(axis=1)
        away, vectors = X - self._centring.middle, self.whole.support - self._centring.middle
        reach = np.einsum("ij,ij->i", away, away) + (vectors**2).sum(axis=1).max(initial=0.0)
        return np.asarray(sums * (1 + self.whole.kernel.gamma * reach / 4))

    def exact_share(self, X: RowArray) -> FloatArray:
        """The share of rows for which a group is computed exactly, (g,)."""
        total = np.zeros(len(self.groups.output))
        for block in self._blocks(len(X)):
            d2 = self._distances(self._centring.rows(X[block].astype(ACC_DTYPE)))
            total += (d2 >= self._farthest).sum(axis=0)
        return total / max(len(X), 1)

    @property
    def cost(self) -> float:
        return float(len(self.groups.output) * self._of_vector(OF_MOMENTS) + self.counted[0])

    def count(self, X: RowArray) -> float:
        """Multiplications of a row of X, in the mean, for groups that are computed exactly."""
        return float(self.exact_share(X) @ self.groups.sizes * self._of_vector(1))

    def _of_vector(self, more: int) -> int:
        return int(self.whole.support.shape[1]) + OF_KERNEL + more

    def _blocks(self, n_rows: int) -> Iterator[slice]:
        return blocks(n_rows, max(len(self.groups.output), int(self.groups.sizes.max(initial=1))))

    def _of_block(self, X: RowArray) -> FloatArray:
        """In single precision, rows that are not sure to be within the limit of a group get NaN."""
        groups, dtype = self.groups, X.dtype
        rows = self._centring.rows(X)
        d2 = self._distances(rows)
        farthest, factors, offset = (a.astype(dtype) for a in (self._farthest, *self._exponents))
        beyond = d2 >= farthest
        out = self._exact_sums(rows, beyond)
        if is_single(X):
            near = np.abs(d2 - farthest) <= dtype.type(UNSURE) * (rows[:, -2:-1] + self._norms)
            out[near.any(axis=1)] = np.nan
        d2 *= factors
        d2 += offset
        np.exp(np.minimum(d2, 0, out=d2), out=d2)
        d2[beyond] = 0
        out += d2 @ groups.dual(len(self.whole.intercept)).astype(dtype)
        return out + self.whole.intercept

    def _exact_sums(self, rows: RealArray, beyond: NDArray[np.bool_]) -> FloatArray:
        """Σ α K of the groups that are beyond their limit, (n, n_outputs)."""
        out = np.zeros((len(rows), len(self.whole.intercept)))
        for group in np.flatnonzero(beyond.any(axis=0)):
            vectors, alpha, output = self._laid_out(int(group), rows.dtype)
            some = np.flatnonzero(beyond[:, group])
            t = rows[some] @ vectors
            out[some, output] += np.exp(t, out=t) @ alpha
        return out

    def _laid_out(self, group: int, dtype: Any) -> tuple[RealArray, RealArray, int]:
        """Vectors and α of a group as rows are multiplied with them, and its output."""
        if (group, dtype) not in self._layouts:
            members, output = self.groups.vectors_of(group), int(self.groups.output[group])
            vectors = self._centring.points(self.whole.support[members], -self.whole.kernel.gamma, dtype)
            self._layouts[group, dtype] = vectors, self.whole.dual[members, output].astype(dtype), output
        return self._layouts[group, dtype]

    @cached_property
    def _layouts(self) -> dict[tuple[int, Any], tuple[RealArray, RealArray, int]]:
        return {}

    @cached_property
    def _centring(self) -> Centring:
        return Centring(self.whole.support)

    def _distances(self, rows: RealArray) -> RealArray:
        """Squared distances from the means, (n, g)."""
        return np.asarray(np.maximum(rows @ self._means[rows.dtype.name], 0))

    @cached_property
    def _means(self) -> dict[str, RealArray]:
        return {
            np.dtype(dtype).name: self._centring.points(self.groups.mean, 1.0, dtype)
            for dtype in (MODEL_DTYPE, ACC_DTYPE)
        }

    @cached_property
    def _norms(self) -> SingleArray:
        off = self.groups.mean - self._centring.middle
        return np.asarray(np.einsum("ij,ij->i", off, off))

    @cached_property
    def _exponents(self) -> tuple[FloatArray, FloatArray]:
        return self.moments.exponents(self.whole.kernel.gamma)

    @cached_property
    def _farthest(self) -> FloatArray:
        return self.moments.farthest(self.whole.kernel.gamma, float(self.tolerance[0]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = kernel_arrays(self.whole.kernel)
        arrays |= {"vectors": self.whole.support, "alpha": self.whole.dual, "intercept": self.whole.intercept}
        arrays |= {key: getattr(self.groups, key) for key in ("output", "members", "ends", "mean", "weight")}
        arrays |= {"radius": self.moments.radius, "along": self.moments.along}
        return arrays | {"tolerance": self.tolerance, "counted": self.counted}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> AdaptSVM:
    vectors, alpha, intercept = taken(
        arrays, vectors=("float32", 2), alpha=("float32", 2), intercept=("float64", 1)
    )
    kernel = kernel_of(arrays)
    if alpha.shape != (len(vectors), len(intercept)) or kernel.name != "rbf":
        raise ValueError("a model of groups has other weights than vectors, or another kernel than rbf")
    groups = _groups_of(arrays, vectors.shape, len(intercept))
    radius, along, tolerance, counted = taken(
        arrays, radius=("float64", 1), along=("float64", 1), tolerance=("float64", 1), counted=("float64", 1)
    )
    if radius.shape != groups.ends.shape or along.shape != radius.shape:
        raise ValueError("a model of groups has other moments than groups")
    if tolerance.shape != (1,) or counted.shape != (1,):
        raise ValueError("a model of groups has no tolerance, or no count of multiplications")
    if any((value < 0).any() for value in (radius, along, tolerance, counted)):
        raise ValueError("a model of groups has a moment, a tolerance or a count below zero")
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


def fit(
    kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int
) -> AdaptSVM | Exact:
    """The exact model of the leaf, in kind.size groups for each output."""
    from dcpred_tasks.training.solvers import fit_exact

    whole = fit_exact(rows, kernel, settings)
    groups = grouped(whole, kind.size, np.random.default_rng([settings.seed, seed]))
    if kind.name == "group_svm":
        dual = groups.dual(len(whole.intercept)).astype(MODEL_DTYPE)
        return Exact(kernel, groups.mean, dual, whole.intercept)
    looked_at = rows.X[at_most(len(rows.X), LOOKED_AT)]
    numbers = np.zeros((len(groups.output), 2))
    for group, output in enumerate(groups.output):
        members = groups.vectors_of(group)
        weight = np.abs(whole.dual[members, output].astype(np.float64))
        numbers[group] = group_moments(whole.support[members], weight, groups.mean[group], looked_at)
    moments = Moments(numbers[:, 0].copy(), numbers[:, 1].copy())
    fitted = AdaptSVM(whole, groups, moments, np.array([kind.tolerance]), np.zeros(1))
    return replace(fitted, counted=np.array([fitted.count(looked_at)]))


def grouped(whole: Exact, size: int, rng: np.random.Generator) -> Groups:
    """`size` / 2 groups of each sign and output, at least one, and fewer where there are fewer vectors."""
    output, parts = [], []
    for column in range(len(whole.intercept)):
        for sign in (1, -1):
            rows = np.flatnonzero(sign * whole.dual[:, column] > 0)
            groups = _parts(whole.support[rows], np.abs(whole.dual[rows, column]), max(size // 2, 1), rng)
            parts += [rows[part] for part in groups]
            output += [column] * len(groups)
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
