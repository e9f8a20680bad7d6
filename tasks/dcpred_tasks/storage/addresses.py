"""Addresses of data, models and outputs: paths, and places on object stores.

    path, file:///path                  a local or mounted disk
    s3://bucket/path                    Amazon S3, and what speaks as it does
    gs://bucket/path                    Google Cloud Storage
    az://container/path, abfs://…       Azure Blob Storage; its account is an option or in the environment
    https://host/path                   any server of files, to read from

Secrets come from the environment or the role of each process, and never through an address or an option:
those are written into plans, manifests and messages.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dcpred_tasks.errors import DataError, SettingsError

SERVERS = ("https", "http")
ALIASES = {"abfs": "az"}  # two names of one store, which is one address
SCHEMES = ("s3", "gs", "az", *ALIASES, *SERVERS, "memory")
TELLING = "s3://, gs://, az://, abfs://, https:// or file://"
# Options that are no secrets, with what they mean.
OPTIONS = {
    "endpoint": "address of the server, where it is not the vendor's",
    "region": "region of the bucket",
    "allow_http": "true: a server without TLS is allowed",
    "virtual_hosted_style_request": "true: the bucket is a part of the host's name, in an endpoint, too",
    "request_payer": "true: who asks pays",
    "skip_signature": "true: without credentials, for public buckets",
    "account_name": "account of Azure",
    "root_certificate": "path of a file of PEM certificates to trust, too",
    "timeout": "seconds that a request may take",
    "missing_chunks": "fill: chunks that are not stored hold the fill value, on disks, too",
}
MISSING_CHUNKS, FILL = "missing_chunks", "fill"
FLAGS = ("allow_http", "virtual_hosted_style_request", "request_payer", "skip_signature")
# What other libraries call these options.
OTHER_NAMES = {
    "endpoint_url": "endpoint",
    "aws_endpoint_url": "endpoint",
    "region_name": "region",
    "aws_region": "region",
    "anon": "skip_signature",
    "requester_pays": "request_payer",
    "ssl_ca": "root_certificate",
    "verify": "root_certificate",
    "account": "account_name",
}
SECRET = re.compile(r"key|secret|token|sas|password|credential|bearer", re.IGNORECASE)
MOST_SECONDS = 86_400.0  # the longest time-out
BUCKET = re.compile(r"\$?[A-Za-z0-9][A-Za-z0-9._-]*")  # Azure has containers as $web
HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
AZURE_HOST = re.compile(r"^[^:@]+@[a-z0-9]+\.(dfs|blob)\.core\.windows\.net$")
# A URL that has been a pathlib.Path lost one of its slashes.
LOST_SLASH = re.compile(r"(s3|gs|az|abfs|https?|memory):/(?!/)")

T = TypeVar("T")
Options = tuple[tuple[str, str], ...]
_options: ContextVar[Options] = ContextVar("storage_options", default=())


@dataclass(frozen=True)
class StoreAddress:
    """An address on an object store, taken apart."""

    scheme: str
    """Of those that mean the same, always the same one."""
    bucket: str
    """The bucket or container; of https the host, with its port."""
    path: str
    """Names below it, joined by `/`, without one at either end."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")


def is_remote(address: str | Path) -> bool:
    """Whether an address is one of an object store, and no path."""
    return "://" in local_path(address)


def local_path(address: str | Path) -> str:
    """The address without `file://`, whose store takes a path in Zarr 3.1 that is not atomic. Raises
    DataError for a URL that lost a slash, and for what is no path.
    """
    if not isinstance(address, str | os.PathLike):
        kind = type(address).__name__
        first = (
            "Save it with its method save, and pass the path" if hasattr(address, "save") else "Pass a str"
        )
        raise DataError(
            f"Cannot use {'None' if address is None else f'a value of type {kind}'} as a path or address."
            f" {first}{'' if hasattr(address, 'save') else ' or a pathlib.Path'}."
        )
    text = str(address)
    if not text:
        raise DataError("Cannot use an empty text as a path or address. Name a file or a directory.")
    check_text(text)
    if LOST_SLASH.match(text):
        raise DataError(
            f"{text} was given, but an address of a store has two slashes after the colon, of which a"
            " pathlib.Path takes one; write both, and pass it as a str"
        )
    if not text.startswith("file://"):
        return text
    path = text.removeprefix("file://").removeprefix("localhost")
    if not path.startswith("/"):
        raise DataError(
            f"{text} was given as an address, but a file:// address has no host and a whole path; write it as"
            " file:///path, or as a path"
        )
    return path


