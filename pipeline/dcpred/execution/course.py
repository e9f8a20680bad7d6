"""How far a job is, and how long it will take on: arithmetic of shares and times, told the clock."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import exp

# Before so many seconds a guess at the time left would mean nothing, and before so large a share of a job of
# several steps, or so many counts of one that is a single step.
FIRST_GUESS_SECONDS, FIRST_GUESS_SHARE, FIRST_GUESS_COUNTS = 5.0, 0.1, 2
# Share of the job after which a guess is two thirds new, unless a quarter of what is done is less.
MEMORY = 0.05
LEAST = 1e-9  # smallest share of the job that anything is divided by


class Course:
    """A job as the interval from 0 to 1, in which its parts lie one after another, and their parts in them.

    A part is told as the share of what is left of the part around it. It fills that share when it ends,
    whatever was counted in it, so that what is done never goes backwards and never beyond 1, however wrong
    the shares were.
    """

    def __init__(self, now: float) -> None:
        self.begin = now  # seconds on the clock of the callers
        self.done = 0.0  # share of the job
        self._end = 1.0  # end of the part at hand
        self._whole_seconds = 0.0  # guess at what the whole job takes
        self._counts = 0  # counts of a job that is a single step
        self._left = 0.0, now  # guess at the seconds that are left, and when it was made
        self.is_counted = True  # whether the step at hand counts: nobody knows how long another one takes

    @contextmanager
    def part(self, share: float) -> Iterator[tuple[float, float]]:
        """Where a part of the job begins and ends. The caller fills it with `reach` when it is done, so that
        a part that is cut off stays unfilled.
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
        """Be at a place that was counted up to, in a step; `alone` where it is the whole job."""
        self._counts += alone
        self.reach(place, now)

    def seconds_left(self, now: float) -> float | None:
        """A guess, or None where there is nothing to base one on: too little is done, the step at hand counts
        nothing, or the last guess has run out and nothing was counted since.
        """
        enough = self.done >= FIRST_GUESS_SHARE or (self._counts >= FIRST_GUESS_COUNTS and self.done > 0)
        if now - self.begin < FIRST_GUESS_SECONDS or not enough or not self.is_counted:
            return None
        guess, made_at = self._left
        left = guess - (now - made_at)
        return left if left > 0 else None


class Shares:
    """What the parts of a job are expected to take, in seconds or any other unit, in their order."""

    def __init__(self, work: Mapping[str, float]) -> None:
        self.work = work

    @property
    def total(self) -> float:
        return sum(self.work.values())

    def of_rest(self, name: str) -> float:
        """The share of a part in what is left of the job when it begins."""
        names = list(self.work)
        rest = sum(self.work[later] for later in names[names.index(name) :])
        return self.work[name] / rest if rest > 0 else 1.0
