"""Settings chosen by validation, then training with them: `dcpred tune`, and `dcpred train` without settings.

    survey    every block, as in training: limits, classes, a sample
    scaling   here: learned, and the best of the others
    probe     every block: the rows of a few leaves of every tree that is tried, and of their halos
    search    every leaf: settings judged on a quarter of its rows, which do not train it (dcpred.search says which)
    train     as always, with the settings that did best within the budget

What was chosen lies in MODEL.tuned.json, so that a job that was cut off does not search again.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dcpred.cluster import Pool, Workers, run_all
from dcpred.cost_model import AT_ONCE, PredictedCost, predict_cost
from dcpred.locking import check_free, hold
from dcpred.progress import SILENT, Reporter
from dcpred.scratch import make_scratch
from dcpred.search import START_C, START_OVERLAP, Budget, Point, chosen_from, frontier, search
from dcpred.training import Training, TrainReport, check_training_data, run_hash, train
from dcpred.trial_plan import (
    HELD_ROWS,
    LEAVES,
    MANY_ROWS,
    MOST_ROWS,
    MOST_TREES,
    OWN_ROWS,
    TRIED_ROWS,
    WHOLE,
    WHOLE_GROWTH,
    WHOLE_NUMBERS,
    WHOLE_ROWS,
    draw_leaves,
    outline,
    tree_sizes,
    tries_whole,
)
from dcpred_tasks import store
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import DataError, InterruptedRunError, PlanConflictError, SettingsError
from dcpred_tasks.files import read_own_json, resource_errors, write_json
from dcpred_tasks.job import TrainJob
from dcpred_tasks.metric import learn_metric
from dcpred_tasks.scaling import Scaling, fit_scaling
from dcpred_tasks.settings import Settings, make_settings, settings_dict
from dcpred_tasks.survey import Survey
from dcpred_tasks.trainer import Division, balanced_factors, check_scaled, divide, n_outputs
from dcpred_tasks.tree import flatten
from dcpred_tasks.trial import FEWEST_ROWS, FOLDS, HELD_OUT, Verdict
from dcpred_tasks.trial_tasks import Gathered, TrialTree, gather_trial, probe_block, try_settings, write_trial_tree

MOST_OVERLAP = 4
DEFAULT_BUDGET = Budget(ratio=20.0)
SLACK = 1.01  # of the least error: what a cheaper model may have where nobody named a budget


@dataclass
class TuneReport:
    """What was found: settings, the frontier of error against predicted cost, and the training."""

    settings: dict[str, Any]
    chosen: dict[str, float]
    frontier: list[dict[str, Any]]
    seconds: dict[str, float]
    trained: dict[str, Any] = field(default_factory=dict)


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
                return Budget(ratio=value) if unit == "x" else Budget(ns=value * (1e3 if unit == "us" else 1.0))
            break
    raise SettingsError(
        f"a budget of {text!r} was asked for, but it is written as 8x (linear predictions a row), 0.2us or 200ns"
    )


def tune(
    x: str,
    y: str,
    model: Path,
    pool: Pool,
    *,
    start: Settings | None = None,
    weight: str | None = None,
    budget: Budget | None = None,
    short: bool = False,
    say: Reporter = SILENT,
) -> TuneReport:
    """Choose settings for a data set, and train with them.

    start   the task, and what is not searched for: class_weight, seed, keep_support_vectors, sample_rows, limits of leaves
    budget  what a row may cost; None: 20 linear predictions, and the cheapest model within a hundredth of the least error
    short   look at less
    Raises what `dcpred.training.train` raises, and SettingsError where no model is as cheap as the budget.
    """
    x, y, weight = store.absolute(x), store.absolute(y), store.absolute(weight) if weight else None
    start = replace(start or Settings(), scaling="learned", kernel="rbf", triangle=0, refine=True)
    found, scaling = _choice(x, y, weight, model, pool, start, budget, short, say)
    begin = time.perf_counter()
    settings = make_settings(found["settings"])
    same = scaling if settings.scaling == "learned" else None
    report: TrainReport = train(x, y, model, settings, pool, weight=weight, say=say, scaling=same)
    found["seconds"]["train"] = time.perf_counter() - begin
    return TuneReport(**found, trained=vars(report))


def _choice(
    x: str,
    y: str,
    weight: str | None,
    model: Path,
    pool: Pool,
    start: Settings,
    budget: Budget | None,
    short: bool,
    say: Reporter,
) -> tuple[dict[str, Any], Scaling | None]:
    """The fields of a report, and the scaling that was learned if it was learned now."""
    plan, names = check_training_data(x, y, weight, start)
    asked = {"budget": None if budget is None else str(budget), "short": short}
    run = run_hash(x, y, weight, start, plan) + str(sorted(asked.items()))
    kept = model.with_name(f"{model.name}.tuned.json")
    if kept.exists() and (earlier := read_own_json(kept)).get("run") == run:
        say.say(f"settings were chosen before; they are read from {kept}")
        return earlier["found"], None
    for there in (model, model.with_name(f"{model.name}.scratch")):
        if there.exists():
            raise PlanConflictError(
                f"a model was to be tuned and written to {model}, but {there} is there already, of other data, settings or "
                "budget; remove it or name another place"
            )
    scratch = model.with_name(f"{model.name}.tune")
    _check_own(scratch)
    check_free(scratch)
    job = TrainJob(x, y, weight, str(scratch.absolute()), start, plan.n_rows, plan.block_rows)
    seconds: dict[str, float] = {}
    with pool() as workers, resource_errors(scratch):
        workers.check_memory(plan.task_bytes, "write the input with smaller chunks, or start fewer or larger workers")
        make_scratch(scratch, model)
        with hold(scratch):
            _clear(scratch)
            try:
                workers.check_sees(scratch.absolute())
                training = Training(job, plan, workers, say)
                arena = _Arena(training, training.survey(names), workers, say, short, budget or DEFAULT_BUDGET)
                arena.prepare(seconds)
                begin = time.perf_counter()
                points = search(arena, range(len(arena.divisions)), budget or DEFAULT_BUDGET, short)
                seconds["search"] = time.perf_counter() - begin
            except InterruptedRunError:
                raise InterruptedRunError(
                    "interrupted in the search for settings; run the same command again to search anew"
                ) from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    if not points:
        raise SettingsError(
            "no model that could be trained on these rows is as cheap as the budget: the cheapest takes "
            f"{arena.least()}; ask for more"
        )
    best = choose(points, budget)
    found = {
        "settings": settings_dict(best.settings),
        "chosen": _row(best, arena),
        "frontier": [_row(point, arena) for point in frontier(chosen_from(points))],
        "seconds": seconds,
    }
    write_json(kept, {"run": run, "found": found})
    return found, arena.learned


MARK = "tune.json"


def _check_own(scratch: Path) -> None:
    """Raise PlanConflictError where the directory for the work in progress is somebody else's."""
    if scratch.exists() and not (scratch / MARK).exists() and any(entry.name != "lock" for entry in scratch.iterdir()):
        raise PlanConflictError(f"{scratch} is needed for the work in progress, but it holds other files; remove them")


