"""The judge of a search on real rows: which rows it looks at, how it judges them, and within what budget."""

import json
import re
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sklearn.metrics import make_scorer
from sklearn.neighbors import NearestNeighbors

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.cli import rendering
from dcpred.datasets.split_rules import by_groups
from dcpred.execution.workers import InlineWorkers
from dcpred.reports.report import search_sections
from dcpred.training import reports
from dcpred.training import trials as trying
from dcpred.training.choice import (
    _in_words,
    choose_settings,
    described,
    described_in_time,
    point_of,
    quality_of,
)
from dcpred.training.metrics import ERROR, LOG_LOSS, SQUARED, Metric, compare
from dcpred.training.policy import (
    DEFAULT,
    NO_LEAVES,
    PORTFOLIO,
    STANDARD,
    THOROUGH,
    Budget,
    Deadline,
    parse_budget,
)
from dcpred.training.quality import compared, reference_words
from dcpred.training.reports import TuneReport, front_with, is_chosen, with_cost
from dcpred.training.search import Search, SearchOutcome
from dcpred.training.search_result import checked_search
from dcpred.training.trials import Candidate, TrialResult, Trials
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.scratch import read_cells, read_trial
from dcpred_tasks.storage.atomic_files import write_json
from dcpred_tasks.task_bodies.train_model import learn_trial_scaling
from dcpred_tasks.training import term_fits
from dcpred_tasks.training.folds import FOLDS, Folds
from dcpred_tasks.training.in_memory import BOOSTING, KERNEL, TERM_SETTINGS
from dcpred_tasks.training.settings import Settings, settings_dict
from dcpred_tasks.training.term_fits import TermFit
from dcpred_tasks.training.tree_boosting import fit_trees
from support.searches import SMALL, WIDE, few_candidates, trials_of

USUAL = Candidate(DEFAULT, {})
FEW_TREES = {DEFAULT: {}, "trees": {"trees": 40, **NO_LEAVES}}
LEARNED = Candidate("learned", PORTFOLIO["learned"])
ONCE = replace(SMALL, repeats=1)
CELLS = replace(SMALL, trial_rows=600, sample_cells=8)


