"""The whole job on each kind of store, by commands alone, with workers that share no directory with who gives
the commands: the same model and the same bytes of scores as on a disk, and no secret anywhere.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed.comm import tcp

from dcpred.cli import main
from dcpred.datasets.importing import import_data
from dcpred.evaluation.evaluate import evaluate
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from support.data import make_blobs
from support.far_workers import far_workers
from support.stores import SECRETS, StoreServer, used

N_ROWS, N_BLOCKS = 400, 8
BAD_ROWS = {7: "nan", 399: "inf"}
SETTINGS = {"n_leaves": 2, "landmarks": 4, "products": 4, "scaling": "standard"}


@dataclass(frozen=True)
class Job:
    """Where all of it lies, and what commands that use workers or write a model are given for that."""

    root: str
    workers: tuple[str, ...]
    notes: Path
    """Folder for scratch, events, metrics, and all that is said."""

    @property
    def watched(self) -> tuple[str, ...]:
        return f"--events={self.notes}/events.jsonl", f"--metrics={self.notes}/job.prom"

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What a command says. A word that begins with @ is a name below the root."""
        line = [f"{self.root}/{word[1:]}" if word.startswith("@") else word for word in words]
        result = CliRunner().invoke(main, [*line, "--json"], prog_name="dcpred")
        with (self.notes / "said").open("a") as said:
            said.write(result.output)
        assert result.exit_code == code, result.output
        return dict(json.loads(result.stdout.splitlines()[-1] if code == 0 else result.stdout or "{}"))

    def do(self, sources: Path) -> dict[str, Any]:
        """Import, train, score, and look at all of it; what was said that any place must say alike."""
        for name in ("known", "new"):
            target = ("--target", "label") if name == "known" else ()
            self("import", str(sources / f"{name}.csv"), f"@{name}.zarr", *target, "--chunk-rows", "50")
        settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
        trained = self(
            "train",
            "@known.zarr",
            "@model",
            *settings,
            "--workers",
            "1",
            "--scratch",
            str(self.notes),
            *self.watched,
        )
        scored = self("score", "@model", "@new.zarr", "@out", *self.workers, *self.watched)
        assert scored["scored_blocks"] == N_BLOCKS
        whole = self("status", "@out")
        assert (whole["done_blocks"], whole["done_rows"]) == (N_BLOCKS, N_ROWS)
        for level in ("fast", "full"):
            assert self("verify", "@out", "--level", level, *self.workers)["ok"]
        rows = [(row["row"], row["status"]) for row in self("errors", "@out")["rows"]]
        known = self("evaluate", "@model", "@known.zarr", "--no-cost")
        return {
            "hash": trained["hash"],
            "rows": rows,
            "accuracy": known["accuracy"],
            "status": scored["status"],
        }

    def mend(self) -> None:
        """Damage, found and mended."""
        place = open_place(f"{self.root}/out")
        before = scores(place)
        place.remove("scores.zarr/label/c/1")
        place.write("scores.zarr/decision/c/3", b"other bytes")
        found = self("verify", "@out", "--level", "full", *self.workers, code=4)
        wanted = {"scores.zarr/label/c/1", "scores.zarr/decision/c/3"}
        assert {finding["file"] for finding in found["findings"]} == wanted
        assert self("score", "@model", "@new.zarr", "@out", "--repair", *self.workers)["scored_blocks"] == 2
        assert self("verify", "@out", "--level", "full", *self.workers)["ok"]
        assert scores(place) == before

    def refresh(self) -> None:
        """As every night; and a night whose model is not there, which is refused."""
        told = self("refresh", "@model", "@new.zarr", "@nightly", *self.workers, *self.watched)
        assert told["scored_blocks"] == N_BLOCKS
        self("refresh", "@none", "@new.zarr", "@nightly", *self.workers, *self.watched, code=3)


