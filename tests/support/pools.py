"""Workers for tests."""

from contextlib import AbstractContextManager, nullcontext

from dcpred.cluster import InlineWorkers, Workers


def inline() -> AbstractContextManager[Workers]:
    return nullcontext(InlineWorkers())
