"""Score rows by a model, with the best engine that can."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from subprocess import DEVNULL, Popen
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import STATUS_DTYPE, LeafNumbers
from dcpred_tasks.engine import layout
from dcpred_tasks.engine.compiler import Turn, planned_or_here, why_without, with_compiler
from dcpred_tasks.errors import RefusedError, ResourceError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model, Scores
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.model.target_transform import NO_TRANSFORM, undone
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.process import process_name
from dcpred_tasks.scoring.leaf_model_scorer import LeafModelScorer


def _load_engine() -> Any:
    from dcpred_tasks.engine import engine

    return engine


COMPILED = _load_engine, "rows are scored by NumPy, which is 5 to 20 times slower"


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
    from dcpred_tasks.engine.tiles import allowed

    return allowed()


def _why_not_compiled(model: Model) -> str | None:
    if model.leaf_models is not None:
        return "its leaves hold other models"
    if not _has_centres(model):
        return "its tree has no centres"
    if len(model.triangle):
        return "its leaves have triangle points"
    return None if has_compiler() else why_without(COMPILED[0])


def _holds_leaf_models(model: Model) -> bool:
    return model.leaf_models is not None


def _has_centres(model: Model) -> bool:
    return isinstance(model.tree, Tree)


def _suits_engine(model: Model) -> bool:
    return _has_centres(model) and not len(model.triangle)


def _asks_for_tiles(model: Model) -> bool:
    if _holds_leaf_models(model) or not _suits_engine(model) or not has_compiler():
        return False
    from dcpred_tasks.engine.tiles import is_asked_for

    return is_asked_for()


def _why_no_tiles(_: Model) -> str | None:
    from dcpred_tasks.engine.tiles import why_not

    return why_not()


def _compiled(model: Model) -> Any:
    return with_compiler(*COMPILED, lambda engine: engine.Engine(model))


def _leaf_models(model: Model) -> Any:
    return LeafModelScorer(model)


def _definition(_: Model) -> None:
    return None


ENGINES = (
    Engine("compiled with tiles", _asks_for_tiles, _why_no_tiles, _compiled),
    Engine("compiled", lambda _: True, _why_not_compiled, _compiled),
    Engine("leaf models", _holds_leaf_models, lambda _: None, _leaf_models),
    Engine("numpy", lambda _: True, lambda _: None, _definition),
)


_engines: "WeakKeyDictionary[Model, Any]" = WeakKeyDictionary()
_one_thread = Turn()
STRIP_ROWS = 2**15  # rows that are encoded, and go to the engine, at once


def score_rows(
    model: Model, X: NDArray[np.generic], *, early: bool = False, leaves: LeafNumbers | None = None
) -> tuple[Scores, NDArray[np.uint8]]:
    """Do what compact_model.score_rows does: return decision values and status of raw rows, and on request
    their leaves. Serial; several threads may call it at once.

    The engine agrees with the definition within rounding of single precision, and with itself to the bit,
    whatever the batch, its memory order and the position of the row. Early prediction always uses the
    definition. LeafModelScorer scores models with baselines: the same rows in the same order give the same
    bits, other batches agree within rounding.
    """
    engine = None if early else _engine(model)
    if engine is None:
        return compact_model.score_rows(model, X, early=early, leaves=leaves)
    return undone(model.target, *engine.score(X, leaves))


def is_compiled() -> bool:
    """Whether the first score needs no compilation: machine code exists, or the definition scores."""
    return with_compiler(*COMPILED, lambda engine: bool(engine.is_compiled())) is not False


def arithmetic(*models: Model) -> str | None:
    """How this process scores rows with models, or with any. It changes the last bits of scores, and is part
    of a plan: None for the engine of version 1, "engine 2" and so on for later ones, with "tiles" for
    products of tiles, "numpy" for the definition. Baselines need no engine: None.
    """
    compact = [model for model in models if not _holds_leaf_models(model)]
    if models and not compact:
        return None
    if (compact and not any(map(_suits_engine, compact))) or not has_compiler():
        return "numpy"
    parts = [f"engine {layout.VERSION}"] if layout.VERSION > 1 else []
    return ", ".join([*parts, *(["tiles"] if uses_tiles() else [])]) or None


def check_arithmetic(planned: str | None, *models: Model) -> None:
    """Raise ResourceError where this process scores otherwise than a plan states: another worker may not."""
    if (here := planned_or_here(lambda: arithmetic(*models), planned)) != planned:
        names = {None: "the compiled engine", "tiles": "the engine with DCPRED_TILES=1", "numpy": "NumPy"}
        here, planned = (names.get(name, f"the compiled {name}") for name in (here, planned))
        raise ResourceError(
            f"Cannot score in {process_name()}: it uses {here}, but the run was planned with {planned}, whose"
            " scores have other last bits. Give all workers the same dcpred, llvmlite, DCPRED_NO_COMPILER and"
            " DCPRED_TILES as the driver of the run, or score into a new directory."
        )


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """A process that compiles the engine meanwhile, if necessary: scoring processes then find machine code on
    disk, or wait for it. A process, because a compiling thread would delay forks.
    """
    if is_compiled():
        yield
        return
    command = [sys.executable, "-P", "-m", "dcpred_tasks.engine.machine_code"]
    try:
        compiler = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:  # Those that score compile, if they can.
        yield
        return
    with compiler:
        try:
            yield
        finally:
            compiler.terminate()


def warm_up(model: Model) -> None:
    """Load the engine and lay the model out, which the first call would do otherwise."""
    score_rows(model, np.zeros((0, model.n_features), np.float32))


def _engine(model: Model) -> Any:
    """The Engine of a model, or its LeafModelScorer, made once; None without a compiler."""
    engine = _engines.get(model)
    if engine is None:
        with _one_thread:  # else each of several threads makes one, of a large model
            engine = _engines.get(model)
            if engine is None:
                engine = _made(model)
                if engine is not None:
                    _engines[model] = engine
    return engine


def _made(model: Model) -> Any:
    if model.scaling.targets is not None:
        return _TargetEncodedScorer(model, model.scaling.targets)
    return chosen(model).engine.make(model)


class _TargetEncodedScorer:
    """Scores rows with target-encoded features, encoded strip by strip, in any number of threads."""

    def __init__(self, model: Model, targets: TargetEncoding) -> None:
        plain = replace(model, target=NO_TRANSFORM)
        self.model, self.targets = replace(plain, scaling=model.scaling.of_encoded), targets
        self._of_thread = threading.local()

    def score(
        self, X: NDArray[np.generic], leaves: LeafNumbers | None = None
    ) -> tuple[Scores, NDArray[np.uint8]]:
        """Do what score_rows does."""
        compact_model.check_rows(X, self.targets.n_features)
        decision = np.empty((len(X), self.model.n_outputs), self.model.score_dtype)
        status = np.empty(len(X), STATUS_DTYPE)
        for start in range(0, max(len(X), 1), STRIP_ROWS):  # No rows load the engine, too.
            strip = slice(start, start + STRIP_ROWS)
            strip_leaves = None if leaves is None else leaves[strip]
            decision[strip], status[strip] = score_rows(
                self.model, self._encoded(X[strip]), leaves=strip_leaves
            )
        return decision, status

    def _encoded(self, X: NDArray[np.generic]) -> NDArray[Any]:
        """Encoded rows, in a reused buffer: new pages would cost more than the copy."""
        targets, dtype = self.targets, self.targets.dtype_for(X.dtype)
        buffer: NDArray[Any] | None = getattr(self._of_thread, dtype.__name__, None)
        if buffer is None or len(X) > len(buffer):
            buffer = np.empty((len(X), targets.n_columns), dtype)
            setattr(self._of_thread, dtype.__name__, buffer)
        return targets.encoded(X, targets.table, out=buffer[: len(X)])
