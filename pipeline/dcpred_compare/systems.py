"""The systems to compare, each with the points of its cost grid, the cheapest first."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from dcpred_compare.baselines.leaf_model_type import BOTH, LeafModelType, leaf_model_types
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.leaf_model import EXACT
from dcpred_tasks.training.losses import DISTANCE

OURS = "dcpred"
DC_SVM = "dc_svm"
LOCAL_ROWS = 20_000  # maximum number of training rows of an exact SVM
# γ as in the paper of AdaptSVM, 1 / features, where its assumptions hold better.
WIDE: dict[str, Any] = {"scaling": "standard", "gamma": "scale"}
LANDMARKS = (4, 8, 16, 32, 64, 128, 256)
NEAR = (32, 64, 128)  # landmarks of models close to the local SVMs, of classes in leaves as large as possible
LEAVES = (64, 16, 4)  # early prediction of DC-SVM, the smallest local SVMs first
TREES = (20, 100, 400)
# Baselines of other packages, which dcpred_compare.trial makes.
PACKAGED = ("lightgbm", "xgboost", "hist_gradient_boosting", "random_forest", "sklearnex_svc")


@dataclass(frozen=True)
class Point:
    """One model of a system.

    name      of its files: SYSTEM-WHAT
    what      its description
    settings  of our estimators; of a leaf model, those besides the shared ones
    size      what a baseline counts; 0 for none
    tolerance  of a baseline; 0 for none
    """

    system: str
    name: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    tolerance: float = 0.0

    @property
    def baseline(self) -> LeafModelType | None:
        """The leaf model of another system, of the size and tolerance of the point."""
        kind = leaf_model_types().get(self.system)
        return replace(kind, size=self.size, tolerance=self.tolerance) if kind else None

    def most_trained_on(self, n_rows: int) -> int:
        """How many of the rows of a leaf it is fitted to."""
        most = int(self.settings["local_rows"])
        kind = self.baseline
        return kind.most_trained_on(n_rows, most) if kind else min(n_rows, most)


def every_system() -> tuple[str, ...]:
    return (OURS, *leaf_model_types(), EXACT, DC_SVM, *PACKAGED)


def chosen_systems(names: str | None, task: str) -> tuple[str, ...]:
    """The systems of a list with commas, or all that learn the task. Raises SettingsError."""
    if names is None:
        return tuple(name for name in every_system() if _learns(name, task))
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in chosen:
        if name not in every_system():
            raise SettingsError(
                f"Cannot compare system {name!r}: no system has this name. Choose from"
                f" {', '.join(every_system())}."
            )
        if not _learns(name, task):
            raise SettingsError(
                f"Cannot compare system {name} with task {task}: it learns"
                f" {' and '.join(leaf_model_types()[name].tasks)}. Omit it."
            )
    if not chosen:
        raise SettingsError("Cannot compare: no system is named. Name some, or omit --systems.")
    return chosen


def _learns(name: str, task: str) -> bool:
    kind = leaf_model_types().get(name)
    return task in (kind.tasks if kind else BOTH)


def points_of(system: str, budgets: Sequence[str], task: str, metric: str | None = None) -> list[Point]:
    """The grid of a system. `budgets` and `metric` apply to our searches."""
    if system == OURS:
        return _ours(budgets, task, metric)
    if system in PACKAGED:
        counted = "trees" if system != "sklearnex_svc" else ""
        sizes = TREES if counted else (0,)
        return [Point(system, f"{system}-{n}", f"{n} {counted}".strip(" 0"), size=n) for n in sizes]
    settings = {"leaf_model": EXACT, "local_rows": LOCAL_ROWS}
    if system == EXACT:
        return [Point(system, f"{system}-0", "", settings)]
    if system == DC_SVM:
        return [Point(system, f"{system}-{n}", f"{n} leaves", settings | {"n_leaves": n}) for n in LEAVES]
    return _of_baseline(leaf_model_types()[system])


def _of_baseline(kind: LeafModelType) -> list[Point]:
    """One leaf of all rows, of each size and tolerance."""
    settings: dict[str, Any] = {"local_rows": LOCAL_ROWS}
    if kind.kernel != "rbf":
        settings |= {"kernel": kind.kernel, "gamma": "scale"}
    points = []
    for size, tolerance in product(kind.sizes, kind.tolerances):
        name, words = f"{kind.name}-{size}", [f"{size} {kind.counted}"] if size else []
        if tolerance:
            name = f"{name}-{tolerance:g}"
            words.append(f"{kind.tolerated} {tolerance:g}")
        points.append(Point(kind.name, name, ", ".join(words), settings, size=size, tolerance=tolerance))
    if kind.wide:
        wide = [point for point in points if point.tolerance == max(kind.tolerances)]
        points += [
            replace(p, name=f"{p.name}-wide", what=f"{p.what}, γ = 1/features", settings=p.settings | WIDE)
            for p in wide[:3:2]
        ]
    return points


def _word(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def _ours(budgets: Sequence[str], task: str, metric: str | None) -> list[Point]:
    """Searches come last: they take longest, and the time limit may cut them."""
    near = {"scaling": "learned", "n_leaves": 1, "loss": DISTANCE}
    points = [
        Point(OURS, f"{OURS}-near-{m}", f"{m} landmarks near the exact SVM", near | {"landmarks": m})
        for m in (NEAR if task == "classification" else ())
    ]
    points += [
        Point(
            OURS,
            f"{OURS}-{m}",
            f"{m} landmarks",
            {"scaling": "learned", "overlap": 3, "landmarks": m, "products": 0},
        )
        for m in LANDMARKS
    ]
    by, words, settings = "", "", {}
    if metric is not None:
        by, words, settings = f"-{_word(metric)}", f" by {metric}", {"metric": metric}
    points.append(Point(OURS, f"{OURS}-plain{by}", f"no setting{words}", settings))
    for budget in budgets:
        name = f"{OURS}-budget-{_word(budget)}{by}"
        points.append(Point(OURS, name, f"search within {budget}{words}", settings | {"budget": budget}))
    return points
