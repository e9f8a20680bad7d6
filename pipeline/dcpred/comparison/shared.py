"""Scaling, γ and C (or ridge) that all kernel machines of a comparison share: those that suit the exact
SVM on held-out training rows. ARD scalings are learned here, once, for all of them.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from dcpred.comparison.rows import Rows
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.model.leaf_model import EXACT, LeafModelType, leaf_model_types
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.process import one_thread
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.training.assembly import assemble
from dcpred_tasks.training.division import divide, learn_scaling, n_outputs
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.leaf import leaf_rows, with_leaf_model
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows

MOST_ROWS, MOST_HELD = 1_500, 2_000
SCALINGS = ("standard", "minmax")
WIDTHS = (0.25, 1.0, 4.0, 16.0)  # factors of γ = 1 / (features × variance)
LEARNED_WIDTHS = (0.5, 1.0, 2.0)  # values of γ with ARD scaling
PENALTIES = (1.0, 10.0, 100.0)
OWN_PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)
RIDGES = (1e-3, 1e-2, 1e-1)


def choose_shared(rows: Rows) -> dict[str, Any]:
    """Settings; `standard`, the best with standard scaling; `of`, exceptions of some models; `scalings` of
    all training rows by name; and all candidates. ARD scaling, which takes longer, is evaluated only with the
    C or ridge that is best for the others.
    """
    held = min(MOST_HELD, len(rows.X) // 3)
    order = np.random.default_rng(0).permutation(len(rows.X))
    test, train = order[:held], order[held : held + MOST_ROWS]
    if pairs := rows.held_out():
        train, test = (order[np.isin(order, side)] for side in pairs[-1])
        train, test = train[:MOST_ROWS], test[:held]
    some = rows.taken(train)
    scalings = {name: scaling_of(some, name) for name in (*SCALINGS, "learned")}
    tried: list[dict[str, Any]] = []
    name, values = ("C", PENALTIES) if rows.n_classes else ("ridge", RIDGES)

    def error(values: Mapping[str, object], kind: LeafModelType | None = None) -> float:
        scaling = scalings[str(values["scaling"])]
        given = {key: value for key, value in values.items() if key != "scaling"}
        given = given if kind else {"machine": EXACT} | given
        return _error(fitted_with(some, scaling, given, kind), rows, test)

    def attempt(scaling: str, gamma: float, value: float) -> None:
        settings = {"scaling": scaling, "gamma": gamma, name: value}
        tried.append({"settings": settings, "error": error(settings)})

    for scaling in SCALINGS:
        unit = _unit_gamma(scalings[scaling](some.X))
        for width, value in product(WIDTHS, values):
            attempt(scaling, width * unit, value)
    own_penalties = {}
    for kind in leaf_model_types().values():
        if kind.own_penalty and rows.n_classes:
            sized = kind.of_size(kind.sizes[1])
            errors = {C: error({"scaling": "standard", "C": C}, sized) for C in OWN_PENALTIES}
            own_penalties[kind.name] = {"C": min(errors, key=errors.__getitem__)}
    strength = min(tried, key=lambda one: one["error"])["settings"][name]
    for width in LEARNED_WIDTHS:
        attempt("learned", width, strength)
    best = min(tried, key=lambda one: one["error"])
    of_standard = [one for one in tried if one["settings"]["scaling"] == "standard"]
    used = dict.fromkeys((best["settings"]["scaling"], "standard"))
    return {
        "settings": best["settings"],
        "error": best["error"],
        "standard": min(of_standard, key=lambda one: one["error"])["settings"],
        "of": own_penalties,
        "scalings": {scaling: scaling_of(rows, scaling).as_lists() for scaling in used},
        "tried": tried,
    }


def scaling_of(rows: Rows, name: str) -> Scaling:
    """The scaling of all these rows."""
    settings = make_settings({"task": rows.task, "scaling": name, "categorical": "none"})
    weight = np.ones(len(rows.X))
    survey = survey_rows(rows.X, rows.target, weight, 0, rows.task)
    return learn_scaling(rows.X, rows.target, weight, survey, settings)


def fitted_with(
    rows: Rows, scaling: Scaling, values: Mapping[str, object], kind: LeafModelType | None = None
) -> Model:
    """A model of these settings with an existing scaling, in one leaf of all rows unless they state
    otherwise.

    kind  a baseline that is fitted to the leaf; None: what the settings name
    """
    one_leaf = {"n_leaves": 1, "max_leaf_rows": 1_000_000}
    settings = make_settings(
        {"task": rows.task, "categorical": "none", "calibrate": False, **one_leaf, **values}
    )
    weight = np.ones(len(rows.X))
    survey = survey_rows(rows.X, rows.target, weight, 0, rows.task)
    classes = tuple(range(rows.n_classes))
    if kind is None:
        factors = np.ones(rows.n_classes)
        return train_rows(rows.X, rows.target, weight, factors, survey, settings, classes, 1, scaling=scaling)
    kernels = divide(scaling, rows.X, weight, survey, settings).kernels
    X = scaling(rows.X)
    of_leaf = leaf_rows(X, rows.target, weight, None, n_outputs(rows.n_classes), settings)
    with one_thread():  # Training has one, too.
        leaf = with_leaf_model(of_leaf, kind.fit(of_leaf, kernels.local, settings, 0), settings)
    tree = Tree(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros((0, X.shape[1]), np.float32))
    count = np.array([len(X)])
    return assemble([leaf], count, tree, scaling, kernels, classes, settings, leaf_model=kind.name)


def _unit_gamma(X: Any) -> float:
    """1 / (features × variance) of scaled rows."""
    return float(1.0 / (X.shape[1] * max(float(X.astype(np.float64).var()), 1e-12)))


def _error(model: Model, rows: Rows, test: Any) -> float:
    found = score_rows(model, rows.X[test])[0]
    if rows.n_classes:
        return float((class_numbers(found) != rows.target[test]).mean())
    return float(((found[:, 0] - rows.target[test]) ** 2).mean())
