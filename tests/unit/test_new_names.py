"""Where a result is to be written: a place that cannot be is found before the work, by every command."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dcpred.cli import main
from dcpred.reports import report as reporting
from dcpred.results import export as exporting
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage import atomic_files
from dcpred_tasks.storage.addresses import absolute, local_path
from dcpred_tasks.storage.atomic_files import check_new_name
from support.data import make_blobs, make_group
from support.pools import inline

pytestmark = pytest.mark.cases()  # what is enumerated may grow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    blobs = make_blobs(200, n_features=3, n_classes=2, seed=0)
    data = make_group(folder / "known.zarr", blobs.X, blobs.y)
    train(data, folder / "model", settings={"landmarks": 4, "n_leaves": 1})
    score(folder / "model", data, folder / "scores")
    (folder / "known.csv").write_text("a,b\n" + "".join(f"{x[0]},{x[1]}\n" for x in blobs.X))
    return folder


COMMANDS: dict[str, Callable[[Path, str], list[str]]] = {
    "train": lambda p, to: ["train", f"{p}/known.zarr", to, "--set", "n_leaves=1"],
    "train and search": lambda p, to: ["train", f"{p}/known.zarr", to],
    "train elsewhere": lambda p, to: [
        *("train", f"{p}/known.zarr", to, "--set", "n_leaves=1", "--scratch", f"{p}/scratch")
    ],
    "tune": lambda p, to: ["tune", f"{p}/known.zarr", to],
    "import": lambda p, to: ["import", f"{p}/known.csv", f"{to}.zarr"],
    "split": lambda p, to: ["split", f"{p}/known.zarr", "--into", f"{to}.zarr", f"{p}/other.zarr"],
    "score": lambda p, to: ["score", f"{p}/model", f"{p}/known.zarr", to],
    "score a shard": lambda p, to: ["score", f"{p}/model", f"{p}/known.zarr", to, "--shard", "0/2"],
    "refresh": lambda p, to: ["refresh", f"{p}/model", f"{p}/known.zarr", to],
    "export": lambda p, to: ["export", f"{p}/scores", f"{to}.csv"],
    "report": lambda p, to: ["report", f"{p}/model", "--out", f"{to}.html"],
    "compare": lambda p, to: ["compare", f"{p}/known.zarr", "--out", to],
}


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins to work fails. Workers are this process: two more would start for each refusal."""

    def begun(*_: Any, **__: Any) -> Any:
        raise AssertionError("the work began")

    for place in (
        "dcpred.training.fit.Training",
        "dcpred.training.choice.Training",
        "dcpred.datasets.importing.opened",
        "dcpred.datasets.splitting.new_data_set",
        "dcpred.scoring.whole_run.BlockRun",
        "dcpred_compare.comparison.draw_rows",
    ):
        monkeypatch.setattr(place, begun)
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    monkeypatch.setattr(exporting._Request, "tables", begun)
    monkeypatch.setattr(reporting, "_page", begun)


def refused(words: list[str]) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code in (3, 5), result.output
    assert "the work began" not in result.output
    return result


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_cannot_be_is_found_before_the_work(
    made: Path, tmp_path: Path, no_work: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = COMMANDS[command]
    ending = next((word[-5:] for word in words(made, "…") if word.startswith("…") and word != "…"), "")
    ending = ending[ending.find(".") :] if "." in ending else ""
    link = tmp_path / f"link{ending}"
    link.symlink_to(tmp_path / "nowhere")
    if "score" not in command:  # An output is made where the link leads to.
        assert "link" in refused(words(made, str(tmp_path / "link"))).output
    (tmp_path / "file").touch()
    refused(words(made, str(tmp_path / "file" / "result")))
    refused(words(made, str(tmp_path / ("a" * 300))))
    read_only(monkeypatch)
    assert "Read-only file system" in refused(words(made, str(tmp_path / "result"))).output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", link.name])


def read_only(patch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    patch.setattr(Path, "touch", refuse)
    patch.setattr(Path, "mkdir", refuse)


def test_names_beside_a_result_are_tried_too(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    check_new_name(tmp_path / ("é" * ((longest - 21) // 2)), atomic_files.PARTIAL)
    for name, ending in (("a" * (longest - 20), atomic_files.PARTIAL), ("a" * (longest + 1), "")):
        with pytest.raises(ResourceError, match="File name too long"):
            check_new_name(tmp_path / name, ending)
        with pytest.raises(ResourceError, match="File name too long"):
            check_new_name(tmp_path / "new" / name, ending)
    with pytest.raises(ResourceError, match="File name too long"):
        check_new_name(tmp_path / ("a" * (longest + 1)) / "new")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"is a link to .*, which does not exist"):
        check_new_name(tmp_path / "link" / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def names_that_are_no_text() -> Iterator[list[str]]:
    odd = os.fsdecode(b"M\xfcller")
    for place in ("model", "known.zarr", "scores"):
        yield [
            "score",
            *(f"{odd}.zarr" if name == place else name for name in ("model", "known.zarr", "scores")),
        ]
    yield ["score", "model", "known.zarr", "scores", "--metrics", f"{odd}.prom"]
    yield ["train", "known.zarr", "model", "--config", f"{odd}.toml"]
    yield ["export", "scores", f"{odd}.csv", "--json"]
    yield ["report", "scores", f"--out={odd}.html"]


@pytest.mark.parametrize("words", list(names_that_are_no_text()), ids=lambda words: words[0])
def test_a_name_that_is_no_text_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert r"M\udcfcller" in result.output
    assert "it is not text in the encoding of this locale" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / os.fsdecode(b"M\xfcller")).mkdir()
    with pytest.raises(DataError, match="it is not text"):
        local_path(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(DataError, match="it is not text"):
        absolute("scores")
