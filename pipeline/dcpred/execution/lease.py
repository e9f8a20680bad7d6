"""One driver per directory: a lease that prevents two drivers from doing the same work. Correctness never
depends on it.

On one computer, and on file systems that share locks between computers, the system releases the lock of a
dead holder. Elsewhere the holder's last sign of life counts: it touches the file every few seconds, and a
lease without a sign for EXPIRY_SECONDS is free. Times are those of the file system: clocks of computers need
not agree.
"""

import errno
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage.atomic_files import partial_name, resource_errors
from dcpred_tasks.storage.plain_files import NoDocumentError, plain, read_plain
from dcpred_tasks.storage.retry import Retrying

EXPIRY_SECONDS = 60.0
SIGN_SECONDS = 10.0
LONGEST = 2**16  # bytes of a lock file
# A process that only looks holds the lock for an instant. A driver that meets one retries for so long.
INSTANT_SECONDS, INSTANT_STEP = 1.0, 0.02
# Answers of a file system without locks. Other errors of `flock` are errors of the storage.
NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}


@dataclass
class Lease:
    """The lease of a driver."""

    path: Path
    """The lock file, FOLDER/lock."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """The text of this driver in the file: it is the holder as long as the file has it."""
    lost: bool = False
    """Whether another driver took over, which is possible after a long suspension."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over, ResourceError if the lock file is unreadable."""
        if not self.lost:
            with _reported(self.path):
                self.lost = not Retrying()(self._mine)
        if self.lost:
            other = holder(self.path) or "another driver, which has ended"
            raise RunHeldError(
                f"{self.path.parent} was taken over by {other}. Look with `dcpred status`, or run again"
                " later."
            )

    def _mine(self) -> bool:
        """Raises OSError if the file cannot be read: that does not show who holds the lease."""
        try:
            return self.token.encode() in read_plain(self.path, LONGEST)[0]
        except (FileNotFoundError, NotADirectoryError, NoDocumentError):
            return False

    def _give_signs(self, stopped: threading.Event) -> None:
        while not stopped.wait(SIGN_SECONDS):
            with suppress(OSError):  # The next sign may succeed, and until then the last one counts.
                if not self._mine():
                    self.lost = True
                    return
                os.utime(self.path)

    def _let_go(self, file: int) -> None:
        with suppress(OSError):  # The lease ends with the lock, or a minute after the last sign.
            if self._mine():
                os.ftruncate(file, 0)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Raise ResourceError for a lasting error of the storage of a lock file."""
    try:
        with resource_errors(path):
            yield
    except OSError as error:
        raise ResourceError(
            f"Cannot use the lock file {path}: {error.strerror or error}. Check its storage, then run the"
            " same command again."
        ) from error


def holder(path: Path) -> str:
    """The holder of a lock file; "" if the file does not name one."""
    with suppress(OSError):
        return _name(path)
    return ""


def _name(path: Path) -> str:
    """The same; OSError where the file cannot be read."""
    try:
        return read_plain(path, LONGEST)[0].decode(errors="replace").partition(" · ")[0].strip()
    except (FileNotFoundError, NoDocumentError):
        return ""


def check_free(folder: Path) -> None:
    """Raise RunHeldError at once if another driver holds `folder`. Two processes that only look do not
    block each other.
    """
    path = folder / "lock"
    if not path.exists():
        return
    with resource_errors(path):
        file = plain(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        _lock(file, path, fcntl.LOCK_SH)
    finally:
        os.close(file)


def held_by(folder: Path) -> str:
    """The holder of `folder`; "" if it is free."""
    path = folder / "lock"
    try:
        check_free(folder)
    except RunHeldError:
        return holder(path) or "another process"
    except (OSError, ResourceError):
        return holder(path)
    return ""


@contextmanager
def hold(folder: Path) -> Iterator[Lease]:
    """Hold `folder` within a `with` statement. Raises RunHeldError if another driver holds it."""
    path = folder / "lock"
    file = _open_locked(path)
    try:
        lease = Lease(path)
        _sign(file, f"process {os.getpid()} on {socket.gethostname()} · {lease.token}\n".encode(), path)
        stopped = threading.Event()
        signs = threading.Thread(target=lease._give_signs, args=(stopped,), name="dcpred-lease", daemon=True)
        signs.start()
        try:
            yield lease
        finally:
            stopped.set()
            signs.join()
            lease._let_go(file)
    finally:
        os.close(file)


def _open_locked(path: Path) -> int:
    """A descriptor of the locked lock file. A file that its last holder removed with the folder is not a
    lock: it is created anew.
    """
    until = time.monotonic() + INSTANT_SECONDS
    while True:
        with resource_errors(path):
            # A lock that is a link would empty its target.
            file = plain(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            _lock(file, path, fcntl.LOCK_EX, until)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _sign(file: int, text: bytes, path: Path) -> None:
    """Write the holder of the lease completely or not at all: half a name would block everybody until
    expiry.
    """
    with _reported(path):
        os.ftruncate(file, 0)
        if os.pwrite(file, text, 0) < len(text):
            os.ftruncate(file, 0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _lock(file: int, path: Path, kind: int, until: float = 0.0) -> None:
    """Raise RunHeldError unless the lease is free.

    kind   LOCK_EX to take it, LOCK_SH to look
    until  time.monotonic up to which to retry a lock that another process has

    Guards against, if the file system has locks:

    1. Driver A locks the file, writes its name into it, and is killed.
    2. The system releases the lock; the name stays in the file.
    3. Driver B locks the file and finds the name of A. If A was on this computer, A is dead, because B has
       the lock. If A was on another one, it is unknown whether the two share locks, and the last sign of life
       decides.

    And if it has no locks:

    1. Driver A writes its name, and touches the file every SIGN_SECONDS.
    2. Driver B finds a name and a sign that is younger than EXPIRY_SECONDS: it leaves.
    3. A is suspended. Driver B finds a sign that is older, and writes its own name and token.
    4. A continues. Its next sign finds the token of B: A marks its lease as lost, and stops.
    5. If two drivers find a free file at the same moment, both continue, and the one that wrote its token
       first stops at its next sign.

    Between 3 and 4, and in 5, two drivers may work on the same blocks. They then duplicate work without harm:
    see `dcpred_tasks.artifacts.commit_records.commit`.
    """
    with _reported(path):
        carried = Retrying()(partial(_locked, file, path, kind, until))
        name = Retrying()(partial(_name, path))
    if not name or (carried and name.endswith(f" on {socket.gethostname()}")):
        return
    silent = _seconds_silent(path)
    if silent < EXPIRY_SECONDS:
        raise _held(
            path,
            f", heard of {max(silent, 0.0):.0f} s ago (a lease ends {EXPIRY_SECONDS:.0f} s after the last"
            " sign)",
        )


def _locked(file: int, path: Path, kind: int, until: float) -> bool:
    """Lock a file; returns False if its file system has no locks. Raises RunHeldError, OSError."""
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                raise _held(path, "") from None
            time.sleep(INSTANT_STEP)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return False


def _held(path: Path, heard: str) -> RunHeldError:
    name = holder(path) or "another process"
    return RunHeldError(
        f"Cannot use {path.parent}: it is in use by {name}{heard}. Wait for it to end, or stop it, and run"
        " again."
    )


def _seconds_silent(path: Path) -> float:
    probe = partial_name(path)
    with resource_errors(path):
        try:
            probe.touch()
            return probe.stat().st_mtime - path.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)
