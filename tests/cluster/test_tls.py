"""TLS between driver and Dask cluster: what a person gets wrong ends in one sentence with Dask's reason and
exit code 3, and what is right works. Ports of local workers are closed to those who hold no certificate.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dcpred.execution.pools import connect
from dcpred.execution.workers import Scheduler
from dcpred.training.train import train
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
# An intruder with certificates of his own making, or none, asks every port for an answer, a task and a page.
INTRUDER = """
import asyncio, http.client, json, os, sys
from functools import partial
import cloudpickle
from distributed.comm import connect
from distributed.security import Security

SECURITY = {"tcp": {}, "tls": Security.temporary().get_connection_args("client")}

async def told(address, request):
    comm = await connect(address, timeout=5, **SECURITY[address[:3]])
    await comm.write(request)
    return await asyncio.wait_for(comm.read(), 5)

async def attack(port, scheme, name):
    task = {"op": "run", "function": cloudpickle.dumps(partial(os.mkdir, sys.argv[1])), "wait": True}
    request = {"identity": {"op": "identity"}, "run": task}[name]
    try:
        return repr(await told(f"{scheme}://127.0.0.1:{port}", {**request, "reply": True}))
    except Exception:
        return ""

def page(port, path):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status
    except Exception:
        return 0

async def all_ports():
    ports = list(map(int, sys.argv[2:]))
    asked = [(port, scheme, name) for port in ports for scheme in SECURITY for name in ("identity", "run")]
    wanted = ("/health", "/info/main/workers.html", "/json/identity.json")
    paths = [(port, path) for port in ports for path in wanted]
    tasks = [asyncio.create_task(attack(*one)) for one in asked]
    await asyncio.wait(tasks, timeout=10)  # a port of pages leaves some waiting for ever
    answers = [task.result() if task.done() else "" for task in tasks]
    pages = await asyncio.gather(*(asyncio.to_thread(page, *one) for one in paths))
    print(json.dumps({"answers": list(zip(asked, answers)), "pages": list(zip(paths, pages))}), flush=True)
    os._exit(0)

asyncio.run(all_ports())
"""
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
    """What there is: two clusters, and the certificates of one, of none, and of nobody; data and a model."""

    secure: str
    plain: str
    own: Certificates
    other: Certificates
    data: Path
    model: Path

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
    settings = {"landmarks": 4, "n_leaves": 2}
    train(data, folder / "model", settings=settings)
    (folder / "own" / "notes.txt").write_text("no certificate\n")
    with cluster("tls://", own.environment(*ROLES)) as secure, cluster("tcp://", {}) as plain:
        yield Here(secure, plain, own, other, data, folder / "model")


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
        ("over TLS: no client certificate is known", "--tls-cert"),
    ),
    "tls, a CA only, by option": (
        lambda h: h.secure,
        lambda h: {"--tls-ca-file": h.own / "ca.pem"},
        ("over TLS: no client certificate is known",),
    ),
    "certificates of another CA": (
        lambda h: h.secure,
        lambda h: h.other.environment("client"),
        ("CERTIFICATE_VERIFY_FAILED", "--tls-ca-file", "/other/ca.pem"),
    ),
    "a certificate that another CA signed": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.other / "client.pem", h.other / "client.key"),
        ("Dask reports", "--tls-cert", "/other/client.pem"),
    ),
    "a certificate that expired": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "expired.pem", h.own / "expired.key"),
        ("Dask reports", "--tls-cert", "/own/expired.pem"),
    ),
    "the key of another role": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", h.own / "worker.key"),
        ("/own/worker.key", "KEY_VALUES_MISMATCH"),
    ),
    "a file that is missing": (
        lambda h: h.secure,
        lambda h: files(h.own / "ca.pem", h.own / "nobody.pem", h.own / "client.key"),
        ("nobody.pem", "No such file", "--tls-cert"),
    ),
    "a folder in place of a file": (
        lambda h: h.secure,
        lambda h: files(str(h.own.folder), h.own / "client.pem", h.own / "client.key"),
        ("Is a directory", "--tls-ca-file"),
    ),
    "a file that holds no certificate": (
        lambda h: h.secure,
        lambda h: files(h.own / "notes.txt", h.own / "client.pem", h.own / "client.key"),
        ("notes.txt", "NO_CERTIFICATE", "--tls-ca-file"),
    ),
    "tcp to a TLS port": (
        lambda h: f"tcp://{h.host}",
        lambda h: {},
        ("Dask reports", "its scheme (tcp:// or tls://)"),
    ),
    "no scheme to a TLS port": (lambda h: h.host, lambda h: {}, ("its scheme (tcp:// or tls://)",)),
    "tcp and certificates": (
        lambda h: h.plain,
        lambda h: files(h.own / "ca.pem", h.own / "client.pem", h.own / "client.key"),
        ("Cannot use --tls-ca-file and --tls-cert and --tls-key with", "not encrypted", "Write tls://"),
    ),
    "tcp where encryption is required": (
        lambda h: h.plain,
        lambda h: REQUIRE,
        ("the configuration of Dask requires encryption", "Write tls://host:port"),
    ),
    "no scheme where encryption is required": (
        lambda h: h.host,
        lambda h: REQUIRE,
        ("at tls://127.0.0.1:", "no CA certificate and no client certificate"),
    ),
    "tls to a port without": (
        lambda h: h.plain.replace("tcp://", "tls://"),
        lambda h: h.own.environment("client"),
        ("Dask reports", "its scheme (tcp:// or tls://)"),
    ),
}


# Commands in forks of one process, which has imported all that they need: arguments, variables and a folder
# for what each says.
FORKED = """
import json, os, sys
import dask
import dcpred.cli.score_command, dcpred.execution.dask_workers
from dcpred.cli import run
dcpred.score

