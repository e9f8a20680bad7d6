"""Settings chosen by validation, then training with them: `dcpred tune`, and `dcpred train` without settings.

    survey    every block, as in training: limits, classes, a sample
    scaling   in this process: the learned one, and the best of the others
    probe     every block: the rows of a few leaves of every tree that is tried, and of their halos
    search    every such leaf: settings are judged on a quarter of its rows that do not train it (search.py)
    floor     sampled rows: default settings take its place where they are surely better (floor.py)
    train     every row, with the settings that did best within the budget

What was chosen lies in MODEL.tuned.json, so that a job that was cut off does not search again. A search that
was cut off goes on in MODEL.tune: blocks that were read are not read again, tries that were judged are not
judged again (judging.py).
"""

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.cost.measured import measured_linear_ns
from dcpred.cost.predicted import predict_cost
from dcpred.execution.course import Shares
from dcpred.execution.lease import check_free, hold
from dcpred.execution.progress import SILENT, Reporter, counted, say_where
from dcpred.execution.workers import InlineWorkers, Pool, started_once
from dcpred.plan import plan_routing
from dcpred.training.scratch import distrusted, make_scratch, own_mark, search_folder
from dcpred.training.steps import Known, Training, TrainReport
from dcpred.training.train import (
    check_driver,
    check_name,
    check_training_data,
    fingerprints,
    named_features,
    numbered_for,
    train,
    training_hashes,
)
from dcpred.tuning.floor import beside_defaults
from dcpred.tuning.forecast import forecast_tuning
from dcpred.tuning.judging import JOURNAL
from dcpred.tuning.kept import found_before
from dcpred.tuning.points import SLACK, Budget, Point, choose, frontier
from dcpred.tuning.search import judged_unseen, search
from dcpred.tuning.tree_search import LONG, QUICK, Extent
from dcpred.tuning.trial_trees import TrialTrees
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import InterruptedRunError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scratch.training_job import MemoryJob, TrainJob
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import absolute
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    read_own_json,
    resource_errors,
    write_json,
)
from dcpred_tasks.storage.plain_files import is_system_file
from dcpred_tasks.training.categories import features_named
from dcpred_tasks.training.machine_settings import DISTANCE
from dcpred_tasks.training.setting_descriptions import BESIDE_A_SEARCH
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.target_means import NOT_CODED, CodedFeatures

MEMORY_CHUNK_BYTES = 16 * 2**20  # rows in memory are looked at as if they lay in chunks of this size
NOT_JUDGED = (
    "there are too few rows to hold any out, so that nothing could be judged; settings are those that a"
    " search begins with"
)


@dataclass
class TuneReport:
    """What a search found, and the training that followed."""

    settings: dict[str, Any]
    """The settings that were chosen."""
    chosen: dict[str, float]
    """Quality and its standard error, predicted cost of the model that they promise, and its shape."""
    frontier: list[dict[str, Any]]
    """The same of every point that no cheaper one is as good as, by cost; some may be beyond the budget."""
    seconds: dict[str, float]
    """Time by step."""
    made: dict[str, Any] = field(default_factory=dict)
    """Predicted cost and shape of the model itself, whose small leaves may have fewer landmarks than were
    chosen.
    """
    floor: dict[str, Any] = field(default_factory=dict)
    """How the default settings compare with what the search found (floor.beside_defaults)."""
    trained: dict[str, Any] = field(default_factory=dict)
    """The fields of `TrainReport`."""


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
        f"a budget of {text!r} was asked for, but it is written as 8x (linear predictions a row), 0.2us or"
        " 200ns"
    )


def on_this_machine(budget: Budget, n_features: int, say: Reporter) -> Budget:
    """A budget in nanoseconds with what a linear prediction takes here. Costs are predicted as ratios, which
    machines differ in less than in times.
    """
    linear = measured_linear_ns(n_features)
    say.say(
        f"a linear prediction of {counted(n_features, 'feature', 'features')} takes {linear:.1f} ns on this"
        f" machine, so that {budget.ns:g} ns are {budget.ns / linear:.1f} of them"
    )
    return replace(budget, linear_ns=linear)


