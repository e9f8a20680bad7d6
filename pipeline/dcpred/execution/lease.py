"""Locks: one process at a time writes to a place."""

import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage.atomic_files import (
    NoDocumentError,
    partial_name,
    plain,
    read_plain,
    resource_errors,
)
from dcpred_tasks.storage.place import Place, Stored
from dcpred_tasks.storage.store_requests import Retrying

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
    """Raise RunHeldError if another driver holds `folder`. Processes that look do not block each other."""
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
        _sign(file, f"{_own_name()} · {lease.token}\n".encode(), path)
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
    """A descriptor of the locked lock file, created anew where its last holder removed it."""
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
    """Write the holder of the lease completely or not at all: half a name would block until expiry."""
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


LOCK = "lock"
LOOKS = 10  # checks for silence per sign
LEAVE_SECONDS = 5.0  # maximum wait for a store to take the lease back
CLOCK_SLACK_SECONDS = 2.0  # times of a store are whole seconds


@dataclass
class StoreLease:
    """The lease of a driver."""

    place: Place
    tag: str = ""
    """The tag of this driver's last write, as far as it is known."""
    lost: bool = False
    """Whether another driver took over, or may have because the store did not answer for long."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    awake: float = 0.0
    """Seconds that this process has run while holding: a suspended one checks when it continues."""
    heard: float = 0.0
    """When, by `awake`, the last valid sign was begun: the store's time of it is later."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over, or may have."""
        standing = Retrying()(lambda: self.place.read(LOCK))
        taken = standing is None or _content(standing).get("token") != self.token
        self.lost = self.lost or taken
        if self.lost:
            other = (
                _content(standing).get("holder") if standing else ""
            ) or "another driver, which has ended"
            so = f"was taken over by {other}" if taken else "received no sign of this driver for too long"
            raise RunHeldError(f"{self.place.address} {so}. Look with `dcpred status`, or run again later.")

    def body(self, holder: str) -> bytes:
        """Bytes that no other sign has."""
        summary = {"holder": holder, "token": self.token, "sign": secrets.token_hex(8)}
        return json.dumps(summary | {"machine": _machine(), "process": os.getpid()}).encode()

    def sign_once(self) -> None:
        """Replace the last sign. The lease is lost if another driver's is there, not one of our own."""
        begun, data = self.awake, self.body(_own_name())
        tag = self.place.replace(LOCK, data, self.tag)
        if tag is None:
            standing = self.place.read(LOCK)
            if standing is not None and _content(standing).get("token") == self.token:
                tag = self.place.replace(LOCK, data, standing.tag)
        if tag is None:
            self.lost = True
        else:
            self.tag, self.heard = tag, begun

    def give_signs(self, stopped: threading.Event) -> None:
        """Give a sign every few seconds, and release the lease at the end."""
        while not self.lost and not stopped.wait(SIGN_SECONDS):
            with suppress(OSError, ResourceError):
                self.sign_once()
        if not self.lost:
            with suppress(OSError, ResourceError):  # It expires by itself.
                self.place.replace(LOCK, self.body(""), self.tag)

    def watch(self, stopped: threading.Event) -> None:
        """Detect silence before another driver may start, also while a sign waits for an answer."""
        last = time.monotonic()
        while not stopped.wait(SIGN_SECONDS / LOOKS):
            now = time.monotonic()
            self.awake += min(now - last, SIGN_SECONDS)
            last = now
            self.lost = self.lost or self.awake - self.heard > EXPIRY_SECONDS - SIGN_SECONDS


def place_holder(place: Place, now: float | None = None) -> str:
    """The holder of the lease; "" if it is free.

    now  time of the store's clock; None to ask it
    """
    standing = place.read(LOCK)
    summary = _content(standing)
    if standing is None or not summary.get("holder") or _is_dead(summary):
        return ""
    silent = _silent(place, standing) if now is None else now - standing.time
    if silent >= expiry_seconds():
        return ""
    return str(summary["holder"])


