"""Workers are made ready before blocks are counted: what is said, and what becomes of workers that die or
hang meanwhile.
"""

import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcpred.evaluation import evaluate as evaluation
from dcpred.evaluation.evaluate import evaluate
from dcpred.execution import task_window
from dcpred.execution.pools import connect
from dcpred.execution.progress import COMPILING, reporting
from dcpred.execution.workers import InlineWorkers
from dcpred.scoring import blocks
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.task_bodies import evaluate_block
from dcpred_tasks.task_bodies.score_block import load_engine
from support.data import make_blobs, make_group
from support.processes import LIMIT_SECONDS, wait_until
from support.reporters import Recorder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    blobs = make_blobs(900, n_features=5, n_classes=3, seed=0)
    return make_group(tmp_path_factory.mktemp("ready") / "data.zarr", blobs.X, blobs.y)


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    model = data.parent / "model"
    train(data, model, settings={"landmarks": 6, "n_leaves": 4})
    return model


class Asked(InlineWorkers):
    """Notes what every worker is asked to do, and has no machine code."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def on_each(self, body: Any, *task: Any) -> Any:
        self.bodies.append(body)
        return iter([False]) if body is blocks.is_compiled else super().on_each(body, *task)


def test_compiling_is_said_and_done_before_rows_are_counted(data: Path, model: Path, tmp_path: Path) -> None:
    workers, say = Asked(), Recorder()
    with reporting(say):
        score(model, data, tmp_path / "out", client=lambda: nullcontext(workers))
    assert workers.bodies == [blocks.is_compiled, load_engine]
    assert say.told.index(COMPILING) < say.told.index("scoring")
    assert say.counted["scoring"] == say.totals["scoring"] == 900
    workers.bodies.clear()
    with reporting(say):
        score(model, data, tmp_path / "out", client=lambda: nullcontext(workers))
    assert workers.bodies == [], "a finished run has nothing to be ready for"


def test_nothing_is_said_where_machine_code_is_there(data: Path, model: Path, tmp_path: Path) -> None:
    say = Recorder()
    for place in ("first", "second"):  # where there was none, the first run has compiled
        say.told.clear()
        with reporting(say):
            score(model, data, tmp_path / place)
        with reporting(say):
            evaluate(model, data, cost=False)
    assert COMPILING not in say.told
    assert "scoring" in say.told


def test_workers_that_cannot_get_ready_are_no_error(data: Path, model: Path, tmp_path: Path) -> None:
    """Whatever it is, blocks will tell."""

    class Broken(InlineWorkers):
        def on_each(self, body: Any, *task: Any) -> Any:
            return iter([False] if body is blocks.is_compiled else [])

    report = score(model, data, tmp_path / "out", client=lambda: nullcontext(Broken()))
    assert report.status == {"1": 900}
    assert list(InlineWorkers().on_each(load_engine, str(tmp_path / "none"), "no hash")) == []


def test_evaluation_says_it_too(data: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "is_compiled", lambda: False)
    say = Recorder()
    said_before: list[list[str]] = []
    monkeypatch.setattr(evaluate_block, "warm_up", lambda _: said_before.append(list(say.told)))
    with reporting(say):
        evaluate(model, data, cost=False)
    assert [told[-1] for told in said_before] == [COMPILING], (
        "the engine is loaded in this step, and in none that is counted"
    )
    assert say.told.index(COMPILING) < say.told.index("evaluating")


def _late_but_one(folder: str, hangs: bool, number: int) -> int:
    """Who comes first is done at once; others hang for ever, or die by the signal `number`."""
    try:
        (Path(folder) / "first").mkdir()
    except FileExistsError:
        if number:
            os.kill(os.getpid(), number)
        while hangs:
            time.sleep(1)
    return os.getpid()


def test_every_worker_is_asked_and_no_one_is_waited_for_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # workers get functions of this module by value
    monkeypatch.setattr(_late_but_one, "__module__", "__main__")
    monkeypatch.setattr(task_window, "SPARE_SECONDS", LIMIT_SECONDS)
    for name in ("both", "death", "hang"):
        (tmp_path / name).mkdir()
    with connect(2) as workers:
        assert len(set(workers.on_each(_late_but_one, str(tmp_path / "both"), False, 0))) == 2
        assert len(list(workers.on_each(_late_but_one, str(tmp_path / "death"), False, signal.SIGKILL))) == 1
        # the dead worker comes back, and is at work
        assert len(dict(workers.each(np.add, [(1, 2)] * 6))) == 6
        wait_until(lambda: workers.n_threads() == 2)
        monkeypatch.setattr(task_window, "SPARE_SECONDS", 0.1)
        assert len(list(workers.on_each(_late_but_one, str(tmp_path / "hang"), True, 0))) == 1
