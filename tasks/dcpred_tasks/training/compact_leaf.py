"""The compact model of one leaf: landmarks, pseudo-landmarks, and the output weights (Hsieh et al. 2014,
algorithm 2).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis, sample_pairs, triangle_distances
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.expansion import Expansion, best_weights, nearest
from dcpred_tasks.training.local_machine import ABSENT, LeafRows, labellings, local_sample
from dcpred_tasks.training.losses import DISTANCE, loss_from_settings
from dcpred_tasks.training.nystrom import nystrom_root
from dcpred_tasks.training.refinement import Goal, refine
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import DualSolution, joint_ridge, linear_ridge, linear_svm
from dcpred_tasks.training.tree_fitting import k_means

Pick = Callable[[SingleArray, FloatArray, FloatArray, Settings, int], SingleArray]

GUIDED_ROWS = 8_000  # rows whose kernel values with all support vectors are held at a time
UNSEEN = -10.0  # initial intercept of a class without rows in the local SVM
NYSTROM_ROWS = 500  # rows of a leaf that the Nyström approximation is computed from (equation 5)
START_RIDGE = 1e-4  # ridge of the least-squares fit that refinement starts from


def fit_compact(
    rows: LeafRows,
    local: DualSolution,
    local_kernel: Kernel,
    kernel: Kernel,
    settings: Settings,
    seed: int,
    pick: Pick,
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """The basis, β (basis size, n_outputs) and intercepts (n_outputs,), from the rows and their local SVM.
    `pick` is pick_landmarks, or returns its earlier result.
    """
    rng = np.random.default_rng([settings.seed, seed])
    weight = rows.compact_weight()
    seen = local_sample(len(rows.X), settings)
    landmarks = pick(rows.X[seen], local.dual[seen], weight[seen], settings, seed)
    basis = _basis(rows.X[seen], landmarks, kernel, settings, rng)
    if not settings.refine:
        return basis, *_head(rows, weight, basis, settings, rng)
    return _refined(rows, weight, local, local_kernel, basis, settings, seed)


def pick_landmarks(
    X: SingleArray, dual: FloatArray, weight: FloatArray, settings: Settings, seed: int
) -> SingleArray:
    """Landmarks by k-means with weights α², summed over outputs (theorem 3).

    A share of uniform weight places some landmarks away from the border, where α² is zero. The start of
    refined landmarks hardly matters (DECISIONS.md).
    """
    size = float(np.abs(dual).max(initial=0.0))
    # A power of two, divided out first, keeps squares from overflowing.
    alpha2 = ((dual / 2.0 ** np.floor(np.log2(size)) if 0 < size < np.inf else dual) ** 2).sum(axis=1)
    floor = settings.landmark_floor if (alpha2 * weight).any() else 1.0
    importance = (1.0 - floor) * alpha2 / (alpha2.mean() or 1.0) + floor
    importance *= weight / weight.max()
    some = importance > 0
    start: Literal["random", "k-means++"] = "random" if settings.refine else "k-means++"
    return k_means(X[some], settings.landmarks, settings.seed + seed, importance[some], start)


def _basis(
    X: SingleArray, landmarks: SingleArray, kernel: Kernel, settings: Settings, rng: np.random.Generator
) -> LeafBasis:
    """Landmarks and pseudo-landmarks."""
    pairs = sample_pairs(len(landmarks), settings.products, rng)
    points = X[np.sort(rng.permutation(len(X))[: settings.triangle])]
    return LeafBasis(
        kernel,
        settings.triangle_bound,
        landmarks,
        np.full(len(landmarks), kernel.gamma, MODEL_DTYPE),
        pairs,
        triangle_distances(kernel, points, landmarks),
    )


def _head(
    rows: LeafRows, weight: FloatArray, basis: LeafBasis, settings: Settings, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """β = W̄^½ w of the linear SVM trained on Z = C̄ W̄^½."""
    X = rows.X
    C_bar = basis(X)
    sample = np.sort(rng.permutation(len(X))[:NYSTROM_ROWS])
    R = nystrom_root(C_bar[sample], basis.kernel(X[sample], X[sample]))
    Z = C_bar @ R
    if rows.task == "regression":
        w, b = linear_ridge(Z, rows.target.astype(np.float64), weight, settings.ridge)
        return (R @ w)[:, None], np.array([b])
    beta, intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    for output, sign in labellings(rows):
        w, intercept[output] = linear_svm(Z, sign, weight, settings.head_C or settings.C)
        beta[:, output] = R @ w
    return beta, intercept


def _refined(
    rows: LeafRows,
    weight: FloatArray,
    local: DualSolution,
    local_kernel: Kernel,
    basis: LeafBasis,
    settings: Settings,
    seed: int,
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """Landmarks, their γ and β, moved together; β begins as a least-squares fit.

    A least-squares start is better and faster than the Nyström solution of `_head`, whose output weights are
    large and cancel (DECISIONS.md).
    """
    share = weight / weight.max()  # The sum of the weights may be infinite.
    share /= share.sum()
    loss = loss_from_settings(settings)
    if rows.task == "regression":
        value = rows.target.astype(np.float64)
        value, mean, spread = loss.standardised(value, share)
        outputs, target = np.array([0]), value[:, None]
    else:
        mean, spread = 0.0, 1.0
        problems = labellings(rows)
        outputs, target = (
            np.array([output for output, _ in problems]),
            np.stack([sign for _, sign in problems], axis=1),
        )
    machine = _expansion(rows.X, local, local_kernel, outputs) if settings.loss == DISTANCE else None
    guide = target
    if settings.guide > 0 and rows.task != "regression":
        guide = _local_values(rows.X, local, local_kernel)[:, outputs]
    if machine is None:
        loss, (beta, intercept) = loss.settled(target, share, partial(_least_squares, basis, rows.X))
    else:
        basis, beta = _nearest(basis, machine, settings.refine_steps)
        intercept = np.maximum(local.intercept[outputs], UNSEEN)
    single = [a.astype(MODEL_DTYPE) for a in (target, guide, share)]
    goal = Goal(single[0], single[1], settings.guide, single[2], loss)
    basis, beta, intercept = refine(rows.X, basis, beta, intercept, goal, settings, seed, machine)
    every_beta, every_intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    every_beta[:, outputs], every_intercept[outputs] = beta * spread, intercept * spread + mean
    return basis, every_beta, every_intercept


def _least_squares(
    basis: LeafBasis, X: SingleArray, target: FloatArray, weight: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], Callable[[], FloatArray]]:
    """β and intercepts of the ridge regression that refinement starts from, and its values."""
    beta, intercept = joint_ridge(lambda part: basis(X[part]), target, weight, START_RIDGE)
    return (beta, intercept), lambda: basis(X) @ beta + intercept


def _expansion(X: SingleArray, local: DualSolution, kernel: Kernel, outputs: IntArray) -> Expansion | None:
    """The local SVM as a kernel expansion; None without support vectors, or where they cancel."""
    used = np.flatnonzero(local.dual.any(axis=1))
    points, weights = X[used].astype(np.float64), local.dual[np.ix_(used, outputs)].astype(np.float64)
    machine = Expansion(kernel, points, weights)
    return None if machine.cancels else machine


def _nearest(basis: LeafBasis, machine: Expansion, steps: int) -> tuple[LeafBasis, FloatArray]:
    """Landmarks near the local SVM, and their best weights."""
    landmarks = nearest(machine, basis.landmarks.astype(np.float64), steps).astype(MODEL_DTYPE)
    return replace(basis, landmarks=landmarks), best_weights(machine, landmarks.astype(np.float64))


def _local_values(X: SingleArray, local: DualSolution, kernel: Kernel) -> FloatArray:
    """Decision values of the local SVM, (n, k)."""
    used = np.flatnonzero(local.dual.any(axis=1))
    support, dual = X[used], local.dual[used]
    parts = [kernel(X[at : at + GUIDED_ROWS], support) @ dual for at in range(0, len(X), GUIDED_ROWS)]
    return np.concatenate(parts) + local.intercept
