"""Scores in a Delta table under attack: whoever delivers is killed, and others change the table.

    python tests/benchmarks/chaos_delta.py [--runs 400] [--steps 8] [--seed 0] [--work DIR] [--quick]

A run is a table, three outputs of two nights, of which two hold the same rows, and a random history. Others
append, delete, update, overwrite, restore, compact, vacuum, and clean the log up. Outputs are scored into the
table, delivered, repaired after a correction, and delivered by two processes at once. Some of these processes
are killed: at any time, or just before or after the transaction, `delivery.json`, the copy of a file, or the
tables of a block that was scored without.

After each event `verify` of each output is compared with the rows that another library reads. At the end all
is delivered, as the messages advise. Lost are rows that are missing after a delivery that ended well, twice
those that are there more often, and wrong is a `verify` that says otherwise than the rows.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from common import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
import dcpred
from dcpred.runs import delta_tables
from dcpred.scoring import deliver as delivering
from dcpred_tasks.errors import DcpredError
from support.delta_histories import NIGHTS, History, make_outputs, small_blocks

HERE = Path(__file__).parent
FOLDERS = str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, FOLDERS))
CONTEXT = multiprocessing.get_context("forkserver")
# Or every process would load them, also for the sake of the module that begins it.
CONTEXT.set_forkserver_preload(
    [
        "dcpred.scoring.score",
        "dcpred_tasks.engine.engine",
        "dcpred_tasks.tables.block_tables",
        "dcpred_tasks.tables.row_counts",
        "pandas",
        "psutil",
        "support.delta_histories",
        "common",
    ]
)
POINTS = {"_added": delta_tables, "_record": delta_tables, "_place": delta_tables, "add_tables": delivering}
LATEST_SECONDS = 0.5  # of a kill at any time
KILLED, REFUSED = -signal.SIGKILL, 3
MOST_CALLS = 20


def _die(*args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _attacked(call: Any, fault: str, seconds: float) -> None:
    """In a process of its own: do some work, and be killed.

    fault  "": never; "any": after some seconds; else before or after a point
    """
    if fault == "any":
        timer = threading.Timer(seconds, _die)
        timer.daemon = True
        timer.start()
    elif fault:
        when, point = fault.split()
        real = getattr(POINTS[point], point)

        def dying(*args: Any) -> Any:
            if when == "after":
                real(*args)
            _die()

        setattr(POINTS[point], point, dying)
    try:
        with small_blocks():
            call()
    except DcpredError as error:
        os._exit(error.exit_code)
    os._exit(0)


class Arena(History):
    """A history whose deliveries run in processes of their own."""

    killed = 0

    def start(self, call: Any, fault: str) -> Any:
        process = CONTEXT.Process(
            target=_attacked, args=(call, fault, self.chance.uniform(0, LATEST_SECONDS))
        )
        process.start()
        return process

    def wait(self, process: Any) -> int:
        process.join()
        code = int(process.exitcode)
        self.killed += code == KILLED
        if code not in (0, KILLED, REFUSED):
            raise SystemExit(f"a process ended with {code}, after {self.done}")
        return code

    def fault(self) -> str:
        return self.chance.choice(
            ["any", *(f"{when} {point}" for when in ("before", "after") for point in POINTS)]
        )

    def delivery(self, name: str) -> Any:
        return partial(dcpred.deliver, str(self.folder / name), str(self.table))

    def deliver_and_die(self, name: str, *, after: bool) -> None:
        self.wait(self.start(self.delivery(name), self.fault()))

    def deliver_twice_at_once(self) -> None:
        processes = [
            self.start(self.delivery(name), self.chance.choice(["", "", self.fault()])) for name in NIGHTS
        ]
        for process in processes:
            self.wait(process)

    def begin(self) -> None:
        """Score one output into the table, at once or later: each command until it ends well."""
        data, output = self.made / "b.zarr", self.folder / "b"
        shutil.rmtree(output)
        score = partial(dcpred.score, str(self.made / "model"), str(data), str(output))
        into = {"delta": str(self.table), "id": ["id"]}
        deliver = partial(dcpred.deliver, str(output), str(self.table), id=["id"])
        folder = partial(dcpred.deliver, str(output), id=["id"])
        calls = self.chance.choice(
            [
                [partial(score, **into)],
                [score, deliver],
                [score, folder, deliver],
                [score, partial(score, **into)],
                [partial(score, parquet=True, id=["id"]), score, deliver],
            ]
        )
        for call in calls:
            for number in range(MOST_CALLS):
                if self.wait(self.start(call, "" if number else self.fault())) == 0:
                    break
        self.done.append(f"score b in {len(calls)} calls")
        self.check_delivered("b")
        self.check()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos-delta"))
    parser.add_argument("--quick", action="store_true", help="two runs of four steps")
    args = parser.parse_args()
    runs, steps = (2, 4) if args.quick else (args.runs, args.steps)
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    work = args.work.resolve()
    with small_blocks():
        make_outputs(work)
    counts, begin = Counter[str](), time.monotonic()
    events = Counter[str]()
    for number in range(runs):
        arena = Arena(work, work / f"run-{number}", random.Random(args.seed * 10**6 + number))
        arena.begin()
        for _ in range(steps):
            arena.step()
            arena.check()
        arena.settle()
        events.update(" ".join(one.split()[:1]) for one in arena.done)
        counts.update(kind for kind, _ in arena.harm)
        counts["killed"] += arena.killed
        for kind, what in arena.harm:
            print(f"run {number}, {kind}: {what}", file=sys.stderr)
        if not arena.harm:
            shutil.rmtree(arena.folder)  # One that came to harm is kept to be looked at.
    table = Table("runs", "events", "processes killed", "lost", "twice", "verify wrong", "s per run")
    harm = [f"{counts[kind]:,}" for kind in ("lost", "twice", "wrong")]
    seconds = (time.monotonic() - begin) / runs
    table.add(f"{runs:,}", f"{events.total():,}", f"{counts['killed']:,}", *harm, f"{seconds:.1f}")
    table.show()
    if counts["lost"] + counts["twice"] + counts["wrong"]:
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
