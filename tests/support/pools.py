"""Workers for tests."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from dcpred.evaluation import Evaluation, evaluate
from dcpred.execution.workers import InlineWorkers, Pool, Workers
from dcpred.verification.verify import VerifyReport, verify


def inline() -> AbstractContextManager[Workers]:
    return nullcontext(InlineWorkers())


def verify_by(pool: Pool, output: str | Path, level: str, **options: Any) -> VerifyReport:
    """A verification by these workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.verification.verify.chosen_pool", lambda *_: pool)
        return verify(output, level, **options)


def evaluate_by(pool: Pool, model: Path, data: str | Path) -> Evaluation:
    """An evaluation by these workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.evaluation.chosen_pool", lambda *_: pool)
        return evaluate(model, data, cost=False)
