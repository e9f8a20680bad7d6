"""Machine code of bitcode: for which processor, from which cache."""

import ctypes
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

import llvmlite.binding as llvm
import numpy as np

from dcpred_tasks.engine import tiles
from dcpred_tasks.engine.compiler import CompilerError, Turn, errors_of_llvm
from dcpred_tasks.engine.native_modules import (
    ENGINE,
    NAMES_OF_FUNCTIONS,
    Bitcode,
    described,
    words_and_kinds,
)
from dcpred_tasks.errors import RefusedError, ResourceError, SettingsError
from dcpred_tasks.process import NON_BLOCKING, at_fork, lock_file, user_number

PAIR_PRODUCTS, HAS_PAIR_PRODUCTS = "pair_products", "has_pair_products"
HAS_WIDE_VECTORS = "has_wide_vectors"
DIGIT_SUMS, HAS_DIGIT_SUMS = "digit_sums", "has_digit_sums"
PERMUTED, PERMUTED_SHORTS, HAS_PERMUTES = "permuted", "permuted_shorts", "has_permutes"
NAMES = (
    *(PAIR_PRODUCTS, HAS_PAIR_PRODUCTS, HAS_WIDE_VECTORS, DIGIT_SUMS, HAS_DIGIT_SUMS),
    *(PERMUTED, PERMUTED_SHORTS, HAS_PERMUTES),
)

# By the required extensions, in LLVM's words.
NATIVE_OPS = {
    # Any x86 processor: only a model packed for tiles (tiles.py) calls it.
    ("avx2",): tiles.digit_sums(DIGIT_SUMS) + f"define i1 @{HAS_DIGIT_SUMS}() alwaysinline {{ ret i1 true }}",
    ("avx512f",): f"define i1 @{HAS_WIDE_VECTORS}() alwaysinline {{ ret i1 true }}",
    ("avx512f", "avx512bw", "avx512vnni"): f"""
declare <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <16 x i32>, <16 x i32>)
define <16 x i32> @{PAIR_PRODUCTS}(<16 x i32> %total, <16 x i32> %x, <16 x i32> %c) alwaysinline {{
  %sum = call <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32> %total, <16 x i32> %x, <16 x i32> %c)
  ret <16 x i32> %sum
}}
define i1 @{HAS_PAIR_PRODUCTS}() alwaysinline {{ ret i1 true }}
""",
    ("avx512f", "avx512bw"): f"""
declare <16 x float> @llvm.x86.avx512.vpermi2var.ps.512(<16 x float>, <16 x i32>, <16 x float>)
declare <32 x i16> @llvm.x86.avx512.vpermi2var.hi.512(<32 x i16>, <32 x i16>, <32 x i16>)
define <16 x float> @{PERMUTED}(<16 x float> %a, <16 x float> %b, <16 x i32> %i) alwaysinline {{
  %r = call <16 x float> @llvm.x86.avx512.vpermi2var.ps.512(<16 x float> %a, <16 x i32> %i, <16 x float> %b)
  ret <16 x float> %r
}}
define <32 x i16> @{PERMUTED_SHORTS}(<32 x i16> %a, <32 x i16> %b, <32 x i16> %i) alwaysinline {{
  %r = call <32 x i16> @llvm.x86.avx512.vpermi2var.hi.512(<32 x i16> %a, <32 x i16> %i, <32 x i16> %b)
  ret <32 x i16> %r
}}
define i1 @{HAS_PERMUTES}() alwaysinline {{ ret i1 true }}
""",
}


