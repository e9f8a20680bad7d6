"""The bitcode of refinement: what numba makes of `refine_leaf` and all that it calls, as LLVM's intermediate
code for no processor in particular (see dcpred_tasks.engine_source.bitcode).
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np

from dcpred_tasks.engine.arguments import WORD, described
from dcpred_tasks.engine.machine_code import fingerprint_of_sources
from dcpred_tasks.engine_source.bitcode import _simplify
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.refinement_source.descent import refine_leaf
from dcpred_tasks.training.compiled_refinement import REFINEMENT, Arguments, arguments
from dcpred_tasks.training.refinement import Goal, Objective


def smallest_leaf() -> Arguments:
    """One row, one landmark: types are the same for every leaf."""
    one, pairs = np.ones((1, 1), np.float32), np.empty((0, 2), np.int32)
    basis = LeafBasis(Kernel("rbf", 1.0), "lower", one, one[0], pairs, np.empty((0, 1), np.float32))
    goal = Goal(target=one, guide=one, share=0.0, weight=one[0], loss="hinge")
    return arguments(Objective(one, basis, np.ones((1, 1)), np.ones(1), goal, 0.0), 1, 0.0)


def make() -> tuple[bytes, str]:
    """The bitcode, and the description of the arguments that it takes."""
    handed = smallest_leaf()
    refine_leaf.compile(tuple(numba.typeof(a) for a in handed))
    (text,) = refine_leaf.inspect_llvm().values()
    module = llvm.parse_assembly(text)
    (function,) = (f for f in module.functions if not f.is_declaration and "11refine_leafB" in f.name)
    module.link_in(llvm.parse_assembly(_entry(function)))
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration and value.name != REFINEMENT.entry:
            value.linkage = "internal"
    _simplify(module)
    return module.as_bitcode(), described(handed)


def _entry(function: Any) -> str:
    """The function that training calls: with the address of its arguments, flattened, a word for each."""
    lines, handed = [], ["ptr %result", "ptr %error"]
    kinds = [str(argument.type) for argument in function.arguments]
    for k, kind in enumerate(kinds[len(handed) :]):
        lines += [
            f"%p{k} = getelementptr i8, ptr %arguments, i64 {WORD * k}",
            f"%a{k} = load {kind}, ptr %p{k}",
        ]
        handed.append(f"{kind} %a{k}")
    name = f'@"{function.name}"'
    return "\n".join(
        [
            f"declare i32 {name}({', '.join(kinds)})",
            f"define i32 @{REFINEMENT.entry}(ptr %arguments) {{",
            "%result = alloca ptr",
            "%error = alloca ptr",
            *lines,
            f"%status = call i32 {name}({', '.join(handed)})",
            "ret i32 %status",
            "}",
        ]
    )


def main(folder: Path) -> None:
    code, handed = make()
    made_of = {
        "sources": fingerprint_of_sources(REFINEMENT),
        "arguments": handed,
        "made_with": {
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
        },
    }
    (folder / f"{REFINEMENT.name}.bc").write_bytes(code)
    (folder / f"{REFINEMENT.name}.json").write_text(json.dumps(made_of, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
