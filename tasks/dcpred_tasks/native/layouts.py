"""C++ structs, written from the named tuples of Python that hold arguments, and shared constants."""

from collections.abc import Mapping
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
CONSTANTS = {int: "int64_t", float: "double", np.float32: "float"}
NUMBERS = {int: "int64_t", bool: "int64_t", float: "double", np.float32: "double"}


KEYWORDS = {"double"}


def header(arguments: type[Any], constants: Mapping[str, Any]) -> str:
    """A C++ header: the named tuple `arguments` and those in it as structs, and the numbers among
    `constants`.
    """
    found: dict[str, str] = {}
    _add_struct(arguments, found)
    lines = [
        f"constexpr {CONSTANTS[type(value)]} {name} = {np.asarray(value).item()!r};"
        for name, value in constants.items()
        if name.isupper() and type(value) in CONSTANTS
    ]
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


def _add_struct(kind: type[Any], found: dict[str, str]) -> None:
    """Add the struct of a named tuple, after the nested ones."""
    fields = []
    for given, hint in get_type_hints(kind).items():
        name = f"{given}_" if given in KEYWORDS else given
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
    """The result of engine.arguments.described for a value of this type."""
    if hasattr(kind, "_fields"):
        parts = (f"{name}: {declared(hint)}" for name, hint in get_type_hints(kind).items())
        return f"{kind.__name__}({', '.join(parts)})"
    if kind in NUMBERS:
        return str(kind.__name__)
    (element,) = get_args(get_args(kind)[1])
    return f"{np.dtype(element).str}[:]"
