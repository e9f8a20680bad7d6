"""Annotations of results in the words that their docstrings use."""

import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin


def in_words(annotation: Any) -> str:
    """`dict[str, int] | None` as "dict of str to int or None"."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        return " or ".join(in_words(part) for part in parts)
    if origin in (dict, Mapping):
        return "dict" if parts[1] is Any else f"dict of {in_words(parts[0])} to {in_words(parts[1])}"
    if origin is tuple and parts[1:] != (...,):
        return f"({', '.join(in_words(part) for part in parts)})"
    if origin in (list, tuple):
        return f"{origin.__name__} of {in_words(parts[0])}"
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "str"
    return str(annotation.__name__)
