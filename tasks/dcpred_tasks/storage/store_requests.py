"""Requests to object stores through obstore: made from threads, their errors told in our words.

obstore holds off Ctrl-C while it waits, so that it is called from threads that nobody has to wait for. Its
errors are no OSErrors, and one class stands for many causes: what they mean is read from them here.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import lru_cache, partial
from importlib import import_module
from queue import SimpleQueue
from typing import Any, TypeVar

from dcpred_tasks.errors import DcpredError, ResourceError, SettingsError
from dcpred_tasks.storage.addresses import SECRET, parse

T = TypeVar("T")

LOOK_SECONDS = 0.1  # between two looks whether a caller that waits was interrupted
THREADS = 32
# Where clouds tell a machine the credentials of its role.
METADATA = re.compile(r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity")
# What a name, which may hold any word, stands in, in the text of an error: it must not tell the cause.
NAMES = re.compile(r"https?://\S+|path: \"[^\"]*\"|<(Key|Resource|BucketName)>[^<]*</\1>")
BODY = re.compile(r"(<\?xml.*?>\s*)?<Error\b.*?(</Error>|\Z)", re.DOTALL)
REASON = re.compile(r'(?:message: "|error: ")([^"]{5,80})"')  # why a connection was not made
SHORTEST_SECRET = 8  # characters; shorter values of variables may stand anywhere
# Causes, in the text of errors that have no class of their own.
REFUSED = re.compile(r"status code: 40[13] |<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired)<")
NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)<|bucket does not exist", re.IGNORECASE)
OTHER_REGION = re.compile("Received redirect|PermanentRedirect|AuthorizationHeaderMalformed")
UNTRUSTED = re.compile("InvalidCertificate|invalid peer certificate")
BROKEN = re.compile("response body")
ATTEMPTS = 4  # at what breaks off
WAIT_SECONDS = 0.1


def obstore() -> Any:
    """The package. Raises SettingsError where it is not installed."""
    try:
        return import_module("obstore")
    except ImportError:
        raise SettingsError(
            "an address of an object store was given, but the package obstore is not installed; install"
            ' "dcpred[stores]" where driver and workers run'
        ) from None


class StoreError(OSError):
    """A request that failed for a while: a lost connection, a time-out, a server that is overloaded."""

    advice = "see to the path and its storage, then run again"


class BrokenReplyError(StoreError):
    """A reply of which a part came: obstore does not ask again, as it does after all other failures that may
    pass.
    """


def told(error: Exception, address: str) -> Exception:
    """What an error of obstore means, with the first line of what it says: the rest is a dump."""
    exceptions = obstore().exceptions
    if isinstance(error, FileNotFoundError | DcpredError):
        return error
    line = _said(str(error))
    text = NAMES.sub("", str(error)[:4000])
    denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if denied or REFUSED.search(text):
        return ResourceError(
            f"{address} was to be read or written, but the store refuses it ({line}); give this process"
            " credentials that may, in its environment or role"
        )
    if NO_BUCKET.search(text):
        return _no_bucket(address)
    if "builder error" in text:
        return ResourceError(
            f"{address} was to be reached over a connection without TLS; ask for it with --storage-option"
            " allow_http=true, or give an endpoint that begins with https://"
        )
    if OTHER_REGION.search(text):
        return ResourceError(
            f"{address} was to be reached, but its bucket is in another region ({line}); name it with"
            " --storage-option region=…"
        )
    if UNTRUSTED.search(text):
        return ResourceError(
            f"{address} was to be reached, but its certificate is not trusted ({line}); name the CA with"
            " --storage-option root_certificate=FILE"
        )
    if METADATA.search(line):
        lacking = StoreError(
            f"{address}: no credentials are in the environment, and no role gives any ({line})"
        )
        lacking.advice = "give this process some, in its environment or role"
        return lacking
    broken = BROKEN.search(text) and "timed out" not in text
    return (BrokenReplyError if broken else StoreError)(f"{address}: {line}")


def _said(text: str) -> str:
    """The first line of an error, of a reply in it no more than code and message: others of its elements hold
    what was sent, as <Token-0> of S3 holds the token of a session.
    """
    line = BODY.sub(_code_and_message, text[:10_000]).partition("\n")[0].strip()
    reason = REASON.search(text[:10_000])
    if reason and reason[1] not in line:
        line = f"{line}: {reason[1]}"
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST_SECRET:
            line = line.replace(value, "…")
    return line


def _code_and_message(body: re.Match[str]) -> str:
    found = (re.search(f"<{name}>([^<]*)</", body[0]) for name in ("Code", "Message"))
    return ": ".join(one[1].strip() for one in found if one)


def _no_bucket(address: str) -> ResourceError:
    where = parse(address) if "://" in address else None
    name = f"{where.scheme}://{where.bucket}" if where else address
    return ResourceError(
        f"{address} was to be read or written, but there is no bucket {name}; make it or name another"
    )


class RequestThreads:
    """Threads for requests, at most THREADS, which nobody waits for at the end of the process: a store that
    does not answer would hold it up for minutes.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._started = 0
        self._here = threading.local()

    @property
    def here(self) -> bool:
        """Whether the caller is one of these threads. If it waited for another, all could wait for none."""
        return bool(getattr(self._here, "yes", False))

    def submit(self, call: Callable[..., T], *args: Any) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and self._started < THREADS:
                self._started += 1
                self._idle += 1
                threading.Thread(target=self._serve, name="dcpred-store", daemon=True).start()
        self._calls.put((future, partial(call, *args)))
        return future

    def _serve(self) -> None:
        self._here.yes = True
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del future, call
            with self._lock:
                self._idle += 1


@lru_cache(maxsize=1)
def _pool(pid: int) -> RequestThreads:
    return RequestThreads()


def request_threads() -> RequestThreads:
    """Those of this process. A process that forks has to start its own; obstore does not survive that."""
    return _pool(os.getpid())


def waited_for(future: "Future[T]", address: str) -> T:
    """What a request comes to. The caller can be interrupted meanwhile."""
    while True:
        try:
            return future.result(LOOK_SECONDS)
        except NotYet:
            if future.done():
                raise StoreError(f"{address}: timed out") from None


def at_once(calls: Sequence[Callable[[], T]], address: str) -> list[T]:
    """What several calls return that wait for requests most of their time."""
    threads = request_threads()
    if threads.here:
        return [call() for call in calls]
    return [waited_for(future, address) for future in [threads.submit(call) for call in calls]]


def looked(call: Callable[[], T], address: str) -> T:
    """As `request`, of what changes nothing: asked again where the reply breaks off."""
    for _ in range(ATTEMPTS - 1):
        try:
            return request(call, address)
        except BrokenReplyError:
            time.sleep(WAIT_SECONDS)
    return request(call, address)


def request(call: Callable[[], T], address: str) -> T:
    """What a call of obstore returns, its errors translated."""
    threads = request_threads()
    try:
        return call() if threads.here else waited_for(threads.submit(call), address)
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error).partition("\n")[0]) from None
    except obstore().exceptions.BaseError as error:
        raise told(error, address) from None
