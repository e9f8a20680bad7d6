"""Bulk scoring on a disk and on object stores side by side: rows/s, requests, and what slow replies cost.

    python tests/benchmarks/bulk_stores.py [--rows 4_000_000] [--delay 0.05] [--rounds 3] [--stores s3,az]
                                           [--work DIR] [--quick]

Rows of covtype with small noise (bulk.py) are scored by two processes: data, model and output on a disk,
on each server on loopback behind a proxy that only counts, and behind one that delays every request. Rounds
take turns, and medians are told. The servers and the proxy run on the same cores: their own time is in the
figures. The last table holds the seconds of one commit record.
"""

import argparse
import os
import secrets
import shutil
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bulk import prepare
from chaos_stores import SERVERS, upload
from common import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.execution.pools import connect, store_threads
from dcpred.scoring.score import score
from dcpred.training.fit import publish
from dcpred_tasks.storage.place import open_place
from support.pools import inline
from support.stores import Proxy, azurite, spoiled

TRAINED_ON, QUICK_TRAINED_ON = 100_000, 1_000  # rows
QUICK_ROWS, QUICK_LEAVES = 20_000, 16
COMMITS = 40


def timed(model: Any, data: str, output: Any, n_workers: int) -> float:
    """Seconds of the blocks, without the start of the workers."""
    report = score(model, data, output, client=partial(connect, n_workers, **store_threads(data, output)))
    return report.n_rows / report.rows_per_second


def commits(address: str) -> float:
    """Median seconds of a commit record of usual size."""
    place, data = open_place(address), os.urandom(4000)
    place.make_folder("blocks")
    seconds = []
    for number in range(COMMITS):
        begin = time.perf_counter()
        place.create(f"blocks/{number:06d}.json", data + secrets.token_bytes(8))
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds of every request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", default="s3" + (",az" if azurite() else ""))
    parser.add_argument("--work", type=Path, default=Path("benchmark-bulk-stores"))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, one round, a worker, S3")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.rounds, args.stores = QUICK_ROWS, 1, "s3"
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    model = args.work / "model"
    n_workers = 1 if args.quick else 2
    if args.quick:
        data = prepare(model, args.work, args.rows, QUICK_TRAINED_ON, inline, n_leaves=QUICK_LEAVES)
    else:
        data = prepare(model, args.work, args.rows, TRAINED_ON, partial(connect, n_workers))
    table = Table("where", "rows/s", "s", "to the disk", "requests a block")
    records = Table("where", "ms a commit")
    seconds: dict[str, list[float]] = {"disk": []}
    requests: dict[str, float] = {}
    records.add("disk", f"{1e3 * commits(str(args.work / 'commits')):.1f}")
    with ExitStack() as stack:
        proxies: dict[str, Proxy] = {}
        for name in args.stores.split(","):
            server = stack.enter_context(SERVERS[name]())
            for delay in (0.0, args.delay):
                proxy = stack.enter_context(spoiled(server))
                proxies[f"{name}, {1e3 * delay:.0f} ms"] = proxy
                os.environ.update(proxy.environment)
                open_fresh()
                if not delay:
                    publish(model, open_place(proxy.address("model")))
                    upload(data, open_place(proxy.address("data.zarr")))
                    records.add(name, f"{1e3 * commits(proxy.address('commits')):.1f}")
                else:
                    proxy.set_faults({"match": "", "fault": f"delay:{delay}"})
        for number in range(args.rounds):
            seconds["disk"].append(timed(model, str(data), args.work / f"out-{number}", n_workers))
            for where, proxy in proxies.items():
                os.environ.update(proxy.environment)
                open_fresh()
                before = sum(proxy.counts().values())
                output = proxy.address(f"out-{number}-{secrets.token_hex(3)}")
                took = timed(proxy.address("model"), proxy.address("data.zarr"), output, n_workers)
                seconds.setdefault(where, []).append(took)
                n_blocks = len(open_place(output).names("blocks"))
                requests[where] = (sum(proxy.counts().values()) - before) / n_blocks
    disk = float(np.median(seconds["disk"]))
    for where, each in seconds.items():
        middle = float(np.median(each))
        asked = f"{requests[where]:.1f}" if where in requests else ""
        table.add(where, f"{args.rows / middle:,.0f}", f"{middle:.1f}", f"{middle / disk:.2f}", asked)
    table.show()
    print()
    records.show()
    shutil.rmtree(args.work)


def open_fresh() -> None:
    """Stores are kept by address, and another server has the same one here."""
    from dcpred_tasks.storage import bucket, object_arrays, store_requests, zarr_arrays

    for kept in (
        bucket._opened,
        object_arrays._store,
        store_requests.open_store,
        zarr_arrays._opened_once,
    ):
        kept.cache_clear()


if __name__ == "__main__":
    main()
