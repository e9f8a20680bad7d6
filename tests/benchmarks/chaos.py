"""Scoring under attack: real processes are killed, stopped and starved at random times, until every run has
come to its end.

    python tests/benchmarks/chaos.py [--runs 1000] [--seed 0] [--attacks kill-driver,…] [--work DIR] [--quick]
                                     [--parquet] [--delta]

Each run scores the 20,000 rows of letter into a directory of its own, in 16 blocks, is attacked, is run again
after every end that was not its own, and is compared file by file with a run that was left in peace. Attacks:

    kill-driver, term-driver    SIGKILL or SIGTERM to the driver (which scores by itself), up to three times
    kill-worker, term-worker    SIGKILL or SIGTERM to one of two worker processes, up to three times; those
                                that dcpred starts are deaf to SIGTERM, which is what is held here
    stop-worker                 SIGSTOP to a worker, SIGCONT up to a second later
    full-disk                   a limit on the size of files (RLIMIT_FSIZE): writes fail part-way
    bad-reads                   a third of all reads time out, others are slow
    two-drivers                 two drivers at once on one directory, one of them killed
    stop-driver                 SIGSTOP to the driver while a second one tries, at times without a lock

With --parquet each run also writes Parquet files, and with --delta a Delta table of its own gets them. Their
rows are read back, by other people's readers, and compared with those of the run that was left in peace.
--delta has two attacks more:

    kill-commit                 SIGKILL to the driver from the moment when all blocks are done
    two-commits                 two drivers at once on two directories and one table, one of them killed
"""

import argparse
import faulthandler
import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from common import Table, data_folder, letter, write_group
from deltalake import DeltaTable

from dcpred.execution import block_plan, lease
from dcpred.execution.interrupts import signals_handled
from dcpred.execution.pools import connect
from dcpred.execution.workers import InlineWorkers, Workers
from dcpred.runs.shards import Shard
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS
from dcpred_tasks.errors import DcpredError, RunHeldError
from dcpred_tasks.storage import store_requests, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_group
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.task_bodies import score_block

CONTEXT = multiprocessing.get_context("forkserver")
# Or every driver would load them. By name: Python before 3.12.8 passes over "__main__" without a word.
CONTEXT.set_forkserver_preload(
    ["dcpred.training.fit", "dcpred.scoring.score", "dcpred_tasks.engine.engine", "psutil"]
)
N_BLOCKS, CHUNK_ROWS, INPUT_ROWS = 16, 625, 125
N_TRAIN, N_ROWS = 15_000, 20_000  # rows that the model is trained on, and rows to score
QUICK_ROWS = 5_000, 1_000  # rows to score and to train on
MOST_HITS = 3
PATIENCE_SECONDS = 600.0  # after which a driver hangs
ENDS = {0, 4, 5, 6, 75, -signal.SIGKILL, -signal.SIGTERM}  # exit codes that an attacked driver may end with
REMOVED_AT_ONCE = 8
TABLE, TWIN = "-table", "-twin"  # endings of the Delta table of an output, and of a second output
LEASE_SECONDS = 4.0  # of a lease on a store, which no system releases
Place = str | Path
Attack = Callable[["Arena", Any], "Toll"]
last_words: list[str] = []  # the sentence of the last driver that ended with one


@dataclass
class Toll:
    """What was done to one run: attacks that hit, times it was run again."""

    hits: int = 0
    resumes: int = 0


@dataclass
class Tally:
    """What became of the runs under one attack."""

    runs: int = 0
    hits: int = 0
    resumes: int = 0
    lost: int = 0
    wrong: int = 0
    twice: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass
class Arena:
    """Model, data, what a run in peace gives, and the chance."""

    model: str | Path
    data: str | Path
    chance: random.Random
    workers: Workers | None = None
    most_hits: int = MOST_HITS  # of signals to one run
    seconds: float = 1.0  # of a run in peace by a driver of its own
    worker_seconds: float = 1.0  # and by workers that are there already
    # of drivers; there is one where outputs lie on an object store
    environment: dict[str, str] = field(default_factory=dict)
    lease_seconds: float = LEASE_SECONDS
    parquet: bool = False
    delta: bool = False
    commit_seconds: float = 1.0  # from the last block to the end of a driver

    def options(self, output: Place) -> dict[str, Any]:
        table = f"{str(output).removesuffix(TWIN)}{TABLE}" if self.delta else None
        return {"parquet": True, "id": ("id",), "delta": table} if self.parquet else {}

    def args(self, output: Place) -> tuple[str | Path, str, Place]:
        return self.model, f"{self.data}/X", output


