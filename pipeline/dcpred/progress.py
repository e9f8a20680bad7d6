"""What a person sees while work goes on. Reporters get the same calls; a program gives none."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 5.0


class Step(Protocol):
    """One long piece of work."""

    def __call__(self, amount: int) -> None: ...


class Reporter(Protocol):
    """Shows steps and remarks."""

    def say(self, text: str) -> None: ...

    def step(self, title: str, total: int | None, unit: str) -> AbstractContextManager[Step]: ...


class Silent:
    """For programs."""

    def say(self, text: str) -> None:
        """Nothing."""

    @contextmanager
    def step(self, title: str, total: int | None, unit: str) -> Iterator[Step]:
        yield lambda amount: None


SILENT = Silent()


class Lines:
    """For logs: a plain line at the start and the end of a step, and every few seconds between."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str, total: int | None, unit: str) -> Iterator[Step]:
        begin = last = time.monotonic()
        done = 0

        def advance(amount: int) -> None:
            nonlocal done, last
            done += amount
            now = time.monotonic()
            if now - last >= LINE_SECONDS:
                last = now
                rate = done / max(now - begin, 1e-9)
                left = "" if not total else f" of {total:,}, {duration((total - done) / max(rate, 1e-9))} left"
                self.say(f"{title}: {done:,}{left}, {rate:,.0f} {unit}/s")

        yield advance
        spent = max(time.monotonic() - begin, 1e-9)
        self.say(f"{title}: {done:,} {unit} in {duration(spent)}, {done / spent:,.0f} {unit}/s")


class Bars:
    """For a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    @contextmanager
    def step(self, title: str, total: int | None, unit: str) -> Iterator[Step]:
        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} {task.fields[unit]}, {task.fields[rate]}/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task: TaskID = bar.add_task(title, total=total, unit=unit, rate="–")
            begin = time.monotonic()
            done = 0

            def advance(amount: int) -> None:
                nonlocal done
                done += amount
                bar.update(task, advance=amount, rate=f"{done / max(time.monotonic() - begin, 1e-9):,.0f}")

            yield advance


def reporter() -> Reporter:
    """On standard error, so that it never mixes with results: bars on a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal else Lines(console)


def counted(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
