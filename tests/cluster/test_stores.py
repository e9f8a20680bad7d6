"""Scoring on an object store: the promises that it keeps on a disk, with workers that share nothing with the
driver but the store. All requests go through a proxy that spoils some of them.
"""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

import dcpred
from dcpred.cli import main
from dcpred.execution import lease as store_lease
from dcpred.execution.pools import connect
from dcpred.execution.workers import Pool, Workers
from dcpred.runs.ledger import open_ledger
from dcpred.runs.status import run_status
from dcpred.scoring.planning import plan_run
from dcpred.scoring.repair import repair
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.fit import publish, trained_beside
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts import commit_records
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.errors import (
    DataError,
    DcpredError,
    IncompleteError,
    ResourceError,
    RunHeldError,
    SchedulerError,
)
from dcpred_tasks.storage import store_requests, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import as_arguments, parse
from dcpred_tasks.storage.bucket import Bucket
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.probes import PROBE
from dcpred_tasks.storage.store_requests import StoreError
from dcpred_tasks.task_bodies import score_block as task
from dcpred_tasks.task_bodies import zarr_chunks
from support import processes
from support.data import make_blobs, make_group
from support.far_workers import WORKER_KEY, far_workers
from support.held_driver import held_driver
from support.html_pages import seen
from support.mutations import mutated
from support.pools import inline
from support.runs import report_of_incomplete
from support.stores import (
    BUCKET,
    SECRETS,
    Proxy,
    azure_server,
    gcs_server,
    moto_server,
    spoiled,
    used,
)

STORE = os.environ.get("DCPRED_STORE", "s3")
KIND = "s3" if STORE == "moto" else STORE
told_apart = pytest.mark.skipif(KIND != "s3", reason="processes are told apart by the keys of S3")
N_ROWS, N_BLOCKS = 1_950, 10
BAD_ROWS = {3: np.nan, 777: np.inf, 1_949: -np.inf}


@dataclass(frozen=True)
class Known:
    """Model, data and a finished output on a disk, and the same model and data on a store."""

    folder: Path
    root: str

    @property
    def model(self) -> str:
        return f"{self.root}/model"

    @property
    def data(self) -> str:
        return f"{self.root}/data.zarr"

    @property
    def x(self) -> str:
        return f"{self.data}/X"

    def chunks(self) -> dict[str, bytes]:
        """The bytes of the output arrays on the disk, by name."""
        return score_bytes(files(self.folder / "out"))


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of two output chunks of 100 rows each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", N_BLOCKS)
        yield


@pytest.fixture(scope="module", autouse=True)
def few_processes() -> Iterator[None]:
    """Commands work in this process, unless --workers asks for others."""

    def pool(n_workers: int | None, *rest: Any, **more: Any) -> AbstractContextManager[Workers]:
        return connect(n_workers, *rest, **more) if n_workers else inline()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.pools.connect", pool)
        yield


@pytest.fixture(scope="module")
def store(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """S3, or what DCPRED_STORE names: moto, gs, az."""
    with ExitStack() as stack:
        if STORE == "s3":
            proxy: Proxy = request.getfixturevalue("s3_proxy")
        else:
            servers = {"moto": moto_server, "gs": gcs_server, "az": azure_server}
            server = stack.enter_context(servers[STORE]())
            proxy = stack.enter_context(spoiled(server))
        stack.enter_context(used(proxy))
        yield proxy


@pytest.fixture(autouse=True)
def proxy(store: Proxy) -> Iterator[Proxy]:
    """The store, whose requests nobody spoils before and after a test."""
    store.set_faults()
    yield store
    store.set_faults()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, small_blocks: None, store: Proxy) -> Known:
    folder = tmp_path_factory.mktemp("known")
    blobs = make_blobs(N_ROWS, n_features=5, n_classes=3, seed=2)
    train_rows = make_group(folder / "train.zarr", blobs.X[:900], blobs.y[:900])
    settings = {"landmarks": 6, "products": 8, "n_leaves": 4}
    train(train_rows, folder / "model", settings=settings)
    X = blobs.X.copy()
    for row, value in BAD_ROWS.items():
        X[row, 1] = value
    make_group(folder / "data.zarr", X, blobs.y, chunk_rows=50)
    score(folder / "model", folder / "data.zarr", folder / "out")
    made = Known(folder, store.address("known", folder.name + os.urandom(3).hex()))
    publish(folder / "model", open_place(made.model))
    upload(folder / "data.zarr", open_place(made.data))
    return made


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, store: Proxy) -> Iterator[Pool]:
    with far_workers(tmp_path_factory.mktemp("far"), dict(os.environ)) as pool:
        yield pool


