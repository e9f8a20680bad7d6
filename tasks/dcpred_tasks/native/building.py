"""Build bitcode of the C++ sources, and their headers of the named tuples."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_type_hints

import llvmlite.binding as llvm
import numpy as np

from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine import engine, layout, tree_engine  # noqa: F401 - declares what `score` takes
from dcpred_tasks.engine.machine_code import fingerprint_of_sources
from dcpred_tasks.engine.native_modules import ENGINE, FUNCTIONS, NATIVE, REFINEMENT, TREES, Bitcode
from dcpred_tasks.model import feature_map, oblivious_trees
from dcpred_tasks.training import (  # noqa: F401 - declare what functions take
    compiled_calibration,
    compiled_start,
    lbfgs,
    losses,
    tree_boosting,
)
from dcpred_tasks.training.compiled_refinement import MOST_NEAR
from dcpred_tasks.training.learned_scaling import SLOPE_DECAY, SQUARE_LEFT
from dcpred_tasks.training.objective import NEARNESS
from dcpred_tasks.training.refinement import MEAN_DECAY, SQUARE_DECAY, TINY

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
C_TYPES = {int: "int64_t", float: "double", np.float32: "float"}
NUMBERS = {int: "int64_t", bool: "int64_t", float: "double", np.float32: "double"}


KEYWORDS = {"double"}


def header(arguments: Iterable[type[Any]], constants: Mapping[str, Any]) -> str:
    """A C++ header: `arguments` and named tuples in them as structs, and the numbers among `constants`."""
    fields: dict[str, str] = {}
    for kind in arguments:
        _add_struct(kind, fields)
    lines = [
        f"constexpr {C_TYPES[type(value)]} {name} = {np.asarray(value).item()!r};"
        for name, value in constants.items()
        if name.isupper() and type(value) in C_TYPES
    ]
    return "\n".join(
        [
            "// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.",
            "#pragma once",
            '#include "vectors.h"',
            "",
            *lines,
            *fields.values(),
            "",
        ]
    )


def _add_struct(kind: type[Any], structs: dict[str, str]) -> None:
    """Add the struct of a named tuple, after the nested ones."""
    fields = []
    for given, hint in get_type_hints(kind).items():
        name = f"{given}_" if given in KEYWORDS else given
        if hasattr(hint, "_fields"):
            _add_struct(hint, structs)
            fields.append(f"    {hint.__name__} {name};")
        elif hint in NUMBERS:
            fields.append(f"    {NUMBERS[hint]} {name};")
        else:
            (element,) = get_args(get_args(hint)[1])
            fields.append(f"    Array<{ELEMENTS[element]}> {name};")
    structs[kind.__name__] = "\n".join(["", f"struct {kind.__name__} {{", *fields, "};"])


def declared(kind: Any) -> str:
    """The result of native_modules.described for a value of this type."""
    if hasattr(kind, "_fields"):
        parts = (f"{name}: {declared(hint)}" for name, hint in get_type_hints(kind).items())
        return f"{kind.__name__}({', '.join(parts)})"
    if kind in NUMBERS:
        return str(kind.__name__)
    (element,) = get_args(get_args(kind)[1])
    return f"{np.dtype(element).str}[:]"


CONSTANTS = {
    ENGINE: vars(layout)
    | {status.name: status.value for status in Status}
    | {name: getattr(feature_map, name) for name in ("MOST_KNOTS", "THIRD", "FAR")},
    REFINEMENT: vars(layout)
    | vars(lbfgs)
    | {"NEARNESS": NEARNESS, "MEAN_DECAY": MEAN_DECAY, "SQUARE_DECAY": SQUARE_DECAY, "TINY": TINY}
    | {"SLOPE_DECAY": SLOPE_DECAY, "SQUARE_LEFT": SQUARE_LEFT, "MOST_NEAR": MOST_NEAR},
    TREES: {"LANES": layout.LANES, "NEVER": oblivious_trees.NEVER, "MOST_DEPTH": oblivious_trees.MOST_DEPTH}
    | vars(tree_engine)
    | {"SHARPNESS": losses.SHARPNESS, "NORMAL": losses.NORMAL, "ROBUST": losses.Huber.native}
    | {
        name: getattr(tree_boosting, name)
        for name in ("ROW_SHARE", "PATIENCE", "MOST_SKETCHED", "WHOLE_BITS")
    }
    | {name: getattr(tree_boosting, name) for name in ("ROBUST_STEPS", "SETTLED_TREES")},
}
# Automatic vectorisation and unrolling come later, on the machine where the code runs.
COMPILE = (
    *(
        "-target",
        "x86_64-linux-gnu.2.28",
        "-mcpu=x86_64_v4",
        "-std=c++20",
        "-O2",
        "-ffp-contract=off",
        "-fno-math-errno",
    ),
    *("-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops", "-fno-exceptions", "-fno-rtti"),
    *(
        "-g0",
        "-fno-stack-protector",
        "-fno-sanitize=all",
        "-fno-ident",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
    ),
    *("-Wno-psabi", "-Wno-unused-command-line-argument", "-S", "-emit-llvm"),
)
# Attributes of the processor that the compiler was called for.
OF_ONE_PROCESSOR = re.compile(r'"(target-cpu|target-features|tune-cpu|min-legal-vector-width)"="[^"]*" ?')


def functions(bitcode: Bitcode) -> dict[str, type]:
    """The arguments of its functions, in an order that no import changes."""
    return dict(sorted(FUNCTIONS[bitcode].items()))


def write_header(bitcode: Bitcode) -> None:
    """Write NAME_layout.h from named tuples and constants of Python."""
    text = header(functions(bitcode).values(), CONSTANTS[bitcode])
    (NATIVE / f"{bitcode.name}_layout.h").write_text(text, encoding="utf-8")


def build(bitcode: Bitcode, folder: Path) -> None:
    """Write NAME.bc and NAME.json into a folder. Raises CalledProcessError where C++ does not compile."""
    write_header(bitcode)
    made_of = {
        "sources": fingerprint_of_sources(bitcode),
        "functions": {name: declared(arguments) for name, arguments in functions(bitcode).items()},
        "made_with": {name: version(name) for name in ("ziglang", "llvmlite")},
    }
    (folder / f"{bitcode.name}.bc").write_bytes(compiled(bitcode))
    (folder / f"{bitcode.name}.json").write_text(json.dumps(made_of, indent=1) + "\n", encoding="utf-8")


def compiled(bitcode: Bitcode) -> bytes:
    """The bitcode of NAME.cpp."""
    with TemporaryDirectory() as folder:
        text = Path(folder) / "code.ll"
        command = [sys.executable, "-m", "ziglang", "c++", *COMPILE, f"{bitcode.name}.cpp", "-o", str(text)]
        cache = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        subprocess.run(command, cwd=NATIVE, env={**os.environ, **cache}, check=True)
        # A context of its own: names of types would else depend on what the process read before.
        code = OF_ONE_PROCESSOR.sub("", text.read_text(encoding="utf-8"))
        module = llvm.parse_assembly(code, context=llvm.create_context())
    module.verify()
    return bytes(module.as_bitcode())
