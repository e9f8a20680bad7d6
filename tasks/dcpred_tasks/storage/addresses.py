"""Addresses of data, models and outputs: paths, and places on object stores.

    path, file:///path                  a local or mounted disk
    s3://bucket/path                    Amazon S3, and compatible servers
    gs://bucket/path                    Google Cloud Storage
    az://container/path, abfs://…       Azure Blob Storage; its account is an option or in the environment
    https://host/path                   any server of files, to read from

Secrets come from the environment or the role of each process, and never through an address or an option:
plans, manifests and messages contain those.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, overload
from urllib.parse import quote, unquote

from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.storage.once import reading_once

SERVERS = ("https", "http")
ALIASES = {"abfs": "az"}  # two names of one store
SCHEMES = ("s3", "gs", "az", *ALIASES, *SERVERS, "memory")
TELLING = "s3://, gs://, az://, abfs://, https:// or file://"
# Options that are not secrets, with their meaning.
OPTIONS = {
    "endpoint": "address of the server, where it is not the vendor's",
    "region": "region of the bucket",
    "allow_http": "true: a server without TLS is allowed",
    "virtual_hosted_style_request": "true: the bucket is part of the host name, also in an endpoint",
    "request_payer": "true: the requester pays",
    "skip_signature": "true: without credentials, for public buckets",
    "account_name": "account of Azure",
    "root_certificate": "path of a file of further trusted PEM certificates",
    "timeout": "seconds that a request may take",
    "missing_chunks": "fill: chunks that are not stored hold the fill value, also on disks",
}
MISSING_CHUNKS, FILL = "missing_chunks", "fill"
FLAGS = ("allow_http", "virtual_hosted_style_request", "request_payer", "skip_signature")
# Names of these options in other libraries.
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

DELTA_LOG = "_delta_log"
DELTA_VERSION = re.compile(rf"/{DELTA_LOG}/(\d{{20}})\.json$")  # the address of a version of a Delta table
# Options of stores, as the library of Delta tables names them; credentials are in the environment.
DELTA_OPTIONS = {
    "s3": {
        "endpoint": "aws_endpoint",
        "region": "aws_region",
        "allow_http": "aws_allow_http",
        "virtual_hosted_style_request": "aws_virtual_hosted_style_request",
        "request_payer": "aws_request_payer",
        "skip_signature": "aws_skip_signature",
    },
    "gs": {"endpoint": "google_base_url", "allow_http": "allow_http", "skip_signature": "skip_signature"},
    "az": {
        "endpoint": "azure_storage_endpoint",
        "account_name": "azure_storage_account_name",
        "allow_http": "allow_http",
        "skip_signature": "azure_skip_signature",
    },
}

LIKE = "/dcpred-like="  # in stored texts, between a table and the model that encodes it

T = TypeVar("T")
Options = tuple[tuple[str, str], ...]
_options: ContextVar[Options] = ContextVar("storage_options", default=())


@dataclass(frozen=True)
class StoreAddress:
    """The parts of an address on an object store."""

    scheme: str
    """The same for equivalent schemes."""
    bucket: str
    """The bucket or container; of https the host, with its port."""
    path: str
    """Names below it, joined by `/`, without a leading or trailing one."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")


def path_on_disk(address: str | os.PathLike[str]) -> Path | None:
    """The path of an address on a disk; None for one on an object store. Raises DataError."""
    return None if is_remote(address) else Path(local_path(address))


def is_remote(address: str | os.PathLike[str]) -> bool:
    """Whether an address is one of an object store, not a path."""
    return "://" in local_path(address)


def local_path(address: str | os.PathLike[str]) -> str:
    """The address without `file://`, whose store takes a path in Zarr 3.1 that is not atomic. Raises
    DataError for a URL that lost a slash, and for what is not a path.
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
            f"Cannot use the address {text}: a slash is missing after the colon, which a pathlib.Path"
            " removes. Write two slashes, and pass the address as a str."
        )
    if not text.startswith("file://"):
        return text
    path = text.removeprefix("file://").removeprefix("localhost")
    if not path.startswith("/"):
        raise DataError(
            f"Cannot use the address {text}: a file:// address has no host and an absolute path. Write it as"
            " file:///path, or as a path."
        )
    return path


def check_text(name: str) -> None:
    """Raise DataError for a name that is not text in this locale: UTF-8 of plans could not hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode("ascii", "backslashreplace").decode()
        raise DataError(
            f"Cannot use the name {shown}: it is not text in the encoding of this locale. Rename it, or set"
            " PYTHONUTF8=1 where names are UTF-8."
        ) from None


