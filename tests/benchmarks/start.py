"""The start of workers of this machine: seconds with certificates of their own, and without any.

    python tests/benchmarks/start.py [--workers 2] [--rounds 11] [--quick]

In turns, from the call to the first answer of every worker; medians, and the median of what the certificates
add in a round. Beside the seconds those that the driver's own process spent on a processor.
"""

import argparse
import time
from unittest import mock

import numpy as np
from common import Table
from distributed.security import Security

from dcpred.execution import dask_workers
from dcpred.execution.dask_workers import connected

WAYS = ("with certificates", "without")


def started(n_workers: int) -> tuple[float, float]:
    """Seconds, and those of a processor."""
    begin, work = time.perf_counter(), time.process_time()
    with connected(n_workers, None):
        return time.perf_counter() - begin, time.process_time() - work


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="one round, one worker")
    args = parser.parse_args()
    if args.quick:
        args.workers, args.rounds = 1, 1
    taken = np.empty((args.rounds, len(WAYS), 2))
    for each in taken:
        each[0] = started(args.workers)
        with mock.patch.object(dask_workers.Security, "temporary", Security):
            each[1] = started(args.workers)
    table = Table(f"start of {args.workers} workers", "s", "processor s")
    for name, (seconds, work) in zip(WAYS, np.median(taken, axis=0), strict=True):
        table.add(name, f"{seconds:.2f}", f"{work:.2f}")
    seconds, work = np.median(taken[:, 0] - taken[:, 1], axis=0)
    table.add("what certificates add", f"{seconds:.2f}", f"{work:.2f}")
    table.show()


if __name__ == "__main__":
    main()