def quadrants(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by the quadrant of two of three features."""
    X = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


def judged(trials: Trials, *candidates: Candidate, folds: list[int] | None = None) -> list[TrialResult]:
    found = trials.evaluate(candidates, trials.folds if folds is None else folds)
    assert all(one is not None for one in found)
    return [one for one in found if one is not None]


def found_by(trials: Trials) -> SearchOutcome:
    found = Search(trials).run()
    assert found is not None
    return found


# -- rows ----------------------------------------------------------------------------------------------------


def test_of_few_rows_every_row_is_held_out_once() -> None:
    X, y = quadrants(300)
    trials = trials_of(X, y, policy=replace(SMALL, very_few_rows=300, repeats=1))
    assert trials.all_rows
    assert (trials.n_rows, trials.n_judged) == (300, 300)
    assert trials.folds == trials.first_folds == list(range(FOLDS))
    assert np.sort(np.concatenate(list(trials.held.values()))).tolist() == list(range(300))
    assert (trials.target == y).all()


def test_of_very_few_rows_folds_are_drawn_several_times() -> None:
    X, y = quadrants(200)
    repeated = trials_of(X, y, policy=replace(SMALL, very_few_rows=200, repeats=3))
    assert repeated.folds == list(range(3 * FOLDS))
    held = [set(repeated.held[fold].tolist()) for fold in repeated.folds]
    assert all(set().union(*held[i : i + FOLDS]) == set(range(200)) for i in (0, FOLDS, 2 * FOLDS))
    assert held[:FOLDS] != held[FOLDS : 2 * FOLDS]
    [one] = judged(repeated, USUAL)
    thirds = 3 * one.losses
    assert thirds == pytest.approx(np.round(thirds)), "means of three looks"
    assert ((thirds > 0.5) & (thirds < 2.5)).any()


def test_of_more_rows_a_first_look_is_at_one_fold() -> None:
    X, y = quadrants(400)
    trials = trials_of(X, y, policy=SMALL)
    assert (trials.first_folds, trials.folds) == ([0], list(range(FOLDS)))
    [first], [whole] = judged(trials, USUAL, folds=[0]), judged(trials, USUAL)
    seen = ~np.isnan(first.losses)
    assert seen.sum() == len(trials.held[0]) == pytest.approx(100, abs=30)
    assert (first.losses[seen] == whole.losses[seen]).all()
    assert not np.isnan(whole.losses).any()


@pytest.mark.parametrize("sample_rows", [500, 100_000])
def test_of_many_rows_those_of_cells_are_looked_at_at_full_density(sample_rows: int) -> None:
    """Rows of a sample would be far apart, and leaves larger than they will be."""
    X, y = quadrants(6_000)
    trials = trials_of(X, y, policy=CELLS, settings=Settings(sample_rows=sample_rows), block_rows=1_700)
    rows = trials.rows
    assert (np.diff(rows.number) > 0).all(), "each once, in order"
    assert (X[rows.number] == rows.X).all()
    assert (rows.target == y[rows.number]).all()
    in_cells = rows.number[trials.cell]
    assert 300 < len(in_cells) <= 2 * CELLS.trial_rows
    assert (trials.cell | trials.spread | trials.broad).all()
    assert trials.n_rows == len(read_trial(trials.job, 0)[0].number) == (trials.cell | trials.spread).sum()
    assert trials.spread.sum() == pytest.approx(min(CELLS.trial_rows, sample_rows), rel=0.2)
    nearest = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X, return_distance=False)[:, 1]
    dense = [np.isin(nearest[own], own).mean() for own in (in_cells, rows.number[trials.spread])]
    assert dense[0] > 0.75 > 0.3 > dense[1]
    held, cell = (getattr(read_trial(trials.job, 0)[0], name) for name in ("held", "cell"))
    assert held.sum() == trials.n_judged
    assert not (held & ~cell).any(), "held-out rows lie in cells only"
    assert held.sum() == pytest.approx(len(in_cells) / 4, rel=0.3)


def test_gathered_rows_are_all_those_of_their_cells() -> None:
    """Whatever the blocks that they are read in."""
    X, y = quadrants(6_000)
    found = []
    for block_rows in (6_000, 1_700):
        trials = trials_of(X, y, policy=CELLS, settings=Settings(sample_rows=500), block_rows=block_rows)
        found.append(trials)
        cells = read_cells(trials.job)
        own = np.isin(cells.tree.descend(cells.scaling(X)), cells.chosen)
        assert own.sum() <= 2 * CELLS.trial_rows, "none is left out"
        assert trials.rows.number[trials.cell].tolist() == np.flatnonzero(own).tolist()
    assert (found[0].rows.number == found[1].rows.number).all()
    assert (found[0].cell == found[1].cell).all()
    assert judged(found[0], USUAL)[0].loss == judged(found[1], USUAL)[0].loss


def test_leaves_that_are_larger_than_cells_are_trained_by_rows_from_everywhere() -> None:
    X, y = quadrants(6_000)
    trials = trials_of(X, y, policy=CELLS)
    assert 50 < trials.cell_rows < 1_500
    for rows, spread in ((trials.cell_rows / 4, False), (2.5 * trials.cell_rows, True), (0, True)):
        settings, is_spread = trials.realised({"leaf_rows": rows})
        assert is_spread is spread, settings.n_leaves
    small, one_leaf = (
        Candidate("small", {"leaf_rows": trials.cell_rows / 4}),
        Candidate("one", {"leaf_rows": 0}),
    )
    a, b = judged(trials, small, one_leaf)
    assert len(a.losses) == len(b.losses) == trials.n_judged
    assert max(a.loss, b.loss) < 0.3


def test_few_rows_are_all_rows_of_trials_for_every_candidate() -> None:
    trials = trials_of(*quadrants(300))
    assert not any(trials.realised({"leaf_rows": rows})[1] for rows in (0, 20, 300))


def test_rows_are_fewer_where_features_are_many() -> None:
    X, y = quadrants(2_000)
    wide = np.hstack([X] * 4)
    trials = trials_of(wide, y, policy=replace(SMALL, trial_numbers=6_000))
    assert not trials.all_rows
    assert trials.n_rows <= 3 * 500


# -- metrics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "metric"), [(0.89, ERROR), (0.91, LOG_LOSS)])
def test_log_loss_is_judged_where_a_class_is_rare(share: float, metric: Metric) -> None:
    y = (np.arange(1_000) >= 1_000 * share).astype(int)
    X = np.random.default_rng(0).normal(size=(1_000, 2)) + y[:, None]
    assert trials_of(X, y).metric is metric
    weight = np.where(y == 1, 10.0, 1.0)
    assert trials_of(X, y, weight=weight).metric is ERROR, "shares are those of weights"


def test_of_numbers_squared_errors_are_judged() -> None:
    X, _ = quadrants(200)
    trials = trials_of(X, X[:, 0].astype(float), settings=Settings(task="regression"))
    assert (trials.metric, trials.ties) == (SQUARED, SQUARED)


@pytest.mark.parametrize("by_group", [False, True])
def test_folds_of_one_class_are_refused_before_anything_is_trained(by_group: bool) -> None:
    """Also the last fold, by which only the choice is judged; an accuracy has a value there."""
    X, _ = quadrants(400)
    y = (np.arange(400) < (12 if by_group else 2)).astype(int)
    keys = (np.arange(400) // 20).astype(np.uint64)
    folds = by_groups(lambda: iter([keys]), None, 0, "groups") if by_group else None
    with pytest.raises(
        SettingsError, match=r"^Cannot compute roc_auc: .* fold \d of 4 have one class \(of 400"
    ):
        trials_of(X, y, policy=replace(SMALL, metric="roc_auc"), folds=folds)
    assert trials_of(X, y, policy=replace(SMALL, metric="accuracy"), folds=folds).n_judged > 300


def test_a_metric_can_be_given() -> None:
    """A scorer of one's own, that no usual candidate is the best by."""
    X, y = quadrants(400)

    def mean_decision_value(target: Any, decision: Any, sample_weight: Any) -> float:
        return float(np.average(decision * target, weights=sample_weight))

    scorer = make_scorer(mean_decision_value, response_method="decision_function")
    trials = trials_of(X, y, policy=replace(STANDARD, metric=scorer))
    assert trials.metric.name == "mean_decision_value_score"
    [one] = judged(trials, USUAL)
    assert one.loss < 0
    with few_candidates():
        found = Search(trials).run()
    assert found is not None
    looked_at = [line["loss"] for line in found.trace if line["verdict"] != "is left out beside"]
    assert {*looked_at} <= {one.loss for one in found.judged}
    by = compare(one.losses, found.chosen.losses, one.weight, counted=False)
    assert by.gain >= -by.standard_error, "log-loss and cost decide between equals"
    row = described(found, trials)["chosen"]
    assert row["metric"] == "mean_decision_value_score"
    foretold = trials.foretold(trials.again(found.chosen))
    assert row["mean_decision_value_score"] == pytest.approx(-foretold.loss)


# -- judging -------------------------------------------------------------------------------------------------


def test_a_candidate_is_judged_alike_alone_and_beside_others() -> None:
    X, y = quadrants(300)
    clipped, wide = Candidate("clipped", {"feature_map": "clip"}), Candidate("wide", {"width": 0.25})
    trees = Candidate("trees", {"trees": 20, **NO_LEAVES})
    tries = [USUAL, LEARNED, clipped, wide, trees, Candidate("both", {"trees": 20})]
    together = judged(trials_of(X, y), *tries)
    assert len({one.losses.tobytes() for one in together}) == len(tries), "they differ"
    threads = judged(trials_of(X, y, workers=InlineWorkers(2)), *reversed(tries))[::-1]
    for one, alone, threaded in zip(together, tries, threads, strict=True):
        [again] = judged(trials_of(X, y), alone)
        for other in (again, threaded):
            assert (one.losses == other.losses).all()
            assert (one.ties == other.ties).all()
            assert (one.settings, one.cost) == (other.settings, other.cost)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that trees are fitted to."""
    n_rows: list[int] = []

    def fit(X: np.ndarray, *given: Any) -> Any:
        n_rows.append(len(X))
        return fit_trees(X, *given)

    monkeypatch.setattr(term_fits, "FITS", (TermFit(lambda settings: settings.trees > 0, fit),))
    return n_rows


def beside_trees(task: str) -> list[Candidate]:
    """Trees alone, and leaves that differ beside them."""
    both, regression = {"trees": 8, "landmarks": 8}, task == "regression"
    narrow = Candidate("narrow", {**both, "width": 2.0, "scaling": "learned"})
    small = Candidate("small", {**both, "leaf_rows": 50} | ({} if regression else {"loss": "logistic"}))
    return [Candidate("trees", {"trees": 8, **NO_LEAVES}), Candidate("both", both), narrow, small]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_trees_of_a_fold_are_fitted_once_for_all_candidates(task: str, fits: list[int]) -> None:
    X, y = quadrants(200)
    y = y + X[:, 2] if task == "regression" else y
    trials = trials_of(X, y, settings=Settings(task=task), policy=ONCE)
    tries, first = beside_trees(task), trials.folds[:1]
    judged(trials, tries[0], folds=first)
    assert len(fits) == 1
    judged(trials, *tries[:2], folds=first)
    assert len(fits) == 1 + FOLDS
    judged(trials, *tries)
    assert len(fits) == len(trials.folds) * (1 + FOLDS)
    other = copy(trials)
    other.known, other.share = {}, 0.5
    judged(other, *tries)
    assert len(fits) == 2 * len(trials.folds) * (1 + FOLDS), "fewer rows"
    judged(trials, Candidate("slower", {**tries[0].values, "tree_rate": 0.05}))
    assert len(fits) == len(trials.folds) * (3 + 2 * FOLDS)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_trees_that_candidates_share_are_those_of_each(
    task: str, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = quadrants(200)
    y = y + X[:, 2] if task == "regression" else y

    def results() -> list[tuple[Any, ...]]:
        trials = trials_of(X, y, settings=Settings(task=task), policy=ONCE)
        tried = judged(trials, *beside_trees(task))
        with few_candidates(portfolio=FEW_TREES, mutations=()):
            found = found_by(trials_of(X, y, settings=Settings(task=task), policy=ONCE))
        return [(r.losses.tobytes(), r.ties.tobytes(), r.settings, r.cost) for r in (*tried, *found.judged)]

    shared, n_shared = results(), len(fits)
    monkeypatch.setattr(trying, "groups_of_terms", lambda settings: [])
    assert results() == shared
    assert len(fits) > 2 * n_shared


@pytest.mark.parametrize(
    ("task", "loss"),
    [("classification", "hinge"), *(("regression", loss) for loss in ("hinge", "huber", "quantile"))],
)
def test_trees_follow_no_other_settings(task: str, loss: str) -> None:
    X, y = quadrants(200)
    settings, read = Settings(task=task, loss=loss, trees=3), set[str]()

    class Reader:
        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(settings, name)

    fit_trees(X, y, np.ones(len(X)), trials_of(X, y, settings=settings).survey, cast(Settings, Reader()))
    assert {"trees", "tree_depth", "tree_rate", "seed"} <= read <= {*TERM_SETTINGS[task]}


def test_a_row_of_weight_two_counts_like_two() -> None:
    X, y = quadrants(400)
    y = np.where(np.random.default_rng(3).random(400) < 0.1, 1 - y, y)
    trials = trials_of(X, y, weight=np.where(X[:, 0] > 1, 2.0, 1.0))
    [one] = judged(trials, USUAL)
    twice = np.concatenate([one.losses, one.losses[X[:, 0] > 1]])
    assert one.loss == pytest.approx(twice.mean())
    assert one.loss != pytest.approx(one.losses.mean())


def test_weights_of_classes_count_once() -> None:
    X, y = quadrants(400)
    y[::3] = 0
    trials = trials_of(X, y, settings=Settings(class_weight="balanced"))
    totals = [trials.weight[y == c].sum() for c in (0, 1)]
    assert totals[0] == pytest.approx(totals[1])
    X, y = quadrants(6_000)
    y[::3] = 0
    many = trials_of(X, y, policy=CELLS, settings=Settings(class_weight="balanced", sample_rows=500))
    ratio = many.weight[many.target == 1][0] / many.weight[many.target == 0][0]
    assert ratio == pytest.approx((y == 0).sum() / (y == 1).sum())
    assert read_trial(many.job, 0)[0].weight.min() == pytest.approx(many.weight.min())


def test_settings_that_were_asked_for_hold() -> None:
    X, y = quadrants(400)
    X[::7, 0] = np.nan
    asked = Settings(missing="impute", max_leaf_rows=50, categorical="none", seed=7, class_weight="balanced")
    trials = trials_of(X, y, settings=asked)
    for name, values in PORTFOLIO.items():
        settings, _ = trials.realised(values)
        for field in ("missing", "max_leaf_rows", "categorical", "seed", "class_weight"):
            assert getattr(settings, field) == getattr(asked, field), name
        assert 400 / settings.n_leaves <= 50


def test_columns_of_codes_are_a_choice() -> None:
    """Whole numbers of which each value means something of its own."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 12, 600)
    X, y = np.column_stack([codes, rng.normal(size=600)]), (codes * 5 % 12 < 6).astype(int)
    trials = trials_of(X, y)
    settings = [trials.realised({"codes": most})[0] for most in (0, 16)]
    assert [s.categorical for s in settings] == ["none", "0"]
    plain, coded = judged(
        trials, Candidate("numbers", {"width": 0.1}), Candidate("codes", {"width": 0.1, "codes": 16})
    )
    assert coded.loss < plain.loss


def test_a_search_knows_trees() -> None:
    X, y = quadrants(400)
    trials = trials_of(X, y, budget=WIDE)
    alone = {"trees": 40, "tree_depth": 3, **NO_LEAVES}
    plain, trees, both = judged(
        trials,
        Candidate("leaves", {"leaf_rows": 0}),
        Candidate("trees", alone),
        Candidate("both", {"leaf_rows": 0, "trees": 40}),
    )
    assert (trees.settings.landmarks, trees.cost.landmarks, trees.cost.terms > 3) == (0, 0.0, True)
    assert plain.cost.terms == 0 < both.cost.terms
    assert trees.loss < 0.2
    others = {**alone, "scaling": "learned", "C": 3.0, "leaf_rows": 50}
    assert trials.realised(others) == trials.realised(alone), "values of leaves"
    assert trials.realised({"trees": 40, "loss": "distance"})[0].trees == 0
    limit = Budget(ratio=0.9 * trees.cost.cost_ratio)
    [fewer] = judged(trials_of(X, y, budget=limit), Candidate("trees", alone))
    assert fewer.settings.trees < 40
    assert limit.allows(fewer.cost)
    machines = trials_of(X, y, settings=Settings(keep_support_vectors=True))
    assert not machines.suits(alone)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("smooth", [True, False])
def test_trees_are_chosen_where_the_target_has_thresholds(task: str, smooth: bool) -> None:
    X = np.random.default_rng(1).uniform(-1, 1, size=(400, 4)).astype(np.float32)
    parts = np.sin(2 * X[:, 0] + X[:, 1]) - X[:, 2] * X[:, 3] if smooth else (np.floor(3 * X) % 2).sum(axis=1)
    y = (parts > np.median(parts)).astype(int) if task == "classification" else parts
    budget, settings = Budget(ratio=20.0), Settings(task=task, seed=1)
    with few_candidates(portfolio=FEW_TREES, mutations=()):
        settings, told = choose_settings(X, y, np.ones(len(X)), settings, budget=budget, policy=SMALL)
    assert (settings.trees > 0, settings.landmarks > 0) == (not smooth, smooth)
    assert told["chosen"]["cost_ratio"] <= budget.ratio
    assert told["chosen"]["trees"] == settings.trees


# -- budgets -------------------------------------------------------------------------------------------------


def test_sizes_are_halved_until_the_budget_allows_them() -> None:
    X, y = quadrants(300)
    [wide] = judged(trials_of(X, y, budget=WIDE), Candidate("m", {"leaf_rows": 0, "landmarks": 128}))
    assert wide.settings.landmarks == 128
    limit = Budget(ratio=0.6 * wide.cost.cost_ratio)
    [narrow] = judged(trials_of(X, y, budget=limit), Candidate("m", {"leaf_rows": 0, "landmarks": 128}))
    assert narrow.settings.landmarks < 128
    assert narrow.cost.cost_ratio <= limit.ratio


def test_a_budget_that_nothing_meets_names_one_that_is_enough() -> None:
    X, y = quadrants(300)
    with few_candidates((DEFAULT,), ()):
        trials = trials_of(X, y, budget=Budget(ratio=1.01))
        assert trials.evaluate([USUAL], trials.folds) == [None]
        assert Search(trials).run() is None
        enough = parse_budget(trials.least())
        assert enough.ratio > 1.01
        found = Search(trials_of(X, y, budget=enough)).run()
    assert found is not None
    assert found.chosen.cost.cost_ratio <= enough.ratio


def test_what_is_possible_at_a_budget_is_possible_at_every_larger_one() -> None:
    X, y = quadrants(100)
    with few_candidates((DEFAULT,), ()):
        able = [Search(trials_of(X, y, budget=Budget(ratio=r))).run() is not None for r in (2, 4, 6, 12)]
    assert able == sorted(able)
    assert set(able) == {True, False}


def test_without_a_budget_a_model_may_take_so_many_linear_predictions_or_so_long() -> None:
    trials = trials_of(*quadrants(300), budget=None)
    assert (trials.budget.ratio, trials.budget.ns, trials.budget.either) == (
        STANDARD.ratio,
        STANDARD.ns,
        True,
    )


# -- what is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_of_more_than_few_rows_one_fold_is_left_to_say_what_is_foretold(asked: bool) -> None:
    X, y = quadrants(300)
    folds = Folds(0, FOLDS) if asked else None
    trials = trials_of(X, y, policy=replace(SMALL, few_rows=200), folds=folds)
    assert trials.folds == list(range(FOLDS if asked else SMALL.folds))
    seen = trials.unseen()
    assert (seen is trials) == asked
    assert FOLDS - 1 in seen.folds


def test_what_is_told_rests_on_rows_that_no_choice_was_made_by() -> None:
    X, y = quadrants(6_000)
    trials = trials_of(X, y, policy=CELLS)
    other = trials.unseen()
    assert trials.folds == [0]
    assert other.folds == other.first_folds == [FOLDS - 1]
    own = [read_trial(one.job, fold)[0] for one, fold in ((trials, 0), (other, FOLDS - 1))]
    assert not set(own[0].number[own[0].held]) & set(own[1].number[own[1].held])
    assert (own[0].broad == own[0].spread).all()
    assert own[1].broad.sum() > 2 * own[1].spread.sum(), "scalings learn from as many rows as they will"
    assert other.n_judged == own[1].held.sum()
    [one] = judged(other, USUAL)
    assert len(one.losses) == other.n_judged
    assert len(judged(trials, USUAL)[0].losses) == trials.n_judged, "and the search goes on with its own"


def test_a_choice_that_costs_more_on_other_rows_is_judged_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the scaling of more rows it may have more columns, and references are on these rows, too."""
    trials = trials_of(*quadrants(6_000), policy=CELLS)
    [chosen] = judged(trials, USUAL)
    monkeypatch.setattr(Budget, "allows", lambda self, cost: self == Budget())
    trials.policy = replace(CELLS, references=True)
    told = described(SearchOutcome(chosen, [chosen], []), trials)
    assert len(told["references"]) == 2
    assert told["chosen"]["n_judged"] == trials.unseen().n_judged != trials.n_judged


@pytest.mark.parametrize("n_rows", [300, 700])
def test_the_frontier_says_that_its_chosen_point_is_of_other_rows(n_rows: int) -> None:
    """On a terminal and on the page; where all rows are judged there is no difference."""
    trials = trials_of(*quadrants(n_rows), policy=replace(SMALL, few_rows=400))
    with few_candidates():
        found = described(found_by(trials), trials)
    told = found | {"seconds": {}, "made": {"n_leaves": 1, "least_landmarks": 4, "most_landmarks": 4}}
    told["made"]["cost_ratio"] = found["chosen"]["cost_ratio"]
    lines = rendering.shown(TuneReport, told | {"trained": {}}).splitlines()
    remark = f"The chosen model is evaluated on {found['chosen']['n_judged']:,} rows that no choice used."
    assert any(remark in line for line in lines) == (n_rows == 700)
    drawn = search_sections(found | {"seconds": {}})[0].parts[0]
    assert (remark in drawn.text) == (n_rows == 700)


@pytest.mark.parametrize("scaling", ["learned", "standard"])
def test_a_choice_that_costs_more_than_was_foreseen_has_fewer_landmarks(scaling: str) -> None:
    """The scaling that a training learns may have more columns than that of a trial."""
    trials = trials_of(*quadrants(700))
    [chosen] = judged(trials, Candidate("one", {"scaling": scaling, "landmarks": 32, "products": 0}))
    trials.budget = Budget(ratio=0.8 * chosen.cost.cost_ratio)
    again = trials.again(chosen)
    assert trials.budget.allows(again.cost)
    assert again.settings.landmarks < chosen.settings.landmarks
    told = described(SearchOutcome(chosen, [chosen], []), trials)
    assert told["settings"]["landmarks"] == told["chosen"]["landmarks"] == again.settings.landmarks
    assert told["chosen"]["cost_ratio"] == again.cost.cost_ratio
    [point] = front_with(told["frontier"], told["chosen"])
    assert point["accuracy"] == pytest.approx(1 - chosen.loss)


def test_the_forecast_is_of_a_model_of_all_rows() -> None:
    """The loss of one of all rows lies below that of trials, by what half of their rows cost."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
    y = (np.sin(6 * X[:, 0]) * np.sin(6 * X[:, 1]) > 0).astype(np.int64)
    trials = trials_of(X, y)
    [chosen] = judged(trials, USUAL)
    foretold = trials.foretold(chosen)
    assert chosen.loss > foretold.loss > 0
    half = replace_share(trials, 0.5)
    [fewer] = judged(half, USUAL)
    share = (1 - 0.75**0.5) / (2**0.5 - 1)
    gain = share * (fewer.losses - chosen.losses)
    np.testing.assert_allclose(chosen.losses - foretold.losses, gain, rtol=0.02, atol=1e-9)
    told = described(SearchOutcome(chosen, [chosen], []), trials)
    assert told["chosen"]["accuracy"] == pytest.approx(1 - foretold.loss)
    [point] = front_with(told["frontier"], told["chosen"])
    assert point["accuracy"] == pytest.approx(1 - chosen.loss), "as all points of the front"
    assert told["chosen"]["extrapolated"]


def test_an_interruption_of_the_forecast_keeps_the_choice_of_a_search_with_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials = trials_of(*quadrants(300))
    [chosen] = judged(trials, USUAL)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trials, "foretold", interrupted)
    found = SearchOutcome(chosen, [chosen], [])
    with pytest.raises(KeyboardInterrupt):
        described_in_time(found, trials)
    trials.policy = replace(trials.policy, deadline=Deadline(1e6, lambda: 0.0))
    told = described_in_time(found, trials)
    assert told["settings"] == settings_dict(chosen.settings)
    assert told["chosen"]["accuracy"] == pytest.approx(1 - chosen.loss)
    assert not told["chosen"]["extrapolated"]


