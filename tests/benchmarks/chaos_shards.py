"""Shards of one run under attack: four processes without a scheduler, killed, stopped, doubled, late, and
beside drivers of the whole, each run again after every end that was not a good one.

    python tests/benchmarks/chaos_shards.py [--runs 200] [--store s3|gs|az] [--share 0.04] [--seed 0]
                                            [--work DIR] [--quick]

Each run scores the 20,000 rows of letter in 16 blocks. It is at its end when each of the four shards has once
ended with exit code 0, as an array of tasks is; then the manifest must stand, and everything is compared,
byte by byte, with a run by one driver that was left in peace. Attacks, up to six in a run:

    kill, term   SIGKILL or SIGTERM to a shard
    stop         SIGSTOP to a shard, SIGCONT up to two seconds later (on a store longer than its lease lasts)
    twice        a shard is started a second time
    whole        a driver of the whole is started beside the shards
    late         two shards begin after the others, and are killed
    full-disk    a limit on the size of the files of a shard that begins: writes fail part-way
    mixed        any of the above, one after the other

"Blocks with two values" also counts manifests that were written over. With --store, model, data and output
lie on a server on loopback, so many of whose requests are spoiled, and leases are short (chaos_stores.py).
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chaos
import chaos_stores
from chaos import ENDS, N_ROWS, Arena, Tally, Toll, contents, prepare, show, small_plan

from dcpred.runs.latest import MANIFEST
from dcpred.runs.shards import Shard
from dcpred.training.fit import publish
from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import Retrying
from support.stores import spoiled

N_SHARDS = 4
MOST_HITS = 6
MOST_STARTS = 60  # of one shard: more, and a run does not come to its end
LOOK_SECONDS = 0.005
ON_STORES = ("kill", "term", "stop", "twice", "whole", "late", "mixed")


@dataclass
class Run:
    """Four shards, and who else is at work on their output."""

    arena: Arena
    output: Path | str
    attack: str
    toll: Toll = field(default_factory=Toll)
    at_work: dict[int, Any] = field(default_factory=dict)
    """The process of each shard that has begun."""
    again_at: dict[int, float] = field(default_factory=dict)
    """When a shard begins, or is run again."""
    others: list[Any] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    """Shards that begin with a full disk."""
    starts: int = 0
    paused: list[tuple[float, Any]] = field(default_factory=list)
    """Stopped processes, and when they go on."""
    manifest: bytes | None = None
    rewritten: bool = False

    @property
    def place(self) -> Place:
        return open_place(self.output)

    def to_the_end(self) -> None:
        """Attack, and run again, until every shard has ended well."""
        chance, seconds = self.arena.chance, self.arena.seconds
        hits = sorted(chance.uniform(0, seconds) for _ in range(chance.randint(1, self.arena.most_hits)))
        begin, ended = time.monotonic(), set[int]()
        late = chance.sample(range(N_SHARDS), 2) if self.attack == "late" else []
        self.again_at = {i: begin + (seconds if i in late else 0.0) for i in range(N_SHARDS)}
        if late:
            hits = [hit + seconds for hit in hits]
        if self.attack == "full-disk" or (self.attack == "mixed" and not self.arena.environment):
            self.full.update(chance.sample(range(N_SHARDS), min(len(hits), N_SHARDS)))
        while len(ended) < N_SHARDS or self.others or self.paused:
            now = time.monotonic()
            for i in [i for i, at in self.again_at.items() if at <= now]:
                del self.again_at[i]
                self._start(i)
            while hits and hits[0] <= now - begin:
                hits.pop(0)
                self._hit(now)
            self._resume(now)
            ended |= self._look(now)
            if now - begin > chaos.PATIENCE_SECONDS:
                chaos.give_up(f"a run did not come to its end: {self.output}")
            time.sleep(LOOK_SECONDS)

    def _start(self, i: int) -> None:
        self.starts += 1
        if self.starts > N_SHARDS * MOST_STARTS:
            chaos.give_up(f"a run did not come to its end: {self.output}")
        fault = "full-disk" if i in self.full else ""
        self.toll.hits += i in self.full
        self.full.discard(i)
        self.at_work[i] = chaos._run_driver(self.arena, self.output, fault, Shard(i, N_SHARDS))

    def _hit(self, now: float) -> None:
        chance = self.arena.chance
        attack = (
            chance.choice(("kill", "term", "stop", "twice", "whole"))
            if self.attack == "mixed"
            else self.attack
        )
        if attack in ("twice", "whole"):
            shard = Shard(chance.randrange(N_SHARDS), N_SHARDS) if attack == "twice" else None
            self.others.append(chaos._run_driver(self.arena, self.output, "", shard))
            self.toll.hits += 1
            return
        stopped = [process for _, process in self.paused]
        victims = [p for p in self.at_work.values() if p.exitcode is None and p not in stopped]
        if not victims or attack == "full-disk":
            return
        victim = chance.choice(victims)
        number = {"stop": signal.SIGSTOP, "term": signal.SIGTERM}.get(attack, signal.SIGKILL)
        hit = chaos._signalled(victim, number)
        self.toll.hits += hit
        if hit and attack == "stop":
            longest = 2 * self.arena.lease_seconds if self.arena.environment else 2.0
            self.paused.append((now + chance.uniform(0, longest), victim))

    def _resume(self, now: float) -> None:
        for at, process in self.paused[:]:
            if at <= now:
                self.paused.remove((at, process))
                chaos._signalled(process, signal.SIGCONT)

    def _look(self, now: float) -> set[int]:
        """Shards that have ended well since. Others are run again."""
        ended = set()
        for process in self.others[:]:
            process.join(0)
            if process.exitcode is not None:
                self.others.remove(process)
                _check_end(process.exitcode)
        for i, process in list(self.at_work.items()):
            process.join(0)
            if process.exitcode is None:
                continue
            del self.at_work[i]
            _check_end(process.exitcode)
            if process.exitcode == 0:
                ended.add(i)
                continue
            self.toll.resumes += 1
            refused = process.exitcode == RunHeldError.exit_code
            wait = self.arena.lease_seconds / 4 if self.arena.environment else 0.1
            self.again_at[i] = now + (wait if refused else 0.0)
        if ended:
            self._look_at_manifest()
        return ended

    def _look_at_manifest(self) -> None:
        standing = Retrying()(lambda: self.place.read(MANIFEST))  # requests of this process are spoiled, too
        data = None if standing is None else standing.data
        self.rewritten |= self.manifest is not None and data != self.manifest
        self.manifest = data


def _check_end(code: int) -> None:
    if code not in ENDS:
        chaos.give_up(f"a shard ended with {code}")


def attacked(arena: Arena, output: Path | str, attack: str, tally: Tally) -> None:
    """One run, and what it adds to the tally but for its scores."""
    begin, run = time.monotonic(), Run(arena, output, attack)
    run.to_the_end()
    run._look_at_manifest()
    tally.runs, tally.hits, tally.resumes = (
        tally.runs + 1,
        tally.hits + run.toll.hits,
        tally.resumes + run.toll.resumes,
    )
    tally.seconds.append(time.monotonic() - begin)
    tally.lost += N_ROWS if run.manifest is None else 0
    tally.twice += run.rewritten


def time_of_shards(arena: Arena, output: Path | str) -> float:
    """Seconds that four shards take, left in peace."""
    begin = time.monotonic()
    for process in [chaos._run_driver(arena, output, "", Shard(i, N_SHARDS)) for i in range(N_SHARDS)]:
        assert chaos._end(process) == 0
    return time.monotonic() - begin


Examine = Callable[[Any, Tally], None]


@contextmanager
def on_disk(local: Arena, args: argparse.Namespace, right: Path) -> Iterator[tuple[Arena, Any, Examine]]:
    chunks = contents(right)

    def examine(output: Path, tally: Tally) -> None:
        harm = (tally.lost, tally.wrong, tally.twice)
        chaos.examine(output, chunks, right, tally)
        if (tally.lost, tally.wrong, tally.twice) == harm:
            shutil.rmtree(output)  # one that came to harm is kept to be looked at

    yield local, lambda name: args.work / name, examine


@contextmanager
def on_store(local: Arena, args: argparse.Namespace, right: Path) -> Iterator[tuple[Arena, Any, Examine]]:
    # The group names the run, whose hash knows the tags of its input.
    chunks = {name: data for name, data in contents(right).items() if name != "zarr.json"}
    with ExitStack() as stack:
        server = stack.enter_context(chaos_stores.SERVERS[args.store]())
        proxy = stack.enter_context(spoiled(server, seed=args.seed))
        os.environ.update(proxy.environment)
        publish(Path(local.model), open_place(proxy.address("model")))
        chaos_stores.upload(Path(local.data), open_place(proxy.address("data.zarr")))
        arena = Arena(proxy.address("model"), proxy.address("data.zarr"), local.chance)
        arena.environment, arena.most_hits = proxy.environment, local.most_hits
        chaos.short_lease()

        def examine(output: str, tally: Tally) -> None:
            harm, place = (tally.lost, tally.wrong, tally.twice), open_place(output)
            proxy.set_faults()
            chaos_stores.examine(place, chunks, right, tally)
            if (tally.lost, tally.wrong, tally.twice) == harm:
                for stale in place.listing():
                    place.remove(stale)
            proxy.set_faults(*chaos_stores.faults(args.share))

        yield arena, proxy.address, examine
        proxy.set_faults()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", choices=chaos_stores.SERVERS)
    parser.add_argument("--share", type=float, default=0.04, help="of a store's requests that are spoiled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos-shards"))
    parser.add_argument("--quick", action="store_true", help="one run under each attack; 5,000 rows")
    args = parser.parse_args()
    attacks = ON_STORES if args.store else (*ON_STORES[:-1], "full-disk", "mixed")
    small_plan()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    local = prepare(args.work, args.quick)
    local.chance = random.Random(args.seed)
    local.most_hits = 2 if args.quick else MOST_HITS
    chaos._end(chaos._run_driver(local, args.work / "peace"))
    tallies = {name: Tally() for name in attacks}
    order = list(attacks)
    order += [] if args.quick else local.chance.choices(attacks, k=max(args.runs - len(attacks), 0))
    with (on_store if args.store else on_disk)(local, args, args.work / "peace") as (arena, at, examine):
        arena.seconds = time_of_shards(arena, at("first"))
        examine(at("first"), Tally())
        for number, name in enumerate(order):
            attacked(arena, at(f"run-{number}"), name, tallies[name])
            examine(at(f"run-{number}"), tallies[name])
            if number % 20 == 19:
                print(f"{number + 1} runs of {len(order)}", file=sys.stderr, flush=True)
    show(tallies)
    if any(t.lost or t.wrong or t.twice for t in tallies.values()):
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
