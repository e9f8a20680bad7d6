"""Values that annotations allow: documents of JSON that become dataclasses, and arguments of functions."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")
Reader = Callable[[Any], Any]
KINDS: dict[Any, tuple[Any, str]] = {
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    bool: ((bool, np.bool_), "True or False"),
    str: (str, "a str"),
    Path: (os.PathLike, "a Path"),
    NoneType: (NoneType, "None"),
}
# A callable in `Annotated` is a condition.
Count = Annotated[int, lambda n: n >= 0]
Positive = Annotated[int, lambda n: n > 0]


def from_document(kind: type[T], document: Any, *, exact: bool = False) -> T:
    """The dataclass whose fields a JSON object holds. A field that it lacks has its default. Raises
    ValueError, which names the field, for a value that the annotation does not allow.

    exact  whether it may have no other keys
    """
    value: T = _reader(kind)(document)  # type: ignore[arg-type]
    if exact and (others := document.keys() - kind.__dataclass_fields__.keys()):  # type: ignore[attr-defined]
        raise ValueError(f"it has no field {min(others)}")
    return value


def is_allowed(value: Any, annotation: Any) -> bool:
    try:
        _reader(annotation)(value)
    except ValueError:
        return False
    return True


def in_words(annotation: Any) -> list[str]:
    """What a value may be."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return [text for part in parts for text in in_words(part)]
    if origin in (tuple, Sequence):
        return ["a tuple" if origin is tuple else f"a list, each {' or '.join(in_words(parts[0]))}"]
    if isinstance(annotation, type) and is_dataclass(annotation):
        return [f"a {annotation.__name__}"]
    return [KINDS[annotation][1] if annotation in KINDS else str(annotation)]


@cache
def _reader(annotation: Any) -> Reader:
    """What returns the value of an annotation, and raises ValueError for another: made once."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if is_dataclass(annotation):
        return _built(annotation)
    if origin is Annotated:
        return _limited(parts[0], parts[1:])
    if origin in (Union, UnionType):
        return _either([_reader(part) for part in parts])
    if origin is tuple and parts[1:] != (...,):
        return _fixed([_reader(part) for part in parts])
    if origin in (tuple, list, Sequence):
        return _repeated(origin, _reader(parts[0]))
    if origin is dict:
        return _mapped(*map(_reader, parts))
    return _plain(annotation) if annotation in KINDS else lambda value: value


def _expect(condition: object, value: Any, text: str) -> None:
    if not condition:
        raise ValueError(f"{value!r:.50} is not {text}")


def _plain(kind: Any) -> Reader:
    types, text = KINDS[kind]

    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        _expect(isinstance(value, types) and not (isinstance(value, bool) and kind is not bool), value, text)
        with suppress(OverflowError):
            return float(value) if kind is float else value
        raise ValueError("it is not small enough")

    return read


def _limited(kind: Any, conditions: Sequence[Callable[[Any], object]]) -> Reader:
    read = _reader(kind)

    def read_limited(value: Any) -> Any:
        if type(value) is not kind:
            value = read(value)
        for condition in conditions:
            if not condition(value):
                _expect(False, value, "allowed")
        return value

    return read_limited


def _either(readers: Sequence[Reader]) -> Reader:
    def read(value: Any) -> Any:
        for read_part in readers[:-1]:
            with suppress(ValueError):
                return read_part(value)
        return readers[-1](value)

    return read


def _repeated(origin: Any, read_part: Reader) -> Reader:
    types, made = Iterable if origin is Sequence else (tuple, list), tuple if origin is tuple else list

    def read(value: Any) -> Any:
        if type(value) is not list:
            whole = isinstance(value, types) and not isinstance(value, str | bytes | Mapping)
            _expect(whole, value, "a list")
        return made(map(read_part, value))

    return read


def _fixed(readers: Sequence[Reader]) -> Reader:
    def read(value: Any) -> Any:
        fits = isinstance(value, tuple | list) and len(value) == len(readers)
        _expect(fits, value, f"a list of {len(readers)}")
        return tuple(read_part(part) for read_part, part in zip(readers, value, strict=True))

    return read


def _mapped(key_of: Reader, value_of: Reader) -> Reader:
    def read(value: Any) -> Any:
        _expect(isinstance(value, dict), value, "an object")
        return {key_of(key): value_of(part) for key, part in value.items()}

    return read


def _built(kind: Any) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {f.name: (hints[f.name], _reader(hints[f.name])) for f in fields(kind)}
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        _expect(isinstance(value, dict), value, "an object")
        values = {}
        for name, (hint, read_field) in readers.items():
            if name in value:
                part = value[name]
                try:
                    values[name] = part if type(part) is hint else read_field(part)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
            elif name in required:
                raise ValueError(f"{name} is missing")
        return kind(**values)

    return read