def _clear(scratch: Path) -> None:
    """Remove what a search that was killed has left: nothing says which data it was of."""
    _check_own(scratch)
    for entry in scratch.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name not in ("lock", MARK):
            entry.unlink()
    write_json(scratch / MARK, {})
    (scratch / "survey").mkdir()


def choose(points: Sequence[Point], budget: Budget | None) -> Point:
    """The best within a named budget; else the cheapest that is nearly as good as the best."""
    points = chosen_from(points)
    least = min(p.error for p in points)
    if budget is not None:
        return min((p for p in points if p.error <= least), key=lambda p: p.cost.ns_per_row)
    return min((p for p in points if p.error <= least * SLACK), key=lambda p: p.cost.ns_per_row)


def _row(point: Point, arena: "_Arena") -> dict[str, Any]:
    """A line of the frontier; the quality is None where there were too few rows to judge by."""
    s, n_judged = point.settings, arena.n_judged(point.tree) * point.folds
    name, value = ("rmse", float(np.sqrt(point.error))) if s.task == "regression" else ("accuracy", 1.0 - point.error)
    quality = {name: value if n_judged else None, "n_judged": n_judged}
    shape = {name: getattr(s, name) for name in ("scaling", "n_leaves", "landmarks", "products", "overlap")}
    return {**quality, "cost_ratio": point.cost.cost_ratio, "ns_per_row": point.cost.ns_per_row, **shape}


def _rounded_up(cost: PredictedCost) -> str:
    """As a budget that allows it."""
    return f"{np.ceil(cost.cost_ratio * 10 + 1e-6) / 10:.1f}x ({np.ceil(cost.ns_per_row + 1e-6):.0f}ns)"


