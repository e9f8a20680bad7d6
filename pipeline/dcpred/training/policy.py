"""The constants of the search, the budget of a prediction, and the configurations that a search evaluates,
with the mutations of the best one.

A configuration names settings, and three values that follow from the data: `leaf_rows`, rows of a leaf (0:
one leaf of all rows); `width`, γ of the landmarks as a multiple of the one that follows from the scaling;
`codes`, the maximum number of different integers of a feature for one-hot encoding (0: none). `landmarks` are
halved until the budget allows them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dcpred.serving.cost import PredictedCost, all_outputs_ns, predict_cost
from dcpred.training.reports import Point
from dcpred_tasks.dtypes import INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE, FloatArray
from dcpred_tasks.engine.layout import AT_ONCE
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import outlined
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.tree_fitting import levels_for

COST, ACCURACY = "cost", "accuracy"


@dataclass(frozen=True)
class Deadline:
    """A time limit, from now on."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "begin", self.clock())

    def left(self) -> float:
        """Seconds that are left; less than 0 afterwards."""
        return self.begin + self.seconds - self.clock()


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
    prefer: str = COST
    """COST: the cheapest candidate that is as good as the best; ACCURACY: the best one."""
    as_good: float = 1.0
    """Standard errors of the difference that such a candidate may lose; twice as many by the metric that
    breaks ties.
    """
    most_lost: float = 0.03
    """The most that it may lose, as a fraction of the loss: few rows have large errors."""
    least_lost: float = 0.01
    """A fraction of the loss that it may lose whatever the error: many rows have small ones."""
    tie_lost: float = 0.03
    """The same by the metric that breaks ties."""
    deadline: "Deadline | None" = None
    """When a search ends whose time is limited."""
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
    # races
    parts: tuple[float, ...] = (1 / 16, 1 / 4)
    """Shares of the rows of a trial that train candidates, one after the other, before all rows do."""
    fewest_part_rows: int = 500
    """Rows, those that are held out included, below which a part trains none."""
    worse_in_part: float = 1.5
    """Standard errors by which a candidate that a part ends is worse than the best one of its kind."""
    surely_worse: float = 2.0
    """The same of all rows, and of all kinds."""
    # the portfolio
    survivors: int = 5
    """Maximum number of candidates to evaluate on all folds after the first look."""
    cheap_survivors: int = 1
    """How many more: the cheapest of those that are as good as the best."""
    # mutations
    rounds: int = 1
    """Maximum number of rounds of mutations: later rounds gain little."""
    mutated_rows: int = 4_000
    """Rows from which all mutations are evaluated: on fewer, what seems better in a round is so by chance.
    Those that only some data allow are evaluated on any number.
    """
    ends_in_noise: bool = False
    """Whether a round that gains no more than a standard error is the last one."""
    codes: tuple[int, int] = (16, 256)
    """Maximum number of different integers of a feature for one-hot encoding: two choices."""
    most_curves: int = 256
    """Features × outputs up to which additive maps are evaluated: gradient boosting fits as many trees a
    round.
    """
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
    references: bool = False
    """Whether the choice is compared with reference models, which change no model."""
    reference_rows: int = 8_000
    """Maximum rows that train the plain SVM or ridge pipeline of scikit-learn: its time grows with their
    square."""

    @property
    def asked(self) -> dict[str, str | None]:
        """What a user asked for that changes the choice or its report."""
        asked: dict[str, str | None] = {"policy": self.name}
        asked |= {"metric": str(self.metric)} if self.metric else {}
        asked |= {"prefer": self.prefer} if self.prefer != COST else {}
        asked |= {"seconds": str(self.deadline.seconds)} if self.deadline else {}
        return asked | ({"references": "true"} if self.references else {})


STANDARD = SearchPolicy()
THOROUGH = replace(
    STANDARD,
    name="thorough",
    survivors=8,
    rounds=4,
    mutated_rows=0,
    trial_rows=32_000,
    ends_in_noise=True,
)


def policy_for(
    base: SearchPolicy,
    metric: str | Callable[..., float] | None = None,
    prefer: str = COST,
    seconds: float | None = None,
    references: bool = False,
) -> SearchPolicy:
    """The policy of a search as a user asks for it, whose time begins now. Raises SettingsError."""
    if prefer not in (COST, ACCURACY):
        raise SettingsError(f"Cannot use prefer={prefer!r}: pass {COST!r} or {ACCURACY!r}.")
    is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < float(seconds) < float("inf")):
        raise SettingsError(
            f"Cannot use seconds={seconds!r}: it is not a time. Pass a finite number above 0, or None for no"
            " limit."
        )
    deadline = None if seconds is None else Deadline(seconds)
    return replace(base, metric=metric, prefer=prefer, references=references, deadline=deadline)


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

    def allows(self, cost: PredictedCost | Point) -> bool:
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


