"""The structs that C++ takes, written from the named tuples that Python hands over, and constants of both."""

from enum import IntEnum
from types import ModuleType
from typing import Any, get_args, get_type_hints

import numpy as np

ELEMENTS = {
    np.float32: "float",
    np.float64: "double",
    np.int8: "int8_t",
    np.int16: "int16_t",
    np.int32: "int32_t",
    np.int64: "int64_t",
    np.uint8: "uint8_t",
    np.uint32: "uint32_t",
    np.bool_: "bool",
}
NUMBERS = {int: "int64_t", bool: "int64_t", float: "double", np.float32: "double"}


def header(arguments: type[Any], *constants: ModuleType | type[IntEnum]) -> str:
    """A C++ header: the named tuple `arguments` and those in it as structs, and the numbers of modules and
    enums as constants.
    """
    found: dict[str, str] = {}
    _add_struct(arguments, found)
    lines = [line for module in constants for line in _constants(module)]
    return "\n".join(
        [
            "// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.",
            "#pragma once",
            '#include "vectors.h"',
            "",
            *lines,
            *found.values(),
            "",
        ]
    )


def _constants(source: ModuleType | type[IntEnum]) -> list[str]:
    if isinstance(source, ModuleType):
        known = {name: value for name, value in vars(source).items() if name.isupper() and name[0] != "_"}
    else:
        known = {member.name: member.value for member in source}
    kinds = {int: "int64_t", float: "double"}
    return [
        f"constexpr {kinds[type(value)]} {name} = {value!r};"
        for name, value in known.items()
        if type(value) in kinds
    ]


def _add_struct(kind: type[Any], found: dict[str, str]) -> None:
    """The struct of a named tuple, after those that it holds."""
    fields = []
    for name, hint in get_type_hints(kind).items():
        if hasattr(hint, "_fields"):
            _add_struct(hint, found)
            fields.append(f"    {hint.__name__} {name};")
        elif hint in NUMBERS:
            fields.append(f"    {NUMBERS[hint]} {name};")
        else:
            (element,) = get_args(get_args(hint)[1])
            fields.append(f"    Array<{ELEMENTS[element]}> {name};")
    found[kind.__name__] = "\n".join(["", f"struct {kind.__name__} {{", *fields, "};"])


def declared(kind: Any) -> str:
    """As engine.arguments.described of a value of this type."""
    if hasattr(kind, "_fields"):
        parts = (f"{name}: {declared(hint)}" for name, hint in get_type_hints(kind).items())
        return f"{kind.__name__}({', '.join(parts)})"
    if kind in NUMBERS:
        return str(kind.__name__)
    (element,) = get_args(get_args(kind)[1])
    return f"{np.dtype(element).str}[:]"
