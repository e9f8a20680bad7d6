"""Requests to a store: opened once, retried, probed first."""

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from dcpred_tasks.errors import DcpredError, ResourceError, SettingsError, optional_package
from dcpred_tasks.storage.addresses import FLAGS, SECRET, Options, parse
from dcpred_tasks.storage.atomic_files import RESOURCE_ERRNOS
from dcpred_tasks.storage.place_types import Place

T = TypeVar("T")
Item = TypeVar("Item")

LOOK_SECONDS = 0.1  # between two checks for an interrupt of the caller
THREADS = 32
AT_ONCE = 64  # requests of `each_of`
# Where clouds provide the credentials of a role.
METADATA = re.compile(r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity")
# Names in the text of an error: they may hold any word, and must not determine the cause.
NAMES = re.compile(r"https?://\S+|path: \"[^\"]*\"|<(Key|Resource|BucketName)>[^<]*</\1>")
BODY = re.compile(r"(<\?xml.*?>\s*)?<Error\b.*?(</Error>|\Z)", re.DOTALL)
REASON = re.compile(r'(?:message: "|error: ")([^"]{5,80})"')  # why a connection failed
SHORTEST_SECRET = 8  # characters; shorter values of variables may occur anywhere
# Causes in the text of errors without their own class.
REFUSED = re.compile(r"status code: 40[13] |<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired)<")
NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)<|bucket does not exist", re.IGNORECASE)
OTHER_REGION = re.compile("Received redirect|PermanentRedirect|AuthorizationHeaderMalformed")
UNTRUSTED = re.compile("InvalidCertificate|invalid peer certificate")
BROKEN = re.compile("response body")
ATTEMPTS = 4  # for replies that break off
WAIT_SECONDS = 0.1


def obstore() -> Any:
    """The package. Raises SettingsError where it is not installed."""
    where = " where driver and workers run"
    with optional_package("use an object store in this process", "stores", where):
        import obstore

    return obstore


class StoreError(OSError):
    """A request that may succeed later: a lost connection, a time-out, an overloaded server."""

    advice = "Check the path and its storage, then run again."


class BrokenReplyError(StoreError):
    """A partial reply: obstore does not retry it, unlike other transient failures."""


def translate(error: Exception, address: str) -> Exception:
    """The cause of an error of obstore, with its first line: the rest is a dump."""
    exceptions = obstore().exceptions
    if isinstance(error, FileNotFoundError | DcpredError):
        return error
    line = _first_line(str(error))
    text = NAMES.sub("", str(error)[:4000])
    denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if denied or REFUSED.search(text):
        return ResourceError(
            f"Cannot access {address}: the store refuses it ({line}). Give this process sufficient"
            " credentials, in its environment or role."
        )
    if NO_BUCKET.search(text):
        return _no_bucket(address)
    if "builder error" in text:
        return ResourceError(
            f"Cannot reach {address} over a connection without TLS. Allow it with --storage-option"
            " allow_http=true, or set an endpoint that begins with https://."
        )
    if OTHER_REGION.search(text):
        return ResourceError(
            f"Cannot reach {address}: its bucket is in another region ({line}). Set --storage-option"
            " region=…."
        )
    if UNTRUSTED.search(text):
        return ResourceError(
            f"Cannot reach {address}: its certificate is not trusted ({line}). Name the CA with"
            " --storage-option root_certificate=FILE."
        )
    if METADATA.search(line):
        lacking = StoreError(f"{address}: neither the environment nor a role provides credentials ({line})")
        lacking.advice = "Provide credentials in the environment or role of this process."
        return lacking
    broken = BROKEN.search(text) and "timed out" not in text
    return (BrokenReplyError if broken else StoreError)(f"{address}: {line}")


def _first_line(text: str) -> str:
    """The first line of an error, with code and message of a reply: others may repeat secrets."""
    line = BODY.sub(_code_and_message, text[:10_000]).partition("\n")[0].strip()
    reason = REASON.search(text[:10_000])
    if reason and reason[1] not in line:
        line = f"{line}: {reason[1]}"
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST_SECRET:
            line = line.replace(value, "…")
    return line


def _code_and_message(body: re.Match[str]) -> str:
    parts = (re.search(f"<{name}>([^<]*)</", body[0]) for name in ("Code", "Message"))
    return ": ".join(part[1].strip() for part in parts if part)


def _no_bucket(address: str) -> ResourceError:
    where = parse(address) if "://" in address else None
    name = f"{where.scheme}://{where.bucket}" if where else address
    return ResourceError(
        f"Cannot access {address}: the bucket {name} does not exist. Create it or choose another."
    )


