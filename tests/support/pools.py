"""Workers for tests."""

from contextlib import AbstractContextManager, nullcontext

from dcpred.execution.workers import InlineWorkers, Workers


def inline() -> AbstractContextManager[Workers]:
    return nullcontext(InlineWorkers())
