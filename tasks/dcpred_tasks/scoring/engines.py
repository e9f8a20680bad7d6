"""The engines that score rows, best first, and the only choice among them.

An engine reports why it cannot score a model. The first that can is used.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dcpred_tasks.engine.compiler import why_without, with_compiler
from dcpred_tasks.errors import RefusedError
from dcpred_tasks.model.compact_model import Model

COMPILED = "dcpred_tasks.engine.engine", "rows are scored by NumPy, which is 5 to 20 times slower"


class Engine(NamedTuple):
    """A way to score the rows of a model."""

    name: str
    is_for: Callable[[Model], bool]
    """Whether models of this kind, in this process, could have it as their best."""
    why_not: Callable[[Model], str | None]
    """Why it cannot score this model, as text; None where it can, and then it is loaded."""
    make: Callable[[Model], Any]
    """An object with `score` as scorer.score_rows has it; None where the definition scores."""


class Choice(NamedTuple):
    """The engine that scores a model."""

    engine: Engine
    passed_over: dict[str, str]
    """Why each better engine cannot score it, by name."""

    def __str__(self) -> str:
        reasons = "; ".join(f"not {name}: {why}" for name, why in self.passed_over.items())
        return f"{self.engine.name} ({reasons})" if reasons else self.engine.name


def chosen(model: Model) -> Choice:
    """The best engine for a model in this process."""
    passed_over: dict[str, str] = {}
    for engine in filter(lambda engine: engine.is_for(model), ENGINES):
        why = engine.why_not(model)
        if why is None:
            return Choice(engine, passed_over)
        passed_over[engine.name] = why
    raise AssertionError("the definition scores every model")


def described(model: Model) -> str:
    """The choice as text, also for a damaged installation that cannot score."""
    try:
        return str(chosen(model))
    except RefusedError as error:
        return f"none: {error}"


def has_compiler() -> bool:
    """Whether compiled code scores rows in this process: it is then compiled and loaded."""
    return with_compiler(*COMPILED, lambda engine: engine.check() or engine) is not None


def uses_tiles() -> bool:
    """Whether compiled code multiplies tiles in this process. Imports LLVM."""
    return bool(import_module("dcpred_tasks.engine.tiles").allowed())


def _why_not_compiled(model: Model) -> str | None:
    if model.leaf_models is not None:
        return "its leaves hold other models"
    return None if has_compiler() else why_without(COMPILED[0])


def _holds_leaf_models(model: Model) -> bool:
    return model.leaf_models is not None


def _asks_for_tiles(model: Model) -> bool:
    tiles = "dcpred_tasks.engine.tiles"
    return not _holds_leaf_models(model) and has_compiler() and bool(import_module(tiles).is_asked_for())


def _why_no_tiles(_: Model) -> str | None:
    why: str | None = import_module("dcpred_tasks.engine.tiles").why_not()
    return why


def _compiled(model: Model) -> Any:
    return with_compiler(*COMPILED, lambda engine: engine.Engine(model))


def _leaf_models(model: Model) -> Any:
    return import_module("dcpred_tasks.scoring.leaf_model_scorer").LeafModelScorer(model)


def _definition(_: Model) -> None:
    return None


ENGINES = (
    Engine("compiled with tiles", _asks_for_tiles, _why_no_tiles, _compiled),
    Engine("compiled", lambda _: True, _why_not_compiled, _compiled),
    Engine("leaf models", _holds_leaf_models, lambda _: None, _leaf_models),
    Engine("numpy", lambda _: True, lambda _: None, _definition),
)