class RequestThreads:
    """At most THREADS threads for requests, which do not delay the end of the process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._started = 0
        self._here = threading.local()

    @property
    def here(self) -> bool:
        """Whether the caller is one of these threads, which must not wait for each other."""
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
    """The threads of this process. A forked process starts its own; obstore does not survive a fork."""
    return _pool(os.getpid())


def waited_for(future: "Future[T]", address: str) -> T:
    """The result of a request. The caller stays interruptible."""
    while True:
        try:
            return future.result(LOOK_SECONDS)
        except NotYet:
            if future.done():
                raise StoreError(f"{address}: timed out") from None


def each_of(place: Place, call: Callable[[Item], T], items: Iterable[Item]) -> Iterator[tuple[Item, T]]:
    """(item, call(item)) in the order of items: one after the other on a disk, many at once on a store."""
    if not place.many_at_once:
        yield from ((item, call(item)) for item in items)
        return
    left, threads = iter(items), request_threads()
    under_way = deque((item, threads.submit(call, item)) for item in islice(left, AT_ONCE))
    while under_way:
        item, future = under_way.popleft()
        yield item, waited_for(future, place.address)
        under_way.extend((item, threads.submit(call, item)) for item in islice(left, 1))


def at_once(calls: Sequence[Callable[[], T]], address: str) -> list[T]:
    """The results of several calls, made in parallel."""
    threads = request_threads()
    if threads.here:
        return [call() for call in calls]
    return [waited_for(future, address) for future in [threads.submit(call) for call in calls]]


def looked(call: Callable[[], T], address: str) -> T:
    """Do what `request` does, for reads only: retries where the reply breaks off."""
    for _ in range(ATTEMPTS - 1):
        try:
            return request(call, address)
        except BrokenReplyError:
            time.sleep(WAIT_SECONDS)
    return request(call, address)


def request(call: Callable[[], T], address: str) -> T:
    """The result of a call of obstore, with translated errors."""
    threads = request_threads()
    try:
        return call() if threads.here else waited_for(threads.submit(call), address)
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error).partition("\n")[0]) from None
    except obstore().exceptions.BaseError as error:
        raise translate(error, address) from None


RETRIES, RETRY_SECONDS, REQUEST_SECONDS = 4, 60.0, 30.0
ENDPOINT = re.compile(r"^(AWS|AZURE|GOOGLE)\w*(ENDPOINT|_URL)")
# Environment variables that obstore reads only without options of connections.
ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}


@lru_cache(maxsize=64)
def open_store(scheme: str, bucket: str, options: Options) -> Any:
    """The obstore store of a bucket, once per process. Raises ResourceError, SettingsError."""
    given = dict(options)
    check_endpoints()
    package = obstore().store
    settings: dict[str, Any] = {
        name: value == "true" for name, value in given.items() if name in FLAGS and name != "allow_http"
    }
    client: dict[str, Any] = {"timeout": timedelta(seconds=float(given.get("timeout", REQUEST_SECONDS)))}
    asked = given.get("allow_http", os.environ.get(ALLOW_HTTP.get(scheme, ""), "")).lower()
    if asked == "true" or scheme == "http":
        client["allow_http"] = True
    if "root_certificate" in given:
        client["root_certificate"] = Path(given["root_certificate"]).read_text(encoding="utf-8")
    common = {
        "client_options": client,
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    try:
        return _made(package, scheme, bucket, given, settings | common)
    except (obstore().exceptions.BaseError, ValueError) as error:
        file = given.get("root_certificate")
        of_file = "" if file is None else f", root_certificate={file}"
        raise ResourceError(
            f"Cannot open {scheme}://{bucket}: its settings are incomplete or invalid"
            f" ({str(error).partition(chr(10))[0]}{of_file}). Check the environment and the storage"
            " options."
        ) from None


def check_endpoints() -> None:
    """Raise SettingsError where an environment variable has an endpoint with a possible secret."""
    for name, value in os.environ.items():
        host = value.partition("://")[2].partition("/")[0]
        if ENDPOINT.search(name) and "://" in value and ("@" in host or "?" in value):
            raise SettingsError(
                f"Cannot use the endpoint of the variable {name}: it holds a user, a password or a query,"
                " which messages repeat. Remove them, and put credentials into their own variables."
            )


def _made(package: Any, scheme: str, bucket: str, given: dict[str, str], settings: dict[str, Any]) -> Any:
    """A store of one of the vendors."""
    if scheme in ("http", "https"):
        client = settings["client_options"]
        return package.HTTPStore.from_url(
            f"{scheme}://{bucket}", client_options=client, retry_config=settings["retry_config"]
        )
    endpoint = given.get("endpoint")
    if scheme == "s3":
        named = {"endpoint": endpoint, "region": given.get("region")}
        credentials = _profile_credentials()
        if credentials is not None and not settings.get("skip_signature"):
            settings["credential_provider"] = credentials
        return package.S3Store(bucket, **{k: v for k, v in named.items() if v}, **settings)
    if scheme == "gs":
        named = {"base_url": endpoint}
        return package.GCSStore(bucket, **{k: v for k, v in named.items() if v}, **settings)
    named = {"endpoint": endpoint, "account_name": given.get("account_name")}
    return package.AzureStore(bucket, **{k: v for k, v in named.items() if v}, **settings)


def _profile_credentials() -> Any:
    """Credentials of a profile of the AWS tools, which obstore does not read; needs boto3."""
    if "AWS_ACCESS_KEY_ID" in os.environ or "AWS_PROFILE" not in os.environ:
        return None
    with suppress(ImportError):
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider()
    return None


RACE_ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1
WAIT_FACTOR = 3.0  # 0.1, 0.3, 0.9, 2.7 s: bridges a failure of a few seconds
# Errors that a retry would raise again.
LASTING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed: after a time-out, a lost connection, an error of a device."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    return (
        isinstance(error, OSError) and not isinstance(error, LASTING) and error.errno not in RESOURCE_ERRNOS
    )


class Retrying:
    """Retries an operation that fails, and counts the retries."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, operation: Callable[[], T]) -> T:
        wait = FIRST_WAIT_SECONDS
        for _ in range(RACE_ATTEMPTS - 1):
            try:
                return operation()
            except Exception as error:
                if not is_transient(error):
                    raise
            self.count += 1
            time.sleep(wait)
            wait *= WAIT_FACTOR
        return operation()
