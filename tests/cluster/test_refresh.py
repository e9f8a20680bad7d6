"""`dcpred refresh` as it is called: what it refuses, what it tells, what is kept beside, several inputs, and
roots on object stores.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

from dcpred.cli import main
from dcpred.execution.block_plan import BlockBoundaries
from dcpred.execution.lease import acquire_lock
from dcpred.refreshing.limits import Limits
from dcpred.refreshing.refresh import RefreshReport, publish, refresh
from dcpred.refreshing.root import open_root, root_status
from dcpred.reports.inspection import inspect
from dcpred.reports.report import report as report_of
from dcpred.runs.bad_rows import errors
from dcpred.runs.latest import SETTINGS
from dcpred.runs.ledger import open_ledger
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.training.fit import publish as publish_model
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.commit_records import read_record
from dcpred_tasks.errors import (
    DataError,
    IncompleteError,
    PlanConflictError,
    RunHeldError,
    SettingsError,
)
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import Folder, open_place
from support.cut_off import CutOff
from support.data import make_blobs, make_group
from support.html_pages import check_page
from support.pools import inline
from support.runs import report_of_incomplete, score_in_blocks
from support.serving import read_models_once
from support.stores import Proxy, StoreServer, used

CHUNK_ROWS, N_ROWS = 50, 430  # blocks of two chunks, the last of one that is not full


def blobs(n: int, seed: int) -> Any:
    """Rows like those that the model was trained on."""
    return make_blobs(11_000, n_features=3, n_classes=3, seed=0).X[1_000 * seed :][:n]


@pytest.fixture(scope="module", autouse=True)
def one_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_models_once(patch)
        yield


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MIN_BLOCK_ROWS": 1, "MAX_CHUNK_ROWS": CHUNK_ROWS, "BLOCKS": 5}.items():
        monkeypatch.setattr(f"dcpred.execution.block_plan.{name}", value)
    monkeypatch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", 0.02)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    known = make_blobs(300, n_features=3, n_classes=3, seed=0)
    data = make_group(folder / "train.zarr", known.X, known.y)
    train(data, folder / "model", settings={"landmarks": 6, "n_leaves": 2})
    return folder / "model"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_group(tmp_path / "data.zarr", blobs(N_ROWS, 2), chunk_rows=CHUNK_ROWS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def call(model: Path, data: Path, root: Path) -> Callable[..., RefreshReport]:
    return lambda **more: refresh(model, data, root, **more)


def append(data: Path | str, n: int, seed: int) -> None:
    zarr.open_array(f"{data}/X", mode="r+").append(blobs(n, seed))


def run_cli(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in ("lock", ".lock.guard")
    }


# -- what a run is -------------------------------------------------------------------------------------------


def test_a_block_that_was_taken_over_names_the_run_that_scored_it(
    call: Callable[..., RefreshReport], data: Path
) -> None:
    first = call()
    for seed in (3, 4):
        append(data, 100, seed)
        last = call()
    assert (last.n_blocks, last.taken_blocks, last.scored_blocks) == (7, 5, 2)
    run = open_ledger(f"{last.root}/latest").run
    records = [read_record(run, block) for block in range(7)]
    origins = [record.origin for record in records if record is not None]
    assert [origin == first.run for origin in origins] == [True] * 4 + [False] * 3
    assert records[0] is not None
    assert records[0].run == run.run
    assert records[0].process == f"run {first.run}"
    manifest = open_ledger(run.output).whole_manifest()
    assert manifest is not None
    assert manifest["taken_over"] == {first.run: 4, origins[4]: 1}


def test_runs_are_known_without_reading_them(
    call: Callable[..., RefreshReport], data: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root of years has hundreds of them. Of one of another input only the plan and
    its tables are read.
    """
    names = [call().run]
    for seed in (3, 4, 5):
        append(data, 100, seed)
        names.append(call().run)
    found, read = open_root(open_place(root)), list[str]()
    real = Folder.read

    def noted(place: Folder, name: str) -> Any:
        read.append(os.path.relpath(place.path / name, root / "runs"))
        return real(place, name)

    monkeypatch.setattr(Folder, "read", noted)
    assert found.finished() == names[::-1]
    assert read == []
    append(data, 100, 6)
    assert call().taken_blocks > 0
    of_old = [name for name in read if name.startswith((names[0], names[1]))]
    assert {name.rpartition("/")[2] for name in of_old} == {"plan.json", "tables.json"}