def tune(
    x: str,
    y: str,
    model: Path,
    pool: Pool,
    *,
    start: Settings | None = None,
    weight: str | None = None,
    budget: Budget | None = None,
    extent: Extent = LONG,
    say: Reporter = SILENT,
) -> TuneReport:
    """Choose settings for a data set, and train with them.

    start   the task, and what is not searched for (BESIDE_A_SEARCH, min_leaf_rows)
    budget  what a row may cost; None: 20 linear predictions or 100 ns, whichever is more, or twice what the
            cheapest model takes where that is more, and the cheapest model within a hundredth of the least
            error
    extent  how much is looked at

    Raises what `dcpred.training.train.train` raises, and SettingsError where no model is as cheap as the
    budget.
    """
    x, y = absolute(x), absolute(y)
    weight = absolute(weight) if weight else None
    check_name(model)
    start = _start(start)
    with say.job("choosing settings and training"), started_once(pool) as same:
        found, known, scaling = _choice(x, y, weight, model, same, start, budget, extent, say)
        begin = time.perf_counter()
        settings = make_settings(found["settings"])
        report: TrainReport = train(
            x, y, model, settings, same, weight=weight, say=say, known=known, scaling=scaling
        )
    found["seconds"]["train"] = time.perf_counter() - begin
    return TuneReport(**found, made=_made(model), trained=vars(report))


