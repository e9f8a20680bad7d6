"""Slurm with one node on loopback: munged, slurmctld and slurmd are children of the test and end with it."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from support import processes

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
FOUND = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in PROGRAMS}
ABSENT = [name for name, path in FOUND.items() if path is None]
CREDENTIAL_SECONDS = 5  # a requeued job waits for the end of its credential: two minutes where nobody says so
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire={credential_seconds}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=30
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000000 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=1-0 State=UP PriorityTier=1 GraceTime=30
PartitionName=high Nodes={host} MaxTime=1-0 State=UP PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Job:
    """A job by its number; of an array, all its tasks."""

    slurm: "Slurm"
    number: str

    def shown(self) -> list[dict[str, str]]:
        """What `scontrol show job` says, for each task of an array."""
        lines = self.slurm.run("scontrol", "-o", "show", "job", self.number).splitlines()
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]

    def ended(self) -> bool:
        return all(task["JobState"] in ENDED for task in self.shown())

    def wait(self) -> dict[str, str]:
        """Wait for the end; what is said of the (last) task then."""
        processes.wait_until(self.ended)
        return self.shown()[-1]

    def signal(self, *options: str) -> None:
        self.slurm.run("scancel", *options, self.number)


@dataclass(frozen=True)
class Slurm:
    folder: Path
    environment: Mapping[str, str]

    def run(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def submit(self, *arguments: str | Path, path: Path, **variables: str) -> Job:
        """sbatch with these arguments. path: a folder of programs that jobs find before all others; variables
        are further ones of their environment. Logs lie in the folder of Slurm as job-NUMBER.log.
        """
        places = [str(path), str(Path(sys.executable).parent), self.environment["PATH"]]
        log = str(self.folder / "job-%j.log")
        command = ["sbatch", "--parsable", f"--output={log}", *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**self.environment, **variables, "PATH": os.pathsep.join(places)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return Job(self, done.stdout.strip())

    def logs(self) -> str:
        """What all jobs have said."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("job-*.log")))


@contextmanager
def started(folder: Path, *, cpus: int = 8) -> Iterator[Slurm]:
    """One node that takes as many jobs as it is told to have processors, whatever the machine has."""
    folder.chmod(0o711)
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o711)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    host = socket.gethostname().partition(".")[0]
    controller_port, node_port = _free_ports(2)
    text = CONFIGURATION.format(
        host=host,
        user=getuser(),
        folder=folder,
        controller_port=controller_port,
        node_port=node_port,
        credential_seconds=CREDENTIAL_SECONDS,
        cpus=cpus,
    )
    (folder / "slurm.conf").write_text(text)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    slurm = Slurm(folder, environment)
    munge = [
        f"--{name}={folder}/munge/{name.partition('-')[0]}" for name in ("key-file", "socket", "pid-file")
    ]
    munge += [f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"]
    with ExitStack() as stack, (folder / "daemons.log").open("w") as log:
        for command in (
            ["munged", "-F", "--force", *munge],
            ["slurmctld", "-D", "-c"],
            ["slurmd", "-D", "-c"],
        ):
            program = FOUND[command[0]]
            assert program is not None
            daemon = processes.started([program, *command[1:]], env=environment, stdout=log, stderr=log)
            stack.enter_context(daemon)
            if command[0] == "munged":
                processes.wait_until((folder / "munge" / "socket").exists)
        processes.wait_until(lambda: "idle" in _state(slurm))
        try:
            yield slurm
        finally:
            slurm.run("scancel", "--full", "--signal=KILL", f"--user={getuser()}")
            slurm.run("scancel", f"--user={getuser()}")
            processes.wait_until(lambda: not slurm.run("squeue", "-h"))


def _state(slurm: Slurm) -> str:
    done = subprocess.run(
        ["sinfo", "-h", "-o", "%T"], env=slurm.environment, capture_output=True, text=True, check=False
    )
    return done.stdout


def _free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]
