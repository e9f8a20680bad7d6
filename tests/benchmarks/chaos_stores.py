"""Scoring on an object store under attack: drivers and workers are killed, stopped and doubled, and requests
are spoiled, until every run has come to its end.

    python tests/benchmarks/chaos_stores.py [--store s3|gs|az] [--runs 300] [--share 0.08] [--seed 0]
                                            [--work DIR] [--quick] [--parquet] [--delta]

Model, data and output lie in a bucket of a server on loopback (moto, a small Google server, Azurite), behind
a proxy that spoils so many of all requests: connections that end before or after a request took place, 503
before and after, 429, 409 to puts, half replies. The attacks are those of chaos.py that have a meaning there;
leases are short, since no system releases them. Each output is compared, byte by byte, with a run that was
left in peace on a disk. --parquet and --delta are those of chaos.py.
"""

import argparse
import os
import random
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import chaos
from chaos import ATTACKS, Arena, Tally, committed, contents, prepare, show, small_plan

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.execution.pools import connect
from dcpred.training.fit import publish
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from support.stores import azure_server, gcs_server, moto_server, spoiled

SERVERS = {"s3": moto_server, "gs": gcs_server, "az": azure_server}
CHOSEN = ("kill-driver", "term-driver", "kill-worker", "two-drivers", "stop-driver", "peace")
QUICK, QUICK_LEASE_SECONDS = ("kill-driver", "kill-worker", "stop-driver"), 2.0
OFTEN = {"kill-driver": 3, "two-drivers": 2, "stop-driver": 2, "kill-worker": 2}
AT_ONCE = 8  # Requests of one look at an output.
KINDS = ("drop before", "drop after", "503 before", "503 after", "429 before", "half")


def faults(share: float) -> list[dict[str, object]]:
    """Each kind as often as any other; conflicts only of puts, since nothing else is answered so."""
    kinds: list[dict[str, object]] = [{"match": "^PUT .*json", "fault": "409 before", "share": share / 3}]
    # What is drawn by one rule is not asked of the next: shares are of what is left.
    left = 1.0
    for kind in KINDS:
        own = share / len(KINDS)
        kinds.append({"match": "", "fault": kind, "share": own / left})
        left -= own
    return kinds


def upload(folder: Path, place: Place) -> None:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place.write(str(file.relative_to(folder)), file.read_bytes())


def stored(place: Place) -> dict[str, bytes]:
    """As chaos.contents, from a store."""
    names = [name for name in place.listing("scores.zarr") if name != "scores.zarr/zarr.json"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(names, pool.map(place.read, names), strict=True))
    return {name.removeprefix("scores.zarr/"): one.data for name, one in found.items() if one is not None}


def examine(place: Place, right: dict[str, bytes], peace: Path, tally: Tally) -> None:
    """Count what is lost or wrong, in output chunks, and blocks that were committed with two values."""
    names = place.names("blocks")
    tally.twice += sum(".conflict-" in name for name in names)
    found, wanted = stored(place), committed(p.name for p in (peace / "blocks").iterdir())
    tally.lost += len(wanted - committed(names)) + len(right.keys() - found.keys())
    tally.wrong += sum(found[name] != data for name, data in right.items() if name in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=SERVERS, default="s3")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--share", type=float, help="of requests that are spoiled; 0.08, quick 0.02")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos-stores"))
    parser.add_argument(
        "--quick", action="store_true", help="one run under each of three attacks; 5,000 rows"
    )
    parser.add_argument("--parquet", action="store_true", help="also Parquet files")
    parser.add_argument("--delta", action="store_true", help="also Parquet files, and a Delta table of them")
    args = parser.parse_args()
    share = (0.02 if args.quick else 0.08) if args.share is None else args.share
    small_plan()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    if args.quick:
        chaos.INPUT_ROWS = chaos.CHUNK_ROWS  # a fifth of the requests for data
    local = prepare(args.work, args.quick)
    local.chance = random.Random(args.seed)
    local.parquet, local.delta = args.parquet or args.delta, args.delta
    attacks = ATTACKS | (chaos.OF_DELTA if args.delta else {})
    peace = args.work / "peace"
    chaos._end(chaos._run_driver(local, peace))
    # The group names the run, whose hash knows the tags of its input.
    right = {name: data for name, data in contents(peace).items() if name != "zarr.json"}
    truth = chaos.tables_of(peace, delta=False)[0] if local.parquet else None
    chosen = QUICK if args.quick else CHOSEN + (tuple(chaos.OF_DELTA) if args.delta else ())
    tallies = {name: Tally() for name in chosen}
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[args.store]())
        proxy = stack.enter_context(spoiled(server, seed=args.seed))
        os.environ.update(proxy.environment)
        publish(Path(local.model), open_place(proxy.address("model")))
        upload(Path(local.data), open_place(proxy.address("data.zarr")))
        arena = Arena(proxy.address("model"), proxy.address("data.zarr"), local.chance)
        arena.environment = proxy.environment
        arena.parquet, arena.delta = local.parquet, local.delta
        arena.most_hits = 1 if args.quick else chaos.MOST_HITS
        arena.lease_seconds = QUICK_LEASE_SECONDS if args.quick else chaos.LEASE_SECONDS
        begin = time.monotonic()
        chaos._end(chaos._run_driver(arena, proxy.address("first")))
        arena.seconds = time.monotonic() - begin
        arena.commit_seconds = arena.seconds / 4
        arena.workers = stack.enter_context(connect(2))
        arena.worker_seconds = chaos._seconds_by_workers(arena)
        chaos.short_lease(arena.lease_seconds)
        weights = [OFTEN.get(name, 1) for name in chosen]
        order = list(chosen)
        order += [] if args.quick else arena.chance.choices(chosen, weights, k=args.runs - len(chosen))
        for number, name in enumerate(order):
            output = proxy.address(f"run-{number}")
            tally, begin = tallies[name], time.monotonic()
            proxy.set_faults(*faults(share))
            toll = attacks[name](arena, output) if name != "peace" else chaos.in_peace(arena, output)
            proxy.set_faults()
            tally.runs, tally.hits, tally.resumes = (
                tally.runs + 1,
                tally.hits + toll.hits,
                tally.resumes + toll.resumes,
            )
            tally.seconds.append(time.monotonic() - begin)
            harm = (tally.lost, tally.wrong, tally.twice)
            place = open_place(output)
            examine(place, right, peace, tally)
            for table in chaos.tables_of(output, delta=arena.delta) if truth is not None else ():
                chaos.examine_rows(table, truth, tally)
            if (tally.lost, tally.wrong, tally.twice) == harm:
                chaos.remove(output)
                chaos.remove(f"{output}{chaos.TABLE}")
            if number % 20 == 19:
                print(f"{number + 1} runs of {len(order)}", file=sys.stderr, flush=True)
        spoilt = {name: n for name, n in proxy.counts().items() if " " in name or name == "half"}
    show(tallies)
    print("\nspoiled:", ", ".join(f"{name} {n:,}" for name, n in sorted(spoilt.items())))
    if any(t.lost or t.wrong or t.twice for t in tallies.values()):
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
