"""The state of a run of many blocks on a store that takes its time: seconds and requests.

    python tests/benchmarks/status_stores.py [--blocks 100_000] [--page 1000] [--delay 0.1] [--rounds 5]
                                             [--quick]

A server on loopback (the small one of the tests, for Google's interface) holds so many commit records, and
tells a page of their names in a request, as the vendors do. A proxy lets every request wait. Medians of
rounds: `dcpred status`, which lists them, and the same names in one row, a page after the other. Server and
proxy run on the same cores: on a busy machine the processor time of the client tells more than the seconds.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from common import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.runs.latest import PLAN
from dcpred.runs.ledger import FORMAT, VERSION
from dcpred.runs.status import run_status
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.storage.place import open_place, write_document
from support.stores import Proxy, gcs_server, spoiled

BLOCK_ROWS = 65_536
QUICK_BLOCKS = 3_000


def timed(proxy: Proxy, delay: float, rounds: int, ask: Callable[[], int]) -> list[str]:
    """What is found, median seconds, those of this process on a processor, and requests, as cells."""
    fault = f"delay:{delay}"
    seconds, worked, found = [], [], 0
    before = proxy.counts().get(fault, 0)
    for _ in range(rounds):
        begin, work = time.perf_counter(), time.process_time()
        found = ask()
        seconds.append(time.perf_counter() - begin)
        worked.append(time.process_time() - work)
    requests = (proxy.counts()[fault] - before) // rounds
    return [f"{found:,}", f"{np.median(seconds):.2f}", f"{np.median(worked):.2f}", f"{requests:,}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--page", type=int, default=1000, help="names in a reply")
    parser.add_argument("--delay", type=float, default=0.1, help="seconds of every request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_BLOCKS:,} blocks, one round")
    args = parser.parse_args()
    if args.quick:
        args.blocks, args.rounds = QUICK_BLOCKS, 1
    table = Table("what", "blocks found", "s", "processor s", "requests")
    with gcs_server(str(args.page), "run", str(args.blocks)) as server, spoiled(server) as proxy:
        os.environ.update(proxy.environment)
        output = open_place(proxy.address("run"))
        told = ScoreRun(
            run="0" * 32,
            x=proxy.address("data.zarr/X"),
            model=proxy.address("model"),
            model_hash="0" * 32,
            output=output.address,
            outputs=("label", "decision"),
            n_rows=args.blocks * BLOCK_ROWS,
            chunk_rows=BLOCK_ROWS,
            block_rows=BLOCK_ROWS,
        )
        write_document(output, PLAN, {"format": FORMAT, "version": VERSION, **asdict(told)})
        proxy.set_faults({"match": "", "fault": f"delay:{args.delay}"})
        ways: dict[str, Callable[[], int]] = {
            "dcpred status": lambda: run_status(output.address).done_blocks,
            "one page after the other": lambda: len(output.listing("blocks")),
        }
        for what, ask in ways.items():
            table.add(what, *timed(proxy, args.delay, args.rounds, ask))
    table.show()


if __name__ == "__main__":
    main()