def test_a_forecast_is_not_extrapolated_where_more_rows_do_not_help() -> None:
    X = np.linspace(-1, 1, 600, dtype=np.float32)[:, None]
    trials = trials_of(X, (X[:, 0] > 0).astype(np.int64))
    [chosen] = judged(trials, USUAL)
    better = replace(chosen, losses=chosen.losses + 1.0)
    assert trials.foretold(better) is better
    latest = copy(trials)
    latest.rule = replace(trials.rule, ordered=True)
    assert latest.foretold(chosen) is chosen


def test_a_forecast_never_passes_the_best_possible_one() -> None:
    """Steep curves of targets without noise, and scores whose best value is 1."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (60, 2))
    y = np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1])
    steep = DCPredRegressor(random_state=0, cv=2).fit(X, y).tuned_["chosen"]
    assert 0 < steep["standard_error"] < steep["rmse"] < y.std()
    labels = (np.sin(6 * X[:, 0]) * np.sin(6 * X[:, 1]) > 0).astype(np.int64)
    ranked = DCPredClassifier(random_state=0, cv=2, metric="roc_auc").fit(X, labels).tuned_["chosen"]
    assert ranked["roc_auc"] <= 1
    assert not ranked["extrapolated"]


def test_the_choice_is_shown_once() -> None:
    """Its point of the Pareto front keeps its quality: that of the choice is extrapolated."""
    point = {"cost_ratio": 9.0, "ns_per_row": 20.0, "n_leaves": 1, "landmarks": 8, "products": 0}
    point |= {"metric": "accuracy", "accuracy": 0.85, "n_judged": 50, "scaling": "none", "overlap": 1}
    chosen = {**point, "accuracy": 0.87, "n_judged": 60, "extrapolated": True}
    points, made = with_cost([point, {**point, "landmarks": 16}], chosen, 8.0)
    assert points == [{**point, "cost_ratio": 8.0}, {**point, "landmarks": 16}]
    assert front_with(points, made) == points
    assert is_chosen(points[0], made)
    assert front_with(points[1:], made) == [made, points[1]]
    assert made == {**chosen, "cost_ratio": 8.0}


def test_other_models_stand_beside_what_is_not_extrapolated() -> None:
    chosen = {"metric": "accuracy", "accuracy": 0.93, "n_judged": 50, "extrapolated": True}
    of_rows = {"name": "default settings", "accuracy": 0.9, "n_judged": 50, "chosen": 0.92}
    other = {**of_rows, "n_judged": 20}
    assert compared([other, of_rows], chosen)["accuracy"] == 0.92
    assert compared([], chosen) is chosen
    assert compared([of_rows], {**chosen, "extrapolated": False})["accuracy"] == 0.93
    marked = [
        " (not extrapolated)" in reports._references_text({"references": [one], "chosen": chosen})
        for one in (of_rows, other)
    ]
    assert marked == [True, False]


def replace_share(trials: Trials, share: float) -> Trials:
    """The same trials by a share of their rows."""
    other = copy(trials)
    other.share = share
    return other


def test_rows_of_a_cell_vary_together() -> None:
    """Where all rows of half of the cells are noise, cells count and not rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6_000, 2)).astype(np.float32)
    noise = X[:, 0] > 0
    y = np.where(noise, rng.integers(0, 2, 6_000), 0)
    for sample_rows in (500, 100_000):
        settings = Settings(sample_rows=sample_rows)
        trials = trials_of(X, y, policy=CELLS, settings=settings, block_rows=1_700).unseen()
        assert trials.cells is not None
        tree = read_cells(trials.job) if sample_rows == 500 else None
        own = trials.rows.number[trials.cell]
        assert (trials.cells[0] == own).all()
        if tree is not None:
            assert (trials.cells[1] == tree.tree.descend(tree.scaling(X[own]))).all()
        [one] = judged(trials, USUAL)
        of_cells, of_rows = (
            quality_of(one.losses, one.weight, trials, clusters)["standard_error"]
            for clusters in (trials.clusters, np.arange(trials.n_judged))
        )
        assert of_cells > 1.3 * of_rows