def small_plan() -> None:
    block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS, block_plan.BLOCK_ROWS = (
        1,
        CHUNK_ROWS,
        N_BLOCKS,
        N_ROWS // N_BLOCKS,
    )


def short_lease(seconds: float = LEASE_SECONDS) -> None:
    lease.EXPIRY_SECONDS, lease.SIGN_SECONDS = seconds, seconds / 8
    lease.CLOCK_SLACK_SECONDS = seconds / 4


def alone() -> AbstractContextManager[Workers]:
    """A pool of the driver itself."""
    return nullcontext(InlineWorkers())


def _drive(
    work: Callable[[], Any],
    name: str,
    fault: str,
    seed: int,
    environment: dict[str, str],
    lease_seconds: float,
    words: Connection,
) -> None:
    """What a driver does in a process of its own.

    words  takes the sentence that it ends with
    """
    small_plan()
    os.environ.update(environment)
    if environment:
        short_lease(lease_seconds)
        if (
            seed % 2
        ):  # Half of the drivers are as of another machine, of which nobody knows whether they live.
            lease._machine = str
    told, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    if fault == "full-disk":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = random.Random(seed).randrange(1, 2_500)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if fault == "bad-reads":
        _spoil_reads(random.Random(seed))
    code = 0
    try:
        with signals_handled():
            work()
    except DcpredError as error:
        code = error.exit_code
        words.send(f"{type(error).__name__}: {error}")
        if code not in ENDS:
            print(f"{name}: {type(error).__name__}: {error}", file=told, flush=True)
    except KeyboardInterrupt:
        code = 75
    except OSError as error:
        code = 5
        words.send(f"{type(error).__name__}: {error}")
    os._exit(code)


def _spoil_reads(chance: random.Random) -> None:
    real = zarr_arrays.read_rows
    store_requests.FIRST_WAIT_SECONDS = 0.001

    def read(*args: Any) -> Any:
        draw = chance.random()
        if draw < 1 / 3:
            raise TimeoutError("the store does not answer")
        if draw < 1 / 2:
            time.sleep(0.01)
        return real(*args)

    score_block.zarr_arrays.read_rows = read  # type: ignore[assignment]


def _run_driver(arena: Arena, output: Place, fault: str = "", shard: Shard | None = None) -> Any:
    """A driver that scores the whole or a shard by itself."""
    more = arena.options(output) if shard is None else {"shard": shard}
    work = partial(score, *arena.args(output), **more)
    return start_driver(arena, work, str(output), fault)


def start_driver(arena: Arena, work: Callable[[], Any], name: str, fault: str = "") -> Any:
    seed = arena.chance.randrange(2**31)
    ours, theirs = CONTEXT.Pipe(duplex=False)
    more = arena.environment, arena.lease_seconds, theirs
    process: Any = CONTEXT.Process(target=_drive, args=(work, name, fault, seed, *more))
    process.start()
    theirs.close()
    process.words = ours
    return process


def _end(process: Any) -> int:
    process.join(PATIENCE_SECONDS)
    if process.exitcode is None:
        give_up("a driver did not come to an end")
    if process.exitcode not in ENDS:
        give_up(f"a driver ended with {process.exitcode}")
    with suppress(EOFError):
        last_words[:] = [process.words.recv()]
    process.words.close()
    return int(process.exitcode)


def give_up(why: str) -> NoReturn:
    """End all drivers, of which one may be stopped, so that nothing waits for them."""
    for process in multiprocessing.active_children():
        process.kill()
    raise SystemExit(why)


def _signalled(process: Any, number: int) -> bool:
    """Whether a driver was still there to get a signal."""
    with suppress(ProcessLookupError):  # it may end between the two lines
        if process.exitcode is None:
            os.kill(process.pid, number)
            return True
    return False


def _finish(arena: Arena, output: Place, toll: Toll, code: int) -> Toll:
    """Run again until the run says that it is complete."""
    while code != 0:
        toll.resumes += 1
        if toll.resumes > 4 * MOST_HITS:
            give_up(f"a run did not come to its end: exit code {code}, {output}: {last_words}")
        if code == RunHeldError.exit_code and arena.environment:
            time.sleep(arena.lease_seconds)
        code = _end(_run_driver(arena, output))
    return toll


def in_peace(arena: Arena, output: Place) -> Toll:
    """Nothing but what the store does."""
    return _finish(arena, output, Toll(), _end(_run_driver(arena, output)))


