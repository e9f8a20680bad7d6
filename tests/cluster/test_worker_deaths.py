"""Local workers that die at each moment of their life. A preload script of Dask ends them, once for each file
that it finds.
"""

import asyncio
import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import dask
import psutil
import pytest
from distributed.core import Status

from dcpred.execution import dask_workers, local_processes, task_window
from dcpred.execution.pools import connect
from dcpred_tasks.errors import DcpredError, InterruptedRunError, ResourceError
from support import processes

SCRIPT = """
import os, signal, time
from pathlib import Path

FOLDER = Path("THE FOLDER")

def took(name):
    for file in sorted(FOLDER.glob(name + "-*")):
        try:
            file.unlink()
            return True
        except FileNotFoundError:
            pass
    return False

def end(name):
    if took(name):
        os.kill(os.getpid(), signal.SIGKILL)

def dask_setup(worker):
    end("connecting")
    register = worker._register_with_scheduler
    async def registered():
        await register()
        end("connected")
    worker._register_with_scheduler = registered

def dask_teardown(worker):
    end("ending")

end("spawned")
if took("leaves"):
    os._exit(3)
if took("raises"):
    raise MemoryError("no memory is left")
if took("sleeps"):
    while not (FOLDER / "awake").exists():
        time.sleep(0.02)
"""
FOREVER = 1_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_processes, "MAX_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(local_processes, "DEATH_SECONDS", 0.0)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Ask for so many ends at a moment; without a number returns how many are left."""
    (tmp_path / "deaths.py").write_text(SCRIPT.replace("THE FOLDER", str(tmp_path)))

    def ask(moment: str, n: int = 0) -> int:
        for number in range(n):
            (tmp_path / f"{moment}-{number:04}").touch()
        return len(list(tmp_path.glob(f"{moment}-*")))

    with dask.config.set({"distributed.worker.preload": [str(tmp_path / "deaths.py")]}):
        yield ask


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is printed for the user."""
    texts: list[str] = []

    def take(text: str, event: str, **facts: object) -> None:
        texts.append(text)

    for module in (local_processes, dask_workers, task_window):
        monkeypatch.setattr(module, "notice", take)
    return texts


def _pid(number: int) -> int:
    return os.getpid()


def _die_first(number: int, mark: str) -> int:
    if number == 1 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers get functions of this module by value."""
    for body in (_pid, _die_first):
        monkeypatch.setattr(body, "__module__", "__main__")


def pids(workers: Any, n: int = 6) -> set[int]:
    """The workers that did n tasks. All are done."""
    results = dict(workers.each(_pid, [(number,) for number in range(n)]))
    assert sorted(results) == list(range(n))
    assert all(isinstance(pid, int) for pid in results.values()), results
    return set(results.values())


@pytest.mark.parametrize(
    ("n_workers", "moment"), [(1, "spawned"), (2, "connecting"), (1, "connected"), (1, "raises")]
)
def test_a_death_in_the_first_start_is_answered_by_another_start(
    ends: Callable[..., int], n_workers: int, moment: str
) -> None:
    ends(moment, 2)
    with connect(n_workers) as workers:
        assert pids(workers)
        processes.wait_until(lambda: len(workers.client.nthreads()) == n_workers)  # type: ignore[attr-defined]
    assert ends(moment) == 0


@pytest.mark.parametrize(("n_workers", "moment"), [(2, "spawned"), (1, "connecting"), (1, "leaves")])
def test_successors_that_die_while_they_start_have_successors(
    ends: Callable[..., int], n_workers: int, moment: str
) -> None:
    """All workers end between two tasks; then starts fail, which leave Dask's own slots empty for good."""
    with connect(n_workers) as workers:
        first = set(workers.client.run(os.getpid).values())  # type: ignore[attr-defined]
        ends(moment, 3)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert not pids(workers) & first
        processes.wait_until(lambda: len(workers.client.nthreads()) == n_workers)  # type: ignore[attr-defined]
        assert ends(moment) == 0


