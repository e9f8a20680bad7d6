"""The search for settings: a portfolio, mutations of the best configuration, one evaluation and one rule.

    portfolio   every configuration on one fold of held-out rows; the best of them on all folds
    mutations   changes of the incumbent, one at a time, then the helpful ones together; in rounds
    cost        of candidates that lose no more than the choice, the cheapest

A candidate replaces the incumbent if one paired test on the held-out rows favours it (metrics.compare): of
the metric, or of the one that breaks ties if losses differ by no more than a standard error. The first
incumbent is the default configuration: the choice is never significantly worse. Every decision is in the
trace.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dcpred.training.metrics import Comparison, compare
from dcpred.training.policy import DEFAULT, MUTATIONS, PORTFOLIO, Mutation
from dcpred.training.reports import Decision
from dcpred.training.search_result import words_of
from dcpred.training.trials import Candidate, TrialResult, Trials


@dataclass
class Found:
    """The result of a search."""

    chosen: TrialResult
    judged: list[TrialResult]
    """All candidates that were evaluated on all rows of the trials."""
    trace: list[dict[str, Any]] = field(default_factory=list)
    """Every decision."""


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

    def run(self) -> Found | None:
        """None if the budget allows no configuration. If no row is held out, it is the default one."""
        if not self.trials.n_judged:
            [only] = self._evaluate([Candidate(DEFAULT, {})], self.trials.folds)
            return None if only is None else Found(only, self.judged, self.trace)
        incumbent = self.portfolio()
        if incumbent is None:
            return None
        for number in range(self.trials.policy.rounds):
            before, incumbent = incumbent, self.mutate(incumbent, number + 1)
            if incumbent is before or self._is_noise(before, incumbent, f"mutations, round {number + 1}"):
                break
        return Found(self.cheapest(incumbent), self.judged, self.trace)

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
        first = len(trials.first_folds)
        others = len(trials.folds) - first
        each = len(self._mutations()) * first + survivors * others
        trials.n_left = n_first * first + n_all * others + rounds * each

    def _mutations(self) -> list[Mutation]:
        """Those that were not worse, and of few rows those that only some data allow."""
        few = self.trials.n_rows < self.trials.policy.mutated_rows
        return [one for one in MUTATIONS if one.name not in self.worse and (one.of_data or not few)]

    def cheapest(self, incumbent: TrialResult) -> TrialResult:
        """The cheapest candidate that loses no more than the incumbent, by either metric."""
        most = self.trials.policy.worth_cost * incumbent.cost.cost_ratio
        for one in sorted(self.judged, key=lambda one: one.cost.cost_ratio):
            if one.cost.cost_ratio > most:
                break
            comparison = self._compared(incumbent, one)
            if comparison.gain >= 0 and self._tied(incumbent, one).gain >= 0:
                self._note("cost", incumbent, one, comparison, "costs less than")
                return one
        return incumbent

    def portfolio(self) -> TrialResult | None:
        """The best configuration of the portfolio, or the default one if none is significantly better."""
        trials = self.trials
        entrants = [Candidate(name, values) for name, values in PORTFOLIO.items() if trials.suits(values)]
        entrants, rounds = _distinct(trials, entrants), trials.policy.rounds
        self._expect(len(entrants), trials.policy.survivors, rounds)
        first = self._first(entrants, "portfolio")
        self._expect(0, len(first), rounds)
        found = [
            one for one in self._evaluate([one.candidate for one in first], trials.folds) if one is not None
        ]
        if not found:
            return None
        incumbent = next((one for one in found if one.candidate.name == DEFAULT), found[0])
        challengers = sorted((one for one in found if one is not incumbent), key=lambda one: one.loss)
        return self._challenged(incumbent, challengers, "portfolio")

    def _first(
        self, entrants: Sequence[Candidate], step: str, incumbent: TrialResult | None = None
    ) -> list[TrialResult]:
        """The candidates for all folds: the default, and the best of a first look at all."""
        trials, survivors = self.trials, self.trials.policy.survivors
        found = [one for one in self._evaluate(entrants, trials.first_folds) if one is not None]
        found.sort(key=lambda one: (one.loss, one.cost.ns_per_row))
        if trials.first_folds == trials.folds:
            return found
        best = [one for one in found if incumbent is None or self._may_help(incumbent, one)]
        kept = {one.candidate.name for one in best[:survivors]} | {DEFAULT}
        beside = incumbent or (found[0] if found else None)
        for one in found:
            if one.candidate.name not in kept and beside is not None:
                self._note(
                    step + ", first look", beside, one, self._compared(beside, one), "is left out beside"
                )
        return [one for one in found if one.candidate.name in kept]

    def _may_help(self, incumbent: TrialResult, one: TrialResult) -> bool:
        """Whether a candidate loses no more, and is another model: few rows have no more landmarks."""
        comparison, tied = self._compared(incumbent, one), self._tied(incumbent, one)
        same = comparison.standard_error == 0 == tied.standard_error and one.cost == incumbent.cost
        return comparison.gain >= 0 and not (same and comparison.gain == 0 == tied.gain)

    def _challenged(
        self, incumbent: TrialResult, challengers: Sequence[TrialResult], step: str
    ) -> TrialResult:
        for one in challengers:
            comparison, better = self._better(incumbent, one, "replaces")
            self._note(step, incumbent, one, comparison, better or "does not replace")
            if better:
                incumbent = one
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
        for one in self._evaluate([one.candidate for one in first], trials.folds):
            if one is None:
                continue
            comparison, better = self._better(incumbent, one, "helps")
            self._note(step, incumbent, one, comparison, better or "does not replace")
            if better:
                helped.append((one.loss, mutation_of[one.candidate.name], one))
        helped.sort(key=lambda entry: entry[0])
        for place, (_, mutation, alone) in enumerate(helped):
            if place == 0:
                incumbent = alone
                continue
            changes = _changes(mutation, incumbent, self.trials)
            if changes is None:
                continue
            name = f"{incumbent.candidate.name} + {mutation.name}"
            [both] = self._evaluate([incumbent.candidate.mutated(name, changes)], trials.folds)
            if both is not None:
                incumbent = self._challenged(incumbent, [both], step)
        return incumbent

    def _evaluate(self, candidates: Sequence[Candidate], folds: Sequence[int]) -> list[TrialResult | None]:
        found = self.trials.evaluate(candidates, folds)
        if folds == self.trials.folds:
            self.judged += [one for one in found if one is not None]
        return found

    def _compared(self, incumbent: TrialResult, one: TrialResult) -> Comparison:
        counted = self.trials.metric.counted
        return compare(incumbent.losses, one.losses, one.weight, counted=counted)

    def _better(self, incumbent: TrialResult, one: TrialResult, verdict: str) -> tuple[Comparison, str]:
        """The rule: significantly better by the metric; or equal within a standard error, and significantly
        better by the metric that breaks ties. The level is shared, half for each test. What one tie after the
        other loses is within a standard error of the best incumbent. The verdict is empty for one that is not
        better.
        """
        level, comparison = self.trials.policy.level / 2, self._compared(incumbent, one)
        if self.lowest is None or incumbent.loss < self.lowest.loss:
            self.lowest = incumbent
        if comparison.p <= level and comparison.gain > 0:
            return comparison, verdict
        best = self._compared(self.lowest, one)
        if abs(comparison.gain) > comparison.standard_error or -best.gain > best.standard_error:
            return comparison, ""
        tie = self._tied(incumbent, one)
        wins = tie.gain > 0 and tie.p <= level
        return comparison, f"wins by {words_of(self.trials.ties.name)} over" if wins else ""

    def _tied(self, incumbent: TrialResult, one: TrialResult) -> Comparison:
        return compare(incumbent.ties, one.ties, one.weight, counted=False)

    def _note(
        self, step: str, incumbent: TrialResult, one: TrialResult, comparison: Comparison, verdict: str
    ) -> None:
        if comparison.gain < -comparison.standard_error:
            self.worse.add(one.candidate.name)
        line = Decision(
            step=step,
            candidate=one.candidate.name,
            incumbent=incumbent.candidate.name,
            loss=one.loss,
            incumbent_loss=incumbent.loss,
            gain=comparison.gain,
            standard_error=comparison.standard_error,
            p=comparison.p,
            rows=int(np.count_nonzero(~np.isnan(one.losses))),
            cost_ratio=one.cost.cost_ratio,
            verdict=verdict,
        )
        self.trace.append(asdict(line))


def _distinct(trials: Trials, entrants: Sequence[Candidate]) -> list[Candidate]:
    """Configurations that differ in settings: few rows have only one leaf."""
    seen: dict[Any, Candidate] = {}
    for one in entrants:
        width = one.values.get("width", 1.0)
        seen.setdefault((trials.realised(one.values), width), one)
    return list(seen.values())


def _changes(mutation: Mutation, incumbent: TrialResult, trials: Trials) -> dict[str, Any] | None:
    """The changes of a mutation to the incumbent; None if it does not apply, or changes nothing."""
    task = trials.asked.task
    if mutation.task and mutation.task != task:
        return None
    values = trials.values_of(incumbent)
    if mutation.unless and all(values[name] == value for name, value in mutation.unless.items()):
        return None
    changes = dict(mutation.changes)
    for name, factor in mutation.times.items():
        changes[name] = type(values[name])(values[name] * factor)
    if all(values[name] == value for name, value in changes.items()):
        return None
    given = incumbent.candidate.values
    before, after = (trials.realised(v) for v in (given, {**given, **changes}))
    if before == after and "width" not in changes:
        return None
    return changes
