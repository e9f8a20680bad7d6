"""The floor of a search: the default settings, with the standard scaling and with the learned one, are judged
beside what it chose, and taken where they are surely better.

The judge is not that of the search. Whole models are trained on sampled rows, as a training does it, and the
same held-out rows tell them apart: those that the learned scaling does not know (fold 0).

    shuttle: nine features of whole numbers with very long tails. The search judged large leaves by a thousand
    of their rows, gave one feature 63 columns, and had room for one leaf of 32 landmarks within the budget:
    11.2 % of rows wrong. With the default settings 0.1 % are (2026-11-26).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dcpred.execution.progress import Step
from dcpred.execution.workers import run_all
from dcpred.tuning.judging import digest_of
from dcpred.tuning.points import Point
from dcpred.tuning.trial_plan import ERROR_POWER, FLOOR_ROWS, WHOLE_FEATURES, WHOLE_NUMBERS, WIDE_ERROR_POWER
from dcpred.tuning.trial_trees import TrialTrees
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.scratch.training_job import is_done
from dcpred_tasks.scratch.trial_files import losses_file, whole_file, write_whole
from dcpred_tasks.storage.atomic_files import read_arrays
from dcpred_tasks.task_bodies.try_settings import try_model
from dcpred_tasks.training.division import class_factors, row_weights
from dcpred_tasks.training.sampling import thinned
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import Verdict, folds_of

SCALINGS = ("standard", "learned")
# Landmarks and products of the default settings, and of smaller ones for budgets that have no room for them.
SIZES = ((16, 64), (16, 0), (8, 0))
FEWEST_HELD = 10  # held-out rows below which nothing is compared


@dataclass(frozen=True)
class Losses:
    """Losses of held-out rows by one model."""

    rows: FloatArray  # (n_held,)
    weight: FloatArray  # (n_held,)

    @property
    def share(self) -> FloatArray:
        return np.asarray(self.weight / self.weight.sum())

    @property
    def mean(self) -> float:
        return float(self.share @ self.rows)

    @property
    def variance(self) -> float:
        """Squared standard error of the mean."""
        return float(self.share**2 @ (self.rows - self.mean) ** 2)


def beside_defaults(trials: TrialTrees, chosen: Point) -> tuple[Point, dict[str, Any]]:
    """The point that a search chose, or default settings that are better by more than a standard error; and
    what the comparison showed, empty where too few rows are held out for one.
    """
    defaults = {scaling: _default(trials, scaling) for scaling in SCALINGS}
    points = [chosen, *(point for point in defaults.values() if point is not None)]
    every = _judged(trials, points) if len(points) > 1 else []
    if not every:
        return chosen, {}
    regression = trials.job.settings.task == "regression"
    own, best, told = every[0], chosen, {}
    for point, losses in zip(points[1:], every[1:], strict=True):
        gain, uncertain = gained(own, losses, regression)
        told[point.settings.scaling] = _told(losses, regression) | {
            "landmarks": point.settings.landmarks,
            "products": point.settings.products,
            "cost_ratio": point.cost.cost_ratio,
            "ns_per_row": point.cost.ns_per_row,
            "gain": gain,
            "gain_error": uncertain,
        }
        point = replace(point, verdict=Verdict(losses.mean, losses.mean, losses.variance))
        if gain > uncertain and (best is chosen or point.error < best.error):
            best = point
    rows = [
        {"scaling": scaling, "within_budget": point is not None, **told.get(scaling, {})}
        | {"taken": best is not chosen and scaling == best.settings.scaling}
        for scaling, point in defaults.items()
    ]
    found = {"n_judged": len(own.rows), "search": _told(own, regression), "defaults": rows}
    return best, found | {"words": _in_words(found)}


def gained(own: Losses, other: Losses, regression: bool) -> tuple[float, float]:
    """How much less the mean of the other losses is, and its standard error: of classes as if one more row
    told the two apart, since a single one is chance.
    """
    gain = Losses(own.rows - other.rows, own.weight)
    one_row = 0.0 if regression else float(gain.share.max())
    return gain.mean, float(np.sqrt(gain.variance + one_row**2))


def _in_words(found: dict[str, Any]) -> str:
    """What the comparison showed, in a sentence: of the default that was taken, or of the better one."""
    judged = [one for one in found["defaults"] if "gain" in one]
    best = max(judged, key=lambda one: (one["taken"], one["gain"]))
    own, other = (
        f"RMSE {one['rmse']:.4g}" if "rmse" in one else f"error {100 * one['error']:.3g} %"
        for one in (best, found["search"])
    )
    return (
        f"default settings with scaling={best['scaling']}: {own} against {other.split(' ', 1)[1]} of the"
        f" search; {'taken' if best['taken'] else 'not taken'}"
    )


def _told(losses: Losses, regression: bool) -> dict[str, Any]:
    """A loss and its standard error as they are recorded."""
    uncertain = float(np.sqrt(losses.variance))
    if not regression:
        return {"error": losses.mean, "standard_error": uncertain}
    root = float(np.sqrt(losses.mean))
    return {"rmse": root, "standard_error": uncertain / max(2.0 * root, 1e-300)}


def _default(trials: TrialTrees, scaling: str) -> Point | None:
    """Default settings within the budget, not judged; None where it has no room for them."""
    number = trials.add_default(scaling)
    if number is None:
        return None
    for landmarks, products in SIZES:
        settings = replace(trials.start(number), landmarks=landmarks, products=products)
        cost = trials.cost(number, settings)
        if trials.budget.allows(cost):
            return Point(number, settings, cost, Verdict(np.nan, np.nan))
    return None


def _judged(trials: TrialTrees, points: list[Point]) -> list[Losses]:
    """The losses of the same held-out rows by a whole model of each point; empty where they are too few."""
    job, survey = trials.job, trials.survey
    sample = trials.training.sample(survey, held=0)
    most = min(FLOOR_ROWS, max(WHOLE_NUMBERS // len(survey.minimum), 1))
    rows = sample.take(thinned(sample.number, most, job.settings.seed + 6))
    held = folds_of(rows.number, job.settings.seed, trials.rare) == 0
    if np.count_nonzero(held) < FEWEST_HELD:
        return []
    write_whole(job, rows, held, survey)
    share = min(len(rows.X) / survey.n_used, 1.0)
    tasks, factors = [], []
    for point in points:
        settings, factor = _thinner(point.settings, share, len(survey.minimum))
        tasks.append((job, point.tree, settings, digest_of(settings)))
        factors.append(factor)
    files = [losses_file(job, tree, digest) for _, tree, _, digest in tasks]
    todo = [task for task, file in zip(tasks, files, strict=True) if not is_done(file)]
    with trials.say.step("judging default settings", len(points) * len(rows.X), "rows") as advance:
        run_all(trials.workers, try_model, todo, _noting(trials, advance))
    weight = row_weights(rows.target, rows.weight, class_factors(survey, job.settings))[held]
    losses = [factor * read_arrays(file)["loss"] for file, factor in zip(files, factors, strict=True)]
    whole_file(job).unlink(missing_ok=True)
    return [Losses(one, weight) for one in losses]


def _noting(trials: TrialTrees, advance: Step) -> Any:
    return lambda _, receipt: trials.training.note(receipt, advance)


def _thinner(settings: Settings, share: float, n_features: int) -> tuple[Settings, float]:
    """Settings for a share of the rows, whose leaves have as many rows each; and what errors are multiplied
    with where they have fewer (see `trial_plan.ERROR_POWER`).
    """
    n_leaves = max(round(settings.n_leaves * share), 1)
    power = WIDE_ERROR_POWER if n_features >= WHOLE_FEATURES else ERROR_POWER
    return replace(settings, n_leaves=n_leaves), min(share * settings.n_leaves / n_leaves, 1.0) ** power
