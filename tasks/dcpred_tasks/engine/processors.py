"""Target processors of machine code: that of this machine, or a level that many machines share."""

import hashlib
import os
from typing import NamedTuple

import llvmlite.binding as llvm

from dcpred_tasks.engine.compiler import CompilerError
from dcpred_tasks.errors import SettingsError

# Levels of the x86-64 psABI, with LLVM's names of the features that each adds to the previous one.
LEVELS = {
    "x86-64-v3": {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
    | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
# The variables of Numba, which builders of images for several kinds of machines already set.
NAME, FEATURES = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"


class Target(NamedTuple):
    """A processor, in LLVM's words."""

    cpu: str
    """Its name, or that of a level: x86-64-v3."""
    features: str = ""
    """Features beyond or without the name: "+avx512f,-amx-tile"."""

    @property
    def has(self) -> set[str]:
        """Its known extensions: those of a level, or of `features`."""
        levels = list(LEVELS)
        below = levels[: levels.index(self.cpu) + 1] if self.cpu in levels else []
        named = {name[1:] for name in self.features.split(",") if name.startswith("+")}
        return named.union(*(LEVELS[level] for level in below))

    @property
    def name(self) -> str:
        """Its name, and a digest of the features if there are any."""
        digest = hashlib.blake2b(self.features.encode(), digest_size=8).hexdigest()[:8]
        return self.cpu + (f"-{digest}" if self.features else "")


def host() -> Target:
    """The processor of this machine."""
    return Target(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def host_level() -> Target | None:
    """The highest level of the processor of this machine, or None."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return None
    has, found = _own_features(), None
    for level, features in LEVELS.items():
        if not features <= has:
            break
        found = Target(level)
    return found


def pinned() -> Target | None:
    """The level of NUMBA_CPU_NAME, with NUMBA_CPU_FEATURES, or None. Machine code is then made for that level
    alone: an image filled on one kind of machine serves on others. Other names concern only numba.
    """
    name = os.environ.get(NAME, "")
    return Target(name, os.environ.get(FEATURES, "")) if name in LEVELS else None


def check_runs_here(target: Target) -> None:
    """Raise SettingsError where this machine lacks features of the target."""
    lacking = sorted(target.has - _own_features())
    if lacking:
        raise SettingsError(
            f"Cannot use machine code for {target.cpu}, which {NAME} requests: the processor of this machine"
            f" lacks {', '.join(lacking)}. Choose a level that it has, or unset {NAME}."
        )


def check_is_fast() -> None:
    """Raise CompilerError for an x86 processor without AVX2 and FMA: each fused product is then a call of the
    C library, and NumPy is faster.
    """
    if not llvm.get_process_triple().startswith("x86_64"):
        return
    if lacking := sorted({"avx2", "fma"} - _own_features()):
        raise CompilerError(
            f"this processor lacks {' and '.join(lacking)}, without which machine code is slow"
        )


def _own_features() -> set[str]:
    return {name for name, there in llvm.get_host_cpu_features().items() if there}
