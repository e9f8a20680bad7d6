"""Scaling, γ and C (or ridge) that all kernel machines of a comparison share: those that suit the exact
machine on rows that are held out of the training rows.
"""

from itertools import product
from typing import Any

import numpy as np

from dcpred.comparison.rows import Rows
from dcpred.estimators.classifier import DCPredClassifier
from dcpred.estimators.regressor import DCPredRegressor

MOST_ROWS, MOST_HELD = 1_500, 2_000
SCALINGS = ("standard", "minmax")
WIDTHS = (0.25, 1.0, 4.0, 16.0)  # factors of γ = 1 / (features × variance)
LEARNED_WIDTHS = (0.5, 1.0, 2.0)  # values of γ with learned scaling
PENALTIES = (1.0, 10.0, 100.0)
TREE_PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)
RIDGES = (1e-3, 1e-2, 1e-1)


def choose_shared(rows: Rows) -> dict[str, Any]:
    """Settings; `standard`, those that are best with standard scaling; `of`, what some machines have
    otherwise; and all that were tried. Learned scaling, which takes longer, is tried with the C or ridge that
    is best of the others.
    """
    held = min(MOST_HELD, len(rows.X) // 3)
    order = np.random.default_rng(0).permutation(len(rows.X))
    test, train = order[:held], order[held : held + MOST_ROWS]
    tried: list[dict[str, Any]] = []
    name, values = ("C", PENALTIES) if rows.n_classes else ("ridge", RIDGES)

    def attempt(scaling: str, gamma: float, value: float) -> None:
        settings = {"scaling": scaling, "gamma": gamma, name: value}
        tried.append({"settings": settings, "error": _error(rows, train, test, settings)})

    for scaling in SCALINGS:
        unit = _unit_gamma(rows, scaling)
        for width, value in product(WIDTHS, values):
            attempt(scaling, width * unit, value)
    tree_C = _c_of_trees(rows, train, test) if rows.n_classes else None
    strength = min(tried, key=lambda one: one["error"])["settings"][name]
    for width in LEARNED_WIDTHS:
        attempt("learned", width, strength)
    best = min(tried, key=lambda one: one["error"])
    of_standard = [one for one in tried if one["settings"]["scaling"] == "standard"]
    return {
        "settings": best["settings"],
        "error": best["error"],
        "standard": min(of_standard, key=lambda one: one["error"])["settings"],
        "of": {"ldkl": {"C": tree_C}} if tree_C else {},
        "tried": tried,
    }


def _c_of_trees(rows: Rows, train: Any, test: Any) -> float:
    """C of local deep kernels, which overfit where exact machines do not."""
    settings = {"scaling": "standard", "machine": "ldkl", "size": 16}
    return min(TREE_PENALTIES, key=lambda C: _error(rows, train, test, settings | {"C": C}))


def _unit_gamma(rows: Rows, scaling: str) -> float:
    """1 / (features × variance) of scaled rows."""
    X = rows.X.astype(np.float64)
    spread = X.std(axis=0) if scaling == "standard" else np.ptp(X, axis=0)
    scaled = (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return float(1.0 / (X.shape[1] * max(scaled.var(), 1e-12)))


def _error(rows: Rows, train: Any, test: Any, settings: dict[str, Any]) -> float:
    common = {"machine": "exact", "n_leaves": 1, "max_leaf_rows": MOST_ROWS, "random_state": 0, "n_jobs": 1}
    given: dict[str, Any] = common | settings
    made = (DCPredClassifier if rows.n_classes else DCPredRegressor)(**given)
    made.fit(rows.X[train], rows.target[train])
    found = made.predict(rows.X[test])
    if rows.n_classes:
        return float((found != rows.target[test]).mean())
    return float(((found - rows.target[test]) ** 2).mean())
