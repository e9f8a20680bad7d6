"""What dcpred makes of a store that refuses or does not answer: never damage, never something missing.

A run and a model lie on a store in memory. Each command asks it for a number of things; in turn one of them
cannot be had, from the first time or from the last.
"""

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, NotFoundError
from obstore.store import MemoryStore

from dcpred.reports.inspection import inspect
from dcpred.runs.bad_rows import errors
from dcpred.runs.status import run_status
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.serving.served_model import load_model
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage import bucket, store_requests, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_group
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.object_arrays import BucketArrays
from dcpred_tasks.storage.store_requests import (
    StoreError,
    at_once,
    is_transient,
    request_threads,
    translate,
    waited_for,
)
from dcpred_tasks.task_bodies import score_block
from support.models import random_model, random_rows
from support.serving import read_models_once

ROWS = 40
AT = "memory://answers"
MODEL, DATA, OUTPUT = f"{AT}/model", f"{AT}/data.zarr", f"{AT}/out"


@dataclass
class Requests:
    """What is asked of the store, and how often; from the `nth` time on, `lost` cannot be had."""

    asked: Counter[str] = field(default_factory=Counter)
    lost: str = ""
    nth: int = 1
    error: Callable[[str], Exception] = StoreError

    def ask(self, what: str) -> None:
        self.asked[what] += 1
        if what == self.lost and self.asked[what] >= self.nth:
            raise self.error(f"{what} cannot be had")

    def lose(self, what: str, nth: int) -> None:
        self.asked.clear()
        self.lost, self.nth = what, nth


@pytest.fixture(scope="module", autouse=True)
def on_store() -> Iterator[None]:
    """A finished run of two blocks on a store in memory."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MIN_BLOCK_ROWS", 1), ("MAX_CHUNK_ROWS", 20), ("BLOCKS", 2)):
            patch.setattr(f"dcpred.execution.block_plan.{name}", value)
        patch.setattr(store_requests, "FIRST_WAIT_SECONDS", 0.0)
        patch.setattr(bucket, "WAIT_SECONDS", 0.0)
        patch.setitem(bucket.IN_MEMORY, "answers", MemoryStore())
        model = random_model(5)
        X = random_rows(model, ROWS, seed=1, bad=0.02)
        write_model(MODEL, model, {}, {})
        group = zarr_arrays.create_group(DATA)
        zarr_arrays.create_array(group, "X", X.shape, X.dtype, 20)[...] = X
        score(MODEL, DATA, OUTPUT)
        yield


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    asked = Requests()
    request, translated, part = bucket.request, BucketArrays._translated, Bucket._part

    def through(call: Callable[[], Any], address: str) -> Any:
        asked.ask(address)
        return request(call, address)

    async def awaited(self: BucketArrays, awaitable: Any, key: str) -> Any:
        try:
            asked.ask(self._at(key))
        except Exception:
            awaitable.close()
            raise
        return await translated(self, awaitable, key)

    def listed(self: Bucket, folder: str, start: str | None, stop: str | None) -> Any:
        asked.ask(f"list {folder}")
        return part(self, folder, start, stop)

    for module in (bucket, store_requests):
        monkeypatch.setattr(module, "request", through)
    monkeypatch.setattr(BucketArrays, "_translated", awaited)
    monkeypatch.setattr(Bucket, "_part", listed)
    return asked


def forget() -> None:
    """Make it as for a new process, which has opened nothing, after the last one's lease has ended."""
    zarr_arrays._opened_once.cache_clear()
    score_block.open_model.cache_clear()
    obstore.delete(bucket.IN_MEMORY["answers"], "out/lock")


COMMANDS: dict[str, Callable[[], Any]] = {
    "verify fast": lambda: verify(OUTPUT, "fast").findings,
    "verify full": lambda: verify(OUTPUT, "full").findings,
    "verify sample": lambda: verify(OUTPUT, "sample").findings,
    "score again": lambda: score(MODEL, DATA, OUTPUT).n_rows,
    "repair": lambda: repair(MODEL, DATA, OUTPUT).status,
    "status": lambda: run_status(OUTPUT).done_blocks,
    "errors": lambda: errors(OUTPUT, 100, every=True),
    "inspect": lambda: inspect(OUTPUT),
    "load_model": lambda: load_model(MODEL).model.n_features,
}


