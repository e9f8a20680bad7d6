"""Shards of one run, on a disk and on a store: whoever is last, twice, late or dead, the output is that of a
run by one driver, and it is finished once.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dcpred.cli import main
from dcpred.execution import interrupts
from dcpred.execution.lease import acquire_lock
from dcpred.execution.progress import reporting
from dcpred.runs import shards
from dcpred.runs.latest import MANIFEST, PLAN
from dcpred.runs.ledger import WITHDRAWN, Ledger, open_ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.shards import Shard, hold_shard
from dcpred.runs.status import how_to_resume, run_status
from dcpred.scoring import score_shard as module
from dcpred.scoring.deliver import deliver
from dcpred.scoring.planning import plan_run
from dcpred.scoring.repair import repair
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.scoring.score_shard import ShardReport, score_shard
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.errors import (
    DataError,
    IncompleteError,
    InterruptedRunError,
    PlanConflictError,
    RunHeldError,
)
from dcpred_tasks.storage.atomic_files import encoded
from dcpred_tasks.storage.place import open_place, read_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.task_bodies import score_block as task
from dcpred_tasks.task_bodies import zarr_chunks
from support.data import make_blobs, make_group
from support.reporters import Recorder
from support.serving import read_models_once
from support.stores import StoreServer, used

N_BLOCKS = 10


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", N_BLOCKS)
        patch.setattr(shards, "INSTANT_SECONDS", 0.1)
        patch.setattr(module, "LOOK_SECONDS", 0.05)
        read_models_once(patch)
        yield


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, small_blocks: None) -> Path:
    """Model, data, and the output of one driver."""
    folder = tmp_path_factory.mktemp("known")
    blobs = make_blobs(1_950, n_features=5, n_classes=3, seed=2)
    rows = make_group(folder / "train.zarr", blobs.X[:900], blobs.y[:900])
    settings = {"landmarks": 6, "products": 8, "n_leaves": 4}
    train(rows, folder / "model", settings=settings)
    make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    score(folder / "model", f"{folder}/data.zarr/X", folder / "whole")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return open_place(tmp_path / "out")


@pytest.fixture(params=["folder", "store"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield open_place(tmp_path / "out")
        return
    server: StoreServer = request.getfixturevalue("gcs")  # which takes a third of what moto's S3 takes
    with used(server):
        yield open_place(server.address(secrets.token_hex(4), "out"))


def shard(known: Path, output: Place, text: str, **more: Any) -> ScoreReport | ShardReport:
    index, count = map(int, text.split("/"))
    x = f"{known}/data.zarr/X"
    return score(known / "model", x, output.address, shard=Shard(index, count), **more)


def whole(known: Path, output: Place, **more: Any) -> ScoreReport:
    return score(known / "model", f"{known}/data.zarr/X", output.address, **more)


def check_as_by_one_driver(known: Path, output: Place) -> None:
    right, found = open_place(known / "whole"), output
    names = right.listing("scores.zarr").keys()
    assert found.listing("scores.zarr").keys() == names
    assert all(data(right, name) == data(found, name) for name in names)
    assert not any(".conflict-" in name for name in found.names("blocks"))
    assert verify(output.address, "full").ok


def data(place: Place, name: str) -> bytes:
    standing = place.read(name)
    assert standing is not None
    return standing.data


# Of twelve shards two have no block, and the tenth is the last to have one.
@pytest.mark.parametrize(
    ("order", "last"),
    [
        pytest.param(["0/1"], 0, marks=pytest.mark.long),
        (["2/3", "0/3", "1/3"], 2),
        ([f"{i}/12" for i in range(12)], 9),
    ],
)
def test_shards_give_what_one_driver_gives(known: Path, output: Place, order: list[str], last: int) -> None:
    done = 0
    for text in order[:last]:
        report, again = shard(known, output, text), shard(known, output, text)
        assert isinstance(report, ShardReport)
        assert isinstance(again, ShardReport)
        done += report.shard_blocks
        assert (report.shard, report.scored_blocks, report.left_blocks) == (
            text,
            report.shard_blocks,
            N_BLOCKS - done,
        )
        assert (again.scored_blocks, again.left_blocks) == (0, N_BLOCKS - done)
        assert output.read(MANIFEST) is None
    end = shard(known, output, order[last])
    assert isinstance(end, ScoreReport)
    assert (end.scored_blocks, end.status) == (N_BLOCKS - done, {"1": 1_950})
    check_as_by_one_driver(known, output)
    finished, said = data(output, MANIFEST), Recorder()
    for text in order:
        with reporting(said):
            again = shard(known, output, text)
        assert isinstance(again, ScoreReport)
        assert again.scored_blocks == 0
    assert whole(known, output).scored_blocks == 0
    assert data(output, MANIFEST) == finished
    assert said.told == ["this run is finished; nothing was written"] * len(order)


def test_who_keeps_whom_out(known: Path, output: Place) -> None:
    """The same shard, and the whole; other shards go on."""
    with hold_shard(output, Shard(1, 4)):
        for refused in (
            lambda: shard(known, output, "1/4"),
            lambda: whole(known, output),
        ):
            with pytest.raises(RunHeldError, match="in use by process"):
                refused()
        assert isinstance(shard(known, output, "0/4"), ShardReport)
        for refused in (
            lambda: whole(known, output),
            lambda: repair(known / "model", f"{known}/data.zarr/X", output.address),
        ):
            with pytest.raises(RunHeldError, match=r"shard 1/4 is in use by process .*\. Wait for all"):
                refused()
        assert isinstance(shard(known, output, "1/3"), ShardReport), "another cut does no harm"
        assert run_status(output.address).state == "scoring"
    with acquire_lock(output):
        with pytest.raises(RunHeldError, match=r"Cannot score shard 2/4 of .*: process .* scores the whole"):
            shard(known, output, "2/4")
        assert run_status(output.address).driver.startswith("process ")
    report = whole(known, output)
    assert report.scored_blocks == N_BLOCKS - 5
    check_as_by_one_driver(known, output)


def test_a_driver_of_the_whole_that_leaves_at_once_is_waited_for(
    known: Path, folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["process 1 on host", "process 1 on host"])
    monkeypatch.setattr(shards, "lock_holder", lambda *_: next(answers, ""))
    assert isinstance(shard(known, folder, "2/4"), ShardReport)


def test_all_at_once(known: Path, output: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shard twice, and all of them begin at the same moment: what is refused was in use."""
    ended: list[Any] = []
    finished: list[int] = []
    run_now, _, model = plan_run(Request(known / "model", f"{known}/data.zarr/X", output.address))
    planned = zarr_chunks.planned_scores(run_now, model)  # It filters warnings, which is not for threads.
    monkeypatch.setattr(zarr_chunks, "planned_scores", lambda *_: planned)
    finish = Ledger.finish
    monkeypatch.setattr(Ledger, "finish", lambda *args: (finished.append(1), finish(*args))[1])
    start = threading.Barrier(8)

    def run(text: str) -> None:
        start.wait()
        try:
            ended.append(shard(known, output, text))
        except RunHeldError as error:
            ended.append(error)

    threads = [threading.Thread(target=run, args=(f"{i % 4}/4",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 8
    # Whoever came second to a shard may have been refused; run again, it finds the whole done.
    assert sum(isinstance(end, RunHeldError) for end in ended) <= 4
    assert any(isinstance(end, ScoreReport) for end in ended)
    assert finished == [1]
    assert all(isinstance(shard(known, output, f"{i}/4"), ScoreReport) for i in range(4))
    check_as_by_one_driver(known, output)


@pytest.mark.parametrize("fate", ["writes the manifest", "dies"])
def test_another_shard_verifies(
    known: Path, output: Place, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """The one that ends second waits, and never writes over the manifest."""
    shard(known, output, "0/2")
    real, waiting, second = module.make_manifest, threading.Event(), list[Any]()
    hold = module.acquire_lock
    other = threading.Thread(target=lambda: second.append(shard(known, output, "0/2")))

    def entered(place: Place) -> Any:
        if threading.current_thread() is other:
            waiting.set()
        return hold(place)

    def made(*args: Any) -> Any:
        if threading.current_thread() is not other:
            other.start()
            waiting.wait()
            if fate == "dies":
                raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "acquire_lock", entered)
    monkeypatch.setattr(module, "make_manifest", made)
    if fate == "dies":
        with pytest.raises(KeyboardInterrupt):
            shard(known, output, "1/2")
        other.join()
    else:
        first = shard(known, output, "1/2")
        other.join()
        assert isinstance(first, ScoreReport)
        assert first.manifest["checksum"] == second[0].manifest["checksum"]
    assert isinstance(second[0], ScoreReport)
    assert second[0].scored_blocks == 0
    check_as_by_one_driver(known, output)


def test_a_shard_that_waits_for_another_heeds_signals(known: Path, folder: Place) -> None:
    shard(known, folder, "0/2")
    place = open_place(f"{folder.address}/shards/finish")
    place.make_folder("")
    with acquire_lock(place), interrupts.listening() as asked:
        threading.Timer(0.2, asked.set).start()
        try:
            # Its blocks are scored before, unless the signal comes earlier: both are interruptions.
            with pytest.raises(InterruptedRunError, match="run the same command again to resume"):
                shard(known, folder, "1/2")
        finally:
            asked.clear()
    assert isinstance(shard(known, folder, "1/2"), ScoreReport)


def test_a_verification_is_not_waited_for_without_end(
    known: Path, folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FINISH_SECONDS", 0.0)
    monkeypatch.setattr(module, "BLOCK_SECONDS", 0.0)
    place = open_place(f"{folder.address}/shards/finish")
    place.make_folder("")
    with acquire_lock(place), pytest.raises(RunHeldError, match="shards/finish: it is in use by process"):
        shard(known, folder, "0/1")


def test_who_dies_after_withdrawing_a_block_of_another_finishes_when_run_again(
    known: Path, output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard whose block it was has ended well, and nobody runs it again."""
    for text in ("0/4", "1/4", "2/4"):
        shard(known, output, text)
    damage(output, "scores.zarr/label/c/0")
    scored: list[int] = []
    real = task.score_block

    def dying(run: Any, block: int, quarantine: bool) -> Any:
        scored.append(block)
        if block == 0:
            raise KeyboardInterrupt
        return real(run, block, quarantine)

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", dying)
        with pytest.raises(KeyboardInterrupt):
            shard(known, output, "3/4")
    assert scored == [3, 7, 0]
    assert output.read("blocks/000000.json") is None
    assert read_document(output, WITHDRAWN) == {"blocks": [0]}
    report = shard(known, output, "3/4")
    assert isinstance(report, ScoreReport)
    assert report.scored_blocks == 1
    assert output.read(WITHDRAWN) is None
    check_as_by_one_driver(known, output)


@pytest.mark.parametrize("rubbish", [b"", b"[]", b'{"blocks": 3}', b'{"blocks": ["0", null, -1, 3.5]}'])
def test_a_damaged_note_of_what_was_withdrawn(known: Path, folder: Place, rubbish: bytes) -> None:
    folder.make_folder("shards")
    folder.write(WITHDRAWN, rubbish)
    assert isinstance(shard(known, folder, "0/2"), ShardReport)
    assert isinstance(shard(known, folder, "1/2"), ScoreReport)
    check_as_by_one_driver(known, folder)


def damage(place: Place, name: str) -> None:
    place.write(name, data(place, name)[:-1])


def other_outputs(ledger: Ledger) -> bytes:
    return encoded(json.loads(ledger._plan()) | {"outputs": ["label"], "run": "0" * 64})


@pytest.mark.parametrize(
    ("theirs", "refused"), [(Ledger._plan, False), (other_outputs, True)], ids=["same", "another"]
)
def test_the_first_plan_counts(
    known: Path,
    output: Place,
    monkeypatch: pytest.MonkeyPatch,
    theirs: Callable[[Ledger], bytes],
    refused: bool,
) -> None:
    """A plan that comes between the look and the creation."""
    real = Ledger._plan

    def late(ledger: Ledger) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_plan", real)
            output.write(PLAN, theirs(ledger))
        return real(ledger)

    monkeypatch.setattr(Ledger, "_plan", late)
    if refused:
        with pytest.raises(PlanConflictError, match=r"belongs to another plan \(it differs in outputs\)"):
            shard(known, output, "0/2")
        assert json.loads(data(output, PLAN))["outputs"] == ["label"]
        assert not output.names("blocks")
        return
    shard(known, output, "0/2")
    assert isinstance(shard(known, output, "1/2"), ScoreReport)
    check_as_by_one_driver(known, output)


def test_metadata_that_another_shard_made_are_left_alone(
    known: Path, output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards may have different versions of Zarr, which write the same metadata in other words."""
    run, _, model = plan_run(Request(known / "model", f"{known}/data.zarr/X", output.address))
    planned = zarr_chunks.planned_scores(run, model)
    real = zarr_chunks.zarr_arrays.metadata_file
    files = iter([zarr_chunks.metadata_name(name) for name in (*run.arrays, "")])

    def late(node: Any) -> bytes:
        file = next(files)
        output.make_folder(file.removesuffix("/zarr.json"))
        output.write(file, real(node) + b"\n")
        return real(node)

    monkeypatch.setattr(zarr_chunks.zarr_arrays, "metadata_file", late)
    zarr_chunks.create_scores(run, model)
    assert next(files, None) is None
    for name in run.arrays:
        assert data(output, zarr_chunks.metadata_name(name)) == real(planned[name]) + b"\n"
    assert data(output, zarr_chunks.metadata_name("")) == real(planned) + b"\n"


def test_workers_are_not_asked_for_where_nothing_is_left(known: Path, folder: Place) -> None:
    def none() -> Any:
        pytest.fail("there is nothing to do")

    shard(known, folder, "0/2")
    request = Request(known / "model", f"{known}/data.zarr/X", folder.address, pool=none)
    assert isinstance(score_shard(request, Shard(0, 2)), ShardReport)
    empty = score_shard(request, Shard(30, 31))
    assert isinstance(empty, ShardReport)
    assert (empty.shard_blocks, empty.left_blocks) == (0, 5)


def test_a_shard_of_another_plan_is_refused(known: Path, folder: Place) -> None:
    shard(known, folder, "0/2")
    with pytest.raises(PlanConflictError, match="differs in outputs"):
        shard(known, folder, "1/2", outputs=("label",))


def test_failures_stay_with_their_shard(known: Path, folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = task.score_block

    def failing(run: Any, block: int, quarantine: bool) -> Any:
        if block == 2:
            raise DataError("a chunk is damaged")
        return real(run, block, quarantine)

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", failing)
        with pytest.raises(IncompleteError, match="Cannot score 1 of 5 blocks"):
            shard(known, folder, "0/2")
    report = shard(known, folder, "1/2")
    assert isinstance(report, ShardReport)
    assert report.left_blocks == 1
    state = run_status(folder.address)
    assert [failure["block"] for failure in state.failing] == [2]
    assert state.shards == [
        {"shard": "0/2", "driver": "", "n_blocks": 5, "done_blocks": 4},
        {"shard": "1/2", "driver": "", "n_blocks": 5, "done_blocks": 5},
    ]
    assert how_to_resume(state.shards[1:]).endswith(
        "has blocks left: --shard 0/2"
    )  # also one that never began
    with pytest.raises(IncompleteError, match="again for each shard that has blocks left: --shard 0/2"):
        deliver(folder.address)
    assert isinstance(shard(known, folder, "0/2"), ScoreReport)
    assert not run_status(folder.address).failing
    check_as_by_one_driver(known, folder)


def test_a_shard_whose_lease_was_lost_does_not_finish(
    known: Path, folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.make_manifest

    def stolen(*args: Any) -> Any:
        lock = Path(folder.address, "shards", "0-of-1", "lock")
        lock.write_text("process 2 on elsewhere · fedcba9876543210\n")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "make_manifest", stolen)
        with pytest.raises(RunHeldError, match="taken over by process 2 on elsewhere"):
            shard(known, folder, "0/1")
    assert folder.read(MANIFEST) is None


def test_a_manifest_is_created_once(known: Path, output: Place) -> None:
    shard(known, output, "0/1")
    ledger = open_ledger(output.address)
    first = ledger.whole_manifest()
    assert first is not None
    assert ledger.finish(first | {"scored_blocks_last_call": 99}) == first
    output.write(MANIFEST, b"{}")
    assert ledger.finish(first) == first
    assert ledger.whole_manifest() == first
    assert replace(ledger, shard=Shard(1, 4)).shard_blocks == range(1, N_BLOCKS, 4)


def test_a_look_at_a_lock_is_not_in_the_way_of_another(tmp_path: Path) -> None:
    """Shards that begin at once all look at the lock of the whole."""
    place = open_place(tmp_path)
    with acquire_lock(place):
        pass
    seen: list[str] = []

    def look() -> None:
        seen.extend(shards.lock_holder(place) for _ in range(200))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [""] * 800


# -- the command line ----------------------------------------------------------------------------------------


def dcpred(*arguments: object, code: int = 0, **environment: str) -> Any:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="dcpred", env=environment)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_the_command(known: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("score", known / "model", known / "data.zarr", out, "--workers", "1", "--shard")
    said = dcpred(*command, "auto/10", JOB_COMPLETION_INDEX="3")
    assert "3/10: 1 of 10 blocks, all of them done" in said.stdout
    assert "9 remain for other shards" in said.stdout
    assert "shard 3/10 is done: its 1 block is committed; 9 of 10 remain for other shards" in said.stderr
    report = json.loads(
        dcpred(*command, "auto", "--json", SLURM_ARRAY_TASK_ID="0", SLURM_ARRAY_TASK_COUNT="2").stdout
    )
    assert (report["shard"], report["scored_blocks"], report["left_blocks"]) == ("0/2", 5, 4)
    with hold_shard(open_place(out), Shard(1, 2)):
        assert "in use by process" in dcpred(*command, "1/2", code=6).stderr
        shown = dcpred("status", out).stdout
        assert "scoring, driven by 1 shard" in shown
        assert "3 have begun, 1 at work" in shown
        assert "1/2: 1 of 5 blocks, process" in shown
    report = json.loads(dcpred(*command, "1/2", "--json").stdout)
    assert (report["scored_blocks"], report["status"]) == (4, {"1": 1_950})
    assert "this run is finished; nothing was written" in dcpred(*command, "1/2").stderr
    assert "shards" not in dcpred("status", out).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--shard", "4/4"), "Cannot score shard 4 of 4: they are numbered 0 to 3"),
        (("--shard", "half"), "a shard is i/n"),
        (("--shard", "0/2", "--repair"), "Cannot combine --shard with --repair: one excludes the other"),
        (
            ("--shard", "0/2", "--scheduler", "tcp://a:1"),
            "Cannot combine --shard with a scheduler (--scheduler or DASK_SCHEDULER_ADDRESS)",
        ),
    ],
)
def test_mistakes(known: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = dcpred("score", known / "model", known / "data.zarr", tmp_path / "out", *arguments, code=2)
    assert sentence in result.stderr
    assert not (tmp_path / "out").exists()