def rounded_up(cost_ratio: float) -> str:
    """A budget that allows this cost, also in another process, which may measure another time."""
    return f"{np.ceil(cost_ratio * 10 + 1e-6) / 10:.1f}x"


def parse_budget(budget: object) -> Budget:
    """8x is eight linear predictions a row, 0.2us and 200ns are times. Raises SettingsError."""
    text = str(budget)
    for unit in ("us", "ns", "x"):
        number = text.strip().lower().removesuffix(unit)
        if number != text.strip().lower():
            try:
                value = float(number)
            except ValueError:
                break
            if 0 < value < float("inf"):
                return (
                    Budget(ratio=value) if unit == "x" else Budget(ns=value * (1e3 if unit == "us" else 1.0))
                )
            break
    raise SettingsError(
        f"Cannot use the budget {text!r}: it is not a cost. Write 8x (linear predictions a row), 0.2us or"
        " 200ns."
    )


def cost_of(
    settings: Settings, scaling: Scaling, n_outputs: int, shape: FloatArray | None = None, terms: float = 0.0
) -> PredictedCost:
    """The cost of a model with these settings; its numbers are meaningless.

    shape  the shape from a trial of them (trial.shape_of); without it, the minimum
    terms  nanoseconds of terms beside leaves, without a shape
    """
    if shape is None:
        least = float(min(n_outputs, AT_ONCE))
        shape = np.array([1.0, settings.landmarks, settings.products, least, 1.0, 0.0, terms, 0.0])
    works, landmarks, products, present, uneven, by_distances, terms, _ = shape.tolist()
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
    parts["outputs"] += all_outputs_ns(n_outputs) - all_outputs_ns(outputs)  # The outline has fewer.
    parts["terms"] = terms
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
            its_children = np.arange(node * arity, (node + 1) * arity)
            children.append(~its_children if last else first + its_children)
            starts.append(starts[-1] + arity)
        first += nodes * arity
    if not levels:
        return Tree.single(n_features)
    centres = np.random.default_rng(0).standard_normal((starts[-1], n_features)).astype(MODEL_DTYPE)
    return Tree(np.array(starts, INDEX_DTYPE), np.concatenate(children).astype(LEAF_DTYPE), centres)


Values = Mapping[str, Any]

# The default values of a configuration: the default settings of training.
COMMON: Values = {
    "scaling": "standard",
    "leaf_rows": 1_000,
    "landmarks": 16,
    "products": 64,
    "overlap": 1,
    "width": 1.0,
    "codes": 0,
    "missing": "indicate",
    "feature_map": "none",
    "leaf_scaling": False,
    "refine_steps": 100,
    "trees": 0,
    "tree_depth": 6,
    "tree_rate": 0.1,
}
CLASSES: Values = {"loss": "hinge", "refine_ridge": 1e-3, "C": 10.0}
NUMBERS: Values = {"refine_ridge": 1e-2, "ridge": 1e-2, "target_transform": "none"}

