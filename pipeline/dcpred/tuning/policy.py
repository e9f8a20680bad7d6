"""The constants of the search, and the budget of a prediction."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dcpred.cost import PredictedCost, predict_cost
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
class SearchPolicy:
    """The size of a search, and its statistical levels. Numbers without a source were chosen on the
    development half of the tables (tests/benchmarks/halves.py), by tests/benchmarks/portfolio.py; see
    DECISIONS.md, "Search policy".
    """

    name: str = "standard"
    # statistics
    level: float = 0.4
    """Level of the one-sided test by which a candidate replaces another, half for each metric. An exchange
    of equals costs nothing, but keeping the worse one does.
    """
    metric: str | Callable[..., float] | None = None
    """A scorer of scikit-learn, or its name (metrics.SCORERS). None: the error rate, or log-loss if one
    class is frequent, and the squared error of regressions.
    """
    rare_share: float = 0.9
    """Fraction of the most frequent class from which on log-loss replaces the error rate."""
    worth_cost: float = 0.9
    """Fraction of the cost of the choice below which a candidate replaces it if it loses no more."""
    # rows
    trial_rows: int = 16_000
    """Rows of a trial: all rows up to so many, else rows of cells."""
    trial_numbers: int = 12_000_000
    """Rows × features of a trial: fewer rows if features are many."""
    broad_times: int = 8
    """Rows that scalings and references learn from, as a multiple of the rows of a trial, to predict the
    quality of the choice: those of a model have all sampled rows.
    """
    sample_cells: int = 32
    """Cells that the rows of a trial come from, if rows are many."""
    few_rows: int = 2_000
    """Rows up to which every row is held out once. Of more rows some folds evaluate candidates, and another
    one predicts the quality of the choice.
    """
    folds: int = 2
    """How many, of four, as long as trials use all rows: two folds choose as well as four."""
    very_few_rows: int = 600
    """Rows up to which folds are drawn several times, and a first look uses four folds instead of one."""
    repeats: int = 3
    """How often."""
    fewest_rows: int = 20
    """Rows below which a search evaluates nothing."""
    # the portfolio
    survivors: int = 5
    """Maximum number of candidates to evaluate on all folds after the first look."""
    # mutations
    rounds: int = 1
    """Maximum number of rounds of mutations: later rounds gain little."""
    ends_in_noise: bool = False
    """Whether a round that gains no more than a standard error is the last one."""
    codes: tuple[int, int] = (16, 256)
    """Maximum number of different integers of a feature for one-hot encoding: two choices."""
    # budget
    ratio: float = 20.0
    """Maximum cost in linear predictions without a given budget."""
    ns: float = 100.0
    """The same in nanoseconds of the cost model: a model may be within either."""
    least_times: float = 2.0
    """The budget as a multiple of the cheapest model, if those limits allow none."""
    # shapes
    descent_rows: int = 5_000
    """Rows of a leaf from which stochastic steps refine it, which are faster there."""
    epochs: int = 40
    """Passes of them."""
    local_rows: int = 2_000
    """Rows that train a local SVM: more pick no better landmarks, and take longer."""
    most_leaf_bytes: int = 3 * 2**29
    """Maximum memory of the rows of a leaf and of arrays computed from them."""
    # references
    reference_rows: int = 8_000
    """Maximum rows that train the plain SVM or ridge pipeline of scikit-learn: its time grows with their
    square."""


STANDARD = SearchPolicy()
THOROUGH = replace(STANDARD, name="thorough", survivors=8, rounds=4, trial_rows=32_000, ends_in_noise=True)


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
        return Tree.single(n_features)
    centres = np.random.default_rng(0).standard_normal((starts[-1], n_features)).astype(MODEL_DTYPE)
    return Tree(np.array(starts, INDEX_DTYPE), np.concatenate(children).astype(LEAF_DTYPE), centres)
