"""The search for settings, on made-up errors that are known: what it looks at, what it finds, and what it may
not take.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dcpred.cost.predicted import PredictedCost
from dcpred.tuning import tune as tuning
from dcpred.tuning.forecast import relative_effort
from dcpred.tuning.points import SLACK, Budget, Point, choose, frontier, rounded_up
from dcpred.tuning.search import _best, judged_unseen, near_machine, search
from dcpred.tuning.tree_search import (
    LANDMARKS,
    LOCAL_GAMMA,
    LONG,
    MORE_STEPS,
    QUICK,
    QUICK_FEW,
    SHORT,
    START_LANDMARKS,
    WHOLE_LANDMARKS,
    Ahead,
    Ask,
    suited,
    together,
)
from dcpred.tuning.trial_plan import (
    LEAST_ROWS,
    MOST_ROWS,
    WHOLE,
    WHOLE_BY_DESCENT,
    GrownTree,
    best_base,
    draw_leaves,
    tree_sizes,
    tries_whole,
)
from dcpred.tuning.tune import on_this_machine, parse_budget
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.training.machine_settings import DISTANCE
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import UNSEEN_FOLD, Verdict
from support.reporters import Recorder

START = Settings(scaling="learned", overlap=3, C=16.0, n_leaves=16)


def cost(ratio: float) -> PredictedCost:
    return PredictedCost(convert=ratio * 10.0, descend=0.0, landmarks=0.0, outputs=0.0, linear=10.0)


class Known:
    """Errors are least at a γ of its own for each tree, and fall with landmarks and with what `good`
    names.
    """

    whole = 0  # rows of one leaf of all rows
    known_rows = 0  # rows of local machines

    def __init__(
        self, best_gamma: Sequence[float], floors: Sequence[float], good: dict[str, object] | None = None
    ) -> None:
        self.best_gamma, self.floors, self.good = best_gamma, floors, good or {}
        self.judged: list[tuple[int, Settings, float]] = []
        self.asks: list[Ask] = []

    def start(self, tree: int) -> Settings:
        return replace(START, n_leaves=16 * 4**tree)

    def most_overlap(self, tree: int) -> int:
        return 4

    def gamma(self, tree: int) -> float:
        return 1.0

    def cost(self, tree: int, settings: Settings) -> PredictedCost:
        return cost(2.0 + tree + settings.landmarks / 16 + settings.products / 64)

    def folds(self, tree: int, wanted: int = 0) -> int:
        return 1

    def whole_rows(self, tree: int) -> int:
        return self.whole

    def machine_rows(self, tree: int, settings: Settings) -> int:
        return self.known_rows

    def one_row(self, tree: int) -> float:
        return 0.0

    def judge(self, asks: Sequence[Ask]) -> list[list[Verdict]]:
        self.judged += [(ask.tree, s, ask.share) for ask in asks for s in ask.tries]
        self.asks += asks
        return [[self.verdict(ask, s) for s in ask.tries] for ask in asks]

    def verdict(self, ask: Ask, s: Settings) -> Verdict:
        error = self.error(ask.tree, s)
        return Verdict(error, error)

    def error(self, tree: int, s: Settings) -> float:
        off = abs(np.log2(s.head_gamma / self.best_gamma[tree]))
        helped = sum(getattr(s, name) == value for name, value in self.good.items())
        return float(self.floors[tree] * 0.8**helped * (1 + 0.2 * off) * (1 + 4 / s.landmarks))


@pytest.mark.parametrize("best", [0.03125, 0.25, 1.0, 4.0, 32.0])
def test_the_width_is_found_beyond_the_first_steps_too(best: float) -> None:
    points = search(Known([best], [0.1]), [0], Budget(), extent=LONG)
    assert min(points, key=lambda p: p.error).settings.head_gamma == best


def test_changes_that_help_are_put_together() -> None:
    good: dict[str, object] = {"overlap": 4, "guide": 1.0, "refine_ridge": 1e-2}
    best = min(search(Known([1.0], [0.1], good), [0], Budget(), extent=LONG), key=lambda p: p.error)
    assert {name: getattr(best.settings, name) for name in good} == good
    assert best.settings.C == START.C, "what did not help was left alone"


def test_one_leaf_of_all_rows_starts_from_many_landmarks_and_keeps_to_what_concerns_it() -> None:
    class Whole(Known):
        def start(self, tree: int) -> Settings:
            return replace(START, **WHOLE)

    arena = Whole([1.0], [0.1])
    best = choose(search(arena, [0], Budget(ratio=12.0), extent=SHORT), 1.0)
    tried = {s.landmarks for _, s, _ in arena.judged}
    assert min(tried) >= WHOLE_LANDMARKS // 3
    assert best.settings.landmarks == 128, "what the budget has room for"
    assert max(tried) == 192, "and what would be next"
    assert {(s.overlap, s.guide) for _, s, _ in arena.judged} == {(1, 0.0)}
    assert {s.refine_epochs for _, s, _ in arena.judged} == {SHORT.epochs, WHOLE["refine_epochs"]}
    assert best.settings.refine_epochs == WHOLE["refine_epochs"]


@pytest.mark.parametrize(
    ("n_rows", "n_features", "most", "expected"),
    [
        (60_000, 784, 8_000, True),
        (7_000, 256, 8_000, True),
        (7_000, 16, 8_000, True),
        (70_000, 16, 8_000, False),
        (2_000, 256, 8_000, False),
        (500_000, 256, 8_000, False),
        (7_000, 256, 4_000, False),
        (3_000, 256, 4_000, True),
    ],
)
def test_one_leaf_of_all_rows_is_tried_where_rows_are_wide_or_few(
    n_rows: int, n_features: int, most: int, expected: bool
) -> None:
    """And where it fits into memory, and is not larger than was asked for."""
    assert tries_whole(n_rows, n_features, Settings(max_leaf_rows=most)) is expected


def test_a_change_that_helps_only_alone_is_not_added_to_another() -> None:
    class Either(Known):
        def error(self, tree: int, s: Settings) -> float:
            one, other = s.guide == 1.0, s.overlap == 4
            return (0.05 if one and not other else 0.06 if other and not one else 0.1) * (1 + 4 / s.landmarks)

    best = min(search(Either([1.0], [0.1]), [0], Budget(), extent=LONG), key=lambda p: p.error)
    assert (best.settings.guide, best.settings.overlap) == (1.0, START.overlap)


def test_the_better_tree_wins_and_hopeless_ones_are_given_up_early() -> None:
    arena = Known([1.0, 1.0, 1.0], [0.1, 0.05, 0.3])
    points = search(arena, [0, 1, 2], Budget(), extent=LONG)
    assert min(points, key=lambda p: p.error).tree == 1
    assert {p.tree for p in points} == {1}
    sized = {tree for tree, s, _ in arena.judged if s.landmarks != START_LANDMARKS}
    assert sized == {1}, "the others are more than three quarters worse"


class Lucky(Known):
    """The first held-out rows flatter the first tree."""

    def folds(self, tree: int, wanted: int = 0) -> int:
        return 4

    def verdict(self, ask: Ask, s: Settings) -> Verdict:
        error = self.error(ask.tree, s) * (0.8 if ask.tree == 0 and 0 in ask.folds else 1.0)
        return Verdict(error, error)


def test_what_is_best_by_luck_is_judged_on_more_rows() -> None:
    arena = Lucky([1.0, 1.0], [0.1, 0.09])
    points = search(arena, [0, 1], Budget(), extent=LONG)
    best = choose(points, 1.0)
    assert (best.tree, best.folds) == (1, 4)
    assert best.error == pytest.approx(Known([1.0, 1.0], [0.1, 0.09]).error(1, best.settings))
    assert {p.tree for p in points if p.folds == 4} == {0, 1}
    assert sum(len(ask.tries) for ask in arena.asks if len(ask.folds) > 1) == 6 < len(points), "not all"
    lucky = [p for p in points if p.tree == 0]
    assert all(p.error > 0.9 * arena.error(0, p.settings) for p in lucky), "the others are moved as well"


@pytest.mark.parametrize("limit", [3.0, 3.5, 5.0, 9.0])
def test_no_point_is_beyond_the_budget(limit: float) -> None:
    arena = Known([1.0, 1.0], [0.1, 0.1], {"products": 64})
    points = search(arena, [0, 1], Budget(ratio=limit), extent=LONG)
    assert choose(points, 1.0).cost.cost_ratio <= limit
    assert {p.within for p in points} == {True, False}
    beyond = [p for p in points if not p.within]
    assert all(p.within == (p.cost.cost_ratio <= limit) for p in points)
    dear = [s for tree, s, _ in arena.judged if arena.cost(tree, s).cost_ratio > limit]
    assert dear == [p.settings for p in beyond], "no other is looked at"
    assert len(beyond) == 1


def test_a_budget_that_nothing_meets_has_no_points() -> None:
    points = search(Known([1.0], [0.1]), [0], Budget(ns=5.0), extent=LONG)
    assert points == []


def test_a_shorter_search_looks_at_less() -> None:
    looks = []
    for extent in (LONG, SHORT):
        arena = Known([1.0, 1.0], [0.1, 0.1])
        search(arena, [0, 1], Budget(), extent)
        looks.append(sum(share for _, _, share in arena.judged))
    assert looks[1] < 0.5 * looks[0]


def points_of(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(0, START, cost(c), Verdict(e, e)) for c, e in pairs]


def test_the_frontier_drops_what_is_dearer_and_no_better() -> None:
    kept = frontier(points_of((5, 0.1), (3, 0.2), (4, 0.2), (6, 0.1), (7, 0.05), (2, 0.9)))
    assert [(p.cost.cost_ratio, p.error) for p in kept] == [(2, 0.9), (3, 0.2), (5, 0.1), (7, 0.05)]


def test_what_is_chosen() -> None:
    points = points_of((3, 0.2), (5, 0.1005), (9, 0.1), (12, 0.1))
    assert choose(points, 1.0).cost.cost_ratio == 9, "a named budget may be spent"
    assert choose(points, SLACK).cost.cost_ratio == 5, "else nearly as good and cheaper is better"


def test_no_point_is_chosen_that_costs_more_and_errs_more_than_another() -> None:
    """A search told of 78.57 % at 27 linear predictions, and of 78.61 % at 22, which has a soft error that
    is larger.
    """
    dear, cheap = (
        Point(0, START, cost(c), Verdict(soft, e)) for c, soft, e in [(27, 0.2, 0.21), (22, 0.3, 0.2)]
    )
    best = Point(0, START, cost(30), Verdict(0.2, 0.2101))
    assert dear.promise < cheap.promise
    for slack in (1.0, SLACK):
        assert choose([dear, cheap, best], slack) == cheap
    assert choose([dear, best, replace(cheap, within=False)], 1.0) == dear


def test_no_error_in_a_few_rows_is_no_certainty() -> None:
    sure = Point(0, START, cost(3), Verdict(0.0, 0.0))
    assert sure.standard_error == 0.0
    assert 0.01 < sure.uncertain(100) < 0.02
    assert sure.uncertain(10_000) < 2e-4
    usual = Point(0, START, cost(3), Verdict(0.2, 0.2, 0.2 * 0.8 / 400))
    assert usual.uncertain(400) == pytest.approx(0.02, rel=0.02)
    drawn = replace(usual, verdict=Verdict(0.2, 0.2, 0.05**2))
    assert drawn.uncertain(400) == pytest.approx(0.05), "leaves that were drawn add to it"


def test_what_is_told_rests_on_rows_that_no_choice_was_made_by() -> None:
    class Flattered(Known):
        def verdict(self, ask: Ask, s: Settings) -> Verdict:
            error = self.error(ask.tree, s) + (0.05 if UNSEEN_FOLD in ask.folds else 0.0)
            return Verdict(error, error, 1e-4)

    arena = Flattered([1.0], [0.1])
    points = search(arena, [0], Budget(), extent=SHORT)
    assert all(UNSEEN_FOLD not in ask.folds for ask in arena.asks)
    chosen = choose(points, SLACK)
    told, others = judged_unseen(arena, chosen, points, 500)
    assert told.error == pytest.approx(chosen.error + 0.05)
    assert (told.folds, told.settings) == (1, chosen.settings)
    assert [p.error for p in others] == pytest.approx([p.error + 0.05 for p in points])
    assert judged_unseen(arena, chosen, points, 0) == (chosen, points), "too few rows to judge by"


@pytest.mark.parametrize(("rows", "share"), [(400, 1.0), (MOST_ROWS, 1.0), (5_000, 0.5), (60_000, 0.25)])
def test_one_leaf_is_compared_with_trees_by_as_many_rows_as_tell(rows: int, share: float) -> None:
    """With a quarter of 1,000 rows it was given up where all 2,250 would have made it the best."""
    arena = Known([1.0], [0.1])
    arena.whole = rows
    search(arena, [0], Budget(), extent=QUICK)
    assert arena.asks[0].share == pytest.approx(share)
    leaves = Known([1.0], [0.1])
    search(leaves, [0], Budget(), extent=QUICK)
    assert leaves.asks[0].share == QUICK.first_share, "of leaves a few are enough"


def test_a_quick_search_of_few_rows_looks_at_wide_kernels_ridges_and_steps() -> None:
    few = WHOLE_BY_DESCENT
    assert suited(QUICK, few, 63) is suited(QUICK, MOST_ROWS, 64) is QUICK_FEW
    assert suited(QUICK, few + 1, 63) is suited(QUICK, MOST_ROWS + 1, 64) is QUICK, "stochastic steps"
    assert suited(SHORT, 100, 10) is SHORT
    for name, value in {"refine_ridge": 10 * START.refine_ridge, "refine_steps": MORE_STEPS}.items():
        arena = Known([1 / 16], [0.1], {name: value})
        [best] = search(arena, [0], Budget(), extent=QUICK_FEW)
        assert getattr(best.settings, name) == value
        assert best.settings.head_gamma == 1 / 16
        [same] = search(Easy([1 / 16], [0.1], {name: value}), [0], Budget(), extent=QUICK_FEW)
        assert getattr(same.settings, name) == getattr(START, name), "less than a row means nothing"


def test_a_scaling_replaces_the_standard_one_where_neighbours_tell_them_apart() -> None:
    near = {"none": -1.3428, "standard": -1.3430, "minmax": -1.3276, "learned": -1.3116}
    assert best_base(near, "classification") == ["standard"]
    assert best_base(near | {"minmax": -1.2}, "classification") == ["minmax"]
    assert best_base({"none": 0.45, "standard": 0.44}, "regression") == ["standard"]
    assert best_base({"none": 0.9, "standard": 0.44}, "regression") == ["none"]
    assert best_base({"learned": 0.5}, "regression") == []
    assert best_base({"none": 0.9, "learned": 0.5}, "regression") == ["none"]


def test_a_time_is_compared_with_what_this_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which a linear prediction takes twice as long has room for half the cost."""
    monkeypatch.setattr(tuning, "measured_linear_ns", lambda n_features: {8: 4.0, 54: 30.0}[n_features])
    cost = PredictedCost(0.0, 0.0, 150.0, 0.0, 15.0)  # 10 linear predictions
    say = Recorder()
    here = on_this_machine(parse_budget("200ns"), 54, say)
    assert parse_budget("200ns").allows(cost)
    assert not here.allows(cost)
    assert on_this_machine(parse_budget("0.3us"), 54, say).allows(cost)
    assert on_this_machine(parse_budget("40ns"), 8, say).allows(cost)
    assert str(here) == str(parse_budget("200ns")), "a search that was cut off goes on, whatever was measured"
    assert "takes 30.0 ns on this machine, so that 200 ns are 6.7 of them" in say.told[0]
    assert rounded_up(cost) == "10.1x"