@overload
def absolute(address: str | Path) -> str: ...
@overload
def absolute(address: "TableAddress") -> "TableAddress": ...
def absolute(address: "str | Path | TableAddress") -> "Address":
    """The address, valid in every process. Raises DataError."""
    if isinstance(address, TableAddress):
        return address
    path = local_path(address)
    if "://" in path:
        return str(parse(path))
    path = os.path.realpath(path)
    check_text(path)
    return path


def check_writable(address: str | Path, what: str) -> None:
    """Raise DataError for an invalid or read-only address.

    what  is written there: "scores"
    """
    if absolute(address).startswith(("http://", "https://")):
        raise DataError(
            f"Cannot write {what} to {absolute(address)}: dcpred only reads from servers of files. Choose a"
            " bucket or a folder."
        )


def below(address: str | Path, *names: str) -> str:
    """The address of a path below another."""
    return "/".join([local_path(address).rstrip("/"), *(name for name in names if name)])


@dataclass(frozen=True)
class TableAddress:
    """An array of a table that is encoded while it is read. Its path is that of the table."""

    data: str
    """The file, folder or pattern."""
    model: str
    """The model whose schema encodes its columns."""
    dtype: str
    """The dtype of X."""
    name: str = ""
    """The array; "" for the group."""

    def __str__(self) -> str:
        return self.data if self.name in ("", "X") else f"{self.data}/{self.name}"

    __fspath__ = __str__


Address = TableAddress | str


def stored_text(address: Address) -> str:
    """The text of an address in plans, manifests and settings."""
    if not isinstance(address, TableAddress):
        return address
    group = f"{address.data.rstrip('/')}{LIKE}{quote(address.model, safe='')},{address.dtype}"
    return f"{group}/{address.name}".rstrip("/")