def hit_driver(number: int) -> Attack:
    def attack(arena: Arena, output: Place) -> Toll:
        toll, code = Toll(), 1
        for _ in range(arena.chance.randint(1, arena.most_hits)):
            process = _run_driver(arena, output)
            time.sleep(arena.chance.uniform(0, arena.seconds))
            process.join(0)
            toll.hits += _signalled(process, number)
            code = _end(process)
            if code == 0:
                return toll
            toll.resumes += 1
        toll.resumes -= 1
        return _finish(arena, output, toll, code)

    return attack


def faulty(fault: str) -> Attack:
    def attack(arena: Arena, output: Place) -> Toll:
        code = _end(_run_driver(arena, output, fault))
        return _finish(arena, output, Toll(hits=1), code)

    return attack


def two_drivers(arena: Arena, output: Place) -> Toll:
    first = _run_driver(arena, output)
    time.sleep(arena.chance.uniform(0, arena.seconds / 2))
    second = _run_driver(arena, output)
    time.sleep(arena.chance.uniform(0, arena.seconds / 2))
    _signalled(first, signal.SIGKILL)
    _end(first)
    return _finish(arena, output, Toll(hits=1), _end(second))


def stop_driver(arena: Arena, output: Place) -> Toll:
    first = _run_driver(arena, output)
    time.sleep(arena.chance.uniform(0, arena.seconds))
    _signalled(first, signal.SIGSTOP)
    if arena.environment:
        time.sleep(arena.chance.uniform(0, 2 * arena.lease_seconds))
    elif arena.chance.random() < 1 / 2:
        Path(output, "lock").unlink(missing_ok=True)
    code = _end(_run_driver(arena, output))
    _signalled(first, signal.SIGCONT)
    return _finish(arena, output, Toll(hits=1), min(code, _end(first), key=lambda c: c != 0))


def kill_commit(arena: Arena, output: Place) -> Toll:
    """From the last block on: while files are copied, the transaction is written, or after it."""
    toll, process = Toll(), _run_driver(arena, output)
    place = open_place(output)
    while process.exitcode is None and not place.present(["manifest.json"]):
        time.sleep(0.05 if place.many_at_once else 0.002)
    time.sleep(arena.chance.uniform(0, arena.commit_seconds))
    toll.hits += _signalled(process, signal.SIGKILL)
    return _finish(arena, output, toll, _end(process))


def two_commits(arena: Arena, output: Place) -> Toll:
    """The same run in two directories: Delta alone decides between their commits."""
    twin = f"{output}{TWIN}"
    first, second = _run_driver(arena, output), _run_driver(arena, twin)
    toll = Toll()
    if arena.chance.random() < 1 / 2:
        time.sleep(arena.chance.uniform(0, 2 * arena.seconds))
        toll.hits += _signalled(first, signal.SIGKILL)
    codes = _end(first), _end(second)
    _finish(arena, twin, toll, codes[1])
    remove(twin)
    return _finish(arena, output, toll, codes[0])


def remove(output: Place) -> None:
    """Remove all that lies there."""
    place = open_place(output)
    if place.folder is not None:
        shutil.rmtree(place.folder, ignore_errors=True)
        return
    with ThreadPoolExecutor(REMOVED_AT_ONCE) as pool:
        list(pool.map(place.remove, place.listing()))


def hit_worker(number: int) -> Attack:
    def attack(arena: Arena, output: Place) -> Toll:
        assert arena.workers is not None
        ended: list[BaseException | None] = []

        def drive() -> None:
            try:
                pool = lambda: nullcontext(arena.workers)  # noqa: E731
                score(*arena.args(output), client=pool, **arena.options(output))
                ended.append(None)
            except Exception as error:
                ended.append(error)

        toll = Toll()
        for attempt in range(4 * MOST_HITS):
            driver = threading.Thread(target=drive)
            driver.start()
            for _ in range(arena.chance.randint(1, arena.most_hits) if attempt == 0 else 0):
                time.sleep(arena.chance.uniform(0, arena.worker_seconds))
                toll.hits += _hit(arena.chance, number) if driver.is_alive() else 0
            driver.join(PATIENCE_SECONDS)
            if driver.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise SystemExit("a run did not come to its end")
            if ended[-1] is None:
                return toll
            if not isinstance(ended[-1], DcpredError | (OSError if arena.environment else DcpredError)):
                raise ended[-1]
            if isinstance(ended[-1], RunHeldError):
                time.sleep(arena.lease_seconds)
            toll.resumes += 1
        raise SystemExit(f"a run did not come to its end: {ended[-1]}")

    return attack


