"""Estimate the progress of a job and its remaining time: arithmetic of shares and times."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import exp

# A guess at the remaining time needs at least so many seconds, and so large a share of a job of several
# steps, or so many counts of a single step.
FIRST_GUESS_SECONDS, FIRST_GUESS_SHARE, FIRST_GUESS_COUNTS = 5.0, 0.1, 2
# Share of the job after which a guess is two thirds new, unless a quarter of the finished share is less.
MEMORY = 0.05
LEAST = 1e-9  # smallest share of the job to divide by


class ProgressEstimate:
    """A job as the interval from 0 to 1, divided into consecutive parts, which have parts themselves.

    The share of a part is a fraction of what is left of the part around it. A part fills its share when it
    ends, whatever it counted: progress never goes back and never exceeds 1, also with wrong shares.
    """

    def __init__(self, now: float) -> None:
        self.begin = now  # seconds on the clock of the callers
        self.done = 0.0  # share of the job
        self._end = 1.0  # end of the current part
        self._whole_seconds = 0.0  # guess at the time of the whole job
        self._counts = 0  # counts of a job that is a single step
        self._left = 0.0, now  # guess at the remaining seconds, and its time
        self.is_counted = True  # whether the current step counts: only then its time is predictable

    @contextmanager
    def part(self, share: float) -> Iterator[tuple[float, float]]:
        """The begin and the end of a part of the job. The caller fills it with `reach` at its end: an
        interrupted part stays unfilled.
        """
        around, self._end = self._end, self.done + share * (self._end - self.done)
        try:
            yield self.done, self._end
        finally:
            self._end = around

    def reach(self, place: float, now: float) -> None:
        """Be at `place`, unless the job is farther already."""
        gain = min(place, 1.0) - self.done
        if gain <= 0:
            return
        first, self.done = self.done == 0, self.done + gain
        guess, memory = (now - self.begin) / max(self.done, LEAST), max(min(MEMORY, self.done / 4), LEAST)
        self._whole_seconds += (1.0 if first else 1.0 - exp(-gain / memory)) * (guess - self._whole_seconds)
        spent = now - self.begin
        self._left = max(self._whole_seconds - spent, (1.0 - self.done) * spent), now

    def count(self, place: float, now: float, alone: bool) -> None:
        """Be at a place that a step counted; `alone` if the step is the whole job."""
        self._counts += alone
        self.reach(place, now)

    def seconds_left(self, now: float) -> float | None:
        """A guess, or None without a basis: too little is done, the current step counts nothing, or the last
        guess has run out and nothing was counted since.
        """
        enough = self.done >= FIRST_GUESS_SHARE or (self._counts >= FIRST_GUESS_COUNTS and self.done > 0)
        if now - self.begin < FIRST_GUESS_SECONDS or not enough or not self.is_counted:
            return None
        guess, made_at = self._left
        left = guess - (now - made_at)
        return left if left > 0 else None


class Shares:
    """The expected times of a job's parts, in seconds or any other unit, in their order."""

    def __init__(self, work: Mapping[str, float]) -> None:
        self.work = work

    @property
    def total(self) -> float:
        return sum(self.work.values())

    def of_rest(self, name: str) -> float:
        """The share of a part in the rest of the job when it begins."""
        names = list(self.work)
        rest = sum(self.work[later] for later in names[names.index(name) :])
        return self.work[name] / rest if rest > 0 else 1.0