@pytest.fixture(scope="module")
def finished(known: Known, workers: Pool) -> Place:
    """A finished output on the store, which no test may change."""
    place = open_place(f"{known.root}/finished")
    report = score(known.model, known.x, place.address, client=workers)
    assert report.scored_blocks == N_BLOCKS
    return place


@pytest.fixture(scope="module")
def finished_bytes(finished: Place) -> dict[str, bytes]:
    return stored(finished)


@pytest.fixture
def output(known: Known) -> Place:
    """A place for an output, where nothing is yet."""
    return open_place(f"{known.root}/{os.urandom(4).hex()}")


@pytest.fixture
def done(output: Place, finished_bytes: dict[str, bytes]) -> Place:
    """A finished output that a test may change."""
    for name, data in finished_bytes.items():
        output.write(name, data)
    return output


def upload(folder: Path, place: Place) -> None:
    for name, data in files(folder).items():
        place.write(name, data)


def download(place: Place, folder: Path) -> Path:
    for name, data in stored(place).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stored(place: Place) -> dict[str, bytes]:
    return {name: read(place, name) for name in place.listing()}


def read(place: Place, name: str) -> bytes:
    standing = place.read(name)
    assert standing is not None
    return standing.data


def score_bytes(found: dict[str, bytes]) -> dict[str, bytes]:
    """Chunks and metadata of the output arrays. The group names the run, whose hash knows tags or times of
    its input.
    """
    return {
        name: data
        for name, data in found.items()
        if name.startswith("scores.zarr/") and name != "scores.zarr/zarr.json"
    }


def command(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="dcpred")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code, result.output
    return result


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    value = json.loads(command(*arguments, "--json", code=code).stdout)
    assert isinstance(value, dict)
    return value


def check_whole(place: Place, known: Known) -> None:
    """Nothing lost, nothing wrong, no block with two values."""
    found = stored(place)
    assert score_bytes(found) == known.chunks()
    assert {n for n in found if n.startswith("blocks/")} == {f"blocks/{b:06d}.json" for b in range(N_BLOCKS)}
    assert verify(place.address, "fast").ok


# The same as on a disk


def test_scores_are_those_of_a_disk(known: Known, finished: Place) -> None:
    found, on_disk = stored(finished), files(known.folder / "out")
    assert score_bytes(found) == known.chunks()
    assert {*found} == {*on_disk} - {".lock.guard"}  # of a disk alone
    for name in found:
        assert known.folder.name not in found[name].decode("latin-1").replace(known.root, "")
    one, other = json.loads(on_disk["manifest.json"]), json.loads(found["manifest.json"])
    for key in ("model_hash", "n_rows", "n_blocks", "status", "outputs", "chunk_rows", "block_rows"):
        assert one[key] == other[key]


def test_a_finished_run_writes_nothing(known: Known, finished: Place) -> None:
    before = finished.listing()
    report = score(known.model, known.x, finished.address)
    assert report.scored_blocks == 0
    assert finished.listing() == before


@pytest.mark.parametrize("level", ["fast", "full", "sample"])
def test_it_verifies(finished: Place, workers: Pool, level: str) -> None:
    report = verify(finished.address, level, rows=200, client=workers)
    assert (report.ok, report.findings, report.verified_blocks) == (True, [], N_BLOCKS)
    assert report.sampled_rows == (200 if level == "sample" else 0)


def test_commands_take_addresses(known: Known, finished: Place) -> None:
    assert as_json("status", finished.address)["done_rows"] == N_ROWS
    errors = as_json("errors", finished.address)
    assert [row["row"] for row in errors["rows"]] == [*BAD_ROWS]
    assert as_json("verify", finished.address, "--level", "fast")["ok"]
    assert as_json("inspect", finished.address)["kind"] == "scores"
    assert as_json("inspect", known.model)["hash"] == as_json("inspect", known.folder / "model")["hash"]
    assert as_json("inspect", known.data)
    on_store = as_json("evaluate", known.model, known.data, "--no-cost")
    on_disk = as_json("evaluate", known.folder / "model", known.folder / "data.zarr", "--no-cost")
    assert on_store["accuracy"] == on_disk["accuracy"]


