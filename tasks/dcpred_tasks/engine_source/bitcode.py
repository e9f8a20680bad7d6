"""The engine's bitcode: what numba makes of `score_tiles` and all that it calls, as LLVM's intermediate code
for no processor in particular.

Numba is here for what it understands, not for how it optimises: it would optimise and lower every function
once for each of its callers, and takes a minute for what LLVM does in three seconds to the whole at once.
"""

import json
import platform
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np

from dcpred_tasks.engine.arguments import WORD, described
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.instructions import NAMES
from dcpred_tasks.engine.machine_code import BITCODE, ENTRY, MADE_OF, fingerprint_of_sources
from dcpred_tasks.engine_source.descent_pass import score_tiles
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree

# Functions that stay functions: they are large, are called once a tile, and would leave fewer registers to
# the loops beside them.
CALLED = (
    "load_centred",
    "load_columns",
    "load_gap_rows",
    "load_logarithms",
    "map_rows",
    "read_columns",
    "walk_fixed",
)


def smallest_model() -> Model:
    """One feature, one leaf, one landmark: types are the same for every model."""
    none, kernel = np.empty(0, np.float32), Kernel("rbf", gamma=1.0)
    return Model(
        task="classification",
        classes=(0, 1),
        kernel=kernel,
        local_kernel=kernel,
        triangle_bound="lower",
        scaling=Scaling(shift=np.zeros(1), factor=np.ones(1)),
        tree=Tree(np.array([0]), np.empty(0, np.int32), np.empty((0, 1), np.float32)),
        landmark_at=np.array([0, 1]),
        landmarks=np.ones((1, 1), np.float32),
        gamma=np.ones(1, np.float32),
        pair_at=np.array([0, 0]),
        pairs=np.empty((0, 2), np.int32),
        triangle_at=np.array([0, 0]),
        triangle=none,
        beta_at=np.array([0, 1]),
        beta=np.ones((1, 1), np.float32),
        intercept=np.zeros((1, 1)),
        bounds=np.empty((1, 0)),
        leaf_factor=np.empty((1, 0), np.float32),
        leaf_rows=np.array([1]),
    )


def make() -> tuple[bytes, str]:
    """The bitcode, and the description of the arguments that it takes."""
    not_yet: Any = SimpleNamespace(entry=lambda: None)  # The code that is there is of other sources.
    engine = Engine(smallest_model(), not_yet)
    arguments = engine.arguments(np.zeros((1, 1), np.float32))
    score_tiles.compile(tuple(numba.typeof(a) for a in arguments))
    (text,) = score_tiles.inspect_llvm().values()
    module = llvm.parse_assembly(text)
    _add_entry(module)
    _shorten_names(module)
    _simplify(module)
    return module.as_bitcode(), described(arguments)


def _add_entry(module: Any) -> None:
    """The function that the engine calls: with the address of its arguments, flattened, a word for each. It
    returns numba's status: positive where an index left its array.
    """
    (function,) = (f for f in module.functions if not f.is_declaration and "11score_tilesB" in f.name)
    kinds = [str(argument.type) for argument in function.arguments]
    lines = ["%result = alloca ptr", "%error = alloca ptr"]
    handed = ["ptr %result", "ptr %error"]
    assert kinds[:2] == ["ptr", "ptr"]
    for k, kind in enumerate(kinds[2:]):
        lines += [f"%p{k} = getelementptr i8, ptr %arguments, i64 {WORD * k}"]
        lines += [f"%a{k} = load {kind}, ptr %p{k}"]
        handed.append(f"{kind} %a{k}")
    name = f'@"{function.name}"'
    lines += [f"%status = call i32 {name}({', '.join(handed)})", "ret i32 %status"]
    body = "\n".join(lines)
    entry = f"define i32 @{ENTRY}(ptr %arguments) {{\n{body}\n}}\ndeclare i32 {name}({', '.join(kinds)})"
    module.link_in(llvm.parse_assembly(entry))


def _shorten_names(module: Any) -> None:
    """A name as in the source for every function but the entry, which alone is seen from outside, and those
    that a processor may have of its own.
    """
    for value in [*module.functions, *module.global_variables]:
        if value.is_declaration or value.name in (ENTRY, *NAMES):
            continue
        value.linkage = "internal"
        parts = re.split(r"B\d+[vc]\d+", value.name.removeprefix("_ZN"))[0]
        found = re.findall(r"\d+([A-Za-z_]\w*?)(?=\d+[A-Za-z_]|$)", parts)
        value.name = found[-1] if found else value.name
        if value.is_function and value.name in CALLED:
            value.add_function_attribute("noinline")


def _simplify(module: Any) -> None:
    """Inline, and do what needs no processor to be known: vectors and unrolled loops come later."""
    llvm.initialize_native_target()
    target = llvm.Target.from_default_triple().create_target_machine(cpu="generic", opt=3)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)


def main(folder: Path) -> None:
    code, arguments = make()
    made_of = {
        "sources": fingerprint_of_sources(),
        "arguments": arguments,
        "made_with": {
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
        },
    }
    (folder / BITCODE).write_bytes(code)
    (folder / MADE_OF).write_text(json.dumps(made_of, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
