"""Budgets, and the predicted cost of settings."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dcpred.cost.predicted import PredictedCost, predict_cost
from dcpred_tasks.dtypes import INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE, FloatArray
from dcpred_tasks.engine.layout import AT_ONCE
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import outlined
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_fitting import levels_for


@dataclass(frozen=True)
class Budget:
    """The maximum cost of a row."""

    ratio: float = float("inf")
    """Cost in linear predictions."""
    ns: float = float("inf")
    """Cost in nanoseconds."""
    either: bool = False
    """Whether one of the two limits suffices."""
    linear_ns: float = field(default=0.0, repr=False, compare=False)
    """The time of a linear prediction on this computer, in nanoseconds; 0: that of the cost model, which was
    fitted on another one. It is not part of a search's name, because it varies.
    """

    def allows(self, cost: PredictedCost) -> bool:
        ns = cost.cost_ratio * self.linear_ns if self.linear_ns else cost.ns_per_row
        within = cost.cost_ratio <= self.ratio, ns <= self.ns
        return any(within) if self.either else all(within)

    @property
    def words(self) -> str:
        """The budget in words."""
        limits = [
            f"{limit:g}{unit}" for limit, unit in ((self.ratio, "x"), (self.ns, "ns")) if limit < float("inf")
        ]
        return (" or " if self.either else " and ").join(limits)


def rounded_up(cost: PredictedCost) -> str:
    """A budget that allows it, also in another process, which may measure another time."""
    return f"{np.ceil(cost.cost_ratio * 10 + 1e-6) / 10:.1f}x"


def cost_of(
    settings: Settings, scaling: Scaling, n_outputs: int, shape: FloatArray | None = None
) -> PredictedCost:
    """The cost of a model with these settings; its numbers are meaningless.

    shape  the shape from a trial of them (trial.shape_of); without it, the minimum
    """
    if shape is None:
        least = float(min(n_outputs, AT_ONCE))
        shape = np.array([1.0, settings.landmarks, settings.products, least, 1.0, 0.0])
    works, landmarks, products, present, uneven, by_distances = shape.tolist()
    m = int(np.ceil(landmarks))
    outputs = (
        n_outputs
        if n_outputs == 1
        else min(n_outputs, max(AT_ONCE * int(np.ceil(present / AT_ONCE - 0.1)), 2))
    )
    full, walk = (
        predict_cost(
            _outline(settings, scaling, m, int(np.ceil(products)) if m else 0, outputs), by_distances >= 0.5
        )
        for m in (m, 0)
    )
    parts = {name: works * a + (1 - works) * getattr(walk, name) for name, a in asdict(full).items()}
    parts["descend"] *= uneven
    return PredictedCost(**parts)


def _outline(settings: Settings, scaling: Scaling, m: int, products: int, outputs: int) -> Model:
    tree = _complete_tree(settings.n_leaves or 1, len(scaling.shift))
    p = min(products, m * (m + 1) // 2)
    rows = {"landmark": m, "product": p, "basis": m + p}
    sizes = {"feature": len(scaling.shift), "output": outputs}
    arrays: dict[str, Any] = outlined(Model, tree.n_leaves, rows, sizes)
    arrays["leaf_factor"] = arrays["leaf_factor"][:, : None if settings.leaf_scaling else 0]
    kernel = Kernel.from_settings(settings, 1.0)
    return Model(
        **arrays,
        task=settings.task,
        classes=(),
        kernel=kernel,
        triangle_bound=settings.triangle_bound,
        scaling=scaling,
        tree=tree,
        leaf_rows=np.ones(tree.n_leaves, INDEX_DTYPE),
        local_kernel=kernel,
        support=None,
        reference=None,
    )


def _complete_tree(n_leaves: int, n_features: int) -> Tree:
    """A tree of so many leaves whose nodes all have the same children, with centres far apart."""
    levels = levels_for(n_leaves)
    starts, children, first = [0], [], 1
    for depth, arity in enumerate(levels):
        nodes, last = int(np.prod(levels[:depth])), depth == len(levels) - 1
        for node in range(nodes):
            own = np.arange(node * arity, (node + 1) * arity)
            children.append(~own if last else first + own)
            starts.append(starts[-1] + arity)
        first += nodes * arity
    if not levels:
        return Tree(np.zeros(1, INDEX_DTYPE), np.zeros(0, LEAF_DTYPE), np.zeros((0, n_features), MODEL_DTYPE))
    centres = np.random.default_rng(0).standard_normal((starts[-1], n_features)).astype(MODEL_DTYPE)
    return Tree(np.array(starts, INDEX_DTYPE), np.concatenate(children).astype(LEAF_DTYPE), centres)
