"""Progress of a long run, on a terminal, in a notebook, or in lines."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from math import ceil, exp
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn
from rich.text import Text

from dcpred.execution.events import record_event, takes_standard_error
from dcpred.execution.terminal import MOST_COLUMNS, Verbosity, cut, has_colours, rewrites, verbosity, wrapped
from dcpred.execution.workers import Workers

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
        """The begin and the end of a part of the job, which the caller fills with `reach` if complete."""
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


LINE_SECONDS = 5.0
BAR_COLUMNS = 12
BAR_FROM_COLUMNS = 60  # a narrower terminal has no space for a bar
COMPILING = "compiling the scoring engine, once per computer (some seconds)"


class Step(Protocol):
    """One long piece of work."""

    def __call__(self, amount: float) -> None: ...


class Reporter(Protocol):
    """Shows jobs, their steps, and remarks.

    say   a remark for everybody
    detail  a remark at verbosity -v
    job   several steps shown as one; a job inside of a job is a part of that
    part  a part of a job: `share` is its expected share of the rest of the job, or of the part around it
    step  one piece of work, which fills its part as it counts: `total` units, None if the total is
          unknown
    """

    def say(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def job(self, title: str) -> AbstractContextManager[None]: ...

    def part(self, share: float) -> AbstractContextManager[None]: ...

    def step(self, title: str, total: float | None, unit: str) -> AbstractContextManager[Step]: ...


def rows_of(advance: Step) -> Callable[[int, int | None], None]:
    """A callback of (rows done, rows in all) that advances a step."""
    before = 0

    def note(done: int, _total: int | None) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return note


def say_where(say: Reporter, doing: str, workers: Workers, scratch: object = None) -> None:
    """Print where work runs, if that is on a Dask cluster, and the address of its dashboard, if it has one.

    scratch  place of temporary data
    """
    if workers.where:
        say.say(f"{doing}{workers.where}")
    say_dashboard(say, workers)
    if scratch is not None:
        say_at_work(say, workers, scratch)


def say_dashboard(say: Reporter, workers: Workers) -> None:
    """Print, once, the address of Dask's dashboard."""
    if workers.dashboard:
        say.say(f"Dask's dashboard is at {workers.dashboard}")
        workers.dashboard = ""


def say_at_work(say: Reporter, workers: Workers, scratch: object) -> None:
    """Print, at verbosity -v, the number of tasks at once and the place of temporary data."""
    say.detail(f"{counted(workers.n_threads(), 'task', 'tasks')} at once; work in progress is in {scratch}")