def _hit(chance: random.Random, number: int) -> int:
    """Send a signal to one of the worker processes."""
    workers = [p for p in psutil.Process().children(recursive=True) if _is_worker(p)]
    if not workers:
        return 0
    victim = chance.choice(workers)
    try:
        victim.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(chance.uniform(0.1, 1.0))
            victim.resume()
    except psutil.NoSuchProcess:
        return 0
    return 1


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


ATTACKS: dict[str, Attack] = {
    "kill-driver": hit_driver(signal.SIGKILL),
    "term-driver": hit_driver(signal.SIGTERM),
    "kill-worker": hit_worker(signal.SIGKILL),
    "term-worker": hit_worker(signal.SIGTERM),
    "stop-worker": hit_worker(signal.SIGSTOP),
    "full-disk": faulty("full-disk"),
    "bad-reads": faulty("bad-reads"),
    "two-drivers": two_drivers,
    "stop-driver": stop_driver,
}
OF_DELTA: dict[str, Attack] = {"kill-commit": kill_commit, "two-commits": two_commits}
# runs under these take less time
OFTEN = (
    "kill-driver",
    "term-driver",
    "full-disk",
    "bad-reads",
    "two-drivers",
    "stop-driver",
    *OF_DELTA,
)


def contents(output: Path) -> dict[str, bytes]:
    """The stored scores, without what attempts that were cut off left."""
    root = output / "scores.zarr"
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in root.rglob("*")
        if p.is_file() and ".partial" not in p.name
    }


def committed(names: Iterable[str]) -> set[str]:
    """Commit records among the names of files that lie beside them."""
    return {name for name in names if name.endswith(".json") and ".conflict-" not in name}


def examine_rows(found: pa.Table, right: pa.Table, tally: Tally) -> None:
    """Count rows that a table lacks, has twice, or has with other values."""
    ids, wanted = (np.asarray(table["id"]) for table in (found, right))
    tally.lost += len(np.setdiff1d(wanted, ids))
    tally.twice += len(ids) - len(np.unique(ids))
    if len(ids) != len(wanted) or found.equals(right):
        return
    pairs = zip(found.to_batches(1), right.to_batches(1), strict=True)
    tally.wrong += sum(not one.equals(other) for one, other in pairs)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by("id").combine_chunks().replace_schema_metadata()


def tables_of(output: Place, *, delta: bool) -> list[pa.Table]:
    """The rows of the Parquet files of an output, and of its Delta table."""
    place = open_place(output)
    names = sorted(name for name in place.listing(TABLE_FORMATS[PARQUET].folder) if ".partial" not in name)
    found = [pa.concat_tables([pq.read_table(io.BytesIO(place.read(name).data)) for name in names])]
    if place.folder is not None:
        assert pq.read_table(place.folder / TABLE_FORMATS[PARQUET].folder).equals(found[0])
    if delta:
        table = DeltaTable(f"{output}{TABLE}")
        found.append(table.to_pyarrow_table().cast(found[0].schema))
    return list(map(in_order, found))


