"""Object stores for tests: servers of other people on loopback, each ended by who started it."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

SERVERS = Path(__file__).parent / "servers"
START_SECONDS = 60.0
BUCKET = "bucket"
# Credentials that every server here takes, and that no message may show.
ACCESS_KEY, SECRET_KEY = "dcpredtestid", "dcpredtestsecret"
AZURE_ACCOUNT = "devstoreaccount1"
# The key that Azurite's documentation gives everybody.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Without credentials obstore asks an address outside of this machine.
NOWHERE = {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:9", "GCE_METADATA_HOST": "127.0.0.1:9"}

Fault = Mapping[str, Any]


@dataclass(frozen=True)
class StoreServer:
    """A server that runs: where it is, and what a process that uses it has in its environment."""

    scheme: str
    port: int
    environment: dict[str, str] = field(default_factory=dict)

    def address(self, *names: str) -> str:
        return "/".join([f"{self.scheme}://{BUCKET}", *names])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: Sequence[str], port: int, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """A server process until the `with` statement ends."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    ) as server:
        try:
            _wait_for(server, port)
            yield
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


def ask(port: int, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> bytes:
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
    port = free_port()
    with process([sys.executable, str(SERVERS / "s3.py"), str(port)], port):
        ask(port, "PUT", f"/{BUCKET}")
        yield StoreServer("s3", port, s3_environment(port))


def s3_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        **NOWHERE,
    }


@contextmanager
def gcs_server() -> Iterator[StoreServer]:
    port = free_port()
    with process([sys.executable, str(SERVERS / "gcs.py"), str(port)], port):
        yield StoreServer("gs", port, gcs_environment(port))


def gcs_environment(port: int) -> dict[str, str]:
    account = {
        "gcs_base_url": f"http://127.0.0.1:{port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true", **NOWHERE}


def azurite() -> str | None:
    """The script of Azurite, where npm's package is there: DCPRED_AZURITE names it."""
    script = os.environ.get("DCPRED_AZURITE", "")
    return script if script and Path(script).is_file() and shutil.which("node") else None


@contextmanager
def azure_server() -> Iterator[StoreServer]:
    port, script = free_port(), azurite()
    assert script is not None
    places = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with process(["node", script, *places, *quiet], port):
        _make_container(port)
        yield StoreServer("az", port, azure_environment(port))


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
        ask(self.port, "PUT", "/.faults", json.dumps(faults).encode())

    def counts(self) -> dict[str, int]:
        """Requests that went through by their method, and faults that were done by their name, so far."""
        return dict(json.loads(ask(self.port, "GET", "/.faults")))


@contextmanager
def spoiled(server: StoreServer, *faults: Fault, seed: int = 0) -> Iterator[Proxy]:
    port = free_port()
    command = [sys.executable, str(SERVERS / "proxy.py"), str(port), str(server.port)]
    with process([*command, json.dumps(faults), str(seed)], port):
        yield Proxy(server.scheme, port, ENVIRONMENTS[server.scheme](port))
