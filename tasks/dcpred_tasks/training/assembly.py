"""From leaves to one model: concatenation, nothing else."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import INDEX_DTYPE, IntArray
from dcpred_tasks.model.compact_model import Model, Reference, Support
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.leaf import Kernels, LeafModel
from dcpred_tasks.training.settings import Settings


def assemble(
    leaves: Sequence[LeafModel],
    leaf_rows: IntArray,
    tree: Tree,
    scaling: Scaling,
    kernels: Kernels,
    classes: tuple[int | float | str | bool, ...],
    settings: Settings,
    reference: Reference | None = None,
) -> Model:
    """The model of leaves given in the order of their numbers; leaf_rows are the training rows of each."""
    support = None
    if settings.keep_support_vectors:
        support = Support(
            at=_offsets([leaf.support for leaf in leaves]),
            vectors=np.concatenate([leaf.support for leaf in leaves]),
            dual=np.concatenate([leaf.dual for leaf in leaves]),
            intercept=np.stack([leaf.early_intercept for leaf in leaves]),
            gamma=np.concatenate([leaf.early_gamma for leaf in leaves]),
        )
    triangle = [leaf.triangle.ravel() for leaf in leaves]
    return Model(
        task=settings.task,
        classes=classes,
        kernel=kernels.head,
        triangle_bound=settings.triangle_bound,
        scaling=scaling,
        tree=tree,
        landmark_at=_offsets([leaf.landmarks for leaf in leaves]),
        landmarks=np.concatenate([leaf.landmarks for leaf in leaves]),
        gamma=np.concatenate([leaf.gamma for leaf in leaves]),
        pair_at=_offsets([leaf.pairs for leaf in leaves]),
        pairs=np.concatenate([leaf.pairs for leaf in leaves]),
        triangle_at=_offsets(triangle),
        triangle=np.concatenate(triangle),
        beta_at=_offsets([leaf.beta for leaf in leaves]),
        beta=np.concatenate([leaf.beta for leaf in leaves]),
        intercept=np.stack([leaf.intercept for leaf in leaves]),
        bounds=np.stack([leaf.bounds for leaf in leaves]),
        leaf_rows=leaf_rows.astype(INDEX_DTYPE),
        local_kernel=kernels.local,
        support=support,
        reference=reference,
    )


def _offsets(arrays: Sequence[NDArray[np.generic]]) -> IntArray:
    return np.cumsum([0] + [len(a) for a in arrays]).astype(INDEX_DTYPE)
