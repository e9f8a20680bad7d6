"""Fields of results and documents. Each field states its meaning and its format once, where it is declared:
docstrings, commands, pages of reports and the page of JSON keys read them here.
"""

import inspect
import re
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from textwrap import fill, indent
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")
FACTS = "facts"
BEGINNING = re.compile("^[A-Z](?=[a-z -]|$)")  # the capital of a sentence that begins with no name


class Unit(Enum):
    """How people read a value."""

    FRACTION = "percent"
    NUMBER = "number"
    COUNT = "integer"
    BYTES = "size"
    TEXT = "text"

    def text(self, value: Any) -> str:
        """A value on one line of a terminal."""
        if self is Unit.FRACTION:
            return f"{100 * value:.2f} %"
        form = {Unit.NUMBER: ".6g", Unit.TEXT: ""}.get(self, ",")
        return f"{value:{form}}"


@dataclass(frozen=True)
class Facts:
    """What is known of a field besides its name and type."""

    meaning: str
    """A sentence."""
    when: str
    """The option or the data without which a document lacks the field; "": it is always there."""
    of: type | None
    """The result class of a document that the value is, or each of its elements."""
    key: str
    """Its name in a document, if that is another."""
    unit: Unit
    line: bool
    """Whether the command shows it as a line of its own."""
    headline: str
    """Its name at the top of a page; "": it is not there."""
    metric: str
    """The end of the name of its metric; "": it has none."""


def result_field(
    meaning: str,
    *,
    when: str = "",
    of: type | None = None,
    key: str = "",
    unit: Unit = Unit.NUMBER,
    line: bool = False,
    headline: str = "",
    metric: str = "",
    **default: Any,
) -> Any:
    """A field of a result class, with its `Facts`; `default` is as for `dataclasses.field`."""
    return field(metadata={FACTS: Facts(meaning, when, of, key, unit, line, headline, metric)}, **default)


@dataclass_transform(frozen_default=True, field_specifiers=(result_field, field))
def result_class(cls: type[T]) -> type[T]:
    """A frozen dataclass whose docstring lists its fields with their meanings."""
    made = dataclass(frozen=True, repr=cls.__repr__ is object.__repr__)(cls)
    if made.__doc__ is not None:  # Python was not started with -OO.
        hints = get_type_hints(made)
        entries = (
            f"{name} : {type_text(hints[name])}\n{indent(fill(facts.meaning, 100), '    ')}\n"
            for name, facts in facts_of(made)
        )
        made.__doc__ = f"{inspect.getdoc(made)}\n\nAttributes\n----------\n{''.join(entries)}"
    return made


def facts_of(owner: Any) -> Iterator[tuple[str, Facts]]:
    """The described fields of a result class, in their order."""
    return ((entry.name, entry.metadata[FACTS]) for entry in fields(owner) if FACTS in entry.metadata)


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


@dataclass(frozen=True)
class Key:
    """A key of a document."""

    meaning: str
    is_optional: bool
    of: Any
    """The result class of the object there, or of the elements of the list; None for other values."""
    metric: str = ""


def keys_of(owner: Any, apart: Collection[type] = (), when: str = "") -> dict[str, Key]:
    """The keys of the document of a result class. A key within another follows a dot; `[]` stands for each
    element of a list.

    apart  classes whose keys are not listed within others
    when   what the whole document needs
    """
    hints, keys = get_type_hints(owner), {}
    for name, facts in facts_of(owner):
        hint = hints[name]
        parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
        is_list = any(get_origin(part) in (list, tuple) for part in parts)
        elements = [element for part in parts for element in (get_args(part) or (part,))]
        inner = facts.of or next((c for c in elements if hasattr(c, "__dataclass_fields__")), None)
        key, needs, text = facts.key or name, facts.when or when, facts.meaning
        if needs:
            text = f"With {needs}: {BEGINNING.sub(lambda match: match[0].lower(), text)}"
        keys[key] = Key(text, bool(needs), inner, facts.metric)
        if inner is not None and inner not in apart:
            start = f"{key}{'[]' if is_list else ''}."
            keys |= {start + name: key for name, key in keys_of(inner, apart, needs).items()}
    return keys


def metrics_of(owner: Any) -> dict[str, tuple[str, str]]:
    """The metrics of a document: their keys there and their meanings, by the ends of their names."""
    return {key.metric: (path, key.meaning) for path, key in keys_of(owner).items() if key.metric}


def measured(owner: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of these metrics by the ends of their names; None where the document lacks them."""
    values = {}
    for metric, (path, _) in metrics_of(owner).items():
        value: Any = document
        for key in path.split("."):
            value = (value or {}).get(key)
        values[metric] = value
    return values
