"""Progress of a long run, on a terminal, in a notebook, or in lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from math import ceil
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID
from rich.text import Text

from dcpred.execution.events import record_event, takes_standard_error
from dcpred.execution.terminal import MOST_COLUMNS, Verbosity, cut, has_colours, rewrites, verbosity, wrapped
from dcpred.execution.workers import Workers

# A guess at the remaining time needs so many seconds, and so many counts of equal parts.
FIRST_GUESS_SECONDS, FIRST_GUESS_COUNTS = 5.0, 2
LINE_SECONDS = 5.0
BAR_COLUMNS = 12
MOST_ENDED = 4  # bars of ended steps, the last ones
BAR_FROM_COLUMNS = 60  # a narrower terminal has no space for a bar
COMPILING = "compiling the scoring engine, once per computer (some seconds)"


Step = Callable[[float], None]
"""Counts a number of finished parts of a step."""


class Reporter(Protocol):
    """Shows jobs, their steps, and remarks.

    remark  a sentence for everybody
    detail  a remark at verbosity -v
    job   several steps, of which only the end is shown; a job inside of a job is a part of that
    step  one piece of work of `total` equal parts, None if the total is unknown; within another step only a
          terminal shows it
    """

    def remark(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def job(self, title: str) -> AbstractContextManager[None]: ...

    def step(self, title: str, total: float | None, unit: str) -> AbstractContextManager[Step]: ...


def rows_of(advance: Step) -> Callable[[int, int | None], None]:
    """A callback of (rows done, rows in all) that advances a step."""
    before = 0

    def note(done: int, _total: int | None) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return note


class Silent:
    """No progress, for programs."""

    def remark(self, text: str) -> None:
        """Nothing."""

    def detail(self, text: str) -> None:
        """Nothing."""

    def job(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        yield lambda amount: None


SILENT = Silent()
_current: ContextVar[Reporter] = ContextVar("dcpred_reporter", default=SILENT)


@contextmanager
def reporting(to: Reporter) -> Iterator[None]:
    """Let a reporter show what this thread does within a `with` statement. Other threads show nothing."""
    before = _current.set(to)
    try:
        yield
    finally:
        _current.reset(before)


def show(text: str) -> None:
    """Show a remark. This and the next three functions ask the reporter of the running public function."""
    _current.get().remark(text)


def show_detail(text: str) -> None:
    _current.get().detail(text)


def show_job(title: str) -> AbstractContextManager[None]:
    return _current.get().job(title)


def show_step(title: str, total: float | None, unit: str) -> AbstractContextManager[Step]:
    return _current.get().step(title, total, unit)


def show_where(doing: str, workers: Workers, scratch: object = None) -> None:
    """Print where work runs, if that is on a Dask cluster, and the address of its dashboard, if it has one.

    scratch  place of temporary data
    """
    if workers.where:
        show(f"{doing}{workers.where}")
    show_dashboard(workers)
    if scratch is not None:
        show_at_work(workers, scratch)


def show_dashboard(workers: Workers) -> None:
    """Print, once, the address of Dask's dashboard."""
    if workers.dashboard:
        show(f"Dask's dashboard is at {workers.dashboard}")
        workers.dashboard = ""


def show_at_work(workers: Workers, scratch: object) -> None:
    """Print, at verbosity -v, the number of tasks at once and the place of temporary data."""
    show_detail(f"{counted(workers.n_threads(), 'task', 'tasks')} at once; work in progress is in {scratch}")


