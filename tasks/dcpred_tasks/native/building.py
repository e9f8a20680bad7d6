"""Builds bitcode from C++ sources with the compiler of the package `ziglang`, for all processors."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite.binding as llvm

from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine import engine, layout
from dcpred_tasks.engine.machine_code import ENGINE, Bitcode, fingerprint_of_sources
from dcpred_tasks.model import feature_map, symlog
from dcpred_tasks.native.layouts import declared, header
from dcpred_tasks.training import compiled_refinement, lbfgs
from dcpred_tasks.training.compiled_refinement import REFINEMENT
from dcpred_tasks.training.refinement import NEARNESS

FOLDER = Path(__file__).parent
BITCODES = (ENGINE, REFINEMENT)
ARGUMENTS = {ENGINE: engine.Arguments, REFINEMENT: compiled_refinement.Arguments}
CONSTANTS = {
    ENGINE: vars(layout)
    | {status.name: status.value for status in Status}
    | {name: getattr(feature_map, name) for name in ("MOST_KNOTS", "THIRD", "FAR")}
    | {name: getattr(symlog, name) for name in ("BITS_OF_ONE", "TOO_LARGE")},
    REFINEMENT: vars(layout) | vars(lbfgs) | {"NEARNESS": NEARNESS},
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


def write_header(bitcode: Bitcode) -> None:
    """Write NAME_layout.h from named tuples and constants of Python."""
    text = header(ARGUMENTS[bitcode], CONSTANTS[bitcode])
    (FOLDER / f"{bitcode.name}_layout.h").write_text(text, encoding="utf-8")


def build(bitcode: Bitcode, folder: Path) -> None:
    """Write NAME.bc and NAME.json into a folder. Raises CalledProcessError where C++ does not compile."""
    write_header(bitcode)
    made_of = {
        "sources": fingerprint_of_sources(bitcode),
        "arguments": declared(ARGUMENTS[bitcode]),
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
        subprocess.run(command, cwd=FOLDER, env={**os.environ, **cache}, check=True)
        # A context of its own: names of types would else depend on what the process read before.
        code = OF_ONE_PROCESSOR.sub("", text.read_text(encoding="utf-8"))
        module = llvm.parse_assembly(code, context=llvm.create_context())
    module.verify()
    return bytes(module.as_bitcode())
