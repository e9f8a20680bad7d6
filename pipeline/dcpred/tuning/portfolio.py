"""The configurations that a search evaluates, and the mutations of the best one. All decisions are here.

A configuration names settings, and three values that follow from the data: `leaf_rows`, rows of a leaf (0:
one leaf of all rows); `width`, γ of the landmarks as a multiple of the one that follows from the scaling;
`codes`, the maximum number of different integers of a feature for one-hot encoding (0: none).
`landmarks` are halved until the budget allows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
}
CLASSES: Values = {"loss": "hinge", "refine_ridge": 1e-3, "C": 10.0}
NUMBERS: Values = {"refine_ridge": 1e-2, "ridge": 1e-2, "target_transform": "none"}

DEFAULT = "default"
ONE_LEAF: Values = {"leaf_rows": 0, "landmarks": 128, "products": 0}
PORTFOLIO: Mapping[str, Values] = {
    # By hand: the usual one, a cheap one, and the one closest to an exact SVM.
    DEFAULT: {},
    "learned": {"scaling": "learned"},
    "near the machine": {**ONE_LEAF, "loss": "distance", "refine_steps": 50},
    "nearly linear": {
        **{"leaf_rows": 0, "landmarks": 32, "products": 0, "width": 1 / 16, "refine_ridge": 0.1},
        **{"loss": "logistic"},
    },
    "small leaves, few landmarks": {
        **{"leaf_rows": 125, "overlap": 3, "scaling": "learned", "loss": "logistic"},
    },
    # By tests/benchmarks/portfolio.py, in the order in which they lower the regret on the development half.
    "small leaves, near the machines": {
        **{"leaf_rows": 250, "landmarks": 128, "products": 0, "overlap": 2, "feature_map": "clip"},
        **{"scaling": "sharpened", "width": 0.5, "refine_ridge": 0.1, "refine_steps": 50},
        **{"loss": "distance"},
    },
    "small leaves, quantiles": {
        **{"leaf_rows": 250, "landmarks": 64, "products": 0, "overlap": 2, "feature_map": "quantile"},
        **{"scaling": "sharpened", "width": 0.5, "refine_ridge": 0.1, "ridge": 0.1},
        **{"C": 1.25},
    },
    "one leaf, columns of codes": {
        **{"leaf_rows": 0, "landmarks": 64, "products": 64, "codes": 256, "scaling": "learned"},
        **{"width": 0.25, "leaf_scaling": True, "missing": "impute"},
    },
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
        **{"refine_ridge": 1e-2, "loss": "logistic", "leaf_scaling": True, "ridge": 0.1},
    },
    "small leaves, logistic": {
        **{"leaf_rows": 125, "landmarks": 16, "products": 64, "scaling": "learned", "width": 0.5},
        **{"refine_ridge": 0.1, "loss": "logistic", "leaf_scaling": True},
    },
    "one leaf, columns of codes, smooth": {
        **{"leaf_rows": 0, "landmarks": 128, "products": 64, "codes": 256, "width": 0.5},
        **{"refine_ridge": 0.1, "leaf_scaling": True},
    },
    "one leaf, learned": {**ONE_LEAF, "scaling": "learned", "C": 80.0, "refine_ridge": 1e-3},
    "one leaf, quantiles": {
        **{**ONE_LEAF, "feature_map": "quantile", "scaling": "learned", "width": 2.0, "C": 80.0},
        **{"leaf_scaling": True, "refine_ridge": 1e-4},
    },
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


NEAR: Values = {"loss": "distance"}  # such landmarks have no ridge, pairwise products or ARD scales


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("narrower", times={"width": 2.0}),
    Mutation("much narrower", times={"width": 4.0}),
    Mutation("wider", times={"width": 0.5}),
    Mutation("much wider", times={"width": 0.25}),
    Mutation("smaller leaves", times={"leaf_rows": 0.5}),
    Mutation("much smaller leaves", times={"leaf_rows": 0.25}),
    Mutation("larger leaves", times={"leaf_rows": 2.0}),
    Mutation("one leaf", {"leaf_rows": 0, "landmarks": 128, "products": 0}),
    Mutation("more landmarks", times={"landmarks": 2}),
    Mutation("products", {"products": 64}, unless=NEAR),
    Mutation("overlap 2", {"overlap": 2}),
    Mutation("overlap 3", {"overlap": 3}),
    Mutation("more ridge", times={"refine_ridge": 10.0}, unless=NEAR),
    Mutation("less ridge", times={"refine_ridge": 0.1}, unless=NEAR),
    Mutation("logistic loss", {"loss": "logistic"}, task="classification"),
    Mutation("hinge loss", {"loss": "hinge"}, task="classification"),
    Mutation("landmarks near the machines", {"loss": "distance", "landmarks": 128}, task="classification"),
    Mutation("factors of leaves", {"leaf_scaling": True}, unless=NEAR),
    Mutation("more steps", {"refine_steps": 300}),
    Mutation("columns of few codes", {"codes": 16}),
    Mutation("columns of codes", {"codes": 256}),
    Mutation("learned scaling", {"scaling": "learned"}),
    Mutation("sharpened scaling", {"scaling": "sharpened"}),
    Mutation("standard scaling", {"scaling": "standard"}),
    Mutation("clipped", {"feature_map": "clip"}),
    Mutation("quantiles", {"feature_map": "quantile"}),
    Mutation("no map", {"feature_map": "none"}),
    Mutation("no indicators", {"missing": "impute"}),
    Mutation("logarithm of the target", {"target_transform": "log1p"}, task="regression"),
    Mutation("root of the target", {"target_transform": "sqrt"}, task="regression"),
    Mutation("more ridge of machines", times={"ridge": 10.0}, task="regression"),
    Mutation("less ridge of machines", times={"ridge": 0.1}, task="regression"),
    Mutation("larger C", times={"C": 8.0}, task="classification"),
    Mutation("smaller C", times={"C": 0.125}, task="classification"),
)
