"""Outputs that hold anything, streams that nobody reads, signals at awkward moments: a sentence, never a
traceback.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from dcpred.cli import main
from dcpred.execution import dask_workers as cluster
from dcpred.execution import lease
from dcpred.execution.interrupts import signals_handled
from dcpred.execution.pools import connect
from dcpred.scoring import blocks
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import RunHeldError
from support import processes
from support.data import make_blobs, make_group
from support.pools import inline

N_ROWS = 400
DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000
DCPRED = [sys.executable, "-c", "from dcpred.cli import run; run()"]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 50)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 4)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data.zarr, model and a finished output `out`."""
    folder = tmp_path_factory.mktemp("made")
    blobs = make_blobs(N_ROWS, n_features=4, n_classes=2, seed=1)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    train(data, folder / "model", settings={"landmarks": 6, "n_leaves": 4})
    score(folder / "model", data, folder / "out")
    return folder


@pytest.fixture
def output(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "out", tmp_path / "out"))


def text(name: str, value: str) -> Callable[[Path], None]:
    return lambda output: (output / name).write_text(value) and None


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(output: Path) -> None:
        path = output / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def directory(name: str) -> Callable[[Path], None]:
    """In place of a file."""

    def put(output: Path) -> None:
        (output / name).unlink(missing_ok=True)
        (output / name).mkdir()

    return put


def file(name: str) -> Callable[[Path], None]:
    """In place of a directory."""

    def put(output: Path) -> None:
        shutil.rmtree(output / name)
        (output / name).write_text("x")

    return put


def loop(name: str) -> Callable[[Path], None]:
    """A symbolic link to itself."""

    def put(output: Path) -> None:
        path = output / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(path)

    return put


def unfinished(then: Callable[[Path], None]) -> Callable[[Path], None]:
    def put(output: Path) -> None:
        (output / "manifest.json").unlink()
        (output / "blocks" / "000001.json").unlink()
        then(output)

    return put


RECORD, STATUS, NOTE = "blocks/000000.json", "scores.zarr/status/zarr.json", "failures/000001.json"
RUBBISH: dict[str, Callable[[Path], None]] = {
    **{
        f"{name} {word}": text(name, value)
        for name in ("plan.json", "manifest.json", RECORD, STATUS, "scores.zarr/zarr.json")
        for word, value in (
            ("empty", ""),
            ("null", "null"),
            ("no object", "[]"),
            ("no fields", "{}"),
            ("deep", DEEP),
        )
    },
    **{
        f"plan {changes}": edit("plan.json", **changes)
        for changes in (
            {"n_rows": 1.5},
            {"n_rows": 0},
            {"n_rows": None},
            {"n_rows": 10**12},
            {"n_rows": "1"},
            {"chunk_rows": 0},
            {"chunk_rows": None},
            {"block_rows": 0},
            {"block_rows": 7},
            {"outputs": [[1]]},
            {"outputs": []},
            {"outputs": 3},
            {"x": None},
            {"run": 1},
        )
    },
    **{
        f"status {list(changes)}": edit(STATUS, **changes)
        for changes in (
            {"fill_value": -1},
            {"attributes": 3},
            {"attributes": "x"},
            {"shape": None},
            {"codecs": {}},
        )
    },
    "group attributes": edit("scores.zarr/zarr.json", attributes=7),
    "drift": edit("manifest.json", drift=3),
    **{
        f"note {value}": unfinished(text(NOTE, value))
        for value in ("{}", '{"block": "x"}', '{"block": 1}', "[]", "", DEEP)
    },
    "note a directory": unfinished(directory(NOTE)),
    **{
        f"{name} a directory": directory(name)
        for name in ("plan.json", "manifest.json", RECORD, STATUS, "scores.zarr/label/c/0")
    },
    **{
        f"{name} a file": file(name)
        for name in ("blocks", "failures", "scores.zarr", "scores.zarr/label", "scores.zarr/label/c")
    },
    **{
        f"{name} a loop": loop(name)
        for name in ("plan.json", "manifest.json", RECORD, "blocks", "scores.zarr", STATUS)
    },
}


def told(arguments: list[str]) -> tuple[int, str]:
    """The exit code and what was said, after the sure signs of a bug were looked for."""
    result = CliRunner().invoke(main, arguments)
    said = result.output + result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        arguments,
        repr(result.exception),
    )
    assert "Traceback" not in said
    assert result.exit_code in (0, 3, 4, 5), said
    assert result.exit_code == 0 or "dcpred: " in said or arguments[0] == "verify"
    return result.exit_code, said


