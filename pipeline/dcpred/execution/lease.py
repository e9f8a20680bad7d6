"""Leases: one driver at a time writes to a place.

A driver holds a place as long as the object `lock` there has its token. It replaces the object every
SIGN_SECONDS, and lets go by a replacement that names nobody. Each replacement is conditional: it fails where
the object is no longer the one that the driver has read.
"""

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from dcpred_tasks.errors import DcpredError, ResourceError, RunHeldError
from dcpred_tasks.storage.atomic_files import reason, resource_errors
from dcpred_tasks.storage.place_types import Place, Stored
from dcpred_tasks.storage.store_requests import Retrying

LOCK = "lock"
# What leases leave in a folder.
LEASE_FILES = re.compile(rf"{LOCK}|\.{LOCK}\.guard|(clock|{LOCK})\.partial-[0-9a-f]{{12}}")
EXPIRY_SECONDS = 60.0
SIGN_SECONDS = 10.0
LOOKS = 10  # checks for silence per sign
LEAVE_SECONDS = 5.0  # maximum wait for the last sign, which lets go
CLOCK_SLACK_SECONDS = 2.0  # times of a store are whole seconds
# A process that only looks has the guard of the lock for an instant. A driver that meets one waits so long.
INSTANT_SECONDS = 1.0


@dataclass
class Lease:
    """The lease of a driver.

    Guards against:

    1. Drivers A and B find the lease free, or silent for too long, with the same tag.
    2. A replaces the object with that tag, and holds the lease.
    3. B's replacement finds another tag: B leaves. The same happens after a sign of the old holder.
    4. The reply to 2 is lost. A reads its own bytes back, and holds the lease all the same.

    And, where the system locks files (`guarded`):

    1. Driver A locks the guard, writes its name, and is killed. The system releases the guard, and the name
       stays.
    2. Driver B locks the guard and finds the name of A. If A was on this computer, A is dead, because B has
       the guard. If A was on another one, it is unknown whether the two share locks, and the last sign
       decides.
    3. Driver A is suspended. Driver B finds the guard locked, and leaves, however old the last sign is.

    And where it has no locks, or computers do not share them:

    1. A is suspended. Driver B finds a sign that is too old, and replaces it.
    2. A continues. Its next sign finds the token of B: A marks its lease as lost, and stops.

    In between two drivers may work on the same blocks. They then duplicate work without harm: see
    `dcpred_tasks.artifacts.commit_records.commit`.
    """

    place: Place
    guarded: bool = False
    """Whether the system keeps other drivers out as long as this process lives."""
    tag: str = ""
    """The tag of this driver's last write, as far as it is known."""
    lost: bool = False
    """Whether another driver took over, or may have because the place did not answer for long."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    awake: float = 0.0
    """Seconds that this process has run while holding: a suspended one checks when it continues."""
    heard: float = 0.0
    """When, by `awake`, the last valid sign was begun: the place's time of it is later."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over, or may have, ResourceError if the lock is
        unreadable: that does not show who holds it.
        """
        with _reported(self.place):
            lock = Retrying()(partial(self.place.read, LOCK))
        taken = lock is None or _content(lock).get("token") != self.token
        self.lost = self.lost or taken
        if self.lost:
            other = _content(lock).get("holder") or "another driver, which has ended"
            so = f"was taken over by {other}" if taken else "received no sign of this driver for too long"
            raise RunHeldError(f"{self.place.address} {so}. Look with `dcpred status`, or run again later.")

    def body(self, holder: str) -> bytes:
        """Bytes that no other sign has."""
        content = {"holder": holder, "token": self.token, "sign": secrets.token_hex(8)}
        return json.dumps(content | {"machine": _machine(), "process": os.getpid()}).encode()

    def take(self) -> None:
        """Raise RunHeldError if another driver holds the place."""
        place, data, retrying = self.place, self.body(_own_name()), Retrying()
        if retrying(lambda: place.create(LOCK, data)):
            lock = retrying(lambda: place.read(LOCK))
            if lock is None or lock.data != data:
                raise RunHeldError(f"{place.address} was taken over at once. Run again later.")
            self.tag = lock.tag
            return
        lock = retrying(lambda: place.read(LOCK))
        if lock is None:
            raise RunHeldError(f"{place.address}/{LOCK} disappeared. Run again later.")
        if holder := _holder(place, lock, self.guarded):
            raise _held(place, *holder)
        tag = retrying(lambda: place.replace(LOCK, data, lock.tag))
        if tag is None:
            raise RunHeldError(f"Cannot use {place.address}: another driver was faster. Run again later.")
        self.tag = tag

    def sign_once(self) -> None:
        """Replace the last sign. The lease is lost if another driver's is there, not one of our own."""
        begun, data = self.awake, self.body(_own_name())
        tag = self.place.replace(LOCK, data, self.tag)
        if tag is None:
            lock = self.place.read(LOCK)
            if lock is not None and _content(lock).get("token") == self.token:
                tag = self.place.replace(LOCK, data, lock.tag)
        if tag is None:
            self.lost = True
        else:
            self.tag, self.heard = tag, begun

    def give_signs(self, stopped: threading.Event) -> None:
        """Give a sign every few seconds, and release the lease at the end."""
        while not self.lost and not stopped.wait(SIGN_SECONDS):
            with suppress(OSError, ResourceError):  # The next sign may succeed; until then the last counts.
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


