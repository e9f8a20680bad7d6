"""The lease of an output on a store: one driver at a time, and who holds it knows when it does no longer."""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dcpred.execution import lease as store_lease
from dcpred.execution.lease import LOCK, StoreLease, acquire_lock, check_unlocked, hold_on_store, lock_holder
from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage.place import Place, open_place
from support.mutations import mutated
from support.processes import wait_until
from support.stores import Proxy, StoreServer, used


@pytest.fixture(params=["s3", "moto", "gcs", "azure"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: StoreServer = request.getfixturevalue(request.param)
    with used(server):
        yield open_place(server.address(secrets.token_hex(4), "out"))


@pytest.fixture
def s3_place(s3: StoreServer) -> Iterator[Place]:
    with used(s3):
        yield open_place(s3.address(secrets.token_hex(4), "out"))


@pytest.fixture
def proxied(s3_proxy: Proxy) -> Iterator[Place]:
    with used(s3_proxy):
        s3_proxy.set_faults()
        yield open_place(s3_proxy.address(secrets.token_hex(4), "out"))
        s3_proxy.set_faults()


def taken(place: Place) -> StoreLease:
    """A lease whose holder gives no signs by itself."""
    lease = StoreLease(place)
    store_lease._take(lease)
    return lease


def silent_for(seconds: float, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_lease, "_silent", lambda *_: seconds)


def test_a_second_driver_is_refused(place: Place) -> None:
    with acquire_lock(place) as lease:
        lease.check()
        assert "process" in lock_holder(place)
        with pytest.raises(RunHeldError, match="is in use by process"):
            check_unlocked(place)
        with (
            pytest.raises(RunHeldError, match=r"a lease ends \d+ s after the last sign"),
            acquire_lock(place),
        ):
            pass
        lease.check()
    assert lock_holder(place) == ""
    with acquire_lock(place) as lease:
        lease.check()
    assert place.names("") == {LOCK}


def test_who_is_silent_for_long_is_followed_and_knows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = taken(place)
    first.sign_once()
    silent_for(store_lease.expiry_seconds() + 1, monkeypatch)
    second = taken(place)
    second.check()
    with pytest.raises(RunHeldError, match="was taken over by process"):
        first.check()
    first.lost = False
    first.sign_once()
    assert first.lost
    second.check()


def test_silence_is_told_by_the_clock_of_the_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times are whole seconds: a lease of no seconds lasts for the slack."""
    first = taken(place)
    monkeypatch.setattr(store_lease, "EXPIRY_SECONDS", 0.0)
    with pytest.raises(RunHeldError, match="is in use by process"):
        taken(place)
    wait_until(lambda: lock_holder(place) == "")
    second = taken(place)
    second.check()
    assert not first.lost
    with pytest.raises(RunHeldError):
        first.check()


def check_no_late_takeover(place: Place) -> None:
    """A driver finds the lease silent for long; the holder, who was only slow, gives a sign; and the other
    one is too late.
    """
    first = taken(place)
    with pytest.MonkeyPatch.context() as patch:

        def looked(*_: object) -> float:
            first.sign_once()
            return store_lease.expiry_seconds() + 1

        patch.setattr(store_lease, "_silent", looked)
        with pytest.raises(RunHeldError, match="another driver was faster"):
            taken(place)
    first.check()


def test_a_sign_comes_before_a_takeover(place: Place) -> None:
    check_no_late_takeover(place)


def test_with_equal_bytes_in_signs_a_takeover_comes_late(s3_place: Place) -> None:
    """A tag of S3 is a digest of the bytes."""
    with (
        mutated(StoreLease, "body", '"sign": secrets.token_hex(8)', '"sign": ""'),
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        check_no_late_takeover(s3_place)


@pytest.mark.parametrize("fault", ["drop after", "503 after", "409 before", "drop before", "half"])
def test_takes_and_signs_whose_replies_are_lost_count(
    s3_proxy: Proxy, proxied: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    lock = {"match": "^PUT .*/lock", "fault": fault, "times": 1}
    s3_proxy.set_faults(lock)
    first = taken(proxied)
    s3_proxy.set_faults(lock)
    first.sign_once()
    assert not first.lost
    first.check()
    silent_for(store_lease.expiry_seconds() + 1, monkeypatch)
    s3_proxy.set_faults(lock)
    second = taken(proxied)
    second.check()
    assert s3_proxy.counts()[fault] >= 3


def test_one_of_many_drivers_takes_over(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(s3_place)
    silent_for(store_lease.expiry_seconds() + 1, monkeypatch)
    leases, started = [], threading.Barrier(6)

    def drive() -> None:
        started.wait()
        with suppress(RunHeldError):
            leases.append(taken(s3_place))

    threads = [threading.Thread(target=drive) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holders = []
    for lease in leases:
        with suppress(RunHeldError):
            lease.check()
            holders.append(lease)
    assert len(holders) == 1


def test_a_holder_whose_signs_do_not_arrive_stops_before_another_starts(
    s3_proxy: Proxy, proxied: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lease, "SIGN_SECONDS", 0.05)
    monkeypatch.setattr(store_lease, "EXPIRY_SECONDS", 0.5)
    with hold_on_store(proxied) as lease:
        lease.check()
        s3_proxy.set_faults({"match": "^PUT .*/lock", "fault": "403 before"})
        wait_until(lambda: lease.lost)
        s3_proxy.set_faults()
        with pytest.raises(RunHeldError):
            lease.check()


def test_a_lease_that_is_damaged_frees_itself(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for rubbish in (b"", b"{", b"[]", b"\xff\xfe", json.dumps({"holder": 7}).encode()):
        s3_place.write(LOCK, rubbish)
        with pytest.raises(RunHeldError, match="in use by"):
            taken(s3_place)
        with monkeypatch.context() as patch:
            silent_for(store_lease.expiry_seconds() + 1, patch)
            taken(s3_place).check()


def test_no_answer_is_no_free_lease(s3_proxy: Proxy, proxied: Place) -> None:
    taken(proxied)
    s3_proxy.set_faults({"match": "^GET .*/lock", "fault": "403 before"})
    with pytest.raises(ResourceError, match="the store refuses it"):
        check_unlocked(proxied)


def test_a_process_of_this_machine_that_is_no_more_holds_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: ended.pid)
        first = taken(place)
    assert lock_holder(place) == ""
    with monkeypatch.context() as patch:
        patch.setattr(store_lease, "_machine", lambda: "another one")
        with pytest.raises(RunHeldError, match="is in use by process"):
            taken(place)
    second = taken(place)
    assert lock_holder(place) != ""
    with pytest.raises(RunHeldError, match="was taken over by process"):
        first.check()
    second.check()
