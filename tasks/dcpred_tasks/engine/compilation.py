"""How the engine's functions are compiled, and where the machine code is kept."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import njit

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # Nothing is allocated. With reference counts every array that is handed down would cost an atomic count:
    # half the time of a row.
    "_nrt": False,
}
# With NUMBA_BOUNDSCHECK=1 the reads and writes of intrinsics are checked, too, which numba cannot do.
CHECKED = bool(numba.config.BOUNDSCHECK)
HERE = Path(__file__).parent
# What machine code is made of: it holds status codes and formulas of kernels, too.
SOURCES = (
    HERE.parent / "dtypes.py",
    HERE.parent / "model" / "kernel_families.py",
    *sorted(HERE.glob("*.py")),
)
PATIENCE_SECONDS = 600.0  # longest wait for another process that compiles (half a minute on an idle core)
LOOK_SECONDS = 0.1  # time between two looks


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that other compiled functions call."""
    return njit(**OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function into its callers: a call hands down every array in seven words, hundreds of
    them in all.
    """
    return njit(forceinline=True, **OPTIONS)(function)


class compiled_and_kept:  # noqa: N801 - a decorator
    """Compile a function that Python calls, once per machine: its machine code is kept on disk where that is
    possible.

    Several processes may want it at once:

    1. A finds no file, takes the lock, and compiles for a minute.
    2. B finds no file and no free lock, and looks again every LOOK_SECONDS.
    3. A writes its file under another name, and renames it when it is whole. B loads it.
    4. Or A dies: its lock is free, B takes it, and compiles.
    5. Or A hangs: after PATIENCE_SECONDS B compiles, too. Both write the same file, and either is whole.

    The file may be damaged, by a machine that lost power while it was written, and writing it may find the
    disk full. Then the first call compiles for this process alone, and removes the folder.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.folder = cache_folder()
        self.sound = self.folder is None
        self.dispatcher = compiled(function) if self.folder is None else _kept(function, self.folder)

    def __call__(self, *args: Any) -> Any:
        if self.sound:
            return self.dispatcher(*args)
        try:
            with self._turn():
                self.dispatcher.compile(tuple(self.dispatcher.typeof_pyval(a) for a in args))
            result = self.dispatcher(*args)
        except IndexError:  # Bounds checks raise it.
            raise
        except Exception:  # Numba lets through whatever reading, unpickling and writing raise.
            assert self.folder is not None
            shutil.rmtree(self.folder, ignore_errors=True)
            # It failed while reading the file, or after it had compiled, while writing it.
            if not self.dispatcher.signatures:
                self.dispatcher = compiled(self.function)
            result = self.dispatcher(*args)
        self.sound = True
        return result

    def is_there(self) -> bool:
        """Whether a call will find machine code, in this process or on disk, and compile nothing."""
        kept = self.dispatcher.stats.cache_path
        # The file gets its name when it is whole, and its index was written before it.
        return bool(self.dispatcher.signatures) or (kept is not None and any(Path(kept).glob("*.nbc")))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until there is machine code, or until this process is to compile it. Nobody waits where files
        cannot be locked.
        """
        with ExitStack() as held:
            if self.folder is not None and not self.is_there():
                with suppress(OSError):
                    lock = held.enter_context((self.folder / "lock").open("a"))
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    while not _locked(lock.fileno()) and not self.is_there() and time.monotonic() < deadline:
                        time.sleep(LOOK_SECONDS)
            yield


def _locked(file: int) -> bool:
    """Take a lock, unless another process has it. Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kept(function: Callable[..., Any], folder: Path) -> Any:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)  # Numba reads it when a function is declared, and never later.
    try:
        return njit(cache=True, **OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before


def cache_folder() -> Path | None:
    """The first of these that can be written: $NUMBA_CACHE_DIR, the user's cache, a temporary folder; None if
    none can.

    Its name carries a hash of the sources that are compiled (numba looks at the file of the outermost
    function only) and of the processor. One that can be read but not written (baked into an image, mounted
    read-only) is copied, for numba uses no cache that it cannot write to. Where the sources are not there (an
    installation of byte code alone) nothing is kept.
    """
    try:
        name = f"dcpred-{_fingerprint()}"
    except OSError:
        return None
    folders = [base / name for base in _bases()]
    filled = next((folder for folder in folders if folder.is_dir() and any(folder.rglob("*.nbi"))), None)
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if filled is not None and not any(folder.rglob("*.nbi")):
                _copy(filled, folder)
            return folder
    return None


def _bases() -> Iterator[Path]:
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    with suppress(RuntimeError):  # There are users without a home.
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    temporary = Path(tempfile.gettempdir()) / f"dcpred-{os.getuid()}"
    with suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        # Machine code is run as it is found: nobody else may have put it there.
        if temporary.stat().st_uid == os.getuid():
            yield temporary


def _copy(source: Path, target: Path) -> None:
    """Copy files, the index last, each of them whole or not at all."""
    for file in sorted((f for f in source.rglob("*.nb?")), key=lambda f: f.suffix == ".nbi"):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
        shutil.copyfile(file, partial)
        partial.replace(place)


def _fingerprint() -> str:
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    asked = f"{numba.config.CPU_NAME} {numba.config.CPU_FEATURES} {CHECKED}"
    parts = [numba.__version__, sys.version, processor, asked, *(source.read_text() for source in SOURCES)]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