@contextmanager
def acquire_lock(place: Place) -> Iterator[Lease]:
    """Hold a place within a `with` statement. Raises RunHeldError if another driver holds it."""
    lease, stopped = Lease(place), threading.Event()
    with ExitStack() as stack:
        with _reported(place):
            guarded = Retrying()(lambda: stack.enter_context(place.guarded(LOCK, INSTANT_SECONDS)))
            if guarded is None:
                raise _held(place, str(_content(place.read(LOCK)).get("holder") or "another process"))
            lease.guarded = guarded
            lease.take()
        acts = (lease.give_signs,) if guarded else (lease.give_signs, lease.watch)
        threads = [
            threading.Thread(target=act, args=(stopped,), name="dcpred-lease", daemon=True) for act in acts
        ]
        for thread in threads:
            thread.start()
        try:
            yield lease
        finally:
            stopped.set()
            threads[0].join(LEAVE_SECONDS)


def check_unlocked(place: Place) -> None:
    """Raise RunHeldError at once if another driver holds a place."""
    if holder := _seen(place):
        raise _held(place, *holder)


def lock_holder(place: Place, now: float | None = None) -> str:
    """The holder of a place; "" if it is free.

    now  the time of the place's clock, if it is known
    """
    return (_seen(place, now) or ("", ""))[0]


def expiry_seconds() -> float:
    """How long a lease lasts after its last sign, by the clock of its place."""
    return EXPIRY_SECONDS + CLOCK_SLACK_SECONDS


def _seen(place: Place, now: float | None = None) -> tuple[str, str] | None:
    """What `_holder` returns; processes that look do not keep each other out."""

    def look() -> tuple[str, str] | None:
        with place.guarded(LOCK, shared=True) as guarded:
            lock = place.read(LOCK)
            return None if lock is None else _holder(place, lock, guarded, now)

    with _reported(place):
        return Retrying()(look)


def _holder(
    place: Place, lease: Stored, guarded: bool | None, now: float | None = None
) -> tuple[str, str] | None:
    """The holder of a lease, and when it gave the last sign; None if nobody has it.

    guarded  whether this process has the guard of the lock; None if another process has it
    """
    content = _content(lease)
    name = str(content.get("holder") or "")
    if guarded is None:
        return name or "another process", ""
    if not name or _is_dead(content, name, guarded):
        return None
    try:
        silent = _silent(place, lease) if now is None else now - lease.time
    except (OSError, DcpredError):  # A folder that this process may only read has no clock.
        return name, ""
    if silent >= expiry_seconds():
        return None
    lasts = f"a lease ends {expiry_seconds():.0f} s after the last sign"
    return name, f", heard of {max(silent, 0.0):.0f} s ago ({lasts})"


def _held(place: Place, name: str, heard: str = "") -> RunHeldError:
    return RunHeldError(
        f"Cannot use {place.address}: it is in use by {name}{heard}. Wait for it to end, or stop it, and run"
        " again."
    )


@contextmanager
def _reported(place: Place) -> Iterator[None]:
    """Raise ResourceError for a lasting error of the storage of a lock."""
    path = f"{place.address}/{LOCK}"
    try:
        with resource_errors(path):
            yield
    except OSError as error:
        raise ResourceError(f"Cannot use the lock file {path}: {reason(error)}") from error


def _silent(place: Place, lease: Stored) -> float:
    """Seconds since the last sign, by the clock of the place."""
    return place.clock() - lease.time


def _content(lease: Stored | None) -> dict[str, object]:
    """The content of a lease. One that is damaged is free once it is silent. Earlier versions wrote, on
    disks, the holder and its token, and nothing at the end.
    """
    if lease is None or not lease.data:
        return {}
    try:
        value = json.loads(lease.data)
    except (ValueError, RecursionError):
        name, written, _ = lease.data.decode(errors="replace").partition(" · ")
        return {"holder": name if written else "another process"}
    return value if isinstance(value, dict) else {"holder": "another process"}


@cache
def _machine() -> str:
    """Identifies processes with comparable numbers: this boot of this computer, and these containers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _is_dead(content: dict[str, object], name: str, guarded: bool) -> bool:
    """Whether the holder of a lease was a process of this computer that has ended."""
    process = content.get("process")
    if not isinstance(process, int) or process < 1:
        return False
    if guarded and name.endswith(f" on {socket.gethostname()}"):
        return True
    if not _machine() or content.get("machine") != _machine():
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