@contextmanager
def hold_on_store(place: Place) -> Iterator[StoreLease]:
    """Hold a place within a `with` statement. Raises RunHeldError if another driver holds it.

    Guards against:

    1. Drivers A and B find the lease free, or silent for too long, with the same tag.
    2. A replaces the object with that tag, and holds the lease.
    3. B's replacement finds another tag: B leaves. The same happens after a sign of the old holder.
    4. The reply to 2 is lost. A reads its own bytes back, and holds the lease all the same.
    """
    lease = StoreLease(place)
    _take(lease)
    stopped = threading.Event()
    signs, watch = (
        threading.Thread(target=act, args=(stopped,), name="dcpred-lease", daemon=True)
        for act in (lease.give_signs, lease.watch)
    )
    signs.start()
    watch.start()
    try:
        yield lease
    finally:
        stopped.set()
        signs.join(LEAVE_SECONDS)


def _take(lease: StoreLease) -> None:
    place, data = lease.place, lease.body(_own_name())
    retrying = Retrying()
    if retrying(lambda: place.create(LOCK, data)):
        standing = retrying(lambda: place.read(LOCK))
        if standing is None or standing.data != data:
            raise RunHeldError(f"{place.address} was taken over at once. Run again later.")
        lease.tag = standing.tag
        return
    standing = retrying(lambda: place.read(LOCK))
    if standing is None:
        raise RunHeldError(f"{place.address}/{LOCK} disappeared. Run again later.")
    summary = _content(standing)
    name = str(summary.get("holder") or "")
    if name and not _is_dead(summary):
        silent = _silent(place, standing)
        if silent < expiry_seconds():
            raise RunHeldError(
                f"Cannot use {place.address}: it is in use by {name}, heard of {max(silent, 0.0):.0f} s ago"
                f" (a lease ends {expiry_seconds():.0f} s after the last sign). Wait for it to end, or stop"
                " it, and run again."
            )
    tag = retrying(lambda: place.replace(LOCK, data, standing.tag))
    if tag is None:
        raise RunHeldError(f"Cannot use {place.address}: another driver was faster. Run again later.")
    lease.tag = tag


def expiry_seconds() -> float:
    """How long a lease lasts after its last sign, by the store's clock."""
    return EXPIRY_SECONDS + CLOCK_SLACK_SECONDS


def _silent(place: Place, standing: Stored) -> float:
    """Seconds since the last sign, by the store's clock."""
    return place.clock() - standing.time


def _content(standing: Stored | None) -> dict[str, object]:
    """The content of a lease; empty if it is damaged: it is then free once it is silent."""
    try:
        value = json.loads(standing.data) if standing is not None else {}
    except (ValueError, RecursionError):
        return {"holder": "another process"}
    return value if isinstance(value, dict) else {"holder": "another process"}


@cache
def _machine() -> str:
    """Identifies processes with comparable numbers: this boot of this computer, and these containers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _is_dead(summary: dict[str, object]) -> bool:
    """Whether the holder of the lease was a process of this computer that has ended."""
    process = summary.get("process")
    if not _machine() or summary.get("machine") != _machine() or not isinstance(process, int) or process < 1:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # It belongs to another user.
        return False
    return False


def _own_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class Lock(Protocol):
    """The lock of a driver."""

    @property
    def lost(self) -> bool:
        """Whether another driver took over, which is possible after a long suspension."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over."""


@contextmanager
def acquire_lock(place: Place) -> Iterator[Lock]:
    """Lock a place within a `with` statement. Raises RunHeldError if another driver holds it."""
    with hold_on_store(place) if place.locks is None else hold(place.locks) as lease:
        yield lease


def check_unlocked(place: Place) -> None:
    """Raise RunHeldError at once if another driver holds a place."""
    if place.locks is not None:
        check_free(place.locks)
    elif name := place_holder(place):
        raise RunHeldError(
            f"Cannot use {place.address}: it is in use by {name}. Wait for it to end, or stop it, and run"
            " again (a minute after its last sign if it was killed)."
        )


def lock_holder(place: Place, now: float | None = None) -> str:
    """The holder of a place; "" if it is free.

    now  the time of a store's clock, if it is known
    """
    return place_holder(place, now) if place.locks is None else held_by(place.locks)
