"""The systems to compare, each with the points of its cost grid, the cheapest first."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.machine import BASES, BOTH, MACHINES, known
from dcpred_tasks.training.losses import DISTANCE

OURS = "dcpred"
EXACT = "exact"
LOCAL_ROWS = 20_000  # maximum number of training rows of an exact SVM
SIZES: dict[str, Sequence[int]] = {
    "nystrom": (16, 64, 256, 1024),
    "kmeans_nystrom": (16, 64, 256, 1024),
    "fourier": (64, 256, 1024, 4096),
    "fastfood": (64, 256, 1024, 4096),
    "tensor_sketch": (64, 256, 1024, 4096),
    "maclaurin": (64, 256, 1024, 4096),
    "maclaurin_h01": (64, 256, 1024, 4096),
    "adapt_svm": (2, 16, 64, 256),
    "group_svm": (2, 16, 64, 256),
    "reduced_set": (8, 16, 32, 64, 128),
    "aesvm": (5, 20, 50),
    "ldkl": (4, 16, 64, 256),
    "ball_tree": (8, 32),
    "support_tree": (8, 32),
}
# τ of AdaptSVM: one that keeps the decisions of the exact SVM, and the one of most figures of its paper;
# ε of a support tree by its error.
TOLERANCES = {"adapt_svm": (0.001, 1000.0), "support_tree": (0.02, 0.1)}
GROUPED = {"adapt_svm", "group_svm"}
CANCELLATION = (
    "AdaptSVM and GroupSVM approximate the sums of both signs, whose difference is the decision, with errors"
    " relative to each sum. Where classes overlap, the sums are hundreds of times their difference. Then"
    " AdaptSVM keeps decisions only with a τ as small as 0.001, which computes most groups exactly; GroupSVM"
    " has no such fallback."
)
# γ as in the paper of AdaptSVM, 1 / features, where its assumptions hold better.
WIDE: dict[str, Any] = {"scaling": "standard", "gamma": "scale"}
LANDMARKS = (4, 8, 16, 32, 64, 128, 256)
NEAR = (32, 64, 128)  # landmarks of models close to the local SVMs, of classes in leaves as large as possible
LEAVES = (64, 16, 4)  # early prediction of DC-SVM, the smallest local SVMs first
TREES = (20, 100, 400)
# Baselines of other packages: their package, and what their points count.
BASELINES = {
    "lightgbm": ("lightgbm", "LightGBM"),
    "xgboost": ("xgboost", "XGBoost"),
    "hist_gradient_boosting": ("sklearn", "HistGradientBoosting of scikit-learn"),
    "random_forest": ("sklearn", "random forest of scikit-learn"),
    "sklearnex_svc": ("sklearnex", "SVC or SVR of scikit-learn-intelex"),
}


@dataclass(frozen=True)
class Point:
    """One model of a system.

    name      of its files: SYSTEM-WHAT
    what      its description
    settings  of our estimators; of a leaf model or basis, those besides the shared ones
    rival     the system of BASELINES; "" for one of ours
    size      what a baseline counts
    """

    system: str
    name: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    rival: str = ""
    size: int = 0

    @property
    def machine(self) -> str:
        """The leaf model or basis that it has; "" where it has neither."""
        return str(self.settings.get("machine") or self.settings.get("basis") or "")


def every_system() -> tuple[str, ...]:
    return (OURS, *BASES, *MACHINES, "dc_svm", *BASELINES)


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
                f" {' and '.join(known(name).tasks)}. Omit it."
            )
    if not chosen:
        raise SettingsError("Cannot compare: no system is named. Name some, or omit --systems.")
    return chosen


def _learns(name: str, task: str) -> bool:
    return task in (known(name).tasks if name in BASES | MACHINES else BOTH)


def points_of(system: str, budgets: Sequence[str], task: str, metric: str | None = None) -> list[Point]:
    """The grid of a system. `budgets` and `metric` apply to our searches."""
    if system == OURS:
        return _ours(budgets, task, metric)
    if system in BASELINES:
        counted = "trees" if system != "sklearnex_svc" else ""
        sizes = TREES if counted else (0,)
        return [
            Point(system, f"{system}-{n}", f"{n} {counted}".strip(" 0"), rival=system, size=n) for n in sizes
        ]
    if system == "dc_svm":
        own = {"machine": EXACT, "local_rows": LOCAL_ROWS}
        return [Point(system, f"{system}-{n}", f"{n} leaves", own | {"n_leaves": n}) for n in LEAVES]
    return _of_machine(system)


def _of_machine(system: str) -> list[Point]:
    """One leaf of all rows, for each size and tolerance."""
    one = known(system)
    own: dict[str, Any] = {"basis" if system in BASES else "machine": system, "local_rows": LOCAL_ROWS}
    if "rbf" not in one.kernels:
        own |= {"kernel": one.kernels[0], "gamma": "scale"}
    points = []
    for size, tolerance in product(SIZES.get(system, (0,)), TOLERANCES.get(system, (0.0,))):
        name, words = f"{system}-{size}", [f"{size} {one.counted}"] if size else []
        settings = own | ({"size": size} if size else {})
        if tolerance:
            name, settings = f"{name}-{tolerance:g}", settings | {"tolerance": tolerance}
            words.append(f"{one.tolerated} {tolerance:g}")
        points.append(Point(system, name, ", ".join(words), settings))
    if system == "adapt_svm":
        wide = [point for point in points if point.settings["tolerance"] == max(TOLERANCES[system])]
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
    by, words, own = "", "", {}
    if metric is not None:
        by, words, own = f"-{_word(metric)}", f" by {metric}", {"metric": metric}
    points.append(Point(OURS, f"{OURS}-plain{by}", f"no setting{words}", own))
    for budget in budgets:
        name = f"{OURS}-budget-{_word(budget)}{by}"
        points.append(Point(OURS, name, f"search within {budget}{words}", own | {"budget": budget}))
    return points
