"""The search for settings: in which order it looks at trees, and when it gives one up.

    width      γ, on few leaves of every tree
    size       as many landmarks as help, on the same leaves; trees that fall behind are given up
    moves      one change at a time, on more leaves; then those that helped, put together
    last       more and fewer landmarks, on all leaves: the tree that leads, and those that are near it
    told       numbers of landmarks around the best point, and one beyond a budget that binds
    again      the best points on other held-out rows, where few are held out at a time
    refined    another ridge, more steps of refinement, and factors of leaves for the best points
    loss       the logistic loss for it, where there are classes
    near       landmarks near the local machines (loss=distance) for it, where these know their leaves
    usual      in a quick look at few rows the SVM that anybody tries first, where nothing is surely better

Within a round, tries of a tree are judged on the same leaves, where a difference is far less uncertain than a
value; trees are searched side by side, so that processors stay busy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, log2, sqrt
from typing import Any

from dcpred.tuning.points import Budget, Point, choose
from dcpred.tuning.tree_search import (
    LANDMARKS,
    MAX_REMAINING_ERROR,
    MORE_STEPS,
    QUICK_FEW,
    START_C,
    WHOLE_LANDMARKS,
    Ahead,
    Ask,
    Course,
    Extent,
    TreeSearch,
    Trials,
    together,
)
from dcpred_tasks.training.machine_settings import DISTANCE, OF_DISTANCE
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import UNSEEN_FOLD, Verdict

# Trees whose soft error is above so many times the least one are given up: after γ, and later.
KEPT_WITHIN, SIZED_WITHIN = 1.75, 1.25
TIED = 1.03  # a tree within so many times the least error is not given up because of others
# Points whose error is within so many times the least are judged again.
AGAIN_WITHIN = 1.5
REFINED_WITHIN = 1.15  # the same for other ridges, more steps and factors of leaves
RIDGES = (1.0, 0.1, 10.0)  # multiples of the ridge that are tried with them
STEPS_SHARE = 0.5  # share of the leaves that they are judged on
NEAR_GAMMAS = (0.25, 0.5, 1.0)  # multiples of γ of the local machines that landmarks near them are tried with
MORE_SIZES = 2  # numbers of landmarks that are tried there beyond the one that would be chosen
USUAL_C = 1.0  # C of the SVM that anybody tries first
DISCORD = 0.25  # part of the wrong rows of two machines that only one of them is wrong on, about
LOOKS = 4  # times that the last round goes on to more or fewer landmarks
TOLD = 4  # numbers of landmarks that a reader can compare, at least


def expected_tries(trees: int, extent: Extent) -> float:
    """What a search over so many trees is likely to judge, in tries of the settings that it starts from on
    all leaves that are looked at. The rounds depend on what is found: it may be half of that, or twice.
    """
    sized, changed = min(trees, extent.sized), min(trees, extent.changed)
    early = extent.first_share * ((1 + len(extent.gammas)) * trees + 8 * sized)
    if not extent.rounds:
        return 0.5 * early
    changes, sizes = (14, 40) if extent.all_sizes else (8, 8)
    return early + changed * (extent.moves_share * changes + sizes) + 8 + len(NEAR_GAMMAS) + MORE_SIZES


def search(
    trials: Trials, trees: Sequence[int], budget: Budget, extent: Extent, slack: float = 1.0
) -> list[Point]:
    """Every point of the last rounds, over all trees that were kept. Empty where the budget allows no tree.

    slack  multiple of the least error that the point which is chosen in the end may have
    """
    searches = {tree: TreeSearch(trials, tree, budget, extent) for tree in trees}
    starts = {tree: start for tree, s in searches.items() if (start := s.start()) is not None}
    if not starts:
        return []
    ahead = together(trials, [searches[tree].width(start) for tree, start in starts.items()])
    ahead = _best(ahead, KEPT_WITHIN if extent.rounds else SIZED_WITHIN, extent.sized)
    ahead = together(trials, [searches[one.tree].size(one) for one in ahead])
    ahead = _best(ahead, SIZED_WITHIN, extent.changed)
    last = _LastRound(trials, searches, extent)
    if not extent.rounds:
        if extent.ridges:
            ahead = together(trials, [searches[one.tree].ridge(one) for one in ahead])
        asks = [searches[one.tree].last([one.settings]) for one in ahead]
        points = [
            last.point(one.tree, one.settings, level, len(ask.folds))
            for one, ask, [level] in zip(ahead, asks, trials.judge(asks), strict=True)
        ]
        points = last.near_machines(points, slack)
        return last.beside_usual(points, slack) if extent is QUICK_FEW else points
    ahead = together(trials, [searches[one.tree].moves(one) for one in ahead])
    ahead = _best(ahead, SIZED_WITHIN, extent.changed)
    points = [p for found in together(trials, [last.sizes(one) for one in ahead]) for p in found]
    if points:
        points += last.told(points, slack)
    points = last.refined(last.judged_again(points, slack), slack)
    return last.near_machines(last.other_loss(points, slack), slack)


def _best(ahead: Sequence[Ahead], within: float, most: int) -> list[Ahead]:
    """The best first, without those that are too far behind; more than `most` only where they are as good."""
    ordered = sorted(ahead, key=lambda one: one.soft)
    kept = [one for one in ordered if one.soft <= within * ordered[0].soft]
    return kept[:most] + [one for one in kept[most:] if one.soft <= TIED * ordered[0].soft]


@dataclass(frozen=True)
class _LastRound:
    """What is looked at on all leaves."""

    trials: Trials
    searches: dict[int, TreeSearch]
    extent: Extent

    def sizes(self, ahead: Ahead) -> Course[list[Point]]:
        """More and fewer landmarks, and γ once more for them: all numbers of landmarks, or those around the
        best one, down to where fewer are nearly as good.
        """
        found: dict[int, Point] = {}
        tree = self.searches[ahead.tree]
        able = tree.sizes(ahead.settings)
        wanted = able if self.extent.all_sizes else _around(able, ahead.settings.landmarks)
        for _ in range(LOOKS):
            some = [replace(ahead.settings, landmarks=m) for m in wanted]
            tries = [_with_ratio(s, ratio) for s in some for ratio in self.extent.ratios]
            verdicts = yield Ask(ahead.tree, tries, 1.0)
            for settings, verdict in zip(tries, verdicts, strict=True):
                point = self.point(ahead.tree, settings, verdict)
                m = settings.landmarks
                found[m] = min((p for p in (found.get(m), point) if p), key=lambda p: p.promise)
            best = min(found.values(), key=lambda p: p.promise)
            wanted = [m for m in _around(able, best.settings.landmarks) if m not in found]
            if not wanted:
                break
        return list(found.values())

    def point(self, tree: int, settings: Settings, verdict: Verdict, folds: int = 1) -> Point:
        one_row = self.trials.one_row(tree) / folds
        cost, within = self.trials.cost(tree, settings), self.searches[tree].allows(settings)
        return Point(tree, settings, cost, verdict, folds, one_row, within)

    def told(self, points: Sequence[Point], slack: float) -> list[Point]:
        """Points beside the one that would be chosen, so that a reader sees what landmarks buy."""
        chosen = choose(points, slack)
        m, tree = chosen.settings.landmarks, chosen.tree
        able = self.searches[tree].sizes(chosen.settings)
        there = {p.settings.landmarks for p in points if p.tree == tree}
        nearest = sorted(set(able) - there, key=lambda other: abs(log2(other / m)))
        beyond = [other for other in LANDMARKS if other > m] if m == able[-1] else []
        tries = [
            replace(chosen.settings, landmarks=other)
            for other in [*nearest[: max(TOLD - len(there), 0)], *beyond[:1]]
        ]
        [verdicts] = self.trials.judge([Ask(tree, tries, 1.0)]) if tries else [[]]
        return [self.point(tree, s, verdict) for s, verdict in zip(tries, verdicts, strict=True)]

    def judged_again(self, points: Sequence[Point], slack: float) -> list[Point]:
        """Where few rows are held out, the best points of each tree are judged on more of them: differences
        between trees are within what chance does otherwise (usps: a tree of 64 leaves 3.1 % wrong and one
        leaf 3.5 % on 1,800 rows, 3.9 and 2.5 on all), and the best of many is so by luck, too. Errors of the
        tree's other points are moved by as much, since points differ far less from each other than rows do.
        """
        limit = AGAIN_WITHIN * min((p.promise for p in points if p.within), default=0.0)
        best: dict[int, list[Point]] = {}
        for tree in dict.fromkeys(p.tree for p in points if p.within and p.promise <= limit):
            own = sorted(
                (p for p in points if p.tree == tree and p.within and p.promise <= limit),
                key=lambda p: p.promise,
            )
            best[tree] = own[: self.extent.again] if self.extent.again > 1 else [choose(own, slack)]
        # As often in every tree: rows that are held out in another fold may be harder.
        n = max(map(self.trials.folds, best), default=1)
        if n == 1:
            return list(points)
        asks = [Ask(tree, [p.settings for p in own], 1.0, range(1, n)) for tree, own in best.items()]
        found = list(points)
        for ask, verdicts in zip(asks, self.trials.judge(asks), strict=True):
            before = best[ask.tree]
            joined = [
                _joined(p, verdict, len(ask.folds)) for p, verdict in zip(before, verdicts, strict=True)
            ]
            others = [p for p in found if p.tree == ask.tree and p not in before]
            found = [p for p in found if p.tree != ask.tree] + joined
            found += [
                replace(p, verdict=_moved(p.verdict, joined[0].verdict, before[0].verdict), folds=n)
                for p in others
            ]
        return found

    def refined(self, points: list[Point], slack: float) -> list[Point]:
        """The best points of the trees that are near the best with another ridge, more steps of refinement
        and factors of leaves together, where that helps: trees gain more or less by it (connect_4: 64 leaves
        2 of 17 % wrong rows, one leaf nothing). Errors are moved by the difference that it makes on the rows
        that are held out first.
        """
        limit = REFINED_WITHIN * min((p.promise for p in points if p.within), default=0.0)
        near = dict.fromkeys(p.tree for p in points if p.within and p.promise <= limit)
        best = [choose([p for p in points if p.tree == tree and p.within], slack) for tree in near]
        best = [p for p in best if not p.settings.refine_epochs]
        asks = [Ask(p.tree, [p.settings, *_refinements(p.settings)], STEPS_SHARE) for p in best]
        found = list(points)
        for point, ask, verdicts in zip(best, asks, self.trials.judge(asks) if asks else [], strict=True):
            after, settings = min(
                zip(verdicts[1:], ask.tries[1:], strict=True), key=lambda tried: tried[0].soft
            )
            if after.soft <= MAX_REMAINING_ERROR * verdicts[0].soft:
                moved = _moved(point.verdict, after, verdicts[0])
                found = [p for p in found if p is not point]
                found.append(replace(point, settings=settings, verdict=moved))
        return found

    def other_loss(self, points: list[Point], slack: float) -> list[Point]:
        """The point that would be chosen with the logistic loss, if fewer rows are wrong. Soft errors cannot
        tell: decision values of another loss have another spread. It takes as long, and costs a row nothing.
        """
        if not points:
            return points
        chosen = choose(points, slack)
        if chosen.settings.task == "regression" or chosen.settings.loss == "logistic":
            return points
        other = replace(chosen.settings, loss="logistic")
        [[before, after]] = self.trials.judge([Ask(chosen.tree, [chosen.settings, other], 1.0)])
        gain = before.hard - after.hard
        if not gain > max((1 - MAX_REMAINING_ERROR) * before.hard, self.trials.one_row(chosen.tree)):
            return points
        verdict = replace(chosen.verdict, hard=max(chosen.verdict.hard - gain, 0.0))
        return [p for p in points if p is not chosen] + [replace(chosen, settings=other, verdict=verdict)]

    def near_machines(self, points: list[Point], slack: float) -> list[Point]:
        """Beside the point that would be chosen, those that stay near its local machines, with as many
        landmarks and more, where fewer rows are wrong and chance does not explain it. More landmarks go on to
        help such models where others gain nothing by them (usps).
        """
        if not points:
            return points
        chosen = choose(points, slack)
        tree, settings = chosen.tree, chosen.settings
        possible = settings.task == "classification" and settings.kernel == OF_DISTANCE["kernel"]
        rows = self.trials.machine_rows(tree, settings) if possible else 0
        if not rows:
            return points
        able = self.searches[tree].sizes(replace(settings, products=0, refine_epochs=0))
        sizes = [m for m in able if m >= settings.landmarks][: 1 + (MORE_SIZES if self.extent.rounds else 0)]
        tries = [near_machine(settings, ratio, rows) for ratio in NEAR_GAMMAS]
        [verdicts] = self.trials.judge([Ask(tree, tries, STEPS_SHARE)])
        near = min(zip(tries, verdicts, strict=True), key=lambda tried: tried[1].hard)[0]
        folds = range(self.trials.folds(tree)) if self.extent.rounds else self.searches[tree].folds
        larger = [replace(near, landmarks=m) for m in sizes]
        [[best, *verdicts]] = self.trials.judge([Ask(tree, [settings, *larger], 1.0, folds)])
        before = best
        found: list[Point] = []
        for other, verdict in zip(larger, verdicts, strict=True):
            if _less(verdict.hard, best.hard, self.trials.one_row(tree) / len(folds)):
                hard = max(chosen.verdict.hard + verdict.hard - before.hard, 0.0)
                point = self.point(tree, other, replace(chosen.verdict, hard=hard), chosen.folds)
                found, best = [*found, point], verdict
        return [*points, *found]

    def beside_usual(self, points: list[Point], slack: float) -> list[Point]:
        """The usual machine alone, where nothing is surely better: an SVM of C = 1 on features of variance 1,
        which anybody tries first, in one leaf whose landmarks stay near it. Of few rows what was chosen among
        many is so by luck, too (breast_cancer: 94 % right, the usual machine 97 %).
        """
        every = [usual for tree in self.searches if (usual := self._usual(tree)) is not None]
        usual = min(every, key=lambda one: one[1].scaling != "standard", default=None)
        if usual is None or not points:
            return points
        tree, settings = usual
        chosen = choose(points, slack)
        folds = range(self.trials.folds(tree))
        asks = [Ask(tree, [settings], 1.0, folds), Ask(chosen.tree, [chosen.settings], 1.0, folds)]
        [[known], [found]] = self.trials.judge(asks)
        if _less(found.hard, known.hard, self.trials.one_row(tree) / len(folds)):
            return points
        return [self.point(tree, settings, known, len(folds))]

    def _usual(self, tree: int) -> tuple[int, Settings] | None:
        start, search = self.trials.start(tree), self.searches[tree]
        fits = start.task == "classification" and start.kernel == OF_DISTANCE["kernel"]
        if not fits or start.n_leaves != 1 or start.scaling in ("learned", "sharpened"):
            return None
        if not (rows := self.trials.machine_rows(tree, start)):
            return None
        weighed = replace(start, gamma=self.trials.gamma(tree), C=USUAL_C * start.C / START_C)
        settings = near_machine(weighed, 1.0, rows)
        settings = replace(settings, landmarks=max(m for m in search.sizes(settings) if m <= WHOLE_LANDMARKS))
        return (tree, settings) if search.allows(settings) else None


def judged_unseen(
    trials: Trials, chosen: Point, points: Sequence[Point], n_unseen: int
) -> tuple[Point, list[Point]]:
    """The point that was chosen, and all of them, with errors as held-out rows show them that no choice was
    made by: the best of many on the same rows is so by luck, too. Errors of the others are moved by as much.

    n_unseen  such rows; points stay as they are where there are none
    """
    [[verdict]] = trials.judge([Ask(chosen.tree, [chosen.settings], 1.0, [UNSEEN_FOLD])])
    if not n_unseen or not isfinite(verdict.hard):
        return chosen, list(points)

    def told(point: Point) -> Point:
        moved = _moved(point.verdict, verdict, chosen.verdict)
        return replace(point, verdict=replace(moved, variance=verdict.variance), folds=1)

    return told(chosen), [told(point) for point in points]


def _refinements(settings: Settings) -> list[Settings]:
    """Other ridges, more steps and factors of leaves, alone and together: with more landmarks than it was
    chosen for, or more steps, another ridge is the best; factors of leaves need more steps, too.
    """
    most = max(settings.refine_steps, MORE_STEPS)
    shapes = [(settings.refine_steps, False), (most, False), (most, True)]
    every = [
        replace(settings, refine_ridge=settings.refine_ridge * ridge, refine_steps=steps, leaf_scaling=own)
        for steps, own in dict.fromkeys(shapes)
        for ridge in RIDGES
    ]
    return [s for s in every if s != settings]


def near_machine(settings: Settings, ratio: float, rows: int) -> Settings:
    """Settings whose landmarks stay near the local machines, of so many rows and γ times `ratio`."""
    changes: dict[str, Any] = {**OF_DISTANCE, "loss": DISTANCE, "head_gamma": 0.0, "local_rows": rows}
    return replace(settings, gamma=float(settings.gamma) * ratio, **changes)


def _less(error: float, other: float, one_row: float) -> bool:
    """Whether a share of wrong rows is less by more than its standard error: that of the number of rows that
    only one of the two is wrong on.
    """
    return other - error > max((1 - MAX_REMAINING_ERROR) * other, sqrt(DISCORD * (error + other) * one_row))


def _moved(verdict: Verdict, after: Verdict, before: Verdict) -> Verdict:
    """A verdict moved by the difference between two others."""
    soft, hard = (
        max(getattr(verdict, name) + getattr(after, name) - getattr(before, name), 0.0)
        for name in ("soft", "hard")
    )
    return Verdict(soft, hard, verdict.variance)


def _joined(point: Point, more: Verdict, n: int) -> Point:
    """A point with its verdict on one fold and one on n more."""
    old = point.verdict
    verdict = Verdict(
        (old.soft + n * more.soft) / (1 + n),
        (old.hard + n * more.hard) / (1 + n),
        (old.variance + n**2 * more.variance) / (1 + n) ** 2,
    )
    return replace(point, verdict=verdict, folds=1 + n, one_row=point.one_row / (1 + n))


def _around(able: Sequence[int], m: int) -> list[int]:
    """The number m and those beside it."""
    at = able.index(m)
    return list(able[max(at - 1, 0) : at + 2])


def _with_ratio(settings: Settings, ratio: float) -> Settings:
    return replace(settings, gamma=float(settings.gamma) * ratio, head_gamma=settings.head_gamma * ratio)
