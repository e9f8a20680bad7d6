"""Trials of candidates on held-out rows, and their cache."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dcpred.execution.progress import Step
from dcpred.execution.workers import Workers, run_all
from dcpred.serving.cost import PredictedCost
from dcpred.training.metrics import ERROR, LOG_LOSS, SQUARED, Metric, check_held_classes, compare, metric_of
from dcpred.training.policy import (
    CLASSES,
    COMMON,
    NO_LEAVES,
    NUMBERS,
    OF_TREES,
    STANDARD,
    Budget,
    SearchPolicy,
    cost_of,
    rounded_up,
)
from dcpred.training.steps import Training
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.model.scaling import LEARNED
from dcpred_tasks.model.target_transform import PLAIN
from dcpred_tasks.process import one_thread
from dcpred_tasks.scratch import (
    Cells,
    Sample,
    cell_rows_file,
    is_done,
    read_folds,
    read_scaling,
    read_tried,
    scaling_file,
    terms_file,
    trial_file,
    tried_file,
    write_cells,
    write_trial,
)
from dcpred_tasks.storage.atomic_files import read_arrays
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies.train_model import (
    Receipt,
    gather_cells,
    learn_trial_scaling,
    learn_trial_terms,
    reference_digest,
    try_reference,
    try_settings,
)
from dcpred_tasks.training.categories import code_candidates
from dcpred_tasks.training.folds import rare_folds
from dcpred_tasks.training.in_memory import (
    BOOSTING,
    SCALING_SETTINGS,
    TERM_SETTINGS,
    TRIAL_REPETITIONS,
    Trial,
    TrialRows,
    groups_of_terms,
    leaves_of_share,
    survey_of_rest,
)
from dcpred_tasks.training.learned_scaling import USUAL_REPETITIONS
from dcpred_tasks.training.partition import class_factors, divide, learn_scaling, n_outputs, row_weights
from dcpred_tasks.training.settings import (
    ADDITIVE,
    AUTO,
    NONE,
    Settings,
    as_text,
    in_effect,
    numbers,
    settings_dict,
)
from dcpred_tasks.training.survey import Survey, thinned
from dcpred_tasks.training.term_fits import learn_what_is_left
from dcpred_tasks.training.tree_fitting import flatten

REPEAT_SEED = 1_000  # added to the seed for each further choice of folds
LOCAL_WIDTH = 2.0  # γ of the local SVM as a multiple of the landmarks'
FEWEST_LANDMARKS, FEWEST_TREES = 4, 16
FEWER, CURVE = 0.5, 0.5  # share of rows of a second training, and the power of rows by which losses fall
LANDMARK_SHARES = (1.0, 0.75, 0.5, 0.25)  # fractions of its landmarks that a choice may keep
LEAST_SKEWNESS = 1.0  # For a more skewed target the logarithm and the root are evaluated.
RELATIVE = ("leaf_rows", "width", "codes")  # values of a configuration that are not settings


@dataclass(frozen=True)
class Candidate:
    """A configuration, or a mutation of one, by name."""

    name: str
    values: Mapping[str, Any]

    def mutated(self, name: str, values: Mapping[str, Any]) -> "Candidate":
        return Candidate(name, {**self.values, **values})


@dataclass(frozen=True)
class TrialResult:
    """A candidate with its results on held-out rows."""

    candidate: Candidate
    settings: Settings
    cost: PredictedCost
    losses: FloatArray
    """(n_judged,), by the metric, in the order of row numbers; NaN for rows without an evaluation."""
    weight: FloatArray
    """(n_judged,)"""
    ties_of: Callable[[], FloatArray]
    n_trees: float = 0.0
    """Those of its models, whose cost is `cost`."""

    @cached_property
    def ties(self) -> FloatArray:
        """(n_judged,), by the metric that breaks ties, lazily: log-loss takes longer than a training."""
        return self.ties_of()

    @property
    def loss(self) -> float:
        """The mean loss; NaN if no row is held out."""
        return _mean(self.losses, self.weight)

    @property
    def tie(self) -> float:
        """The same by the metric that breaks ties."""
        return _mean(self.ties, self.weight)


def _mean(losses: FloatArray, weight: FloatArray) -> float:
    """The mean of losses but those that are NaN; NaN if all are."""
    seen = ~np.isnan(losses)
    return float(np.average(losses[seen], weights=weight[seen])) if seen.any() else float("nan")


def is_skewed(target: FloatArray) -> bool:
    """Whether targets are 0 or more, and skewed to the right."""
    y = target.astype(np.float64)
    if not len(y) or y.min() < 0 or y.std() == 0:
        return False
    skewness = float((((y - y.mean()) / y.std()) ** 3).mean())
    return skewness > LEAST_SKEWNESS


def metric_asked(
    asked: Any, task: str, class_weights: FloatArray, policy: SearchPolicy | None = None
) -> Metric:
    """The metric of candidates: a scorer of scikit-learn or its name, or by the fractions of classes."""
    if asked is not None:
        return metric_of(asked, task, len(class_weights))
    if task == "regression":
        return SQUARED
    share = class_weights / class_weights.sum()
    return LOG_LOSS if share.max() >= (policy or STANDARD).rare_share else ERROR


class Trials:
    """Evaluates candidates on the rows of one data set."""

    def __init__(
        self,
        training: Training,
        survey: Survey,
        workers: Workers,
        policy: SearchPolicy,
        budget: Budget | None,
    ) -> None:
        self.training, self.survey, self.workers = training, survey, workers
        self.job, self.asked, self.policy = training.job, training.job.settings, policy
        self.named = budget is not None
        self.budget = budget or Budget(ratio=policy.ratio, ns=policy.ns, either=True)
        self.n_classes = len(survey.classes)
        self.metric = metric_asked(policy.metric, self.asked.task, survey.class_weights, policy)
        self.ties = SQUARED if self.asked.task == "regression" else LOG_LOSS
        self.rule = read_folds(self.job)
        self.folds: list[int] = []
        self.first_folds: list[int] = []  # those of a first look
        self.n_rows = self.n_judged = 0  # rows of trials, and those that are held out
        self.all_rows = True  # whether these are all rows of the data
        self.skewed = False  # whether a transform of the target may help
        self.cell_rows = 0.0  # mean rows of a cell
        self.cells: tuple[IntArray, IntArray] | None = None  # rows of cells, ascending, and the cell of each
        self.codes: dict[int, list[int]] = {}
        self.sample: Sample | None = None
        self.cell = self.spread = self.broad = np.zeros(0, bool)
        self.weights = np.zeros(0)
        self.held: dict[
            int, IntArray
        ] = {}  # by fold, the positions of held-out rows among all evaluated ones
        self.target = self.weight = np.zeros(0)  # those of evaluated rows
        self.clusters: IntArray = np.zeros(0, np.int64)  # the same number for those that vary together
        self.known: dict[tuple[str, int, Metric], FloatArray] = {}  # losses by trial, fold and metric
        self.advance: Step = lambda amount: None
        self.repetitions = TRIAL_REPETITIONS  # those of ARD scalings
        self.share = 1.0  # share of its rows that trains a trial
        self.n_left = 0.0  # trials that a search still expects, one for each candidate and fold
        self.share_left = 1.0  # share of the search that is left, which trials divide equally

    # rows

    def prepare(self) -> None:
        """Choose rows and folds, and store them for workers."""
        stored, survey, policy = self.training.stored_sample(self.survey), self.survey, self.policy
        self.sample = stored
        most = max(min(policy.trial_rows, policy.trial_numbers // stored.X.shape[1]), 1)
        self.all_rows = survey.n_used <= most and len(stored.number) >= survey.n_used
        broad = stored.take(thinned(stored.number, policy.broad_times * most, self.asked.seed))
        numbers = stored.number[thinned(stored.number, most, self.asked.seed)]
        if self.all_rows or self.rule.ordered:  # The latest rows may lie in other cells than those before.
            rows, cells = broad, numbers
        else:
            of_cells = self._of_cells(stored, most)
            rows, cells = _together(of_cells, broad), of_cells.number
        self.rows = rows
        self.cell, self.spread, self.broad = (
            np.isin(rows.number, some) for some in (cells, numbers, broad.number)
        )
        self.weights = row_weights(rows.target, rows.weight, class_factors(survey, self.asked))
        self.n_rows = int(np.count_nonzero(self.cell | self.spread))
        self.skewed = self.asked.task == "regression" and is_skewed(rows.target)
        repeats = 1
        count, very_few = self.rule.count, survey.n_used <= policy.very_few_rows
        if very_few and not self.job.coded and not self.rule.by_units:
            repeats = policy.repeats
        each = range(min(policy.folds, count) if self.all_rows else 1)
        if self.all_rows and (survey.n_used <= policy.few_rows or self.job.folds is not None):
            each = range(count)
        if self.rule.ordered:  # The latest first; with many rows `unseen` does that.
            each = range(count - 1, -1, -1) if self.all_rows else range(max(count - 2, 0), count - 1 or 1)
        self.hold_out([count * r + f for r in range(repeats) for f in each])
        self.first_folds = self.folds[: count if very_few else 1]
        if self.n_judged:
            self._check_classes()
        for at_most in policy.codes:
            self.codes[at_most] = self._code_features(at_most)

    def hold_out(self, folds: Sequence[int], *, broadly: bool = False) -> None:
        """Evaluate on the held-out rows of these folds; on none if rows are too few.

        broadly  whether scalings and references learn from more rows than trials do
        """
        rows, judged = self.rows, np.zeros(len(self.rows.number), bool)
        tried, broad = self.cell | self.spread, self.broad if broadly else self.spread
        masks, used = {}, {}
        for fold in folds if self.survey.n_used >= self.policy.fewest_rows else ():
            of, number = self._fold_of_rows(fold)
            held = self.cell & (of == number)
            if not held.any() or held.all():
                continue
            trains = of < number if self.rule.ordered else of != number
            if not trains.any():
                continue
            masks[fold] = held
            used[fold] = held | trains
            judged |= held
        masks = masks or {0: judged}  # Too few rows all train, and none evaluate.
        for fold, held in masks.items():
            if not is_done(trial_file(self.job, fold)):
                targets = self.training.targets
                X = rows.X if targets is None else targets(rows.X, rows.number, fold % self.rule.count)
                given = X, rows.target, self.weights, rows.number, held, self.cell, self.spread, broad
                survey, used_rows = self.survey, tried | broad
                if fold in used and self.rule.by_units:
                    used_rows &= used[fold]
                    survey = replace(survey_of_rest(survey, X[used_rows & ~held]), n_used=survey.n_used)
                of_fold = TrialRows(*given).take(np.flatnonzero(used_rows))
                write_trial(self.job, fold, of_fold, survey)
        place = np.cumsum(judged) - 1
        self.folds, self.held = list(masks), {fold: place[held] for fold, held in masks.items()}
        self.target, self.weight = rows.target[judged].astype(np.float64), self.weights[judged]
        self.clusters = self._clusters(rows.number[judged])
        self.n_judged = int(judged.sum())

    def _fold_of_rows(self, fold: int) -> tuple[IntArray, int]:
        """The fold of each row, and the number of this one: a fold of one of several repeats."""
        rows = self.rows
        repeat, number = divmod(fold, self.rule.count)
        rule, rare = replace(self.rule, seed=self.asked.seed + REPEAT_SEED * repeat), None
        if self.asked.task == "classification" and not rule.by_units:
            rare = rare_folds(rows.number, rows.target, rule.seed, rule.count)
        return rule.of(rows.number, rare), number

    def _check_classes(self) -> None:
        """Refuse a metric of several classes if a fold, or `unseen`, holds out one, before training."""
        for fold in sorted({*self.folds, self.rule.count - 1}):
            of, number = self._fold_of_rows(fold)
            held = self.cell & (of == number)
            given = self.rows.target, held, self.weights, self.n_classes
            check_held_classes(self.metric, *given, f"{number + 1} of {self.rule.count}")

    def _clusters(self, number: IntArray) -> IntArray:
        """The same number for rows that vary together: those of a unit, or else of a cell."""
        if self.cells is None or self.rule.clustered:
            return self.rule.clusters(number)
        return self.cells[1][np.searchsorted(self.cells[0], number)]

    def unseen(self) -> "Trials":
        """The same evaluation on rows that no choice used, the latest by time; this one if all were used."""
        last = self.rule.count - 1
        if not self.folds or (last in self.folds and not self.rule.ordered):
            return self
        other = copy(self)
        other.hold_out([last], broadly=True)
        other.first_folds = other.folds
        return other if other.n_judged else self

    def _code_features(self, most: int) -> list[int]:
        assert self.sample is not None
        named = {*numbers(self.asked.categorical), *self.survey.means}
        return code_candidates(self.sample.X, named, most)

    def _of_cells(self, stored: Sample, most: int) -> Sample:
        """Rows of some cells, at the density of all rows."""
        survey, policy = self.survey, self.policy
        sample = self.training.sample(survey)
        asked = replace(self.asked, scaling="standard", categorical=NONE, missing=AUTO)
        n_cells = max(leaves_of_share(policy.sample_cells, survey.n_used / most), 2)
        asked = replace(asked, n_leaves=n_cells, min_leaf_rows=1, max_leaf_rows=10**6)
        with one_thread():
            scaling = learn_scaling(sample.X, sample.target, sample.weight, survey, asked)
            tree = flatten(divide(scaling, sample.X, sample.weight, survey, asked).root)
            of_sample = tree.descend(scaling(sample.X))
        order = np.random.default_rng(self.asked.seed).permutation(tree.n_leaves)
        counts = np.bincount(of_sample, minlength=tree.n_leaves) * survey.n_used / len(sample.number)
        before = np.cumsum(counts[order]) - counts[order]
        chosen = order[before + counts[order] / 2 < most]
        chosen = chosen if len(chosen) else order[:1]
        self.cell_rows = float(counts[chosen].mean())
        if len(stored.number) >= survey.n_used:
            at = np.flatnonzero(np.isin(of_sample, chosen))
            rows, cells = stored.take(at), of_sample[at].astype(np.int64)
        else:
            rows, cells = self._gathered(
                Cells(scaling, tree, chosen, survey.classes, class_factors(survey, self.asked))
            )
        at = thinned(rows.number, 2 * most, self.asked.seed)
        self.cells = rows.number[at], cells[at]
        return rows.take(at)

    def _gathered(self, cells: Cells) -> tuple[Sample, IntArray]:
        """All rows of these cells, and the cell of each."""
        write_cells(self.job, cells)
        spans = list(self.training.plan.spans())
        outputs = [cell_rows_file(self.job, block) for block, _, _ in spans]
        tasks = [(self.job, *span) for span in spans]
        self.training.work("gathering rows", gather_cells, tasks, self.training.plan.n_rows, outputs)
        parts = [read_arrays(output) for output in outputs]
        together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        factors = class_factors(self.survey, self.asked)
        if len(factors):  # Weights of classes are counted once, where rows are put together.
            together["weight"] = together["weight"] / factors[together["target"].astype(np.int64)]
        if self.n_classes:
            together["target"] = together["target"].astype(np.int64)
        cell = together.pop("cell")
        return Sample(**together), cell

    # candidates

    def suits(self, values: Mapping[str, Any]) -> bool:
        """Whether leaves take the trees of a configuration into account, and its map is affordable."""
        if values.get("trees") and not learn_what_is_left(self.asked):
            return False
        curves = len(self.survey.minimum) * n_outputs(self.n_classes)
        return values.get("feature_map") != ADDITIVE or curves <= self.policy.most_curves

    def realised(self, values: Mapping[str, Any]) -> tuple[Settings, bool]:
        """Settings of a configuration but the value of γ, and whether rows from everywhere train it."""
        if values.get("landmarks") == 0:  # Other values change no model of trees alone.
            values = {**{name: values[name] for name in OF_TREES if name in values}, **NO_LEAVES}
        given = {**COMMON, **(NUMBERS if self.asked.task == "regression" else CLASSES), **values}
        rows, policy, n = float(given["leaf_rows"]), self.policy, self.survey.n_used
        n_columns = len(self.survey.minimum)
        limit = min(policy.most_leaf_bytes // (32 * n_columns), 10**6)
        if self.asked.max_leaf_rows != Settings().max_leaf_rows:
            limit = min(limit, self.asked.max_leaf_rows)
        rows = min(rows or n, limit, n)
        n_leaves = leaves_of_share(n, 1.0 / rows)
        rows = n / n_leaves
        chosen = {n: v for n, v in in_effect(given, self.asked.task).items() if n not in RELATIVE}
        chosen["n_leaves"] = n_leaves
        chosen["min_leaf_rows"] = int(np.clip(rows / 4, min(4, limit), min(30, limit)))
        chosen["overlap"] = max(min(chosen["overlap"], int(limit // rows)), 1) if n_leaves > 1 else 1
        chosen["max_leaf_rows"] = max(
            self.asked.max_leaf_rows, int(min(chosen["overlap"] * 1.5 * rows, limit)) if n_leaves > 1 else n
        )
        chosen["local_rows"] = (
            policy.local_rows if not self.asked.keep_support_vectors else self.asked.local_rows
        )
        if "C" in chosen and (chosen.get("loss") == "distance" or self.asked.keep_support_vectors):
            chosen["C"] = chosen["C"] / self.survey.mean_weight  # Elsewhere leaves normalise weights.
        if rows > policy.descent_rows and chosen.get("loss") != "distance":
            chosen["refine_epochs"] = policy.epochs
        if chosen.get("loss") == "distance":
            chosen |= {"products": 0, "leaf_scaling": False, "trees": 0}
        chosen["missing"] = self._missing(chosen["missing"])
        chosen["categorical"] = self._categorical(int(given["codes"]))
        if self.asked.task == "regression":
            chosen["target_transform"] = self._target_transform(chosen["target_transform"])
        settings = replace(self.asked, **chosen)
        return settings, not self.all_rows and rows > self.cell_rows / 2

    def _missing(self, wanted: str) -> str:
        if self.asked.missing != AUTO:
            return self.asked.missing
        return wanted if self.survey.gaps.any() else AUTO

    def _target_transform(self, wanted: str) -> str:
        """The transform of settings, or one that suits skewed targets of 0 or more."""
        if self.asked.target_transform != PLAIN:
            return self.asked.target_transform
        return wanted if self.skewed else PLAIN

    def _categorical(self, most: int) -> str:
        asked = self.asked.categorical
        if asked == NONE:
            return NONE
        named = numbers(asked)
        if most and (asked == AUTO or AUTO in asked):
            named = sorted({*named, *self.codes[most]})
        return as_text(named) if named else NONE

    def values_of(self, judged: TrialResult) -> dict[str, Any]:
        """All values of a candidate, with its actual numbers of leaves and landmarks."""
        values = {
            **COMMON,
            **(NUMBERS if self.asked.task == "regression" else CLASSES),
            **judged.candidate.values,
        }
        for name in ("landmarks", "overlap", "trees"):
            values[name] = getattr(judged.settings, name)
        values["leaf_rows"] = self.survey.n_used / max(judged.settings.n_leaves, 1)
        return {**{name: getattr(judged.settings, name) for name in settings_dict(judged.settings)}, **values}

    # evaluation

    def evaluate(
        self, candidates: Sequence[Candidate], folds: Sequence[int], share: float = 1.0
    ) -> list[TrialResult | None]:
        """Each candidate on held-out rows of some folds, within the budget; None if none is within.

        share  share of the other rows that trains, scalings as well
        """
        asked = [self.realised(candidate.values) for candidate in candidates]
        keys = [_scaling_key(settings, self.repetitions, share) for settings, _ in asked]
        self._scalings({key: settings for key, (settings, _) in zip(keys, asked, strict=True)}, folds, share)
        results: dict[int, TrialResult | None] = {}
        waiting = {i: (settings, 0.0) for i, (settings, _) in enumerate(asked)}
        while waiting:
            ready: dict[int, tuple[Trial, str]] = {}
            for i, (settings, terms) in waiting.items():
                fitted = self._affordable(settings, keys[i], folds, terms)
                if fitted is None:
                    results[i] = None
                    continue
                resolved = self._resolved(fitted, candidates[i].values, keys[i])
                trial = Trial(resolved, asked[i][1], self.share * share)
                shape = {"spread": trial.spread, "scaling": keys[i], "share": trial.share}
                ready[i] = trial, digest_json({**settings_dict(resolved), **shape})[:20]
            self._try({digest: (trial, keys[i]) for i, (trial, digest) in ready.items()}, folds, share)
            waiting = {}
            for i, (trial, digest) in ready.items():
                judged = self._read(candidates[i], trial, keys[i], digest, folds)
                if self.budget.allows(judged.cost):
                    results[i] = judged
                elif trial.settings.landmarks > FEWEST_LANDMARKS:
                    fewer = replace(trial.settings, landmarks=trial.settings.landmarks // 2)
                    waiting[i] = fewer, judged.cost.terms
                elif not trial.settings.landmarks and trial.settings.trees > FEWEST_TREES:
                    waiting[i] = judged.settings, 0.0
                else:
                    results[i] = None
        return [results[i] for i in range(len(candidates))]

    def again(self, chosen: TrialResult) -> TrialResult:
        """The choice on all held-out rows, with a scaling of several repetitions, like that of a training.
        Such a scaling has more columns than one of a trial: as many landmarks stay as the budget then allows.
        """
        free, landmarks, result = copy(self), chosen.settings.landmarks, None
        free.budget = Budget()
        if chosen.settings.scaling in LEARNED:
            free.repetitions = USUAL_REPETITIONS
        for share in LANDMARK_SHARES:
            shape = {name: getattr(chosen.settings, name) for name in ("products", "trees")}
            shape["landmarks"] = max(int(share * landmarks), min(landmarks, 1))
            [result] = free.evaluate([Candidate("chosen", {**chosen.candidate.values, **shape})], self.folds)
            if result is None or self.budget.allows(result.cost):
                break
        return result or chosen

    def foretold(self, chosen: TrialResult) -> TrialResult:
        """The choice with the losses that a model of all rows is expected to have: trials lack the held-out
        rows.

        The loss is taken to be a + b / rows^CURVE, with a ≥ 0; a second training on part of the rows gives b.
        A loss that does not fall significantly with more rows stays as it is. So does that of the latest
        rows, and a score, whose limit is not 0.
        """
        if self.rule.ordered or not self.n_judged or not chosen.loss > 0:
            return chosen
        other = copy(self)
        other.budget, other.share = Budget(), FEWER
        if chosen.settings.scaling in LEARNED:
            other.repetitions = USUAL_REPETITIONS
        [fewer] = other.evaluate([chosen.candidate], self.folds)
        if fewer is None:
            return chosen
        by = compare(fewer.losses, chosen.losses, chosen.weight, counted=False)
        if not by.gain > by.standard_error:
            return chosen
        more = self._rows_for_each(self.folds)
        part = (1.0 - more**-CURVE) / (FEWER**-CURVE - 1.0)
        # A steep curve is a power of rows, without a.
        most = chosen.loss * (1.0 - (chosen.loss / fewer.loss) ** (np.log(more) / -np.log(FEWER)))
        part = min(part, most / by.gain)
        return replace(chosen, losses=chosen.losses - part * (fewer.losses - chosen.losses))

    def _scalings(self, wanted: Mapping[str, Settings], folds: Sequence[int], share: float) -> None:
        tasks = [
            (self.job, fold, settings, self.repetitions, share, key)
            for key, settings in wanted.items()
            for fold in folds
            if not is_done(scaling_file(self.job, fold, key))
        ]
        run_all(self.workers, learn_trial_scaling, tasks, self._noted)

    def _terms(self, trials: Iterable[tuple[Trial, int]]) -> None:
        """Fit what trials of folds have beside leaves, once for those that share it: first by all rows."""
        wanted = [(trial, fold, _term_keys(trial)) for trial, fold in trials]
        for first in (True, False):
            tasks = {
                (fold, key): (self.job, fold, trial, groups, keys)
                for trial, fold, keys in wanted
                for groups, key in keys.items()
                if first == (groups == ()) and not is_done(terms_file(self.job, fold, key))
            }
            run_all(self.workers, learn_trial_terms, list(tasks.values()), self._noted)

    def _noted(self, _: int, receipt: Receipt | None) -> None:
        """A scaling, terms, or a reference."""
        if receipt is not None:
            self.training.note(receipt, lambda _: None)

    def _tried(self, of_rows: float, _: int, receipt: Receipt | None) -> None:
        """A trial with a share of rows."""
        if receipt is not None:
            share = self.share_left * of_rows / max(self.n_left, 1.0)
            self.training.note(receipt, lambda _: self.advance(share))
            self.share_left, self.n_left = self.share_left - share, self.n_left - of_rows

    def _affordable(
        self, settings: Settings, key: str, folds: Sequence[int], terms: float
    ) -> Settings | None:
        """Settings with as many landmarks as the budget allows beside terms, which take some nanoseconds;
        None if none, or if a fold cannot scale.
        """
        if not all(is_done(scaling_file(self.job, fold, key)) for fold in folds):
            return None
        scaling = read_scaling(self.job, self.folds[0], key).scaling
        outputs = n_outputs(self.n_classes)
        while not self.budget.allows(cost_of(settings, scaling, outputs, terms=terms)):
            if settings.products and settings.landmarks <= 8:
                settings = replace(settings, products=0)
            elif settings.landmarks > FEWEST_LANDMARKS:
                settings = replace(settings, landmarks=settings.landmarks // 2)
            else:
                return None
        return settings

    def _resolved(self, settings: Settings, values: Mapping[str, Any], key: str) -> Settings:
        """Settings with γ as a number."""
        width = float(values.get("width", COMMON["width"]))
        unit = read_scaling(self.job, self.folds[0], key).unit
        if settings.task == "classification" and settings.loss == "distance":
            return replace(settings, gamma=width * unit, compact_gamma=0.0)
        return replace(settings, gamma=LOCAL_WIDTH * width * unit, compact_gamma=width * unit)

    def _try(self, wanted: Mapping[str, tuple[Trial, str]], folds: Sequence[int], share: float) -> None:
        tasks = [
            (self.job, fold, trial, key, digest, _term_keys(trial))
            for digest, (trial, key) in wanted.items()
            for fold in folds
            if not is_done(tried_file(self.job, fold, digest))
        ]
        self._terms([(task[2], task[1]) for task in tasks])
        # The longest go first: all processors are busy to the end.
        tasks.sort(
            key=lambda task: -task[2].settings.trees - task[2].settings.landmarks / task[2].settings.n_leaves
        )
        run_all(self.workers, try_settings, tasks, partial(self._tried, share))

    def _read(
        self, candidate: Candidate, trial: Trial, key: str, digest: str, folds: Sequence[int]
    ) -> TrialResult:
        shapes = [read_tried(self.job, fold, digest)[1] for fold in folds]
        scaling = read_scaling(self.job, self.folds[0], key).scaling
        shape, most = np.mean(shapes, axis=0), trial.settings.landmarks
        # Leaves of all rows allow more landmarks than those without the held-out ones.
        shape[1] = min(shape[1] * self._rows_for_each(folds), max(shape[1], most))
        cost = cost_of(trial.settings, scaling, n_outputs(self.n_classes), shape)
        losses, ties = (
            self._losses(digest, folds, self.metric),
            partial(self._losses, digest, folds, self.ties),
        )
        settings = replace(trial.settings, trees=self._most_trees(trial.settings.trees, cost, shape[-1]))
        return TrialResult(candidate, settings, cost, losses, self.weight, ties, float(shape[-1]))

    def _most_trees(self, most: int, cost: PredictedCost, n_trees: float) -> int:
        """A limit of trees by which a model of more rows, which may have more of them, is in the budget.

        n_trees  those of a model of this cost
        """
        while most > FEWEST_TREES and not self.budget.allows(
            replace(cost, terms=cost.terms * most / max(n_trees, 1.0))
        ):
            most = max(most - max(most // 16, 1), FEWEST_TREES)
        return most

    def _rows_for_each(self, folds: Sequence[int]) -> float:
        """Rows that train a model for each one that trains a trial."""
        held = float(np.mean([len(self.held[fold]) for fold in folds])) if self.n_judged else 0.0
        n_rows = float(np.count_nonzero(self.cell))
        return n_rows / max(n_rows - held, 1.0)

    def _losses(self, digest: str, folds: Sequence[int], metric: Metric) -> FloatArray:
        """Losses of all evaluated rows, means over the folds that held each out."""
        sums, times = np.zeros((2, self.n_judged))
        for fold in folds if self.n_judged else ():
            sums[self.held[fold]] += self._fold_losses(digest, fold, metric)
            times[self.held[fold]] += 1
        times[times == 0] = np.nan
        return sums / times

    def _fold_losses(self, digest: str, fold: int, metric: Metric) -> FloatArray:
        key = digest, fold, metric
        if key not in self.known:
            at, decision = self.held[fold], read_tried(self.job, fold, digest)[0]
            with one_thread():
                self.known[key] = metric.losses(decision, self.target[at], self.weight[at], self.n_classes)
        return self.known[key]

    @property
    def untried_times(self) -> float:
        """Rows of a model, as a multiple of those of trials."""
        return self.survey.n_used / max(self.n_rows, 1)

    def widen(self) -> None:
        """Allow a little more than the cost of the cheapest configuration."""
        self.budget = Budget(ratio=self.policy.least_times * self._least().cost_ratio)

    def least(self) -> str:
        """The cost of the cheapest configuration, in the form of a budget."""
        return rounded_up(self._least().cost_ratio)

    def _least(self) -> PredictedCost:
        values = {"leaf_rows": 0, "landmarks": FEWEST_LANDMARKS, "products": 0}
        free = copy(self)
        free.budget = Budget()
        [cheapest] = free.evaluate([Candidate("cheapest", values)], self.folds)
        assert cheapest is not None
        return cheapest.cost

    def reference(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """Losses of the evaluated rows of the first look by each reference model; NaN elsewhere."""
        folds = self.first_folds if self.n_rows <= self.policy.very_few_rows else self.first_folds[:1]
        tasks = [
            (self.job, fold, name, len(self.rows.number) if name == BOOSTING else self.policy.reference_rows)
            for name in names
            for fold in folds
            if not is_done(tried_file(self.job, fold, reference_digest(name)))
        ]
        run_all(self.workers, try_reference, tasks, self._noted)
        return {name: self._losses(reference_digest(name), folds, self.metric) for name in names}


def _together(*samples: Sample) -> Sample:
    """Rows of several samples, each once, in the order of their numbers."""
    number = np.concatenate([s.number for s in samples])
    at = np.unique(number, return_index=True)[1]
    return Sample(*(np.concatenate([vars(s)[name] for s in samples])[at] for name in vars(samples[0])))


def _scaling_key(settings: Settings, repetitions: int, share: float) -> str:
    """The key of the scaling of settings, learned from a share of rows, in names of files."""
    of_scaling = {name: getattr(settings, name) for name in SCALING_SETTINGS}
    return digest_json({**of_scaling, "repetitions": repetitions, "share": share})[:20]


def _term_keys(trial: Trial) -> dict[tuple[int, ...], str]:
    """The keys of the terms of a trial in names of files, by the groups of rows that each fit lacks."""
    settings = trial.settings
    of_terms = {name: getattr(settings, name) for name in TERM_SETTINGS[settings.task]}
    of_terms |= {"spread": trial.spread, "share": trial.share}
    return {
        groups: digest_json({**of_terms, "groups": list(groups)})[:20] for groups in groups_of_terms(settings)
    }