def examine(output: Path, right: dict[str, bytes], peace: Path, tally: Tally) -> None:
    """Count rows that are lost or wrong, and blocks that were committed with two values."""
    names, in_peace = ({p.name for p in (folder / "blocks").iterdir()} for folder in (output, peace))
    tally.twice += sum(".conflict-" in name for name in names)
    tally.lost += len(committed(in_peace) - committed(names)) * (N_ROWS // N_BLOCKS)
    own = {"zarr.json": right.get("zarr.json")} if Path(f"{output}{TABLE}").exists() else {}
    if contents(output) | own == right:  # The group names the run, whose hash knows its Delta table.
        return
    one, two = (open_group(folder / "scores.zarr") for folder in (peace, output))
    status = np.asarray(two["status"][...])
    tally.lost += int((status == 0).sum())
    differ = np.asarray(one["decision"][...]) != np.asarray(two["decision"][...])
    tally.wrong += max(int(differ.reshape(len(status), -1).any(axis=1).sum()), 1)


def prepare(work: Path, quick: bool) -> Arena:
    n_rows, n_train = QUICK_ROWS if quick else (N_ROWS, N_TRAIN)
    X, y, X_test, y_test = letter(data_folder())
    train_data = write_group(work / "train.zarr", X[:n_train], y[:n_train], 5_000)
    X, y = np.concatenate([X, X_test])[:n_rows], np.concatenate([y, y_test])[:n_rows]
    group = write_group(work / "data.zarr", X, y, INPUT_ROWS)
    ids = np.arange(len(X)) + 10**9
    zarr.open_group(group, mode="r+").create_array("id", data=ids, chunks=(5_000,))
    settings = {"n_leaves": 16, "landmarks": 16, "refine_steps": 10}
    train(train_data, work / "model", settings=settings)
    return Arena(work / "model", work / "data.zarr", random.Random())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attacks", help="names with commas; all otherwise: " + ",".join(ATTACKS))
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos"))
    parser.add_argument(
        "--quick", action="store_true", help="one run under each attack, of one hit; 5,000 rows"
    )
    parser.add_argument("--parquet", action="store_true", help="also Parquet files")
    parser.add_argument("--delta", action="store_true", help="also Parquet files, and a Delta table of them")
    args = parser.parse_args()
    small_plan()
    attacks = ATTACKS | (OF_DELTA if args.delta else {})
    wanted = args.attacks.split(",") if args.attacks else list(attacks)
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    arena = prepare(args.work, args.quick)
    arena.chance = random.Random(args.seed)
    arena.most_hits = 1 if args.quick else MOST_HITS
    arena.parquet, arena.delta = args.parquet or args.delta, args.delta
    peace = args.work / "peace"
    for _ in range(2):  # the first compiles
        for place in (peace, f"{peace}{TABLE}"):
            shutil.rmtree(place, ignore_errors=True)
        begin = time.monotonic()
        _end(_run_driver(arena, peace))
        arena.seconds = time.monotonic() - begin
    arena.commit_seconds = time.time() - (peace / "manifest.json").stat().st_mtime
    truth = tables_of(peace, delta=False)[0] if arena.parquet else None
    right = contents(peace)
    tallies: dict[str, Tally] = {name: Tally() for name in wanted}
    order = _order(wanted, len(wanted) if args.quick else args.runs, arena.chance)
    with ExitStack() as stack:
        if any(name.endswith("-worker") for name in order):
            arena.workers = stack.enter_context(connect(2))
            arena.worker_seconds = _seconds_by_workers(arena)
        for number, name in enumerate(order):
            output, tally, begin = args.work / f"run-{number}", tallies[name], time.monotonic()
            toll = attacks[name](arena, output)
            tally.runs, tally.hits, tally.resumes = (
                tally.runs + 1,
                tally.hits + toll.hits,
                tally.resumes + toll.resumes,
            )
            tally.seconds.append(time.monotonic() - begin)
            harm = (tally.lost, tally.wrong, tally.twice)
            examine(output, right, peace, tally)
            for table in tables_of(output, delta=arena.delta) if truth is not None else ():
                examine_rows(table, truth, tally)
            if (tally.lost, tally.wrong, tally.twice) == harm:
                remove(output)  # one that came to harm is kept to be looked at
                remove(f"{output}{TABLE}")
            if number % 50 == 49:
                print(f"{number + 1} runs of {len(order)}", file=sys.stderr, flush=True)
    show(tallies)
    if any(t.lost or t.wrong or t.twice for t in tallies.values()):
        raise SystemExit(1)
    shutil.rmtree(args.work)


def _seconds_by_workers(arena: Arena) -> float:
    assert arena.workers is not None
    for name in ("first", "second"):
        begin = time.monotonic()
        output, pool = f"{arena.data}-{name}", lambda: nullcontext(arena.workers)
        score(*arena.args(output), client=pool, **arena.options(output))
    return time.monotonic() - begin


def _order(wanted: list[str], n_runs: int, chance: random.Random) -> list[str]:
    weight = [3 if name in OFTEN else 1 for name in wanted]
    """Attacks by name, each of them once where there are as many runs."""
    order = wanted[:] if n_runs >= len(wanted) else []
    order += chance.choices(wanted, weight, k=n_runs - len(order))
    chance.shuffle(order)
    return order


def show(tallies: dict[str, Tally]) -> None:
    table = Table(
        "attack",
        "runs",
        "hits",
        "run again",
        "rows lost",
        "rows wrong",
        "blocks with two values, rows twice",
        "s per run",
    )
    total: Counter[str] = Counter()
    for name, t in tallies.items():
        if not t.runs:
            continue
        counts = {k: getattr(t, k) for k in ("runs", "hits", "resumes", "lost", "wrong", "twice")}
        total.update(counts)
        table.add(name, *(f"{n:,}" for n in counts.values()), f"{np.median(t.seconds):.1f}")
    table.add("all", *(f"{total[k]:,}" for k in ("runs", "hits", "resumes", "lost", "wrong", "twice")), "")
    table.show()
    if not total["lost"] + total["wrong"] + total["twice"]:
        print(
            f"\nNone in {total['runs']:,} runs: fewer than {3 / total['runs']:.2%} of runs, with 95 %"
            " confidence (3/n)."
        )


if __name__ == "__main__":
    main()
