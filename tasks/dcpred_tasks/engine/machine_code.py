"""Machine code: made of bitcode by LLVM, once per machine, and kept on disk where that is possible.

Bitcode comes with the package: `engine.bc` of the engine, `refinement.bc` of training. It is for no processor
in particular; `python -m dcpred_tasks.native` makes it anew.
"""

import ctypes
import errno
import fcntl
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

from dcpred_tasks.engine.compiler import CompilerError, Turn, errors_of_llvm
from dcpred_tasks.engine.instructions import use_own
from dcpred_tasks.engine.processors import (
    LEVELS,
    Target,
    check_is_fast,
    check_runs_here,
    host,
    own_level,
    pinned,
)
from dcpred_tasks.errors import RefusedError, ResourceError, SettingsError

FOLDER = Path(__file__).parent
BITCODE, MADE_OF, ENTRY = "engine.bc", "engine.json", "score"
PATIENCE_SECONDS = 600.0  # longest wait for another process that compiles (five seconds on an idle core)
LOOK_SECONDS = 0.1  # time between two looks
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
DIGEST_BYTES = 16  # in front of what is kept
DAY_SECONDS = 86_400.0
KEPT_SECONDS = 30 * DAY_SECONDS  # machine code of other versions is removed when nobody used it for so long
NAME_OF_FOLDER = re.compile("dcpred-[0-9a-f]{16}")
KEPT_SUFFIXES = {".o", ".lock", ".partial"}


class Bitcode(NamedTuple):
    """Bitcode that comes with the package, and what is known of it."""

    folder: Path
    name: str
    """It lies in NAME.bc, and what it was made of in NAME.json."""
    entry: str
    """The function that is called, with the address of its arguments; it returns 0."""
    sources: tuple[Path, ...]
    """What it is made of. Names and types of the arguments are compared besides."""
    quick: bool = False
    """Whether few passes on the machine where it runs are enough: it has no loop to vectorise."""

    @property
    def remake(self) -> str:
        return "run python -m dcpred_tasks.native, which needs ziglang (pip install ziglang)"


def native_sources(name: str, *headers: str) -> tuple[Path, ...]:
    """NAME.cpp, and the headers that it is made of."""
    folder = FOLDER.parent / "native"
    return folder / f"{name}.cpp", *(folder / f"{h}.h" for h in (*headers, "vectors", f"{name}_layout"))


SOURCES = (
    FOLDER / "layout.py",
    FOLDER.parent / "dtypes.py",
    *native_sources(
        "engine",
        *("columns", "conversion", "digits", "elements", "exact", "fixed", "kernel_values", "kernels"),
        *("leaves", "maps", "native_ops", "products", "walk"),
    ),
)
ENGINE = Bitcode(FOLDER, "engine", ENTRY, SOURCES, quick=True)
REMAKE = ENGINE.remake

Entry = Callable[[int], int]


class MachineCode:
    """The machine code of some bitcode for one processor.

    Several processes may want it at once:

    1. A finds no file, takes the lock, and compiles for some seconds.
    2. B finds no file and no free lock, and looks again every LOOK_SECONDS.
    3. A writes its file under another name, and renames it when it is whole. B loads it.
    4. Or A dies: its lock is free, B takes it, and compiles.
    5. Or A hangs: after PATIENCE_SECONDS B compiles, too. Both write the same file, and either is whole.

    A file that is not whole (a machine lost power while it was written) counts as none. Where none can be
    written, the code is compiled for this process alone.
    """

    def __init__(
        self, bitcode: bytes, target: Target, *others: Target, entry: str = ENTRY, quick: bool = False
    ) -> None:
        """others  processors whose machine code serves as well where it is there
        entry   the name of the function that is called
        quick   whether few passes are enough
        """
        self.bitcode, self.target, self.others = bitcode, target, others
        self.called, self.quick = entry, quick
        self.folders = [base / _name_of(bitcode) for base in _bases()]
        self.has_compiled = False
        self._entry: Entry | None = None
        self._one_thread = Turn()

    def is_there(self) -> bool:
        """Whether `entry` will find machine code, in this process or on disk, and compile nothing."""
        return self._entry is not None or self.kept() is not None

    def entry(self) -> Entry:
        """The compiled function, which takes the address of its arguments. Raises CompilerError."""
        with self._one_thread:
            if self._entry is None:
                code = self.make()
                with errors_of_llvm():
                    self._entry = _load(code, self.called)
        return self._entry

    def make(self) -> bytes:
        """The machine code, read or compiled and kept."""
        with self._turn():
            code = self.kept()
            if code is None:
                with errors_of_llvm():
                    code = compile_bitcode(self.bitcode, self.target, self.quick)
                self.has_compiled = True
                self._keep(code)
        return code

    def places(self) -> list[Path]:
        """Where it may lie, the best place first."""
        return [place for place, _ in self._places()]

    def _places(self) -> list[tuple[Path, Target]]:
        targets = (self.target, *self.others)
        return [(folder / f"{target.name}.o", target) for target in targets for folder in self.folders]

    def kept(self) -> bytes | None:
        """The machine code that is on disk, or None."""
        for place, target in self._places():
            with suppress(OSError):
                kept = _read_trusted(place)
                digest, code = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
                if digest == self._digest(code, target):
                    _note_use(place)
                    return code
        return None

    def _digest(self, code: bytes, target: Target) -> bytes:
        """A digest of machine code and of what it is made from: other code may lie under its name."""
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
        """Wait until there is machine code, or until this process is to compile it. Nobody waits where files
        cannot be locked.
        """
        with ExitStack() as held:
            if not self.is_there():
                lock = next(filter(None, map(_opened, self.places())), None)
                if lock is not None:
                    held.enter_context(lock)
                    _locks.add(lock)
                    held.callback(_locks.discard, lock)
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    with suppress(OSError):
                        while not _locked(lock) and not self.is_there() and time.monotonic() < deadline:
                            time.sleep(LOOK_SECONDS)
            yield