def check_text(name: str) -> None:
    """Raise DataError for a name that is no text of this locale: plans and models, which are UTF-8, could not
    hold it.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode("ascii", "backslashreplace").decode()
        raise DataError(
            f"Cannot use the name {shown}: it is not text in the encoding of this locale. Rename it, or set"
            " PYTHONUTF8=1 where names are UTF-8."
        ) from None


def absolute(address: str | Path) -> str:
    """The address as any process would find it. Raises DataError."""
    path = local_path(address)
    if "://" in path:
        return str(parse(path))
    path = os.path.realpath(path)
    check_text(path)
    return path


def check_writable(address: str | Path, what: str) -> None:
    """Raise DataError for an address that is none, or is only read from. what: is to be written there, as
    "scores".
    """
    if absolute(address).startswith(("http://", "https://")):
        raise DataError(
            f"{what} were to be written to {absolute(address)}, but dcpred only reads from servers of files;"
            " name a bucket or a folder"
        )


def below(address: str | Path, *names: str) -> str:
    """The address of what lies below another."""
    return "/".join([local_path(address).rstrip("/"), *(name for name in names if name)])


def parse(address: str) -> StoreAddress:
    """Take the address of a store apart. Raises DataError in one sentence."""
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise DataError(f"{_safe(address)} was given as an address, but dcpred knows {TELLING}; use one")
    if "?" in rest or "#" in rest:
        raise DataError(
            f"{_safe(address)} was given as an address, but addresses are kept in plans, so that nothing may"
            " follow ? or #; leave it out, and put credentials into the environment of every process"
        )
    bucket, _, path = rest.partition("/")
    if "@" in bucket and AZURE_HOST.search(bucket):
        container, _, host = bucket.partition("@")
        raise DataError(
            f"{_safe(address)} was given as an address with its account, but dcpred takes that as an option;"
            f" write {scheme}://{container}/… with --storage-option account_name={host.partition('.')[0]}"
        )
    if not bucket:
        raise DataError(
            f"{address} was given as an address, but it names no bucket; write {scheme}://BUCKET/PATH"
        )
    if not _is_name(scheme, bucket):
        if "@" in rest:  # in the path, too: a secret of Amazon may hold a slash
            raise DataError(
                f"{_safe(address)} was given as an address with a user or password, but addresses are kept in"
                " plans; leave it out, and put credentials into the environment of every process"
            )
        raise DataError(
            f"an address of {scheme}:// was given whose first part is no name of a bucket or server: letters,"
            f" digits, dots, - and _ are; write {scheme}://"
            + ("HOST:PORT/PATH" if scheme in SERVERS else "BUCKET/PATH")
        )
    path = path.removesuffix("/")
    names = path.split("/") if path else []
    if any(name in ("", ".", "..") for name in names):
        raise DataError(
            f"{address} was given as an address, but stores have no empty names, . or .. in a path; write it"
            " without"
        )
    bucket = bucket.lower() if scheme in SERVERS else bucket  # hosts are the same in any case of letters
    return StoreAddress(ALIASES.get(scheme, scheme), bucket, "/".join(names))


def _is_name(scheme: str, bucket: str) -> bool:
    return (HOST if scheme in SERVERS else BUCKET).fullmatch(bucket) is not None


def _safe(address: str) -> str:
    """An address without what may be a secret."""
    scheme, separator, rest = address.rpartition("://")
    rest = re.split(r"[?#]", rest)[0]
    bucket = rest.partition("/")[0]
    is_plain = _is_name(scheme, bucket) or AZURE_HOST.search(bucket)
    return f"{scheme}{separator}{rest if is_plain else rest.rpartition('@')[2]}"


def check_options(given: Mapping[str, str | bool | float]) -> Options:
    """Options by name, sorted. Raises SettingsError for one that is unknown, a secret, or no such value."""
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"storage options were given as {type(given).__name__}, but they are names with values; write"
            " {'region': …}"
        )
    options = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }
    for name, value in options.items():
        if name in OTHER_NAMES:
            raise SettingsError(
                f"storage option {name!r} was given, but dcpred calls it {OTHER_NAMES[name]}; write"
                f" {OTHER_NAMES[name]}=…"
            )
        if name not in OPTIONS:
            known = ", ".join(OPTIONS)
            if SECRET.search(name):
                raise SettingsError(
                    f"storage option {name!r} was given, but options are kept in plans, unlike secrets; set"
                    " them in the environment of driver and workers"
                )
            raise SettingsError(f"storage option {name!r} was given, but the options are {known}; use those")
        if name in FLAGS and value not in ("true", "false"):
            raise SettingsError(
                f"storage option {name}={value} was given, but it is true or false; write one"
            )
        if name == MISSING_CHUNKS and value != FILL:
            raise SettingsError(
                f"Storage option {name}={value} is invalid. Write {name}={FILL} where chunks that are not"
                " stored hold the fill value, or leave it out."
            )
        if name == "timeout" and not _is_positive(value):
            raise SettingsError(
                f"storage option timeout={value} was given, but it is seconds above 0, at most a day;"
                " write those"
            )
        if name == "root_certificate" and not os.path.isfile(value):
            raise SettingsError(
                f"storage option root_certificate={value} was given, but there is no such file; name one with"
                " PEM certificates that driver and workers see"
            )
        if name == "endpoint" and ("@" in value or "?" in value or not re.match(r"https?://[^/]", value)):
            raise SettingsError(
                f"storage option endpoint={_safe(value)} was given, but it is an address as"
                " https://host:port, without user, password or query; write it so"
            )
    return tuple(sorted(options.items()))


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) <= MOST_SECONDS
    except ValueError:
        return False


def current_options() -> Options:
    """The storage options of this thread's work."""
    return _options.get()


def fills_missing_chunks() -> bool:
    """Whether the user declared that input chunks that are not stored hold the fill value."""
    return (MISSING_CHUNKS, FILL) in _options.get()


def as_arguments(address: str | Path) -> str:
    """The words that name an address on a command line: itself, and the options of this thread's stores."""
    of_disks = ((MISSING_CHUNKS, FILL),) if fills_missing_chunks() else ()
    options = _options.get() if is_remote(address) else of_disks
    return shlex.join([str(address), *(f"--storage-option={name}={value}" for name, value in options)])


def with_options(options: Options, body: Callable[..., T], *task: Any) -> T:
    """body(*task), with the storage options of the driver."""
    with storage_options(options):
        return body(*task)


@contextmanager
def storage_options(options: Options) -> Iterator[None]:
    """Options of all stores that are opened within a `with` statement, in this thread."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)
