"""Partition rows by the tree, and build the model of its leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, FloatArray, IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.kernels import BY_NAME, Kernel, Sum
from dcpred_tasks.model.leaf_arrays import Background, join_leaves, kept_rows
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.router import Router
from dcpred_tasks.model.scaling import LEARNED, STRIP_NUMBERS, Scaling, fit_scaling
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform
from dcpred_tasks.model.uncertainty import Uncertainty
from dcpred_tasks.training.features import choose_columns
from dcpred_tasks.training.leaf import FittedLeaf, Kernels
from dcpred_tasks.training.learned_scaling import REPETITIONS, learn_metric
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.thresholds import check_two_classes
from dcpred_tasks.training.tree_fitting import Node, fit_tree, levels_for

ROWS_PER_LEAF = 1_000
MAX_AUTO_LEAVES = 4_096


@dataclass(frozen=True)
class Division:
    """How space is divided, learned from a sample: scaling, first tree, and the kernels in scaled features.
    `reference` holds the means and standard deviations of the sample's features.
    """

    scaling: Scaling
    root: Node | int
    kernels: Kernels
    reference: Reference


def learn_scaling(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    repetitions: int = REPETITIONS,
) -> Scaling:
    """The scaling of the settings, with the columns of features; learned ones use the targets.

    sample  (n, n_features), raw rows drawn by `sampling.drawn`, in the order of their numbers
    target  (n,), class numbers or values
    weight  float64 (n,), > 0, sample weights
    """
    coding = choose_columns(sample, weight, survey, settings)
    limits = survey.minimum, survey.maximum
    if settings.scaling in LEARNED:
        sharpen = settings.scaling == "sharpened"
        given = sample, target, weight, *limits, settings.task, settings.seed, sharpen, coding
        metric = learn_metric(*given, repetitions)
        metric = metric.sharpened or metric
        scaling = Scaling(metric.shift, metric.factor, coding)
    else:
        scaling = fit_scaling(settings.scaling, sample, weight, *limits, coding)
    check_scaled(scaling, survey)
    return scaling


def divide(
    scaling: Scaling, sample: NDArray[np.generic], weight: FloatArray, survey: Survey, settings: Settings
) -> Division:
    """The tree and the kernels in scaled features."""
    rows = scaling(sample)
    n_leaves = first_leaves(survey.n_used, settings)
    root = fit_tree(rows, weight, levels_for(n_leaves), survey.n_used, settings.min_leaf_rows, settings.seed)
    return Division(scaling, root, _kernels(rows, weight, settings), feature_reference(scaling, sample))


def first_leaves(n_rows: int, settings: Settings) -> int:
    """The number of leaves of the first tree."""
    return settings.n_leaves or auto_leaves(n_rows)


def auto_leaves(n_rows: int) -> int:
    """The number of leaves of so many rows where no setting names it."""
    return min(max(n_rows // ROWS_PER_LEAF, 1), MAX_AUTO_LEAVES)


def check_scaled(scaling: Scaling, survey: Survey) -> None:
    """Raise DataError where scaled rows exceed single precision, by the extremes of each feature."""
    with np.errstate(over="ignore"):
        fits = np.isfinite(scaling(np.stack([survey.minimum, survey.maximum]))).all(axis=0)
    if not fits.all():
        column = int(scaling.source[np.flatnonzero(~fits)[0]])
        raise DataError(
            f"Cannot train on column {column} of X: its range from {survey.minimum[column]:g} to"
            f" {survey.maximum[column]:g} is too large for single precision (infinity after scaling). Set"
            " scaling to standard or minmax, or rescale the column."
        )


def _kernels(rows: SingleArray, weight: FloatArray, settings: Settings) -> Kernels:
    """γ "scale" is 1 where the scaling was learned, for that has the width of the kernel in it, else
    1 / (n_features × variance) as in scikit-learn. "median" gets the same, until each leaf replaces it.
    """
    gamma = kernel_unit(rows, weight, settings) if isinstance(settings.gamma, str) else settings.gamma
    return Kernels(
        local=Kernel.from_settings(settings, gamma),
        head=Kernel.from_settings(settings, settings.compact_gamma or gamma),
    )


def kernel_unit(rows: SingleArray, weight: FloatArray, settings: Settings) -> float:
    """γ "scale" in the columns of these scaled rows."""
    if settings.scaling in LEARNED:
        if BY_NAME[settings.kernel].sum == Sum.SQUARES:
            return 1.0
        rows = rows[:, rows.any(axis=0)]  # Features that the scaling omits are 0 in every row.
    return _scale(rows, weight)


def _scale(rows: SingleArray, weight: FloatArray) -> float:
    if not rows.size:
        return 1.0
    n_columns = rows.shape[1]
    # Never one column of several: of one NumPy sums numbers in pairs.
    parts = np.array_split(np.arange(n_columns), max(min(n_columns // 2, rows.size // STRIP_NUMBERS), 1))

    def means(power: int) -> FloatArray:
        own = (rows[:, part[0] : part[-1] + 1].astype(np.float64) ** power for part in parts)
        return np.concatenate([np.average(one, axis=0, weights=weight) for one in own])

    moments = [means(power).mean() for power in (1, 2)]
    variance = float(moments[1] - moments[0] ** 2)
    return 1.0 / (rows.shape[1] * variance) if variance > 1e-12 * moments[1] else 1.0


def n_outputs(n_classes: int) -> int:
    """1 for regression (no classes) and for two classes."""
    return n_classes if n_classes > 2 else 1


def row_weights(
    target: NDArray[np.generic], weight: FloatArray | None, class_factors: FloatArray
) -> FloatArray:
    """Sample weight × class weight."""
    own = np.ones(len(target)) if weight is None else weight.astype(np.float64)
    return own * class_factors[target.astype(np.int64)] if len(class_factors) else own


def balanced_factors(survey: Survey) -> FloatArray:
    """Class weights of scikit-learn's "balanced": n / (n_classes × count)."""
    return np.asarray(survey.class_weights.sum() / (len(survey.classes) * survey.class_weights))