def link_native(module: Any, has: set[str]) -> None:
    """Link the functions of a processor with these extensions into a module of the bitcode."""
    for needed, text in NATIVE_OPS.items():
        if set(needed) <= has:
            module.link_in(llvm.parse_assembly(text))
    for function in module.functions:
        if function.name in NAMES:
            function.linkage = "internal"


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
    has, target = _own_features(), None
    for level, features in LEVELS.items():
        if not features <= has:
            break
        target = Target(level)
    return target


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
    """Raise CompilerError for an x86 processor without AVX2 and FMA, where NumPy is faster."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return
    if lacking := sorted({"avx2", "fma"} - _own_features()):
        raise CompilerError(
            f"this processor lacks {' and '.join(lacking)}, without which machine code is slow"
        )


def _own_features() -> set[str]:
    return {name for name, there in llvm.get_host_cpu_features().items() if there}


FOLDER = Path(__file__).parent
PATIENCE_SECONDS = 600.0  # longest wait for another process that compiles (five seconds on an idle core)
LOOK_SECONDS = 0.1  # time between two checks
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
DIGEST_BYTES = 16  # in front of cached code
DAY_SECONDS = 86_400.0
KEPT_SECONDS = 30 * DAY_SECONDS  # unused machine code of other versions is removed after this time
NAME_OF_FOLDER = re.compile("dcpred-[0-9a-f]{16}")
KEPT_SUFFIXES = {".o", ".lock", ".partial"}


Entry = Callable[[int], int]


class MachineCode:
    """The machine code of some bitcode for one processor.

    Several processes may need it at once:

    1. A finds no file, takes the lock, and compiles for some seconds.
    2. B finds no file and no free lock, and checks again every LOOK_SECONDS.
    3. A writes its file under another name, and renames it when it is complete. B loads it.
    4. Or A dies: its lock is free, B takes it, and compiles.
    5. Or A hangs: after PATIENCE_SECONDS B compiles, too. Both write the same file, and either is complete.

    An incomplete file (after a power failure) is ignored. Where no file can be written, the code is compiled
    for this process alone.
    """

    def __init__(
        self, bitcode: bytes, target: Target, *others: Target, entry: str = ENGINE.entry, quick: bool = False
    ) -> None:
        """others  processors whose machine code also serves where it exists
        entry   the name of the function that is called
        quick   whether few passes are enough
        """
        self.bitcode, self.target, self.others = bitcode, target, others
        self.called, self.quick = entry, quick
        self.folders = [base / _name_of(bitcode) for base in _bases()]
        self.has_compiled = False
        self._code: bytes | None = None
        self._entries: dict[str, Entry] = {}
        self._one_thread = Turn()

    def is_there(self) -> bool:
        """Whether machine code exists, in this process or on disk."""
        return self._code is not None or self.cached() is not None

    def entry(self, name: str = "") -> Entry:
        """The compiled function, or another one by name, which takes the address of its arguments. Raises
        CompilerError.
        """
        name = name or self.called
        with self._one_thread:
            if name not in self._entries:
                self._code = self._code or self.make()
                with errors_of_llvm():
                    self._entries[name] = _load(self._code, name)
        return self._entries[name]

    def make(self) -> bytes:
        """The machine code, read from the cache, or compiled and cached."""
        with self._turn():
            code = self.cached()
            if code is None:
                with errors_of_llvm():
                    code = compile_bitcode(self.bitcode, self.target, self.quick)
                self.has_compiled = True
                self._keep(code)
        return code

    def places(self) -> list[Path]:
        """The possible paths, the best one first."""
        return [place for place, _ in self._places()]

    def _places(self) -> list[tuple[Path, Target]]:
        targets = (self.target, *self.others)
        return [(folder / f"{target.name}.o", target) for target in targets for folder in self.folders]

    def cached(self) -> bytes | None:
        """The machine code on disk, or None."""
        for place, target in self._places():
            with suppress(OSError):
                content = _read_trusted(place)
                digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
                if digest == self._digest(code, target):
                    _note_use(place)
                    return code
        return None

    def _digest(self, code: bytes, target: Target) -> bytes:
        """A digest of machine code and of its sources: the name may hold other code."""
        key = repr((self.called, self.quick, target, llvm.llvm_version_info)).encode() + self.bitcode
        made_from = hashlib.blake2b(key).digest()
        return hashlib.blake2b(code, digest_size=DIGEST_BYTES, key=made_from).digest()

    def _keep(self, code: bytes) -> None:
        """Write it into the first folder that takes it."""
        digest = self._digest(code, self.target)
        for place in self.places()[: len(self.folders)]:
            partial = place.with_name(f"{place.name}.{uuid4().hex}.partial")
            try:
                _make_folder(place.parent)
                with open(partial, "xb", opener=_only_mine) as file:
                    file.write(digest + code)
                partial.replace(place)
                _forget_old(place.parent)
                return
            except OSError:
                with suppress(OSError):
                    partial.unlink()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until machine code exists, or is to be compiled here; not where files cannot be locked."""
        with ExitStack() as held:
            if not self.is_there():
                lock = next(filter(None, map(_opened, self.places())), None)
                if lock is not None:
                    held.enter_context(lock)
                    _locks.add(lock)
                    held.callback(_locks.discard, lock)
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    with suppress(OSError):
                        while not lock_file(lock) and not self.is_there() and time.monotonic() < deadline:
                            time.sleep(LOOK_SECONDS)
            yield


_locks: set[Any] = set()  # files that this process has opened to lock them


def _close_locks() -> None:
    """In a child process: an open file would extend a lock of the parent."""
    for lock in _locks:
        lock.close()
    _locks.clear()


at_fork(after_in_child=_close_locks)


def _note_use(place: Path) -> None:
    """Set the time of modification of used code, to a day: not every file system keeps times of access."""
    with suppress(OSError):
        if time.time() - place.stat().st_mtime > DAY_SECONDS:
            os.utime(place)


