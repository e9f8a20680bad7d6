"""TLS between a driver and its Dask scheduler: reports what is missing or wrong before Dask connects.

Dask retries if certificates are missing or wrong, and ends in a traceback. This module checks files and
address first. Then it opens one connection for a few milliseconds, which shows whether either side refuses
the other's certificate. Like Dask it does not compare names of hosts: it accepts a certificate that the CA
signed.
"""

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed.comm.registry import get_backend
from distributed.security import Security

from dcpred.execution.workers import Scheduler
from dcpred_tasks.errors import SchedulerError

REPLY_SECONDS = 5.0  # maximum wait for a reply; Dask waits again after that
SILENT_SECONDS = 1.0  # a scheduler without TLS speaks first; one that is silent for so long may expect TLS
FILE_BYTES = 2**20  # maximum size of a certificate
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}

MEANINGS = {"ca_file": "CA certificate", "cert": "client certificate", "key": "private key"}
OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}
CONFIGURED = {"ca_file": "ca-file", "cert": "client.cert", "key": "client.key"}
VARIABLES = {
    part: f"DASK_DISTRIBUTED__COMM__TLS__{name.upper().replace('-', '_').replace('.', '__')}"
    for part, name in CONFIGURED.items()
}
GIVE = f"Pass {', '.join(OPTIONS.values())}, or set {', '.join(VARIABLES.values())}."

Files = dict[str, str | None]
"""CA certificate, client certificate and private key: each a file, or the text of one, or None. The key may
lie in the file of the certificate.
"""


def secured(scheduler: Scheduler) -> tuple[str, Security | None]:
    """The address of a scheduler with its scheme, and the certificates to connect with: None without TLS, or
    if Dask has a custom loader. Raises SchedulerError for missing or wrong certificates, and for a scheme
    that the scheduler does not speak.
    """
    required = bool(dask.config.get("distributed.comm.require-encryption", None))
    given = {part: value for part in OPTIONS if (value := getattr(scheduler, part)) is not None}
    scheme, _, rest = scheduler.address.rpartition("://")
    scheme = scheme or ("tls" if required or given else "tcp")
    address = f"{scheme}://{rest}"
    _check_possible(address)
    if scheme not in ("tls", "wss"):
        _check_may_be_plain(address, given, required)
        if scheme == "tcp":
            _check_speaks_plainly(address)
        return address, None
    if not given and dask.config.get("distributed.client.security-loader", None):
        return address, None
    files: Files = {part: given.get(part, _configured(part)) for part in OPTIONS}
    _check_files(address, files)
    security = Security(
        require_encryption=True,
        tls_ca_file=files["ca_file"],
        tls_client_cert=files["cert"],
        tls_client_key=files["key"],
    )
    if scheme == "tls":
        _check_accepted(address, security, files)
    return address, security


def _configured(part: str) -> str | None:
    found = dask.config.get(f"distributed.comm.tls.{CONFIGURED[part]}", None)
    return None if found is None else str(found)


def _check_possible(address: str) -> None:
    try:
        parts = urlsplit(address)
        _ = parts.port
        address.encode("ascii")
        (parts.hostname or "").encode("idna")  # Parts of a name have 1 to 63 letters.
    except ValueError:
        raise SchedulerError(
            f"Cannot use {address[:200]!r} as a Dask scheduler: it is not an address. Write it as"
            " tcp://host:8786 or tls://host:8786."
        ) from None
    try:
        get_backend(parts.scheme).get_connector()
    except Exception:  # Another package may raise anything.
        raise SchedulerError(
            f"Cannot use {address[:200]!r} as a Dask scheduler: the installed Dask cannot reach"
            f" {parts.scheme}://. Write it as tcp://host:8786 or tls://host:8786."
        ) from None


def _check_may_be_plain(address: str, given: dict[str, str], required: bool) -> None:
    if given:
        raise SchedulerError(
            f"Cannot use {' and '.join(OPTIONS[part] for part in given)} with the Dask scheduler {address}:"
            " that connection is not encrypted. Write tls://host:port, or omit them."
        )
    if required and not address.startswith("inproc:"):
        raise SchedulerError(
            f"Cannot use {address} as a Dask scheduler: the configuration of Dask requires encryption."
            " Write tls://host:port, or set DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=false."
        )


# -- files ---------------------------------------------------------------------------------------------------


