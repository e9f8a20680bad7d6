"""The search for settings in one tree: γ, the number of landmarks, then other moves.

Each part is a course: a generator that yields what it wants to have judged and is sent the verdicts, so that
the searches in several trees go on side by side (`together`).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any, Protocol, TypeVar

from dcpred.cost.predicted import PredictedCost
from dcpred.tuning.points import Budget
from dcpred.tuning.trial_plan import MOST_ROWS, WHOLE_BY_DESCENT, WHOLE_FEATURES
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import Verdict

GAMMA_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the γ that follows from the scaling
FARNESS = 0.01  # share of the error by which a γ must be better for every factor of 2
FARTHER_STEPS = 3  # factors of 2 that are tried beyond those, as long as the best γ is at an end
LANDMARKS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384)
START_LANDMARKS = 16
# Landmarks that a search without a tree starts from, or as many as the budget has room for.
WHOLE_LANDMARKS = 96
START_OVERLAP = 3
START_C = 16.0
LOCAL_GAMMA = 2.0  # γ of the local machine as a multiple of the compact model's γ
TINY = 1e-300
MORE_STEPS = 300
NEARLY = 1.03  # Fewer landmarks are taken where their soft error is at most so many times the least.
MAX_REMAINING_ERROR = 0.98  # a change helps if it lowers the soft error to this share or less
# Values that are tried, one at a time. `products` are tried for one leaf of all rows, too.
PRODUCTS = {"products": (64,)}
COMMON_MOVES: Mapping[str, tuple[Any, ...]] = {"overlap": (1, 2, 4), "halo_weight": (0.1, 1.0), **PRODUCTS}
MOVES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "classification": {
        **COMMON_MOVES,
        "guide": (0.5, 1.0),
        "C": (2.0, 128.0),
        "refine_ridge": (1e-2, 1e-4),
    },
    "regression": {**COMMON_MOVES, "ridge": (1.0, 1e-3), "refine_ridge": (1e-2, 1e-1, 1e-3, 1e-4)},
}
WHOLE_MOVES: Mapping[str, tuple[Any, ...]] = {"refine_ridge": (1e-2, 1e-4), **PRODUCTS}


@dataclass(frozen=True)
class Extent:
    """How much a search looks at."""

    name: str
    gammas: tuple[float, ...]
    """Multiples of the γ that follows from the scaling that are tried at first."""
    few_trees: bool
    """Whether fewer trees are tried where they take long."""
    first_share: float
    """Share of the leaves that γ and the number of landmarks are chosen on."""
    level_share: float
    """Share of the leaves that trees are compared on."""
    moves_share: float
    """Share of the leaves that moves are judged on."""
    sized: int
    """Trees that are kept after γ, at most."""
    changed: int
    """Trees that are kept after landmarks, at most."""
    rounds: bool
    """Whether there are rounds after landmarks; else trees are given up by the leaves that γ is chosen on."""
    moved: tuple[str, ...]
    """Settings that moves change; empty: all of them."""
    ratios: tuple[float, ...]
    """Multiples of γ that are tried for every number of landmarks in the last round."""
    again: int
    """Points of a tree that are judged on further rows, at most; one: the one that would be chosen of it."""
    all_sizes: bool
    """Whether the last round looks at every number of landmarks, not only around the best one."""
    steps: int
    """Steps of refinement between γ and the last rounds, at most: half of them tell landmarks and moves apart
    nearly as well (letter, elec2, house_16H), but not γ: a small one needs more of them."""
    epochs: int
    """The same of stochastic passes."""
    farther: int = FARTHER_STEPS
    """Factors of 2 that are tried beyond those γ, as long as the best one is at an end."""
    held_rows: int = 0
    """Rows that γ and the number of landmarks are judged on, where so many can be held out: in one choice of
    them, or in several."""
    ridges: tuple[float, ...] = ()
    """Multiples of the ridge that are tried after landmarks."""


QUICK = Extent(
    name="quick",
    gammas=(1.0,),
    few_trees=True,
    first_share=0.25,
    level_share=1.0,
    moves_share=0.0,
    sized=2,
    changed=2,
    rounds=False,
    moved=(),
    ratios=(1.0,),
    again=0,
    all_sizes=False,
    steps=50,
    epochs=20,
    farther=0,
)
# Tries on few rows take no time, and differences between them are within what chance does.
QUICK_FEW = replace(QUICK, gammas=(1 / 16, 0.25, 1.0, 4.0), steps=100, held_rows=250, ridges=(0.1, 10.0))
SHORT = Extent(
    name="short",
    gammas=GAMMA_STEPS,
    few_trees=True,
    first_share=0.25,
    level_share=1.0,
    moves_share=0.4,
    sized=3,
    changed=2,
    rounds=True,
    moved=("overlap", "guide", "refine_ridge"),
    ratios=(1.0,),
    again=1,
    all_sizes=False,
    steps=50,
    epochs=20,
)
LONG = Extent(
    name="long",
    gammas=GAMMA_STEPS,
    few_trees=False,
    first_share=0.5,
    level_share=1.0,
    moves_share=0.8,
    sized=4,
    changed=3,
    rounds=True,
    moved=(),
    ratios=(1.0, 0.6, 1.6),
    again=3,
    all_sizes=True,
    steps=100,
    epochs=40,
)


def suited(extent: Extent, n_rows: int, n_features: int) -> Extent:
    """What is looked at in so many rows."""
    most = WHOLE_BY_DESCENT if n_features < WHOLE_FEATURES else MOST_ROWS
    return QUICK_FEW if extent is QUICK and n_rows <= most else extent


@dataclass(frozen=True)
class Ask:
    """Settings to judge in one tree."""

    tree: int
    tries: Sequence[Settings]
    share: float
    """Share of the leaves that are looked at; of the rows that train in a tree of one leaf."""
    folds: Sequence[int] = (0,)
    """Which rows are held out."""


class Trials(Protocol):
    """Judges settings on leaves of data, and predicts their cost. Trees are told by their numbers.

    start         settings that the search in a tree starts from
    most_overlap  most leaves that a row may help to train
    gamma         γ that follows from the scaling of the tree
    cost          predicted cost of a model with these settings
    judge         errors of the tries of each ask; tries that were judged before take no time
    folds         how often rows are held out until they are about as many as wanted
    whole_rows    rows of the one leaf of a tree without others; 0 for other trees
    machine_rows  rows of local machines that know all of these leaves; 0 where leaves are too large for them
    one_row       what one row that is held out, of all leaves, adds to an error: less means nothing
    """

    def start(self, tree: int) -> Settings: ...

    def most_overlap(self, tree: int) -> int: ...

    def gamma(self, tree: int) -> float: ...

    def cost(self, tree: int, settings: Settings) -> PredictedCost: ...

    def judge(self, asks: Sequence[Ask]) -> list[list[Verdict]]: ...

    def folds(self, tree: int, wanted: int = ...) -> int: ...

    def whole_rows(self, tree: int) -> int: ...

    def machine_rows(self, tree: int, settings: Settings) -> int: ...

    def one_row(self, tree: int) -> float: ...


Found = TypeVar("Found")
Course = Generator[Ask, list[Verdict], Found]


def together(trials: Trials, courses: Sequence[Course[Found]]) -> list[Found]:
    """What each course finds, where all go on side by side: one round judges what each of them asks for."""
    found: dict[int, Found] = {}
    answers: dict[int, list[Verdict] | None] = dict.fromkeys(range(len(courses)))
    while answers:
        asks: dict[int, Ask] = {}
        for i, answer in answers.items():
            try:
                asks[i] = next(courses[i]) if answer is None else courses[i].send(answer)
            except StopIteration as end:
                found[i] = end.value
        answers = dict(zip(asks, trials.judge(list(asks.values())) if asks else [], strict=True))
    return [found[i] for i in range(len(courses))]


@dataclass(frozen=True)
class Ahead:
    """How far the search in a tree is."""

    settings: Settings
    """The best ones so far."""
    soft: float
    """Their soft error."""
    tree: int


@dataclass(frozen=True)
class TreeSearch:
    """The courses of one tree."""

    trials: Trials
    tree: int
    budget: Budget
    extent: Extent

    def allows(self, settings: Settings) -> bool:
        return self.budget.allows(self.trials.cost(self.tree, settings))

    def sizes(self, settings: Settings) -> list[int]:
        """Numbers of landmarks that there is room for, ascending."""
        fewest = WHOLE_LANDMARKS // 3 if settings.refine_epochs else 0
        able = [m for m in LANDMARKS if m >= fewest and self.allows(replace(settings, landmarks=m))]
        return able or [settings.landmarks]

    def first(self, tries: Sequence[Settings]) -> Ask:
        """Tries of γ: on some of the leaves, or with a part of the rows of one leaf of all."""
        return Ask(self.tree, tries, self.first_share, self.folds)

    def sized(self, tries: Sequence[Settings]) -> Ask:
        """Tries of numbers of landmarks, with less refinement."""
        return replace(self.early(tries, self.first_share), folds=self.folds)

    def last(self, tries: Sequence[Settings]) -> Ask:
        """Tries that trees are compared by, where there is no further round."""
        ask = self.early(tries, self.extent.level_share)
        return replace(ask, tries=tries if self.extent.ridges else ask.tries, folds=self.folds)

    @property
    def folds(self) -> Sequence[int]:
        wanted = self.extent.held_rows
        return range(self.trials.folds(self.tree, wanted)) if wanted else (0,)

    @property
    def first_share(self) -> float:
        rows = self.trials.whole_rows(self.tree)
        return max(self.extent.first_share, min(MOST_ROWS / rows, 1.0)) if rows else self.extent.first_share

    def early(self, tries: Sequence[Settings], share: float) -> Ask:
        """Tries with less refinement."""
        steps, epochs = self.extent.steps, self.extent.epochs
        return Ask(
            self.tree,
            [
                replace(
                    s, refine_steps=min(s.refine_steps, steps), refine_epochs=min(s.refine_epochs, epochs)
                )
                for s in tries
            ],
            share,
        )

    def level(self, settings: Settings) -> Course[Ahead]:
        """Where settings of this tree stand beside those of others: on all leaves, since a few leaves of
        different trees hold different rows (a9a: 6 of 16 leaves 11 % wrong, all of them 16 %).
        """
        [verdict] = yield self.early([settings], self.extent.level_share)
        return Ahead(settings, verdict.soft, self.tree)

    def start(self) -> Settings | None:
        """Where the search starts: with less overlap (more leaves are constants) or fewer landmarks where the
        budget has no room for more. None where it has no room at all.
        """
        start = self.trials.start(self.tree)
        most = WHOLE_LANDMARKS if start.refine_epochs else START_LANDMARKS
        for landmarks in [m for m in reversed(LANDMARKS) if m <= most]:
            for overlap in range(start.overlap, 0, -1):
                settings = replace(start, landmarks=landmarks, products=0, overlap=overlap)
                if self.allows(settings):
                    return settings
        return None

    def width(self, settings: Settings) -> Course[Ahead]:
        """The best γ."""
        found: dict[float, float] = {}
        unit = self.trials.gamma(self.tree)
        wanted = [unit * step for step in self.extent.gammas]
        for _ in range(1 + self.extent.farther):
            # The γ of the local machine matters little in a compact model. All tries have the same, so that
            # they share one local machine and its landmarks.
            tries = [replace(settings, gamma=unit * LOCAL_GAMMA, head_gamma=gamma) for gamma in wanted]
            verdicts = yield self.first(tries)
            found.update(zip(wanted, (v.soft for v in verdicts), strict=True))
            best = _likely_best(found, unit)
            wanted = [best / 2] if best == min(found) else [best * 2] if best == max(found) else []
            if not wanted:
                break
        settings = replace(settings, gamma=unit * LOCAL_GAMMA, head_gamma=best)
        if not self.extent.rounds:
            return Ahead(settings, found[best], self.tree)
        return (yield from self.level(settings))

    def size(self, ahead: Ahead) -> Course[Ahead]:
        """As many landmarks as help, up from those at hand."""
        settings = ahead.settings
        able = [m for m in self.sizes(settings) if m >= settings.landmarks]
        one_row = self.trials.one_row(self.tree) / self.first_share
        found: dict[int, float] = {}
        while able:
            some, able = able[:2], able[2:]
            tries = [replace(settings, landmarks=m) for m in some]
            verdicts = yield self.sized(tries)
            before = min(found.values(), default=float("inf"))
            found.update(zip(some, (v.soft for v in verdicts), strict=True))
            if min(found[m] for m in some) > MAX_REMAINING_ERROR * before - one_row:
                break
        limit = NEARLY * min(found.values()) + one_row
        best = min(m for m, soft in found.items() if soft <= limit)
        return (yield from self.level(replace(settings, landmarks=best)))

    def ridge(self, ahead: Ahead) -> Course[Ahead]:
        """Another ridge or more steps of refinement, on the rows that the number of landmarks was chosen on,
        where that makes up for more than a row.
        """
        base = ahead.settings
        ridges = [replace(base, refine_ridge=base.refine_ridge * ridge) for ridge in self.extent.ridges]
        tries = [base, *ridges, replace(base, refine_steps=MORE_STEPS)]
        verdicts = yield self.first(tries)
        best = min(range(len(tries)), key=lambda i: verdicts[i].soft)
        one_row = self.trials.one_row(self.tree) / len(self.folds)
        if verdicts[best].soft > MAX_REMAINING_ERROR * verdicts[0].soft - one_row:
            best = 0
        return Ahead(tries[best], ahead.soft * verdicts[best].soft / max(verdicts[0].soft, TINY), self.tree)

    def moves(self, ahead: Ahead) -> Course[Ahead]:
        """One change at a time; then those that helped together, as long as each goes on helping."""
        settings = ahead.settings
        possible = WHOLE_MOVES if settings.refine_epochs else MOVES[settings.task]
        most = self.trials.most_overlap(self.tree)
        tries = {
            (name, value): after
            for name, values in possible.items()
            for value in values
            if not self.extent.moved or name in self.extent.moved
            if (after := replace(settings, **{name: value})) != settings
            if after.overlap <= most and self.allows(after)
        }
        share = self.extent.moves_share
        base, *verdicts = yield self.early([settings, *tries.values()], share)
        gains: dict[str, tuple[float, Any]] = {}
        for (name, value), verdict in zip(tries, verdicts, strict=True):
            limit = gains[name][0] if name in gains else MAX_REMAINING_ERROR * base.soft
            if verdict.soft < limit:
                gains[name] = verdict.soft, value
        ladder = [settings]
        for name, (_, value) in sorted(gains.items(), key=lambda gain: gain[1][0]):
            ladder.append(replace(ladder[-1], **{name: value}))
        ladder = [s for s in ladder if self.allows(s)]
        found = yield self.early(ladder, share)
        best = min(range(len(ladder)), key=lambda i: found[i].soft)
        return Ahead(ladder[best], ahead.soft * found[best].soft / max(base.soft, TINY), self.tree)


def _likely_best(found: Mapping[float, float], unit: float) -> float:
    """The γ of the least error, where each error is a mean with those of its neighbours, since it changes
    smoothly with γ and what is judged of it on a few rows does not; and has to make up for every factor of 2
    that lies between γ and what follows from the scaling.
    """
    gammas = sorted(found)
    errors = [found[gamma] for gamma in gammas]
    ended = [errors[0], *errors, errors[-1]]
    worth = [
        (before + 2.0 * at + after) * (1.0 + FARNESS * abs(log2(gamma / unit)))
        for before, at, after, gamma in zip(ended[:-2], errors, ended[2:], gammas, strict=True)
    ]
    return gammas[worth.index(min(worth))]
