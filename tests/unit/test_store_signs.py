"""Signs of life on a store that answers late or not at all: who holds a lease goes on as long as nobody else
can have it, and knows when somebody can.
"""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from obstore.store import MemoryStore

from dcpred.execution import lease as leases
from dcpred.execution.lease import LOCK, Lease, acquire_lock
from dcpred_tasks.storage import bucket
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import StoreError
from support.processes import wait_until


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setitem(bucket.IN_MEMORY, "signs", MemoryStore())
    return open_place("memory://signs/out")


def taken(place: Place) -> Lease:
    """A lease whose holder gives no signs by itself."""
    lease = Lease(place)
    lease.take()
    return lease


def answered(patch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Replacements take place, and something happens before their answers come."""
    replace = Bucket.replace

    def late(self: Bucket, name: str, data: bytes, tag: str) -> str | None:
        told = replace(self, name, data, tag)
        then()
        return told

    patch.setattr(Bucket, "replace", late)


def no_answer() -> None:
    raise StoreError("no answer")


def test_an_own_sign_without_an_answer_is_no_other_driver(place: Place) -> None:
    """The store took it, and could not be reached for so long that nobody told."""
    lease = taken(place)
    with pytest.MonkeyPatch.context() as patch:
        answered(patch, no_answer)
        with pytest.raises(StoreError):
            lease.sign_once()
    lease.sign_once()
    assert not lease.lost
    lease.check()
    standing = place.read(LOCK)
    assert standing is not None
    assert standing.tag == lease.tag


def test_silence_is_counted_from_when_a_sign_was_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may have taken it then, and told so long after."""
    lease = taken(place)
    lease.awake = 20.0

    def long_after() -> None:
        lease.awake += 35.0

    answered(monkeypatch, long_after)
    lease.sign_once()
    assert lease.heard == 20.0


@pytest.fixture
def stuck(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set once a sign waits for an answer; it comes at the end."""
    waiting, end = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        end.wait()

    answered(monkeypatch, wait)
    monkeypatch.setattr(leases, "SIGN_SECONDS", 0.05)
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.3)
    monkeypatch.setattr(leases, "LEAVE_SECONDS", 0.05)
    yield waiting
    end.set()
    wait_until(lambda: all(thread.name != "dcpred-lease" for thread in threading.enumerate()))


def test_silence_is_known_while_a_sign_waits(place: Place, stuck: threading.Event) -> None:
    """And who leaves does not wait for its answer."""
    with acquire_lock(place) as lease:
        assert stuck.wait(60)
        wait_until(lambda: lease.lost)


def test_a_suspended_driver_is_not_silent_before_it_can_give_a_sign(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, stopped, now = taken(place), threading.Event(), [0.0]
    looks = iter([False, False, True])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def look(seconds: float) -> bool:
        now[0] += 3600.0  # a machine that slept
        return next(looks)

    monkeypatch.setattr(stopped, "wait", look)
    lease.watch(stopped)
    assert not lease.lost
    assert lease.awake == 2 * leases.SIGN_SECONDS
    looks = iter([*[False] * 10, True])
    lease.watch(stopped)
    assert lease.lost
