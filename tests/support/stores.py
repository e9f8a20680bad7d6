"""Object stores for tests: servers on loopback, each ended by who started it.

A small one answers as S3 and as Google, in a sixth of the time of moto; both are held to the contracts.

Credentials are always given in the environment: without any, obstore would look for them outside of this
machine. Azurite comes from npm: where DCPRED_AZURITE names its main.js, Azure is tested, too.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme

from dcpred_tasks.storage import bucket, object_arrays, store_requests
from dcpred_tasks.storage.addresses import check_options, storage_options

TESTS = Path(__file__).parents[1]
START_SECONDS = 60.0  # no test passes or fails by it unless a server does not start
BUCKET = "bucket"
# Credentials that every server here takes, and that no message may show.
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "dcpredtestid", "dcpredtestsecret", "dcpredtesttoken"
GOOGLE_KEY = "dcpredtestprivatekey"
AZURE_ACCOUNT = "devstoreaccount1"
# The key that Azurite's documentation gives everybody.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# What each kind of server is given that nobody else may be told.
SECRETS = {"s3": (SECRET_KEY, SESSION_TOKEN), "gs": (GOOGLE_KEY,), "az": (AZURE_KEY,)}
# Without credentials obstore asks an address outside of this machine.
NOWHERE = {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:9", "GCE_METADATA_HOST": "127.0.0.1:9"}

Fault = Mapping[str, Any]


@dataclass(frozen=True)
class StoreServer:
    """A server that runs: where it is, and what a process that uses it has in its environment."""

    scheme: str
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    """Storage options that it needs."""

    def address(self, *names: str) -> str:
        return "/".join([f"{self.scheme}://{BUCKET}", *names])


def forget_stores() -> None:
    """Close the stores of this process, which were opened with the environment of then."""
    for function in (store_requests.open_store, bucket._opened, object_arrays._store):
        function.cache_clear()


@contextmanager
def used(server: StoreServer, **more: str) -> Iterator[StoreServer]:
    """This process, and those that it starts, use a server within a `with` statement.

    more  further variables; "" for one that is not there
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
                patch.delenv(name)
        for name, value in {**server.environment, **more}.items():
            if value:
                patch.setenv(name, value)
            else:
                patch.delenv(name, raising=False)
        forget_stores()
        try:
            with storage_options(check_options(server.options)):
                yield server
        finally:
            forget_stores()


@contextmanager
def started(module: str, *arguments: str) -> Iterator[int]:
    """The port of a server process, which runs until the `with` statement ends."""
    command = [sys.executable, "-m", f"support.servers.{module}", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=TESTS
    ) as server:
        try:
            assert server.stdout is not None
            told = server.stdout.readline()
            if not told:
                raise RuntimeError(f"server {module} did not start")
            yield int(told)
        finally:
            server.kill()


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] = {},
    authority: str = "",
) -> bytes:
    """authority  a file with the CA of a server behind TLS"""
    if authority:
        context = ssl.create_default_context(cafile=authority)
        link: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, context=context, timeout=30
        )
    else:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request(method, path, body, {**headers, "Content-Length": str(len(body))})
    reply = link.getresponse()
    data = reply.read()
    link.close()
    if reply.status >= 300:
        raise RuntimeError(f"{method} {path}: {reply.status} {data[:200]!r}")
    return data


@contextmanager
def s3_server() -> Iterator[StoreServer]:
    with started("small", "s3") as port:
        yield StoreServer("s3", port, s3_environment(port))


@contextmanager
def moto_server() -> Iterator[StoreServer]:
    with started("moto") as port:
        ask(port, "PUT", f"/{BUCKET}")
        yield StoreServer("s3", port, s3_environment(port))


def s3_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_SESSION_TOKEN": SESSION_TOKEN,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        **NOWHERE,
    }


