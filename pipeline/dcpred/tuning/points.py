"""Budgets, and points: settings that were judged, with what a model of them costs and errs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dcpred.cost.predicted import PredictedCost
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.trial import Verdict

# Multiple of the least error that a cheaper model may have, if no budget is named.
SLACK = 1.01


@dataclass(frozen=True)
class Budget:
    """What a row may cost at most."""

    ratio: float = float("inf")
    """Cost in linear predictions."""
    ns: float = float("inf")
    """Cost in nanoseconds."""
    either: bool = False
    """Whether it is enough to be within one of them."""
    linear_ns: float = field(default=0.0, repr=False, compare=False)
    """What a linear prediction takes on this machine, in nanoseconds; 0: what it takes in the cost model,
    which was fitted on another one. Searches are named without it: it differs from time to time.
    """

    def allows(self, cost: PredictedCost) -> bool:
        ns = cost.cost_ratio * self.linear_ns if self.linear_ns else cost.ns_per_row
        within = cost.cost_ratio <= self.ratio, ns <= self.ns
        return any(within) if self.either else all(within)

    @property
    def words(self) -> str:
        """As it is asked for."""
        limits = [
            f"{limit:g}{unit}" for limit, unit in ((self.ratio, "x"), (self.ns, "ns")) if limit < float("inf")
        ]
        return (" or " if self.either else " and ").join(limits)


def rounded_up(cost: PredictedCost) -> str:
    """As a budget that allows it, also in another process, which may measure another time."""
    return f"{np.ceil(cost.cost_ratio * 10 + 1e-6) / 10:.1f}x"


# Rows of few features are read so quickly that 20 linear predictions are little: 60 ns at 8 features. Its
# nanoseconds are those of the cost model on any machine: a search without a budget finds the same everywhere.
DEFAULT_BUDGET = Budget(ratio=20.0, ns=100.0, either=True)
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
    one_row: float = 0.0
    """What one row that was held out adds to an error: less means nothing."""
    within: bool = True
    """Whether the budget allows it; others are only told of."""

    @property
    def error(self) -> float:
        return self.verdict.hard

    @property
    def standard_error(self) -> float:
        """Of `error`: how far other rows than those that were held out are likely to be from it."""
        return float(np.sqrt(self.verdict.variance))

    def uncertain(self, n_judged: int) -> float:
        """The standard error with n_judged held-out rows of classes: not 0 where none of them is wrong, as if
        two more were right and two more wrong (Agresti and Coull, 1998).
        """
        wrong = (n_judged * self.error + 2.0) / (n_judged + 4.0)
        return max(self.standard_error, float(np.sqrt(wrong * (1.0 - wrong) / (n_judged + 4.0))))

    @property
    def promise(self) -> float:
        """What points are compared by, the least first: of two errors that mostly go together, the soft one
        varies less from row to row.
        """
        return 0.5 * (self.verdict.hard + self.verdict.soft)


def choose(points: Sequence[Point], slack: float) -> Point:
    """The cheapest point within the budget that is at most `slack` times as bad as the best one, or worse by
    less than a row.
    """
    points = [p for p in points if p.within]
    best = min(points, key=lambda p: p.promise)
    limit = max(best.promise * slack, best.promise + best.one_row)
    found = min((p for p in points if p.promise <= limit), key=lambda p: (p.cost.ns_per_row, p.promise))
    # A reader is told the error alone: what costs less must not err less, too, whatever its soft error.
    no_worse = [p for p in points if p.error <= found.error and p.cost.ns_per_row <= found.cost.ns_per_row]
    return min(no_worse, key=lambda p: (p.error, p.cost.ns_per_row, p.promise))


def frontier(points: Sequence[Point]) -> list[Point]:
    """Points that no cheaper one is as good as, by cost."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost.cost_ratio, p.error)):
        if not best or point.error < best[-1].error:
            best.append(point)
    return best