def _forget_old(current: Path) -> None:
    """Remove machine code of other versions beside the folder `current`, unused for KEPT_SECONDS."""
    with suppress(OSError):
        known = {current.name, *(_name_of(path.read_bytes()) for path in FOLDER.parent.glob("*/*.bc"))}
        for folder in current.parent.iterdir():
            if folder.name not in known and NAME_OF_FOLDER.fullmatch(folder.name) and not folder.is_symlink():
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    with suppress(OSError):
        files = [file for file in folder.iterdir() if file.suffix in KEPT_SUFFIXES]
        used = [max(status.st_atime, status.st_mtime) for status in map(Path.lstat, files)]
        if time.time() - max(used, default=folder.stat().st_mtime) > KEPT_SECONDS:
            for file in files:
                file.unlink(missing_ok=True)
            folder.rmdir()


def _opened(place: Path) -> Any:
    """The lock beside a path of machine code, or None where locks are impossible."""
    with suppress(OSError):
        _make_folder(place.parent)
        return open(place.with_suffix(".lock"), "a", opener=_only_mine)
    return None


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, writable only for this user whatever the umask. Raises OSError."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o755, exist_ok=True)
    _check_folder(folder)


def _only_mine(path: str, flags: int) -> int:
    return os.open(path, flags | NON_BLOCKING, 0o644)


def _read_trusted(place: Path) -> bytes:
    """The content of a file that only this user, or root, could write: it will run. Raises OSError."""
    _check_folder(place.parent)
    with open(place, "rb", opener=_only_mine) as file:  # does not block on a pipe
        status = os.fstat(file.fileno())
        _check_trusted(place, status)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(place))
        return file.read()


def _check_folder(folder: Path) -> None:
    """Raise OSError unless only this user, or root, can put files into a folder, or another folder into its
    place. A folder of this user is closed to others first: its files are checked one by one.
    """
    above, status = folder.parent.stat(), folder.stat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        _distrust(folder.parent, _writable(above))
    if status.st_uid == user_number() and status.st_mode & WRITTEN_BY_OTHERS:
        with suppress(OSError):
            folder.chmod(stat.S_IMODE(status.st_mode) & ~WRITTEN_BY_OTHERS)
            status = folder.stat()
    _check_trusted(folder, status)


def _check_trusted(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, user_number()):
        _distrust(path, f"it belongs to user {status.st_uid}")
    if status.st_mode & WRITTEN_BY_OTHERS:
        _distrust(path, _writable(status))


def _writable(status: os.stat_result) -> str:
    return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})"


def _distrust(path: Path, why: str) -> NoReturn:
    """Raise PermissionError, and warn about each path once."""
    sentence = (
        f"Cannot use the machine code in {path}: {why}. Remove it, or set DCPRED_CACHE_DIR to a folder that"
        " only you can write to."
    )
    if sentence not in _distrusted:
        _distrusted.add(sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
    raise PermissionError(errno.EACCES, sentence, str(path))


_distrusted: set[str] = set()  # paths that this process has warned about


def _bases() -> Iterator[Path]:
    """Folders for machine code: $DCPRED_CACHE_DIR, the user's cache, a temporary folder. A read-only one
    (part of an image, or mounted read-only) also serves. None where files have no owner, as on Windows: each
    process then compiles.
    """
    if not hasattr(os, "getuid"):
        return
    with suppress(RuntimeError):  # some users have no home
        if os.environ.get("DCPRED_CACHE_DIR"):
            yield Path(os.environ["DCPRED_CACHE_DIR"]).expanduser().absolute()
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        yield cache if cache.is_absolute() else Path.home() / ".cache"
    temporary = Path(tempfile.gettempdir()) / f"dcpred-{user_number()}"
    with suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        status = temporary.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user_number() and not status.st_mode & 0o022:
            yield temporary


def _name_of(bitcode: bytes) -> str:
    """The name of a folder for the output of this LLVM for the bitcode on this kind of machine."""
    return f"dcpred-{_digest(bitcode + f'{llvm.llvm_version_info} {llvm.get_process_triple()}'.encode())}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


# -- LLVM ----------------------------------------------------------------------------------------------------

_loaded: list[Any] = []  # objects that machine code needs in memory


def compile_bitcode(bitcode: bytes, target: Target, quick: bool = False) -> bytes:
    """An object file for the processor, with few passes if `quick`."""
    module, machine = llvm.parse_bitcode(bitcode), _machine(target)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    link_native(module, target.has)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    options.loop_unrolling = False  # Hot loops are already unrolled; others only cost compile time.
    builder = llvm.create_pass_builder(machine, options)
    passes = _few_passes() if quick else builder.getModulePassManager()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))