def test_reference_models_are_judged_on_the_same_rows() -> None:
    X, y = quadrants(700)
    for policy, seen in ((SMALL, 0.25), (replace(SMALL, very_few_rows=700, repeats=1), 1.0)):
        trials = trials_of(X, y, policy=policy)
        losses = trials.reference((BOOSTING, KERNEL))
        assert set(losses) == {BOOSTING, KERNEL}
        for own in losses.values():
            assert (~np.isnan(own)).mean() == pytest.approx(seen, abs=0.06)
            assert np.nanmean(own) < 0.2


def test_a_reference_is_shown_beside_the_choice_on_the_same_rows() -> None:
    """The choice is judged on all rows, a reference on those of the first look."""
    trials = trials_of(*quadrants(700), policy=replace(SMALL, references=True))
    with few_candidates():
        told = described(found_by(trials), trials)
    for one in told["references"]:
        assert one[ERROR.name] == pytest.approx(one["chosen"] + one["gain"])
    [boosting] = [one for one in told["references"] if one["name"] == BOOSTING]
    assert told["chosen"]["n_judged"] == 700 > boosting["n_judged"]
    rows, own = boosting["n_judged"], f"accuracy {100 * boosting['chosen']:.2f} %"
    assert f"(on {rows} of these rows, where this model has {own})" in reference_words(
        boosting, told["chosen"]
    )