def class_factors(survey: Survey, settings: Settings) -> FloatArray:
    """The weights of classes of the settings; empty where all are 1. Raises DataError for a threshold without
    exactly two classes.
    """
    check_two_classes(settings.threshold, len(survey.classes))
    weighed = settings.class_weight == "balanced" and len(survey.classes) > 0
    return balanced_factors(survey) if weighed else np.empty(0)


def assemble(
    leaves: Sequence[FittedLeaf],
    leaf_rows: IntArray,
    tree: Router,
    scaling: Scaling,
    kernels: Kernels,
    classes: tuple[int | float | str | bool, ...],
    settings: Settings,
    reference: Reference | None = None,
    uncertainty: Uncertainty | None = None,
    target: TargetTransform = NO_TRANSFORM,
    leaf_model: str | None = None,
) -> Model:
    """Build a model from leaves in the order of their numbers; leaf_rows are the training rows of each. A
    model with uncertainty stores some rows of each leaf.

    leaf_model  the name of their leaf models; None: that of the settings
    """
    leaf_model = leaf_model or settings.leaf_model
    arrays: dict[str, Any] = join_leaves(Model, leaves)
    support: dict[str, Any] = join_leaves(Support, leaves) if settings.keep_support_vectors else {}
    others: dict[str, Any] = join_leaves(LeafModels, leaves) if leaf_model != COMPACT else {}
    background: dict[str, Any] = {}
    if uncertainty is not None:
        most = kept_rows(len(leaves), len(scaling.shift))
        kept = [replace(leaf, own_rows=leaf.own_rows[:most]) for leaf in leaves]
        background = join_leaves(Background, kept)
    return Model(
        **arrays,
        task=settings.task,
        classes=classes,
        kernel=kernels.head,
        triangle_bound=settings.triangle_bound,
        scaling=scaling,
        tree=tree,
        leaf_rows=leaf_rows.astype(INDEX_DTYPE),
        local_kernel=kernels.local,
        support=Support(**support) if support else None,
        reference=reference,
        leaf_models=LeafModels(leaf_model, **others) if others else None,
        uncertainty=uncertainty,
        background=Background(**background) if background else None,
        target=target,
    )