def _few_passes() -> Any:
    """Passes that select instructions of the processor and remove dead branches. The rest ran when the
    bitcode was built: all passes take twice as long to compile, and rows are no faster (DECISIONS.md).
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_ipsccp_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    return passes


def _machine(target: Target) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


def _load(code: bytes, entry: str) -> Entry:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(host()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(entry)
    if not address:
        raise CompilerError(f"LLVM finds no function {entry} in the machine code")
    _loaded.append(engine)
    # A function of ctypes releases the GIL while it runs.
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)


# -- what comes with the package -----------------------------------------------------------------------------


def fingerprint_of_sources(of: Bitcode) -> str:
    """A digest of the sources of bitcode. Raises OSError without sources."""
    return _digest(b"\0".join(of.read_sources().values()))


def own_code(of: Bitcode) -> MachineCode:
    """The machine code of bitcode for this processor. Raises RefusedError where the bitcode was built from
    other sources, which the user has changed since.
    """
    with _ONE_THREAD:
        return _own_code(of)


_ONE_THREAD = Turn()


@lru_cache
def _own_code(of: Bitcode) -> MachineCode:
    _check_made_of(of)
    bitcode = of.code
    with errors_of_llvm():
        check_is_fast()
        if target := pinned():
            check_runs_here(target)
            return MachineCode(bitcode, target, entry=of.entry, quick=of.quick)
        return MachineCode(bitcode, host(), *filter(None, [host_level()]), entry=of.entry, quick=of.quick)


def _check_made_of(of: Bitcode) -> None:
    with suppress(OSError):  # an installation of byte code only has no sources
        if made_of(of)["sources"] != fingerprint_of_sources(of):
            raise RefusedError(
                f"Cannot use {of.name}.bc: it was built from other sources than dcpred_tasks.native has now."
                f" {of.remake}."
            )


def warm(name: str, of: Bitcode) -> MachineCode:
    """Machine code for "host" or a level (as pinned, if it is), compiled if necessary, in the first writable
    cache folder. Raises SettingsError for another name, ResourceError where it cannot be cached.
    """
    if name != "host" and name not in LEVELS:
        raise SettingsError(
            f"Cannot make machine code for {name}: the choices are host, {' and '.join(LEVELS)}. Use one of"
            " them."
        )
    _check_made_of(of)
    with errors_of_llvm():
        return _warm(name, of)


def _warm(name: str, of: Bitcode) -> MachineCode:
    known = {"host": host(), **{level: Target(level) for level in LEVELS}}
    if target := pinned():
        known[target.cpu] = target
    code = MachineCode(of.code, known[name], entry=of.entry, quick=of.quick)
    code.folders = code.folders[:1]
    code.make()
    if code.cached() is None:
        place = code.places()[0] if code.folders else "a cache"
        raise ResourceError(
            f"Cannot write machine code to {place}. Set DCPRED_CACHE_DIR to a writable folder."
        )
    return code


@lru_cache
def made_of(of: Bitcode) -> Any:
    """The content of its .json: fingerprint of sources, what each function takes, versions."""
    file = of.folder / f"{of.name}.json"
    content = None
    with suppress(ValueError, FileNotFoundError):
        content = json.loads(file.read_text(encoding="utf-8"))
    if not (isinstance(content, dict) and {"sources", "functions"} <= content.keys()):
        raise RefusedError(
            f"Cannot use {file}: it is missing or damaged. {of.remake}, or install dcpred again."
        )
    return content


def load(of: Bitcode) -> None:
    """Compile bitcode, unless that is done, and load it. Raises CompilerError."""
    own_code(of).entry()
    made_of(of)


def check_taken(of: Bitcode, arguments: tuple[Any, ...]) -> None:
    """Raise RefusedError where the bitcode was made for other arguments."""
    if described(arguments) != made_of(of)["functions"].get(NAMES_OF_FUNCTIONS[type(arguments)]):
        raise RefusedError(f"Cannot use {of.name}.bc: it was made for other arguments. {of.remake}.")


_TAKEN: set[tuple[Any, ...]] = set()  # kinds of arguments that were compared with those of bitcode


def prepared(of: Bitcode, arguments: tuple[Any, ...]) -> Callable[[], None]:
    """Compiled code with its arguments, to be run as often as needed while these live."""
    numbers, kinds = words_and_kinds(arguments)
    if kinds not in _TAKEN:
        check_taken(of, arguments)
        _TAKEN.add(kinds)
    block = np.array(numbers, np.int64)
    function = own_code(of).entry(NAMES_OF_FUNCTIONS[type(arguments)])

    def run() -> None:
        code = function(block.__array_interface__["data"][0])
        if code != 0:
            raise IndexError(f"compiled code left an array, and ended with status {code}")

    return run


if __name__ == "__main__":  # The command of scoring.scorer.compiled_ahead.
    own_code(ENGINE).make()
