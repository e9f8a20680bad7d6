"""Progress that a user sees. Reporters get the same calls; programs show none.

A job is one line, with any number of steps: the finished share, the elapsed time, the estimated remaining
time, and the current step. A terminal and a notebook rewrite the line; a log gets one for each step and every
few seconds. No line is longer than 80 columns.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from math import ceil
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dcpred.execution.course import ProgressEstimate
from dcpred.execution.events import record_event, takes_standard_error
from dcpred.execution.terminal import MOST_COLUMNS, cut, has_colours, rewrites, wrapped
from dcpred.execution.verbosity import Verbosity, verbosity
from dcpred.execution.workers import Workers

LINE_SECONDS = 5.0
BAR_COLUMNS = 12
BAR_COLOUR = "cyan"
BAR_FROM_COLUMNS = 60  # a narrower terminal has no space for a bar
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
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
        def now() -> Text:
            turn = int(time.monotonic() * len(SPINNER))
            head, bar = f"{SPINNER[turn % len(SPINNER)]} ", 0
            if line.has_total and self.columns >= BAR_FROM_COLUMNS:
                bar = int(BAR_COLUMNS * line.estimate.done)
                head += f"{'━' * bar}{'─' * (BAR_COLUMNS - bar)} "
            text = Text(cut(head + line.text(), self.columns), no_wrap=True)
            text.stylize(BAR_COLOUR, 0, 2 + bar)
            return text

        return Live(
            get_renderable=now,
            console=self.console,
            refresh_per_second=5,
            transient=True,
            redirect_stdout=False,
        )

    def changed(self, line: Line, seconds: float) -> None:
        """The display updates itself."""


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
        notebook: Reporter = import_module("dcpred.execution.notebook_line").NotebookLine(level)
        return notebook
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