@pytest.mark.parametrize("what", RUBBISH)
def test_rubbish_in_an_output(output: Path, made: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command falls over it; verify does not call it whole; repair mends it, or says what to do."""
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    RUBBISH[what](output)
    for command in ("status", "errors", "inspect"):
        for more in ([], ["--json"]):
            told([command, str(output), *more])
    whole, said = told(["verify", str(output), "--workers", "1"])
    assert whole != 0 or what.startswith("failures"), said
    scoring = ["score", str(made / "model"), str(made / "data.zarr"), str(output), "--workers", "1"]
    told(scoring)
    code, said = told([*scoring, "--repair"])
    if code == 0:
        assert told(["verify", str(output), "--workers", "1"])[0] == 0
    else:
        assert any(word in said for word in ("remove", "another", "new directory", "restore")), said


@pytest.mark.parametrize("name", ["x" * 300, "a/loop", "half"])
@pytest.mark.parametrize("command", ["status", "verify", "inspect", "score"])
def test_places_that_cannot_be(made: Path, tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a" / "loop")
    (tmp_path / "half" / "lock").mkdir(parents=True)
    before = [str(made / "model"), str(made / "data.zarr")] if command == "score" else []
    code, _ = told([command, *before, str(tmp_path / name)])
    assert code != 0


# -- streams -------------------------------------------------------------------------------------------------


def test_a_result_that_nobody_reads_is_no_error(output: Path) -> None:
    """`dcpred status OUTPUT | true`"""
    read, write = os.pipe()
    os.close(read)
    try:
        done = processes.run([*DCPRED, "status", str(output)], stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_standard_output_that_is_full(output: Path, more: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = processes.run([*DCPRED, "status", str(output), *more], stdout=full)
    assert done.returncode == 5
    assert "standard output is not writable" in done.stderr
    assert "Traceback" not in done.stderr


# -- signals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_modules_are_imported(made: Path, tmp_path: Path, number: int) -> None:
    script = (
        "import os, sys; from dcpred.execution.interrupts import leave_at_signals; leave_at_signals(); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with processes.started([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait() == 75
        assert process.stderr is not None
        said = process.stderr.read()
    assert said.strip() == "dcpred: interrupted; run the same command again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_workers_start(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """They have all started, and all end, before it is answered."""
    started: list[Any] = []
    real = cluster.LocalCluster

    def start(**kwargs: Any) -> Any:
        os.kill(os.getpid(), number)
        started.append(real(**kwargs))
        return started[-1]

    monkeypatch.setattr(cluster, "LocalCluster", start)
    with signals_handled(), pytest.raises(KeyboardInterrupt), connect(1):
        pytest.fail("there is no more to be done")
    assert started[0].status.name == "closed"


@pytest.mark.parametrize("seconds", [0, 0.02])
def test_workers_that_a_signal_ends_while_they_start(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """As where a whole service is stopped. The main thread may hear of the signal after workers failed, as
    where another thread took it.
    """

    def fail(**kwargs: Any) -> Any:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(cluster, "LocalCluster", fail)
    with signals_handled(), pytest.raises(KeyboardInterrupt), connect(1):
        pytest.fail("there is nobody to do anything")


def test_workers_hear_neither_of_ctrl_c_nor_of_the_end_of_a_service() -> None:
    with connect(1) as workers:
        masks = workers.client.run(blocked_signals)  # type: ignore[attr-defined]
    assert all({signal.SIGINT, signal.SIGTERM} <= mask for mask in masks.values())


@pytest.mark.parametrize("kill", [False, True])
def test_a_driver_with_workers_leaves_no_process_and_no_warning(tmp_path: Path, kill: bool) -> None:
    """A service manager takes what outlives the main process for something that hangs. Semaphores of a driver
    that is killed are removed in silence.
    """
    end = "os.kill(os.getpid(), signal.SIGKILL)" if kill else "pass"
    script = (
        "import os, signal, sys\nfrom dcpred.cli import run\nfrom dcpred.execution.pools import connect\n"
        f"def main():\n    with connect(1):\n        {end}\n"
        "if __name__ == '__main__':\n    sys.modules['dcpred.cli.main'].main = main\n    run()\n"
    )
    (tmp_path / "driver.py").write_text(script)
    with (
        open(tmp_path / "said", "w") as said,
        processes.started([sys.executable, tmp_path / "driver.py"], stderr=said) as driver,
    ):
        assert driver.wait() == (-signal.SIGKILL if kill else 0), (tmp_path / "said").read_text()
        if not kill:
            assert of_group(driver.pid) == []
        processes.wait_until(lambda: of_group(driver.pid) == [])
    assert (tmp_path / "said").read_text() == ""


def of_group(group: int) -> list[psutil.Process]:
    """The processes of a group that run."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def blocked_signals() -> set[int]:
    """Of the thread in which a worker gets its signals."""
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, set())}


def test_a_driver_that_lost_its_lease_stops_scoring(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long suspension: not only before the manifest."""
    monkeypatch.setattr(lease, "SIGN_SECONDS", 0.01)
    real, scored = blocks.score_block, []

    def body(run: Any, block: int, quarantine: bool) -> Any:
        scored.append(block)
        (tmp_path / "out" / "lock").write_text("process 2 on elsewhere · fedcba9876543210\n")
        # The thread that gives signs ends where the lease is another's.
        processes.wait_until(lambda: all(t.name != "dcpred-lease" for t in threading.enumerate()))
        return real(run, block, quarantine)

    monkeypatch.setattr(blocks, "score_block", body)
    with pytest.raises(RunHeldError, match="taken over by process 2 on elsewhere"):
        score(made / "model", f"{made}/data.zarr/X", tmp_path / "out")
    assert scored == [0]
