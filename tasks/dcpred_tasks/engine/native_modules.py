"""The native modules of the package, and what each of their functions takes: declare another one here.

Machine code (machine_code.py), the command that builds bitcode (native/) and `dcpred warm` read BITCODES.
Nothing here needs LLVM: modules that declare arguments are imported without it.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Callable
from ctypes import addressof, c_char
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

Kind = TypeVar("Kind", bound=type)

FOLDER = Path(__file__).parent
NATIVE, TRAINING, DTYPES = (FOLDER.parent / name for name in ("native", "training", "dtypes.py"))
INCLUDED = re.compile(r'^#include "(\w+\.h)"', re.MULTILINE)


class Bitcode(NamedTuple):
    """A native module: bitcode of the package, with its entry and sources."""

    folder: Path
    name: str
    """NAME.bc holds it, NAME.json the digest of its sources."""
    entry: str
    """The entry, which takes the address of its arguments and returns 0."""
    sources: tuple[Path, ...]
    """Its sources, without the headers that they include. Names and types of arguments are compared, too."""
    quick: bool = True
    """Whether few passes suffice where it runs: it has no loop to vectorise."""

    @property
    def remake(self) -> str:
        return "Run python -m dcpred_tasks.native, which needs ziglang (pip install ziglang)"

    @property
    def code(self) -> bytes:
        """The content of its .bc."""
        return (self.folder / f"{self.name}.bc").read_bytes()

    def read_sources(self) -> dict[Path, bytes]:
        """The content of the sources and of the headers that they include. Raises OSError without sources."""
        content: dict[Path, bytes] = {}
        paths = list(self.sources)
        for path in paths:  # The list grows meanwhile.
            if path not in content:
                content[path] = path.read_bytes()
                paths += [path.parent / name for name in INCLUDED.findall(content[path].decode())]
        return content


BITCODES = ENGINE, REFINEMENT, TREES = (
    Bitcode(FOLDER, "engine", "score", (FOLDER / "layout.py", DTYPES, NATIVE / "engine.cpp")),
    Bitcode(
        TRAINING, "refinement", "refine", (TRAINING / "lbfgs.py", NATIVE / "refinement.cpp"), quick=False
    ),
    Bitcode(FOLDER, "trees", "tree_values", (FOLDER / "tree_engine.py", NATIVE / "trees.cpp")),
)

# The arguments of the functions of each native module, by name, and the names of the functions.
FUNCTIONS: defaultdict[Bitcode, dict[str, type]] = defaultdict(dict)
NAMES_OF_FUNCTIONS: dict[type, str] = {}


def taken_by(of: Bitcode, name: str = "") -> Callable[[Kind], Kind]:
    """Declare a named tuple as what a function of a native module takes, by default its entry."""

    def declare(arguments: Kind) -> Kind:
        NAMES_OF_FUNCTIONS[arguments] = name or of.entry
        FUNCTIONS[of][name or of.entry] = arguments
        return arguments

    return declare


def words(value: Any) -> list[int]:
    """The words of an integer, a float, a single, an array, or a named tuple of such.

    An array is its address and its size.
    """
    return words_and_kinds(value)[0]


def words_and_kinds(value: Any) -> tuple[list[int], tuple[Any, ...]]:
    """The words, and what `described` follows from: dtypes of arrays and types of all else."""
    numbers: list[int] = []
    kinds: list[Any] = []
    _add_words((value,), numbers, kinds)
    return numbers, tuple(kinds)


_DOUBLE, _WORD = struct.Struct("<d"), struct.Struct("<q")


def _add_words(parts: tuple[Any, ...], numbers: list[int], kinds: list[Any]) -> None:
    for part in parts:
        if isinstance(part, np.ndarray):
            kinds.append(part.dtype)
            numbers += (_address(part), part.size)
            continue
        kinds.append(type(part))
        if isinstance(part, tuple):
            _add_words(part, numbers, kinds)
        elif isinstance(part, float | np.float32):
            numbers += _WORD.unpack(_DOUBLE.pack(part))
        else:
            numbers.append(int(part))


def _address(array: Any) -> int:
    """Where an array lies, which must be contiguous."""
    if array.size and array.flags.writeable:  # NumPy's own ways take several times as long.
        return addressof(c_char.from_buffer(array))
    assert array.flags.c_contiguous
    address: int = array.__array_interface__["data"][0]
    return address


def described(value: Any) -> str:
    """Names and types of the argument of `words`. Compiled code only reads words of its own description."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return f"{value.dtype.str}[:]"
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        parts = [f"{name}: {described(part)}" for name, part in zip(fields, value, strict=True)]
        return f"{type(value).__name__}({', '.join(parts)})"
    return type(value).__name__
