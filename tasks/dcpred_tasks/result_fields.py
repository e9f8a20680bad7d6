"""Fields of results and documents. Each field states its meaning and its format once, where it is declared:
docstrings, commands, pages of reports and the page of JSON keys read them here.
"""

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from textwrap import fill, indent
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")
FACTS = "facts"
LONGEST = 200  # letters of a value of a class without lines
BEGINNING = re.compile("^[A-Z](?=[a-z -]|$)")  # the capital of a sentence that begins with no name


class Unit(Enum):
    """How people read a value."""

    FRACTION = "percent"
    NUMBER = "number"
    COUNT = "integer"
    BYTES = "size"
    SECONDS = "seconds"
    TEXT = "text"

    def text(self, value: Any, digits: int = 6) -> str:
        """A value on a line, with names if they are several; a dash if it is missing."""
        if isinstance(value, dict):
            return ", ".join(f"{name} {self.text(part, digits)}" for name, part in value.items())
        if isinstance(value, list | tuple):
            return ", ".join(self.text(part, digits) for part in value)
        if value is None:
            return "–"
        if self is Unit.FRACTION:
            return f"{100 * value:.2f} %"
        if self is Unit.BYTES:
            return size(value)
        return f"{value:{ {Unit.NUMBER: f'.{digits}g', Unit.TEXT: '', Unit.SECONDS: '.1f'}.get(self, ',') }}"


def size(n_bytes: float | None) -> str:
    """A number of bytes in their unit; a dash if it is missing."""
    if n_bytes is None:
        return "–"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024 or unit == "GiB":
            break
        n_bytes /= 1024
    return f"{n_bytes:,.0f} {unit}" if unit == "bytes" or n_bytes >= 10 else f"{n_bytes:.1f} {unit}"


@dataclass(frozen=True)
class Listing:
    """A table of results within another."""

    rows: Sequence[Mapping[str, Any]]
    """Documents of the class of the field."""
    title: str = ""
    labels: Sequence[str] = ()
    """A first column without a head."""
    more: str = ""
    """A line below it."""


Text = str | Callable[[Mapping[str, Any]], Any]
"""The text of a field: a format of values of the document, or a function of the document. That may return
None for no line, several texts, or pairs of the name of a line and its text.
"""


@dataclass(frozen=True)
class Facts:
    """What is known of a field besides its name and type."""

    meaning: str
    """A sentence."""
    when: str = ""
    """The option or the data without which a document lacks the field; "": it is always there."""
    of: type | None = None
    """The result class of a document that the value is, or each of its elements."""
    key: str = ""
    """Its name in a document, if that is another."""
    unit: Unit = Unit.NUMBER
    text: Text | None = None
    """What a line or a cell shows, if that is not the value in its unit."""
    line: str = ""
    """The name of its line on a terminal; "": it has none."""
    detail: bool = False
    """Whether only -v shows this line."""
    table: Callable[[Mapping[str, Any]], Listing] | None = None
    """Its elements as a table on a terminal."""
    column: str = ""
    """The head of its column where a table lists the class; "": it has none."""
    headline: str = ""
    """Its name at the top of a page; "": it is not there."""
    metric: str = ""
    """The end of the name of its metric; "": it has none."""


OF_FACTS = {entry.name for entry in fields(Facts)}


class Lines(list[Any]):
    """Lines of a class that shows all values."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Any = _Absent.ABSENT
"""The value of a field that its document lacks."""


def result_field(meaning: str, **more: Any) -> Any:
    """A field of a result class, with its `Facts`; other arguments are as for `dataclasses.field`."""
    facts = Facts(meaning, **{name: more.pop(name) for name in OF_FACTS & more.keys()})
    return field(metadata={FACTS: facts}, **more)


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


def document_of(result: Any) -> Any:
    """The document of an object of a result class: its fields by their keys, and so within."""
    if is_dataclass(result) and not isinstance(result, type):
        keys = {name: facts.key for name, facts in facts_of(result)}
        values = (
            (keys.get(entry.name) or entry.name, getattr(result, entry.name)) for entry in fields(result)
        )
        return {key: document_of(value) for key, value in values if value is not ABSENT}
    if isinstance(result, dict):
        return {key: document_of(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return (list if isinstance(result, list) else tuple)(map(document_of, result))
    return result


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
        is_list = any(get_origin(part) in (list, tuple) for part in _parts(hints[name]))
        inner = class_within(owner, name)
        key, needs, text = facts.key or name, facts.when or when, facts.meaning
        if needs:
            text = f"With {needs}: {BEGINNING.sub(lambda match: match[0].lower(), text)}"
        keys[key] = Key(text, bool(needs), inner, facts.metric)
        if inner is not None and inner not in apart:
            start = f"{key}{'[]' if is_list else ''}."
            keys |= {start + name: key for name, key in keys_of(inner, apart, needs).items()}
    return keys


def _parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union."""
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def class_within(owner: Any, name: str) -> Any:
    """The result class of a field's document, or of its elements; None for other values."""
    facts = dict(facts_of(owner))[name]
    elements = [each for part in _parts(get_type_hints(owner)[name]) for each in (get_args(part) or (part,))]
    return facts.of or next((kind for kind in elements if hasattr(kind, "__dataclass_fields__")), None)


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


def text_of(name: str, facts: Facts, document: Mapping[str, Any], digits: int = 6) -> Any:
    """What a line or a cell shows of a field; None if the document lacks it."""
    key = facts.key or name
    if key not in document:
        return None
    if callable(facts.text):
        return facts.text(document)
    if document[key] is None or document[key] in ("", [], (), {}):
        return None
    return facts.text.format_map(document) if facts.text else facts.unit.text(document[key], digits)


def lines_of(
    owner: Any, document: Mapping[str, Any], detail: bool = False
) -> Iterator[tuple[str, str] | tuple[type, Listing]]:
    """What a terminal shows of a document, in the order of its fields: names and texts, and tables. A class
    without any shows all values, those within others behind a dot.
    """
    known = [*facts_of(owner)]
    if not any(facts.line or facts.table for _, facts in known):
        for name, facts in known:
            value = document.get(facts.key or name, ABSENT)
            yield from _values(name, facts.text(document) if callable(facts.text) else value)
        return
    for name, facts in known:
        if facts.line and facts.detail <= detail and (text := text_of(name, facts, document)):
            yield from _pairs(facts.line, [text] if isinstance(text, str) else text)
        if facts.table and (listing := facts.table(document)).rows:
            yield class_within(owner, name), listing


def _pairs(name: str, texts: Sequence[Any]) -> Iterator[Any]:
    """Lines, of which the first has the name unless they have names of their own."""
    for number, text in enumerate(texts):
        yield text if isinstance(text, tuple) else ("" if number else name, text)


def _values(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _values(f"{name}.{key}", inner)
    elif isinstance(value, Lines):
        yield from _pairs(name, value)
    elif value is not ABSENT:
        text = f"{value:,}" if type(value) is int else str(value)
        yield name, text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def columns_of(owner: Any, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Facts]]:
    """The fields that are columns of a table of these documents of a class."""
    known = [(name, facts) for name, facts in facts_of(owner) if facts.column]
    return [(name, facts) for name, facts in known if any((facts.key or name) in row for row in rows)]


def cells_of(owner: Any, rows: Sequence[Mapping[str, Any]], digits: int = 6) -> list[list[str]]:
    """Its lines, the heads first."""
    columns = columns_of(owner, rows)
    cells = [[text_of(name, facts, row, digits) or "–" for name, facts in columns] for row in rows]
    return [[facts.column for _, facts in columns], *cells]
