"""Sources that are made wrong for a moment: a test that does not find it proves nothing."""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def mutated(owner: Any, name: str, old: str, new: str) -> Iterator[None]:
    """A function of a module or class, whose source has `new` in place of `old`."""
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, f"{name} has no {old!r} any more: say anew what is to be made wrong"
    made: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, made[name])
        yield