class Silent:
    """No progress, for programs."""

    def say(self, text: str) -> None:
        """Nothing."""

    def detail(self, text: str) -> None:
        """Nothing."""

    def job(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()

    def part(self, share: float) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        yield lambda amount: None


SILENT = Silent()


class EventReporter(Silent):
    """For standard error that shows nothing, or takes events: each remark becomes an event."""

    def say(self, text: str) -> None:
        record_event("remark", text=text)

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        with step_events(title), super().step(title, total, unit) as advance:
            yield advance


@contextmanager
def step_events(title: str) -> Iterator[None]:
    """Record the events of a step."""
    begin = time.monotonic()
    record_event("step_started", step=title)
    yield
    record_event("step_ended", step=title, seconds=round(time.monotonic() - begin, 3))


class Line:
    """The line of a job, or of a step outside of jobs."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.estimate = ProgressEstimate(time.monotonic())
        # Count and unit of a step outside of jobs; None for a job.
        self.counted: tuple[float, str] | None = None
        self.has_total = True

    def text(self) -> str:
        now = time.monotonic()
        spent, left = now - self.estimate.begin, self.estimate.seconds_left(now)
        facts = [f"{int(100 * self.estimate.done)} %"] if self.has_total else []
        facts.append(spent_so_far(spent))
        if left is not None and self.has_total and self.estimate.done < 1:
            facts.append(f"about {roughly(left)} left")
        if self.counted is not None and self.counted[0]:
            facts.append(f"{self.counted[0] / max(spent, 1e-9):,.0f} {self.counted[1]}/s")
        return f"{', '.join(facts)}: {self.title}"


def closing(title: str, begin: float, counted: tuple[float, str] | None) -> str:
    """The last line of a job or step.

    begin    its time on the clock of `time.monotonic`
    counted  count and unit
    """
    spent = max(time.monotonic() - begin, 1e-9)
    if counted is None or not counted[1] or not counted[0]:
        return f"{title}: done in {duration(spent)}"
    n, unit = counted
    if round(n) == 1:
        return f"{title}: 1 {unit.removesuffix('s')} in {duration(spent)}"
    return f"{title}: {n:,.0f} {unit} in {duration(spent)}, {n / spent:,.0f} {unit}/s"


class Lines:
    """For logs: a plain line at the start of every step, every few seconds, and at the end of a job."""

    def __init__(self, console: Console, level: Verbosity = Verbosity.NORMAL) -> None:
        self.console, self.level = console, level
        self.line: Line | None = None
        self.printed = 0.0  # time of the last line of a job

    def say(self, text: str) -> None:
        """One line of any length: a log has no width, and is searched."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def detail(self, text: str) -> None:
        if self.level >= Verbosity.MORE:
            self.say(text)

    @contextmanager
    def job(self, title: str) -> Iterator[None]:
        if self.line is not None:
            yield
            return
        with self._outermost(title):
            yield

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        if self.line is None:
            yield
            return
        with self.line.estimate.part(share) as (_, end):
            yield
            self.line.estimate.reach(end, time.monotonic())

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        with step_events(title), self._shown_step(title, total, unit) as advance:
            yield advance

    @contextmanager
    def _shown_step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        if self.line is not None:
            self.line.title, begin = title, time.monotonic()
            with self._counting(self.line, total) as count:
                yield count
            self.detail(closing(title, begin, (count.done, unit)))
            return
        with self._outermost(title) as line:
            line.counted, line.has_total = (0.0, unit), total is not None
            with self._counting(line, total) as count:
                yield count

    @contextmanager
    def _outermost(self, title: str) -> Iterator[Line]:
        self.line = line = Line(title)
        try:
            with self.showing(line):
                yield line
        finally:
            self.line = None
        self.closed(closing(title, line.estimate.begin, line.counted))

    @contextmanager
    def _counting(self, line: Line, total: float | None) -> Iterator["_Count"]:
        line.estimate.is_counted = bool(total)
        with line.estimate.part(1.0) as place:
            count = _Count(self, line, total, place)
            self.changed(line, 0.0)
            yield count
            line.estimate.reach(place[1], time.monotonic())

    def showing(self, line: Line) -> AbstractContextManager[object]:
        """Show a line within a `with` statement: here only by `changed`."""
        return nullcontext()

    def closed(self, text: str) -> None:
        """Print the end of a line's job."""
        self.say(text)

    def changed(self, line: Line, seconds: float) -> None:
        """Write the line, unless one was written less than so many seconds ago."""
        now = time.monotonic()
        if now - self.printed >= seconds:
            self.printed = now
            self.say(cut(line.text(), MOST_COLUMNS))


class _Count:
    """The count of a step. With a total it fills the place of the step in its job."""

    def __init__(self, lines: Lines, line: Line, total: float | None, place: tuple[float, float]) -> None:
        self.lines, self.line, self.total, self.place = lines, line, total, place
        self.done = 0.0

    def __call__(self, amount: float) -> None:
        self.done += amount
        line, (start, end) = self.line, self.place
        if line.counted is not None:
            line.counted = self.done, line.counted[1]
        if self.total:
            reached = start + min(self.done / self.total, 1.0) * (end - start)
            line.estimate.count(reached, time.monotonic(), self.place == (0.0, 1.0))
        self.lines.changed(line, LINE_SECONDS)


class Bars(Lines):
    """For a terminal: a line rewritten a few times a second: its clock never stops."""

    def say(self, text: str) -> None:
        fitted = wrapped(text, self.columns, indent=2, shorten=True)
        self.console.print(fitted, highlight=False, markup=False, soft_wrap=True)

    @property
    def columns(self) -> int:
        return min(self.console.width, MOST_COLUMNS)

    def showing(self, line: Line) -> AbstractContextManager[object]:
        bars = [BarColumn(BAR_COLUMNS)] if self.columns >= BAR_FROM_COLUMNS else []
        facts = _Facts(line, self.columns - 2 - len(bars) * (BAR_COLUMNS + 1))
        self.shown = Progress(
            SpinnerColumn(), *bars, facts, console=self.console, transient=True, redirect_stdout=False
        )
        self.shown.add_task(line.title, total=1.0)
        return self.shown

    def changed(self, line: Line, seconds: float) -> None:
        """Move the bar; the rest of the display updates itself."""
        total = 1.0 if line.has_total else None
        self.shown.update(self.shown.task_ids[0], total=total, completed=line.estimate.done)


class _Facts(ProgressColumn):
    """The text of a line; its estimate knows the parts of a job, which rich's columns do not."""

    def __init__(self, line: Line, columns: int) -> None:
        self.line, self.columns = line, columns
        super().__init__()

    def render(self, task: object) -> Text:
        return Text(cut(self.line.text(), self.columns), no_wrap=True)


def reporter(verbose: int | None = None) -> Reporter:
    """Progress on standard error, which never mixes with results: one line on a terminal and in a notebook,
    plain lines elsewhere.

    verbose  0: shows nothing, 2: more; None: as -q and -v of the command
    """
    if verbose == 0:
        return SILENT
    level = verbosity() if verbose is None else Verbosity(min(max(verbose, 0), Verbosity.MORE))
    if level == Verbosity.QUIET or takes_standard_error():
        return EventReporter()
    if in_notebook():
        return NotebookLine(level)
    live = rewrites(sys.stderr)
    console = Console(
        stderr=True,
        force_terminal=live,
        force_jupyter=False,
        force_interactive=live,
        no_color=not has_colours(sys.stderr),
    )
    return Bars(console, level) if live else Lines(console, level)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def shares_of(advance: Step) -> Callable[[int, int], None]:
    """A callback of (done, total), as a step of a total of 1."""
    before = 0.0

    def note(done: int, total: int) -> None:
        nonlocal before
        now = done / max(total, 1)
        advance(now - before)
        before = now

    return note


def counted(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def spent_so_far(seconds: float) -> str:
    """A duration without tenths, which would flicker."""
    return f"{int(seconds)} s" if seconds < 60 else duration(seconds)


def roughly(seconds: float) -> str:
    """A duration rounded to the accuracy of a guess."""
    if seconds < 90:
        return f"{5 * max(ceil(seconds / 5), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else duration(seconds)


SHOWN_SECONDS = 0.5  # minimum time that a line stays


class _Text:
    """Plain text in a notebook: nothing in it is HTML."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class NotebookLine(Lines):
    """A line of a job in its place, and remarks below it."""

    def __init__(self, level: Verbosity = Verbosity.NORMAL) -> None:
        super().__init__(Console(stderr=True, force_terminal=False, force_jupyter=False), level)
        self.display = import_module("IPython.display").display
        self.place: Any = None  # IPython's handle to replace an output

    def say(self, text: str) -> None:
        self.display(_Text(text))

    @contextmanager
    def showing(self, line: Line) -> Iterator[object]:
        self.place = self.display(_Text(cut(line.text(), MOST_COLUMNS)), display_id=True)
        yield self.place

    def changed(self, line: Line, seconds: float) -> None:
        now = time.monotonic()
        if now - self.printed >= min(seconds, SHOWN_SECONDS):
            self.printed = now
            self.place.update(_Text(cut(line.text(), MOST_COLUMNS)))

    def closed(self, text: str) -> None:
        self.place.update(_Text(text))