def test_a_run_that_is_repaired_is_not_removed(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    first = call()
    append(data, 100, 3)
    with acquire_lock(open_place(root / "runs" / first.run)):
        assert call(keep=1).removed == []
    append(data, 100, 4)
    assert first.run in call(keep=1).removed


def test_what_a_link_in_place_of_a_run_leads_to_stays(
    call: Callable[..., RefreshReport], data: Path, root: Path, tmp_path: Path
) -> None:
    """Somebody moved an old run to a larger disk."""
    first = call()
    (root / "runs" / first.run).rename(tmp_path / "archive")
    (root / "runs" / first.run).symlink_to(tmp_path / "archive")
    before = files_of(tmp_path / "archive")
    append(data, 100, 3)
    assert call(keep=1).removed == [first.run]
    assert not (root / "runs" / first.run).is_symlink()
    assert files_of(tmp_path / "archive") == before


def test_files_of_the_system_are_in_nobodys_way(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    """In a root that is begun, among its runs, and in its input."""
    root.mkdir()
    (root / ".DS_Store").touch()
    first = call()
    for folder in (root / "runs", root / "runs" / first.run, data / "X" / "c"):
        (folder / ".nfs00000000003868fa").touch()
    assert call().state == "unchanged"


def test_its_runs_have_a_report(call: Callable[..., RefreshReport], data: Path, root: Path) -> None:
    """A line for each, and all of the latest; the latest alone by its own address."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    first = call()
    append(data, 100, 3)
    last = call()
    found = check_page(report_of(root).html)
    assert found.texts["h1"] == ["Refresh of data.zarr"]
    assert found.texts["h2"][:2] == ["Runs", "Rows"]
    assert [text for text in found.texts["th"] if text in (first.run, last.run)] == [last.run, first.run]
    assert f"{last.taken_blocks} of {last.n_blocks}" in found.texts["td"]
    taken = found.texts["dd"][found.texts["dt"].index("blocks reused")]
    assert taken == str(last.taken_blocks), "no worker did them now"
    assert check_page(report_of(root / "latest").html).texts["h2"][0] == "Rows"
    (root / f"runs/{first.run}/manifest.json").write_text("{}")
    assert f"Run {first.run} is damaged" in " ".join(check_page(report_of(root).html).texts["p"])


def test_chunks_are_shared(call: Callable[..., RefreshReport], data: Path, root: Path) -> None:
    first = call()
    append(data, 100, 3)
    second = call()
    name = "scores.zarr/decision/c/0/0"
    one, other = (root / "runs" / r.run / name for r in (first, second))
    assert one.samefile(other)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EXDEV, errno.EMLINK])
def test_where_there_are_no_links_chunks_are_copied(
    call: Callable[..., RefreshReport], data: Path, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    if number == errno.EPERM:
        monkeypatch.setattr(os, "symlink", refuse)
    first = call()
    append(data, 100, 3)
    second = call()
    assert second.taken_blocks == 4
    assert second.latest == second.run != first.run
    assert (root / "LATEST.json").exists() == (number == errno.EPERM)
    assert verify(root / "runs" / second.run, "full").ok
    assert call().state == "unchanged"


def test_a_repair_leaves_runs_alone_that_share_its_chunks(
    call: Callable[..., RefreshReport], model: Path, data: Path, root: Path
) -> None:
    first = call()
    append(data, 100, 3)
    second = call()
    whole = files_of(root / "runs" / first.run)
    shared = root / "runs" / second.run / "scores.zarr/decision/c/0/0"
    right = shared.read_bytes()
    wrong = bytearray(right)
    wrong[-6] ^= 1
    shared.write_bytes(wrong)  # in place, so that both runs hold it
    for name in (first.run, second.run):
        assert not verify(root / "runs" / name, "full").ok
    report = repair(model, data, root / "latest")
    assert report.scored_blocks == 1
    assert shared.read_bytes() == right
    assert verify(root / "latest", "full").ok
    assert files_of(root / "runs" / first.run) == whole | {"scores.zarr/decision/c/0/0": bytes(wrong)}
    assert call().state == "unchanged"


def test_every_level_of_verification_and_the_list_of_bad_rows(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    array = zarr.open_array(f"{data}/X", mode="r+")
    array[7:9, 1] = np.nan
    call()
    append(data, 100, 3)
    assert call().status["2"] == 2
    for level in ("fast", "sample", "full"):
        assert verify(root / "latest", level).ok, level
    assert [row.row for row in errors(root / "latest", 10).rows] == [7, 8]
    assert errors(root / "latest", 10).rows[0].feature == 1


def test_damage_of_the_run_before_is_not_taken_over(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    """A chunk that is gone or cut short, a record that is altered: their blocks are scored."""
    first = root / "runs" / call().run
    (first / "scores.zarr/label/c/0").unlink()
    (first / "blocks/000001.json").write_text("{}")
    (first / "scores.zarr/status/c/4").write_bytes(b"")
    append(data, 100, 3)
    second = call()
    assert second.scored_blocks == second.n_blocks - 1
    assert verify(root / "latest", "full").ok


def test_rows_that_were_given_up_are_tried_again(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    chunk = data / "X/c/2/0"
    kept = chunk.read_bytes()
    chunk.unlink()
    with pytest.raises(DataError, match="is missing"):
        call()
    assert not root.exists()
    report = report_of_incomplete(call, quarantine=True)
    assert report.state == "kept"
    assert report.why_kept == "50 rows were skipped"
    assert not (root / "latest").exists()
    allowed = call(quarantine=True, max_bad_fraction=0.5)
    assert (allowed.state, allowed.run, allowed.scored_blocks) == ("published", report.run, 0)
    append(data, 100, 3)
    again = call(quarantine=True, max_bad_rows=50)
    assert (again.taken_blocks, again.scored_blocks) == (3, 3)
    chunk.write_bytes(kept)
    mended = call()
    assert (mended.state, mended.status) == ("published", {"1": N_ROWS + 100})


def test_a_chunk_that_is_too_young_is_scored_again(
    call: Callable[..., RefreshReport], data: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second write within a tick of the clock could not be told from the first."""
    slept: list[float] = []
    monkeypatch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", 60.0)
    monkeypatch.setattr("dcpred.refreshing.incremental_run.time.sleep", slept.append)
    with pytest.raises(IncompleteError, match="it changed 3 times during scoring"):
        call()
    assert [round(seconds) for seconds in slept] == [60] * 3
    assert not open_root(open_place(root)).finished()[1:]
    monkeypatch.setattr("dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS", 0.0)
    for path in data.rglob("*"):
        os.utime(path, (9e9, 9e9))  # by a machine whose clock is ahead
    assert call().state == "published"


def test_the_cut_is_that_of_the_first_run(call: Callable[..., RefreshReport], data: Path) -> None:
    """Also where so many rows would be cut otherwise."""
    first = open_ledger(f"{call().root}/latest").run
    append(data, 3000, 3)
    report = call()
    run = open_ledger(f"{report.root}/latest").run
    assert (run.chunk_rows, run.block_rows) == (first.chunk_rows, first.block_rows) == (50, 100)
    assert report.taken_blocks == 4
    assert call(full=True).n_blocks < report.n_blocks


# -- what is refused -----------------------------------------------------------------------------------------


def test_another_dtype_is_refused_until_everything_is_scored(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    call()
    shutil.rmtree(data)
    make_group(data, blobs(N_ROWS + 10, 2).astype("f8"), chunk_rows=CHUNK_ROWS)
    before = files_of(root)
    with pytest.raises(DataError, match=r"it holds float64, and the scored rows were float32\. Restore it"):
        call()
    assert files_of(root) == before
    assert call(full=True).state == "published"


def test_other_data_and_other_outputs_are_refused(
    call: Callable[..., RefreshReport], model: Path, data: Path, root: Path, tmp_path: Path
) -> None:
    call(outputs=("label",))
    other = make_group(tmp_path / "other.zarr", blobs(N_ROWS, 3), chunk_rows=CHUNK_ROWS)
    before = files_of(root)
    with pytest.raises(PlanConflictError, match=r"holds runs of .*data.zarr/X, not of .*other.zarr/X"):
        refresh(model, other, root)
    with pytest.raises(PlanConflictError, match="holds runs with label as outputs, not decision"):
        call(outputs=("decision",))
    assert files_of(root) == before
    assert not (root / "latest/scores.zarr/decision").exists()
    assert refresh(model, other, root, full=True).state == "published"
    assert (root / "latest/scores.zarr/decision").exists()


def test_a_folder_of_something_else_is_refused(
    call: Callable[..., RefreshReport], root: Path, model: Path
) -> None:
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    with pytest.raises(PlanConflictError, match=r"holds other files \(notes.txt\)"):
        call()
    assert os.listdir(root) == ["notes.txt"]
    with pytest.raises(PlanConflictError, match=r"it holds no refresh\.json"):
        publish(root, "0001-00000000")
    with pytest.raises(SettingsError, match="Cannot keep 0 runs"):
        call(keep=0)
    with pytest.raises(SettingsError, match="Cannot set max_drift to -1"):
        Limits(max_drift=-1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "dcpred-refresh", "version": 2}',
        '{"format": "dcpred-refresh", "version": 1, "data": "x", "outputs": null, "cut": {"chunk_rows": -1,'
        ' "block_rows": 1, "stride": 1}, "form": "", "unfinished": [], "passed_over": []}',
        '{"format": "dcpred-refresh", "version": 1, "data": "x", "outputs": null, "cut": null, "form": "",'
        ' "unfinished": ["../../elsewhere"], "passed_over": []}',
    ],
)
def test_damaged_settings_are_refused(call: Callable[..., RefreshReport], root: Path, text: str) -> None:
    call()
    (root / SETTINGS).write_text(text)
    before = files_of(root)
    with pytest.raises(PlanConflictError, match=r"refresh.json: this version of dcpred did not write it"):
        call()
    assert files_of(root) == before


@pytest.mark.parametrize("target", ["runs/../../elsewhere", "/etc", "runs/0001"])
def test_a_pointer_to_elsewhere_is_refused(
    call: Callable[..., RefreshReport], root: Path, target: str
) -> None:
    run = call().run
    (root / "latest").unlink()
    (root / "latest").symlink_to(target)
    with pytest.raises(PlanConflictError, match="its pointer names"):
        call()
    assert publish(root, run).before == ""
    assert call().state == "unchanged"


@pytest.mark.parametrize("what", ["inputs.json", "plan.json"])
def test_a_run_whose_state_is_damaged_is_no_source(
    call: Callable[..., RefreshReport], root: Path, what: str
) -> None:
    first = call()
    file = root / "runs" / first.run / what
    file.write_bytes(file.read_bytes().replace(b'"n_rows": 430', b'"n_rows": 431'))
    second = call()
    assert (second.state, second.scored_blocks) == ("published", 5)
    assert verify(root / "latest", "full").ok


def test_what_a_repair_scored_from_another_input_is_scored_again(
    call: Callable[..., RefreshReport], model: Path, data: Path, root: Path
) -> None:
    """Though the input comes back with its times of writing."""
    first = call()
    chunk = data / "X/c/3/0"
    kept, times = chunk.read_bytes(), chunk.stat()
    zarr.open_array(f"{data}/X", mode="r+")[150:200] = 0.5
    output = root / "runs" / first.run
    for file in (output / "scores.zarr").glob("*/c/3*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert repair(model, data, output).scored_blocks == 1
    chunk.write_bytes(kept)
    os.utime(chunk, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = call()
    assert (again.state, again.scored_blocks) == ("published", 1)
    fresh = score(model, data, root.parent / "fresh")
    found, wanted = (
        zarr.open_group(f"{output}/scores.zarr", mode="r")["decision"][...].tobytes()
        for output in (root / "latest", fresh.output)
    )
    assert found == wanted


# -- limits, and publishing by hand --------------------------------------------------------------------------


def test_a_run_beyond_its_limits_is_kept_beside(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    limits = {"max_drift": 1.0, "max_shift": 3.0}
    first = call(**limits)
    assert first.state == "published"
    zarr.open_array(f"{data}/X", mode="r+").append(np.full((200, 3), 40.0, np.float32))
    second = report_of_incomplete(call, **limits)
    assert (second.state, second.latest) == ("kept", first.run)
    assert "for blocks that changed" in second.why_kept
    assert os.readlink(root / "latest") == f"runs/{first.run}"
    again = report_of_incomplete(call, **limits)
    assert (again.state, again.run, again.scored_blocks) == ("kept", second.run, 0)
    assert publish(root, second.run).before == first.run
    assert call(**limits).state == "unchanged"


def test_blocks_that_nobody_published_are_judged_every_night(
    call: Callable[..., RefreshReport], data: Path, root: Path
) -> None:
    """Though they were taken over from a run that was kept beside."""
    limits = {"max_drift": 1.0, "max_shift": 3.0}
    first = call(**limits)
    zarr.open_array(f"{data}/X", mode="r+").append(np.full((200, 3), 40.0, np.float32))
    kept = [report_of_incomplete(call, **limits, keep=2)]
    for night in range(3):
        append(data, 400, 5 + night)
        kept.append(report_of_incomplete(call, **limits, keep=2))
        assert (kept[-1].state, kept[-1].latest) == ("kept", first.run)
        assert kept[-1].taken_blocks > 4
        assert kept[-1].removed == [kept[-2].run]
    assert publish(root, kept[-1].run).before == first.run
    append(data, 400, 9)
    assert call(max_drift=1.0).state == "published"


def test_bad_rows_beyond_a_limit(call: Callable[..., RefreshReport], data: Path) -> None:
    zarr.open_array(f"{data}/X", mode="r+")[:3, 0] = np.nan
    for limit in ({"max_bad_rows": 2}, {"max_bad_fraction": 0.005}):
        report = report_of_incomplete(call, **limit)
        assert (report.state, "3 rows have no score" in report.why_kept) == ("kept", True)
    report = call(max_bad_rows=3)
    assert (report.state, report.why_kept) == ("published", "")


def test_only_a_whole_run_is_published(call: Callable[..., RefreshReport], data: Path, root: Path) -> None:
    first = call()
    append(data, 10, 3)
    second = call()
    (root / "runs" / first.run / "scores.zarr/label/c/0").unlink()
    with pytest.raises(IncompleteError, match="is modified or damaged"):
        publish(root, first.run)
    with pytest.raises(PlanConflictError, match=f"its finished runs are {second.run}, {first.run}"):
        publish(root, "0009-00000000")
    assert os.readlink(root / "latest") == f"runs/{second.run}"


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())


@pytest.mark.usefixtures("in_this_process")
def test_the_command(model: Path, data: Path, root: Path, tmp_path: Path) -> None:
    words = ("refresh", model, data, root, "--workers", 1)
    told = tmp_path / "told.json"
    first = run_cli(*words, "--json", "--notify", f"cat > {told}")
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert (report["state"], report["scored_blocks"]) == ("published", 5)
    assert json.loads(told.read_text()) == {**report, "exit_code": 0}
    assert "nothing changed; nothing was written" in run_cli(*words).stdout
    append(data, 100, 3)
    beyond = run_cli(*words, "--max-drift", 0, "--notify", f"cat > {told}; exit 3")
    assert beyond.exit_code == 4
    assert "it is beyond its limits" in beyond.stderr
    assert "the command of --notify ended with exit code 3" in beyond.stderr
    assert json.loads(told.read_text())["exit_code"] == 4
    status = run_cli("status", root).stdout.splitlines()
    assert [line.split()[:2] for line in status[-2:]] == [
        [json.loads(told.read_text())["run"], "finished"],
        [report["run"], "latest"],
    ]
    by_hand = ("refresh", root, "--publish", status[-2].split()[0], "--notify", f"cat > {told}")
    assert run_cli(*by_hand).exit_code == 0
    assert json.loads(told.read_text()) == {
        "remarks": [],
        "latest": by_hand[3],
        "before": report["run"],
        "exit_code": 0,
    }
    assert run_cli(*words, "--max-drift", -1, "--notify", f"cat > {told}").exit_code == 3
    assert "Cannot set max_drift to -1.0" in json.loads(told.read_text())["error"]
    assert root_status(root).latest == status[-2].split()[0]
    assert run_cli("status", root / "latest").stdout.startswith("output")


@pytest.mark.usefixtures("in_this_process")
def test_what_the_command_refuses(model: Path, data: Path, root: Path, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    assert run_cli("refresh", model, data).exit_code == 2
    assert run_cli("refresh", model, data, root, "--publish", "0001-00000000").exit_code == 2
    for ignored in (("--keep", 3), ("--full",), ("--workers", 1)):
        refused = run_cli("refresh", root, "--publish", "0001-00000000", *ignored)
        assert (refused.exit_code, f"Cannot combine --publish with {ignored[0]}" in refused.stderr) == (
            2,
            True,
        )
    missing = run_cli("refresh", model, tmp_path / "nothing.zarr", root, "--notify", f"cat > {told}")
    assert missing.exit_code == 3
    assert json.loads(told.read_text())["exit_code"] == 3
    assert "does not exist" in json.loads(told.read_text())["error"]
    assert not root.exists()


# -- several inputs ------------------------------------------------------------------------------------------


def day(folder: Path, number: int, n: int = 230) -> Path:
    return make_group(folder / f"day-{number}.zarr", blobs(n, number), chunk_rows=CHUNK_ROWS)


def test_several_inputs_are_published_at_once(model: Path, root: Path, tmp_path: Path) -> None:
    days, pattern = tmp_path / "in", str(tmp_path / "in/*.zarr")
    days.mkdir()
    with pytest.raises(DataError, match="none match"):
        refresh(model, pattern, root)
    for number in range(3):
        day(days, number)
    first = refresh(model, pattern, root)
    assert (first.state, first.n_rows, first.scored_blocks) == ("published", 690, 15)
    assert refresh(model, pattern, root).state == "unchanged"
    day(days, 3)
    append(days / "day-1.zarr", 100, 7)
    before = {path.name: os.path.realpath(path) for path in (root / "latest/parts").iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.refreshing.refresh.point_to", stop)
        with pytest.raises(CutOff):
            refresh(model, pattern, root)
    assert {path.name: os.path.realpath(path) for path in (root / "latest/parts").iterdir()} == before
    second = refresh(model, pattern, root)
    assert (second.state, second.n_rows, second.scored_blocks) == ("published", 1020, 0)
    for path in (root / "latest/parts").iterdir():
        assert verify(path, "full").ok
        assert same_as_scratch(model, f"{days}/{path.name}.zarr/X", path)
    shutil.rmtree(days / "day-0.zarr")
    third = refresh(model, pattern, root, keep=1)
    assert (third.state, third.gone) == ("unchanged", ("day-0",))
    assert third.removed[0] == first.run
    assert [name for name in third.removed if name.startswith("day-1/0001-")]
    assert publish(root, second.run).before == second.run
    assert refresh(model, pattern, root, full=True).n_rows == 790


def stop(*args: Any) -> None:
    raise CutOff


def test_one_input_beyond_its_limits_keeps_all_from_being_published(
    model: Path, root: Path, tmp_path: Path
) -> None:
    days, pattern = tmp_path / "in", str(tmp_path / "in/*.zarr")
    days.mkdir()
    day(days, 1)
    first = refresh(model, pattern, root)
    make_group(days / "day-2.zarr", np.full((200, 3), 40.0, np.float32), chunk_rows=CHUNK_ROWS)
    second = report_of_incomplete(refresh, model, pattern, root, max_shift=2.0)
    assert (second.state, second.latest) == ("kept", first.run)
    assert second.why_kept.startswith("day-2: the shift of feature")
    assert second.drift["parts"] == ["day-2"]
    told = run_cli("refresh", model, pattern, root, "--max-shift", 2)
    assert (told.exit_code, told.exception.__class__) == (4, SystemExit)
    assert "in day-2; " in told.stdout
    assert [line.taken_blocks for line in root_status(root).runs] == [second.n_blocks - 4, 0]
    found = run_cli("verify", root / "latest")
    assert found.exit_code == 0, found.output
    assert publish(root, second.run).before == first.run
    assert refresh(model, pattern, root, max_shift=2.0).state == "unchanged"
    assert [line.state for line in root_status(root).runs] == ["latest", "finished"]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("change", [{"drift": 7}, {"status": None}, {"taken_over": [1]}, {"n_rows": "many"}])
def test_the_table_says_which_run_is_damaged(
    change: dict[str, Any], sealed: bool, model: Path, data: Path, root: Path
) -> None:
    name = refresh(model, str(data / "X"), root).run
    path = root / "runs" / name / "manifest.json"
    manifest = json.loads(path.read_text()) | change
    if sealed:
        manifest["checksum"] = digest_json({k: v for k, v in manifest.items() if k != "checksum"})
    path.write_text(json.dumps(manifest))
    assert [(line.run, line.state) for line in root_status(root).runs] == [(name, "damaged")]
    assert re.search(rf"{name} +damaged", run_cli("status", root).stdout)


def test_inputs_of_one_name_are_refused(model: Path, root: Path, tmp_path: Path) -> None:
    for name in ("a/b-c", "a-b/c"):
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        make_group(folder / "rows.zarr", blobs(60, 1), chunk_rows=CHUNK_ROWS)
    with pytest.raises(DataError, match="two of them are a-b-c by their names"):
        refresh(model, str(tmp_path / "in/*/*/rows.zarr"), root)
    assert refresh(model, str(tmp_path / "in/a/*/rows.zarr"), root).n_rows == 60


def same_as_scratch(model: Path | str, x: str, output: Path | str) -> bool:
    """Whether an output holds what a run from scratch holds that is cut in the same way."""
    run = open_ledger(output).run
    scratch = Path(os.environ["TMPDIR"]) / f"scratch-{os.urandom(6).hex()}"
    standing = open_place(output)
    try:
        score_in_blocks(model, x, scratch, BlockBoundaries(run.chunk_rows, run.block_rows, run.stride))
        files = files_of(scratch / "scores.zarr")
        names = {name.removeprefix("scores.zarr/") for name in standing.listing("scores.zarr")}
        return names == set(files) and all(
            standing.read(f"scores.zarr/{name}").data == data  # type: ignore[union-attr]
            for name, data in files.items()
            if name != "zarr.json"
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# -- object stores -------------------------------------------------------------------------------------------


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with used(request.getfixturevalue(request.param)) as server:
        yield server


def upload(folder: Path, address: str) -> str:
    place = open_place(address)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place.write(str(file.relative_to(folder)), file.read_bytes())
    return address


def test_a_root_on_a_store(server: StoreServer, model: Path, data: Path) -> None:
    base = server.address(os.urandom(4).hex())
    publish_model(model, open_place(f"{base}/model"))
    x, root = f"{upload(data, f'{base}/data.zarr')}/X", f"{base}/root"

    def call(**more: Any) -> RefreshReport:
        return refresh(f"{base}/model", x, root, **more)

    first = call()
    assert (first.state, first.scored_blocks) == ("published", 5)
    assert call().state == "unchanged"
    append(data, 100, 3)
    upload(data / "X/c/8", f"{x}/c/8")
    for number in (9, 10):
        upload(data / f"X/c/{number}", f"{x}/c/{number}")
    upload_file(data / "X/zarr.json", f"{x}/zarr.json")
    second = call(keep=2)
    assert (second.state, second.taken_blocks, second.scored_blocks) == ("published", 4, 2)
    for report in (first, second):
        assert verify(f"{root}/runs/{report.run}", "full").ok
    assert same_as_scratch(f"{base}/model", x, f"{root}/runs/{second.run}")
    record = read_record(open_ledger(f"{root}/runs/{second.run}").run, 0)
    assert record is not None
    assert record.origin == first.run
    assert all(record.tags[name][0] for name in ("label", "decision", "status"))
    latest, run = f"{root}/latest", f"{root}/runs/{second.run}"
    assert verify(latest, "fast").ok
    assert inspect(latest) == inspect(run)
    with pytest.raises(PlanConflictError, match=f"of which {latest} is the latest"):
        verify(root, "fast")
    with pytest.raises(DataError, match=f"of which {latest} is the latest"):
        inspect(root)
    assert publish(root, first.run).before == second.run
    assert call().state == "left"
    third = call(full=True, keep=1)
    assert third.removed == [second.run, first.run]
    place = open_place(root)
    assert {name.split("/")[1] for name in place.listing("runs")} == {third.run}
    assert root_status(root).latest == third.run


def upload_file(file: Path, address: str) -> None:
    folder, _, name = address.rpartition("/")
    open_place(folder).write(name, file.read_bytes())


def test_the_latest_run_of_one_of_several_inputs_on_a_store(
    server: StoreServer, model: Path, tmp_path: Path
) -> None:
    root = server.address(os.urandom(4).hex())
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        day(tmp_path / "in", number)
    refresh(model, str(tmp_path / "in/*.zarr"), root)
    assert verify(f"{root}/latest/parts/day-2", "fast").ok
    with pytest.raises(PlanConflictError, match="It is of several inputs"):
        open_ledger(f"{root}/latest")
    with pytest.raises(PlanConflictError, match="it holds no plan"):
        open_ledger(f"{root}/latest/parts/day-3")


def test_an_unchanged_root_on_a_store_is_told_by_few_requests(
    s3_proxy: Proxy, model: Path, data: Path
) -> None:
    with used(s3_proxy):
        base = s3_proxy.address(os.urandom(4).hex())
        x, root = f"{upload(data, f'{base}/data.zarr')}/X", f"{base}/root"
        report = refresh(model, x, root)
        before = sum(s3_proxy.counts().values())
        assert refresh(model, x, root).state == "unchanged"
        assert sum(s3_proxy.counts().values()) - before < 40 < 9 * report.n_blocks


def test_one_driver_at_a_time_on_a_store(server: StoreServer, model: Path, data: Path) -> None:

    root = server.address(os.urandom(4).hex())
    first = refresh(model, data, root)
    with acquire_lock(open_place(root)), pytest.raises(RunHeldError, match="in use by process"):
        refresh(model, data, root)
    assert open_root(open_place(root)).finished() == [first.run]
