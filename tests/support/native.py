"""C++ sources compiled natively with sanitizers: each index is looked at before it is used, and whatever else
goes wrong in memory or arithmetic ends the process.
"""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dcpred_tasks.engine.machine_code import Bitcode
from dcpred_tasks.native.building import FOLDER, build

COMPILE = (
    *("-shared", "-fPIC", "-std=c++20", "-O1", "-g", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"),
    *("-DDCPRED_CHECKED", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *(("-march=x86-64-v3",) if platform.machine() == "x86_64" else ()),
)
HERE = """
import sys
from support.native import Native
native = Native(sys.argv[1])
"""


def sanitized(name: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """NAME.cpp compiled into a folder: what a process gets that runs code which begins with HERE, its
    arguments and its environment. Skips the test where there is no g++ with sanitizers.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ (apt-get install g++) to compile with sanitizers")
    library = folder / f"{name}.so"
    subprocess.run([compiler, *COMPILE, f"{name}.cpp", "-o", str(library)], cwd=FOLDER, check=True)
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
    headers = {path: path.read_bytes() for path in FOLDER.glob("*_layout.h")}
    build(bitcode, folder)
    for path, known in headers.items():
        assert path.read_bytes() == known, f"{path.name} is of other named tuples: {bitcode.remake}"
    for name in (f"{bitcode.name}.json", f"{bitcode.name}.bc"):
        assert (folder / name).read_bytes() == (bitcode.folder / name).read_bytes(), bitcode.remake


class Native:
    """Stands for engine.machine_code.MachineCode."""

    def __init__(self, library: str) -> None:
        self.library: Any = ctypes.CDLL(library)

    def entry(self) -> Any:
        name = Path(self.library._name).stem
        function = self.library[{"refinement": "refine", "engine": "score"}[name]]
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int32
        return function
