"""The container image, tried for real: python containers.py FOLDER [STEP ...] [--mount FILE:PLACE ...]

As root, with podman, buildah, runc, catatonit and mmdebstrap of Debian and `pip install ".[deploy]"`; some
minutes and 3 GB below FOLDER. Prints a table with the seconds since the line before, and ends with 1 where
one of its lines is not as it should be. Without names all steps are done:

base     debian:bookworm-slim from packages of Debian, under its own name, so that nothing has to be pulled
build    deploy/Dockerfile as it stands; --mount FILE:PLACE shows the builder what pip needs here
run      scheduler, two workers and a driver: read-only root, no rights, limits; a worker is killed, the
         driver stopped
compose  deploy/compose.yaml with two workers by podman-compose, on the network of the machine, for want of a
         name server
shards   pods of deploy/kubernetes/examples/shards.yaml, with the numbers that an Indexed Job gives them, by
         `podman kube play`; one is killed, one stopped, both run again
pods     pods of deploy/kubernetes, as the Dask operator makes them, by `podman kube play`
systemd  deploy/systemd with systemd as first process: stopped, interrupted, refused, by its timer
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BASE, IMAGE, MACHINE = (
    "docker.io/library/debian:bookworm-slim",
    "localhost/dcpred:test",
    "localhost/dcpred:systemd",
)
N_BLOCKS, PORT = 40, 48786
PATHS = ("doc", "man", "locale")
USER = "10001:10001"
LOCKED = (
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--tmpfs=/tmp",
    "--network=host",
)
# `dcpred` with small blocks that take a second each, to be stopped in the middle.
SLOW = """
import sys, time
from dcpred.execution import block_plan
from dcpred.cli import main
from dcpred.scoring import blocks
block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS = 1, 100, 40
def slow(run, block, quarantine):
    from dcpred_tasks.task_bodies.score_block import score_block
    time.sleep(1.0)
    return score_block(run, block, quarantine)
if __name__ == "__main__":
    blocks.score_block = slow
    main()