class _Arena:
    """Trees over a sample of all rows, and rows of some leaves of each."""

    def __init__(
        self, training: Training, survey: Survey, workers: Workers, say: Reporter, short: bool, budget: Budget
    ) -> None:
        self.training, self.survey, self.workers, self.say = training, survey, workers, say
        self.short, self.budget = short, budget
        self.job = training.job
        self.divisions: list[tuple[Settings, Division]] = []
        self.leaves: list[tuple[IntArray, FloatArray]] = []  # of each tree: those looked at, what each stands for
        self.counts: list[IntArray] = []  # sampled rows of every leaf
        self.growth: list[float] = []  # what is left of errors when all rows train
        self.gathered: list[Gathered] = []
        self.cheapest = ""
        self.learned: Scaling | None = None

    def prepare(self, seconds: dict[str, float]) -> None:
        """Learn scalings, grow trees, and gather rows."""
        begin = time.perf_counter()
        self.say.say("learning the scaling from a sample")
        sample, target, weight = self.training.sample(self.survey)
        start, survey = self.job.settings, self.survey
        with threadpool_limits(1):  # as in training: sums come in another order with more threads
            metric = learn_metric(sample, target, weight, survey.minimum, survey.maximum, start.task, start.seed)
        self.learned = Scaling(metric.shift, metric.factor)
        check_scaled(self.learned, survey)
        seconds["scaling"] = time.perf_counter() - begin
        begin = time.perf_counter()
        most = 2 if self.short and survey.n_used > MANY_ROWS else MOST_TREES
        with threadpool_limits(1):
            for n_leaves in tree_sizes(survey.n_used):
                if len(self.divisions) < most and (survey.n_used / n_leaves <= MOST_ROWS or not self.divisions):
                    self._add_tree("learned", n_leaves, sample, weight)
            if metric.name == "learned" and self.divisions:
                other = max((name for name in metric.scores if name != "learned"), key=metric.scores.__getitem__)
                self._add_tree(other, self.divisions[0][0].n_leaves, sample, weight)
            if tries_whole(survey.n_used, len(survey.minimum), start):
                self._add_tree("learned", 1, sample, weight, WHOLE)
        if self.divisions:
            self._probe()
        seconds["trees"] = time.perf_counter() - begin

    def _add_tree(
        self, scaling: str, n_leaves: int, sample: Any, weight: FloatArray, more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        rows = self.survey.n_used / n_leaves
        fewest = int(np.clip(rows / 4, 4, min(30, self.job.settings.own_leaf_rows // START_OVERLAP)))
        overlap = min(START_OVERLAP, int(np.clip(TRIED_ROWS / min(rows, OWN_ROWS), 1, None))) if n_leaves > 1 else 1
        start = replace(
            self.job.settings, scaling=scaling, n_leaves=n_leaves, min_leaf_rows=fewest, overlap=overlap, C=START_C
        )
        most = OWN_ROWS
        if more:
            start = replace(start, **more, max_leaf_rows=max(start.max_leaf_rows, self.survey.n_used))
            most = min(WHOLE_ROWS, WHOLE_NUMBERS // len(self.survey.minimum))
        if scaling == "learned" and self.learned is not None:
            division = divide(self.learned, sample, weight, self.survey, start)
        else:
            fitted = fit_scaling(scaling, sample, weight, self.survey.minimum, self.survey.maximum)
            try:
                check_scaled(fitted, self.survey)
            except DataError:
                return  # features too large for it
            division = divide(fitted, sample, weight, self.survey, start)
        tree = flatten(division.root)
        walk = predict_cost(outline(start, 0, division, np.ones(tree.n_leaves, np.int64), 1))
        self.cheapest = f"more than {_rounded_up(walk)}"
        if not self.budget.allows(walk):
            return
        leaf = tree.descend(division.scaling(sample))
        counts = np.bincount(leaf, minlength=tree.n_leaves)
        chosen, stands_for = draw_leaves(counts, self.survey.n_used, start.seed)
        size = counts[chosen] * (self.survey.n_used / len(sample))
        factors = balanced_factors(self.survey) if start.class_weight == "balanced" else np.empty(0)
        kept = np.minimum(1.0, most / np.maximum(size, 1.0))
        write_trial_tree(
            self.job,
            len(self.divisions),
            TrialTree(division.scaling, tree, chosen, kept, self.survey.classes, factors),
        )
        self.divisions.append((start, division))
        self.leaves.append((chosen, stands_for))
        self.growth.append(float(kept.min()) ** WHOLE_GROWTH if more else 1.0)
        self.counts.append(counts)

    def _probe(self) -> None:
        spans = list(self.training.plan.spans())
        n_trees = len(self.divisions)
        tasks = [(self.job, n_trees, MOST_OVERLAP, *span) for span in spans]
        marks = [self.job.root / f"probe-{n_trees - 1}" / f"{block:06d}.npz" for block, _, _ in spans]
        self.training.work("gathering rows of some leaves", probe_block, tasks, self.training.plan.n_rows, marks)
        for number in range(n_trees):
            self.gathered.append(gather_trial(self.job, number, len(spans)))

    def n_judged(self, tree: int) -> int:
        """Rows that verdicts on all leaves rest on."""
        rows = self.gathered[tree].rows
        return int((HELD_OUT * rows[rows >= FEWEST_ROWS]).sum())

    def least(self) -> str:
        """What the cheapest model takes that was looked for: where every tree alone is dearer, more than one of them."""
        small = [replace(start, landmarks=8, products=0, overlap=1) for start, _ in self.divisions]
        costs = [self.cost(tree, settings) for tree, settings in enumerate(small)]
        cost = min(costs, key=lambda c: c.ns_per_row, default=None)
        return self.cheapest if cost is None else _rounded_up(cost)

    def start(self, tree: int) -> Settings:
        return self.divisions[tree][0]

    def gamma(self, tree: int) -> float:
        return self.divisions[tree][1].kernels.local.gamma

    def cost(self, tree: int, settings: Settings) -> PredictedCost:
        """Of a mean row: those of constant leaves only walk down the tree."""
        division, outputs, weight = self.divisions[tree][1], n_outputs(len(self.survey.classes)), self.leaves[tree][1]
        if outputs > 1:  # of many classes a leaf has few
            outputs = min(outputs, AT_ONCE * round(float(np.average(-(-self.gathered[tree].targets // AT_ONCE), weights=weight))))
        full, walk = (
            predict_cost(outline(s, m, division, self.counts[tree], outputs))
            for s, m in ((settings, settings.landmarks), (settings, 0))
        )
        works = float(weight @ (self.gathered[tree].mixed_from <= settings.overlap) / weight.sum())
        parts = {name: works * a + (1 - works) * getattr(walk, name) for name, a in asdict(full).items()}
        return PredictedCost(**parts)

    def most_overlap(self, tree: int) -> int:
        """So that a leaf and its halo are not too many rows to try."""
        rows = min(self.survey.n_used / self.start(tree).n_leaves, OWN_ROWS)
        return int(np.clip(TRIED_ROWS / rows, 1, MOST_OVERLAP)) if self.start(tree).n_leaves > 1 else 1

    def folds(self, tree: int) -> int:
        """How often rows are held out until there are enough to choose by."""
        return int(np.clip(round(HELD_ROWS / max(self.n_judged(tree), 1)), 1, FOLDS))

    def judge(self, tree: int, tries: Sequence[Settings], share: float, folds: Sequence[int] = (0,)) -> list[Verdict]:
        """Means over leaves, each for the rows that it stands for, and over folds of held-out rows."""
        leaves, stands_for = self.leaves[tree]
        some = range(max(int(np.ceil(share * len(leaves))), min(len(leaves), LEAVES[0])))
        # Settings of a large leaf are tried side by side; those of a small one share their local machines.
        together = 1 if self.start(tree).refine_epochs else len(tries)
        parts = [(i, k, at) for i in some for k in range(len(folds)) for at in range(0, len(tries), together)]
        outputs = n_outputs(len(self.survey.classes))
        tasks = [(self.job, tree, int(leaves[i]), list(tries[at : at + together]), outputs, folds[k]) for i, k, at in parts]
        found = np.full((len(some), len(folds), len(tries), 2), np.nan)
        start = self.start(tree)
        title = f"trying {len(tries)} settings with {start.n_leaves:,} leaves, scaling {start.scaling}"
        with self.say.step(title, len(tasks), "tasks") as advance:

            def note(number: int, result: Any) -> None:
                receipt, verdicts = result
                i, k, at = parts[number]
                found[i, k, at : at + together] = [(v.soft, v.hard) for v in verdicts]
                self.training.note(receipt, lambda _: None)
                advance(1)

            run_all(self.workers, try_settings, tasks, note)
        judged = np.isfinite(found).any(axis=(2, 3))  # a try that came to nothing in a leaf that was judged is infinitely bad
        found = np.where(judged[:, :, None, None], np.where(np.isfinite(found), found, np.inf), 0.0)
        weight = (stands_for * self.gathered[tree].weight)[: len(some), None] * judged
        means = np.tensordot(weight, found, axes=2) / max(weight.sum(), 1e-300) * self.growth[tree]
        return [Verdict(float(soft), float(hard)) for soft, hard in means]