@pytest.mark.parametrize(
    ("x", "policy", "budget", "svm", "boosting"),
    [
        ("", STANDARD, Budget(20.0, 100.0, either=True), 'budget="100x"', 'budget="100x"'),
        ("d/X", STANDARD, Budget(20.0), "dcpred tune --budget 100x", "for a longer .* tune --budget 100x"),
        ("d/X", THOROUGH, Budget(150.0), "dcpred tune --budget 750x", "a larger .*tune --budget 750x"),
        ("d/X", THOROUGH, Budget(ns=200.0), "a larger budget$", "a larger budget$"),
    ],
)
def test_what_to_try_is_something_that_was_not_tried(
    x: str, policy: Any, budget: Budget, svm: str, boosting: str
) -> None:
    """In the words of the estimator or of the command; `tune` does not name itself as a longer search."""
    searched: Any = SimpleNamespace(job=SimpleNamespace(x=x), policy=policy, budget=budget)
    for name, words in ((KERNEL, svm), (BOOSTING, boosting)):
        one = {"name": name, "better": True, "gain": 0.1, "metric": "accuracy", "accuracy": 0.9}
        told = _in_words([{**one, "chosen": 0.8}], searched)
        assert "(accuracy 90.00 %; the choice has accuracy 80.00 %)" in told
        assert re.search(words, told), told
        assert ("longer" in told) == (name == BOOSTING and bool(x) and policy is STANDARD)


