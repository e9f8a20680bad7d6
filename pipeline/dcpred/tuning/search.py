"""The search for settings: where it looks, in which order, and when it stops looking.

By coordinates, with more leaves of data in each round: first γ for every tree, then one change at a time
around the best of each, then the changes that helped put together, with as many landmarks as the budget has
room for. Rounds compare settings on the same leaves, where a difference is far less uncertain than a value.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Protocol

from dcpred.cost.predicted import PredictedCost
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import Verdict

GAMMA_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the γ that follows from the scaling
FARTHER_STEPS = 3  # factors of 2 that are tried beyond those, as long as the best γ is at an end
LANDMARKS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384)
# Landmarks that a search without a tree starts from, or as many as the budget has room for.
WHOLE_LANDMARKS = 96
START_OVERLAP = 3
START_C = 16.0
LOCAL_GAMMA = 2.0  # γ of the local machine as a multiple of the compact model's γ
MAX_REMAINING_ERROR = 0.99  # a change helps if it lowers the soft error to this share or less
# Up to 3 points of a tree, whose error is within 1.5 times the least, are judged again on more rows.
AGAIN_WITHIN, MOST_AGAIN = 1.5, 3
# Trees whose soft error is above so many times the least one are given up after the first round.
KEPT_WITHIN = 1.5
MOVES: dict[str, tuple[dict[str, Any], ...]] = {
    "classification": (
        {"overlap": 1},
        {"overlap": 2},
        {"overlap": 4},
        {"guide": 0.5},
        {"guide": 1.0},
        {"C": 2.0},
        {"C": 128.0},
        {"refine_ridge": 1e-2},
        {"refine_ridge": 1e-4},
        {"halo_weight": 0.1},
        {"halo_weight": 1.0},
        {"products": 64},
        {"refine_steps": 300},
    ),
    "regression": (
        {"overlap": 1},
        {"overlap": 2},
        {"overlap": 4},
        {"ridge": 1.0},
        {"ridge": 1e-3},
        {"refine_ridge": 1e-2},
        {"refine_ridge": 1e-1},
        {"refine_ridge": 1e-4},
        {"halo_weight": 0.1},
        {"halo_weight": 1.0},
        {"products": 64},
        {"refine_steps": 300},
    ),
}
# Moves for one leaf of all rows, refined by stochastic steps.
WHOLE_MOVES: tuple[dict[str, Any], ...] = ({"refine_ridge": 1e-2}, {"refine_ridge": 1e-4}, {"products": 64})
SHORT_MOVES = ("overlap", "guide", "refine_ridge", "refine_steps")  # settings that a short search moves


@dataclass(frozen=True)
class Budget:
    """What a row may cost at most."""

    ratio: float = float("inf")
    """Cost in linear predictions."""
    ns: float = float("inf")
    """Cost in nanoseconds."""

    def allows(self, cost: PredictedCost) -> bool:
        return cost.cost_ratio <= self.ratio and cost.ns_per_row <= self.ns

    @property
    def words(self) -> str:
        """As it is asked for."""
        return f"{self.ratio:g}x" if self.ratio < float("inf") else f"{self.ns:g}ns"


DEFAULT_BUDGET = Budget(ratio=20.0)
# The budget as a multiple of what the cheapest model takes, where nobody named a budget and 20 linear
# predictions are too few.
LEAST_TIMES = 2.0


@dataclass(frozen=True)
class Point:
    """Settings that were judged."""

    tree: int
    """Number of the tree that they were judged in."""
    settings: Settings
    cost: PredictedCost
    verdict: Verdict
    """Errors on held-out rows."""
    folds: int = 1
    """How often rows were held out for the verdict."""

    @property
    def error(self) -> float:
        return self.verdict.hard


def expected_tries(trees: int, short: bool) -> float:
    """What a search over so many trees is likely to judge, in tries of the settings that it starts from on
    all leaves that are looked at. The last rounds depend on what is found: it may be half of that, or twice.
    """
    share_of_leaves, kept = (0.25, 2) if short else (0.5, 3)
    return trees * 6 * share_of_leaves + min(trees, kept) * (16 if short else 42)


class Trials(Protocol):
    """Judges settings on leaves of data, and predicts their cost. Trees are told by their numbers.

    start         settings that the search in a tree starts from
    most_overlap  most leaves that a row may help to train
    gamma         γ that follows from the scaling of the tree
    cost          predicted cost of a model with these settings
    judge         errors of each of the tries, on a share of the leaves that are looked at, over some folds
    folds         how often rows are held out until there are enough to choose by
    """

    def start(self, tree: int) -> Settings: ...

    def most_overlap(self, tree: int) -> int: ...

    def gamma(self, tree: int) -> float: ...

    def cost(self, tree: int, settings: Settings) -> PredictedCost: ...

    def judge(
        self, tree: int, tries: Sequence[Settings], share: float, folds: Sequence[int] = (0,)
    ) -> list[Verdict]: ...

    def folds(self, tree: int) -> int: ...


def search(trials: Trials, trees: Sequence[int], budget: Budget, short: bool) -> list[Point]:
    """Every point of the last round, over all trees that were kept. Empty where the budget allows no tree."""
    starts = {tree: _affordable_start(trials, tree, budget) for tree in trees}
    ahead = sorted(
        (
            (tree, *_best_gamma(trials, tree, start, short))
            for tree, start in starts.items()
            if start is not None
        ),
        key=lambda found: found[2],
    )
    kept = [found for found in ahead if found[2] <= KEPT_WITHIN * ahead[0][2]][: 2 if short else 3]
    points: list[Point] = []
    for tree, settings, _ in kept:
        points += _last_round(trials, tree, _changed(trials, tree, settings, budget, short), budget, short)
    return _judged_again(trials, points)


def _judged_again(trials: Trials, points: Sequence[Point]) -> list[Point]:
    """Where few rows are held out, the best points of each tree are judged on more of them: differences
    between trees are within what chance does otherwise (usps: a tree of 64 leaves 3.1 % wrong and one leaf
    3.5 % on 1,800 rows, 3.9 and 2.5 on all).
    """
    limit = AGAIN_WITHIN * min((p.error for p in points), default=0.0)
    found: list[Point] = []
    for tree in dict.fromkeys(p.tree for p in points):
        own, n = sorted((p for p in points if p.tree == tree), key=_promise), trials.folds(tree)
        best = [p for p in own[:MOST_AGAIN] if p.error <= limit and n > 1 and len(points) > 1]
        more = trials.judge(tree, [p.settings for p in best], 1.0, range(1, n)) if best else []
        for point, verdict in zip(best, more, strict=True):
            soft, hard = (
                (old + (n - 1) * new) / n
                for old, new in zip(astuple(point.verdict), astuple(verdict), strict=True)
            )
            found.append(replace(point, verdict=Verdict(soft, hard), folds=n))
        found += own[len(best) :]
    return found


def _promise(point: Point) -> float:
    """What points of one tree are sorted by, the best first: the soft error tells apart equal hard ones."""
    return point.verdict.hard + 0.25 * point.verdict.soft


def chosen_from(points: Sequence[Point]) -> list[Point]:
    """The points that were judged on the most rows."""
    return [p for p in points if p.folds > 1] or list(points)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Points that no cheaper one is as good as, by cost."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost.cost_ratio, p.error)):
        if not best or point.error < best[-1].error:
            best.append(point)
    return best


def _affordable_start(trials: Trials, tree: int, budget: Budget) -> Settings | None:
    """Where the search in a tree starts: with less overlap (more leaves are constants) or fewer landmarks
    where the budget has no room for more.
    """
    start = trials.start(tree)
    for landmarks in [
        m for m in reversed(LANDMARKS) if m <= (WHOLE_LANDMARKS if start.refine_epochs else 16)
    ]:
        for overlap in range(start.overlap, 0, -1):
            settings = replace(start, landmarks=landmarks, products=0, overlap=overlap)
            if budget.allows(trials.cost(tree, settings)):
                return settings
    return None


def _with_gamma(settings: Settings, gamma: float) -> Settings:
    return replace(settings, gamma=gamma * LOCAL_GAMMA, head_gamma=gamma)


def _best_gamma(trials: Trials, tree: int, settings: Settings, short: bool) -> tuple[Settings, float]:
    """The best γ of a tree, and its soft error."""
    found: dict[float, float] = {}
    share = 0.25 if short else 0.5

    def look(gammas: Sequence[float]) -> None:
        # The γ of the local machine matters little in a compact model. All tries have the same, so that they
        # share one local machine.
        tries = [
            replace(settings, gamma=trials.gamma(tree) * LOCAL_GAMMA, head_gamma=gamma) for gamma in gammas
        ]
        verdicts = trials.judge(tree, tries, share)
        found.update(zip(gammas, (v.soft for v in verdicts), strict=True))

    look([trials.gamma(tree) * step for step in GAMMA_STEPS])
    for _ in range(FARTHER_STEPS):
        best = min(found, key=found.__getitem__)
        if best == min(found):
            look([best / 2])
        elif best == max(found):
            look([best * 2])
        else:
            break
    best = min(found, key=found.__getitem__)
    return _with_gamma(settings, best), found[best]


def _changed(trials: Trials, tree: int, settings: Settings, budget: Budget, short: bool) -> Settings:
    """One change at a time; then those that helped together, as long as each goes on helping."""
    possible = WHOLE_MOVES if settings.refine_epochs else MOVES[settings.task]
    moves = [m for m in possible if not short or next(iter(m)) in SHORT_MOVES]
    tries = [replace(settings, **move) for move in moves]
    most = trials.most_overlap(tree)
    able = [
        i
        for i, t in enumerate(tries)
        if t != settings and t.overlap <= most and budget.allows(trials.cost(tree, t))
    ]
    share = 0.4 if short else 0.8
    base, *verdicts = trials.judge(tree, [settings, *(tries[i] for i in able)], share)
    gains: dict[str, tuple[float, dict[str, Any]]] = {}
    for i, verdict in zip(able, verdicts, strict=True):
        name = next(iter(moves[i]))
        if verdict.soft < MAX_REMAINING_ERROR * base.soft and verdict.soft < gains.get(name, (base.soft,))[0]:
            gains[name] = verdict.soft, moves[i]
    ordered = [move for _, move in sorted(gains.values(), key=lambda gain: gain[0])]
    ladder = [settings]
    for move in ordered:
        ladder.append(replace(ladder[-1], **move))
    ladder = [s for s in ladder if budget.allows(trials.cost(tree, s))]
    if len(ladder) == 1:
        return settings
    found = trials.judge(tree, ladder, share)
    return ladder[min(range(len(ladder)), key=lambda i: found[i].soft)]


def _last_round(trials: Trials, tree: int, settings: Settings, budget: Budget, short: bool) -> list[Point]:
    """More and fewer landmarks, and γ once more for them, on all leaves."""
    fewest = WHOLE_LANDMARKS // 3 if settings.refine_epochs else 0
    able = [
        m
        for m in LANDMARKS
        if m >= fewest and budget.allows(trials.cost(tree, replace(settings, landmarks=m)))
    ]
    able = able or [settings.landmarks]
    points: list[Point] = []
    worse = 0
    for m in able:
        some = replace(settings, landmarks=m)
        tries = [_with_ratio(some, step) for step in ((1.0,) if short else (1.0, 0.6, 1.6))]
        verdicts = trials.judge(tree, tries, 1.0)
        looks = [
            Point(tree, s, trials.cost(tree, s), verdict) for s, verdict in zip(tries, verdicts, strict=True)
        ]
        point = min(looks, key=_promise)
        worse = worse + 1 if points and point.error >= min(p.error for p in points) else 0
        points.append(point)
        if worse == 2:
            break
    return points


def _with_ratio(settings: Settings, step: float) -> Settings:
    return replace(settings, gamma=float(settings.gamma) * step, head_gamma=settings.head_gamma * step)