codes = []
for arguments, variables, folder in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.environ.update(variables)
        dask.config.refresh()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY), number)
        sys.argv = ["dcpred", *arguments]
        run()
        sys.exit()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


def words_of(arguments: Sequence[str | Path], address: str, more: dict[str, str]) -> list[str]:
    """A command. more: options, which begin with --, and variables"""
    options = [text for name, value in more.items() if name.startswith("--") for text in (name, str(value))]
    return [*map(str, arguments), "--scheduler", address, *options]


def variables_of(more: dict[str, str]) -> dict[str, str]:
    return {name: str(value) for name, value in more.items() if not name.startswith("--")}


def dcpred(arguments: Sequence[str | Path], address: str, more: dict[str, str]) -> processes.Done:
    """A command in a process of its own."""
    command = [sys.executable, "-c", "from dcpred.cli import run; run()"]
    environment = {**ENVIRONMENT, **variables_of(more)}
    return processes.run([*command, *words_of(arguments, address, more)], env=environment)


def test_mistakes_are_told_in_one_sentence(place: Here, tmp_path: Path) -> None:
    asked = []
    for number, (address, more, _) in enumerate(MISTAKES.values()):
        (folder := tmp_path / str(number)).mkdir()
        arguments = ["score", place.model, place.data, folder / "scores"]
        asked.append(
            (words_of(arguments, address(place), more(place)), variables_of(more(place)), str(folder))
        )
    done = processes.run([sys.executable, "-c", FORKED, json.dumps(asked)], env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    wrong = {}
    for (case, (*_, words)), code, (*_, folder) in zip(
        MISTAKES.items(), json.loads(done.stdout), asked, strict=True
    ):
        out, err = ((Path(folder) / name).read_text() for name in ("out", "err"))
        right = code == 3 and out == "" and err.startswith("dcpred: ") and len(err.splitlines()) == 1
        written = {path.name for path in Path(folder).iterdir()} != {"out", "err"}
        if written or not right or not all(word in err for word in words):
            wrong[case] = code, out, err
    assert not wrong


def test_certificates_by_options_score(place: Here, tmp_path: Path) -> None:
    given = files(place.own / "ca.pem", place.own / "client.pem", place.own / "client.key")
    done = dcpred(["score", place.model, place.data, tmp_path / "out"], place.secure, given)
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


def listening(pid: int) -> dict[int, str]:
    """The ports of a process and of those that it started, and where each can be reached."""
    me = psutil.Process(pid)
    found = [one for process in (me, *me.children(recursive=True)) for one in process.net_connections("all")]
    return {one.laddr.port: one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN and one.laddr}


def test_local_workers_answer_nobody_without_their_certificate(tmp_path: Path) -> None:
    """Whoever is on the machine may connect, and may ask for nothing."""
    before = listening(os.getpid())
    with connect(1) as workers:
        client = workers.client  # type: ignore[attr-defined]
        ports = {port: ip for port, ip in listening(os.getpid()).items() if port not in before}
        assert int(client.scheduler.address.rpartition(":")[2]) in ports
        done = processes.run([sys.executable, "-c", INTRUDER, tmp_path / "ran", *map(str, ports)])
        assert client.submit(os.getpid).result() != os.getpid(), "it works on"
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(ports.values()) == {"127.0.0.1"}
    assert len(ports) >= 4, "scheduler, nanny, worker and pages"
    assert [asked for asked, answer in found["answers"] if answer] == []
    assert {path for (_, path), status in found["pages"] if status == 200} == {"/health"}
    assert not (tmp_path / "ran").exists()