"""


class Trial:
    def __init__(self, folder: Path, mounts: list[str]) -> None:
        self.folder, self.mounts = folder.resolve(), mounts
        self.store = [
            "--storage-driver=overlay",
            f"--root={self.folder}/storage",
            f"--runroot={self.folder}/run",
        ]
        self.data, self.tls = self.folder / "data", self.folder / "tls"
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chdir(self.folder)  # podman leaves a file where a container ran out of memory
        configuration = self.folder / "containers.conf"
        configuration.write_text('[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n')
        os.environ["CONTAINERS_CONF"] = str(configuration)
        runtime = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") or "runc"
        self.podman = ["podman", *self.store, "--cgroup-manager=cgroupfs", "--events-backend=file"]
        self.podman += [f"--runtime={runtime}"]
        self.failed, self.said = False, time.monotonic()

    def check(self, what: str, found: object, wanted: object) -> None:
        fine = wanted(found) if callable(wanted) else found == wanted
        self.failed |= not fine
        now = time.monotonic()
        print(
            f"| {what} | {found} | {'as it should be' if fine else 'WRONG'} | {now - self.said:.0f} |",
            flush=True,
        )
        self.said = now

    # -- base and image --------------------------------------------------------------------------------------

    def base(self) -> None:
        tar = self.folder / "base.tar"
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in PATHS]
        done(["mmdebstrap", "--variant=minbase", "--mode=root", *options, "bookworm", tar])
        buildah = ["buildah", *self.store]
        container = done([*buildah, "from", "scratch"]).strip()
        done([*buildah, "add", "-q", container, tar, "/"])
        done([*buildah, "config", "--cmd", "bash", container])
        done([*buildah, "commit", "-q", "--rm", container, BASE])
        self.check("base made", BASE, BASE)

    def build(self) -> None:
        self.image(IMAGE, ROOT / "deploy/Dockerfile", ROOT)
        size = json.loads(done([*self.podman, "image", "inspect", IMAGE]))[0]["Size"]
        self.check("image, MB", size // 10**6, lambda found: found < 1200)
        linted = subprocess.run([beside("hadolint"), ROOT / "deploy/Dockerfile"], check=False)
        self.check("hadolint", linted.returncode, 0)

    def image(self, name: str, file: Path, context: Path) -> None:
        mounts = [word for mount in self.mounts for word in ("-v", f"{mount}:ro")]
        how = ["--isolation=chroot", "--network=host", "--pull-never", "--layers", *mounts]
        done(["buildah", *self.store, "bud", *how, "-t", name, "-f", file, context])

    # -- containers ------------------------------------------------------------------------------------------

    def start(self, name: str, command: list[str], *options: str) -> None:
        done([*self.podman, "run", "-d", f"--name={name}", *LOCKED, *self.shown(), *options, IMAGE, *command])

    def shown(self) -> list[str]:
        """Folders and environment of all containers."""
        variables = (self.tls / "env").read_text().replace(str(self.tls), "/tls")
        (self.folder / "env").write_text(variables)
        volumes = [f"--volume={self.data}:/data", f"--volume={self.tls}:/tls:ro"]
        return [f"--env-file={self.folder}/env", "--user=10001:10001", *volumes]

    def once(self, command: list[str], *options: str) -> subprocess.CompletedProcess[str]:
        line = [*self.podman, "run", "--rm", *LOCKED, *self.shown(), *options, IMAGE, *command]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def prepare(self) -> None:
        """Rows and a model, made in the image itself, and certificates; all belong to its user."""
        for place in (self.data, self.tls):
            shutil.rmtree(place, ignore_errors=True)
        self.data.mkdir()
        done([ROOT / "deploy/make_certs.sh", self.tls])
        (self.data / "slow.py").write_text(SLOW)
        (self.data / "make.py").write_text(
            "import numpy as np, zarr\n"
            "X = np.random.default_rng(0).normal(size=(4000, 6)).astype('f4')\n"
            "g = zarr.create_group('/data/rows.zarr')\ng.create_array('X', data=X, chunks=(100, 6))\n"
            "g.create_array('y', data=(X[:, 0] * X[:, 1] > 0).astype('i8'), chunks=(100,))\n"
        )
        done(["chown", "-R", USER, self.data, self.tls])
        assert self.once(["python3", "/data/make.py"]).returncode == 0
        settings = ["--set", "n_leaves=2", "--set", "landmarks=4", "--workers", "1"]
        trained = self.once(["dcpred", "train", "/data/rows.zarr", "/data/model", *settings])
        assert trained.returncode == 0, trained.stderr

    def blocks(self, output: str) -> int:
        return len(list((self.data / output).glob("**/blocks/*.json")))

    def verify(self, output: str, what: str, run: str = "") -> None:
        found = self.once(["dcpred", "verify", f"/data/{output}/{run}", "--level", "full"])
        self.check(f"{what}: verified, blocks", (found.returncode, self.blocks(output)), (0, N_BLOCKS))

    @contextmanager
    def containers(self) -> Iterator[None]:
        """A scheduler and two workers on loopback, removed at the end."""
        here = ["--host=tls://127.0.0.1", "--no-dashboard", "--dashboard-address=127.0.0.1:0"]
        address = f"tls://127.0.0.1:{PORT}"
        try:
            self.start("scheduler", ["dask", "scheduler", f"--port={PORT}", *here], "--memory=500m")
            for name in ("worker-0", "worker-1"):
                command = ["dask", "worker", address, "--nthreads=1", "--memory-limit=700MiB"]
                self.start(name, [*command, *here, "--local-directory=/tmp"], "--memory=700m")
            for name in ("worker-0", "worker-1"):
                wait(lambda name=name: "Registered to" in self.logs(name))
            yield
        finally:
            self.remove("driver", "worker-0", "worker-1", "scheduler")

    def logs(self, name: str) -> str:
        found = subprocess.run([*self.podman, "logs", name], capture_output=True, text=True, check=False)
        return found.stdout + found.stderr

    def remove(self, *names: str) -> None:
        subprocess.run([*self.podman, "rm", "-f", "-t=0", *names], capture_output=True, check=False)

    def ended(self, name: str) -> int:
        return int(done([*self.podman, "wait", name]))

    def run(self) -> None:
        self.prepare()
        command = ["python3", "/data/slow.py", "score", "/data/model", "/data/rows.zarr", "/data/scores"]
        command += [f"--scheduler=tls://127.0.0.1:{PORT}"]
        refused = self.once(["touch", "/opt/x"])
        self.check("the root is read-only", refused.returncode, 1)
        small = self.once(
            ["dcpred", "score", "/data/model", "/data/rows.zarr", "/data/other", "--workers=1"],
            "--memory=80m",
        )
        self.check("a driver within 80 MiB is killed: exit code", small.returncode, 137)
        self.check("and nothing is left of a score", self.blocks("other"), 0)
        with self.containers():
            self.start("driver", command, "--memory=500m")
            wait(lambda: self.blocks("scores") >= 4)
            before = self.blocks("scores")
            done([*self.podman, "stop", "-t=60", "driver"])
            self.check("driver stopped: exit code", self.ended("driver"), 75)
            after = self.blocks("scores")
            self.check(
                "blocks before and after the stop",
                (before, after),
                lambda found: 4 <= found[0] <= found[1] < N_BLOCKS,
            )
            self.remove("driver")
            self.start("driver", command, "--memory=500m")
            wait(lambda: self.blocks("scores") >= after + 4)
            done([*self.podman, "kill", "worker-0"])
            self.check("worker killed, driver goes on: exit code", self.ended("driver"), 0)
        self.verify("scores", "four containers")

    def compose(self) -> None:
        self.prepare()
        file = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
        for service in file["services"].values():
            service |= {"network_mode": "host", "extra_hosts": ["scheduler:127.0.0.1"]}
        file["services"]["driver"]["entrypoint"] = ["tini", "--", "python3", "/data/slow.py"]
        changed = self.folder / "compose.yaml"
        changed.write_text(yaml.safe_dump(file))
        variables = {"DCPRED_IMAGE": IMAGE, "DCPRED_DATA": str(self.data), "DCPRED_TLS": str(self.tls)}
        podman = self.folder / "podman"
        podman.write_text("#!/bin/sh\nexec " + " ".join(self.podman) + ' "$@"\n')
        podman.chmod(0o755)
        compose = [beside("podman-compose"), f"--podman-path={podman}", "-f", str(changed)]
        environment = os.environ | variables
        try:
            done([*compose, "up", "-d", "--scale", "worker=2", "scheduler", "worker"], env=environment)
            names = done([*self.podman, "ps", "--format={{.Names}}"]).split()
            workers = [name for name in names if "worker" in name]
            for name in workers:
                wait(lambda name=name: "Registered to" in self.logs(name))
            self.check("compose: workers registered", len(workers), 2)
            command = ["score", "/data/model", "/data/rows.zarr", "/data/scores"]
            line = [*compose, "--profile=job", "run", "--rm", "driver", *command]
            scored = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
            self.check("compose, driver: exit code", scored.returncode, 0)
            times = [path.stat().st_mtime for path in (self.data / "scores/blocks").iterdir()]
            what = f"compose: seconds for {N_BLOCKS} blocks of one second, so that both scored"
            self.check(what, round(max(times) - min(times)), lambda found: found < N_BLOCKS - 2)
        finally:
            subprocess.run([*compose, "down", "-t", "5"], env=environment, capture_output=True, check=False)
        self.verify("scores", "compose")

    # -- Kubernetes ------------------------------------------------------------------------------------------

    def pods(self) -> None:
        """What is changed: loopback in place of the network of a cluster, folders in place of claims and
        secrets, which podman 4.3 fills with the wrong bytes, and $(VARIABLES), which it does not put in.
        """
        import manifests

        self.prepare()
        for place, name in (("ca.pem", "ca.crt"), ("worker.pem", "tls.crt"), ("worker.key", "tls.key")):
            shutil.copy(self.tls / place, self.tls / name)
        done(["chown", "-R", USER, self.tls])
        documents = manifests.load(ROOT / "deploy/kubernetes/base")
        made = [new for document in documents for new in manifests._made_by_operator(document)]
        config = next(document for document in documents if document["kind"] == "ConfigMap")
        del config["metadata"]["namespace"]
        cron = next(document for document in documents if document["kind"] == "CronJob")
        specs = {
            "scheduler": made[0]["spec"]["template"]["spec"],
            "worker": made[2]["spec"]["template"]["spec"],
            "driver": cron["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        }
        try:
            for name, spec in specs.items():
                file = self.folder / f"pod-{name}.yaml"
                file.write_text(yaml.safe_dump_all([config, self.playable(name, spec)]))
                done([*self.podman, "kube", "play", "--network=host", file])
                if name != "driver":
                    said = "Scheduler at:" if name == "scheduler" else "Registered to"
                    wait(lambda name=name, said=said: said in self.logs(f"{name}-{name}"))
            self.check("pods: exit code of the driver", self.ended("driver-driver"), 0)
        finally:
            for name in specs:
                self.remove_pod(name)
        found = self.once(["dcpred", "verify", "/data/scores/latest", "--level", "full"])
        self.check("pods: verified", found.returncode, 0)

    def shards(self) -> None:
        """Four shards of an Indexed Job, whose pods get their numbers as Kubernetes gives them."""
        import manifests

        self.prepare()
        (job,) = manifests.load(ROOT / "deploy/kubernetes/examples/shards.yaml")
        spec = job["spec"]["template"]["spec"]

        def play(index: int) -> str:
            """The name of the container of a pod, which replaces an earlier one of its number."""
            self.remove_pod(f"shard-{index}")
            made = self.playable(f"shard-{index}", spec)
            container = made["spec"]["containers"][0]
            container["env"] = [{"name": "JOB_COMPLETION_INDEX", "value": str(index)}]
            command = [word.replace("auto/16", "auto/4") for word in container["args"][1:]]
            container["args"] = ["python3", "/data/slow.py", *command]
            file = self.folder / f"pod-shard-{index}.yaml"
            file.write_text(yaml.safe_dump(made))
            done([*self.podman, "kube", "play", "--network=host", file])
            return f"shard-{index}-shard-{index}"

        try:
            playing = [play(index) for index in range(3)]
            wait(lambda: self.blocks("scores") >= 6)
            done([*self.podman, "kill", playing[1]])
            done([*self.podman, "stop", "-t=60", playing[2]])
            codes = [self.ended(name) for name in playing]
            self.check(
                "shards 0 to 2, one left alone, one killed, one stopped: exit codes", codes, [0, 137, 75]
            )
            left = self.blocks("scores")
            self.check("shards: blocks so far", left, lambda found: 10 <= found < 30)
            codes = [self.ended(play(index)) for index in (3, 2, 1)]
            self.check("shards 3, 2 and 1, one after the other: exit codes", codes, [0, 0, 0])
            whole = (self.data / "scores/manifest.json").exists()
            self.check("shards: the last one wrote the manifest", whole, True)
        finally:
            for index in range(4):
                self.remove_pod(f"shard-{index}")
        self.verify("scores", "shards")

    def remove_pod(self, name: str) -> None:
        subprocess.run([*self.podman, "pod", "rm", "-f", "-t=0", name], capture_output=True, check=False)

    def playable(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        folders = {"data": self.data, "tls": self.tls}
        text = (
            json.dumps(spec)
            .replace("dcpred-scheduler:", "127.0.0.1:")
            .replace("/data/new.zarr", "/data/rows.zarr")
        )
        text = text.replace("/data/nightly", "/data/scores")
        text = text.replace("$(MEMORY_LIMIT)", "1GiB").replace("$(DASK_WORKER_NAME)", "worker-0")
        spec = json.loads(text) | {"hostNetwork": True}
        del spec["serviceAccountName"]
        for volume in spec["volumes"]:
            if volume["name"] in folders:
                path = {"path": str(folders[volume["name"]]), "type": "Directory"}
                volume.update({"name": volume["name"], "hostPath": path})
                volume.pop("persistentVolumeClaim", None)
                volume.pop("secret", None)
            else:
                volume["emptyDir"] = {}
        container = spec["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container.pop("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                container[probe]["httpGet"]["port"] = ports[container[probe]["httpGet"]["port"]]
        container.pop("lifecycle", None)
        container |= {"image": IMAGE, "imagePullPolicy": "Never", "name": name}
        if name in ("scheduler", "worker"):
            container["args"] = [*container["args"], "--host=tls://127.0.0.1"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    # -- systemd ---------------------------------------------------------------------------------------------

    def systemd(self) -> None:
        """An image with systemd as first process, the units, and `dcpred` where they look for it."""
        self.prepare()
        place = self.folder / "machine"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for unit in (ROOT / "deploy/systemd").iterdir():
            # cgroup v1 within a container tells of no empty group: a service that ended is waited for.
            text = unit.read_text().replace("TimeoutStopSec=90", "TimeoutStopSec=15")
            text = text.replace("RestartSec=5min", "RestartSec=1s").replace("RandomizedDelaySec=10min", "")
            (place / unit.name).write_text(text.replace("*-*-* 02:30", "*-*-* *:*:00/10"))
        (place / "dcpred-alert@.service").write_text(
            "[Service]\nType=oneshot\nExecStart=/bin/touch /srv/dcpred/alert\n"
        )
        (place / "dcpred").write_text(
            SLOW.replace("\nimport sys", "#!/opt/dcpred/bin/python3\nimport sys", 1)
        )
        (place / "night.env").write_text(
            "MODEL=/srv/dcpred/model\nDATA=/srv/dcpred/rows.zarr\nROOT=/srv/dcpred/scores\n"
            "OPTIONS=--workers 2\n"
        )
        (place / "wrong.env").write_text(
            "MODEL=/srv/dcpred/none\nDATA=/srv/dcpred/rows.zarr\nROOT=/srv/dcpred/wrong\n"
        )
        (place / "Dockerfile").write_text(
            f"FROM {IMAGE}\nUSER root\n"
            "RUN apt-get update && apt-get install -y --no-install-recommends systemd dbus\n"
            "COPY dcpred-*.service dcpred-*.timer /etc/systemd/system/\nCOPY *.env /etc/dcpred/\n"
            'COPY --chmod=755 dcpred /opt/dcpred/bin/dcpred\nENTRYPOINT []\nCMD ["/lib/systemd/systemd"]\n'
        )
        self.image(MACHINE, place / "Dockerfile", place)
        try:
            done([*self.podman, "run", "-d", "--name=machine", "--systemd=always", "--network=host",
                  f"--volume={self.data}:/srv/dcpred", MACHINE, "/lib/systemd/systemd"])  # fmt: skip
            self.units()
        finally:
            self.remove("machine")
        self.verify("scores", "systemd", "latest")

    def systemctl(self, *words: str) -> str:
        line = [*self.podman, "exec", "machine", "systemctl", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()

    def units(self) -> None:
        service = "dcpred-nightly@night.service"
        wait(lambda: self.systemctl("is-system-running") in ("running", "degraded"))
        self.systemctl("start", "--no-block", service)
        wait(lambda: self.blocks("scores") >= 4)
        self.systemctl("stop", service)
        state = self.systemctl("show", service, "-P", "ExecMainStatus")
        self.check("systemctl stop: exit code", state, "75")
        stopped = self.blocks("scores")
        self.check("systemctl stop: blocks", stopped, lambda found: 4 <= found < N_BLOCKS)
        self.systemctl("start", "--no-block", service)
        wait(lambda: self.blocks("scores") >= stopped + 4)
        self.systemctl("kill", "--kill-who=main", "--signal=TERM", service)
        # While it runs: systemd forgets what has ended well.
        wait(lambda: self.systemctl("show", service, "-P", "NRestarts") == "1")
        self.check("SIGTERM from elsewhere: restarts by itself", 1, 1)
        wait(lambda: (self.data / "scores/latest/manifest.json").exists())
        wait(lambda: self.systemctl("is-active", service) != "active")
        wrong = "dcpred-nightly@wrong.service"
        self.systemctl("start", "--no-block", wrong)
        wait((self.data / "alert").exists)
        self.check("refused (3): restarts", self.systemctl("show", wrong, "-P", "NRestarts"), "0")
        (self.data / "alert").unlink()
        self.systemctl("start", "dcpred-nightly@wrong.timer")
        wait((self.data / "alert").exists)
        self.check("the timer starts the service", True, True)


def beside(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def done(command: list[Any], **more: Any) -> str:
    """What a command says. Raises where it fails, with that."""
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    assert result.returncode == 0, f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
    return result.stdout


def wait(reached: Callable[[], object], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.2)


STEPS = ("base", "build", "run", "compose", "shards", "pods", "systemd")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], default=list(STEPS))
    parser.add_argument("--mount", action="append", default=[], metavar="FILE:PLACE")
    arguments = parser.parse_args()
    trial = Trial(arguments.folder, arguments.mount)
    print("| what | found | | seconds |\n|---|---|---|---|")
    for step in arguments.steps:
        getattr(trial, step)()
    sys.exit(trial.failed)