def secure_files(folder: Path) -> tuple[str, str, str]:
    """Certificate and key of a server, and the certificate of its CA, which nobody else knows."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    files = [folder / "certificate.pem", folder / "key.pem", folder / "authority.pem"]
    certificate.cert_chain_pems[0].write_to_path(files[0])
    certificate.private_key_pem.write_to_path(files[1])
    authority.cert_pem.write_to_path(files[2])
    return str(files[0]), str(files[1]), str(files[2])


@contextmanager
def secure_server(folder: Path) -> Iterator[StoreServer]:
    """An S3 server behind TLS, whose certificate is of a CA of its own, in `folder`."""
    certificate, key, authority = secure_files(folder)
    with started("small", "s3", certificate, key) as port:
        yield StoreServer("s3", port, _secure_environment(port), {"root_certificate": authority})


def _secure_environment(port: int) -> dict[str, str]:
    environment = s3_environment(port) | {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{port}"}
    del environment["AWS_ALLOW_HTTP"]
    return environment


@contextmanager
def gcs_server(*arguments: str) -> Iterator[StoreServer]:
    """arguments  those of support.servers.small"""
    with started("small", "gs", *arguments) as port:
        yield StoreServer("gs", port, gcs_environment(port))


def gcs_environment(port: int) -> dict[str, str]:
    account = {
        "gcs_base_url": f"http://127.0.0.1:{port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": GOOGLE_KEY,
        "private_key_id": "",
    }
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true", **NOWHERE}


def azurite() -> str | None:
    """The script of Azurite, where npm's package is there: DCPRED_AZURITE names it."""
    script = os.environ.get("DCPRED_AZURITE", "")
    return script if script and Path(script).is_file() and shutil.which("node") else None


@contextmanager
def azure_server() -> Iterator[StoreServer]:
    script = azurite()
    assert script is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    places = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            ["node", script, *places, *quiet],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        ) as server,
    ):
        try:
            _wait_for(server, port)
            _make_container(port)
            yield StoreServer("az", port, azure_environment(port))
        finally:
            server.kill()


def _wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server did not start")


def azure_environment(port: int) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
        **NOWHERE,
    }


def _make_container(port: int) -> None:
    """By a request that is signed as Azure's documentation of shared keys says."""
    when, version = formatdate(usegmt=True), "2021-08-06"
    headers = f"x-ms-date:{when}\nx-ms-version:{version}\n"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}{resource}"
    key = base64.b64decode(AZURE_KEY)
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    ask(
        port,
        "PUT",
        f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container",
        headers={
            "x-ms-date": when,
            "x-ms-version": version,
            "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}",
        },
    )


ENVIRONMENTS = {"s3": s3_environment, "gs": gcs_environment, "az": azure_environment}


@dataclass(frozen=True)
class Proxy(StoreServer):
    """A server behind the proxy that spoils requests."""

    def set_faults(self, *faults: Fault) -> None:
        authority = self.options.get("root_certificate", "")
        ask(self.port, "PUT", "/.faults", json.dumps(faults).encode(), authority=authority)

    def counts(self) -> dict[str, int]:
        """Requests that went through by their method, and faults that were done by their name, so far."""
        authority = self.options.get("root_certificate", "")
        return dict(json.loads(ask(self.port, "GET", "/.faults", authority=authority)))


@contextmanager
def spoiled(server: StoreServer, *faults: Fault, seed: int = 0) -> Iterator[Proxy]:
    with started("proxy", str(server.port), json.dumps(faults), str(seed)) as port:
        yield Proxy(server.scheme, port, ENVIRONMENTS[server.scheme](port))


@contextmanager
def secure_spoiled(server: StoreServer, folder: Path) -> Iterator[Proxy]:
    """An S3 server behind a proxy that speaks TLS, as by `secure_server`."""
    certificate, key, authority = secure_files(folder)
    with started("proxy", str(server.port), "[]", "0", certificate, key) as port:
        yield Proxy("s3", port, _secure_environment(port), {"root_certificate": authority})
