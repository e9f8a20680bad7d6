"""C++ sources compiled natively with sanitizers: each index is looked at before it is used, and whatever else
goes wrong in memory or arithmetic ends the process.
"""

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine.native_modules import BITCODES, NATIVE, Bitcode
from dcpred_tasks.model.kernels import KERNELS, KernelNumbers
from dcpred_tasks.native.building import build

COMPILE = (
    *("-shared", "-fPIC", "-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"),
    *("-DDCPRED_CHECKED", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *(("-march=x86-64-v3",) if platform.machine() == "x86_64" else ()),
)
# Operations of native_ops.h that this processor may lack, as those that have them have them.
FORCED = """extern "C" bool has_pair_products() { return true; }
"""
# To run all, or few, cases in the least time: half of what g++ takes is for checks of pointers.
CAREFUL, QUICK = ("-O1", "-g"), ("-O0", "-g0", "-fno-sanitize=null,alignment,object-size")
HERE = """
import sys
from support.native import Native
native = Native(sys.argv[1])
"""


def _compiler() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ (apt-get install g++) to compile with sanitizers")
    return compiler


def sanitized(
    name: str, folder: Path, effort: tuple[str, ...] = CAREFUL, *, forced: bool = False
) -> tuple[list[str], dict[str, str]]:
    """NAME.cpp compiled into a folder: what a process gets that runs code which begins with HERE, its
    arguments and its environment. Skips the test where there is no g++ with sanitizers.

    forced  whether rows take the quantised walk, as on a processor with its instruction
    """
    compiler, library = _compiler(), folder / f"{name}.so"
    sources = [f"{name}.cpp"]
    if forced:
        (folder / "forced.cpp").write_text(FORCED)
        sources.append(str(folder.resolve() / "forced.cpp"))
    subprocess.run(
        [compiler, *COMPILE, *effort, *sources, "-o", str(library.resolve())], cwd=NATIVE, check=True
    )
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    # Arrays of NumPy then lie between bytes that must not be touched.
    options = {
        "LD_PRELOAD": " ".join("".join(libraries).split()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }
    return [str(library)], options


def check_made_anew(bitcode: Bitcode, folder: Path) -> None:
    """Made of its sources again, bitcode is the same to the byte, and so are the headers."""
    headers = {path: path.read_bytes() for path in NATIVE.glob("*_layout.h")}
    build(bitcode, folder)
    for path, known in headers.items():
        assert path.read_bytes() == known, f"{path.name} is of other named tuples: {bitcode.remake}"
    for name in (f"{bitcode.name}.json", f"{bitcode.name}.bc"):
        assert (folder / name).read_bytes() == (bitcode.folder / name).read_bytes(), bitcode.remake


class Native:
    """Stands for engine.machine_code.MachineCode."""

    def __init__(self, library: str) -> None:
        self.library: Any = ctypes.CDLL(library)

    def entry(self, name: str = "") -> Any:
        entries = {bitcode.name: bitcode.entry for bitcode in BITCODES}
        function = self.library[name or entries[Path(self.library._name).stem]]
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int32
        return function


KERNELS_CPP = """
#include "kernel_values.h"

extern "C" void in_lanes(int64_t family, int64_t n, const float *x, const float *constants, float *out) {
    for_form(family, [&](auto form) {
        typedef decltype(form) Form;
        Floats own[Form::n_constants];
        for (int64_t at = 0; at < n; at += LANES) {
            for (int k = 0; k < Form::n_constants; k++) own[k] = load(constants + k * n + at);
            store_as(out + at, Form::in_lanes(load(x + at), own));
        }
    });
}
extern "C" double scalar(int64_t family, double t, double *shape, int64_t size) {
    double value = 0.0;
    for_family(family, [&](auto kernel) { value = decltype(kernel)::scalar(t, Shape({shape, size})); });
    return value;
}
"""


def compile_kernels(folder: Path) -> None:
    """native/kernels.h as a library, by the compiler of ziglang. To link it with the standard library
    of C++ would take a minute: ziglang compiles that first.
    """
    (folder / "kernels.cpp").write_text(KERNELS_CPP)
    options = ("-shared", "-nostdlib++", "-fPIC", "-std=c++20", "-O1", "-ffp-contract=off", "-g0")
    command = [sys.executable, "-m", "ziglang", "c++", *options, f"-I{NATIVE}"]
    subprocess.run([*command, "kernels.cpp", "-o", "kernels.so"], cwd=folder, check=True)


class Kernels:
    """The formulas of native/kernels.h, which `compile_kernels` left in a folder."""

    def __init__(self, folder: Path) -> None:
        self._library: Any = ctypes.CDLL(str(folder / "kernels.so"))
        self._library.scalar.restype = ctypes.c_double

    def in_lanes(self, name: str, x: Any, constants: Any) -> NDArray[np.float32]:
        """e of any shape, of constants that have this shape after broadcasting."""
        n = -(-x.size // LANES) * LANES
        filled = np.zeros((1 + len(constants), n), np.float32)
        for row, values in zip(filled, (x, *constants), strict=True):
            row[: x.size] = np.broadcast_to(values, x.shape).ravel()
        out = np.zeros(n, np.float32)
        places = [ctypes.c_void_p(a.__array_interface__["data"][0]) for a in (filled, filled[1:], out)]
        self._library.in_lanes(ctypes.c_int64(KERNELS.index(name)), ctypes.c_int64(n), *places)
        return out[: x.size].reshape(x.shape)

    def scalar(self, name: str, t: float, kernel: KernelNumbers) -> float:
        number, shape = ctypes.c_int64(KERNELS.index(name)), kernel.shape
        numbers = (ctypes.c_double * len(shape))(*shape)
        return float(self._library.scalar(number, ctypes.c_double(t), numbers, ctypes.c_int64(len(shape))))