def _check_files(address: str, files: Files) -> None:
    missing = [f"no {MEANINGS[part]}" for part in ("ca_file", "cert") if not files[part]]
    if missing:
        raise SchedulerError(
            f"Cannot reach the Dask scheduler at {address} over TLS: {' and '.join(missing)} is known. {GIVE}"
        )
    texts = {part: _text(part, value) for part, value in files.items() if value}
    key = "key" if "key" in texts else "cert"
    for part in ("ca_file", "cert"):
        if not _holds_certificate(texts[part]):
            raise _useless(part, files[part], "certificate")
    if "PRIVATE KEY-----" not in texts[key]:
        raise _useless(key, files[key], "private key")
    if "ENCRYPTED" in texts[key]:
        raise SchedulerError(
            f"Cannot use the private key in {_named(files[key])}: it is encrypted, and dcpred does not ask"
            " for a passphrase. Pass a key without one."
        )
    try:
        _client_context(files)
    except (OSError, ValueError, TypeError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise SchedulerError(
                f"Cannot use the private key in {_named(files[key])} with the certificate in"
                f" {_named(files['cert'])}: it belongs to another one. Pass the two that were made"
                " together."
            ) from None
        raise _useless(key, files[key], "private key") from None


def _text(part: str, value: str) -> str:
    if "\n" in value:
        return value
    path = Path(value)
    try:
        if path.exists() and not path.is_file():  # The read would wait for a pipe.
            raise OSError(0, "it is not a file")
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode("ascii", errors="replace")
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"Cannot read the {MEANINGS[part]} from {value}:"
            f" {getattr(error, 'strerror', None) or error}. Name another file by {OPTIONS[part]} or"
            f" {VARIABLES[part]}."
        ) from None


def _holds_certificate(text: str) -> bool:
    with suppress(ssl.SSLError, ValueError, TypeError):  # Text may be other than ASCII.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        return True
    return False


def _useless(part: str, value: str | None, wanted: str) -> SchedulerError:
    return SchedulerError(
        f"Cannot read the {wanted} from {_named(value)}: it holds none that is usable. Name a"
        f" PEM file that holds one by {OPTIONS[part]} or {VARIABLES[part]}."
    )


def _named(value: str | None) -> str:
    return "the configuration of Dask" if value is None or "\n" in value else value


def _client_context(files: Files) -> ssl.SSLContext:
    security = Security(
        tls_ca_file=files["ca_file"], tls_client_cert=files["cert"], tls_client_key=files["key"]
    )
    context: Any = security.get_connection_args("client")["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


# -- a connection --------------------------------------------------------------------------------------------


def _connection(address: str) -> socket.socket:
    """Raises OSError without an answer: Dask retries for some seconds, for a scheduler that is starting."""
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port), timeout=REPLY_SECONDS)


def _check_accepted(address: str, security: Security, files: Files) -> None:
    """Raise SchedulerError if one side refuses the other's certificate, or the other speaks no TLS."""
    context = security.get_connection_args("client")["ssl_context"]
    try:
        with _connection(address) as connection, context.wrap_socket(connection) as encrypted:
            encrypted.recv(1)  # TLS 1.3: a refusal of our certificate comes after the handshake.
    except ssl.SSLCertVerificationError as error:
        raise SchedulerError(
            f"Cannot reach the Dask scheduler at {address} over TLS: its certificate is not valid by the CA"
            " in"
            f" {_named(files['ca_file'])} ({error.verify_message}). Pass the CA"
            f" that signed it, by {OPTIONS['ca_file']} or {VARIABLES['ca_file']}."
        ) from None
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "_ALERT_" in reason:
            summary = reason.partition("_ALERT_")[2].lower().replace("_", " ")
            raise SchedulerError(
                f"Cannot reach the Dask scheduler at {address} over TLS: it refuses the certificate"
                f" in {_named(files['cert'])} ({summary}). Pass one that its CA signed, by {OPTIONS['cert']}"
                " and"
                f" {OPTIONS['key']} or {VARIABLES['cert']} and {VARIABLES['key']}."
            ) from None
        if reason in NO_TLS:
            raise SchedulerError(
                f"Cannot reach the Dask scheduler at {address} over TLS: it does not speak TLS. Write"
                f" tcp://{address.partition('://')[2]}, or start it with certificates."
            ) from None
    except OSError:
        return


def _check_speaks_plainly(address: str) -> None:
    """Raise SchedulerError if the other side speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connection(address) as connection:
            connection.settimeout(SILENT_SECONDS)
            with suppress(TimeoutError):
                connection.recv(1)
                return
            connection.settimeout(REPLY_SECONDS)
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        if "_ALERT_" not in (error.reason or ""):
            return
    except OSError:
        return
    raise SchedulerError(
        f"Cannot use {address} as a Dask scheduler: the one there speaks TLS. Write"
        f" tls://{address.partition('://')[2]}. {GIVE}"
    )