def test_a_death_in_a_task_whose_successor_dies_too(ends: Callable[..., int], tmp_path: Path) -> None:
    with connect(1) as workers:
        ends("connecting", 2)
        mark = str(tmp_path / "mark")
        results = dict(workers.each(_die_first, [(number, mark) for number in range(4)]))
        assert all(isinstance(pid, int) for pid in results.values()), results
        assert sorted(results) == [0, 1, 2, 3]


def test_deaths_at_the_end_of_a_run(ends: Callable[..., int]) -> None:
    ends("ending", 1)
    with connect(2) as workers:
        pids(workers)
        for pid in list(workers.client.run(os.getpid).values())[:1]:  # type: ignore[attr-defined]
            os.kill(pid, signal.SIGKILL)
    assert not local_children()


def local_children() -> list[Any]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline())
    ]


@pytest.mark.parametrize(
    "error", [OSError(12, "Cannot allocate memory"), RuntimeError("can't start new thread")]
)
def test_processes_that_cannot_be_started_for_a_while(
    monkeypatch: pytest.MonkeyPatch, error: Exception, lines: list[str]
) -> None:
    real, refused = BaseProcess.start, []

    def start(process: BaseProcess) -> None:
        if len(refused) < 4:
            refused.append(process)
            raise error
        real(process)

    with connect(2) as workers:
        monkeypatch.setattr(BaseProcess, "start", start)
        for pid in pids(workers):
            os.kill(pid, signal.SIGKILL)
        assert pids(workers)
        processes.wait_until(lambda: len(workers.client.nthreads()) == 2)  # type: ignore[attr-defined]
    assert len(refused) == 4
    assert any(str(error) in line for line in lines)


def test_workers_that_never_start_end_the_run_with_the_cause(ends: Callable[..., int]) -> None:
    ends("raises", FOREVER)
    message = r"Cannot start local workers: the last of 3 failed \(no memory is left\) while it started\."
    with pytest.raises(ResourceError, match=message), connect(1):
        pytest.fail("there are no workers")
    assert not local_children()