def read_address(text: Any) -> Address:
    """The address whose `stored_text` this is. Raises ValueError for a value that is not a text."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.50} is not a str")
    data, encoding, rest = text.rpartition(LIKE)
    if not encoding:
        return text
    group, _, name = rest.partition("/")
    model, _, dtype = group.rpartition(",")
    return TableAddress(data, unquote(model), dtype, name)


def group_of(array: Address) -> Address:
    """The address of the group that holds an array."""
    if isinstance(array, TableAddress):
        return replace(array, name="")
    return array.rstrip("/").rpartition("/")[0]


def lasting(address: Address) -> str:
    """What stays of the address of an input in a later run of it: not the model and dtype of a table, and not
    the version of a Delta table.
    """
    return DELTA_VERSION.sub("", str(address))


def parse(address: str) -> StoreAddress:
    """Parse the address of a store. Raises DataError."""
    scheme, _, rest = address.partition("://")
    if scheme.startswith("delta"):
        inner = scheme.removeprefix("delta").lstrip("+")
        raise DataError(
            f"Cannot use the address {_safe(address)}: dcpred recognizes a Delta table by its folder. Omit"
            f" the prefix: write {_safe(f'{inner}://{rest}' if inner else rest)}."
        )
    if scheme not in SCHEMES:
        raise DataError(f"Cannot use the address {_safe(address)}: its scheme is unknown. Use {TELLING}.")
    if "?" in rest or "#" in rest:
        raise DataError(
            f"Cannot use the address {_safe(address)}: plans contain addresses, and nothing may follow ? or"
            " #. Omit that part, and put credentials into the environment of every process."
        )
    bucket, _, path = rest.partition("/")
    if "@" in bucket and AZURE_HOST.search(bucket):
        container, _, host = bucket.partition("@")
        raise DataError(
            f"Cannot use the address {_safe(address)}: dcpred takes the account as an option. Write"
            f" {scheme}://{container}/… with --storage-option account_name={host.partition('.')[0]}."
        )
    if not bucket:
        raise DataError(
            f"Cannot use the address {address}: it names no bucket. Write {scheme}://BUCKET/PATH."
        )
    if not _is_name(scheme, bucket):
        if "@" in rest:  # also in the path: a secret of Amazon may hold a slash
            raise DataError(
                f"Cannot use the address {_safe(address)}: it holds a user or password, and plans contain"
                " addresses. Omit it, and put credentials into the environment of every process."
            )
        raise DataError(
            f"Cannot use an address of {scheme}://: its first part is not a name of a bucket or server of"
            f" letters, digits, dots, - and _. Write {scheme}://"
            + ("HOST:PORT/PATH." if scheme in SERVERS else "BUCKET/PATH.")
        )
    path = path.removesuffix("/")
    names = path.split("/") if path else []
    if any(name in ("", ".", "..") for name in names):
        raise DataError(
            f"Cannot use the address {address}: a path on a store has no empty names, . or ... Write it"
            " without them."
        )
    bucket = bucket.lower() if scheme in SERVERS else bucket  # host names are not case-sensitive
    return StoreAddress(ALIASES.get(scheme, scheme), bucket, "/".join(names))


def _is_name(scheme: str, bucket: str) -> bool:
    return (HOST if scheme in SERVERS else BUCKET).fullmatch(bucket) is not None


def _safe(address: str) -> str:
    """An address without a possible secret."""
    scheme, separator, rest = address.rpartition("://")
    rest = re.split(r"[?#]", rest)[0]
    bucket = rest.partition("/")[0]
    is_plain = _is_name(scheme, bucket) or AZURE_HOST.search(bucket)
    return f"{scheme}{separator}{rest if is_plain else rest.rpartition('@')[2]}"


def check_options(given: Mapping[str, str | bool | float]) -> Options:
    """Options by name, sorted. Raises SettingsError for an unknown option, a secret or an invalid value."""
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"Cannot use storage options of type {type(given).__name__}: they are names with values. Write"
            " {'region': …}."
        )
    options = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }
    for name, value in options.items():
        if name in OTHER_NAMES:
            raise SettingsError(
                f"Storage option {name!r} is unknown: dcpred calls it {OTHER_NAMES[name]}. Write"
                f" {OTHER_NAMES[name]}=…."
            )
        if name not in OPTIONS:
            known = ", ".join(OPTIONS)
            if SECRET.search(name):
                raise SettingsError(
                    f"Cannot use the storage option {name!r}: plans contain options, and it may be a secret."
                    " Set it in the environment of driver and workers."
                )
            raise SettingsError(f"Storage option {name!r} is unknown. Use one of {known}.")
        if name in FLAGS and value not in ("true", "false"):
            raise SettingsError(f"Storage option {name}={value} is invalid. Write true or false.")
        if name == MISSING_CHUNKS and value != FILL:
            raise SettingsError(
                f"Storage option {name}={value} is invalid. Write {name}={FILL} where chunks that are not"
                " stored hold the fill value, or leave it out."
            )
        if name == "timeout" and not _is_positive(value):
            raise SettingsError(
                f"Storage option timeout={value} is invalid. Write seconds above 0, at most a day."
            )
        if name == "root_certificate" and not os.path.isfile(value):
            raise SettingsError(
                f"Storage option root_certificate={value} is invalid: the file does not exist. Name a file of"
                " PEM certificates that driver and workers can read."
            )
        if name == "endpoint" and ("@" in value or "?" in value or not re.match(r"https?://[^/]", value)):
            raise SettingsError(
                f"Storage option endpoint={_safe(value)} is invalid. Write an address of the form"
                " https://host:port, without user, password or query."
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


def delta_options(address: str, options: Options) -> dict[str, str] | None:
    """Storage options for the library of Delta tables; None for a disk."""
    if not is_remote(address):
        return None
    known, given = DELTA_OPTIONS.get(address.partition("://")[0], {}), dict(options)
    timeout = {"timeout": f"{given['timeout']}s"} if "timeout" in given else {}
    return {known[name]: value for name, value in given.items() if name in known} | timeout


def fills_missing_chunks() -> bool:
    """Whether the user declared that missing input chunks hold the fill value."""
    return (MISSING_CHUNKS, FILL) in _options.get()


def as_arguments(address: str | Path) -> str:
    """The arguments for an address on a command line: itself, and the storage options of this thread."""
    of_disks = ((MISSING_CHUNKS, FILL),) if fills_missing_chunks() else ()
    options = _options.get() if is_remote(address) else of_disks
    return shlex.join([str(address), *(f"--storage-option={name}={value}" for name, value in options)])


def with_options(options: Options, body: Callable[..., T], *task: Any) -> T:
    """body(*task), with the storage options of the driver."""
    with storage_options(options), reading_once():
        return body(*task)


@contextmanager
def storage_options(options: Options) -> Iterator[None]:
    """Set the options of stores that this thread opens within a `with` statement."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)
