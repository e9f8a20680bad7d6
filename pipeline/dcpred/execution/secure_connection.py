"""TLS between a driver and its Dask scheduler: what is missing or wrong is said before Dask is asked.

Dask tries again where certificates are missing or wrong, and ends in a traceback. So files and address are
looked at first. Then one connection is opened for a few milliseconds, which tells whether either side refuses
the other's certificate. Names of hosts are not compared, by Dask's rule: a certificate is accepted where the
CA signed it.
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

REPLY_SECONDS = 5.0  # longest wait for a reply; Dask waits again after that
SILENT_SECONDS = 1.0  # a scheduler without TLS speaks first; one that is silent for so long may expect TLS
FILE_BYTES = 2**20  # no certificate is longer
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}

MEANINGS = {"ca_file": "CA certificate", "cert": "client certificate", "key": "private key"}
OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}
CONFIGURED = {"ca_file": "ca-file", "cert": "client.cert", "key": "client.key"}
VARIABLES = {
    part: f"DASK_DISTRIBUTED__COMM__TLS__{name.upper().replace('-', '_').replace('.', '__')}"
    for part, name in CONFIGURED.items()
}
GIVE = f"give {', '.join(OPTIONS.values())}, or set {', '.join(VARIABLES.values())}"

Files = dict[str, str | None]
"""CA certificate, client certificate and private key: each a file, or the text of one, or None. The key may
lie in the file of the certificate.
"""


def secured(scheduler: Scheduler) -> tuple[str, Security | None]:
    """The address of a scheduler with its scheme, and the certificates to connect with: None without TLS, or
    where Dask has a loader of its own. Raises SchedulerError for certificates that are missing or wrong, and
    for a scheme that is not what the scheduler speaks.
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
            f"{address[:200]!r} was given as a Dask scheduler, but that is no address; write it as"
            " tcp://host:8786 or tls://host:8786"
        ) from None
    try:
        get_backend(parts.scheme).get_connector()
    except Exception:  # Whatever may come of another package.
        raise SchedulerError(
            f"{address[:200]!r} was given as a Dask scheduler, but Dask as it is installed here cannot reach"
            f" {parts.scheme}://; write it as tcp://host:8786 or tls://host:8786"
        ) from None


def _check_may_be_plain(address: str, given: dict[str, str], required: bool) -> None:
    if given:
        raise SchedulerError(
            f"{' and '.join(OPTIONS[part] for part in given)} came with the Dask scheduler {address}, but a"
            " connection to that is not encrypted; write tls://host:port, or leave them out"
        )
    if required and not address.startswith("inproc:"):
        raise SchedulerError(
            f"{address} was given as a Dask scheduler, but the configuration of Dask requires encryption;"
            " write tls://host:port, or set DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=false"
        )


# -- files ---------------------------------------------------------------------------------------------------


def _check_files(address: str, files: Files) -> None:
    missing = [f"no {MEANINGS[part]}" for part in ("ca_file", "cert") if not files[part]]
    if missing:
        raise SchedulerError(
            f"the Dask scheduler at {address} was to be reached over TLS, but {' and '.join(missing)} is"
            f" known; {GIVE}"
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
            f"the private key in {_named(files[key])} was to be used, but it is encrypted, and nobody is"
            " asked for its passphrase; give a key without one"
        )
    try:
        _client_context(files)
    except (OSError, ValueError, TypeError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise SchedulerError(
                f"the private key in {_named(files[key])} was to be used with the certificate in"
                f" {_named(files['cert'])}, but it belongs to another one; give the two that were made"
                " together"
            ) from None
        raise _useless(key, files[key], "private key") from None


def _text(part: str, value: str) -> str:
    if "\n" in value:
        return value
    path = Path(value)
    try:
        if path.exists() and not path.is_file():  # A pipe would be waited for.
            raise OSError(0, "it is no file")
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode("ascii", errors="replace")
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"the {MEANINGS[part]} was to be read from {value}, but that cannot be done"
            f" ({getattr(error, 'strerror', None) or error}); name another file by {OPTIONS[part]} or"
            f" {VARIABLES[part]}"
        ) from None


def _holds_certificate(text: str) -> bool:
    with suppress(ssl.SSLError, ValueError, TypeError):  # Text may be other than ASCII.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        return True
    return False


def _useless(part: str, value: str | None, wanted: str) -> SchedulerError:
    return SchedulerError(
        f"the {wanted} was to be read from {_named(value)}, but there is none in it that can be used; name a"
        f" PEM file that holds one by {OPTIONS[part]} or {VARIABLES[part]}"
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
    """Raises OSError where nobody answers: Dask tries for some seconds, for a scheduler that is starting."""
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port), timeout=REPLY_SECONDS)


def _check_accepted(address: str, security: Security, files: Files) -> None:
    """Raise SchedulerError where one side refuses the other's certificate, or the other speaks no TLS."""
    context = security.get_connection_args("client")["ssl_context"]
    try:
        with _connection(address) as connection, context.wrap_socket(connection) as encrypted:
            encrypted.recv(1)  # TLS 1.3: that our certificate is refused comes after the handshake.
    except ssl.SSLCertVerificationError as error:
        raise SchedulerError(
            f"the Dask scheduler at {address} was to be reached over TLS, but by the CA in"
            f" {_named(files['ca_file'])} its certificate is not valid ({error.verify_message}); give the CA"
            f" that signed it, by {OPTIONS['ca_file']} or {VARIABLES['ca_file']}"
        ) from None
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "_ALERT_" in reason:
            told = reason.partition("_ALERT_")[2].lower().replace("_", " ")
            raise SchedulerError(
                f"the Dask scheduler at {address} was to be reached over TLS, but it refuses the certificate"
                f" in {_named(files['cert'])} ({told}); give one that its CA signed, by {OPTIONS['cert']} and"
                f" {OPTIONS['key']} or {VARIABLES['cert']} and {VARIABLES['key']}"
            ) from None
        if reason in NO_TLS:
            raise SchedulerError(
                f"the Dask scheduler at {address} was to be reached over TLS, but it speaks none; write"
                f" tcp://{address.partition('://')[2]}, or start it with certificates"
            ) from None
    except OSError:
        return


def _check_speaks_plainly(address: str) -> None:
    """Raise SchedulerError where the other side speaks TLS."""
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
        f"{address} was given as a Dask scheduler, but the one there speaks TLS; write"
        f" tls://{address.partition('://')[2]}, and {GIVE}"
    )