class EventReporter(Silent):
    """For standard error that shows nothing, or takes events: each remark becomes an event."""

    def remark(self, text: str) -> None:
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
    """The line of a step."""

    def __init__(self, title: str, total: float | None, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.begin = self.counted_at = time.monotonic()
        self.done, self.n_counts = 0.0, 0
        self.end = ""  # its last text, once it has ended

    def count(self, amount: float) -> None:
        self.done, self.n_counts, self.counted_at = self.done + amount, self.n_counts + 1, time.monotonic()

    @property
    def share(self) -> float:
        """The finished share, at most 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0

    def seconds_left(self, now: float) -> float | None:
        """A guess, or None without a basis: too little is done, or the guess has run out and nothing was
        counted since.
        """
        if now - self.begin < FIRST_GUESS_SECONDS or self.n_counts < FIRST_GUESS_COUNTS or not self.share:
            return None
        left = (self.counted_at - self.begin) * (1 - self.share) / self.share - (now - self.counted_at)
        return left if left > 0 else None

    def text(self) -> str:
        if self.end:
            return self.end
        now = time.monotonic()
        spent, left = now - self.begin, self.seconds_left(now)
        facts = [] if self.total is None else [f"{int(100 * self.share)} %"]
        facts.append(spent_so_far(spent))
        if left is not None:
            facts.append(f"about {roughly(left)} left")
        if self.unit and self.done:
            facts.append(f"{self.done / max(spent, 1e-9):,.0f} {self.unit}/s")
        return f"{', '.join(facts)}: {self.title}"


def closing(title: str, begin: float, n: float = 0.0, unit: str = "") -> str:
    """The last line of a job, or of a step that counted.

    begin  its time on the clock of `time.monotonic`
    """
    spent = max(time.monotonic() - begin, 1e-9)
    if not unit or not n:
        return f"{title}: done in {duration(spent)}"
    if round(n) == 1:
        return f"{title}: 1 {unit.removesuffix('s')} in {duration(spent)}"
    return f"{title}: {n:,.0f} {unit} in {duration(spent)}, {n / spent:,.0f} {unit}/s"


class Lines:
    """For logs: a plain line at the start of every step, every few seconds, and at the end of a job."""

    def __init__(self, console: Console, level: Verbosity = Verbosity.NORMAL) -> None:
        self.console, self.level = console, level
        self.line: Line | None = None
        self.in_job = False
        self.printed = 0.0  # time of the last line of a step

    def remark(self, text: str) -> None:
        """One line of any length: a log has no width, and is searched."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def detail(self, text: str) -> None:
        if self.level >= Verbosity.MORE:
            self.remark(text)

    @contextmanager
    def job(self, title: str) -> Iterator[None]:
        if self.in_job or self.line is not None:
            yield
            return
        self.in_job, begin = True, time.monotonic()
        try:
            yield
        finally:
            self.in_job = False
        self.closed(closing(title, begin))

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        with step_events(title):
            line = Line(title, total, unit)
            if self.line is not None:
                with self.within(line) as count:
                    yield count
                return
            self.line = line
            try:
                with self.showing(line):
                    self.changed(line, 0.0)
                    yield partial(self.count, line)
                    line.end = closing(title, line.begin, line.done, unit)
            finally:
                self.line = None
            if self.in_job:
                self.detail(line.end)
            else:
                self.closed(line.end)

    @contextmanager
    def within(self, line: Line) -> Iterator[Step]:
        """A step within another, which is not shown here."""
        yield lambda amount: None

    def count(self, line: Line, amount: float) -> None:
        line.count(amount)
        self.changed(line, LINE_SECONDS)

    def showing(self, line: Line) -> AbstractContextManager[object]:
        """Show a line within a `with` statement: here only by `changed`."""
        return nullcontext()

    def closed(self, text: str) -> None:
        """Print the end of a job, or of a step outside of jobs."""
        self.remark(text)

    def changed(self, line: Line, seconds: float) -> None:
        """Write the line, unless one was written less than so many seconds ago."""
        now = time.monotonic()
        if now - self.printed >= seconds:
            self.printed = now
            self.remark(cut(line.text(), MOST_COLUMNS))


class Bars(Lines):
    """For a terminal: a bar for each step of a job, and for steps within others. Their clocks never stop, and
    they vanish at the end.
    """

    def __init__(self, console: Console, level: Verbosity = Verbosity.NORMAL) -> None:
        super().__init__(console, level)
        self.bars: Progress | None = None
        self.tasks: dict[Line, TaskID] = {}

    def remark(self, text: str) -> None:
        fitted = wrapped(text, self.columns, indent=2, shorten=True)
        self.console.print(fitted, highlight=False, markup=False, soft_wrap=True)

    @property
    def columns(self) -> int:
        return min(self.console.width, MOST_COLUMNS)

    @contextmanager
    def job(self, title: str) -> Iterator[None]:
        with super().job(title), self.display():
            yield

    @contextmanager
    def display(self) -> Iterator[Progress]:
        """The bars of a job, or of a step outside of jobs."""
        if self.bars is not None:
            yield self.bars
            return
        bars = [BarColumn(BAR_COLUMNS)] if self.columns >= BAR_FROM_COLUMNS else []
        facts = _Facts(self.columns - 2 - len(bars) * (BAR_COLUMNS + 1))
        columns = (SpinnerColumn(finished_text="✓"), *bars, facts)
        shown = Progress(*columns, console=self.console, transient=True, redirect_stdout=False)
        self.bars = shown
        try:
            with shown:
                yield shown
        finally:
            self.bars, self.tasks = None, {}

    @contextmanager
    def showing(self, line: Line) -> Iterator[None]:
        with self.display() as bars:
            self.tasks[line] = task = bars.add_task("", total=line.total, line=line)
            try:
                yield
            finally:
                done = 1.0 if line.total is None else line.total  # A step that failed vanishes.
                bars.update(task, total=done, completed=done, visible=bool(line.end))
                for past in [each for each in bars.tasks if each.finished and each.visible][:-MOST_ENDED]:
                    bars.update(past.id, visible=False)

    @contextmanager
    def within(self, line: Line) -> Iterator[Step]:
        with self.showing(line):
            yield partial(self.count, line)

    def changed(self, line: Line, seconds: float) -> None:
        """Move the bar; the rest of the display updates itself."""
        if self.bars is not None:
            self.bars.update(self.tasks[line], completed=line.done)


class _Facts(ProgressColumn):
    """The text of a line, the same as in a log."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        super().__init__()

    def render(self, task: Task) -> Text:
        return Text(cut(task.fields["line"].text(), self.columns), no_wrap=True)


def reporter(verbose: int | None = None) -> Reporter:
    """Progress on standard error, which never mixes with results: one line on a terminal and in a notebook,
    plain lines elsewhere.

    verbose  False or 0: shows nothing, 2: more; True or None: as -q and -v of the command
    """
    if verbose == 0:
        return SILENT
    as_command = verbose is None or verbose is True
    level = verbosity() if as_command else Verbosity(min(max(verbose or 0, 0), Verbosity.MORE))
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


def counted(n: int, singular: str, plural: str) -> str:
    return f"{n:,} {singular if n == 1 else plural}"


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
        self.display = sys.modules["IPython"].display.display  # A notebook has imported it.
        self.place: Any = None  # IPython's handle to replace an output

    def remark(self, text: str) -> None:
        self.display(_Text(text))

    def _show(self, text: str) -> None:
        if self.place is None:
            self.place = self.display(_Text(text), display_id=True)
        else:
            self.place.update(_Text(text))

    def changed(self, line: Line, seconds: float) -> None:
        now = time.monotonic()
        if now - self.printed >= min(seconds, SHOWN_SECONDS):
            self.printed = now
            self._show(cut(line.text(), MOST_COLUMNS))

    def closed(self, text: str) -> None:
        self._show(text)
        self.place = None