_locks: set[Any] = set()  # files that this process has opened to lock them


def _close_locks() -> None:
    """In a child process: a lock of the parent would last as long as the child has its file open."""
    for lock in _locks:
        lock.close()
    _locks.clear()


os.register_at_fork(after_in_child=_close_locks)


def _note_use(place: Path) -> None:
    """A time of modification that tells when code was last used, to a day: not every file system keeps times
    of access.
    """
    with suppress(OSError):
        if time.time() - place.stat().st_mtime > DAY_SECONDS:
            os.utime(place)


def _forget_old(own: Path) -> None:
    """Remove machine code beside the folder `own` that this version has no use for and nobody had for
    KEPT_SECONDS: that of other versions. A process that wants it all the same compiles it again.
    """
    with suppress(OSError):
        known = {own.name, *(_name_of(path.read_bytes()) for path in FOLDER.parent.glob("*/*.bc"))}
        for folder in own.parent.iterdir():
            if folder.name not in known and NAME_OF_FOLDER.fullmatch(folder.name) and not folder.is_symlink():
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    with suppress(OSError):
        files = [file for file in folder.iterdir() if file.suffix in KEPT_SUFFIXES]
        used = [max(found.st_atime, found.st_mtime) for found in map(Path.lstat, files)]
        if time.time() - max(used, default=folder.stat().st_mtime) > KEPT_SECONDS:
            for file in files:
                file.unlink(missing_ok=True)
            folder.rmdir()


def _opened(place: Path) -> Any:
    """The lock beside a place where machine code is kept, or None where there can be none."""
    with suppress(OSError):
        _make_folder(place.parent)
        return open(place.with_suffix(".lock"), "a", opener=_only_mine)
    return None


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it, for this user to write to, whatever the umask. Raises OSError."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=0o755, exist_ok=True)
    _check_folder(folder)


def _only_mine(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o644)


def _read_trusted(place: Path) -> bytes:
    """The content of a file that only this user, or root, can have written: it will run. Raises OSError."""
    _check_folder(place.parent)
    with open(place, "rb", opener=_only_mine) as file:  # A pipe does not keep it waiting.
        found = os.fstat(file.fileno())
        _check_trusted(place, found)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(place))
        return file.read()


def _check_folder(folder: Path) -> None:
    """Raise OSError unless nobody but this user, or root, can put files into a folder, or another folder into
    its place. A folder of this user is closed to others first: its files are checked one by one.
    """
    above, found = folder.parent.stat(), folder.stat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        _distrust(folder.parent, _writable(above))
    if found.st_uid == os.getuid() and found.st_mode & WRITTEN_BY_OTHERS:
        with suppress(OSError):
            folder.chmod(stat.S_IMODE(found.st_mode) & ~WRITTEN_BY_OTHERS)
            found = folder.stat()
    _check_trusted(folder, found)


def _check_trusted(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.getuid()):
        _distrust(path, f"it belongs to user {found.st_uid}")
    if found.st_mode & WRITTEN_BY_OTHERS:
        _distrust(path, _writable(found))


def _writable(found: os.stat_result) -> str:
    return f"others can write to it (mode {stat.S_IMODE(found.st_mode):o})"