DEFAULT = "default"
ONE_LEAF: Values = {"leaf_rows": 0, "landmarks": 128, "products": 0}
NO_LEAVES: Values = {"leaf_rows": 0, "landmarks": 0, "products": 0}
OF_TREES = ("trees", "tree_depth", "tree_rate", "target_transform")  # what a model of trees alone follows
PORTFOLIO: Mapping[str, Values] = {
    # By hand: the usual one, a cheap one, and the one closest to an exact SVM.
    DEFAULT: {},
    "learned": {"scaling": "learned"},
    "near the machine": {**ONE_LEAF, "loss": "distance", "refine_steps": 50},
    "nearly linear": {
        **{"leaf_rows": 0, "landmarks": 32, "products": 0, "width": 1 / 16, "refine_ridge": 0.1},
        **{"loss": "logistic"},
    },
    "additive": {
        **{"leaf_rows": 0, "landmarks": 64, "feature_map": "additive", "scaling": "none"},
        **{"refine_ridge": 1e-2},
    },
    "additive, nearly linear": {
        **{"leaf_rows": 0, "landmarks": 32, "products": 0, "feature_map": "additive", "scaling": "none"},
        **{"width": 1 / 4, "refine_ridge": 1e-2, "loss": "logistic"},
    },
    "small leaves, few landmarks": {
        **{"leaf_rows": 125, "overlap": 3, "scaling": "learned", "loss": "logistic"}
    },
    # By tests/benchmarks/portfolio.py, in the order in which they lower the regret on the development half.
    "small leaves, clipped": {
        **{"leaf_rows": 125, "landmarks": 64, "products": 64, "overlap": 3, "scaling": "learned"},
        **{"feature_map": "clip", "width": 0.5, "refine_ridge": 0.1, "loss": "logistic"},
        **{"leaf_scaling": True},
    },
    "one leaf, smooth": {
        **{"leaf_rows": 0, "landmarks": 128, "products": 64, "feature_map": "clip", "width": 0.5},
        **{"leaf_scaling": True},
    },
    "one leaf, logistic": {
        **{"leaf_rows": 0, "landmarks": 32, "products": 64, "scaling": "learned", "width": 2.0},
        **{"refine_ridge": 1e-2, "loss": "logistic", "leaf_scaling": True},
    },
    "small leaves, logistic": {
        **{"leaf_rows": 125, "landmarks": 16, "products": 64, "scaling": "learned", "width": 0.5},
        **{"refine_ridge": 0.1, "loss": "logistic", "leaf_scaling": True},
    },
    "one leaf, columns of codes, smooth": {
        **{"leaf_rows": 0, "landmarks": 128, "products": 64, "codes": 256, "width": 0.5},
        **{"refine_ridge": 0.1, "leaf_scaling": True},
    },
    "one leaf, learned": {**ONE_LEAF, "scaling": "learned", "refine_ridge": 1e-3},
    "one leaf, quantiles": {
        **{**ONE_LEAF, "feature_map": "quantile", "scaling": "learned", "width": 2.0},
        **{"leaf_scaling": True, "refine_ridge": 1e-4},
    },
    "trees": {"trees": 300, **NO_LEAVES},
}


@dataclass(frozen=True)
class Mutation:
    """One change of a configuration."""

    name: str
    changes: Values = field(default_factory=dict)
    """Values that it sets."""
    times: Values = field(default_factory=dict)
    """Factors of numbers."""
    task: str = ""
    """Its task; empty: both."""
    unless: Values = field(default_factory=dict)
    """Values of an incumbent that exclude it."""
    only: Values = field(default_factory=dict)
    """Values that an incumbent needs."""
    of_data: bool = False
    """Whether only some data allow it."""


NEAR: Values = {"loss": "distance"}  # such landmarks have no ridge, pairwise products or ARD scales


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("narrower", times={"width": 2.0}),
    Mutation("much narrower", times={"width": 4.0}),
    Mutation("wider", times={"width": 0.5}),
    Mutation("much wider", times={"width": 0.25}),
    Mutation("smaller leaves", times={"leaf_rows": 0.5}),
    Mutation("much smaller leaves", times={"leaf_rows": 0.25}),
    Mutation("more landmarks", times={"landmarks": 2}),
    Mutation("products", {"products": 64}, unless=NEAR),
    Mutation("overlap 2", {"overlap": 2}),
    Mutation("overlap 3", {"overlap": 3}),
    Mutation("more ridge", times={"refine_ridge": 10.0}, unless=NEAR),
    Mutation("less ridge", times={"refine_ridge": 0.1}, unless=NEAR),
    Mutation("landmarks near the machines", {"loss": "distance", "landmarks": 128}, task="classification"),
    Mutation("factors of leaves", {"leaf_scaling": True}, unless=NEAR),
    Mutation("more steps", {"refine_steps": 300}),
    Mutation("columns of few codes", {"codes": 16}, of_data=True),
    Mutation("columns of codes", {"codes": 256}, of_data=True),
    Mutation("learned scaling", {"scaling": "learned"}),
    Mutation("quantiles", {"feature_map": "quantile"}),
    Mutation("no map", {"feature_map": "none"}),
    Mutation("no indicators", {"missing": "impute"}, of_data=True),
    Mutation("logarithm of the target", {"target_transform": "log1p"}, task="regression", of_data=True),
    Mutation("root of the target", {"target_transform": "sqrt"}, task="regression", of_data=True),
    Mutation("larger C", times={"C": 8.0}, task="classification", only=NEAR),
    Mutation("smaller C", times={"C": 0.125}, task="classification", only=NEAR),
    Mutation("slower trees", {"tree_rate": 0.05, "trees": 600}, unless={"trees": 0}),
    Mutation("shallower trees", {"tree_depth": 4}, unless={"trees": 0}),
)
# Changes of the choice that cost less.
CHEAPER: tuple[Mutation, ...] = (
    Mutation("half of the landmarks", times={"landmarks": 0.5}),
    Mutation("no products", {"products": 0}),
    Mutation("half of the trees", times={"trees": 0.5, "tree_rate": 2.0}, unless={"trees": 0}),
)