def test_scores_are_exported_from_and_to_a_store(
    known: Known, finished: Place, tmp_path: Path, proxy: Proxy
) -> None:
    """In parts, as a table that is larger than one request; and requests may fail for a while."""
    on_disk = tmp_path / "table.parquet"
    words = ("--with", "y", "--status", "ok")
    command("export", finished.address, on_disk, *words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred_tasks.storage.bucket.PART_BYTES", 4_000)
        proxy.set_faults({"match": "^(PUT|POST) ", "times": 1, "fault": "503 before"})
        said = as_json("export", finished.address, f"{known.root}/table.parquet", *words)
    assert said["n_written"] == N_ROWS - len(BAD_ROWS)
    assert read(open_place(known.root), "table.parquet") == on_disk.read_bytes()
    command("export", finished.address, f"{known.root}/table.parquet", code=3)


def test_what_lies_on_a_store_has_a_report(known: Known, finished: Place) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    for address, other in ((known.model, known.folder / "model"), (finished.address, known.folder / "out")):
        on_store, on_disk = (seen(dcpred.report(at).html).texts for at in (address, other))
        assert on_store["h3"] == on_disk["h3"]


def test_scores_on_a_store_are_opened(known: Known, finished: Place) -> None:
    data = dcpred.open_scores(finished.address)
    on_disk = dcpred.open_scores(known.folder / "out")
    for name in ("label", "decision", "status"):
        np.testing.assert_array_equal(data[name].values, on_disk[name].values)


def test_rights_may_end_at_model_data_and_output(
    known: Known, output: Place, proxy: Proxy, impatient: None
) -> None:
    """Nothing is listed above them, though a bucket that is not there is told from a missing chunk."""
    below, listing = parse(known.root).path, "(list-type=2|comp=list|[?&]prefix=)"
    before = proxy.counts().get("403 before", 0)
    proxy.set_faults({"match": f"^GET (?=[^ ]*{listing})(?![^ ]*prefix={below}/)", "fault": "403 before"})
    command("score", known.model, known.x, output.address, "--workers", 1)
    for level in ("fast", "sample", "full"):
        assert as_json("verify", output.address, "--level", level)["ok"]
    assert as_json("inspect", known.data)
    assert as_json("evaluate", known.model, known.data, "--no-cost")
    command("score", known.model, f"{known.root}/missing.zarr/X", f"{output.address}-2", code=3)
    assert proxy.counts().get("403 before", 0) == before


def test_a_model_is_served_from_a_store(known: Known) -> None:
    X = zarr.open_group(known.folder / "data.zarr", mode="r")["X"][10:60]
    one, other = dcpred.load_model(known.model), dcpred.load_model(known.folder / "model")
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("level", ["fast", "full"])
def test_an_output_may_be_copied_to_a_disk(finished: Place, tmp_path: Path, level: str) -> None:
    folder = download(finished, tmp_path / "copy")
    assert as_json("verify", folder, "--level", level)["ok"]
    (folder / "scores.zarr/status/c/3").unlink()
    assert not as_json("verify", folder, "--level", level, code=4)["ok"]


def test_an_output_may_be_copied_from_a_disk(known: Known, output: Place) -> None:
    upload(known.folder / "out", output)
    assert as_json("verify", output.address, "--level", "full")["ok"]
    output.remove("scores.zarr/status/c/3")
    assert not as_json("verify", output.address, "--level", "fast", code=4)["ok"]


def test_scores_of_a_store_may_lie_on_a_disk(known: Known, tmp_path: Path) -> None:
    score(known.model, known.x, tmp_path / "out")
    assert score_bytes(files(tmp_path / "out")) == known.chunks()


@pytest.mark.skipif(KIND == "az", reason="records hold tags, of which Azure makes another one each time")
def test_an_attempt_is_told_from_any_other(
    known: Known, output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two attempts at a block agree in all that they measured, one of them made the record."""
    run, _, model = plan_run(Request(known.model, known.x, output.address))
    zarr_chunks.create_scores(run, model)
    monkeypatch.setattr(task.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(task, "peak_memory_bytes", lambda: 0)
    told: list[bool] = []
    create = Bucket.create
    monkeypatch.setattr(Bucket, "create", lambda *asked: told.append(create(*asked)) or told[-1])
    for _ in range(2):
        task.score_block(run, 0, False)
    assert told == [True, False]
    output.remove(run.record_name(0))
    with mutated(task.RecordDraft, "record", "secrets.token_hex(8)", '"same"'):
        for _ in range(2):
            task.score_block(run, 0, False)
    assert told[2:] == [True, True]


def test_what_is_there_is_no_place_for_data_and_models(known: Known, done: Place, tmp_path: Path) -> None:
    before = stored(done)
    (tmp_path / "known.csv").write_text("a,target\n1,x\n2,y\n")
    scratch = ("--scratch", tmp_path / "scratch", "--set", "n_leaves=1")
    for taken in (done.address, f"{known.root}/model", known.root):
        told = command("import", tmp_path / "known.csv", taken, "--target", "target", code=3).stderr
        assert "it already exists. Remove it or choose another path" in told
    told = command("train", known.data, done.address, *scratch, code=3).stderr
    assert "it already exists. Remove it or choose another path" in told
    told = command("train", known.data, f"{done.address}/m", "--scratch", f"{known.root}/s", code=2).stderr
    assert "is not a folder on a disk" in told
    assert stored(done) == before


def test_an_estimator_is_saved_at_an_address(output: Place) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = dcpred.DCPredRegressor(n_leaves=1, landmarks=4, random_state=0).fit(X, X[:, 0])
    model.save(output.address, storage_options={"allow_http": True})
    np.testing.assert_array_equal(dcpred.load_model(output.address).predict(X), model.predict(X))


def test_the_right_to_write_a_model_is_tried_before_training(
    output: Place, tmp_path: Path, proxy: Proxy, impatient: None
) -> None:
    """The probe of another driver, or of one that was killed, stops nobody."""
    target = open_place(f"{output.address}/model")
    target.write(f"{PROBE}000000000000", b"left")
    with pytest.raises(ZeroDivisionError), trained_beside(target.address, tmp_path / "scratch"):
        raise ZeroDivisionError  # in place of training
    proxy.set_faults({"match": "^PUT .*/model/", "fault": "403 before"})
    began = False
    with (
        pytest.raises(ResourceError, match="refuses it"),
        trained_beside(target.address, tmp_path / "scratch"),
    ):
        began = True
    assert not began


# Damage and repair


def cut(place: Place, name: str) -> None:
    place.write(name, read(place, name)[:-3])


def alter(place: Place, name: str) -> None:
    data = bytearray(read(place, name))
    data[len(data) // 2] ^= 1
    place.write(name, bytes(data))


def remove(place: Place, name: str) -> None:
    place.remove(name)


DAMAGE = {
    "scores.zarr/label/c/1": (remove, Kind.MISSING_CHUNK),
    "scores.zarr/decision/c/3/0": (cut, Kind.CHUNK_SIZE),
    "scores.zarr/status/c/5": (alter, Kind.DAMAGED_CHUNK),
    "blocks/000004.json": (remove, Kind.MISSING_RECORD),
    "blocks/000006.json": (cut, Kind.ALTERED_RECORD),
    "blocks/000008.json": (alter, Kind.ALTERED_RECORD),
}


def test_damage_is_found_and_mended(known: Known, done: Place, workers: Pool) -> None:
    for name, (harm, _) in DAMAGE.items():
        harm(done, name)
    for level in ("fast", "full"):
        report = verify(done.address, level, client=workers)
        assert {f.file: f.kind for f in report.findings} == {name: kind for name, (_, kind) in DAMAGE.items()}
    with pytest.raises(IncompleteError, match="is modified or damaged") as refused:
        score(known.model, known.x, done.address)
    assert f"`dcpred verify {as_arguments(done.address)}`" in str(refused.value)
    report = repair(known.model, known.x, done.address, client=workers)
    assert report.scored_blocks == 6
    check_whole(done, known)
    assert repair(known.model, known.x, done.address, level="fast").scored_blocks == 0


def test_a_chunk_that_is_written_again_is_only_suspected(known: Known, done: Place) -> None:
    """Another tag of the same bytes, as some stores give, is no damage."""
    name = "scores.zarr/decision/c/3/0"
    done.write(name, read(done, name))
    record = json.loads(read(done, "blocks/000001.json"))
    assert record["tags"]["decision"][1]
    assert verify(done.address, "fast").ok


def test_damaged_metadata_are_told_beside_chunks_of_another_tag(
    known: Known, done: Place, workers: Pool
) -> None:
    for name in ("scores.zarr/decision/c/3/0", "scores.zarr/label/zarr.json"):
        alter(done, name)
    for level in ("fast", "full", "sample"):
        kinds = {f.kind for f in verify(done.address, level, client=workers).findings}
        assert kinds == {Kind.METADATA}
    repair(known.model, known.x, done.address, client=workers)
    check_whole(done, known)


# Requests that are spoiled


def spoiling(share: float) -> list[dict[str, Any]]:
    """Every kind of fault of so many of all requests; 409 of puts, since nothing else is answered so."""
    kinds = ("drop before", "drop after", "503 before", "503 after", "429 before", "half")
    faults: list[dict[str, Any]] = [{"match": "^PUT .*json", "fault": "409 before", "share": share / 3}]
    left = 1.0
    for kind in kinds:  # what one rule does not draw is asked of the next
        faults.append({"match": "", "fault": kind, "share": share / len(kinds) / left})
        left -= share / len(kinds)
    return faults


def test_spoiled_requests_cost_nothing_but_time(
    known: Known, output: Place, workers: Pool, proxy: Proxy
) -> None:
    """A request may fail as often as it is tried; then the same command goes on, as a user would give it."""
    before = proxy.counts()
    proxy.set_faults(*spoiling(0.08))
    for _ in range(8):
        with suppress(OSError, IncompleteError):
            score(known.model, known.x, output.address, client=workers)
            break
    proxy.set_faults()
    score(known.model, known.x, output.address, client=workers)
    after = proxy.counts()
    assert sum(after.get(name, 0) - before.get(name, 0) for name in after if " " in name) > 10
    check_whole(output, known)


def test_a_store_that_is_not_there_for_a_while_damages_nothing(
    known: Known, output: Place, proxy: Proxy, impatient: None
) -> None:
    """A 503 is no damaged chunk, whatever may be given up."""
    proxy.set_faults({"match": "^GET [^?]*data.zarr/X/c/", "fault": "503 before"})
    with pytest.raises(IncompleteError, match="503"):
        score(known.model, known.x, output.address, quarantine=True)
    assert output.names("blocks") == set()
    proxy.set_faults()
    report = score(known.model, known.x, output.address, quarantine=True)
    assert report.status == {"1": N_ROWS - len(BAD_ROWS), "2": len(BAD_ROWS)}
    check_whole(output, known)


@pytest.mark.parametrize("fault", ["503 before", "drop before", "403 before"])
def test_what_cannot_be_read_is_not_missing(
    known: Known, finished: Place, proxy: Proxy, impatient: None, fault: str
) -> None:
    wanted = ResourceError if fault.startswith("403") else StoreError
    X = open_array(known.x)
    operations: list[tuple[str, Callable[[], object]]] = [
        ("^(GET|HEAD) .*X/c/", lambda: zarr_arrays.read_rows(X, 0, 100)),
        ("^GET .*(list-type|prefix)", lambda: plan_run(Request(known.model, known.x, finished.address))),
        ("^GET .*zarr.json", lambda: open_array(known.x)),
        ("^GET .*model.json", lambda: dcpred.load_model(known.model)),
        ("^GET .*arrays", lambda: dcpred.load_model(known.model)),
        ("^GET .*(list-type|prefix)", lambda: verify(finished.address, "fast")),
        ("^GET .*blocks", lambda: verify(finished.address, "fast")),
        ("^GET .*scores.zarr/[a-z]+/c/", lambda: verify(finished.address, "full")),
        ("^GET .*manifest", lambda: verify(finished.address, "fast")),
        ("^GET .*plan.json", lambda: open_ledger(finished.address)),
    ]
    for match, operation in operations:
        proxy.set_faults({"match": match, "fault": fault})
        try:
            told = operation()
        except wanted:
            continue
        raise AssertionError(f"{match}: {told}")


def test_a_missing_bucket_holds_no_absent_rows(known: Known, output: Place) -> None:
    for asked in (
        (known.model, f"{KIND}://missing/data.zarr/X", output.address),
        (f"{KIND}://missing/model", known.x, output.address),
        (known.model, known.x, f"{KIND}://missing/out"),
    ):
        with pytest.raises(ResourceError, match=f"the bucket {KIND}://missing does not exist"):
            score(*asked)
    assert output.names("") == set()


def test_missing_chunks_of_the_input_are_told(known: Known, output: Place, workers: Pool) -> None:
    data = open_place(f"{output.address}-data.zarr")
    upload(known.folder / "data.zarr", data)
    data.remove("X/c/4/0")
    alter(data, "X/c/10/0")
    with pytest.raises(DataError, match=r"chunk .*X/c/4/0 .*is missing"):
        score(known.model, data.address, output.address)
    assert output.names("") == set()
    report = report_of_incomplete(
        score, known.model, data.address, output.address, client=workers, quarantine=True
    )
    assert (report.status["5"], report.status["6"]) == (50, 50)


def test_requests_that_the_state_of_a_run_takes(
    known: Known, output: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are listed in ranges side by side. Whoever scored knows them by the tags of the listing, and
    reads none; another process reads each once.
    """
    monkeypatch.setattr(commit_records, "LISTED_AT_ONCE", 2)

    def requests(match: str, act: Callable[[], object]) -> int:
        """How many of them an act takes."""
        proxy.set_faults({"match": match, "fault": "delay:0"})
        before = proxy.counts().get("delay:0", 0)
        act()
        return proxy.counts().get("delay:0", 0) - before

    place = re.escape(parse(output.address).path)
    listing = f"^GET (?=[^ ]*(list-type=2|comp=list))[^ ]*prefix={place}/blocks/"
    reading = f"^GET [^? ]*{place}/blocks/"
    assert requests(reading, lambda: score(known.model, known.x, output.address)) == 0
    assert requests(listing, lambda: run_status(output.address)) == N_BLOCKS // 2
    assert requests(reading, lambda: run_status(output.address)) == 0
    assert requests(reading, lambda: verify(output.address, "fast")) == N_BLOCKS
    assert run_status(output.address).done_blocks == N_BLOCKS


# Preflight and leases


@pytest.mark.skipif(KIND == "az", reason="Azure signs the conditions")
def test_a_store_without_conditions_is_no_place_for_outputs(
    known: Known, output: Place, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.set_faults({"match": "^PUT ", "fault": "strip"})
    told = command("score", known.model, known.data, output.address, code=3).stderr
    assert "this store ignores the conditions of writing" in told
    assert output.names("") == set()
    score(known.model, known.x, tmp_path / "out")
    assert score_bytes(files(tmp_path / "out")) == known.chunks()


@told_apart
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_workers_without_rights_are_refused(
    known: Known, output: Place, workers: Pool, proxy: Proxy, method: str
) -> None:
    proxy.set_faults({"match": f"^{method} .* {WORKER_KEY}$", "fault": "403 before"})
    with pytest.raises(SchedulerError, match=r"cannot read and write .*refuses it.*credentials that may"):
        score(known.model, known.x, output.address, client=workers)
    assert output.names("") == set()


@told_apart
def test_workers_that_may_not_read_the_input_give_nothing_up(
    known: Known, output: Place, workers: Pool, proxy: Proxy
) -> None:
    proxy.set_faults({"match": f"^GET .*data.zarr.* {WORKER_KEY}$", "fault": "403 before"})
    with pytest.raises(DcpredError, match="refuses it"):
        score(known.model, known.x, output.address, client=workers, quarantine=True)
    assert output.names("blocks") == set()


def test_a_killed_driver_is_followed_when_its_lease_has_expired(
    known: Known, output: Place, tmp_path: Path, workers: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another machine; for one of this machine nobody waits."""
    arguments: list[str | Path] = [known.model, known.data, output.address, "--workers", "1"]
    with held_driver(tmp_path, arguments, free=4) as driver:
        driver.wait_until_held()
        processes.wait_until(lambda: len(output.names("blocks")) == 4, driver.process)
        with pytest.raises(RunHeldError, match="is in use by process"):
            score(known.model, known.x, output.address, client=workers)
        driver.process.kill()
        driver.process.wait()
        assert store_lease.lock_holder(output) == ""
        monkeypatch.setattr(store_lease, "_is_dead", lambda *_: False)
        with pytest.raises(RunHeldError, match="is in use by process"):
            score(known.model, known.x, output.address, client=workers)
    with monkeypatch.context() as patch:
        patch.setattr(store_lease, "EXPIRY_SECONDS", 0.0)
        processes.wait_until(lambda: store_lease.lock_holder(output) == "")
    monkeypatch.setattr(store_lease, "_silent", lambda *_: store_lease.expiry_seconds() + 1)
    report = score(known.model, known.x, output.address, client=workers)
    assert report.scored_blocks == N_BLOCKS - 4
    check_whole(output, known)


def test_a_driver_that_lost_its_lease_stops(
    known: Known, output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = task.score_block

    def overtaken(run: Any, block: int, quarantine: bool) -> Any:
        if block == 2:
            output.write(store_lease.LOCK, json.dumps({"holder": "another", "token": "other"}).encode())
            processes.wait_until(lambda: lost)
        return real(run, block, quarantine)

    lost: list[bool] = []
    monkeypatch.setattr(store_lease, "SIGN_SECONDS", 0.02)
    give = store_lease.Lease.give_signs
    monkeypatch.setattr(
        store_lease.Lease, "give_signs", lambda lease, stopped: (give(lease, stopped), lost.append(True))
    )
    monkeypatch.setattr("dcpred.scoring.blocks.score_block", overtaken)
    with pytest.raises(RunHeldError, match="was taken over by another"):
        score(known.model, known.x, output.address)
    assert "manifest.json" not in output.names("")
    assert len(output.names("blocks")) < N_BLOCKS
    assert json.loads(read(output, store_lease.LOCK))["holder"] == "another"


# Interrupts


@pytest.mark.parametrize(
    ("number", "silent"), [("SIGINT", "^GET .*{}/plan.json"), ("SIGTERM", "^PUT .*{}/probe")]
)
def test_signals_are_answered_while_a_store_is_silent(
    known: Known, output: Place, proxy: Proxy, number: str, silent: str
) -> None:
    """Its time-out lies beyond the patience of this test."""
    fault = {"match": silent.format(output.address.rpartition("/")[2]), "fault": "delay:3600"}
    check_answered(proxy, fault, number, "score", known.model, known.data, output.address)


@pytest.mark.parametrize(
    ("words", "silent"),
    [
        pytest.param("score {known}/model {known}/data.zarr {new}", "^PUT .*{new}/blocks/000005", id="score"),
        pytest.param(
            *("verify {done} --level full", "^GET .*{done}/scores.zarr/[a-z]+/c/9"),
            **{"id": "verify", "marks": pytest.mark.long},
        ),
        pytest.param(
            "score {known}/model {known}/data.zarr {done} --repair",
            "^PUT .*{done}/scores.zarr/[a-z]+/c/9",
            **{"id": "repair", "marks": pytest.mark.long},
        ),
    ],
)
def test_signals_are_answered_where_a_store_falls_silent(
    known: Known, done: Place, proxy: Proxy, words: str, silent: str
) -> None:
    """In the middle of a command, while a worker waits for a reply: nobody waits until that comes."""
    remove(done, "scores.zarr/label/c/9")
    new = f"{done.address}-new"
    fault = {
        "match": silent.format(new=parse(new).path, done=parse(done.address).path),
        "fault": "delay:3600",
    }
    command_line = words.format(known=known.root, done=done.address, new=new).split()
    check_answered(proxy, fault, "SIGTERM", *command_line, "--workers", "1", then={**fault, "match": ""})
    proxy.set_faults()
    left = run_status(new if "{new}" in words else done.address).done_blocks
    assert left == N_BLOCKS if words.startswith("verify") else 0 < left < N_BLOCKS


# The command line, in a process that plans and waits as this one.
AS_HERE = f"""
from dcpred.execution import block_plan
from dcpred.cli import run
from dcpred.execution import interrupts
block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS = 1, 100, {N_BLOCKS}
interrupts.SILENT_SECONDS = 0.5
run()"""


def check_answered(
    proxy: Proxy, fault: dict[str, Any], number: str, *arguments: str, then: dict[str, Any] | None = None
) -> processes.Done:
    """A command that waits for a reply ends as it should at a signal.

    then  another fault, from when the first one was done
    """
    kind = fault["fault"]
    before = proxy.counts().get(kind, 0)
    proxy.set_faults(fault)
    whole = ["-c", AS_HERE, *arguments, "--storage-option", "timeout=3000"]
    with processes.started(
        [sys.executable, *whole], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as driver:
        processes.wait_until(lambda: proxy.counts().get(kind, 0) > before, driver)
        if then is not None:
            proxy.set_faults(then)
        os.kill(driver.pid, getattr(signal, number))
        end = processes.finish(driver)
    assert end.returncode == 75, end.stderr
    assert ("interrupted" if then is None else "does not answer; ended without waiting") in end.stderr
    assert "Traceback" not in end.stderr
    return end


@pytest.fixture
def source(output: Place) -> str:
    """A file on the store, of a size that comes in several parts."""
    output.write("many.csv", b"a,b,y\n" + b"1.0,2.0,0\n2.0,1.0,1\n" * 1000)
    return f"{output.address}/many.csv"


def test_signals_are_answered_while_half_of_a_source_is_there(
    source: str, tmp_path: Path, proxy: Proxy
) -> None:
    fault = {"match": "^GET .*many.csv", "fault": "stall"}
    check_answered(proxy, fault, "SIGINT", "import", source, str(tmp_path / "data.zarr"), "--target", "y")


def test_signals_are_answered_where_nothing_can_be_removed(
    output: Place, tmp_path: Path, proxy: Proxy
) -> None:
    source = tmp_path / "rows.npy"
    np.save(source, np.ones((100, 3), np.float32))
    made = f"{output.address}/data.zarr"
    fault = {"match": "/c/|^(DELETE|POST) ", "fault": "delay:3600"}
    end = check_answered(proxy, fault, "SIGINT", "import", str(source), made)
    assert f"remove what is in {made} before the next import" in end.stderr


def test_a_source_that_breaks_off_is_fetched_again(
    source: str, tmp_path: Path, proxy: Proxy, impatient: None
) -> None:
    made, command_line = tmp_path / "data.zarr", ("import", source, tmp_path / "data.zarr", "--target", "y")
    proxy.set_faults({"match": "^GET .*many.csv", "fault": "half"})
    refused = command(*command_line, code=5)
    assert f"dcpred: {source}: " in refused.stderr
    assert not made.exists()
    proxy.set_faults({"match": "^GET .*many.csv", "fault": "half", "times": 2})
    command(*command_line)
    assert zarr.open_group(made, mode="r")["X"].shape == (2000, 2)


# Secrets


def test_no_secret_is_told(known: Known, finished: Place, proxy: Proxy, impatient: None) -> None:
    """Beside runs, whose tasks and logs tests/cluster/test_whole_job.py looks through, and refusals, whose
    texts tests/cluster/test_store_refusals.py does.
    """
    secrets = SECRETS[KIND]
    assert all(any(secret in value for value in os.environ.values()) for secret in secrets)

    def check(told: str | bytes) -> None:
        data = told.encode() if isinstance(told, str) else told
        assert not any(secret.encode() in data for secret in secrets)

    for data in stored(finished).values():
        check(data)
    run, _, _ = plan_run(Request(known.model, known.x, finished.address))
    opened = store_requests.open_store(KIND, BUCKET, ())
    for value in (run, open_ledger(finished.address), finished.address, opened):
        check(pickle.dumps(value))
    # obstore cannot show a store of Azure whose account is named by the environment.
    for value in (run, finished, open_array(known.x), *([] if KIND == "az" else [opened])):
        check(repr(value) + str(value))
    kinds = ("403 before", "409 before", "503 before", "drop before", "half", "500 before", "echo before")
    for fault in kinds:
        proxy.set_faults({"match": "", "fault": fault})
        with pytest.raises((DcpredError, OSError)) as told:
            verify(finished.address, "fast")
        check(str(told.getrepr(showlocals=False, style="long")))
        check(repr(told.value))
