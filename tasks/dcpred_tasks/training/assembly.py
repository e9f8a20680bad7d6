"""From leaves to one model: concatenation, nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dcpred_tasks.dtypes import INDEX_DTYPE, IntArray
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.leaf_arrays import join_leaves
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.model.parts import Background, kept_rows
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.sureness import Sureness
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.leaf import FittedLeaf, Kernels
from dcpred_tasks.training.settings import Settings


def assemble(
    leaves: Sequence[FittedLeaf],
    leaf_rows: IntArray,
    tree: Tree,
    scaling: Scaling,
    kernels: Kernels,
    classes: tuple[int | float | str | bool, ...],
    settings: Settings,
    reference: Reference | None = None,
    sureness: Sureness | None = None,
    target: TargetTransform = NO_TRANSFORM,
    leaf_model: str | None = None,
) -> Model:
    """Build a model from leaves in the order of their numbers; leaf_rows are the training rows of each. A
    model with uncertainty stores some rows of each leaf.

    leaf_model  the name of their leaf models; None: that of the settings
    """
    leaf_model = leaf_model or settings.machine
    arrays: dict[str, Any] = join_leaves(Model, leaves)
    support: dict[str, Any] = join_leaves(Support, leaves) if settings.keep_support_vectors else {}
    others: dict[str, Any] = join_leaves(LeafModels, leaves) if leaf_model != COMPACT else {}
    background: dict[str, Any] = {}
    if sureness is not None:
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
        sureness=sureness,
        background=Background(**background) if background else None,
        target=target,
    )
