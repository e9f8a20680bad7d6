"""A reporter for tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from dcpred.execution.progress import Silent, Step


class Recorder(Silent):
    """Keeps what was told: every remark, job and step by its title, and what steps counted."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.totals: dict[str, float | None] = {}
        self.counted: dict[str, float] = {}

    def remark(self, text: str) -> None:
        self.told.append(text)

    @contextmanager
    def job(self, title: str) -> Iterator[None]:
        self.told.append(title)
        yield

    @contextmanager
    def step(self, title: str, total: float | None, unit: str) -> Iterator[Step]:
        self.told.append(title)
        self.totals[title] = total
        self.counted[title] = 0.0

        def advance(amount: float) -> None:
            self.counted[title] += amount

        yield advance
