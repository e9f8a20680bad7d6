"""Train one leaf: local model, landmarks, compact model."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis, sample_pairs, triangle_distances
from dcpred_tasks.model.compact_model import Support
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_arrays import LeafArrays, rowless_leaf
from dcpred_tasks.model.leaf_model import COMPACT, LeafModel, stored
from dcpred_tasks.training.clusters import LEAST_WEIGHT, Start, k_means, merged
from dcpred_tasks.training.losses import DISTANCE, Loss, loss_from_settings
from dcpred_tasks.training.objective import Expansion, Goal, best_weights, nearest
from dcpred_tasks.training.refinement import check, refine
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import (
    ABSENT,
    DualSolution,
    LeafRows,
    constant_decision,
    fit_exact,
    labellings,
    linear_ridge,
    linear_svm,
    local_machine,
    local_sample,
)
from dcpred_tasks.training.survey import equal_rows

# Smallest singular value that is inverted, relative to the largest: products of near landmarks are nearly
# dependent.
PINV_CUTOFF = 1e-6
RANK_CUTOFF = 1e-10  # smallest retained eigenvalue, relative to the largest


def nystrom_root(C_I: FloatArray, G_II: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """A factor R with R Rᵀ = W̄ = C̄_I† G_II C̄_I†ᵀ. Then Z = C̄ R has Z Zᵀ = Ḡ.

    C_I   float64 (|I|, q), c̄ of the rows of the sample I
    G_II  float64 (|I|, |I|), the exact kernel on the sample
    weight  float64 (|I|,), > 0: a row of weight 2 counts as two; None: each as one
    returns float64 (q, rank)
    """
    if weight is not None:
        root = np.sqrt(weight / weight.max())
        C_I, G_II = root[:, None] * C_I, root[:, None] * G_II * root
    P = np.linalg.pinv(C_I, rcond=PINV_CUTOFF)
    values, vectors = np.linalg.eigh(P @ G_II @ P.T)
    significant = values > max(values[-1], 0.0) * RANK_CUTOFF
    return np.asarray(vectors[:, significant] * np.sqrt(values[significant]))


GUIDED_ROWS = 8_000  # rows whose kernel values with all support vectors are held at a time
UNSEEN = -10.0  # initial intercept of a class without rows in the local SVM
NYSTROM_ROWS = 500  # rows of a leaf that the Nyström approximation is computed from (equation 5)
START_RIDGE = 1e-4  # ridge of the least-squares fit that refinement starts from


@dataclass(frozen=True)
class Kernels:
    """γ of local SVMs and of compact models may differ: few landmarks need a smaller one."""

    local: Kernel
    head: Kernel


def needs_machine(settings: Settings) -> bool:
    """Whether compact models are made from local SVMs. Landmarks that move downhill begin as well by
    `slack_landmarks`, which takes a fraction of the time (DECISIONS.md).
    """
    return not settings.refine or settings.loss == DISTANCE or settings.distill_weight > 0


def fit_compact(
    rows: LeafRows, local: DualSolution | None, kernels: Kernels, settings: Settings, seed: int
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """The basis, β (basis size, n_outputs) and intercepts, by the rows and their local SVM, if it has one."""
    rng = np.random.default_rng([settings.seed, seed])
    weight = rows.compact_weight()
    seen = local_sample(len(rows.X), settings)
    known = LeafToRefine(rows, weight, settings) if settings.refine else None
    if local is None:
        some = known if known and isinstance(seen, slice) else None
        some = some or LeafToRefine(rows.take(seen), weight[seen], settings)
        landmarks = slack_landmarks(some, kernels.head, settings, seed)
    else:  # α holds the weight of its row, which then counts once.
        dual = local.dual[seen] / (rows.weight[seen] / rows.weight.max())[:, None]
        landmarks = pick_landmarks(rows.X[seen], dual, weight[seen], settings, seed)
    basis = _basis(rows.X[seen], landmarks, kernels.head, settings, rng)
    if known is None:
        return basis, *_head(rows, weight, basis, settings, rng)
    return _refined(known, local, kernels.local, basis, settings, seed)


def starting() -> Any:
    """The module that finds what refinement starts from. Raises ResourceError without machine code."""
    check()
    from dcpred_tasks.training import compiled_start

    return compiled_start


class LeafToRefine:
    """Rows of a leaf, with what both its landmarks and their refinement begin from."""

    def __init__(self, rows: LeafRows, weight: FloatArray, settings: Settings) -> None:
        """weight  float64 (n,), of rows in compact models"""
        self.rows, self.weight = rows, weight
        self.targets = targets_of(rows, weight, settings)
        self.strips = check().row_strips(rows.X)


def slack_landmarks(leaf: LeafToRefine, kernel: Kernel, settings: Settings, seed: int) -> SingleArray:
    """Landmarks by k-means with a share of the squared slack of rows in a least-squares fit to landmarks by
    weight: in machines of squared hinge or squared error α is proportional to the slack.
    """
    rows, weight, goals = leaf.rows, leaf.weight, leaf.targets
    first = np.arange(len(rows.X)) if rows.distinct else equal_rows(rows.X)[0]
    m = settings.landmarks
    if len(first) <= m:
        return np.unique(rows.X[first], axis=0)
    share = np.maximum(weight / weight.max(), LEAST_WEIGHT)
    draws = np.full(len(rows.X), np.inf)  # No centre begins at a copy of a row.
    draws[first] = np.random.default_rng(settings.seed + seed).exponential(size=len(first))
    gamma, zeros = np.full(m, kernel.gamma, MODEL_DTYPE), np.zeros((m, rows.X.shape[1]), MODEL_DTYPE)
    basis = LeafBasis(kernel, settings.triangle_bound, zeros, gamma, *_no_pseudo(m))
    sign = None if rows.task == "regression" else goals.target
    given = goals.lacks, sign, goals.share, share, draws, START_RIDGE, settings.landmark_floor, leaf.strips
    return distinct(starting().landmarks(basis, rows.X, *given).astype(MODEL_DTYPE))


def distinct(points: SingleArray) -> SingleArray:
    """The same as np.unique of rows, for few."""
    ordered = points[np.lexsort(points.T[::-1])]
    new = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered if new.all() else ordered[np.append(True, new)]


def pick_landmarks(
    X: SingleArray, dual: FloatArray, weight: FloatArray, settings: Settings, seed: int
) -> SingleArray:
    """Landmarks by k-means with weights α² of a row of weight 1, summed over outputs (theorem 3); where all
    are 0, with the weights of rows.

    A share of uniform weight places some landmarks away from the border, where α² is zero.
    """
    importance = share = weight / weight.max()
    if 0 < (size := float(np.abs(dual).max(initial=0.0))) < np.inf:
        # A power of two, divided out first, keeps squares from overflowing.
        alpha2 = ((dual / 2.0 ** np.floor(np.log2(size))) ** 2).sum(axis=1)
        if mean := np.average(alpha2, weights=share):
            floor = settings.landmark_floor
            importance = ((1.0 - floor) * alpha2 / mean + floor) * share
    some = importance > 0
    start: Start = "random" if settings.refine else "k-means++"
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
    R = nystrom_root(C_bar[sample], basis.kernel(X[sample], X[sample]), weight[sample])
    Z = C_bar @ R
    if rows.task == "regression":
        w, b = linear_ridge(Z, rows.target.astype(np.float64), weight, settings.ridge)
        return (R @ w)[:, None], np.array([b])
    beta, intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    for output, sign in labellings(rows):
        w, intercept[output] = linear_svm(Z, sign, weight, settings.nystrom_C or settings.C)
        beta[:, output] = R @ w
    return beta, intercept


def _refined(
    leaf: LeafToRefine,
    local: DualSolution | None,
    local_kernel: Kernel,
    basis: LeafBasis,
    settings: Settings,
    seed: int,
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """Landmarks, their γ and β, moved together; β begins as a least-squares fit.

    A least-squares start is better and faster than the Nyström solution of `_head`, whose output weights are
    large and cancel (DECISIONS.md).
    """
    rows, goals = leaf.rows, leaf.targets
    loss, share, outputs, target = goals.loss, goals.share, goals.outputs, goals.target
    distilled, machine = target, None
    if local is not None and settings.loss == DISTANCE:
        machine = _expansion(rows.X, local, local_kernel, outputs)
    if local is not None and settings.distill_weight > 0 and rows.task != "regression":
        distilled = _local_values(rows.X, local, local_kernel)[:, outputs]
    single = [a.astype(MODEL_DTYPE) for a in (target, distilled, share)]
    goal = Goal(single[0], single[1], settings.distill_weight, single[2], loss, goals.offset)
    known = None
    if local is None or machine is None:
        objective = starting().unfitted(rows.X, basis, goal, settings.refine_ridge, settings.leaf_scaling)
        start = starting().Start(objective, START_RIDGE, leaf.strips)
        loss, (beta, intercept) = loss.settled(goals.lacks, share, start.solve)
        goal, known = replace(goal, loss=loss), start.arguments
    else:
        basis, beta = _nearest(basis, machine, settings.refine_steps)
        intercept = np.maximum(local.intercept[outputs], UNSEEN)
    basis, beta, intercept = refine(rows.X, basis, beta, intercept, goal, settings, seed, machine, known)
    every_beta, every_intercept = np.zeros((basis.size, rows.n_outputs)), np.full(rows.n_outputs, ABSENT)
    every_beta[:, outputs] = beta * goals.spread
    every_intercept[outputs] = intercept * goals.spread + goals.mean
    return basis, every_beta, every_intercept


class Targets(NamedTuple):
    """What compact models of a leaf are fitted to.

    share   (n,), weights of sum 1
    target  (n, k), ±1 for classes; values as learned: those of the leaf less `mean`, over `spread`
    lacks   (n, k), the same less what `offset` has of it
    """

    loss: Loss
    share: FloatArray
    outputs: IntArray
    target: FloatArray
    lacks: FloatArray
    offset: FloatArray | None = None
    mean: float = 0.0
    spread: float = 1.0


def targets_of(rows: LeafRows, weight: FloatArray, settings: Settings) -> Targets:
    """The targets of rows with such weights."""
    share = weight / weight.max()  # The sum of the weights may be infinite.
    share /= share.sum()
    loss = loss_from_settings(settings)
    if rows.task == "regression":
        value, mean, spread = loss.standardised(rows.target.astype(np.float64), share)
        return Targets(loss, share, np.array([0]), value[:, None], value[:, None], None, mean, spread)
    problems = labellings(rows)
    outputs = np.array([output for output, _ in problems])
    target = np.stack([sign for _, sign in problems], axis=1)
    if rows.offset is None:
        return Targets(loss, share, outputs, target, target)
    offset = rows.offset[:, outputs]
    return Targets(loss, share, outputs, target, target * np.maximum(0.0, 1.0 - target * offset), offset)


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


@dataclass(frozen=True, eq=False)
class FittedLeaf(LeafArrays):
    """A compact leaf, whose arrays are the fields of LeafArrays, and on request its local SVM, which Support
    joins. k outputs: 1 for two classes or regression.

    support          float32 (s, n_features), support vectors of the local SVM, scaled
    dual             float32 (s, k), their weights
    early_intercept  float64 (k,), of the local SVM
    early_gamma      float64 (1,), γ of the local SVM
    packed           uint8 (b,), another leaf model, packed, which LeafModels joins; (0,) for none
    own_point        float32 (n_features,), with own_factor and own_edge joined by Novelty; (0,) for none
    own_rows         float32 (r, n_features), some rows of the leaf, drawn at random, which Background joins
    own_residual     float64 (1,), of a regression the size of a residual of the leaf; (0,) for none
    scale_beta       float32 (b, 1), with scale_intercept and scale_bounds joined by Scale; (0, 1) for none
    """

    support: SingleArray
    dual: SingleArray
    early_intercept: FloatArray
    early_gamma: FloatArray
    packed: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    own_point: SingleArray = field(default_factory=lambda: np.empty(0, MODEL_DTYPE))
    own_factor: SingleArray = field(default_factory=lambda: np.empty(0, MODEL_DTYPE))
    own_edge: SingleArray = field(default_factory=lambda: np.empty(0, MODEL_DTYPE))
    own_rows: SingleArray = field(default_factory=lambda: np.empty((0, 0), MODEL_DTYPE))
    own_residual: FloatArray = field(default_factory=lambda: np.empty(0))
    scale_beta: SingleArray = field(default_factory=lambda: np.empty((0, 1), MODEL_DTYPE))
    scale_intercept: FloatArray = field(default_factory=lambda: np.zeros(1))
    scale_bounds: FloatArray = field(default_factory=lambda: np.zeros(2))


def fit_leaf(
    X: SingleArray,
    target: NDArray[np.generic],
    weight: FloatArray,
    n_outputs: int,
    kernels: Kernels,
    settings: Settings,
    seed: int,
    borrowed: NDArray[np.bool_] | None = None,
    offset: FloatArray | None = None,
) -> FittedLeaf:
    """Fit one leaf. Equal rows of one target are one row of all their weight.

    X       float32 (n, n_features), scaled, not written
    target  classification: class numbers; regression: float64 values; (n,)
    weight  float64 (n,), > 0
    borrowed  (n,), rows of neighbouring leaves: full members of the local SVM, with less weight in
              the compact model
    offset  float64 (n, n_outputs), the sum of other terms, which is added to decision values; None without
    """
    bounds = _bounds(target, settings.task)
    constant = constant_decision(target, n_outputs, settings.task, offset)
    if constant is not None:  # The bounds of a regression make it so, whatever terms add.
        return _constant_leaf(X, constant, bounds, settings)
    if not settings.landmarks:
        return _constant_leaf(X, np.zeros(n_outputs), bounds, settings)
    if offset is not None and settings.task == "regression":  # Losses of numbers are of the residual.
        target, offset = target.astype(ACC_DTYPE) - offset[:, 0], None
    borrowed = np.zeros(len(X), bool) if borrowed is None else borrowed
    merged_rows, weight = _merged_rows(X, target, weight, borrowed, offset)
    X, target, borrowed = X[merged_rows], target[merged_rows], borrowed[merged_rows]
    all_differ = offset is None and isinstance(merged_rows, slice)
    offset = None if offset is None else offset[merged_rows]
    if settings.leaf_model != COMPACT:
        rows = leaf_rows(X, target, weight, borrowed, n_outputs, settings)
        return with_leaf_model(
            rows, fit_exact(rows, leaf_kernels(rows, kernels, settings).local, settings), settings
        )
    # A feature that is 0 in every row changes no kernel value.
    used = np.asarray(X.any(axis=0))
    used[:1] |= not used.any()
    used_columns = X if used.all() else np.ascontiguousarray(X[:, used])
    rows = leaf_rows(used_columns, target, weight, borrowed, n_outputs, settings)
    rows = replace(rows, offset=offset, distinct=all_differ)
    kernels = leaf_kernels(rows, kernels, settings)
    # The machine of so few rows is a compact model itself, without a basis that depends on their order.
    needed, local = needs_machine(settings) or len(rows.X) <= settings.landmarks, None
    if needed or settings.keep_support_vectors:
        local = local_machine(rows, kernels.local, settings)
    basis, beta, intercept = compact_model(rows, local if needed else None, kernels, settings, seed)
    landmarks = np.zeros((len(basis.landmarks), X.shape[1]), MODEL_DTYPE)
    landmarks[:, used] = basis.landmarks
    if local is None or not settings.keep_support_vectors:
        local = DualSolution(np.zeros((len(X), n_outputs)), intercept)
    support = np.flatnonzero(local.dual.any(axis=1))
    return FittedLeaf(
        landmarks=landmarks,
        gamma=basis.gamma,
        pairs=basis.pairs,
        triangle=basis.triangle,
        beta=beta.astype(MODEL_DTYPE),
        intercept=intercept,
        support=X[support],
        dual=local.dual[support].astype(MODEL_DTYPE),
        early_intercept=local.intercept,
        early_gamma=np.array([kernels.local.gamma]),
        bounds=bounds,
        leaf_factor=_leaf_factor(basis, used, settings),
    )


def _merged_rows(
    X: SingleArray,
    target: NDArray[np.generic],
    weight: FloatArray,
    borrowed: NDArray[np.bool_],
    offset: FloatArray | None,
) -> tuple[IntArray | slice, FloatArray]:
    """The rows of `fit_leaf` without copies, the first ones in their order, and their weights."""
    differing, group = equal_rows(X if offset is None else np.hstack([X, offset.astype(MODEL_DTYPE)]))
    if len(differing) == len(X):
        return slice(None), weight
    classes, number = np.unique(target, return_inverse=True)
    _, first, which = np.unique(
        2 * (group * len(classes) + number) + borrowed, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rows = first[order]
    total: FloatArray = np.bincount(which, weight)[order].astype(np.float64)
    return rows, total


def leaf_rows(
    X: SingleArray,
    target: NDArray[np.generic],
    weight: FloatArray,
    borrowed: NDArray[np.bool_] | None,
    n_outputs: int,
    settings: Settings,
) -> LeafRows:
    """The rows of a leaf as `fit_leaf` takes them."""
    borrowed = np.zeros(len(X), bool) if borrowed is None else borrowed
    return LeafRows(X, target, weight, borrowed, n_outputs, settings.task)


def with_leaf_model(rows: LeafRows, fitted: LeafModel, settings: Settings) -> FittedLeaf:
    """A leaf with a fitted model in place of landmarks."""
    constant = _constant_leaf(rows.X, np.zeros(rows.n_outputs), _bounds(rows.target, settings.task), settings)
    return replace(constant, packed=stored(fitted, rows.X))


def compact_model(
    rows: LeafRows, local: DualSolution | None, kernels: Kernels, settings: Settings, seed: int
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """The basis, β and intercepts: the local SVM itself where there is one that is small enough."""
    exact = None if local is None else _exact(rows.X, local, kernels, settings.landmarks)
    if local is None or exact is None:
        return fit_compact(rows, local, kernels, settings, seed)
    landmarks, beta = exact
    gamma = np.full(len(landmarks), kernels.head.gamma, MODEL_DTYPE)
    return (
        LeafBasis(kernels.head, settings.triangle_bound, landmarks, gamma, *_no_pseudo(len(landmarks))),
        beta,
        local.intercept,
    )


def leaf_kernels(rows: LeafRows, kernels: Kernels, settings: Settings) -> Kernels:
    """The kernels of this leaf: γ from its distances where the setting is median."""
    if settings.gamma != "median":
        return kernels
    gamma = median_gamma(kernels.local, *merged(rows.X, rows.weight))
    head = gamma * settings.compact_gamma if settings.compact_gamma else gamma
    return Kernels(replace(kernels.local, gamma=gamma), replace(kernels.head, gamma=head))


def _bounds(target: NDArray[np.generic], task: str) -> FloatArray:
    """The range of the targets: a compact model that extrapolates can be far off."""
    return np.array([target.min(), target.max()] if task == "regression" else [], np.float64)


def _leaf_factor(basis: LeafBasis, used: NDArray[np.bool_], settings: Settings) -> SingleArray:
    """ARD scales of all features, 1 for those not used or not learned; empty without leaf_scaling."""
    factor = np.ones(len(used) if settings.leaf_scaling else 0, MODEL_DTYPE)
    if len(basis.factor):
        factor[used] = basis.factor
    return factor


def _constant_leaf(
    X: SingleArray, decision: FloatArray, bounds: FloatArray, settings: Settings
) -> FittedLeaf:
    sizes = {"feature": X.shape[1], "output": len(decision)}
    no_rows: dict[str, Any] = rowless_leaf(LeafArrays, sizes) | rowless_leaf(Support, sizes)
    return FittedLeaf(
        **no_rows,
        intercept=decision,
        bounds=bounds,
        leaf_factor=np.ones(X.shape[1] if settings.leaf_scaling else 0, MODEL_DTYPE),
        early_intercept=decision,
        early_gamma=np.ones(1),
    )


def _no_pseudo(m: int) -> tuple[NDArray[np.int32], SingleArray]:
    return np.empty((0, 2), np.int32), np.empty((0, m), MODEL_DTYPE)


def _exact(
    X: SingleArray, local: DualSolution, kernels: Kernels, n_landmarks: int
) -> tuple[SingleArray, FloatArray] | None:
    """The local SVM itself, (landmarks, β), if it has no more distinct support vectors than landmarks."""
    used = np.flatnonzero(local.dual.any(axis=1))
    # The local SVM has no support vector where all its rows agree.
    if kernels.local != kernels.head or len(used) == 0:
        return None
    points, which = np.unique(X[used], axis=0, return_inverse=True)
    if len(points) > n_landmarks:
        return None
    beta = np.zeros((len(points), local.dual.shape[1]))
    np.add.at(beta, which, local.dual[used])
    return points, beta
