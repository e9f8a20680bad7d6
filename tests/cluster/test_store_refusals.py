"""Wrong addresses, rights, regions, certificates and options of object stores: each is refused with one
sentence on the command line, before anything is written, and no secret is told.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dcpred.cli import main
from dcpred.training.fit import publish
from dcpred.training.train import train
from dcpred_tasks.storage.place import open_place
from support.data import make_blobs, make_group
from support.stores import SECRET_KEY, Proxy, StoreServer, used

TOKEN = "dcpredtesttoken"
SECRETS = (SECRET_KEY, TOKEN)


@dataclass(frozen=True)
class Refusal:
    """`score` with a good model, data and output, but for what is said here.

    Addresses and values may hold {root}, where all lies on the store, {folder}, on the disk, and {port}, of
    the server.
    """

    name: str
    told: str
    """What the sentence says."""
    code: int = 3
    model: str = "{root}/model"
    data: str = "{root}/data.zarr"
    output: str = "{root}/out"
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    """Of every request."""
    server: str = "s3_proxy"


NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
REFUSALS = (
    Refusal("another scheme", "is unknown. Use s3://, gs://", output="ftp://bucket/out"),
    Refusal("a user and a password", "Omit it, and put credentials", output=f"s3://me:{TOKEN}@bucket/out"),
    Refusal(
        "a password with a slash",
        "Omit it, and put credentials",
        output=f"s3://me:1/{TOKEN}/x@bucket/out",
    ),
    Refusal("a password of a server", "Omit it, and put credentials", data=f"https://me:a/{TOKEN}@h/d.zarr"),
    Refusal("no name of a bucket", "its first part is not a name", output="s3://bu cket/out"),
    Refusal("no name of a server", "Write https://HOST:PORT/PATH", data="https://h:port/d.zarr"),
    Refusal("a query", "nothing may follow ? or #", output=f"s3://bucket/out?token={TOKEN}"),
    Refusal("a query of the data", "nothing may follow ? or #", data=f"https://h/d.zarr?sig={TOKEN}"),
    Refusal("a query to write to", "nothing may follow ? or #", output=f"https://h/out?token={TOKEN}"),
    Refusal("a fragment", "nothing may follow ? or #", model=f"s3://bucket/model#{TOKEN}"),
    Refusal("no bucket", "it names no bucket", output="s3:///out"),
    Refusal("an empty name", "a path on a store has no empty names", output="s3://bucket/a//b"),
    Refusal("dots", "a path on a store has no empty names", output="s3://bucket/../out"),
    Refusal("a lost slash", "a slash is missing after the colon", data="s3:/bucket/data.zarr"),
    Refusal("a lost slash of the output", "a slash is missing after the colon", 2, output="s3:/bucket/out"),
    Refusal("an account of Azure", "Write abfs://c/… with", output="abfs://c@acc.dfs.core.windows.net/out"),
    Refusal(
        "an endpoint of the environment",
        "the variable AWS_ENDPOINT_URL: it holds a user",
        environment={"AWS_ENDPOINT_URL": f"http://me:{TOKEN}@127.0.0.1:9"},
    ),
    Refusal("no store in memory", "has no store in memory of that name", output="memory://nothing/out"),
    Refusal("a host of files", "a file:// address has no host", 2, output="file://host/tmp/out"),
    Refusal("a missing bucket", "the bucket s3://missing does not exist", 5, output="s3://missing/out"),
    Refusal("a missing bucket of data", "the bucket s3://missing does not exist", 5, data="s3://missing/d"),
    Refusal(
        "a missing bucket of a model", "the bucket s3://missing does not exist", 5, model="s3://missing/m"
    ),
    Refusal("no model", "holds no model.json", model="{root}/data.zarr"),
    Refusal("no data", "holds no Zarr group", data="{root}/nothing"),
    Refusal("other files", "holds other files", output="{root}"),
    Refusal("an output within the data", "inside the input", output="{root}/data.zarr/X/out"),
    Refusal(
        "an output on a server of files", "only reads from servers of files", output="https://127.0.0.1:9/o"
    ),
    Refusal("a secret option", "it may be a secret", options=[f"aws_secret_access_key={TOKEN}"]),
    Refusal("a token as option", "it may be a secret", options=[f"session_token={TOKEN}"]),
    Refusal("an option by another name", "Write endpoint=", options=["endpoint_url=http://h"]),
    Refusal("an unknown option", "is unknown. Use one of endpoint, region", options=["speed=high"]),
    Refusal("no flag", "true or false", options=["allow_http=yes"]),
    Refusal("no time", "seconds above 0", options=["timeout=0"]),
    Refusal("no time that ends", "at most a day", options=["timeout=1e300"]),
    Refusal("an option without a value", "Write NAME=VALUE", 2, options=["region"]),
    Refusal("an endpoint with a password", "without user", options=[f"endpoint=http://me:{TOKEN}@h:1"]),
    Refusal("an endpoint without a scheme", "https://host:port", options=["endpoint=127.0.0.1:{port}"]),
    Refusal("no file of certificates", "the file does not exist", options=["root_certificate={folder}/none"]),
    Refusal("a file that holds none", "root_certificate", 5, options=["root_certificate={folder}/text"]),
    Refusal("another CA", "Name the CA with", 5, server="s3_secure"),
    Refusal("no TLS", "allow_http=true", 5, environment={"AWS_ALLOW_HTTP": "false"}),
    Refusal("no rights", "the store refuses it", 5, fault="403 before"),
    Refusal("not known", "the store refuses it", 5, fault="401 before"),
    Refusal("another region", "--storage-option region=", 5, fault="301 before"),
    Refusal("nobody there", "Connection refused", 5, options=["endpoint=http://127.0.0.1:9"]),
    Refusal("a store that fails", "503", 5, fault="503 before"),
    Refusal("no credentials", "Provide credentials in the environment", 5, environment=NO_KEYS),
    Refusal("no account", "settings are incomplete or invalid", 5, output="az://container/out"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and data on the disk."""
    made = tmp_path_factory.mktemp("refused")
    blobs = make_blobs(300, n_features=4, n_classes=2, seed=3)
    data = make_group(made / "data.zarr", blobs.X, blobs.y)
    settings = {"landmarks": 4, "products": 4, "n_leaves": 2}
    train(data, made / "model", settings=settings)
    (made / "text").write_text("no certificate")
    return made