def test_budgets_are_read_and_refused() -> None:
    assert parse_budget("8x") == Budget(ratio=8)
    assert parse_budget(" 0.2us ") == Budget(ns=200)
    assert parse_budget("150NS") == Budget(ns=150)
    for wrong in ("8", "x", "0x", "-1x", "nanx", "infx", "8xx", "fast", "1e400us"):
        with pytest.raises(SettingsError, match=r"8x .*0\.2us or 200ns"):
            parse_budget(wrong)


@pytest.mark.parametrize("n_rows", [1, 10, 39, 200, 1_000, 5_000, 15_000, 60_000, 522_910, 10**7, 10**10])
def test_trees_of_every_size_of_data(n_rows: int) -> None:
    sizes = [n for group in tree_sizes(n_rows) for n in group]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert all(n == 1 or n_rows / n >= LEAST_ROWS for n in sizes)
    assert n_rows / sizes[0] <= MOST_ROWS or sizes[0] == 4_096


def grown(counts: np.ndarray, leaves: np.ndarray, draws: np.ndarray) -> GrownTree:
    division: Any = None
    return GrownTree(START, division, counts, leaves, draws, error_factor=1.0, most_overlap=4)


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_leaves_stand_for_all_rows_without_bias(part: float) -> None:
    """Horvitz and Thompson: over many draws, the weights of the leaves drawn add up to each leaf's share."""
    counts = np.array([1, 5, 10, 50, 200, 34, 0] * 120)
    share, total = counts / counts.sum(), np.zeros(len(counts))
    leaf = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    n_draws = 300
    for seed in range(n_draws):
        leaves, draws = draw_leaves(leaf, len(counts), 10**6, 10, seed)
        assert len(set(leaves.tolist())) == len(leaves)
        assert (np.diff(draws) > 0).all()
        some = int(part * len(leaves))
        total[leaves[:some]] += grown(counts, leaves, draws).sampling_weights(some) / n_draws
    for size in np.unique(counts):
        assert total[counts == size].sum() == pytest.approx(share[counts == size].sum(), rel=0.25, abs=1e-3)