def test_a_slow_start_is_waited_for_and_is_no_death(
    ends: Callable[..., int], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker starts before a line says that the run waits."""
    monkeypatch.setattr(dask_workers, "WAIT_SECONDS", 0.2)
    ends("sleeps", 2)
    real = local_processes.LocalProcesses.check

    def check(self: local_processes.LocalProcesses) -> None:
        if lines:
            (tmp_path / "awake").touch()
        real(self)

    monkeypatch.setattr(local_processes.LocalProcesses, "check", check)
    with connect(2) as workers:
        assert pids(workers)
        assert workers.processes.deaths == []  # type: ignore[attr-defined]
    assert lines == ["waiting for 2 local workers to start"]


def test_a_start_that_hangs_holds_up_neither_the_run_nor_its_end(
    ends: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "WAIT_SECONDS", 0.2)
    ends("sleeps", 1)
    with connect(2) as workers:
        assert len(pids(workers)) == 1
        for pid in workers.client.run(os.getpid).values():  # type: ignore[attr-defined]
            os.kill(pid, signal.SIGKILL)
        assert len(pids(workers)) == 1  # of the slot that does not hang
    assert not local_children()


class Absent:
    """A cluster of a user whose workers are gone for so many looks."""

    status = "running"

    def __init__(self, n_looks: int) -> None:
        self.n_looks, self.put = n_looks, list[Any]()

    def nthreads(self) -> dict[str, int]:
        self.n_looks -= 1
        if self.n_looks == 0:
            future, done = self.put[0]
            done(future)
        return {} if self.n_looks > 0 else {"tcp://1": 1}

    def submit(self, *_: Any, **__: Any) -> Any:
        future = Mock(key="task", status="finished")
        future.result.return_value = ([7], [0.1])
        future.add_done_callback = lambda put: self.put.append((future, put))
        return future

    def cancel(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.parametrize("patience", [300.0, 0.0])
def test_a_cluster_whose_workers_go_is_waited_for_and_a_line_says_so(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    for name, seconds in {
        "TICK_SECONDS": 0.001,
        "WAIT_SECONDS": -1.0,
        "NO_WORKERS_SECONDS": patience,
    }.items():
        monkeypatch.setattr(task_window, name, seconds)
    cluster: Any = Absent(6)
    window = task_window.Window(cluster, len, [()])
    if patience:
        assert list(window.results()) == [(0, 7)]
        assert lines == ["waiting for workers, 300 s at most: the Dask cluster has no workers"]
    else:
        with pytest.raises(
            InterruptedRunError, match="the Dask cluster has no workers, and none came within 0 s"
        ):
            list(window.results())


# -- histories -----------------------------------------------------------------------------------------------


class Life:
    """A nanny whose worker ends as the next of `HISTORY` says: "run" runs until the end."""

    history: ClassVar[list[str]] = []

    def __init__(self, address: str, **options: Any) -> None:
        self.status, self.exit_code, self.process = Status.init, None, None
        self.end = asyncio.Event()
        self.fate = self.history.pop(0) if self.history else "run"
        if self.fate == "construct":
            raise OSError(24, "Too many open files")

    def __await__(self) -> Any:
        return self._start().__await__()

    async def _start(self) -> None:
        await asyncio.sleep(0)
        if self.fate in ("run", "retired"):
            self.status = Status.running
            if self.fate == "retired":
                asyncio.get_running_loop().call_soon(self.end.set)
            return
        self.exit_code = {"kill": -9, "exit": 1, "raise": 0}[self.fate]
        self.status = Status.failed
        raise RuntimeError("no memory is left")

    async def finished(self) -> None:
        await self.end.wait()
        self.status = Status.closed

    async def close(self, reason: str) -> None:
        self.end.set()


class Loop:
    """The event loop of a cluster, in a thread."""

    scheduler_address = "tls://127.0.0.1:1"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def sync(self, body: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(body(), self.loop).result(30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(local_processes, "OneLife", Life)
    loop = Loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("seed", range(20))
def test_all_slots_run_after_any_history(cluster: Any, lines: list[str], seed: int) -> None:
    chance = random.Random(seed)
    n_workers = chance.randint(1, 4)
    fates = ["kill", "exit", "raise", "construct", "retired"]
    Life.history[:] = chance.choices(fates, k=chance.randint(0, 30))
    n_deaths = len(Life.history)
    with local_processes.LocalProcesses(cluster, n_workers) as ours:
        # A worker that is about to die runs for a moment: its death is known later.
        processes.wait_until(lambda: len(ours.deaths) >= n_deaths and ours.n_running() == n_workers)
        assert len(ours.deaths) == n_deaths
        ours.check()  # workers run: nothing is given up, whatever was before
        ours.result_came()
        assert ours.deaths == []
    assert all(keeper.done() for keeper in ours.keepers)


@pytest.mark.parametrize(
    ("fates", "error", "message", "a_slot"),
    [
        (
            ["kill"],
            InterruptedRunError,
            "one after the other, the last of 7 was killed by SIGKILL while it started.*memory is short",
            7,
        ),
        (["raise"], ResourceError, r"failed \(no memory is left\) while it started", 3),
        (["exit"], ResourceError, "exit status 1 while it started", 3),
        (["construct"], ResourceError, "Too many open files", 3),
        (
            ["retired"],
            InterruptedRunError,
            "the last of 7 ended with exit status 0; run the same command again",
            7,
        ),
        (["exit", "kill"], InterruptedRunError, "local workers ended one after the other", 7),
    ],
)
def test_repeated_deaths_have_a_bound_and_a_cause(
    cluster: Any,
    lines: list[str],
    fates: list[str],
    error: type[Exception],
    message: str,
    a_slot: int,
) -> None:
    """Permanent causes of the first start end a run sooner."""
    Life.history[:] = fates * 20
    raised: list[tuple[int, Exception]] = []

    class Counting(local_processes.LocalProcesses):
        def _record(self, *arguments: Any) -> None:
            super()._record(*arguments)
            try:
                self.check()
            except DcpredError as refusal:
                raised.append((len(self.deaths), refusal))

    with Counting(cluster, 1):
        processes.wait_until(lambda: bool(raised) or not Life.history)
    assert raised[0][0] == a_slot
    assert type(raised[0][1]) is error
    assert re.search(message, str(raised[0][1]))
