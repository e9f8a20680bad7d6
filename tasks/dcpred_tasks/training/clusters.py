"""k-means of rows with weights: nodes of the tree and landmarks of leaves."""

from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.engine.compiler import with_compiler
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.training.refinement import machine_code
from dcpred_tasks.training.survey import equal_rows

Rows = TypeVar("Rows", bound=NDArray[np.floating])
Start = Literal["k-means++", "random"]

COMPILED = machine_code, "clusters of rows are searched by NumPy, which is slower"
STEPS = 50  # the most steps of Lloyd
STILL = 1e-4  # sum of the squared ways of centres after which they stay, in mean variances of a feature
LEAST_WEIGHT = 1e-30  # the least weight of a row, where the largest is 1


def merged(X: Rows, weight: FloatArray | None) -> tuple[Rows, FloatArray | None]:
    """Rows that differ, with the weight of all equal ones; None where all have the weight 1."""
    first, group = equal_rows(X.astype(MODEL_DTYPE, copy=False))
    if len(first) == len(X):
        return X, weight
    total = np.bincount(group, np.ones(len(X)) if weight is None else weight)
    return cast(Rows, X[first]), np.asarray(total, np.float64)


def k_means(
    X: NDArray[np.floating],
    k: int,
    seed: int,
    weight: NDArray[np.float64] | None = None,
    start: Start = "k-means++",
) -> SingleArray:
    """At most k distinct centres, float32 (≤ k, n_features): fewer where there are fewer distinct rows. Equal
    rows are one row of all their weight: copies of a row change nothing that its weight does not. The bits do
    not depend on the number of threads.

    start  where the centres begin: at rows drawn by weight, or by greedy k-means++
    """
    X, weight = merged(X, weight)
    rows = X.astype(MODEL_DTYPE, copy=False)
    if len(rows) <= k:
        return np.unique(rows, axis=0)
    share = np.ones(len(rows)) if weight is None else np.maximum(weight / weight.max(), LEAST_WEIGHT)
    given = (rows, share, k, _draws(len(rows), k, seed, start), STEPS, STILL)
    centres: FloatArray | None = with_compiler(*COMPILED, lambda compiled: compiled.clusters(*given))
    if centres is None:
        centres = definition(*given)
    if not np.isfinite(centres).all():
        raise DcpredError(
            "Cannot cluster rows: k-means gave a centre that is not finite. This is a bug; please report it."
        )
    return np.unique(centres.astype(MODEL_DTYPE), axis=0)


def _draws(n: int, k: int, seed: int, start: Start) -> FloatArray:
    """Between 0 and 1 for each centre and trial of k-means++; of rows drawn by weight exponential ones."""
    rng = np.random.default_rng(seed)
    return rng.random((k, 2 + int(np.log(k)))) if start == "k-means++" else rng.exponential(size=n)


def definition(
    X: SingleArray, weight: FloatArray, k: int, draws: FloatArray, steps: int, still: float
) -> FloatArray:
    """Lloyd's centres (k, n_features), as native/clusters.h finds them.

    draws  (k, trials) of greedy k-means++ (Arthur and Vassilvitskii 2007), or (n,) of rows that are drawn by
           weight: those of the k least draws over weights (Efraimidis and Spirakis 2006)
    """
    share = weight / weight.sum()
    middle = share @ X.astype(ACC_DTYPE)
    rows = X - middle
    weighted, square = rows * weight[:, None], np.einsum("ij,ij->i", rows, rows)
    if draws.ndim == 2:
        first = _plus_plus(rows, weight, draws)
    else:
        first = np.argpartition((draws / weight).astype(MODEL_DTYPE), k - 1)[:k]
    centres, label = rows[first], np.full(len(rows), -1)
    for _ in range(steps):
        nearest = (np.einsum("ij,ij->i", centres, centres) - 2.0 * rows @ centres.T).argmin(axis=1)
        if (nearest == label).all():
            break
        label = nearest
        order = np.argsort(label, kind="stable")
        some, begin = np.unique(label[order], return_index=True)
        moved = centres.copy()  # A centre without rows stays.
        moved[some] = np.add.reduceat(weighted[order], begin) / np.bincount(label, weight)[some][:, None]
        way, centres = float(((moved - centres) ** 2).sum()), moved
        if way <= still * float(share @ square) / X.shape[1]:
            break
    return np.asarray(centres + middle)


def _plus_plus(rows: FloatArray, weight: FloatArray, draws: FloatArray) -> IntArray:
    """Of some rows that are drawn for each centre, the one that leaves the least squares."""

    def drawn(sizes: FloatArray, shares: FloatArray) -> Any:
        sums = np.cumsum(sizes)
        return np.minimum(np.searchsorted(sums, shares * sums[-1]), len(sums) - 1)

    first: list[int] = []
    closest = np.full(len(rows), np.inf)
    for shares in draws:
        candidates = drawn(weight * closest, shares) if first else drawn(weight, shares[:1])
        nearer = [np.minimum(closest, ((rows - rows[row]) ** 2).sum(axis=1)) for row in candidates]
        best = int(np.argmin([weight @ squares for squares in nearer]))
        first.append(int(candidates[best]))
        closest = nearer[best]
    return np.array(first)
