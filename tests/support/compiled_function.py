"""A function that takes a blink to compile, kept as the engine is, for processes that share a cache."""

from dcpred_tasks.engine.compilation import compiled_and_kept


@compiled_and_kept
def twice(x: int) -> int:
    return 2 * x