def choose_settings(
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64],
    start: Settings,
    coded: CodedFeatures = NOT_CODED,
    *,
    budget: Budget | None = None,
    extent: Extent = QUICK,
    say: Reporter = SILENT,
) -> tuple[Settings, Scaling | None]:
    """What `tune` would train rows in memory with: settings, and the scaling that they were chosen with if it
    was learned. All is done in the memory of this process.

    coded  features whose codes means of the target replace
    """
    chunk_rows = min(max(MEMORY_CHUNK_BYTES // max(X[:1].nbytes, 1), 1), len(X))
    plan = plan_routing(len(X), X.shape[1], X.dtype.itemsize, chunk_rows)
    arrays = {"x": X, "y": y, "weight": weight}
    job = MemoryJob("", "", "", "", _start(start), plan.n_rows, plan.block_rows, coded, arrays=arrays)
    workers = InlineWorkers()
    shares = forecast_tuning(len(X), X.shape[1], workers.n_threads(), extent)
    slack = SLACK if budget is None else 1.0
    with say.job("choosing settings"):
        points, trials, seconds = _looked(
            Training(job, plan, workers, say), None, shares, extent, budget, slack
        )
        found = _described(points, trials, shares, slack, seconds)
    say.say(_words(make_settings(found["settings"])))
    if not found["chosen"]["n_judged"]:
        say.say(NOT_JUDGED)
    return make_settings(found["settings"]), trials.learned.get(found["settings"]["scaling"])


def _looked(
    training: Training,
    names: tuple[str, ...] | None,
    shares: Shares,
    extent: Extent,
    budget: Budget | None,
    slack: float,
) -> tuple[list[Point], TrialTrees, dict[str, float]]:
    """The points of a search over all rows, the trees that it tried, and what its steps took."""
    seconds: dict[str, float] = {}
    with training.say.part(shares.of_rest("survey")):
        survey = training.survey(names)
        training.stored_sample(survey)
    trials = TrialTrees(training, survey, training.workers, training.say, extent, budget)
    return _searched(trials, shares, slack, seconds), trials, seconds


def check_beside_a_search(names: Iterable[str]) -> None:
    """Raise SettingsError for a setting that a search chooses."""
    for name in sorted(set(names) - BESIDE_A_SEARCH):
        raise SettingsError(
            f"{name} was set for a search, but that chooses it; leave it out, or train with it by `dcpred"
            f" train --set {name}=…`"
        )


def _start(start: Settings | None) -> Settings:
    return replace(start or Settings(), scaling="learned", kernel="rbf", triangle=0, refine=True)


# Extents in the names of searches, so that one of an earlier version goes on.
NAMED_BEFORE = {"long": False, "short": True}


def _choice(
    x: str,
    y: str,
    weight: str | None,
    model: Path,
    pool: Pool,
    start: Settings,
    budget: Budget | None,
    extent: Extent,
    say: Reporter,
) -> tuple[dict[str, Any], Known | None, Scaling | None]:
    """The fields of a report, what was found out of all rows if it was found out now, and the scaling that
    settings were judged with if it was learned: another one, of more rows, may do worse by chance (satimage:
    90.7 % for 91.6 %).
    """
    plan, names = check_training_data(x, y, weight, start)
    start, coded = numbered_for(start, x)
    looked = NAMED_BEFORE.get(extent.name, extent.name)
    asked = {"budget": None if budget is None else str(budget), "short": looked}
    contents = fingerprints(x, y, weight)
    runs = [one + str(sorted(asked.items())) for one in training_hashes(contents, start, plan, coded=coded)]
    run = runs[0]
    kept, scratch = model.with_name(f"{model.name}.tuned.json"), search_folder(model)
    if kept.exists() and (earlier := read_own_json(kept)).get("run") in runs:
        say.say(f"settings were chosen before; they are read from {kept}")
        if any(_is_of(scratch, one) for one in runs):  # The search was cut off at its very end.
            shutil.rmtree(scratch, ignore_errors=True)
        found, scaling = found_before(earlier, kept, zarr_arrays.open_array(x).shape[1], len(coded.feature))
        return found, None, scaling
    _check_no_other(model)
    check_new_name(model, f".tuned.json{PARTIAL}")
    _check_own(scratch)
    check_free(scratch)
    if budget is not None and budget.ns < float("inf"):
        budget = on_this_machine(budget, zarr_arrays.open_array(x).shape[1], say)
    job = TrainJob(x, y, weight, str(scratch.absolute()), start, plan.n_rows, plan.block_rows, coded)
    check_driver(plan, x, start)
    seconds: dict[str, float] = {}
    slack = SLACK if budget is None else 1.0  # A named budget may be spent.
    with pool() as workers, resource_errors(scratch):
        say_where(say, "searching", workers, scratch)
        workers.check_memory(
            plan.task_bytes, "write the input with smaller chunks, or start fewer or larger workers"
        )
        shares = forecast_tuning(plan.n_rows, zarr_arrays.open_array(x).shape[1], workers.n_threads(), extent)
        make_scratch(scratch, model)
        with hold(scratch):
            if goes_on := _prepared(scratch, run, say):
                say.say("an interrupted search goes on")
            try:
                workers.check_sees(str(scratch.absolute()))
                with distrusted(scratch, goes_on):
                    training = Training(job, plan, workers, say)
                    points, trials, seconds = _looked(training, names, shares, extent, budget, slack)
                    sample = training.stored_sample(trials.survey)
            except InterruptedRunError:
                raise InterruptedRunError(
                    "interrupted in the search for settings; run the same command again to go on with it"
                ) from None
            except RefusedError:
                # Once tries are judged, a second call goes on from them: a chunk or a cluster may be mended.
                if not (scratch / JOURNAL).exists():
                    shutil.rmtree(scratch, ignore_errors=True)
                raise
            with distrusted(scratch, goes_on):
                found = _described(points, trials, shares, slack, seconds)
            if found["floor"]:
                say.say(found["floor"]["words"])
            say.say(_words(make_settings(found["settings"])))
            if not found["chosen"]["n_judged"]:
                say.say(NOT_JUDGED)
            scaling = trials.learned.get(found["settings"]["scaling"])
            write_json(kept, {"run": run, "found": found, "scaling": scaling.as_lists() if scaling else {}})
            shutil.rmtree(scratch, ignore_errors=True)
    return found, Known(contents, trials.survey, sample, training.targets), scaling


def _check_no_other(model: Path) -> None:
    """Raises PlanConflictError where a model, or work at one, is there already."""
    unfinished = model.with_name(f"{model.name}.scratch")
    check_free(unfinished)
    for there in (model, unfinished):
        if there.exists():
            raise PlanConflictError(
                f"Cannot write a model to {model}: {there} is there already, of other data, settings or"
                " budget. Data count as other when their files have other times or sizes. Remove it or choose"
                " another path."
            )


def _searched(trials: TrialTrees, shares: Shares, slack: float, seconds: dict[str, float]) -> list[Point]:
    """The points of a search; notes what it took. Raises SettingsError where the budget allows none."""
    with features_named(named_features(trials.job.x)) if trials.job.x else nullcontext():
        trials.prepare(seconds, shares)
    begin = time.perf_counter()
    say = trials.say
    with say.part(shares.of_rest("search")), say.step("trying settings", 1.0, "") as trials.tried:
        points = search(trials, range(len(trials.trees)), trials.budget, trials.extent, slack)
    seconds["search"] = time.perf_counter() - begin
    if not points:
        raise SettingsError(
            f"a budget of {trials.budget.words} was asked for, but the cheapest model of these rows takes"
            f" {trials.least()}; ask for so much or more"
        )
    return points


def _described(
    points: Sequence[Point], trials: TrialTrees, shares: Shares, slack: float, seconds: dict[str, float]
) -> dict[str, Any]:
    """The fields of a report."""
    best = choose(points, slack)
    # The scaling does not know the rows that are held out first, which matters more where they are many: with
    # factors that know them small leaves of a9a seem 1.2 points better. Nobody is told of a quick look.
    if trials.extent.rounds and trials.folds(best.tree) > 1:
        best, points = judged_unseen(trials, best, points, trials.n_judged(best.tree))
    begin = time.perf_counter()
    with trials.say.part(shares.of_rest("floor")):
        best, floor = beside_defaults(trials, best)
    seconds["floor"] = time.perf_counter() - begin
    points = [best, *points] if best not in points else points
    return {
        "settings": settings_dict(best.settings),
        "chosen": _row(best, trials),
        "frontier": [_row(point, trials) for point in frontier(points)],
        "seconds": seconds,
        "floor": floor,
    }


def _words(s: Settings) -> str:
    """What was chosen, in a sentence."""
    leaves = counted(s.n_leaves or 1, "leaf", "leaves")
    landmarks = counted(s.landmarks, "landmark", "landmarks")
    landmarks += " near the local machines" if s.loss == DISTANCE else ""
    gamma = s.head_gamma or s.gamma
    width = gamma if isinstance(gamma, str) else f"{gamma:.3g}"
    return f"chosen: {leaves}, {landmarks}, overlap {s.overlap}, {s.scaling} scaling, γ {width}"


MARK = "tune.json"


def _check_own(scratch: Path) -> None:
    """Raise PlanConflictError where the directory for the work in progress is somebody else's."""
    if (
        scratch.exists()
        and not (scratch / MARK).exists()
        and any(entry.name != "lock" and not is_system_file(entry.name) for entry in scratch.iterdir())
    ):
        raise PlanConflictError(
            f"{scratch} is needed for the work in progress, but it holds other files; remove them"
        )


def _prepared(scratch: Path, run: str, say: Reporter) -> bool:
    """Make the directory ready for a run: True where the same one was cut off in it and goes on; what
    another one has left is removed.
    """
    _check_own(scratch)
    if _is_of(scratch, run) and read_own_json(scratch / MARK) == own_mark(run):
        return True
    if (scratch / JOURNAL).exists():
        say.say(
            f"what a search of other data, settings or budget, or of another version of dcpred, has left in"
            f" {scratch} is removed"
        )
    write_json(scratch / MARK, {})  # The directory is ours, and of no run until all else is removed.
    for entry in scratch.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name not in ("lock", MARK):
            entry.unlink()
    (scratch / "survey").mkdir()
    write_json(scratch / MARK, own_mark(run))
    return False


def _is_of(scratch: Path, run: str) -> bool:
    """Whether the directory for the work in progress is that of a run."""
    return (scratch / MARK).exists() and read_own_json(scratch / MARK).get("run") == run


def _made(path: Path) -> dict[str, Any]:
    model = open_artifact(path).model()
    cost, landmarks = predict_cost(model), np.diff(model.landmark_at)
    working = landmarks[landmarks > 0]
    return {
        "cost_ratio": cost.cost_ratio,
        "ns_per_row": cost.ns_per_row,
        "n_leaves": model.n_leaves,
        "least_landmarks": int(working.min()) if len(working) else 0,
        "most_landmarks": int(landmarks.max()),
    }


def _row(point: Point, trials: TrialTrees) -> dict[str, Any]:
    """A line of the frontier; the quality is None where there were too few rows to judge by."""
    s, n_judged = point.settings, trials.n_judged(point.tree) * point.folds
    if s.task == "regression":
        name, value = "rmse", float(np.sqrt(point.error))
        uncertain = point.standard_error / max(2.0 * value, 1e-300)
    else:
        name, value, uncertain = "accuracy", 1.0 - point.error, point.uncertain(n_judged)
    quality = {
        name: value if n_judged else None,
        "standard_error": uncertain if n_judged else None,
        "n_judged": n_judged,
    }
    shape = {name: getattr(s, name) for name in ("scaling", "n_leaves", "landmarks", "products", "overlap")}
    cost = {"cost_ratio": point.cost.cost_ratio, "ns_per_row": point.cost.ns_per_row}
    return {**quality, **cost, "within_budget": point.within, **shape}
