"""The trees that a search tries, over a sample of all rows, and the rows of some of their leaves that
settings are judged on.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from dcpred.cost.predicted import PredictedCost, predict_cost
from dcpred.execution.course import Shares
from dcpred.execution.progress import Reporter, Step
from dcpred.execution.workers import Workers
from dcpred.training.steps import Training
from dcpred.tuning.forecast import Headway
from dcpred.tuning.judging import Judge
from dcpred.tuning.points import DEFAULT_BUDGET, LEAST_TIMES, Budget, rounded_up
from dcpred.tuning.search import expected_tries
from dcpred.tuning.tree_search import (
    LANDMARKS,
    QUICK_FEW,
    START_C,
    START_OVERLAP,
    Ask,
    Extent,
    suited,
)
from dcpred.tuning.trial_plan import (
    DRAWS,
    ERROR_POWER,
    FEW_ROWS,
    HELD_ROWS,
    LARGER,
    LOCAL_ROWS,
    MANY_ROWS,
    MOST_TREES,
    OWN_ROWS,
    TREES_BESIDE_WHOLE,
    TRIED_ROWS,
    VERY_WIDE_FEATURES,
    WHOLE,
    WHOLE_BY_DESCENT,
    WHOLE_FEATURES,
    WHOLE_NUMBERS,
    WHOLE_ROWS,
    WIDE_ERROR_POWER,
    GrownTree,
    TreeSample,
    best_base,
    draw_leaves,
    outline,
    start_ridge,
    tree_sizes,
    tries_whole,
    undivided,
)
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.engine.layout import AT_ONCE
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.coding import Coding
from dcpred_tasks.model.scaling import Scaling, fit_scaling
from dcpred_tasks.process import one_thread
from dcpred_tasks.scratch.training_job import Sample, is_done
from dcpred_tasks.scratch.trial_files import Gathered, TrialTree, gather_trial, probe_file, write_trial_tree
from dcpred_tasks.task_bodies.train_model import Receipt
from dcpred_tasks.task_bodies.try_settings import probe_block
from dcpred_tasks.training.division import (
    Division,
    auto_leaves,
    check_scaled,
    class_factors,
    divide,
    learn_scaling,
    n_outputs,
)
from dcpred_tasks.training.gaps import as_chosen
from dcpred_tasks.training.learned_columns import learn_columns
from dcpred_tasks.training.setting_descriptions import BESIDE_A_SEARCH
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.tree_fitting import flatten
from dcpred_tasks.training.trial import (
    FEWEST_ROWS,
    HELD_OUT_SHARE,
    UNSEEN_FOLD,
    Verdict,
    folds_of,
    rare_folds,
)

MOST_OVERLAP = 4
LARGEST_KNOWN = 2.0  # rows of a leaf whose local machine may be trained on a part of them, in such parts
LARGEST_UNIT = 1e28  # γ that a search can still multiply
LARGEST_SCALED = 1e17  # a feature whose squared distances do not overflow in single precision


class TrialTrees:
    """Trees over a sample of all rows, and rows of some leaves of each."""

    def __init__(
        self,
        training: Training,
        survey: Survey,
        workers: Workers,
        say: Reporter,
        extent: Extent,
        budget: Budget | None,
    ) -> None:
        self.training, self.survey, self.workers, self.say = training, survey, workers, say
        self.budget, self.named = budget or DEFAULT_BUDGET, budget is not None
        self.extent = suited(extent, survey.n_used, len(survey.minimum))
        self.job = training.job
        self.trees: list[GrownTree] = []
        self.gathered: list[Gathered] = []  # rows of each tree
        # Scaling and number of leaves of every tree that was grown or left out.
        self.attempted: set[tuple[str, int]] = set()
        self.cheapest = ""
        self.tried: Step = lambda amount: None  # called with the share of the search that a try is
        self.learned: dict[str, Scaling] = {}  # scalings by the names of their settings
        self.coding: Coding | None = None  # the columns that features become in all trees
        self.rare: IntArray = np.zeros((2, 0), np.int64)  # folds of sampled rows of rare classes
        self.n_columns = len(survey.minimum)
        self.asked = self.job.settings  # the settings that were asked for, with these features

    def prepare(self, seconds: dict[str, float], shares: Shares) -> None:
        """Learn scalings, grow trees, and gather rows. Notes what that took."""
        begin = perf_counter()
        sample = self.training.sample(self.survey)
        start, survey = self.job.settings, self.survey
        # One thread, as in training: sums come in another order with more.
        with (
            self.say.part(shares.of_rest("scaling")),
            self.say.step("learning the scaling", None, ""),
            one_thread(),
        ):
            # Small leaves would seem better than they are with factors that know the rows to judge by: a9a,
            # 64 leaves 14.0 % wrong and one leaf 14.1 %, on other rows 15.3 and 14.7 %.
            if start.task == "classification":
                self.rare = rare_folds(sample.number, sample.target, start.seed)
            unseen = self.training.sample(survey, held=0)
            seen = unseen.take(np.flatnonzero(folds_of(sample.number, start.seed, self.rare) != 0))
            # No feature of many outweighs all others.
            coding, metric = learn_columns(seen.X, seen.target, seen.weight, survey, start, WHOLE_FEATURES)
            limits = survey.minimum, survey.maximum
            if coding is not None:
                self.coding, limits = coding, coding.limits(*limits)
                self.n_columns = len(coding.source)
            self.asked = as_chosen(start, coding, self.job.array("x").shape[1])
        found = {"learned": metric} | ({"sharpened": metric.sharpened} if metric.sharpened else {})
        self.learned = {name: Scaling(one.shift, one.factor, coding) for name, one in found.items()}
        for scaling in self.learned.values():
            check_scaled(scaling, survey)
        self.training.tell_columns(self.learned["learned"], survey)
        seconds["scaling"] = perf_counter() - begin
        begin = perf_counter()
        base = best_base(metric.scores, start.task)
        left_out = (metric.factor == 0) & (limits[0] < limits[1])
        thinned = metric.name != "learned" and bool(base) and bool(left_out.any())
        grown_on = TreeSample(sample, [*(["sharpened"] if metric.sharpened else []), *base], thinned)
        with (
            self.say.part(shares.of_rest("trees")),
            self.say.step("growing trees", None, ""),
            one_thread(),
        ):
            self._grow(grown_on)
        with self.say.part(shares.of_rest("rows")), one_thread():
            self._gather()
            self._grow_coarser(grown_on)
        if not self.named and self.trees and not self.affords():
            self.budget = Budget(ns=LEAST_TIMES * min(cost.ns_per_row for cost in self._least_costs()))
            self.say.say(
                f"no model is as cheap as {DEFAULT_BUDGET.ratio:g} linear predictions; the search allows"
                f" {LEAST_TIMES:g} times what the cheapest takes"
            )
        headway = Headway(expected_tries(len(self.trees), self.extent))
        self.judged = Judge(self.job, self.workers, n_outputs(len(self.survey.classes)), headway)
        seconds["trees"] = perf_counter() - begin

    def _grow(self, sample: TreeSample) -> None:
        """The trees that a search chooses from."""
        fine, _ = tree_sizes(self.survey.n_used)
        if self.extent is QUICK_FEW:
            self._grow_few(fine, sample)
            return
        whole = tries_whole(self.survey.n_used, self.n_columns, self.asked)
        wide = whole and self.n_columns >= WHOLE_FEATURES
        beside = TREES_BESIDE_WHOLE + (self.n_columns < VERY_WIDE_FEATURES)
        most = 2 if self.extent.few_trees and self.survey.n_used > MANY_ROWS else MOST_TREES
        if wide and self.extent.few_trees:
            fine, most = fine[len(fine) // 2 :], beside
        for n_leaves in fine:
            if len(self.trees) < most:
                self._add_tree("learned", n_leaves, sample)
        sizes = [tree.start.n_leaves for tree in self.trees]
        if sizes and not (wide and self.extent.few_trees):
            few_rows = self.survey.n_used <= FEW_ROWS and self.extent.rounds
            for scaling in sample.other_scalings:
                for n_leaves in dict.fromkeys([sizes[0], *([sizes[-1]] if few_rows else [])]):
                    self._add_tree(scaling, n_leaves, sample)
        if whole:
            self._add_tree("learned", 1, sample, coarse=True)
            # Where only the distance from the middle counts, neighbours leave out features by chance.
            few = self.survey.n_used <= FEW_ROWS and not wide
            if sample.other_scalings and (sample.thinned or few):
                self._add_tree(sample.other_scalings[-1], 1, sample, coarse=True)

    def _grow_few(self, fine: list[int], sample: TreeSample) -> None:
        """For few rows: one leaf of all of them with each scaling, and the largest leaves beside it."""
        for scaling in dict.fromkeys(["learned", *sample.other_scalings, "standard"]):
            self._add_tree(scaling, 1, sample)
        for n_leaves in fine[:1] if fine[0] > 1 else []:
            self._add_tree("learned", n_leaves, sample)

    def _grow_coarser(self, sample: TreeSample) -> None:
        """Where the budget has no room for the cheapest model of any tree, trees with fewer and fewer leaves,
        so that what is possible within a budget is possible within every larger one.
        """
        fine, coarse = tree_sizes(self.survey.n_used)
        for n_leaves, scaling in product([*fine, *coarse], ["learned", *sample.other_scalings]):
            if (scaling, n_leaves) not in self.attempted and not self.affords():
                self._add_tree(scaling, n_leaves, sample, coarse=n_leaves in coarse)
                self._gather()

    def affords(self) -> bool:
        """Whether the budget has room for a model of any tree."""
        return any(map(self.budget.allows, self._least_costs()))

    def _least_costs(self) -> list[PredictedCost]:
        small = [replace(tree.start, landmarks=LANDMARKS[0], products=0, overlap=1) for tree in self.trees]
        return [self.cost(tree, settings) for tree, settings in enumerate(small)]

    def least(self) -> str:
        """What the cheapest model takes, as a budget is written. Where the walk down every tree is beyond the
        budget: more than the last walk.
        """
        cost = min(self._least_costs(), key=lambda c: c.ns_per_row, default=None)
        return self.cheapest if cost is None else rounded_up(cost)

    def _add_tree(self, scaling: str, n_leaves: int, sample: TreeSample, coarse: bool = False) -> None:
        """Grow a tree and draw the leaves that are looked at. It is left out where the walk down to its
        leaves alone is beyond the budget, features are too large for the scaling, or leaves are too large.

        coarse  its leaves have more rows than those of other trees, and training must not divide them
        """
        self.attempted.add((scaling, n_leaves))
        division = self._division(scaling, n_leaves, sample)
        if division is None:
            return
        tree = flatten(division.root)
        walk = predict_cost(outline(self.job.settings, 0, division, np.ones(tree.n_leaves, np.int64), 1))
        self.cheapest = f"more than {rounded_up(walk)}"
        if not self.budget.allows(walk):
            return
        leaf = tree.descend(division.scaling(sample.rows.X))
        counts = np.bincount(leaf, minlength=tree.n_leaves)
        rows = counts * (self.survey.n_used / len(sample.rows.X))
        start = self._start(scaling, n_leaves, int(rows.max()), coarse)
        if start is None:
            return
        chosen, draws = draw_leaves(leaf, tree.n_leaves, self.survey.n_used, self.n_columns, start.seed)
        most = WHOLE_ROWS if start.refine_epochs else WHOLE_BY_DESCENT
        looked_at = min(most, WHOLE_NUMBERS // self.n_columns) if n_leaves == 1 else OWN_ROWS
        kept = np.minimum(1.0, looked_at / np.maximum(rows[chosen], 1.0))
        self._write_tree(division, chosen, kept)
        power = WIDE_ERROR_POWER if len(self.survey.minimum) >= WHOLE_FEATURES else ERROR_POWER
        error_factor = float(np.average(kept, weights=np.maximum(counts[chosen], 1))) ** power
        most_overlap = start.overlap if coarse else MOST_OVERLAP
        self.trees.append(GrownTree(start, division, counts, chosen, draws, error_factor, most_overlap))

    def _write_tree(self, division: Division, leaves: IntArray, kept: FloatArray) -> None:
        """Keep the next tree for workers."""
        factors, tree = class_factors(self.survey, self.job.settings), flatten(division.root)
        trial = TrialTree(division.scaling, tree, leaves, kept, self.survey.classes, factors, self.rare)
        write_trial_tree(self.job, len(self.trees), trial)

    def add_default(self, scaling: str) -> int | None:
        """The number of a new tree of the default settings with this scaling; None where features are too
        large for it. What a row costs in it is what its sampled rows show.
        """
        sample, survey, given = self.training.sample(self.survey), self.survey, self.job.settings
        asked = self.asked if scaling in self.learned else given
        kept: dict[str, Any] = {name: getattr(asked, name) for name in BESIDE_A_SEARCH}
        settings = Settings(
            **kept,
            scaling=scaling,
            n_leaves=auto_leaves(survey.n_used),
            min_leaf_rows=min(Settings().min_leaf_rows, given.max_leaf_rows),
        )
        rows = sample.X, sample.target, sample.weight
        try:
            fitted = self.learned.get(scaling) or learn_scaling(*rows, survey, settings)
        except DataError:
            return None
        division = self._divided(fitted, sample, settings)
        if division is None:
            return None
        tree = flatten(division.root)
        leaf, leaves = tree.descend(division.scaling(sample.X)), np.arange(tree.n_leaves)
        counts = np.bincount(leaf, minlength=tree.n_leaves)
        different = np.unique(np.column_stack([leaf, sample.target]), axis=0)[:, 0].astype(np.int64)
        targets = np.bincount(different, minlength=tree.n_leaves)
        mixed_from = np.where(targets > 1, 1, np.iinfo(np.int64).max)
        self._write_tree(division, leaves, np.ones(tree.n_leaves))
        draws = np.full(tree.n_leaves, DRAWS)
        self.trees.append(GrownTree(settings, division, counts, leaves, draws, 1.0, settings.overlap))
        self.gathered.append(Gathered(counts, targets, np.ones(tree.n_leaves), mixed_from))
        return len(self.trees) - 1

    def _division(self, scaling: str, n_leaves: int, sample: TreeSample) -> Division | None:
        survey = self.survey
        if scaling in self.learned:
            fitted = self.learned[scaling]
        else:
            given = sample.rows.X, sample.rows.weight, survey.minimum, survey.maximum
            fitted = fit_scaling(scaling, *given, self.coding)
            try:
                check_scaled(fitted, survey)
            except DataError:
                return None
        settings = replace(
            self.asked, scaling=scaling, n_leaves=n_leaves, min_leaf_rows=self._fewest(n_leaves)
        )
        return self._divided(fitted, sample.rows, settings)

    def _divided(self, scaling: Scaling, sample: Sample, settings: Settings) -> Division | None:
        """None where a search could not compute with the scaled features."""
        survey = self.survey
        if np.abs(scaling(np.stack([survey.minimum, survey.maximum]))).max() > LARGEST_SCALED:
            return None
        division = divide(scaling, sample.X, sample.weight, survey, settings)
        return division if division.kernels.local.gamma < LARGEST_UNIT else None

    def _fewest(self, n_leaves: int) -> int:
        """Rows of a leaf below which it is merged."""
        most = max(min(30, self.job.settings.own_leaf_rows // START_OVERLAP), 1)
        return int(np.clip(self.survey.n_used / n_leaves / 4, 4, most))

    def _start(self, scaling: str, n_leaves: int, largest: int, coarse: bool) -> Settings | None:
        """The settings that the search in a tree starts from; None where training would divide its leaves."""
        rows = self.survey.n_used / n_leaves
        overlap = (
            min(START_OVERLAP, int(np.clip(TRIED_ROWS / min(rows, OWN_ROWS), 1, None))) if n_leaves > 1 else 1
        )
        fewest = self._fewest(n_leaves)
        start = replace(
            self.asked,
            scaling=scaling,
            n_leaves=n_leaves,
            min_leaf_rows=fewest,
            overlap=overlap,
            C=START_C / self.survey.mean_weight if self.asked.task == "classification" else self.asked.C,
            refine_ridge=start_ridge(self.asked.task, rows),
            local_rows=self._local_rows(),
        )
        if not coarse:
            return start
        largest = self.survey.n_used if n_leaves == 1 else int(LARGER * largest)
        start = replace(start, **WHOLE) if n_leaves == 1 else start
        return undivided(largest, self.n_columns, start.overlap, start)

    def _local_rows(self) -> int:
        """Rows that train a local machine. It picks landmarks, and more rows do not pick better ones; a user
        who keeps its support vectors predicts by it.
        """
        asked = self.job.settings
        return asked.local_rows if asked.keep_support_vectors else min(asked.local_rows, LOCAL_ROWS)

    def _gather(self) -> None:
        """The rows of trees that were added since the last time."""
        trees = range(len(self.gathered), len(self.trees))
        if not trees:
            return
        spans = list(self.training.plan.spans())
        tasks = [(self.job, trees, MOST_OVERLAP, *span) for span in spans]
        marks = [probe_file(self.job, trees[-1], block) for block, _, _ in spans]
        for (block, _, _), mark in zip(spans, marks, strict=True):
            if not all(is_done(probe_file(self.job, number, block)) for number in trees):
                mark.unlink(missing_ok=True)  # One file is damaged, and all of the block are made anew.
        self.training.work(
            "gathering rows of some leaves", probe_block, tasks, self.training.plan.n_rows, marks
        )
        self.gathered += [gather_trial(self.job, number, len(spans)) for number in trees]

    def n_judged(self, tree: int) -> int:
        """Rows that verdicts on all leaves rest on."""
        rows = self.gathered[tree].rows
        return int((HELD_OUT_SHARE * rows[rows >= FEWEST_ROWS]).sum())

    def start(self, tree: int) -> Settings:
        return self.trees[tree].start

    def gamma(self, tree: int) -> float:
        return self.trees[tree].division.kernels.local.gamma

    def cost(self, tree: int, settings: Settings) -> PredictedCost:
        """Of a mean row: those of constant leaves only walk down the tree."""
        grown, outputs = self.trees[tree], n_outputs(len(self.survey.classes))
        weight = grown.sampling_weights(len(grown.leaves))
        if outputs > 1:  # most leaves have rows of a few classes only
            outputs = min(
                outputs,
                AT_ONCE
                * round(float(np.average(-(-self.gathered[tree].targets // AT_ONCE), weights=weight))),
            )
        full, walk = (
            predict_cost(outline(s, m, grown.division, grown.counts, outputs))
            for s, m in ((settings, settings.landmarks), (settings, 0))
        )
        works = float(weight @ (self.gathered[tree].mixed_from <= settings.overlap) / weight.sum())
        parts = {name: works * a + (1 - works) * getattr(walk, name) for name, a in asdict(full).items()}
        return PredictedCost(**parts)

    def most_overlap(self, tree: int) -> int:
        """Most leaves that a row may help to train: a leaf and its halo must not be too many rows to try."""
        rows = min(self.survey.n_used / self.start(tree).n_leaves, OWN_ROWS)
        return int(np.clip(TRIED_ROWS / rows, 1, self.trees[tree].most_overlap))

    def folds(self, tree: int, wanted: int = HELD_ROWS) -> int:
        """How often rows are held out until they are about as many as wanted."""
        return int(np.clip(round(wanted / max(self.n_judged(tree), 1)), 1, UNSEEN_FOLD))

    def whole_rows(self, tree: int) -> int:
        """Rows of the one leaf of a tree without others; 0 where a part of them is enough beside trees."""
        start = self.start(tree)
        one = start.n_leaves == 1 and not (start.refine_epochs and self.n_columns >= WHOLE_FEATURES)
        return int(self.gathered[tree].rows.sum()) if one else 0

    def machine_rows(self, tree: int, settings: Settings) -> int:
        """Rows of local machines that know all of these leaves; 0 where leaves are too large for them."""
        rows = settings.overlap * self.survey.n_used / len(self.trees[tree].counts)
        most = self.job.settings.local_rows
        return most if rows <= LARGEST_KNOWN * most else 0

    def one_row(self, tree: int) -> float:
        """What one row that is held out adds to an error; 0 in a regression, where any may count."""
        regression = self.job.settings.task == "regression"
        return 0.0 if regression else 1.0 / max(self.n_judged(tree), 1)

    def judge(self, asks: Sequence[Ask]) -> list[list[Verdict]]:
        def note(receipt: Receipt, share: float) -> None:
            self.training.note(receipt, lambda _: self.tried(share))

        return self.judged(asks, self.trees, self.gathered, note)
