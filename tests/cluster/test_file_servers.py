"""Data and models on a server of files, which lists nothing: read by any command, written by none."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dcpred.cli.main import main
from dcpred.training.train import train
from support.data import make_blobs, make_group


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    blobs = make_blobs(400, n_features=4, n_classes=2, seed=3)
    data = make_group(made / "data.zarr", blobs.X, blobs.y, chunk_rows=100)
    make_group(made / "rows.zarr", blobs.X, chunk_rows=100)
    settings = {"landmarks": 4, "products": 4, "n_leaves": 2}
    train(data, made / "model", settings=settings)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def command(*arguments: object, code: int = 0) -> str:
    """Standard output of a command, or standard error where it is refused."""
    result = CliRunner().invoke(main, [*map(str, arguments), "--storage-option=allow_http=true"])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def as_json(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(command(*arguments, "--json")))


def test_data_and_models_are_read(folder: Path, server: str, tmp_path: Path) -> None:
    found = as_json("evaluate", f"{server}/model", f"{server}/data.zarr", "--no-cost")
    assert found["accuracy"] == as_json("evaluate", folder / "model", folder / "data.zarr")["accuracy"]
    command("score", f"{server}/model", f"{server}/data.zarr", tmp_path / "there", "--workers", 1)
    command("score", folder / "model", folder / "data.zarr", tmp_path / "here", "--workers", 1)
    for name in ("label", "decision"):
        chunk = f"scores.zarr/{name}/c/0"
        there, here = (sorted((tmp_path / out).glob(f"{chunk}*")) for out in ("there", "here"))
        assert len(there) == len(here) > 0
        for one, other in zip(there, here, strict=True):
            assert not one.is_file() or one.read_bytes() == other.read_bytes()


def test_what_is_not_listed_is_not_known(server: str) -> None:
    found = as_json("inspect", f"{server}/data.zarr")
    assert (found["arrays"]["X"]["missing_chunks"], found["bytes_on_disk"]) == (None, None)
    lines = command("inspect", f"{server}/data.zarr").splitlines()
    assert {line.split()[0] for line in lines if line.endswith("not known")} == {
        "arrays.X.missing_chunks",
        "arrays.y.missing_chunks",
        "bytes_on_disk",
    }


def test_an_array_that_is_not_there_is_told(server: str) -> None:
    told = command("evaluate", f"{server}/model", f"{server}/rows.zarr", code=3)
    assert f"Cannot find array y in {server}/rows.zarr: the group holds X" in told
