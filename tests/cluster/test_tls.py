"""TLS between driver and Dask cluster: what a person gets wrong is told in one sentence, at once, with exit
code 3, and what is right works. Ports of local workers are closed to those who hold no certificate.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from dcpred.execution.workers import Scheduler, connect
from dcpred_tasks.errors import SchedulerError
from support import processes
from support.certificates import ROLES, Certificates, make_certificates
from support.data import make_blobs, make_group

CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, host="127.0.0.1", protocol=sys.argv[1],
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
REQUIRE = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}


@contextmanager
def cluster(protocol: str, environment: dict[str, str]) -> Iterator[str]:
    """The address of a scheduler with one worker, in a process of its own."""
    with processes.started(
        [sys.executable, "-c", CLUSTER, protocol],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, **environment},
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith(protocol)
        yield address


@dataclass(frozen=True)
class Here:
    """What there is: two clusters, and the certificates of one, of none, and of nobody."""

    secure: str
    plain: str
    own: Certificates
    other: Certificates
    data: Path

    @property
    def host(self) -> str:
        """Address of the secure cluster without its scheme."""
        return self.secure.partition("://")[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    folder = tmp_path_factory.mktemp("tls")
    own, other = make_certificates(folder / "own"), make_certificates(folder / "other")
    blobs = make_blobs(300, n_features=4, n_classes=2, seed=0)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y)
    (folder / "own" / "notes.txt").write_text("no certificate\n")
    _encrypt(folder / "own")
    with cluster("tls://", own.environment(*ROLES)) as secure, cluster("tcp://", {}) as plain:
        yield Here(secure, plain, own, other, data)


def _encrypt(folder: Path) -> None:
    key = serialization.load_pem_private_key((folder / "client.key").read_bytes(), None)
    (folder / "encrypted.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


Case = tuple[Callable[[Here], str], Callable[[Here], dict[str, str]], tuple[str, ...]]


def files(ca_file: str, cert: str, key: str | None) -> dict[str, str]:
    named = {"--tls-ca-file": ca_file, "--tls-cert": cert, "--tls-key": key}
    return {name: value for name, value in named.items() if value is not None}


# What is wrong: the address, options and variables, and what the sentence says.
MISTAKES: dict[str, Case] = {
    "tls, nothing else": (
        lambda h: h.secure,
        lambda h: {},
        ("no CA certificate and no client certificate", "--tls-ca-file", "COMM__TLS__CLIENT__CERT"),
    ),
    "tls, a CA only": (
        lambda h: h.secure,
        lambda h: h.own.environment(),
        ("over TLS, but no client certificate is known", "--tls-cert"),
    ),
    "tls, a CA only, by option": (
        lambda h: h.secure,
        lambda h: {"--tls-ca-file": h.own / "ca.pem"},
        ("over TLS, but no client certificate is known",),
    ),
    "certificates of another CA": (
        lambda h: h.secure,
        lambda h: h.other.environment("client"),
        ("its certificate", "/other/ca.pem", "give the CA that signed it"),
    ),
    "a certificate that another CA signed": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.other / "client.pem", h.other / "client.key"),
        ("refuses the certificate in", "/other/client.pem (unknown ca)", "one that its CA signed"),
    ),
    "the key of another role": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", h.own / "worker.key"),
        ("/own/worker.key", "belongs to another one", "made together"),
    ),
    "a file that is missing": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "nobody.pem", h.own / "client.key"),
        ("client certificate was to be read from", "nobody.pem", "No such file", "--tls-cert"),
    ),
    "a folder in place of a file": (
        lambda h: h.secure,
        lambda h: files(str(h.own.folder), h.own / "client.pem", h.own / "client.key"),
        ("CA certificate was to be read from", "it is no file"),
    ),
    "a file that holds no certificate": (
        lambda h: h.secure,
        lambda h: files(h.own / "notes.txt", h.own / "client.pem", h.own / "client.key"),
        ("certificate was to be read from", "notes.txt, but there is none in it", "--tls-ca-file"),
    ),
    "no key": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", None),
        ("the private key was to be read from", "client.pem, but there is none in it"),
    ),
    "an encrypted key": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", h.own / "encrypted.key"),
        ("encrypted.key was to be used, but it is encrypted", "give a key without"),
    ),
    "tcp to a TLS port": (
        lambda h: f"tcp://{h.host}",
        lambda h: {},
        ("the one there speaks TLS", "write tls://127.0.0.1:", "--tls-ca-file"),
    ),
    "no scheme to a TLS port": (lambda h: h.host, lambda h: {}, ("the one there speaks TLS",)),
    "tcp and certificates": (
        lambda h: h.plain,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", h.own / "client.key"),
        ("--tls-ca-file and --tls-cert and --tls-key came with", "not encrypted", "write tls://"),
    ),
    "tcp where encryption is required": (
        lambda h: h.plain,
        lambda h: REQUIRE,
        ("the configuration of Dask requires encryption", "write tls://host:port"),
    ),
    "no scheme where encryption is required": (
        lambda h: h.host,
        lambda h: REQUIRE,
        ("at tls://127.0.0.1:", "no CA certificate and no client certificate"),
    ),
    "tls to a port without": (
        lambda h: h.plain.replace("tcp://", "tls://"),
        lambda h: h.own.environment("client"),
        ("over TLS, but it speaks none", "write tcp://127.0.0.1:"),
    ),
}


def train(place: Here, model: Path, address: str, more: dict[str, str]) -> processes.Done:
    """`dcpred train` in a process of its own. more: options, which begin with --, and variables"""
    options = [text for name, value in more.items() if name.startswith("--") for text in (name, value)]
    variables = {name: value for name, value in more.items() if not name.startswith("--")}
    command = [sys.executable, "-c", "from dcpred.cli import run; run()", "train", place.data, model]
    small = ("--set", "landmarks=4", "--set", "n_leaves=2")
    return processes.run(
        [*command, *small, "--scheduler", address, *options], env={**ENVIRONMENT, **variables}
    )


@pytest.mark.parametrize("case", list(MISTAKES))
def test_a_mistake_is_told_in_one_sentence(place: Here, tmp_path: Path, case: str) -> None:
    address, more, words = MISTAKES[case]
    done = train(place, tmp_path / "model", address(place), more(place))
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("dcpred: ")
    assert all(word in line for word in words), line
    assert list(tmp_path.iterdir()) == []


def test_certificates_by_options_train_a_model(place: Here, tmp_path: Path) -> None:
    given = files(place.own / "ca.pem", place.own / "client.pem", place.own / "client.key")
    done = train(place, tmp_path / "model", place.secure, given)
    assert done.returncode == 0, done.stderr
    assert f"on the Dask cluster at {place.secure}" in done.stderr


def test_certificates_by_variables_or_in_one_file(
    place: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key may lie in the file of the certificate, and an address without a scheme takes that of TLS."""
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(place.own / f"client.{end}").read_text() for end in ("pem", "key")))
    with connect(scheduler=Scheduler(place.host, place.own / "ca.pem", str(both))) as workers:
        assert workers.n_threads() == 1


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{}", "tls://127.0.0.1:{}"])
def test_a_scheduler_that_is_not_there_is_waited_for(
    place: Here, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.execution.dask_workers.CONNECT_SECONDS", 1)
    given = files(place.own / "ca.pem", place.own / "client.pem", place.own / "client.key")
    secure = given.values() if address.startswith("tls") else ()
    with (
        pytest.raises(SchedulerError, match="does not answer within 1 s"),
        connect(scheduler=Scheduler(address.format(9), *secure)),
    ):
        pytest.fail("there is none")
