"""--metrics and --events: what monitoring and logs are told of a run, however it ends."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dcpred.cli import main, observation
from dcpred.cli.observation import METRICS, Metrics, last_success, observed
from dcpred.execution import events
from dcpred.execution.events import by_name, heard_by, record_event
from dcpred.execution.interrupts import listening
from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers
from dcpred.training.train import train
from dcpred_tasks.errors import Failure, InterruptedRunError
from dcpred_tasks.task_bodies import score_block as task
from support import processes
from support.data import make_blobs, make_group
from support.pools import inline

ROOT = Path(__file__).parents[2]
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} (\S+)')


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 4)
        patch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
        yield


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, small_blocks: None) -> Path:
    folder = tmp_path_factory.mktemp("known")
    X = make_blobs(800, n_features=5, n_classes=3, seed=2).X
    rows = make_group(folder / "train.zarr", X[:400], make_blobs(400, 5, 3, seed=2).y)
    settings = {"landmarks": 6, "n_leaves": 4}
    train(rows, folder / "model", settings=settings)
    X[3, 1], X[790, 2] = np.nan, np.inf
    make_group(folder / "data.zarr", X, chunk_rows=50)
    return folder


def dcpred(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="dcpred")
    assert result.exit_code == code, result.output
    return result


def score(known: Path, tmp_path: Path, *more: object, code: int = 0) -> Any:
    command = ("score", known / "model", known / "data.zarr", tmp_path / "out", "--workers", "1")
    watched = ("--metrics", tmp_path / "nightly.prom", "--events", tmp_path / "log.jsonl")
    return dcpred(*command, *watched, *more, code=code)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def samples(path: Path) -> dict[str, float]:
    """Values by name and further labels; every line is one that Prometheus reads."""
    found: dict[str, float] = {}
    described: set[str] = set()
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            described.add(line.split()[2])
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] in described
        job, _, labels = match[2].partition(",")
        assert job == f'dcpred_job="{path.stem}"'
        assert f"{match[1]} {labels}".strip() not in found
        found[f"{match[1]} {labels}".strip()] = float(match[3])
    return found


def test_a_run_that_is_complete(known: Path, tmp_path: Path) -> None:
    score(known, tmp_path)
    told = lines(tmp_path / "log.jsonl")
    assert [line["event"] for line in told] == [
        *("run_started", "scoring_started", "step_started"),
        *["block_done"] * 4,
        *("step_ended", "scored", "remark", "run_ended"),
    ]
    assert told[-2]["code"] == "unscored-rows"
    assert len({line["run"] for line in told}) == 1
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"]) for line in told)
    done = [line for line in told if line["event"] == "block_done"]
    assert [line["block"] for line in done] == [0, 1, 2, 3]
    assert done[0]["status"] == {"ok": 199, "non_finite_feature": 1}
    assert told[-1]["exit_code"] == 0
    value = samples(tmp_path / "nightly.prom")
    assert value["dcpred_run_exit_code"] == 0
    assert value['dcpred_run_rows status="ok"'] == 798
    assert value['dcpred_run_rows status="non_finite_feature"'] == value["dcpred_run_bad_rows"] == 2
    assert value['dcpred_run_blocks state="done"'] == 4
    assert value['dcpred_run_blocks state="left"'] == value["dcpred_run_running"] == 0
    assert value["dcpred_run_rows_left"] == 0
    assert value["dcpred_run_success_timestamp_seconds"] >= value["dcpred_run_start_timestamp_seconds"]
    assert {"dcpred_drift_leaf_stability_index", "dcpred_drift_large", "dcpred_drift_features"} <= set(value)
    assert value["dcpred_run_seconds"] > 0
    assert not list(tmp_path.glob("*.partial*"))


def test_a_run_that_fails_keeps_when_one_was_last_complete(
    known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(known, tmp_path)
    before = samples(tmp_path / "nightly.prom")["dcpred_run_success_timestamp_seconds"]
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "log.jsonl").unlink()
    real = task.score_block

    def failing(run: Any, block: int, quarantine: bool) -> Any:
        if block == 2:
            raise ValueError('no such "luck"\n\\')
        return real(run, block, quarantine)

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", failing)
        score(known, tmp_path, code=4)
    told = lines(tmp_path / "log.jsonl")
    failed = next(line for line in told if line["event"] == "block_failed")
    assert (failed["level"], failed["block"], failed["deaths"]) == ("error", 2, 0)
    assert told[-1]["event"] == "run_ended"
    assert told[-1]["exit_code"] == 4
    assert "Cannot score 1 of" in told[-1]["error"]
    value = samples(tmp_path / "nightly.prom")
    assert value["dcpred_run_exit_code"] == 4
    assert value["dcpred_run_success_timestamp_seconds"] == before
    blocks = {state: value[f'dcpred_run_blocks state="{state}"'] for state in ("done", "failed", "left")}
    assert blocks == {"done": 3, "failed": 1, "left": 0}
    assert value["dcpred_run_rows_left"] == 200
    assert value['dcpred_run_rows status="ok"'] == 598
    score(known, tmp_path)
    assert samples(tmp_path / "nightly.prom")["dcpred_run_success_timestamp_seconds"] > before


def test_the_whole_is_complete_when_the_last_shard_is(known: Path, tmp_path: Path) -> None:
    score(known, tmp_path, "--shard", "0/2")
    value = samples(tmp_path / "nightly.prom")
    assert "dcpred_run_success_timestamp_seconds" not in value
    assert value['dcpred_run_blocks state="done"'] == 2
    assert any('shard="0/2"' in name for name in value)
    score(known, tmp_path, "--shard", "1/2")
    value = samples(tmp_path / "nightly.prom")
    assert value["dcpred_run_success_timestamp_seconds"] > 0
    assert value['dcpred_run_blocks state="done"'] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--outputs", "none"), 3, "Cannot write output 'none'"),
        (("--level", "full"), 2, "--repair is missing"),
        (("--max-bad-rows", "1"), 4, "2 rows have no score, but at most 1"),
    ],
)
def test_every_end_is_told(
    known: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    score(known, tmp_path, *arguments, code=code)
    end = lines(tmp_path / "log.jsonl")[-1]
    assert (end["event"], end["level"], end["exit_code"]) == ("run_ended", "error", code)
    assert sentence in end["error"]
    assert samples(tmp_path / "nightly.prom")["dcpred_run_exit_code"] == code


def test_an_error_that_nobody_expected(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), observed("score", tmp_path / "a.prom", str(tmp_path / "a.jsonl")):
        raise ZeroDivisionError("what")
    end = lines(tmp_path / "a.jsonl")[-1]
    assert (end["exit_code"], end["error"]) == (1, "ZeroDivisionError: what")
    assert samples(tmp_path / "a.prom")["dcpred_run_exit_code"] == 1


def test_rows_that_were_given_up_end_in_4(known: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.zarr"
    shutil.copytree(known / "data.zarr", data)
    next((data / "X" / "c").glob("2/*")).unlink()
    watched = ("--metrics", tmp_path / "q.prom", "--events", tmp_path / "q.jsonl")
    command = ("score", known / "model", data, tmp_path / "out", "--workers", "1", "--quarantine")
    dcpred(*command, *watched, code=4)
    told = lines(tmp_path / "q.jsonl")
    assert "50 rows were skipped" in told[-1]["error"]
    done = next(line for line in told if line["event"] == "block_done" and line["block"] == 0)
    assert done["level"] == "warning"
    value = samples(tmp_path / "q.prom")
    assert value['dcpred_run_rows status="chunk_missing"'] == 50
    assert value["dcpred_run_exit_code"] == 4
    assert "dcpred_run_success_timestamp_seconds" not in value


def test_training_tells_its_steps_on_standard_error(known: Path, tmp_path: Path) -> None:
    result = dcpred(
        *("train", known / "train.zarr", tmp_path / "m", "--set", "n_leaves=4", "--workers", "1"),
        *("--events", "-", "--metrics", tmp_path / "train.prom"),
    )
    assert "trained in" in result.stdout
    names = [json.loads(line)["event"] for line in result.stderr.splitlines()]
    assert names[0] == "run_started"
    assert {"remark", "step_started", "step_ended"} < set(names)
    assert names[-2:] == ["trained", "run_ended"]
    value = samples(tmp_path / "train.prom")
    assert value["dcpred_model_rows"] == 400
    assert value["dcpred_model_leaves"] >= 1
    assert any(name.startswith("dcpred_run_step_seconds step=") for name in value)
    assert value["dcpred_run_success_timestamp_seconds"] > 0


def test_standard_error_holds_nothing_but_events(known: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from dcpred.cli import main; main()", "score", known / "model"]
    result = processes.run([*command, known / "data.zarr", tmp_path / "out", "--events", "-", "--json"])
    assert result.returncode == 0, result.stderr
    told = [json.loads(line) for line in result.stderr.splitlines()]
    assert [told[0]["event"], told[-1]["event"]] == ["run_started", "run_ended"]
    assert any(line["event"] == "remark" and "rows in" in line["text"] for line in told)
    assert json.loads(result.stdout)["status"] == {"1": 798, "2": 2}


@pytest.mark.parametrize(
    ("option", "name", "code", "sentence"),
    [
        ("--events", "", 5, "Is a directory"),
        ("--events", "pipe", 3, "no process reads that pipe. Begin to read it first"),
        ("--metrics", "", 3, "it is a folder, a device or a pipe. Name a file"),
        ("--metrics", "pipe", 3, "it is a folder, a device or a pipe. Name a file"),
        ("--metrics", "-", 3, "it does not name a file"),
        ("--metrics", "none/nightly.prom", 3, "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_at_the_start(
    known: Path, tmp_path: Path, option: str, name: str, code: int, sentence: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = ("score", known / "model", known / "data.zarr", tmp_path / "out", option, tmp_path / name)
    assert sentence in dcpred(*command, code=code).stderr
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe"]


def test_a_file_of_metrics_that_is_a_link_stays_one(known: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "nightly.prom").symlink_to(tmp_path / "real" / "other.prom")
    score(known, tmp_path)
    assert (tmp_path / "nightly.prom").is_symlink()
    assert 'dcpred_job="nightly"' in (tmp_path / "real" / "other.prom").read_text()


def test_an_endless_file_is_no_earlier_one_of_ours() -> None:
    assert last_success(Path("/dev/zero")) is None


def test_refresh_tells_all_inputs_together_and_that_nothing_is_new(known: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, n in (("a", 200), ("b", 120)):
        X = make_blobs(n, n_features=5, n_classes=3, seed=2).X
        X[:2, 0] = np.nan
        make_group(tmp_path / "in" / f"{name}.zarr", X, chunk_rows=50)
    root, prom, log = tmp_path / "root", tmp_path / "nightly.prom", tmp_path / "log.jsonl"
    command = ("refresh", known / "model", tmp_path / "in/*.zarr", root, "--metrics", prom, "--events", log)
    states = []
    for more in (["--max-bad-rows", 0], ["--max-bad-rows", 4], []):
        refused = more == ["--max-bad-rows", 0]
        dcpred(*command, *more, code=4 if refused else 0)
        states.append(next(line["state"] for line in lines(log)[::-1] if line["event"] == "refreshed"))
        found = samples(prom)
        assert found["dcpred_run_bad_rows"] == 4
        assert found['dcpred_run_rows status="ok"'] == 316
        assert ("dcpred_run_success_timestamp_seconds" in found) == (not refused)
        assert "dcpred_drift_large" in found
    assert states == ["kept", "published", "unchanged"]
    ended = [line for line in lines(log) if line["event"] == "run_ended"]
    assert (
        samples(prom)["dcpred_run_success_timestamp_seconds"]
        >= samples(prom)["dcpred_run_start_timestamp_seconds"]
    )
    assert [line["exit_code"] for line in ended] == [4, 0, 0]


def test_what_cannot_be_written_later_is_said_once(
    known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with observed("score", tmp_path / "a.prom", str(tmp_path / "a.jsonl")):
        monkeypatch.setattr(events.os, "write", full)
        monkeypatch.setattr(observation, "replace_bytes", full)
        for block in range(3):
            record_event("block_failed", "error", block=block, error="", deaths=0)
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in said] == [
        f"dcpred: cannot write {tmp_path}/a.jsonl",
        f"dcpred: cannot write {tmp_path}/a.prom",
    ]
    assert samples(tmp_path / "a.prom")["dcpred_run_running"] == 1


def test_metrics_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    seen = observation.threading.Event()
    real = observation.replace_bytes

    def write(path: Path, data: bytes) -> None:
        real(path, data)
        written.append(data.decode())
        if len(written) >= 3:
            seen.set()

    monkeypatch.setattr(observation, "replace_bytes", write)
    monkeypatch.setattr(observation, "EVERY_SECONDS", 0.01)
    with observed("score", tmp_path / "a.prom", None):
        assert seen.wait(60)
    assert all("dcpred_run_exit_code" not in text for text in written[:3])
    assert "dcpred_run_exit_code" in written[-1]


@pytest.mark.parametrize("rubbish", [b"", b"\xff\xfe", b"dcpred_run_success_timestamp_seconds{} e\n"])
def test_a_file_that_is_no_earlier_one_of_ours(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / "a.prom").write_bytes(rubbish)
    assert last_success(tmp_path / "a.prom") is None


def test_labels_are_escaped() -> None:
    found = Metrics('a"b\\c\nd', "score", "1", 0.0)
    assert 'dcpred_job="a\\"b\\\\c\\nd"' in found.text(1.0)


# -- events of workers and signals ---------------------------------------------------------------------------


def _die() -> None:
    os._exit(1)


def test_a_lost_worker_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_die, "__module__", "__main__")
    counted = Metrics("a", "score", "1", 0.0)
    with connect(1) as workers, heard_by(counted):
        ((_, result),) = workers.each(_die, [()])
    assert isinstance(result, Failure)
    lost = [vars(record)["facts"] for record in caplog.records if record.msg == "worker_lost"]
    assert len(lost) == result.deaths
    assert all(facts["tasks"] == 1 for facts in lost)
    assert all("127.0.0.1:" in facts["worker"] or not facts["worker"] for facts in lost)
    assert "dcpred_run_workers_lost" in counted.text(1.0)


def test_a_signal_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as asked:
        asked.set()
        try:
            with pytest.raises(InterruptedRunError):
                list(InlineWorkers().each(_die, [()]))
        finally:
            asked.clear()
    (record,) = caplog.records
    assert (record.name, record.msg) == ("dcpred.events", "paused")
    assert vars(record)["facts"] == {"done": 0, "in_flight": 0}


# -- the page ------------------------------------------------------------------------------------------------


def named_on_the_page(mark: str) -> set[str]:
    text = (ROOT / "deploy/observability.md").read_text()
    table = text.split(f"<!-- {mark} -->\n")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_the_page_names_what_there_is() -> None:
    assert named_on_the_page("metrics") == set(METRICS)
    sources = "\n".join(path.read_text() for path in (ROOT / "pipeline").rglob("*.py"))
    recorded = re.findall(r'\b(?:record_event\(\s*|notice\(f"[^"]*",\s*)"(\w+)"', sources)
    assert named_on_the_page("events") == set(recorded)


def test_every_status_has_a_name() -> None:
    assert by_name({"1": 3, "7": 1}) == {"ok": 3, "quarantined": 1}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing(known: Path, tmp_path: Path) -> None:
    score(known, tmp_path)
    with (tmp_path / "nightly.prom").open() as file:
        said = subprocess.run(
            ["promtool", "check", "metrics"], stdin=file, capture_output=True, text=True, check=False
        )
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
