"""Preflight of an output on a store: what fails for a while is no reason to refuse it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from obstore.store import MemoryStore

from dcpred.scoring.preflight import check_conditions
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage import bucket, retry
from dcpred_tasks.storage.place import Place, open_place
from dcpred_tasks.storage.store_requests import StoreError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.001)
    with monkeypatch.context() as patch:
        patch.setitem(bucket.IN_MEMORY, "preflight", MemoryStore())
        yield open_place("memory://preflight/out")


def failing(n: int, real: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """What fails n times, and then does what it should."""

    def call(*args: Any) -> Any:
        calls.append(args[-1])
        if len(calls) <= n:
            raise StoreError("the store does not answer")
        return real(*args)

    return call


def test_a_probe_that_is_not_removed_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(bucket.Bucket, "remove", failing(3, bucket.Bucket.remove, calls))
    check_conditions(place)
    assert len(calls) == 4
    assert place.listing() == {}


def test_a_store_that_keeps_what_is_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket.Bucket, "remove", lambda *_: None)
    with pytest.raises(DataError, match="what is removed there stays"):
        check_conditions(place)


def test_a_store_that_does_not_remove_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal: the same command may do a minute later."""
    monkeypatch.setattr(bucket.Bucket, "remove", failing(99, bucket.Bucket.remove, []))
    with pytest.raises(StoreError):
        check_conditions(place)
