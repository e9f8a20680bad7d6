"""The search for settings: a portfolio, mutations of the best configuration, one evaluation and one rule.

    portfolio   every configuration on one fold of held-out rows, by more and more of the other rows, without
                those that are surely worse; the best of them on all folds
    mutations   changes of the incumbent, one at a time, then the helpful ones together; in rounds
    both        the best leaves beside the best trees, where each alone is about as good as the other
    cost        of candidates as good as the best, the cheapest, and what is cheaper still

A candidate replaces the incumbent if one paired test on the held-out rows favours it (metrics.compare): of
the metric, or of the one that breaks ties if losses differ by no more than a standard error. One that costs
more must gain more than a standard error and a hundredth of the loss. The first incumbent is the default
configuration. Every decision is in the trace, with its gain and cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any

import numpy as np

from dcpred.execution.interrupts import forget_signal
from dcpred.execution.progress import show, show_detail
from dcpred.training.metrics import Comparison, compare
from dcpred.training.policy import (
    ACCURACY,
    CHEAPER,
    COMMON,
    DEFAULT,
    MUTATIONS,
    OF_TREES,
    PORTFOLIO,
    Mutation,
)
from dcpred.training.quality import shown, words_of
from dcpred.training.reports import Decision
from dcpred.training.trials import FEWEST_LANDMARKS, FEWEST_TREES, Candidate, TrialResult, Trials
from dcpred_tasks.errors import InterruptedRunError
from dcpred_tasks.training.losses import DISTANCE

SMALL_LEAF = 250  # rows: smaller leaves gain more from rows than larger ones, of which each has more
FINAL = 6.0  # The time of a training on as many rows, as a multiple of the longest trial


class OutOfTimeError(Exception):
    """The time of a search is over."""


@dataclass
class SearchOutcome:
    """The result of a search."""

    chosen: TrialResult
    judged: list[TrialResult]
    """All candidates that were evaluated on all rows of the trials."""
    trace: list[dict[str, Any]] = field(default_factory=list)
    """Every decision."""
    complete: bool = True
    """Whether neither time nor an interruption ended it."""


@dataclass
class Search:
    """One search. `trials` evaluates."""

    trials: Trials
    trace: list[dict[str, Any]] = field(default_factory=list)
    judged: list[TrialResult] = field(default_factory=list)
    worse: set[str] = field(default_factory=set)
    """Mutations that were worse by more than a standard error: they are not evaluated again."""
    lowest: TrialResult | None = None
    """The incumbent with the lowest loss so far."""
    looked: list[TrialResult] = field(default_factory=list)
    """All candidates of the portfolio's first look."""
    of_part: dict[str, TrialResult] = field(default_factory=dict)
    """The last result of each candidate that a part of the rows trained, by name."""
    spared: set[str] = field(default_factory=set)
    """Candidates that a part of the rows ended, and that got another chance."""
    raced: list[TrialResult] = field(default_factory=list)
    """Candidates that the same part of the rows trained, the largest part whose race has ended."""
    longest: float = 0.0
    """Seconds of the longest trial."""
    last_shown: str = ""
    """The candidate that was shown last."""

    def run(self) -> SearchOutcome | None:
        """None if the budget allows no configuration. If no row is held out, it is the default one."""
        if not self.trials.n_judged:
            [only] = self._evaluate([Candidate(DEFAULT, {})], self.trials.folds)
            return None if only is None else SearchOutcome(only, self.judged, self.trace)
        try:
            incumbent = self._searched()
            complete = self._may_describe()
        except (OutOfTimeError, InterruptedRunError, KeyboardInterrupt) as end:
            evaluated = self.judged or self.looked or self.raced
            if self.trials.policy.deadline is None or not (evaluated or isinstance(end, OutOfTimeError)):
                raise
            forget_signal()
            incumbent, complete = self._best_of(evaluated, "time"), False
        return None if incumbent is None else SearchOutcome(incumbent, self.judged, self.trace, complete)

    def _may_describe(self) -> bool:
        """Whether time suffices for two trials of each fold, which predict a quality, and the training."""
        deadline, trials = self.trials.policy.deadline, self.trials
        return deadline is None or deadline.left() >= self._reserved(2 * len(trials.folds))

    def _reserved(self, n_trials: int) -> float:
        """Seconds of trials and of the training after them."""
        return self.longest * (n_trials + FINAL * self.trials.untried_times)

    def _searched(self) -> TrialResult | None:
        incumbent = self.portfolio()
        if incumbent is None:
            return None
        for number in range(self.trials.policy.rounds):
            before, incumbent = incumbent, self.mutate(incumbent, number + 1)
            if incumbent is not before:
                self._show(incumbent)
            if incumbent is before or self._is_noise(before, incumbent, f"mutations, round {number + 1}"):
                break
        return self.cheapest(self.both(incumbent))

    def both(self, incumbent: TrialResult) -> TrialResult:
        """The incumbent, or the best leaves beside the best trees, if neither alone is surely better."""
        alone = [result for result in (*self.judged, *self.looked) if not result.settings.landmarks]
        leaves = [result for result in self.judged if result.settings.landmarks]
        leaves.sort(key=lambda result: result.loss)
        if not alone or not leaves:
            return incumbent
        trees = alone[0]
        for other in alone[1:]:
            trees = other if self._compared(trees, other).gain > 0 else trees
        comparison = self._compared(leaves[0], trees)
        able = [r for r in leaves if r.settings.loss != DISTANCE and self._leaves_room(r, trees)]
        if comparison.gain < -comparison.standard_error or self._is_surely_worse(trees, leaves[0]):
            return incumbent
        if not able:
            return incumbent
        best = able[0]
        values = {name: getattr(trees.settings, name) for name in ("trees", "tree_depth", "tree_rate")}
        candidate = best.candidate.mutated(f"{best.candidate.name} + {trees.candidate.name}", values)
        step = "leaves and trees"
        both = self._challenged(incumbent, self._promising(incumbent, [candidate], step), step)
        if both is not incumbent:
            self._show(both)
        return both

    def _leaves_room(self, leaves: TrialResult, trees: TrialResult) -> bool:
        """Whether the budget allows these trees beside such leaves without landmarks."""
        return self.trials.budget.allows(replace(leaves.cost, landmarks=0.0, terms=trees.cost.terms))

    def _is_noise(self, before: TrialResult, incumbent: TrialResult, step: str) -> bool:
        """Whether a round gained so little that another one would choose by chance."""
        comparison = self._compared(before, incumbent)
        ends = self.trials.policy.ends_in_noise and comparison.gain <= comparison.standard_error
        if ends:
            self._note(step, before, incumbent, comparison, "ends the search within a standard error of")
        return ends

    def _expect(self, n_first: int, n_all: int, rounds: int) -> None:
        """Set the number of trials left: of candidates in a first look and on other folds, and in rounds."""
        trials, survivors = self.trials, self.trials.policy.survivors
        first = len(trials.first_folds) * (1.0 + sum(self._parts()))
        others = len(trials.folds) - len(trials.first_folds)
        each = len(self._mutations()) * first + survivors * others
        trials.n_left = n_first * first + n_all * others + rounds * each

    def _mutations(self) -> list[Mutation]:
        """Those that were not worse, and of few rows those that only some data allow."""
        few = self.trials.n_rows < self.trials.policy.mutated_rows
        return [m for m in MUTATIONS if m.name not in self.worse and (m.of_data or not few)]

    def cheapest(self, best: TrialResult) -> TrialResult:
        """The cheapest candidate that is as good as the best one, and its cheaper mutations."""
        if self.trials.policy.prefer == ACCURACY:
            return best
        trials, chosen, tried = self.trials, self._as_good(best), set[str]()
        while chosen.candidate.name not in tried:
            tried.add(chosen.candidate.name)
            able = [(_both(chosen, m), _changes(m, chosen, trials)) for m in CHEAPER]
            tries = [chosen.candidate.mutated(name, changes) for name, changes in able if changes is not None]
            self._promising(best, tries, "cost")
            chosen = self._as_good(best)
        if chosen is not best:
            self._show(chosen, "cheaper and as good")
            self._note("cost", best, chosen, self._compared(best, chosen), "costs less than")
        return chosen

    def _promising(self, best: TrialResult, tries: Sequence[Candidate], step: str) -> list[TrialResult]:
        """Results on all folds of those that are as good as the best one at a first look."""
        self._expect(len(tries), len(tries), 0)
        promising = []
        for result in self._evaluate(tries, self.trials.first_folds):
            if result is not None and self._is_as_good(best, result, at_first=True):
                promising.append(result.candidate)
            elif result is not None:
                comparison = self._compared(best, result)
                self._note(step + ", first look", best, result, comparison, "is left out beside")
        self._expect(0, len(promising), 0)
        return [r for r in self._evaluate(promising, self.trials.folds) if r is not None]

    def _as_good(self, best: TrialResult) -> TrialResult:
        return next((r for r in sorted(self.judged, key=_cost) if self._is_as_good(best, r)), best)

    def _is_as_good(self, best: TrialResult, entrant: TrialResult, *, at_first: bool = False) -> bool:
        """Whether it loses no more than a standard error, and after a first look a fraction of the loss;
        twice the error by the metric that breaks ties.
        """
        if entrant is best:
            return True
        comparison, policy = self._compared(best, entrant), self.trials.policy
        most = self._tolerated(comparison, best.loss)
        if -comparison.gain > (most if at_first else min(most, policy.most_lost * abs(best.loss))):
            return False
        tied = self._tied(best, entrant)
        return -tied.gain <= max(2.0 * policy.as_good * tied.standard_error, policy.tie_lost * abs(best.tie))

    def _tolerated(self, comparison: Comparison, loss: float) -> float:
        """The difference of losses that does not count: a standard error, or a small fraction of the loss."""
        policy = self.trials.policy
        return max(policy.as_good * comparison.standard_error, policy.least_lost * abs(loss))

    def _parts(self) -> list[float]:
        """Shares of the rows of a trial that race candidates before all of them train; none where trials have
        the rows of some cells, of which parts are too thin for small leaves.
        """
        policy = self.trials.policy
        if not self.trials.all_rows:
            return []
        return [share for share in policy.parts if share * self.trials.n_rows >= policy.fewest_part_rows]

    def _raced(
        self, entrants: Sequence[Candidate], step: str, incumbent: TrialResult | None
    ) -> list[list[Candidate]]:
        """Those of each kind that are not worse than the incumbent, or the best of the kind, where parts of
        the rows train them, one part after the other, each larger than the one before. The best of a part
        come first. Without parts each candidate stands alone.
        """
        if not entrants or not (parts := self._parts()):
            return [[entrant] for entrant in entrants]
        beside, kinds = [] if incumbent is None else [incumbent.candidate], [list(entrants)]
        self.of_part = {}
        for share in parts:
            tries = [*beside, *chain(*kinds)]
            results = [r for r in self._evaluate(tries, self.trials.first_folds, share) if r is not None]
            first = {id(r): r.candidate not in beside for r in results}
            results.sort(key=lambda r: (_kind(r.candidate), first[id(r)], r.loss))
            groups = [list(group) for _, group in groupby(results, lambda r: _kind(r.candidate))]
            errors, of_part = self.trials.policy.worse_in_part, f"{step}, {share:.0%} of the rows"
            ahead = [self._ahead(group, group[0], of_part, errors, 1) for group in groups]
            self.raced = list(chain(*ahead))
            self.of_part |= {r.candidate.name: r for r in results if r.candidate not in beside}
            kinds = [[r.candidate for r in group if r.candidate not in beside] for group in ahead]
        return kinds

    def _looked_at(
        self, kinds: Sequence[Sequence[Candidate]], step: str, incumbent: TrialResult | None
    ) -> list[TrialResult]:
        """First looks at the candidates of each kind, until those of a kind are surely worse than the best:
        others of the kind were no better with a part of the rows.
        """
        results: list[TrialResult] = []
        waiting = [list(kind) for kind in kinds]
        looked: list[list[TrialResult]] = [[] for _ in kinds]
        while any(waiting):
            turn = [number for number, kind in enumerate(waiting) if kind]
            tries = [waiting[number].pop(0) for number in turn]
            for number, result in zip(turn, self._evaluate(tries, self.trials.first_folds), strict=True):
                looked[number] += [] if result is None else [result]
            results = list(chain(*looked))
            best = incumbent or min(results, key=lambda r: r.loss, default=None)
            for number in turn:
                if not waiting[number] and not looked[number]:  # All were beyond the budget with all rows.
                    waiting[number] = self._spare(kinds[number])
                if best and looked[number] and all(self._is_surely_worse(best, r) for r in looked[number]):
                    self._note_ended(waiting[number], looked[number][0].candidate, step)
                    waiting[number] = []
        return results

    def _spare(self, tried: Sequence[Candidate]) -> list[Candidate]:
        """Candidates of the same kind that a part of the rows ended, the best first; once."""
        kind = _kind(tried[0])
        ended = [r for r in self.of_part.values() if r.candidate not in tried and _kind(r.candidate) == kind]
        spare = [
            r.candidate for r in sorted(ended, key=lambda r: r.loss) if r.candidate.name not in self.spared
        ]
        self.spared |= {candidate.name for candidate in spare}
        return spare

    def _note_ended(self, ended: Sequence[Candidate], other: Candidate, step: str) -> None:
        """Note candidates that end with another one of their kind, as a part of the rows trained them."""
        of_part = self.of_part
        for candidate in ended:
            beside, entrant = of_part[other.name], of_part[candidate.name]
            self._note(step, beside, entrant, self._compared(beside, entrant), "ends with")

    def _is_surely_worse(self, best: TrialResult, entrant: TrialResult, errors: float | None = None) -> bool:
        comparison = self._compared(best, entrant)
        errors = self.trials.policy.surely_worse if errors is None else errors
        return -comparison.gain > errors * comparison.standard_error > 0.0

    def _ahead(
        self,
        results: Sequence[TrialResult],
        best: TrialResult,
        step: str,
        errors: float | None = None,
        n_least: int = 2,
    ) -> list[TrialResult]:
        """Without those that are surely worse than the best one, but with so many: the best may be lucky."""
        ahead: list[TrialResult] = []
        for result in results:
            if len(ahead) >= n_least and self._is_surely_worse(best, result, errors):
                self._note(step, best, result, self._compared(best, result), "is surely worse than")
            else:
                ahead.append(result)
        return ahead

    def portfolio(self) -> TrialResult | None:
        """The best configuration of the portfolio, or the default one if none is significantly better."""
        trials = self.trials
        entrants = [Candidate(name, values) for name, values in PORTFOLIO.items() if trials.suits(values)]
        entrants, rounds = _distinct(trials, entrants), trials.policy.rounds
        self._expect(len(entrants), trials.policy.survivors, rounds)
        first = self._first(entrants, "portfolio")
        self._expect(0, len(first), rounds)
        results = [r for r in self._evaluate([r.candidate for r in first], trials.folds) if r is not None]
        return self._best_of(results, "portfolio")

    def _best_of(self, evaluated: Sequence[TrialResult], step: str) -> TrialResult | None:
        """The default configuration, or what replaces it."""
        if not evaluated:
            return None
        incumbent = next((r for r in evaluated if r.candidate.name == DEFAULT), evaluated[0])
        challengers = sorted((r for r in evaluated if r is not incumbent), key=lambda r: r.loss)
        incumbent = self._challenged(incumbent, challengers, step)
        self._show(incumbent)
        return incumbent

    def _show(self, incumbent: TrialResult, what: str = "best so far") -> None:
        """Show the best candidate so far, unless that has just been done."""
        if incumbent.candidate.name == self.last_shown:
            return
        self.last_shown = incumbent.candidate.name
        metric, deadline = self.trials.metric, self.trials.policy.deadline
        line = {"metric": metric.name, metric.name: metric.score(incumbent.loss)}
        words = f"{what}: {incumbent.candidate.name}, {shown(line)}, cost {_cost(incumbent):.1f}x"
        (show_detail if deadline is None else show)(words)

    def _first(
        self, entrants: Sequence[Candidate], step: str, incumbent: TrialResult | None = None
    ) -> list[TrialResult]:
        """The candidates for all folds: the best of a first look at all, and the default unless it is surely
        worse.
        """
        trials, survivors = self.trials, self.trials.policy.survivors
        kinds = self._raced(entrants, step, incumbent)
        results = self._looked_at(kinds, f"{step}, first look", incumbent)
        results.sort(key=lambda r: (r.loss, r.cost.ns_per_row))
        if trials.first_folds == trials.folds or not results:
            return results
        beside = incumbent or results[0]
        step += ", first look"
        results = self._ahead(results, beside, step)
        best = [r for r in results if incumbent is None or self._may_help(incumbent, r)]
        by_cost = sorted(results, key=_cost)
        as_good = (r.candidate.name for r in by_cost if best and self._is_as_good(best[0], r, at_first=True))
        ahead = {
            *(r.candidate.name for r in best[:survivors]),
            *islice(as_good, trials.policy.cheap_survivors),
            DEFAULT,
        }
        for r in results:
            if r.candidate.name not in ahead:
                self._note(step, beside, r, self._compared(beside, r), "is left out beside")
        return [r for r in results if r.candidate.name in ahead]

    def _may_help(self, incumbent: TrialResult, entrant: TrialResult) -> bool:
        """Whether a candidate loses no more, and is another model: few rows have no more landmarks."""
        comparison, tied = self._compared(incumbent, entrant), self._tied(incumbent, entrant)
        same = comparison.standard_error == 0 == tied.standard_error and entrant.cost == incumbent.cost
        return comparison.gain >= 0 and not (same and comparison.gain == 0 == tied.gain)

    def _challenged(
        self, incumbent: TrialResult, challengers: Sequence[TrialResult], step: str
    ) -> TrialResult:
        for entrant in challengers:
            comparison, better = self._better(incumbent, entrant, "replaces")
            self._note(step, incumbent, entrant, comparison, better or "does not replace")
            if better:
                incumbent = entrant
        return incumbent

    def mutate(self, incumbent: TrialResult, number: int) -> TrialResult:
        """The incumbent with the helpful mutations, one after the other."""
        step, trials = f"mutations, round {number}", self.trials
        able = [
            (m, changes) for m in self._mutations() if (changes := _changes(m, incumbent, trials)) is not None
        ]
        mutation_of = {m.name: m for m, _ in able}
        tries = [incumbent.candidate.mutated(m.name, changes) for m, changes in able]
        rounds = trials.policy.rounds - number
        self._expect(len(tries), min(len(tries), trials.policy.survivors), rounds)
        first = self._first(tries, step, incumbent)
        self._expect(0, len(first), rounds)
        helped: list[tuple[float, Mutation, TrialResult]] = []
        for r in self._evaluate([r.candidate for r in first], trials.folds):
            if r is None:
                continue
            comparison, better = self._better(incumbent, r, "helps")
            self._note(step, incumbent, r, comparison, better or "does not replace")
            if better:
                helped.append((r.loss, mutation_of[r.candidate.name], r))
        helped.sort(key=lambda entry: entry[0])
        for place, (_, mutation, alone) in enumerate(helped):
            if place == 0:
                incumbent = alone
                continue
            changes = _changes(mutation, incumbent, self.trials)
            if changes is None:
                continue
            name = _both(incumbent, mutation)
            [both] = self._evaluate([incumbent.candidate.mutated(name, changes)], trials.folds)
            if both is not None:
                incumbent = self._challenged(incumbent, [both], step)
        return incumbent

    def _evaluate(
        self, candidates: Sequence[Candidate], folds: Sequence[int], share: float = 1.0
    ) -> list[TrialResult | None]:
        evaluated: list[TrialResult | None] = []
        seen = self.judged if folds == self.trials.folds else self.looked
        if share < 1.0:
            seen = [] if self.raced else self.raced
        for some in self._batches(candidates, folds, share):
            batch = self.trials.evaluate(some, folds, share)
            evaluated += batch
            seen += [r for r in batch if r is not None]
        return evaluated

    def _batches(
        self, candidates: Sequence[Candidate], folds: Sequence[int], share: float
    ) -> Iterator[Sequence[Candidate]]:
        """All candidates at once; with a deadline the first one of a search, then as many as workers, while
        time suffices for them and for the training. Raises OutOfTimeError.
        """
        deadline, trials = self.trials.policy.deadline, self.trials
        rest = list(candidates)
        while rest:
            n = len(rest) if deadline is None else trials.workers.n_threads() if self.longest else 1
            begin = deadline.left() if deadline else 0.0
            if self.longest and begin < self._reserved(len(folds)):
                raise OutOfTimeError
            is_first = not self.looked and not self.judged and not self.raced
            yield rest[:n]
            rest = rest[n:]
            if deadline:
                for first in (self.raced or self.looked or self.judged)[:1] if is_first else ():
                    self._show(first)
                self.longest = max(self.longest, (begin - deadline.left()) / len(folds) / share)

    def _compared(self, incumbent: TrialResult, entrant: TrialResult) -> Comparison:
        counted = self.trials.metric.counted
        return compare(incumbent.losses, entrant.losses, entrant.weight, counted=counted)

    def _better(self, incumbent: TrialResult, entrant: TrialResult, verdict: str) -> tuple[Comparison, str]:
        """The rule: significantly better by the metric; or equal within a standard error, and significantly
        better by the metric that breaks ties. The level is shared, half for each test. What one tie after the
        other loses is within a standard error of the best incumbent. The verdict is empty for one that is not
        better.
        """
        comparison = self._compared(incumbent, entrant)
        if self.lowest is None or incumbent.loss < self.lowest.loss:
            self.lowest = incumbent
        if self._gains(comparison, incumbent, entrant, self._tolerated(comparison, incumbent.loss)):
            return comparison, verdict
        best = self._compared(self.lowest, entrant)
        if abs(comparison.gain) > comparison.standard_error or -best.gain > best.standard_error:
            return comparison, ""
        tied = self._tied(incumbent, entrant)
        least = max(tied.standard_error, self.trials.policy.tie_lost * abs(incumbent.tie))
        wins = self._gains(tied, incumbent, entrant, least)
        return comparison, f"wins by {words_of(self.trials.ties.name)} over" if wins else ""

    def _gains(
        self, comparison: Comparison, incumbent: TrialResult, entrant: TrialResult, least: float
    ) -> bool:
        """Whether a gain is significant, and more than `least` if the candidate costs more."""
        policy = self.trials.policy
        dearer = policy.prefer != ACCURACY and _cost(entrant) > _cost(incumbent)
        return comparison.gain > (least if dearer else 0.0) and comparison.p <= policy.level / 2

    def _tied(self, incumbent: TrialResult, entrant: TrialResult) -> Comparison:
        return compare(incumbent.ties, entrant.ties, entrant.weight, counted=False)

    def _note(
        self, step: str, incumbent: TrialResult, entrant: TrialResult, comparison: Comparison, verdict: str
    ) -> None:
        if comparison.gain < -comparison.standard_error:
            self.worse.add(entrant.candidate.name)
        line = Decision(
            step=step,
            candidate=entrant.candidate.name,
            incumbent=incumbent.candidate.name,
            loss=entrant.loss,
            incumbent_loss=incumbent.loss,
            gain=comparison.gain,
            standard_error=comparison.standard_error,
            p=comparison.p,
            rows=int(np.count_nonzero(~np.isnan(entrant.losses))),
            cost_ratio=_cost(entrant),
            incumbent_cost_ratio=_cost(incumbent),
            verdict=verdict,
        )
        self.trace.append(asdict(line))