# -- odd rows ------------------------------------------------------------------------------------------------


def odd(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    X, y = quadrants(200)
    task = "classification"
    if name == "missing values":
        X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    elif name == "a feature without values":
        X[:, 2] = np.nan
    elif name == "a class of one row":
        y[17] = 2
    elif name == "a class of three rows":
        y[[1, 2, 3]] = 2
    elif name == "rows that are all alike":
        X[:] = 1.0
    elif name == "huge features":
        X = X.astype(float) * [1e100, 1e-100, 1.0]
    elif name == "a feature that is mostly one value":
        X[:, 0] = np.where(np.arange(200) == 3, 1e6, 0.0)
    elif name == "numbers":
        y, task = X[:, 0].astype(float) ** 2, "regression"
    elif name == "one number":
        y, task = np.full(200, 2.5), "regression"
    elif name == "a number for each class of rows":
        y, task = np.where(y == 1, 1e9, -1e-9), "regression"
    return X, y, task


ODD = (
    *("missing values", "a feature without values", "a class of one row", "a class of three rows"),
    *("rows that are all alike", "huge features", "a feature that is mostly one value", "numbers"),
    *("one number", "a number for each class of rows"),
)


@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_judged(name: str) -> None:
    """By the default settings, with factors that are learned, and by what else changes columns."""
    X, y, task = odd(name)
    tried = {name: PORTFOLIO[name] for name in ("learned", "one leaf, quantiles")}
    with few_candidates(mutations=("quantiles",), portfolio=FEW_TREES | tried):
        trials = trials_of(X, y, settings=Settings(task=task))
        found = Search(trials).run()
    assert found is not None
    assert all(np.isfinite(one.losses).all() and np.isfinite(one.ties).all() for one in found.judged)
    losses = trials.reference((BOOSTING, KERNEL))
    assert all(np.isfinite(own[~np.isnan(own)]).all() for own in losses.values())


@pytest.mark.parametrize("n", [2, 5, 8, SMALL.fewest_rows - 1])
def test_of_a_handful_of_rows_nothing_is_judged(n: int) -> None:
    X, _ = quadrants(n)
    trials = trials_of(X, np.arange(n) % 2)
    with few_candidates():
        found = Search(trials).run()
    assert found is not None
    assert (trials.n_judged, found.trace) == (0, [])
    assert found.chosen.candidate.name == DEFAULT


@pytest.mark.parametrize("n", [1, SMALL.fewest_rows - 1, 60])
def test_a_model_that_costs_nothing_is_read_again(n: int) -> None:
    """One number has no landmark, and no cost. Settings of a search that was cut off are read again."""
    X, _ = quadrants(n)
    trials = trials_of(X, np.full(n, 2.5), settings=Settings(task="regression"))
    with few_candidates():
        told = described(found_by(trials), trials) | {"seconds": {}}
    assert told["chosen"]["cost_ratio"] == 0
    assert checked_search(json.loads(json.dumps(told))) is not None


def test_a_result_of_a_search_prints_what_matters() -> None:
    """On one line: the model, its quality and its cost."""
    report = TuneReport(**STORED, made={"cost_ratio": 2.5}, trained={"model": "m"})
    words = "TuneReport(model='m', accuracy=0.9, standard_error=0.01, cost_ratio=2.5)"
    assert repr(report) == words
    assert re.findall(r"<th.*?>(.*?)</th>", report._repr_html_())[:2] == ["model", "accuracy"]


STORED: dict[str, Any] = {
    "settings": {"task": "classification"},
    "chosen": {
        **{"metric": "accuracy", "accuracy": 0.9, "standard_error": 0.01, "n_judged": 60, "scaling": "none"},
        **{"cost_ratio": 2.0, "ns_per_row": 3, "within_budget": True, "n_leaves": 1, "landmarks": 8},
        **{"products": 0, "overlap": 0},
    },
    "seconds": {"search": 1},
    "trace": [
        {
            **{"step": "a", "candidate": "b", "incumbent": "c", "verdict": "d", "loss": 0.2, "rows": 60},
            **{"incumbent_loss": 0.3, "gain": 0.1, "standard_error": 0.1, "cost_ratio": 2.0},
        }
    ],
    "references": [
        {
            **{"name": "a", "accuracy": 0.8, "standard_error": 0.1, "n_judged": 60, "gain": 0.1},
            **{"gain_error": 0.1, "better": False},
        }
    ],
    "words": "",
}
STORED["frontier"] = [dict(STORED["chosen"])]


def test_a_stored_search_is_read_by_the_fields_of_its_parts() -> None:
    """A value of another type is refused, and so is a row that lacks a field of all versions."""
    assert checked_search(STORED) is not None
    assert checked_search({name: STORED[name] for name in STORED if name not in ("trace", "words")})
    for part in ("chosen", "frontier", "seconds", "trace", "references", "words"):
        assert checked_search({**STORED, part: 3}) is None, part
    for part in ("chosen", "frontier", "trace", "references"):
        row = STORED["chosen"] if part == "chosen" else STORED[part][0]
        for name in row:
            lacking = {key: value for key, value in row.items() if key != name}
            for changed, is_right in (({**row, name: ["x"]}, False), (lacking, name == "metric")):
                held = changed if part == "chosen" else [changed]
                assert (checked_search({**STORED, part: held}) is not None) == is_right, (part, name)
    unjudged = {"accuracy": None, "standard_error": None, "n_judged": 0}
    assert checked_search({**STORED, "chosen": {**STORED["chosen"], **unjudged}}) is not None
    assert checked_search({**STORED, "chosen": {**STORED["chosen"], "n_judged": 0}}) is None
    assert checked_search({**STORED, "chosen": {**STORED["chosen"], "accuracy": 1e101}}) is None


def test_without_a_budget_there_is_always_a_model() -> None:
    """30 classes of rows of 2 features: the cheapest model takes more than the 20 linear predictions that
    nobody asked for.
    """
    rng = np.random.default_rng(0)
    y = np.arange(120) % 30
    X = (y[:, None] // [1, 5] + 0.3 * rng.normal(size=(120, 2))).astype(np.float32)
    with few_candidates((DEFAULT,), ()):
        named = trials_of(X, y, budget=Budget(ratio=20.0))
        assert Search(named).run() is None
        trials = trials_of(X, y, budget=None, policy=replace(SMALL, ns=1.0))
        assert Search(trials).run() is None
        trials.widen()
        found = Search(trials).run()
    assert found is not None
    least = parse_budget(named.least())
    assert 20.0 < least.ratio < found.chosen.cost.cost_ratio <= 2 * least.ratio


def test_a_candidate_whose_scaling_one_fold_cannot_learn_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = quadrants(300)
    trials = trials_of(X, y)
    learn = learn_trial_scaling

    def in_all_folds_but_the_last(job: Any, fold: int, *more: Any) -> Any:
        return None if fold == trials.folds[-1] else learn(job, fold, *more)

    monkeypatch.setattr("dcpred.training.trials.learn_trial_scaling", in_all_folds_but_the_last)
    assert trials.evaluate([Candidate(DEFAULT, {})], trials.folds) == [None]


def test_a_point_of_the_front_has_the_trees_that_its_cost_is_of(tmp_path: Path) -> None:
    """Within a budget, another training of it asks for no more, and so keeps its cost."""
    X, y = quadrants(900)
    trials = trials_of(X, y, policy=ONCE)
    [result] = trials.evaluate([Candidate("trees", {"trees": 400, **NO_LEAVES})], trials.folds)
    assert result is not None
    assert 0 < result.n_trees < result.settings.trees == 400
    fields = described(SearchOutcome(result, [result]), trials)
    [point] = fields["frontier"]
    assert (point["settings"]["trees"], point["trees"]) == (400, int(np.ceil(result.n_trees)))
    data = {"rows": "", "task": "", "n_features": 3, "n_classes": 2, "columns": ""}
    document = {"run": "", "data": data, "found": fields | {"seconds": {}}}
    write_json(tmp_path / "m.tuned.json", document)
    for budget, trees in ((None, 400), (Budget(ratio=1e6), point["trees"])):
        assert point_of(tmp_path / "m", budget, STANDARD).fields["settings"]["trees"] == trees
