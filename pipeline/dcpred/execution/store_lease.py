"""The lease of an output on an object store: one object that its holder replaces every few seconds.

A store has no lock that a system releases when its holder dies. A holder has to be silent for EXPIRY_SECONDS,
by the store's own clock, before another one may take over, unless it was a process of this computer that has
ended. Each sign of life has other bytes than all before it: a tag may be a digest, and equal bytes would let
a late takeover through. Nothing is ever deleted, because stores do not delete conditionally. Correctness
never depends on any of this (execution/lease.py).
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dcpred.execution.lease import EXPIRY_SECONDS, SIGN_SECONDS
from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage.place import Place, Stored
from dcpred_tasks.storage.retry import Retrying

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
        """Replace the last sign. Another driver's sign in its place means that the lease is lost; one of our
        own, whose answer was lost, does not.
        """
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
                " (a lease"
                " ends"
                f" {expiry_seconds():.0f} s after the last sign). Wait for it to end, or stop it, and run"
                " again."
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
