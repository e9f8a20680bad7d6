"""Fields of results, each with its meaning, its name for people, its format and its metric, where it is
declared: docstrings, terminal, report pages, the page of JSON keys and metrics all read them here.
"""

import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")


def result_field(meaning: str, *, of: type | None = None, **default: Any) -> Any:
    """A field of a result class.

    meaning  a sentence, for docstrings and pages. One that begins with "With" names the option or the data
             without which the document does not have the field
    of       the result class whose document the value is, or each value of a list
    default  as for `dataclasses.field`
    """
    return field(metadata={"meaning": meaning, "of": of}, **default)


@dataclass_transform(frozen_default=True, field_specifiers=(result_field,))
def result_class(cls: type[T]) -> type[T]:
    """A frozen dataclass whose docstring lists its fields with their meanings."""
    made = dataclass(frozen=True, repr=cls.__repr__ is object.__repr__)(cls)
    if made.__doc__ is not None:  # Python was not started with -OO.
        made.__doc__ = f"{inspect.getdoc(made)}\n\nAttributes\n----------\n{_entries(made)}"
    return made


def _entries(made: Any) -> str:
    hints = get_type_hints(made)
    return "".join(
        f"{f.name} : {type_text(hints[f.name])}\n    {f.metadata['meaning']}\n" for f in fields(made)
    )


def type_text(annotation: Any) -> str:
    """`dict[str, int] | None` as "dict of str to int or None"."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        return " or ".join(type_text(part) for part in parts)
    if origin in (dict, Mapping):
        return "dict" if parts[1] is Any else f"dict of {type_text(parts[0])} to {type_text(parts[1])}"
    if origin is tuple and parts[1:] != (...,):
        return f"({', '.join(type_text(part) for part in parts)})"
    if origin in (list, tuple):
        return f"{origin.__name__} of {type_text(parts[0])}"
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "str"
    return str(annotation.__name__)
