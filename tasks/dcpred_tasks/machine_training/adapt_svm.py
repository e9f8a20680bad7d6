"""How support vectors are divided into the groups of AdaptSVM and GroupSVM."""

from dataclasses import replace

import numpy as np

from dcpred_tasks.dtypes import INDEX_DTYPE, MODEL_DTYPE, IntArray, SingleArray
from dcpred_tasks.machine_training import exact
from dcpred_tasks.machines.adapt_svm import AdaptSVM, Groups
from dcpred_tasks.machines.exact import Exact
from dcpred_tasks.machines.group_moments import Moments, group_moments
from dcpred_tasks.model.kernels import Kernel, squared_distances
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_fitting import k_means

LOOKED_AT = 500  # training rows that v is estimated from, and whose multiplications are counted


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
    machine = AdaptSVM(whole, groups, moments, np.array([settings.machine_tolerance]), np.zeros(1))
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
