"""The trees that a search tries, over a sample of all rows, and the rows of some of their leaves that settings are judged on."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dcpred.cluster import Workers, run_all
from dcpred.cost_model import AT_ONCE, PredictedCost, predict_cost
from dcpred.progress import Reporter
from dcpred.search import START_C, START_OVERLAP, Budget
from dcpred.training import Training
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
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.metric import learn_metric
from dcpred_tasks.scaling import Scaling, fit_scaling
from dcpred_tasks.settings import Settings
from dcpred_tasks.survey import Survey
from dcpred_tasks.trainer import Division, balanced_factors, check_scaled, divide, n_outputs
from dcpred_tasks.tree import flatten
from dcpred_tasks.trial import FEWEST_ROWS, FOLDS, HELD_OUT, Verdict
from dcpred_tasks.trial_tasks import Gathered, TrialTree, gather_trial, probe_block, try_settings, write_trial_tree

MOST_OVERLAP = 4


def _rounded_up(cost: PredictedCost) -> str:
    """As a budget that allows it."""
    return f"{np.ceil(cost.cost_ratio * 10 + 1e-6) / 10:.1f}x ({np.ceil(cost.ns_per_row + 1e-6):.0f}ns)"


class TrialTrees:
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
