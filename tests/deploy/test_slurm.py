"""The files of deploy/slurm on a real slurmd: signals, requeue, preemption, time limits and `scancel`.

Blocks are held (support/held_driver.py), so that nothing depends on how fast the machine is. Two of
these tests are always run, all of them where DCPRED_TRIALS is set: they take minutes.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import held_driver, processes, slurm
from support.data import make_blobs, make_group
from support.slurm import Job, Slurm

ROOT = Path(__file__).parents[2]
FILES = ROOT / "deploy/slurm"
DCPRED = Path(sys.executable).with_name("dcpred")
N_BLOCKS, FREE = 10, 2  # FREE: blocks that are not held
# What tells that the driver has heard of a signal.
HEARS = """
    import threading
    from dcpred.execution import interrupts
    def tell():
        interrupts._asked.wait()
        (folder / "asked").touch()
    threading.Thread(target=tell, daemon=True).start()
    main()"""

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(bool(slurm.ABSENT), reason=f"Slurm is not installed: no {slurm.ABSENT}"),
]
slow = pytest.mark.skipif("DCPRED_TRIALS" not in os.environ, reason="one of many; set DCPRED_TRIALS=1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm.started(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(scope="module")
def model_and_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("data")
    blobs = make_blobs(2000, n_features=4, n_classes=2, seed=0)
    rows = make_group(folder / "rows.zarr", blobs.X, blobs.y)
    command = ["train", str(rows), str(folder / "model"), "--set", "n_leaves=2", "--set", "landmarks=4"]
    done = processes.run([DCPRED, *command, "--workers", "1"])
    assert done.returncode == 0, done.stderr
    return folder / "model", rows


@dataclass(frozen=True)
class Night:
    """One output, whose blocks after the second wait until they are released."""

    slurm: Slurm
    folder: Path
    model: Path
    rows: Path

    def submit(self, file: str, *options: str, **variables: str) -> Job:
        arguments = (self.model, self.rows, self.folder / "out")
        return self.slurm.submit(*options, FILES / file, *arguments, path=self.folder / "bin", **variables)

    def submit_command(self, *options: str) -> Job:
        return self.slurm.submit(*options, path=self.folder / "bin")

    def done_blocks(self) -> int:
        return len(list((self.folder / "out/blocks").glob("*.json")))

    def wait_for(self, name: str) -> None:
        """held: a block waits; asked: the driver has heard of a signal."""
        processes.wait_until((self.folder / name).exists)

    def release(self) -> None:
        (self.folder / "released").touch()

    def verified(self) -> bool:
        """The manifest is there, and says what is on disk."""
        command = [DCPRED, "verify", self.folder / "out", "--level", "full"]
        return processes.run(command).returncode == 0


@pytest.fixture
def night(cluster: Slurm, model_and_rows: tuple[Path, Path], tmp_path: Path) -> Night:
    for old in cluster.folder.glob("job-*.log"):
        old.unlink()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/dcpred"
    script = held_driver.SCRIPT.replace("\n    main()", HEARS).format(
        folder=str(tmp_path), free=FREE, same_seconds=1.0
    )
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    return Night(cluster, tmp_path, *model_and_rows)


def test_one_node_is_told_to_stop_and_goes_on(night: Night) -> None:
    """SIGTERM to the step, as before the end of a job's time: what is in flight is finished, the job is
    queued again, and ends well.
    """
    job = night.submit("one_node.sbatch", "--cpus-per-task=2")
    night.wait_for("held")
    job.signal("--signal=TERM")
    night.wait_for("asked")
    night.release()
    end = job.wait()
    assert (end["JobState"], end["ExitCode"], end["Restarts"]) == ("COMPLETED", "0:0", "1")
    said = night.slurm.logs()
    assert "dcpred ended with 75, restart 0" in said
    assert "dcpred ended with 0, restart 1" in said
    assert night.verified()


@slow
def test_a_job_that_was_cancelled_stays_cancelled(night: Night) -> None:
    """Though dcpred ends with 75. The same command goes on later."""
    job = night.submit("one_node.sbatch", "--cpus-per-task=2")
    night.wait_for("held")
    before = night.done_blocks()
    job.signal()
    night.wait_for("asked")
    night.release()
    end = job.wait()
    assert (end["JobState"], end["Restarts"]) == ("CANCELLED", "0")
    processes.wait_until(lambda: "interrupted after" in night.slurm.logs())
    assert before < night.done_blocks() < N_BLOCKS
    assert not night.verified()
    again = night.submit("one_node.sbatch", "--cpus-per-task=2").wait()
    assert again["JobState"] == "COMPLETED"
    assert night.verified()


def test_a_cluster_in_a_job(night: Night) -> None:
    """Scheduler, workers and driver behind certificates: SIGTERM to the batch step, then on to the end. No
    key is left.
    """
    job = night.submit("cluster.sbatch", "--ntasks=2", DCPRED_HOST="127.0.0.1")
    night.wait_for("held")
    scheduler = next(night.slurm.folder.glob("dcpred-cluster-*/scheduler.json")).read_text()
    assert '"address": "tls://' in scheduler
    job.signal("--batch", "--signal=TERM")
    night.wait_for("asked")
    night.release()
    end = job.wait()
    assert (end["JobState"], end["ExitCode"], end["Restarts"]) == ("COMPLETED", "0:0", "1")
    assert not list(night.slurm.folder.glob("dcpred-cluster-*/**/*.key"))
    assert night.verified()


@slow
def test_an_array_of_shards(night: Night) -> None:
    """Three shards without a scheduler of Dask; one is told to stop and is queued again."""
    job = night.submit("array.sbatch", "--array=0-2", "--cpus-per-task=1")
    night.wait_for("held")
    job.signal("--signal=TERM")
    night.wait_for("asked")
    night.release()
    job.wait()
    tasks = job.shown()
    assert [(task["JobState"], task["ExitCode"]) for task in tasks] == [("COMPLETED", "0:0")] * 3
    assert sum(int(task["Restarts"]) for task in tasks) >= 1
    assert night.verified()


@slow
def test_the_page_for_half_an_hour(night: Night) -> None:
    """Its blocks, word by word, with a link to deploy/ in place of a checkout."""
    page = (ROOT / "deploy/half_an_hour.md").read_text()
    blocks = re.findall(r"^<!-- slurm -->\n<!--[^\n]*-->\n```sh\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 3
    (night.folder / "deploy").symlink_to(ROOT / "deploy")
    path = f"{DCPRED.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**night.slurm.environment, "PATH": path, "DCPRED_HOST": "127.0.0.1"}
    for block in blocks:
        done = processes.run(["bash", "-euxc", block], cwd=night.folder, env=environment)
        assert done.returncode == 0, done.stderr
    for name in ("one", "parts", "cluster"):
        assert (night.folder / name / "manifest.json").exists()


@slow
def test_preemption(night: Night) -> None:
    """A job of a better partition takes the node: SIGTERM, requeue, and on to the end by Slurm alone."""
    job = night.submit("one_node.sbatch", "--cpus-per-task=2")
    night.wait_for("held")
    better = night.submit_command("--partition=high", "--exclusive", "--wrap=sleep 1")
    night.wait_for("asked")
    night.release()
    assert better.wait()["JobState"] == "COMPLETED"
    end = job.wait()
    assert (end["JobState"], end["ExitCode"]) == ("COMPLETED", "0:0")
    assert int(end["Restarts"]) >= 1
    assert night.verified()


@slow
@pytest.mark.parametrize("file", ["one_node.sbatch", "cluster.sbatch"])
def test_the_time_of_a_job_is_over(night: Night, file: str) -> None:
    """Slurm sends the signal that the file asks for, and the job goes on with another turn, with more where
    dcpred has no time to start on a busy machine.
    """
    to = "B:" if file == "cluster.sbatch" else ""
    size = ("--ntasks=2",) if to else ("--cpus-per-task=2",)
    job = night.submit(file, *size, "--time=1", f"--signal={to}TERM@40", DCPRED_HOST="127.0.0.1")
    night.wait_for("held")
    night.wait_for("asked")
    night.release()
    end = job.wait()
    assert (end["JobState"], end["ExitCode"]) == ("COMPLETED", "0:0")
    assert int(end["Restarts"]) >= 1
    assert night.verified()