def scores(place: Place) -> dict[str, bytes]:
    """Chunks and metadata of the output arrays; the group names the run, which knows tags or times."""
    names = [name for name in place.listing("scores.zarr") if name != "scores.zarr/zarr.json"]
    found = {name: place.read(name) for name in names}
    return {name: standing.data for name, standing in found.items() if standing is not None}


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 50)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", N_BLOCKS)
        yield


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    blobs = make_blobs(N_ROWS, n_features=3, n_classes=2, seed=4)
    rows = [[f"{value:.6g}" for value in row] for row in blobs.X]
    known = [",".join([*row, f"class {label}"]) for row, label in zip(rows, blobs.y, strict=True)]
    (folder / "known.csv").write_text("\n".join(["a,b,c,label", *known, ""]))
    for row, value in BAD_ROWS.items():
        rows[row][1] = value
    (folder / "new.csv").write_text("\n".join(["a,b,c", *map(",".join, rows), ""]))
    return folder


Told = tuple[dict[str, Any], dict[str, bytes]]


@pytest.fixture(scope="module")
def on_a_disk(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What is to be said, and the output arrays, by one process."""
    folder = tmp_path_factory.mktemp("disk")
    data, new = f"{folder}/known.zarr", f"{folder}/new.zarr"
    import_data(str(sources / "known.csv"), data, target="label", chunk_rows=50)
    import_data(str(sources / "new.csv"), new, chunk_rows=50)
    trained = train(data, folder / "model", settings=SETTINGS)
    scored = score(folder / "model", new, folder / "out")
    rows = [(row, "non_finite_feature") for row in BAD_ROWS]
    accuracy = evaluate(folder / "model", data, cost=False)["accuracy"]
    told = {"hash": trained.hash, "rows": rows, "accuracy": accuracy, "status": scored.status}
    return told, scores(open_place(folder / "out"))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that this process sends to a scheduler: tasks, above all."""
    frames: list[bytes] = []
    real = tcp.to_frames

    async def noted(*args: Any, **more: Any) -> Any:
        made = await real(*args, **more)
        frames.extend(map(bytes, made))
        return made

    monkeypatch.setattr(tcp, "to_frames", noted)
    return frames


@pytest.mark.parametrize("kind", ["s3", pytest.param("gcs", marks=pytest.mark.long), "azure"])
def test_the_whole_job(
    request: pytest.FixtureRequest,
    kind: str,
    sources: Path,
    on_a_disk: Told,
    tmp_path: Path,
    sent: list[bytes],
) -> None:
    server: StoreServer = request.getfixturevalue(kind)
    far, notes = tmp_path / "far", tmp_path / "notes"
    far.mkdir()
    notes.mkdir()
    with used(server):
        told_far = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "debug"}
        with far_workers(far, told_far) as pool:
            address = pool.args[1]  # type: ignore[attr-defined]
            root = server.address("whole-job", os.urandom(4).hex())
            job = Job(root, ("--scheduler", address), notes)
            assert (job.do(sources), scores(open_place(f"{root}/out"))) == on_a_disk
            job.mend()
            job.refresh()
        check_silent(server, open_place(root), tmp_path, sent)
    assert {path.name for path in far.iterdir()} == {"workers.py", "log", "work", "temporary", "cache"}
    assert list((far / "work").iterdir()) == []


def check_silent(server: StoreServer, root: Place, folder: Path, sent: list[bytes]) -> None:
    """No secret stands in what was stored, told, logged or sent, though all processes had it."""
    found = {name: standing.data for name in root.listing() if (standing := root.read(name)) is not None}
    found |= {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found["sent"] = b"".join(sent)
    assert b"score_block" in found["sent"]
    assert b"debug" in found[f"{folder}/far/log"].lower()
    assert b"run_ended" in found[f"{folder}/notes/events.jsonl"]
    assert {f"{folder}/notes/{name}" for name in ("job.prom", "said")} < {*found}
    for secret in SECRETS[server.scheme]:
        assert any(secret in value for value in os.environ.values())
        assert not [name for name, data in found.items() if secret.encode() in data]