@pytest.mark.parametrize(
    ("name", "error"),
    [*((name, StoreError) for name in COMMANDS), ("verify full", ResourceError), ("errors", ResourceError)],
)
def test_what_cannot_be_had_is_neither_damaged_nor_missing(
    name: str, error: type[Exception], requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "load_model":  # which shows it of the arrays of a model
        read_models_once(monkeypatch)
    command, before = COMMANDS[name], contents()
    forget()
    requests.asked.clear()
    expected = command()
    wanted = dict(requests.asked)
    assert len(wanted) >= 3
    requests.error = error
    for number, (what, times) in enumerate(wanted.items()):
        nth = (1, times)[number % 2]  # A chunk is looked for before it is read.
        forget()
        requests.lose(what, nth)
        with suppress(error, ResourceError):  # Of a lock, the second one.
            assert command() == expected, (what, nth)
    requests.lose("", 1)
    assert contents() == before, "what is on the store was changed"


def contents() -> dict[str, bytes]:
    """All objects but the lease, each sign of which has other bytes, and probes that are told to be so."""
    place = bucket.open_bucket(AT)
    names = [name for name in place.listing() if not name.endswith("/lock") and ".partial-" not in name]
    return {name: standing.data for name in names if (standing := place.read(name)) is not None}


@pytest.mark.parametrize(
    "name", ["certificates", "redirect", "NoSuchBucket", "status 403", "builder error", "AccessDenied"]
)
def test_a_name_tells_no_cause(name: str) -> None:
    """obstore repeats addresses and names in what it says."""
    for where in (f"http://h/{name.replace(' ', '%20')}/0", "http://h/x"):
        text = (
            f"Generic S3 error: Error performing GET {where} in 2s, after 4 retries - Server returned non-2xx"
            " status code: 503 Service Unavailable: <Error><Code>SlowDown</Code>"
            f'<Key>{name}/0</Key></Error>\n\nDebug source:\n path: "{name}/0", uri: {where}'
        )
        meant = translate(GenericError(text), f"s3://bucket/{name}/0")
        assert type(meant) is StoreError
        assert is_transient(meant)
        assert "\n" not in str(meant)


# What obstore 0.12.1 says of each, shortened.
SAID = {
    "the store refuses it": "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>",
    "ExpiredToken": "status code: 400 Bad Request: <Error><Code>ExpiredToken</Code></Error>",
    "bucket s3://bucket does not exist": 'code: 404 Not Found: <?xml?>\n<Error><Code>NoSuchBucket</Code>"',
    "Create it or choose another": 'code: 404 Not Found: <?xml?>\n<Error>\n  <Code>ContainerNotFound</Code>"',
    "without TLS": "HTTP error: builder error",
    "in another region": "Received redirect without LOCATION, this normally indicates a wrong region",
    "is not trusted": "HTTP error: error sending request\n\nDebug source: InvalidCertificate(UnknownIssuer)",
}


@pytest.mark.parametrize("sentence", SAID)
def test_a_cause_that_stays_is_told(sentence: str) -> None:
    meant = translate(GenericError(f"Generic S3 error: {SAID[sentence]}"), "s3://bucket/name")
    assert isinstance(meant, ResourceError)
    assert sentence in str(meant)
    assert "\n" not in str(meant)


def test_a_reply_is_told_without_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-mine")
    body = (
        "<?xml version='1.0'?>\n<Error><Code>ExpiredToken</Code><Message>It has\nexpired.</Message>"
        "<Token-0>the-token</Token-0><RequestId>1</RequestId></Error>"
    )
    for text in (body, body.removesuffix("</Error>"), f"{body} a-secret-of-mine"):
        meant = translate(
            GenericError(f"status code: 400 Bad Request: {text}\n\nDebug source:\n x"), "s3://b/x"
        )
        assert isinstance(meant, ResourceError)
        assert "400 Bad Request: ExpiredToken: It has" in str(meant)
        assert not any(word in str(meant) for word in ("the-token", "RequestId", "a-secret-of-mine", "Debug"))


def test_a_request_beside_one_that_failed_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio tells of futures that nobody asked for their error, when they are thrown away."""
    open_group(DATA)

    async def thrown_away(error: Exception) -> None:
        asyncio.get_running_loop().create_future().set_exception(error)
        gc.collect()

    asyncio.run(thrown_away(GenericError("no rights")))
    asyncio.run(thrown_away(NotFoundError("nothing there")))
    assert caplog.text == ""
    asyncio.run(thrown_away(ValueError("news")))
    assert "never retrieved" in caplog.text


@pytest.mark.parametrize("seed", [5, 6])
def test_who_is_second_with_a_model_leaves_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same model, or another one, came between the look and the last write."""
    place = bucket.open_bucket(f"{AT}/{seed}-model")
    create = Bucket.create

    def late(self: Bucket, name: str, data: bytes) -> bool:
        monkeypatch.setattr(Bucket, "create", create)
        write_model(f"{AT}/first", random_model(5), {}, {})
        for standing, found in stored("first").items():
            place.write(standing, found)
        return create(self, name, data)

    monkeypatch.setattr(Bucket, "create", late)
    with nullcontext() if seed == 5 else pytest.raises(DataError, match="it already exists"):
        write_model(place.address, random_model(seed), {}, {})
    assert stored(f"{seed}-model") == stored("first")
    for standing in bucket.open_bucket(f"{AT}/first").listing():
        bucket.open_bucket(f"{AT}/first").remove(standing)


def stored(folder: str) -> dict[str, bytes]:
    place = bucket.open_bucket(f"{AT}/{folder}")
    return {name: standing.data for name in place.listing() if (standing := place.read(name)) is not None}


def test_calls_that_wait_for_requests_wait_together() -> None:
    """Each call ends only when all have begun; within a thread of requests they come one after the other."""
    barrier = threading.Barrier(5, timeout=60)
    assert at_once([lambda n=n: (barrier.wait(), n)[1] for n in range(5)], AT) == [*range(5)]  # type: ignore[misc]
    later = request_threads().submit(lambda: at_once([lambda n=n: n for n in range(5)], AT))  # type: ignore[misc]
    assert waited_for(later, AT) == [*range(5)]
    with pytest.raises(StoreError, match="lost"):
        at_once([lambda: 1, partial(fail, StoreError("lost"))], AT)


def fail(error: Exception) -> None:
    raise error
