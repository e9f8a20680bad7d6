"""The lease of an output: one driver at a time, and who holds it knows when it does no longer."""

import errno
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dcpred.execution import lease as leases
from dcpred.execution.lease import LOCK, Lease, acquire_lock, check_unlocked, lock_holder
from dcpred_tasks.errors import ResourceError, RunHeldError
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from support.mutations import mutated
from support.processes import wait_until
from support.stores import Proxy, StoreServer, used


@pytest.fixture(params=["disk", "s3", "moto", "gcs", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "disk":
        yield open_place(tmp_path)
        return
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


def taken(place: Place) -> Lease:
    """A lease whose holder gives no signs by itself, and has no guard."""
    lease = Lease(place)
    lease.take()
    return lease


def silent_for(seconds: float, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_silent", lambda *_: seconds)


def test_a_second_driver_is_refused(place: Place) -> None:
    with acquire_lock(place) as lease:
        lease.check()
        assert "process" in lock_holder(place)
        with pytest.raises(RunHeldError, match="is in use by process"):
            check_unlocked(place)
        heard = "" if lease.guarded else r", heard of \d+ s ago \(a lease ends \d+ s after the last sign\)"
        with (
            pytest.raises(RunHeldError, match=rf"in use by process \d+ on [^,]*{heard}\. Wait"),
            acquire_lock(place),
        ):
            pass
        lease.check()
    assert lock_holder(place) == ""
    with acquire_lock(place) as lease:
        lease.check()
    assert place.names("") - {".lock.guard"} == {LOCK}


def test_who_is_silent_for_long_is_followed_and_knows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = taken(place)
    first.sign_once()
    silent_for(leases.expiry_seconds() + 1, monkeypatch)
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
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.0)
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
            return leases.expiry_seconds() + 1

        patch.setattr(leases, "_silent", looked)
        with pytest.raises(RunHeldError, match="another driver was faster"):
            taken(place)
    first.check()


def test_a_sign_comes_before_a_takeover(place: Place) -> None:
    check_no_late_takeover(place)


def test_with_equal_bytes_in_signs_a_takeover_comes_late(s3_place: Place) -> None:
    """A tag of S3 is a digest of the bytes."""
    with (
        mutated(Lease, "body", '"sign": secrets.token_hex(8)', '"sign": ""'),
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
    silent_for(leases.expiry_seconds() + 1, monkeypatch)
    s3_proxy.set_faults(lock)
    second = taken(proxied)
    second.check()
    assert s3_proxy.counts()[fault] >= 3


def test_one_of_many_drivers_takes_over(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(s3_place)
    silent_for(leases.expiry_seconds() + 1, monkeypatch)
    taken_ones, started = [], threading.Barrier(6)

    def drive() -> None:
        started.wait()
        with suppress(RunHeldError):
            taken_ones.append(taken(s3_place))

    threads = [threading.Thread(target=drive) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holders = []
    for lease in taken_ones:
        with suppress(RunHeldError):
            lease.check()
            holders.append(lease)
    assert len(holders) == 1


def test_a_holder_whose_signs_do_not_arrive_stops_before_another_starts(
    s3_proxy: Proxy, proxied: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SIGN_SECONDS", 0.05)
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.5)
    with acquire_lock(proxied) as lease:
        lease.check()
        s3_proxy.set_faults({"match": "^PUT .*/lock", "fault": "403 before"})
        wait_until(lambda: lease.lost)
        s3_proxy.set_faults()
        with pytest.raises(RunHeldError):
            lease.check()


def test_a_lease_that_is_damaged_frees_itself(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for rubbish in (b"{", b"[]", b"\xff\xfe", json.dumps({"holder": 7}).encode()):
        s3_place.write(LOCK, rubbish)
        with pytest.raises(RunHeldError, match="in use by"):
            taken(s3_place)
        with monkeypatch.context() as patch:
            silent_for(leases.expiry_seconds() + 1, patch)
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
        patch.setattr(leases, "_machine", lambda: "another one")
        patch.setattr(leases.socket, "gethostname", lambda: "another one")
        with pytest.raises(RunHeldError, match="is in use by process"):
            taken(place)
    with acquire_lock(place) as second:
        assert lock_holder(place) != ""
        with pytest.raises(RunHeldError, match="was taken over by process"):
            first.check()
        second.check()


def test_a_driver_of_an_earlier_version_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It locks another file: nothing but its signs shows that it lives. Where it ended, it left no name."""
    name = f"process 1 on {leases.socket.gethostname()}"
    (tmp_path / LOCK).write_text(f"{name} · 0123456789abcdef\n")
    place = open_place(tmp_path)
    with pytest.raises(RunHeldError, match=f"in use by {name}, heard of"), acquire_lock(place):
        pass
    with monkeypatch.context() as patch:
        silent_for(leases.expiry_seconds() + 1, patch)
        with acquire_lock(place) as lease:
            lease.check()
    (tmp_path / LOCK).write_bytes(b"")
    with acquire_lock(place) as lease:
        lease.check()


def test_the_guard_of_a_disk_tells_the_dead_from_the_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old a sign is, who has the guard holds; without it, who was of this computer is dead."""
    place, another = open_place(tmp_path), open_place(tmp_path)
    with acquire_lock(place) as lease, monkeypatch.context() as patch:
        silent_for(leases.expiry_seconds() + 1, patch)
        patch.setattr(leases, "INSTANT_SECONDS", 0.0)
        with pytest.raises(RunHeldError, match="is in use by process"), acquire_lock(another):
            pass
        assert lock_holder(another) != ""
        lease.check()
    taken(place)  # by a process that is alive, whose number another container may have
    monkeypatch.setattr(leases, "_machine", lambda: "another container")
    assert lock_holder(another) == ""
    monkeypatch.setattr(leases.socket, "gethostname", lambda: "elsewhere")
    assert lock_holder(another) != ""


def test_a_disk_that_hangs_for_long_loses_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard keeps others out, which no store does."""
    monkeypatch.setattr(leases, "SIGN_SECONDS", 0.02)
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.0)
    tried = []

    def hangs(*given: object) -> None:
        tried.append(given)
        raise OSError(errno.EIO, "Input/output error")

    with acquire_lock(open_place(tmp_path)) as lease, monkeypatch.context() as patch:
        patch.setattr("dcpred_tasks.storage.place.write_bytes", hangs)
        wait_until(lambda: len(tried) > 4)
        lease.check()