def _distrust(path: Path, why: str) -> NoReturn:
    """Raise PermissionError, and warn of each path once."""
    sentence = (
        f"Machine code in {path} is not used: {why}. Remove it, or set DCPRED_CACHE_DIR to a folder that only"
        " you can write to."
    )
    if sentence not in _distrusted:
        _distrusted.add(sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
    raise PermissionError(errno.EACCES, sentence, str(path))


_distrusted: set[str] = set()  # what this process has warned of


def _locked(file: Any) -> bool:
    """Take a lock, unless another process has it. Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bases() -> Iterator[Path]:
    """Where machine code is kept: $DCPRED_CACHE_DIR, the user's cache, a temporary folder. One that can be
    read but not written (baked into an image, mounted read-only) serves as well.
    """
    with suppress(RuntimeError):  # There are users without a home.
        if os.environ.get("DCPRED_CACHE_DIR"):
            yield Path(os.environ["DCPRED_CACHE_DIR"]).expanduser().absolute()
        told = Path(os.environ.get("XDG_CACHE_HOME", ""))
        yield told if told.is_absolute() else Path.home() / ".cache"
    temporary = Path(tempfile.gettempdir()) / f"dcpred-{os.getuid()}"
    with suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        found = temporary.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            yield temporary


def _name_of(bitcode: bytes) -> str:
    """The name of a folder for what this LLVM makes of the bitcode for machines of this kind."""
    return f"dcpred-{_digest(bitcode + f'{llvm.llvm_version_info} {llvm.get_process_triple()}'.encode())}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


# -- LLVM ----------------------------------------------------------------------------------------------------

_loaded: list[Any] = []  # what machine code needs to stay in memory


def compile_bitcode(bitcode: bytes, target: Target, quick: bool = False) -> bytes:
    """An object file for the processor, by few passes where it has to be quick."""
    module, machine = llvm.parse_bitcode(bitcode), _machine(target)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    use_own(module, target.has)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    options.loop_unrolling = False  # The loops that count are unrolled already; others cost time here.
    builder = llvm.create_pass_builder(machine, options)
    passes = _few_passes() if quick else builder.getModulePassManager()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))


def _few_passes() -> Any:
    """What puts instructions of the processor in place, and leaves out what they decide against. The rest was
    done when the bitcode was made: of the engine all passes took 1.8 of 3.4 s, and made no row faster
    (2026-11-26: 0.98 of the time with these, in the mean of eight models; x86-64-v3 1.00).
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
    # A function of ctypes gives Python's lock away while it runs.
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)


# -- what comes with the package -----------------------------------------------------------------------------


def fingerprint_of_sources(of: Bitcode | None = None) -> str:
    """A digest of what the bitcode, else the engine's, is made of. Raises OSError where no sources are."""
    return _digest(b"\0".join(source.read_bytes() for source in (of or ENGINE).sources))


def own_code(of: Bitcode | None = None) -> MachineCode:
    """Its machine code, else the engine's, for this processor. Raises RefusedError where the bitcode is of
    other sources: nobody wants to run what he has changed since.
    """
    with _ONE_THREAD:
        return _own_code(of or ENGINE)


_ONE_THREAD = Turn()


@lru_cache
def _own_code(of: Bitcode) -> MachineCode:
    _check_made_of(of)
    bitcode = (of.folder / f"{of.name}.bc").read_bytes()
    with errors_of_llvm():
        check_is_fast()
        if target := pinned():
            check_runs_here(target)
            return MachineCode(bitcode, target, entry=of.entry, quick=of.quick)
        return MachineCode(bitcode, host(), *filter(None, [own_level()]), entry=of.entry, quick=of.quick)


def _check_made_of(of: Bitcode) -> None:
    with suppress(OSError):  # An installation of byte code alone has no sources.
        if made_of(of)["sources"] != fingerprint_of_sources(of):
            raise RefusedError(
                f"machine code was asked for, but {of.name}.bc was made of other sources than"
                f" dcpred_tasks.native has now; {of.remake}"
            )


def warm(name: str, of: Bitcode | None = None) -> MachineCode:
    """Machine code of the bitcode, else the engine's, for "host" or a level (as pinned, if it is), compiled
    unless it is there, in the first folder where machine code is kept. Raises SettingsError for another name,
    ResourceError where it cannot be kept there.
    """
    if name != "host" and name not in LEVELS:
        raise SettingsError(
            f"machine code was asked for {name}, but it is made for host, {' and '.join(LEVELS)}; use one"
            " of them"
        )
    of = of or ENGINE
    _check_made_of(of)
    with errors_of_llvm():
        return _warm(name, of)


def _warm(name: str, of: Bitcode) -> MachineCode:
    known = {"host": host(), **{level: Target(level) for level in LEVELS}}
    if target := pinned():
        known[target.cpu] = target
    code = MachineCode(
        (of.folder / f"{of.name}.bc").read_bytes(), known[name], entry=of.entry, quick=of.quick
    )
    code.folders = code.folders[:1]
    code.make()
    if code.kept() is None:
        place = code.places()[0] if code.folders else "a cache"
        raise ResourceError(
            f"machine code was to be kept in {place}, but that cannot be written; set DCPRED_CACHE_DIR to a"
            " folder that can"
        )
    return code


def made_of(of: Bitcode | None = None) -> Any:
    """What its .json says, else the engine's: fingerprint of sources, description of arguments, versions."""
    return _made_of(of or ENGINE)


@lru_cache
def _made_of(of: Bitcode) -> Any:
    file = of.folder / f"{of.name}.json"
    found = None
    with suppress(ValueError, FileNotFoundError):
        found = json.loads(file.read_text(encoding="utf-8"))
    if not (isinstance(found, dict) and {"sources", "arguments"} <= found.keys()):
        raise RefusedError(f"{file} is missing or damaged: install dcpred anew, or {of.remake}")
    return found


if __name__ == "__main__":  # The command of scoring.scorer.compiled_ahead.
    own_code().make()
