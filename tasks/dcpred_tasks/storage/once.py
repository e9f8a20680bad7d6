"""What a call reads once, however many of its functions ask: the listing of a table, and a model.

Each call of the package and each task of a run begins anew: nothing outlives it. Files that change meanwhile
are refused where they are read.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
LISTING, MODEL = "listing", "model"  # kinds
_held: ContextVar[dict[tuple[str, Hashable], object] | None] = ContextVar("held", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Keep what `once` reads within a `with` statement, or within the one around it."""
    if _held.get() is not None:
        yield
        return
    token = _held.set({})
    try:
        yield
    finally:
        _held.reset(token)


def once(kind: str, key: Hashable, read: Callable[[], T]) -> T:
    """read(), or its earlier result of this kind and key."""
    held = _held.get()
    if held is None:
        return read()
    if (kind, key) not in held:
        held[kind, key] = read()
    return held[kind, key]  # type: ignore[return-value]


def forget(kind: str) -> None:
    """Read everything of this kind anew."""
    held = _held.get() or {}
    for key in [key for key in held if key[0] == kind]:
        del held[key]
