"""`dcpred refresh` under attack: night after night an input changes, and whoever brings the latest run up to
date is killed, stopped, doubled and given a spoiled store, until it has come to its end.

    python tests/benchmarks/chaos_refresh.py [--store s3|gs|az] [--nights 100] [--share 0.08] [--seed 0]
                                             [--work DIR] [--quick]

A root lives for ten nights. Before each of them rows are appended, a chunk is rewritten, another model is
trained, or nothing is done; then refresh is called until it ends well, attacked up to three times:

    kill, term   SIGKILL or SIGTERM to the driver
    stop         SIGSTOP, while a second driver tries; then SIGCONT
    two          a second driver
    peace        nothing but what the store does

At every end, good or bad, a reader looks at the latest run, which must be whole and hold what a run from
scratch gives, of the input as it is or as it was the night before; after a good end, as it is. Without
--store, everything lies on a disk; with it, in a bucket of a server on loopback, behind a proxy that spoils
so many of all requests (see chaos_stores.py).
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import chaos
import chaos_stores
import numpy as np
import zarr
from chaos import LEASE_SECONDS, Arena, Tally, contents, show, small_plan
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.plan import Cut
from dcpred.refreshing.refresh import refresh
from dcpred.runs.ledger import MANIFEST, latest_run, open_ledger
from dcpred.scoring.score import plan_run, score
from dcpred.training.train import train
from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.training.settings import make_settings
from support.data import make_blobs, make_group
from support.stores import spoiled

ATTACKS = ("kill", "term", "stop", "two", "peace")
CHANGES = ("append", "append", "rewrite", "model", "nothing")
N_FEATURES, FIRST_ROWS, CHUNK_ROWS = 8, 4_000, 250
MOST_NEW = 700  # rows of a night
NIGHTS_OF_A_ROOT, MOST_CALLS = 10, 25
Chunks = dict[str, bytes]


def rows(n: int, seed: int) -> NDArray[Any]:
    return np.asarray(make_blobs(n, n_features=N_FEATURES, n_classes=3, seed=seed).X)


def trained(folder: Path, seed: int) -> Path:
    known = make_blobs(500, n_features=N_FEATURES, n_classes=3, seed=seed)
    data = make_group(folder / f"train-{seed}.zarr", known.X, known.y)
    settings = make_settings({"n_leaves": 4, "landmarks": 8, "refine_steps": 5})
    train(f"{data}/X", f"{data}/y", folder / f"model-{seed}", settings, chaos.alone)
    return folder / f"model-{seed}"


@dataclass
class World:
    """One root and what it is made from: here in folders, there where refresh finds it.

    cut       of the first run, which all others have
    truths    the chunks that a run from scratch gives, of the input the night before and now
    """

    folder: Path
    address: str
    models: list[Path]
    arena: Arena
    number: int = 0
    cut: Cut | None = None
    truths: list[Chunks] = field(default_factory=list)

    @property
    def x(self) -> str:
        return f"{self.address}/data.zarr/X"

    @property
    def root(self) -> str:
        return f"{self.address}/root"

    @property
    def model(self) -> str:
        return f"{self.address}/model-{self.number}"

    def begin(self) -> None:
        """The first night, in peace."""
        make_group(self.folder / "data.zarr", rows(FIRST_ROWS, self.seed()), chunk_rows=CHUNK_ROWS)
        self.bring()
        if code := strike(self, "peace", chaos.Toll()):
            chaos.give_up(f"the first refresh ended with {code}")
        run = open_ledger(f"{self.root}/runs/{latest_run(open_place(self.root))}").run
        self.cut = Cut(run.chunk_rows, run.block_rows, run.stride)
        self.truths = [self.truth()]

    def seed(self) -> int:
        return self.arena.chance.randrange(2**31)

    def change(self) -> str:
        kind = self.arena.chance.choice(CHANGES)
        array = zarr.open_array(f"{self.folder}/data.zarr/X", mode="r+")
        if kind == "append":
            array.append(rows(self.arena.chance.randint(1, MOST_NEW), self.seed()))
        elif kind == "rewrite":
            first = self.arena.chance.randrange(array.shape[0] - CHUNK_ROWS)
            array[first : first + CHUNK_ROWS] = rows(CHUNK_ROWS, self.seed())
        elif kind == "model":
            self.number = 1 - self.number
        self.bring()
        return kind

    def bring(self) -> None:
        """Take what is new to where refresh finds it; nothing else is written again."""
        place = open_place(self.address)
        for source in (self.folder / "data.zarr", *self.models):
            for file in sorted(path for path in source.rglob("*") if path.is_file()):
                name, data = str(Path(source.name, file.relative_to(source))), file.read_bytes()
                standing = place.read(name)
                if standing is None or standing.data != data:
                    place.make_folder(str(Path(name).parent))
                    place.write(name, data)

    def driver(self) -> Any:
        work = partial(refresh, self.model, self.x, self.root, chaos.alone, keep=3)
        return chaos.start_driver(self.arena, work, self.root)

    def truth(self) -> Chunks:
        """What a run from scratch gives, on the disk."""
        output, x = self.folder / "scratch", f"{self.folder}/data.zarr/X"
        model = self.models[self.number]
        score(model, x, output, chaos.alone, planned=plan_run(model, x, output, cut=self.cut))
        found = {name: data for name, data in contents(output).items() if name != "zarr.json"}
        shutil.rmtree(output)
        return found

    def latest(self) -> Chunks:
        """What a reader finds; nothing where the latest run is not whole."""
        name = latest_run(open_place(self.root))
        place = open_place(f"{self.root}/runs/{name}")
        return chaos_stores.stored(place) if name and place.read(MANIFEST) is not None else {}


def look(world: World, tally: Tally, ended: bool) -> None:
    """Count chunks of the latest run that are missing, wrong, or too many."""
    chunks, (old, new) = world.latest(), world.truths
    right = new if ended or chunks != old else old
    tally.lost += len(right.keys() - chunks.keys())
    tally.wrong += sum(chunks[name] != data for name, data in right.items() if name in chunks)
    tally.twice += len(chunks.keys() - right.keys())


def strike(world: World, attack: str, toll: chaos.Toll) -> int:
    """One call of refresh under an attack; its exit code, or the worse one of two."""
    chance, arena, begin = world.arena.chance, world.arena, time.monotonic()
    first = world.driver()
    if attack == "peace":
        code = chaos._end(first)
        arena.seconds = time.monotonic() - begin
        return code
    time.sleep(chance.uniform(0, arena.seconds))
    if attack in ("kill", "term"):
        toll.hits += chaos._signalled(first, signal.SIGKILL if attack == "kill" else signal.SIGTERM)
        return chaos._end(first)
    toll.hits += 1
    if attack == "stop":
        chaos._signalled(first, signal.SIGSTOP)
        if arena.environment:
            time.sleep(chance.uniform(0, 2 * LEASE_SECONDS))
    second = world.driver()
    codes = [chaos._end(second)] if attack == "stop" else []
    chaos._signalled(first, signal.SIGCONT)
    codes += [chaos._end(first)] + ([] if codes else [chaos._end(second)])
    return max(codes, key=lambda code: code != 0)


def night(world: World, attack: str, quiet: Any, tally: Tally) -> None:
    """One change of the input, and calls until one has ended well without an attack."""
    begin, toll, code = time.monotonic(), chaos.Toll(), 1
    with quiet():
        world.change()
        world.truths = [world.truths[-1], world.truth()]
    hits = world.arena.chance.randint(1, world.arena.most_hits) if attack != "peace" else 0
    for number in range(MOST_CALLS):
        code = strike(world, attack if number < hits else "peace", toll)
        with quiet():
            look(world, tally, ended=code == 0)
        if code == 0 and number >= hits:
            break
        toll.resumes += 1
        if code == RunHeldError.exit_code and world.arena.environment:
            time.sleep(LEASE_SECONDS)
    else:
        chaos.give_up(f"a refresh did not come to its end: exit code {code}, {world.root}")
    tally.runs, tally.hits = tally.runs + 1, tally.hits + toll.hits
    tally.resumes += toll.resumes
    tally.seconds.append(time.monotonic() - begin)


@contextmanager
def arena_of(args: argparse.Namespace) -> Iterator[tuple[Arena, Any, Any]]:
    """The arena, what gives an address, and what keeps faults away for a while."""
    arena = Arena("", "", random.Random(args.seed), most_hits=1 if args.quick else chaos.MOST_HITS)
    if args.store is None:
        yield arena, lambda name: str(args.work.resolve() / "there" / name), ExitStack
        return
    with ExitStack() as stack:
        server = stack.enter_context(chaos_stores.SERVERS[args.store]())
        proxy = stack.enter_context(spoiled(server, seed=args.seed))
        os.environ.update(proxy.environment)
        arena.environment = proxy.environment
        chaos.short_lease()

        @contextmanager
        def quiet() -> Iterator[None]:
            proxy.set_faults()
            yield
            proxy.set_faults(*chaos_stores.faults(args.share))

        yield arena, proxy.address, quiet


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=chaos_stores.SERVERS)
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.08, help="of a store's requests that are spoiled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos-refresh"))
    parser.add_argument("--quick", action="store_true", help="four nights, of one hit each")
    args = parser.parse_args()
    small_plan()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    models = [trained(args.work, seed) for seed in (0, 1)]
    tallies = {name: Tally() for name in ATTACKS}
    with arena_of(args) as (arena, address, quiet):
        order = [ATTACKS[i % len(ATTACKS)] for i in range(4 if args.quick else args.nights)]
        world = World(args.work, "", models, arena)
        for number, attack in enumerate(order):
            if number % NIGHTS_OF_A_ROOT == 0:
                world = World(args.work / f"here-{number}", address(f"there-{number}"), models, arena)
                with quiet():
                    world.begin()
            night(world, attack, quiet, tallies[attack])
            if number % 20 == 19:
                print(f"{number + 1} nights of {len(order)}", file=sys.stderr, flush=True)
    show(tallies)
    if any(t.lost or t.wrong or t.twice for t in tallies.values()):
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