def test_all_leaves_stand_for_their_own_rows_and_trees_are_drawn_from_alike() -> None:
    leaf = np.repeat(np.arange(8, dtype=np.int32), [1, 1, 2, 4, 8, 16, 32, 64])
    counts = np.bincount(leaf)
    leaves, draws = draw_leaves(leaf, 8, len(leaf), 10, 0)
    assert sorted(leaves.tolist()) == list(range(8))
    weights = grown(counts, leaves, draws).sampling_weights(8)
    assert weights == pytest.approx(counts[leaves] / len(leaf))
    coarse, _ = draw_leaves(leaf // 2, 4, len(leaf), 10, 0)
    assert coarse.tolist() == list(dict.fromkeys((leaves // 2).tolist())), "the same rows, in larger leaves"


def test_courses_go_on_side_by_side_to_their_own_ends() -> None:
    arena = Known([1.0] * 3, [0.1, 0.2, 0.3])
    rounds: list[list[int]] = []

    def course(tree: int, length: int) -> Any:
        found = []
        for _ in range(length):
            [verdict] = yield Ask(tree, [replace(START, gamma=1.0, head_gamma=1.0)], 1.0)
            found.append(verdict.soft)
        return found

    judge = arena.judge
    arena.judge = lambda asks: [rounds.append([a.tree for a in asks]), judge(asks)][1]  # type: ignore
    found = together(arena, [course(0, 1), course(1, 3), course(2, 0)])
    assert rounds == [[0, 1], [1], [1]]
    assert [len(one) for one in found] == [1, 3, 0]
    assert found[1] == [arena.error(1, replace(START, head_gamma=1.0))] * 3


class Misleading(Known):
    """A few leaves of tree 0 flatter it."""

    def verdict(self, ask: Ask, s: Settings) -> Verdict:
        error = self.error(ask.tree, s) * (0.1 if ask.tree == 0 and ask.share < 1 else 1.0)
        return Verdict(error, error)


def test_trees_are_compared_on_all_leaves() -> None:
    points = search(Misleading([1.0, 1.0], [0.1, 0.05]), [0, 1], Budget(), extent=SHORT)
    assert {p.tree for p in points} == {1}


class Slow(Known):
    """The better settings need more steps."""

    def error(self, tree: int, s: Settings) -> float:
        return super().error(tree, s) * (0.9 if s.refine_steps == MORE_STEPS else 1.0)


def test_the_chosen_point_gets_more_steps_where_they_help() -> None:
    for arena, steps in ((Slow([1.0], [0.1]), MORE_STEPS), (Known([1.0], [0.1]), START.refine_steps)):
        best = choose(search(arena, [0], Budget(), extent=SHORT), 1.0)
        assert best.settings.refine_steps == steps
        assert best.error == pytest.approx(arena.error(0, best.settings))
        early = {s.refine_steps for _, s, share in arena.judged if share == SHORT.moves_share}
        assert early == {SHORT.steps}


class Stiff(Known):
    """The better settings need another ridge, more steps and factors of leaves with it."""

    def error(self, tree: int, s: Settings) -> float:
        all_three = s.refine_steps == MORE_STEPS and s.refine_ridge == 10 * START.refine_ridge
        return super().error(tree, s) * (0.9 if all_three and s.leaf_scaling else 1.0)


def test_the_chosen_point_gets_another_ridge_more_steps_and_factors_of_leaves_together() -> None:
    best = choose(search(Stiff([1.0], [0.1]), [0], Budget(), extent=SHORT), 1.0)
    assert best.settings.leaf_scaling
    assert (best.settings.refine_steps, best.settings.refine_ridge) == (MORE_STEPS, 10 * START.refine_ridge)


class Logistic(Known):
    """Fewer rows are wrong with the logistic loss, whose soft errors are larger."""

    def __init__(self, share: float) -> None:
        super().__init__([1.0], [0.1])
        self.share = share

    def verdict(self, ask: Ask, s: Settings) -> Verdict:
        error = self.error(ask.tree, s)
        return Verdict(2 * error, self.share * error) if s.loss == "logistic" else Verdict(error, error)


@pytest.mark.parametrize(("share", "expected"), [(0.9, "logistic"), (1.0, "hinge"), (1.1, "hinge")])
def test_the_chosen_point_gets_the_loss_with_fewer_wrong_rows(share: float, expected: str) -> None:
    arena = Logistic(share)
    best = choose(search(arena, [0], Budget(), extent=SHORT), SLACK)
    assert best.settings.loss == expected
    assert best.error == pytest.approx(min(share, 1.0) * arena.error(0, best.settings))
    assert len({s for _, s, _ in arena.judged if s.loss == "logistic"}) == 1


def test_no_other_loss_is_tried_for_numbers() -> None:
    class Numbers(Logistic):
        def start(self, tree: int) -> Settings:
            return replace(START, task="regression", C=Settings.C)

    arena = Numbers(0.9)
    search(arena, [0], Budget(), extent=SHORT)
    assert {s.loss for _, s, _ in arena.judged} == {"hinge"}


class Near(Known):
    """Models near the local machines, best at a quarter of their γ, have so many times the errors of others,
    and gain more by landmarks.
    """

    known_rows = 3_000

    def __init__(self, share: float, **other: Any) -> None:
        super().__init__([1.0], [0.1], **other)
        self.share = share

    def error(self, tree: int, s: Settings) -> float:
        if s.loss != DISTANCE:
            return super().error(tree, s)
        usual = super().error(tree, replace(s, loss="hinge", head_gamma=1.0, landmarks=16))
        off = abs(np.log2(float(s.gamma) / (LOCAL_GAMMA / 4)))
        return float(usual * self.share * (1 + 0.1 * off) * (1 + 8 / s.landmarks))


def test_models_near_the_local_machines_are_chosen_where_fewer_rows_are_wrong() -> None:
    arena = Near(0.6)
    points = search(arena, [0], Budget(), extent=SHORT)
    best = choose(points, 1.0)
    known = {"loss": DISTANCE, "gamma": LOCAL_GAMMA / 4, "head_gamma": 0.0, "local_rows": 3_000}
    assert {name: getattr(best.settings, name) for name in known} == known
    assert best.error == pytest.approx(arena.error(0, best.settings))
    usual = choose([p for p in points if p.settings.loss != DISTANCE], 1.0)
    at = LANDMARKS.index(usual.settings.landmarks)
    near = {p.settings.landmarks for p in points if p.settings.loss == DISTANCE}
    assert near == set(LANDMARKS[at : at + 3]), "more landmarks go on to help"
    assert best.settings.landmarks == max(near)


@pytest.mark.parametrize("share", [0.99, 2.0])
def test_models_near_the_local_machines_that_are_no_better_are_left_out(share: float) -> None:
    arena = Near(share)
    points = search(arena, [0], Budget(), extent=SHORT)
    assert {p.settings.loss for p in points} == {"hinge"}
    assert any(s.loss == DISTANCE for _, s, _ in arena.judged), "they were tried"


def test_what_chance_explains_is_no_reason_to_stay_near_the_local_machines() -> None:
    class Few(Near):
        def one_row(self, tree: int) -> float:
            return 1 / 50

    assert {p.settings.loss for p in search(Few(0.6), [0], Budget(), extent=SHORT)} == {"hinge"}


def test_models_near_the_local_machines_keep_to_the_budget_and_to_what_was_asked_for() -> None:
    arena = Near(0.6)
    points = search(arena, [0], Budget(ratio=3.5), extent=SHORT)
    assert all(p.within for p in points if p.settings.loss == DISTANCE)
    assert any(p.settings.loss == DISTANCE for p in points)
    for start in (replace(START, task="regression", C=Settings.C), replace(START, kernel="laplacian")):
        other = Near(0.6)
        other.start = lambda tree, start=start: start  # type: ignore[method-assign, misc]
        search(other, [0], Budget(), extent=SHORT)
        assert all(s.loss != DISTANCE for _, s, _ in other.judged)
    large = Near(0.6)
    large.known_rows = 0
    search(large, [0], Budget(), extent=SHORT)
    assert all(s.loss != DISTANCE for _, s, _ in large.judged)


class Usual(Known):
    """Two trees of one leaf, the second of usual scaling; the SVM of usual settings there has an error of
    its own.
    """

    known_rows = 500

    def __init__(self, error: float, scaling: str = "standard") -> None:
        super().__init__([1.0, 1.0], [0.1, 0.1])
        self.usual, self.scaling = error, scaling

    def start(self, tree: int) -> Settings:
        return replace(START, n_leaves=1, overlap=1, scaling=("learned", self.scaling)[tree])

    def one_row(self, tree: int) -> float:
        return 1e-3

    def error(self, tree: int, s: Settings) -> float:
        if s.loss != DISTANCE:
            return super().error(tree, s)
        return self.usual if (s.C, s.gamma, tree) == (1.0, 1.0, 1) else 0.5


@pytest.mark.parametrize(("error", "alone"), [(0.05, True), (0.106, True), (0.2, False)])
def test_of_few_rows_the_usual_machine_is_taken_where_nothing_is_surely_better(
    error: float, alone: bool
) -> None:
    arena = Usual(error)
    points = search(arena, [0, 1], Budget(), extent=QUICK_FEW)
    assert ([p.settings.loss for p in points] == [DISTANCE]) == alone
    if alone:
        [usual] = points
        known = {"C": 1.0, "gamma": 1.0, "scaling": "standard", "n_leaves": 1, "local_rows": 500}
        assert {name: getattr(usual.settings, name) for name in known} == known
        assert usual.settings.landmarks == WHOLE_LANDMARKS
        assert (usual.tree, usual.error) == (1, error)
    else:
        assert choose(points, 1.0).error < error


def test_the_usual_machine_keeps_to_the_budget_and_to_few_rows_of_classes() -> None:
    [usual] = search(Usual(0.05), [0, 1], Budget(ratio=5.0), extent=QUICK_FEW)
    assert usual.cost.cost_ratio <= 5.0
    assert usual.settings.landmarks == 32
    assert usual.settings.loss == DISTANCE
    assert all(p.settings.loss == "hinge" for p in search(Usual(0.05), [0, 1], Budget(), extent=QUICK))
    unknown = Usual(0.05)
    unknown.known_rows = 0
    assert all(p.settings.loss == "hinge" for p in search(unknown, [0, 1], Budget(), extent=QUICK_FEW))
    learned = search(Usual(0.05, "sharpened"), [0, 1], Budget(), extent=QUICK_FEW)
    assert all(p.settings.loss == "hinge" for p in learned), "no scaling that anybody tries first"


def test_a_try_in_one_leaf_of_all_rows_counts_its_landmarks_however_it_is_refined() -> None:
    whole = replace(START, **WHOLE)
    near = near_machine(replace(whole, gamma=1.0, landmarks=2 * WHOLE_LANDMARKS), 1.0, 500)
    assert relative_effort(replace(whole, landmarks=WHOLE_LANDMARKS), whole) == 1.0
    assert relative_effort(near, whole) == 2.0
    assert relative_effort(replace(START, refine_steps=2 * START.refine_steps), START) == 2.0


class Late(Known):
    """The second tree is the better one, once it is refined with more steps."""

    def error(self, tree: int, s: Settings) -> float:
        return super().error(tree, s) * (0.8 if tree == 1 and s.refine_steps == MORE_STEPS else 1.0)


@pytest.mark.parametrize(("second", "chosen"), [(0.104, 1), (0.12, 0)])
def test_a_tree_that_is_near_the_best_is_refined_before_one_is_chosen(second: float, chosen: int) -> None:
    points = search(Late([1.0, 1.0], [0.1, second]), [0, 1], Budget(), extent=SHORT)
    assert choose(points, 1.0).tree == chosen


def test_trees_are_given_up_unless_they_are_as_good_as_the_best() -> None:
    ahead = [Ahead(START, soft, tree) for tree, soft in enumerate([0.106, 0.1, 0.102, 0.101, 0.2])]
    assert [one.tree for one in _best(ahead, 1.25, 2)] == [1, 3, 2]
    assert [one.tree for one in _best(ahead, 1.25, 4)] == [1, 3, 2, 0]
    assert [one.tree for one in _best(ahead, 1.0, 4)] == [1]


class Easy(Known):
    """Nothing changes an error by a row."""

    def one_row(self, tree: int) -> float:
        return 1e-3

    def error(self, tree: int, s: Settings) -> float:
        return 1e-3 * super().error(tree, s)


def test_differences_of_less_than_a_row_buy_nothing() -> None:
    arena = Easy([1.0], [0.5])
    best = choose(search(arena, [0], Budget(), extent=SHORT), SLACK)
    assert best.settings.landmarks == min(s.landmarks for _, s, _ in arena.judged)
