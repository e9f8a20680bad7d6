"""One leaf, from its rows to its compact model (Hsieh et al. 2014, algorithm 2 within one cluster of
rows).
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, SingleArray
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.compact_model import Support
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_arrays import LeafArrays, rowless_leaf
from dcpred_tasks.model.leaf_model import COMPACT, LeafModel, stored
from dcpred_tasks.training.compact_leaf import Pick, fit_compact, pick_landmarks
from dcpred_tasks.training.local_machine import LeafRows, constant_decision, fit_exact, local_machine
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import DualSolution


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


@dataclass(frozen=True)
class Kernels:
    """γ of local SVMs and of compact models may differ: few landmarks need a smaller one."""

    local: Kernel
    head: Kernel


def fit_leaf(
    X: SingleArray,
    target: NDArray[np.generic],
    weight: FloatArray,
    n_outputs: int,
    kernels: Kernels,
    settings: Settings,
    seed: int,
    halo: NDArray[np.bool_] | None = None,
) -> FittedLeaf:
    """Fit one leaf.

    X       float32 (n, n_features), scaled, not written
    target  classification: class numbers; regression: float64 values; (n,)
    weight  float64 (n,), > 0
    halo    (n,), overlap rows of neighbouring leaves: full members of the local SVM, with less weight in the
            compact model
    """
    constant = constant_decision(target, n_outputs, settings.task)
    if constant is not None:
        return _constant_leaf(X, constant, _bounds(target, settings.task), settings)
    if settings.machine != COMPACT:
        rows = leaf_rows(X, target, weight, halo, n_outputs, settings)
        return with_leaf_model(
            rows, fit_exact(rows, leaf_kernels(rows, kernels, settings).local, settings), settings
        )
    # A feature that is 0 in every row changes no kernel value.
    used = np.asarray(X.any(axis=0))
    used[:1] |= not used.any()
    own = X if used.all() else np.ascontiguousarray(X[:, used])
    rows = leaf_rows(own, target, weight, halo, n_outputs, settings)
    kernels = leaf_kernels(rows, kernels, settings)
    local = local_machine(rows, kernels.local, settings)
    basis, beta, intercept = compact_model(rows, local, kernels, settings, seed)
    landmarks = np.zeros((len(basis.landmarks), X.shape[1]), MODEL_DTYPE)
    landmarks[:, used] = basis.landmarks
    kept = np.flatnonzero(local.dual.any(axis=1)) if settings.keep_support_vectors else np.empty(0, np.int64)
    return FittedLeaf(
        landmarks=landmarks,
        gamma=basis.gamma,
        pairs=basis.pairs,
        triangle=basis.triangle,
        beta=beta.astype(MODEL_DTYPE),
        intercept=intercept,
        support=X[kept],
        dual=local.dual[kept].astype(MODEL_DTYPE),
        early_intercept=local.intercept,
        early_gamma=np.array([kernels.local.gamma]),
        bounds=_bounds(target, settings.task),
        leaf_factor=_leaf_factor(basis, used, settings),
    )


def leaf_rows(
    X: SingleArray,
    target: NDArray[np.generic],
    weight: FloatArray,
    halo: NDArray[np.bool_] | None,
    n_outputs: int,
    settings: Settings,
) -> LeafRows:
    """The rows of a leaf as `fit_leaf` takes them."""
    halo = np.zeros(len(X), bool) if halo is None else halo
    return LeafRows(X, target, weight, halo, n_outputs, settings.task)


def with_leaf_model(rows: LeafRows, fitted: LeafModel, settings: Settings) -> FittedLeaf:
    """A leaf with a fitted model in place of landmarks."""
    constant = _constant_leaf(rows.X, np.zeros(rows.n_outputs), _bounds(rows.target, settings.task), settings)
    return replace(constant, packed=stored(fitted, rows.X))


def compact_model(
    rows: LeafRows,
    local: DualSolution,
    kernels: Kernels,
    settings: Settings,
    seed: int,
    pick: Pick = pick_landmarks,
) -> tuple[LeafBasis, FloatArray, FloatArray]:
    """The basis, β and intercepts: the local SVM itself where it is small enough."""
    exact = _exact(rows.X, local, kernels, settings.landmarks)
    if exact is None:
        return fit_compact(rows, local, kernels.local, kernels.head, settings, seed, pick)
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
    gamma = median_gamma(kernels.local, rows.X)
    head = gamma * settings.head_gamma if settings.head_gamma else gamma
    return Kernels(replace(kernels.local, gamma=gamma), replace(kernels.head, gamma=head))


def _bounds(target: NDArray[np.generic], task: str) -> FloatArray:
    """The range of the targets: a compact model that extrapolates can be far off."""
    return np.array([target.min(), target.max()] if task == "regression" else [], np.float64)


def _leaf_factor(basis: LeafBasis, used: NDArray[np.bool_], settings: Settings) -> SingleArray:
    """ARD scales of all features, 1 for those that the leaf does not use or did not learn; empty without
    leaf_scaling.
    """
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
    """The local SVM itself, (landmarks, β), where it has at most as many distinct support vectors as
    landmarks.
    """
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
