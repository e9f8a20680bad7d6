"""Small searches for settings: a judge of rows in memory, and a portfolio that takes no time."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dcpred.execution.block_plan import plan_routing
from dcpred.execution.workers import InlineWorkers, Pool, Workers
from dcpred.training.choice import search_and_fit
from dcpred.training.fit import TrainingRequest
from dcpred.training.policy import DEFAULT, MUTATIONS, PORTFOLIO, STANDARD, THOROUGH, Budget, SearchPolicy
from dcpred.training.reports import TuneReport
from dcpred.training.steps import Training
from dcpred.training.trials import Trials
from dcpred_tasks.scratch import MemoryJob
from dcpred_tasks.training import learned_scaling
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import Settings
from support.pools import inline

FEW_TRIALS: dict[str, Any] = {"rounds": 1, "mutated_rows": 0, "survivors": 2, "very_few_rows": 0}
SMALL = replace(STANDARD, name="small", **FEW_TRIALS)
POLICIES = {  # where a search takes its policy from
    "dcpred.estimators.base.STANDARD": STANDARD,
    "dcpred.estimators.out_of_core.STANDARD": STANDARD,
    "dcpred.training.policy.STANDARD": STANDARD,
    "dcpred.training.policy.THOROUGH": THOROUGH,
}
FEW_REPETITIONS = {"REPETITIONS": 2, "USUAL_REPETITIONS": 2}  # a scaling is still a mean
BRIEF = {"ROUNDS": 3, **FEW_REPETITIONS}
WIDE = Budget(ratio=1e3)
START = Settings()


def small_search(
    data: str | Path,
    model: Path,
    *,
    settings: Settings = START,
    pool: Pool = inline,
    policy: SearchPolicy = SMALL,
    budget: Budget | None = None,
    weight: str | None = None,
) -> TuneReport:
    """A search over X and y of stored data, and a training with what it chose."""
    request = TrainingRequest(f"{data}/X", f"{data}/y", model, settings, pool, weight)
    return search_and_fit(request, policy, budget)


@contextmanager
def few_candidates(
    configurations: tuple[str, ...] = (DEFAULT, "learned"),
    mutations: tuple[str, ...] = ("wider", "more landmarks"),
    portfolio: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[None]:
    """A search tries these of the portfolio, or those of another one, and these mutations only, each by few
    trials, with scalings of few repetitions. The choice is not made cheaper.
    """
    portfolio = portfolio or {name: PORTFOLIO[name] for name in configurations}
    tried = tuple(m for m in MUTATIONS if m.name in mutations)
    with ExitStack() as stack:
        stack.enter_context(mock.patch("dcpred.training.search.PORTFOLIO", portfolio))
        stack.enter_context(mock.patch("dcpred.training.search.MUTATIONS", tried))
        stack.enter_context(mock.patch("dcpred.training.search.CHEAPER", ()))
        stack.enter_context(mock.patch.multiple(learned_scaling, **FEW_REPETITIONS))
        for place, policy in POLICIES.items():
            stack.enter_context(mock.patch(place, replace(policy, **FEW_TRIALS)))
        yield


SHIPPED = {name: getattr(learned_scaling, name) for name in BRIEF}


@contextmanager
def learning_as_shipped() -> Iterator[None]:
    """Scalings are learned at full length, where that is the subject."""
    with mock.patch.multiple(learned_scaling, **SHIPPED):
        yield


def learn_briefly() -> None:
    """Let this process learn scalings in little time: also a task for workers of tests."""
    for name, value in BRIEF.items():
        setattr(learned_scaling, name, value)


def trials_of(
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    weight: NDArray[np.float64] | None = None,
    policy: SearchPolicy = SMALL,
    budget: Budget | None = WIDE,
    settings: Settings | None = None,
    workers: Workers | None = None,
    block_rows: int | None = None,
    folds: Folds | None = None,
) -> Trials:
    """A judge of rows in memory, as `choose_settings` has it, with its rows chosen."""
    own = replace(settings or Settings(), kernel="rbf", triangle=0, refine=True)
    plan = plan_routing(len(X), X.shape[1], X.dtype.itemsize, block_rows or len(X))
    arrays = {"x": X, "y": y, "weight": np.ones(len(X)) if weight is None else weight}
    job = MemoryJob("", "", "", "", own, plan.n_rows, plan.block_rows, folds=folds, arrays=arrays)
    workers = workers or InlineWorkers()
    training = Training(job, plan, workers)
    trials = Trials(training, training.survey(None), workers, policy, budget)
    trials.prepare()
    return trials