def _cost(result: TrialResult) -> float:
    return result.cost.cost_ratio


def _kind(candidate: Candidate) -> int:
    """Candidates of a kind gain from rows alike: trees, large leaves, and small ones."""
    values = {**COMMON, **candidate.values}
    if not values["landmarks"]:
        return 0
    return 2 if 0 < values["leaf_rows"] <= SMALL_LEAF else 1


def _both(incumbent: TrialResult, mutation: Mutation) -> str:
    return f"{incumbent.candidate.name} + {mutation.name}"


def _distinct(trials: Trials, entrants: Sequence[Candidate]) -> list[Candidate]:
    """Configurations that differ in settings: few rows have only one leaf."""
    seen: dict[Any, Candidate] = {}
    for candidate in entrants:
        width = candidate.values.get("width", 1.0)
        seen.setdefault((trials.realised(candidate.values), width), candidate)
    return list(seen.values())


def _changes(mutation: Mutation, incumbent: TrialResult, trials: Trials) -> dict[str, Any] | None:
    """The changes of a mutation to the incumbent; None if it does not apply, or changes nothing."""
    task = trials.asked.task
    if mutation.task and mutation.task != task:
        return None
    values = trials.values_of(incumbent)
    if any(values[name] != value for name, value in mutation.only.items()):
        return None
    if mutation.unless and all(values[name] == value for name, value in mutation.unless.items()):
        return None
    changes = dict(mutation.changes)
    for name, factor in mutation.times.items():
        changes[name] = type(values[name])(values[name] * factor)
    same = all(values[name] == value for name, value in changes.items())
    if same or changes.get("landmarks", FEWEST_LANDMARKS) < FEWEST_LANDMARKS:
        return None
    if changes.get("trees", FEWEST_TREES) < FEWEST_TREES or changes.get("tree_rate", 0.0) > 1.0:
        return None
    if not values["landmarks"] and not {*changes} <= {*OF_TREES}:
        return None
    given = incumbent.candidate.values
    before, after = (trials.realised(v) for v in (given, {**given, **changes}))
    if before == after and "width" not in changes:
        return None
    return changes