@pytest.fixture(scope="module")
def root(folder: Path, s3: StoreServer) -> str:
    """Both on the store."""
    address = s3.address("refused", folder.parent.name)
    with used(s3):
        publish(folder / "model", open_place(f"{address}/model"))
        place = open_place(f"{address}/data.zarr")
        for path in (folder / "data.zarr").rglob("*"):
            if path.is_file():
                place.write(str(path.relative_to(folder / "data.zarr")), path.read_bytes())
    return address


@pytest.fixture(autouse=True)
def without_faults(impatient: None, s3_proxy: Proxy) -> Iterator[None]:
    s3_proxy.set_faults()
    yield
    s3_proxy.set_faults()


def check_refused(result: Result, code: int, told: str) -> None:
    """One sentence that says what is wrong, and nothing else."""
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert told in result.stderr
    assert result.exit_code == code, result.stderr
    assert not any(secret in result.output for secret in SECRETS)
    assert "Traceback" not in result.output
    if code != 2:  # click tells the usage besides
        assert result.stderr.startswith("dcpred: ")
        assert result.stderr.count("\n") == 1
        assert len(result.stderr) < 700
    assert result.stdout == ""


def written(s3: StoreServer) -> dict[str, str]:
    with used(s3):
        return {name: entry.tag for name, entry in open_place(s3.address()).listing().items()}


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(
    request: pytest.FixtureRequest, folder: Path, root: str, s3: StoreServer, s3_proxy: Proxy, case: Refusal
) -> None:
    before = written(s3)
    server: StoreServer = request.getfixturevalue(case.server)
    fill = {"root": root, "folder": str(folder), "port": server.port}
    addresses = [text.format(**fill) for text in (case.model, case.data, case.output)]
    options = [part for text in case.options for part in ("--storage-option", text.format(**fill))]
    with used(server, **case.environment):
        if case.fault:
            s3_proxy.set_faults({"match": "", "fault": case.fault})
        result = CliRunner().invoke(main, ["score", *addresses, *options], prog_name="dcpred")
        s3_proxy.set_faults()
    check_refused(result, case.code, case.told)
    assert written(s3) == before


def test_a_model_on_a_store_needs_a_folder_for_work_in_progress(root: str, s3: StoreServer) -> None:
    before = written(s3)
    with used(s3):
        command = ["train", f"{root}/data.zarr", f"{root}/made"]
        result = CliRunner().invoke(main, command, prog_name="dcpred")
    check_refused(result, 3, "Name one with --scratch DIR")
    assert written(s3) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "{root}/out"),
        ("verify", "{root}/out"),
        ("errors", "{root}/out"),
        ("inspect", "{root}/model"),
        ("evaluate", "{root}/model", "{root}/data.zarr"),
        ("score", "{root}/model", "{root}/data.zarr", "{folder}/out"),
        ("train", "{root}/data.zarr", "{folder}/made"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_package(
    folder: Path, root: str, s3: StoreServer, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Of the extra, which addresses of stores need."""
    with used(s3):
        for name in [name for name in sys.modules if name.split(".")[0] == "obstore"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "obstore", None)
        filled = [text.format(root=root, folder=folder) for text in arguments]
        result = CliRunner().invoke(main, filled, prog_name="dcpred")
    check_refused(result, 3, 'nstall "dcpred[stores]" where driver and workers run')
    assert not (folder / "out").exists()
    assert not (folder / "made").exists()
